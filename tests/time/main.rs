#![cfg(not(gmp_loom))]
//! Sleeping, timers, and contexts.

mod context;
mod context_run;
mod sleep;
mod timers;
