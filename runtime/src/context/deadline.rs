//! The timer of a deadline.

use super::tree::{Node, Verdict};
use crate::host::Active;
use crate::prim::Weak;
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use gmp_timers::Nanos;

/// A timer that is armed. Dropped, it does not fire any more, though it may be about it.
pub(super) struct Alarm(Guard<Active>);

/// Ends `node` by `verdict` at `at`, if anybody still holds it then.
pub(super) fn arm(at: Nanos, node: Weak<Node>, verdict: Verdict) -> Alarm {
    // Not inline: an end drops causes, which are the user's.
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
