//! A thief's claim on a part of the ring.

use super::Runq;
use super::head::Head;
use crate::g::GRef;
use crate::host::Host;
use crate::prim::hooks::*;
use crate::prim::{Relaxed, Release};

/// A thief in a ring. The claimed Gs are the thief's alone, and their slots stay as they are, until this value is
/// dropped.
pub(super) struct Claim<'r, H: Host> {
    pub(super) ring: &'r Runq<H>,
    pub(super) first: u32,
    pub(super) n: u32,
}

impl<H: Host> Claim<'_, H> {
    /// T4: returns the claimed Gs, the oldest first. To be gone through once.
    pub(super) fn gs(&self) -> impl Iterator<Item = GRef<H>> {
        // SAFETY: `claim` has seen them below the tail, and `steal` keeps the owner from them (invariant 2).
        (0..self.n).map(|at| unsafe { self.ring.read(self.first.wrapping_add(at)) })
    }
}

impl<H: Host> Drop for Claim<'_, H> {
    /// T5.
    fn drop(&mut self) {
        let mut head = Head::new(self.first, self.first.wrapping_add(self.n));
        // Release: the copies come before the owner's next look: partner `owners_head`; invariant 3: partners `claim` and
        // `is_empty`.
        let ordering = Release.unless(RingReleaseRelaxed);
        // The exchange fails each time the owner pops meanwhile.
        while let Err(now) = self.ring.head.compare_exchange(head.0, head.released().0, ordering, Relaxed) {
            head = Head(now);
        }
    }
}
