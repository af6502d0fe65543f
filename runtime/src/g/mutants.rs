//! The code of mutants of a goroutine's end that does not fit in one line.

use super::GRef;
use super::life::OUTCOME;
use crate::host::Host;

/// `HandleGoesFirst`: the rest of `drop_handle`, which has given the handle up and only then drops the outcome.
pub(super) fn forget_late<H: Host>(g: GRef<H>, life: u32, taken: bool) {
    if life & OUTCOME != 0 && !taken {
        // SAFETY: none, which is the mutant.
        unsafe { g.task.forget() };
    }
}
