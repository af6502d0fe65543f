#![cfg(not(gmp_loom))]
//! `gmp::sync`: what its types promise, to goroutines, to plain threads, and to both at once.

mod condvar;
mod flight;
mod futures;
mod interrupt;
mod left;
mod lock_api;
mod mutex;
mod once;
mod pool;
mod rwlock;
mod semaphore;
mod support;
mod upgrade;
mod waitgroup;
