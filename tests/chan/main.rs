#![cfg(not(gmp_loom))]
//! Channels: what is sent is received once and in order, by goroutines and plain threads alike.

mod broadcast;
mod close;
mod drops;
mod errors;
mod fifo;
mod futures;
mod iter;
mod many;
mod programs;
mod promises;
mod promises_left;
mod rendezvous;
mod select;
mod storm;
mod timeouts;
mod turns;
mod watch;

use common::crew::CREWS;
use common::random;
use gmp::chan::{Receiver, Sender, bounded, unbounded};

/// Returns the share of each of `takers` in each crew, so that all shares sum up to `total`.
fn share(total: usize, takers: usize) -> usize {
    random::rounds(total / 4 / CREWS / takers)
}

/// A channel of each kind.
fn every_kind<T>() -> [(Sender<T>, Receiver<T>); 5] {
    [bounded(0), bounded(1), bounded(2), bounded(128), unbounded()]
}
