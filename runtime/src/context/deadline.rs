//! The timer of a deadline.

use super::tree::{Node, Verdict};
use crate::host::Active;
use crate::prim::Weak;
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use gmp_timers::Nanos;

/// An armed timer. The drop stops the timer, but does not wait for a firing that has begun.
pub(super) struct Alarm(Guard<Active>);

/// Ends `node` by `verdict` at `at`, if the node still has an owner then.
pub(super) fn arm(at: Nanos, node: Weak<Node>, verdict: Verdict) -> Alarm {
    // Does not run inline on the timers' M: the end of a context drops causes, which is the user's code.
    Alarm(call_at(at, RunMode::Uncounted, move || {
        if let Some(node) = node.upgrade() {
            node.end(&verdict);
        }
    }))
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.0.stop();
    }
}
