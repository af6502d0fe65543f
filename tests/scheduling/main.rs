#![cfg(not(gmp_loom))]
//! Which goroutine runs where and when: the promises of a scheduler, measured from outside through the public calls.
//!
//! Each test has the process to itself (`measure::alone`), since they count its system calls and time its threads.
//! Where the kernel has a say, plain threads do the same thing in the same run, and the bound is a multiple of
//! theirs. `cargo test --release --test scheduling -- --nocapture` prints the figures.

mod arrivals;
mod attacks;
mod class_order;
mod fairness;
mod keepers;
mod measure;
mod policies;
mod priorities;
mod quiet;
mod spread;
mod timers;
mod transfer;
mod verbs;
mod wakes;
