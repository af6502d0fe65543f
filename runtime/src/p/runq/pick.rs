//! The owner takes a G out of the middle of its ring.
//!
//! ```text
//!            a thief copies these     these can be taken                  the owner's claim, up to the wanted G
//!    ··· │ ······················ │ ······················ │ free ···     │ a b c W │ d e ···
//!        ▲ steal                  ▲ real                   ▲ tail         ▲ steal   ▲ real
//!
//!                                                          it moves a b c on by one, and releases:   │ a b c │ d e ···
//!                                                                                                    ▲ steal, real
//! ```
//! *The obvious way* is to move the Gs before `W` while thieves can copy them; then a thief reads slots that are being written.
//! *Here* the owner claims as a thief does: while steal ≠ real no thief comes in (`Refused::Busy`), and only the owner pops.
//! The owner then writes slots that it has claimed, and releases the claim by one store, after which the heads say that one G
//! was popped.
//!
//! Meanwhile real has gone ahead, and comes back: `is_empty`, which relies on real only growing, can find the ring empty if `W`
//! is the last G in it. [`Picked::hid`] says so, and then the caller wakes an M. The heads do not return to an old value: both
//! advance by one.

use super::Runq;
use super::head::Head;
use crate::g::GRef;
use crate::host::Host;
use crate::prim::hooks::*;
use crate::prim::{Relaxed, Release};
use std::mem::MaybeUninit;

/// The G that was taken.
#[must_use]
pub(crate) struct Picked<H: Host> {
    pub(crate) g: GRef<H>,
    /// For a moment the ring seemed empty but was not.
    pub(crate) hid: bool,
}

impl<H: Host> Runq<H> {
    /// Owner only. Takes the first G in the ring for which `is_it` returns `true`; the others keep their order. Returns `None`
    /// if there is no such G, or a thief is in the ring. `is_it` reads nothing of the G, which a thief might have taken.
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
        // SAFETY: the slots are below the tail, so owners wrote them, and only owners write.
        let at = (0..waiting).find(|&at| is_it(unsafe { self.read(first.wrapping_add(at)) }))?;
        let claim = at + 1;
        mutant!(PickUnclaimed: let claim = 0);
        // Release: invariant 3; partners `claim` and `is_empty`. If the exchange fails, a thief has just come in.
        let ordering = Release.unless(PickClaimRelaxed);
        self.head.compare_exchange(head.0, head.claimed(claim).0, ordering, Relaxed).ok()?;
        // SAFETY: as above; the claim keeps thieves out.
        let picked = unsafe { self.read(first.wrapping_add(at)) };
        for at in (0..at).rev() {
            // SAFETY: as above.
            let g = unsafe { self.read(first.wrapping_add(at)) };
            let to = self.slot(first.wrapping_add(at + 1));
            // SAFETY: the owner alone writes, and no thief reads a slot of this claim. Thieves that read the slot before have
            // released their claims, which `owners_head` has acquired.
            to.with_mut(|slot| unsafe { *slot = MaybeUninit::new(g) });
        }
        let rest = Head::new(first.wrapping_add(1), first.wrapping_add(1));
        // Release: publishes the slots as they are now; partner the next `claim`. A store is enough: during a claim only an
        // owner that pops changes the heads.
        self.head.store(rest.0, Release.unless(PickRelaxed));
        Some(Picked { g: picked, hid: at + 1 == waiting && at > 0 })
    }
}
