#![cfg(not(gmp_loom))]
//! Races, many times over: every waiter is woken, and every goroutine that was started runs or is dropped, once.
//!
//! `GMP_STRESS=20 cargo test --release --test stress` runs twenty times as many rounds; the default is 1, which is
//! about a million for each of the races between Ps, and a tenth of it in a debug build.

mod channels;
mod futures;
mod idle;
mod runtimes;
mod sockets;
mod spawns;
mod support;
mod tasks;
mod timers;
mod wakes;
