//! The owner takes a G out of the middle of its ring.
//!
//! ```text
//!            a thief copies these     these can be taken                  the owner's claim, up to the one it wants
//!    ··· │ ······················ │ ······················ │ free ···     │ a b c W │ d e ···
//!        ▲ steal                  ▲ real                   ▲ tail         ▲ steal   ▲ real
//!
//!                                                          it moves a b c on by one, and lets go:    │ a b c │ d e ···
//!                                                                                                    ▲ steal, real
//! ```
//! *The obvious way*, to move those that stand before `W` while thieves may copy them, has a thief read what is being
//! written. *Here* the owner claims as a thief does: while steal ≠ real no thief comes in (`Refused::Busy`), and the
//! owner, which alone pops, is here. The owner then writes slots that were its own once already, and lets go by one
//! store, after which the heads say that one G was popped.
//!
//! Meanwhile real has gone ahead, and comes back: `is_empty`, which relies on real to grow, may find the ring empty when `W` is
//! the last one in it. [`Picked::hid`] says so, and the caller wakes an M then. The heads do not return to an old value: both
//! go on by one.

use super::Runq;
use super::head::Head;
use crate::g::GRef;
use crate::host::Host;
use crate::prim::hooks::*;
use crate::prim::{Relaxed, Release};
use std::mem::MaybeUninit;

/// What was taken.
#[must_use]
pub(crate) struct Picked<H: Host> {
    pub(crate) g: GRef<H>,
    /// For a moment the ring seemed empty, and was not.
    pub(crate) hid: bool,
}

impl<H: Host> Runq<H> {
    /// Any thread: returns `true` if a G stands in runnext, which `len` does not count. A hint.
    pub(crate) fn has_next(&self) -> bool {
        // Relaxed: a hint.
        !self.runnext.load(Relaxed).is_null()
    }

    /// Owner only. Returns `true` if the G in runnext is it. A hint, as a thief may take that G.
    pub(crate) fn is_next(&self, is_it: impl Fn(GRef<H>) -> bool) -> bool {
        // Relaxed: the owner put it, or it is null.
        let next = self.runnext.load(Relaxed);
        // SAFETY: put there by `push_next`. Nothing is read of the G.
        !next.is_null() && is_it(unsafe { GRef::from_raw(next) })
    }

    /// Owner only. Takes the first G in the ring of which `is_it` returns `true`; the others keep their order. `None` if there
    /// is none, or a thief is in the ring. `is_it` reads nothing of the G, which a thief may have taken.
    pub(crate) fn pick(&self, is_it: impl Fn(GRef<H>) -> bool) -> Option<Picked<H>> {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            return locked.pick(is_it).map(|g| Picked { g, hid: false });
        }
        let (head, tail) = (self.owners_head(), self.owners_tail());
        if head.has_thief() {
            return None;
        }
        let (first, waiting) = (head.real(), tail.wrapping_sub(head.real()));
        // SAFETY: below the tail, so owners wrote the slots, and only owners write.
        let at = (0..waiting).find(|&at| is_it(unsafe { self.read(first.wrapping_add(at)) }))?;
        let claim = at + 1;
        mutant!(PickUnclaimed: let claim = 0);
        // Release: invariant 3; partners `claim` and `is_empty`. When the exchange fails a thief has come in just now.
        let ordering = Release.unless(PickClaimRelaxed);
        self.head.compare_exchange(head.0, head.claimed(claim).0, ordering, Relaxed).ok()?;
        // SAFETY: as above; the claim keeps thieves out.
        let picked = unsafe { self.read(first.wrapping_add(at)) };
        for at in (0..at).rev() {
            // SAFETY: as above.
            let g = unsafe { self.read(first.wrapping_add(at)) };
            let to = self.slot(first.wrapping_add(at + 1));
            // SAFETY: the owner alone writes, and no thief reads a slot of this claim. Those that read the slot before have let
            // go of their claims, which `owners_head` has met.
            to.with_mut(|slot| unsafe { *slot = MaybeUninit::new(g) });
        }
        let rest = Head::new(first.wrapping_add(1), first.wrapping_add(1));
        // Release: the slots as they are now; partner the next `claim`. A store: only an owner that pops changes the
        // heads during a claim.
        self.head.store(rest.0, Release.unless(PickRelaxed));
        Some(Picked { g: picked, hid: at + 1 == waiting && at > 0 })
    }
}
