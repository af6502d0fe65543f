//! The latest time at which a context is done, and the timer for it.

use super::tree::{Node, Verdict};
use crate::host::{Active, Clock};
use crate::prim::Weak;
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use gmp_timers::Nanos;
use std::time::{Duration, Instant};

/// The latest time at which a node is done.
#[derive(Copy, Clone)]
pub(super) struct Deadline {
    pub(super) at: Nanos,
    /// The instant that the user gave, which may lie outside of the clock's range.
    given: Option<Instant>,
}

impl Deadline {
    /// Makes a deadline from an instant that the user gave.
    pub(super) fn named(deadline: Instant) -> Self {
        Deadline { at: Active::nanos(deadline), given: Some(deadline) }
    }

    /// Makes a deadline that is counted from now.
    pub(super) fn counted(timeout: Duration) -> Self {
        Deadline { at: Active::after(timeout), given: None }
    }

    pub(super) fn instant(&self) -> Instant {
        self.given.unwrap_or_else(|| Active::instant(self.at))
    }
}

/// An armed timer. The drop stops the timer, but does not wait for a firing that has begun.
pub(super) struct DeadlineTimer(Guard<Active>);

/// Ends `node` by `verdict` at `at`, if the node still has an owner then.
pub(super) fn arm(at: Nanos, node: Weak<Node>, verdict: Verdict) -> DeadlineTimer {
    // Does not run inline on the timers' M: the end of a context drops causes, whose drops are user code.
    DeadlineTimer(call_at(at, RunMode::Uncounted, move || {
        if let Some(node) = node.upgrade() {
            node.end(&verdict);
        }
    }))
}

impl Drop for DeadlineTimer {
    fn drop(&mut self) {
        self.0.stop();
    }
}
