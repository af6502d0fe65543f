//! The timer channel of a [`Timer`](super::Timer) or [`Ticker`](super::Ticker).

use crate::chan::{self, Receiver, Tick};
use gmp_timers::Nanos;
use std::time::{Duration, Instant};

/// The timer's side of the channel.
pub(super) struct Source(Receiver<Instant>);

impl Source {
    pub(super) fn new(due: Nanos, period: Duration) -> Self {
        Source(chan::clock(due, period))
    }

    pub(super) fn receiver(&self) -> &Receiver<Instant> {
        &self.0
    }

    /// Replaces the tick, and discards a value that is due and was not received. Returns `true` if a value was still to come or
    /// to be received.
    pub(super) fn set(&self, due: Option<Nanos>, period: Duration) -> bool {
        let chan = self.0.chan().expect("set: the channel is a timer channel");
        chan.set_tick(Tick { due, period }).is_some_and(|before| before.due.is_some())
    }
}
