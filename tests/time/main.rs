#![cfg(not(gmp_loom))]
//! Sleeping, timers, and contexts.

mod context;
mod context_run;
mod futures;
mod many;
mod orphans;
mod receivers;
mod sleep;
mod timers;
