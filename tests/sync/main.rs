#![cfg(not(gmp_loom))]
//! `gmp::sync`: what its types promise, to goroutines, to plain threads, and to both at once.

#[path = "../common/bolt.rs"]
mod bolt;
#[path = "../common/mod.rs"]
mod common;

mod condvar;
mod flight;
mod interrupt;
mod left;
mod mutex;
mod once;
mod pool;
mod rwlock;
mod semaphore;
mod support;
mod waitgroup;
