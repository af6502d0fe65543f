//! The code of mutants of the queue that does not fit in one line.

use super::Runq;
use super::head::Head;
use crate::g::{G, GRef};
use crate::host::Host;
use crate::prim::Release;
use std::ptr::null_mut;

impl<H: Host> Runq<H> {
    /// `RunnextTakenByStore`: the owner takes `next` as if no thief could.
    pub(super) fn take_next_by_a_store(&self, next: *mut G<H>) -> GRef<H> {
        self.runnext.store(null_mut(), Release);
        // SAFETY: none, which is the mutant: a thief might have taken the G.
        unsafe { GRef::from_raw(next) }
    }

    /// `RingHeadStore`: the owner takes the G at `head` as if no thief could.
    pub(super) fn pop_by_a_store(&self, head: Head) -> GRef<H> {
        self.head.store(head.taken(1).0, Release);
        // SAFETY: none, which is the mutant: a thief might have taken the G.
        unsafe { self.read(head.real()) }
    }
}
