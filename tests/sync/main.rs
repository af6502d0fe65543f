#![cfg(not(gmp_loom))]
//! `gmp::sync`: the promises of its types, for goroutines, for plain threads, and for both at once.

mod condvar;
mod dropped;
mod flight;
mod formats;
mod futures;
mod interrupt;
mod left;
mod limits;
mod lock_api;
mod mutex;
mod once;
mod pool;
mod relocks;
mod rwlock;
mod semaphore;
mod support;
mod unrun;
mod upgrade;
mod waitgroup;
