//! What a [`Timer`](super::Timer) or [`Ticker`](super::Ticker) needs of the channel that tells its time.

use crate::chan::{self, Receiver, Tick};
use gmp_timers::Nanos;
use std::time::{Duration, Instant};

/// The side of the timer.
pub(super) struct Source(Receiver<Instant>);

impl Source {
    pub(super) fn new(due: Nanos, period: Duration) -> Self {
        Source(chan::clock(Some(due), period))
    }

    pub(super) fn receiver(&self) -> &Receiver<Instant> {
        &self.0
    }

    /// Forgets what was due, taken or not, and sets it anew. True when a value was still to come, or to be taken.
    pub(super) fn set(&self, due: Option<Nanos>, period: Duration) -> bool {
        let chan = self.0.chan().expect("set: a channel that tells the time is one");
        chan.set_tick(Tick { due, period }).is_some_and(|before| before.due.is_some())
    }
}
