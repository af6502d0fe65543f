//! The thief's side of a queue: T1 to T5, and `runnext`.
//!
//! A thief is any thread but the owner: the owner of another P that steals, or a thread that drains the queue. A thief claims a
//! part of the ring by one exchange of the heads, copies it, and releases the claim by another exchange. A single exchange
//! takes `runnext`.

use super::Runq;
use super::head::Head;
use crate::g::GRef;
use crate::host::Host;
use crate::prim::capacity::RUNQ;
use crate::prim::hooks::*;
use crate::prim::{Acquire, Relaxed, Release, relax, stays_the_same};
use crate::runtime::policy::Steal;
use std::ptr::null_mut;

/// Whether a thief may take a victim's `runnext`.
#[derive(Copy, Clone)]
pub(crate) enum StealNext<'a> {
    /// Only if the ring is empty and the owner's count of goroutines, read by this closure, does not change during
    /// the grace period.
    IfLeft(&'a dyn Fn() -> u32),
    /// The thief leaves `runnext` to the owner.
    No,
}

/// Why a thief gets no G from a ring.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Refused {
    /// The ring is empty.
    Empty,
    /// Another thief is in the ring, or the owner picks a G out of it.
    Busy,
}

impl<H: Host> Runq<H> {
    /// Owner only, of `self`; `victim` is the queue of another P. Takes half of the victim's ring, rounded up, as far as there
    /// is room, or one G, by the policy. Returns the oldest G, which is to run; the others go to the tail of this ring, in
    /// order.
    #[must_use]
    #[doc(alias = "runqsteal")]
    #[doc(alias = "runqgrab")]
    pub(crate) fn steal_from(&self, victim: &Runq<H>, steal: Steal, next: StealNext<'_>) -> Option<GRef<H>> {
        #[cfg(gmp_policies)]
        if let (Some(own), Some(of)) = (&self.locked, &victim.locked) {
            return own.steal_from(of, steal).or_else(|| match next {
                StealNext::IfLeft(ran) => victim.steal_next(ran),
                StealNext::No => None,
            });
        }
        let (head, tail) = (self.owners_head(), self.owners_tail());
        let begin = head.steal();
        mutant!(StealReckonsFromReal: let begin = head.real());
        let most = RUNQ - tail.wrapping_sub(begin) + 1;
        mutant!(StealBeyondTheRoom: let most = RUNQ);
        let most = if steal == Steal::One { 1 } else { most };
        let claim = match victim.claim(|waiting| (waiting - waiting / 2).min(most)) {
            Ok(claim) => claim,
            Err(Refused::Busy) => {
                // The thief in the ring is about to leave.
                relax();
                return None;
            }
            Err(Refused::Empty) => {
                return match next {
                    StealNext::IfLeft(ran) => victim.steal_next(ran),
                    StealNext::No => None,
                };
            }
        };
        let mut gs = claim.gs();
        let (oldest, mut end) = (gs.next(), tail);
        for g in gs {
            // SAFETY: the owner's call, and the slot is free: no more than `room` are written.
            unsafe { self.write(end, g) };
            end = end.wrapping_add(1);
        }
        // Before the publication: other thieves wait for the end of the claim.
        drop(claim);
        if end != tail {
            self.publish(end);
        }
        oldest
    }

    /// Any thread. Takes all Gs that a thief can take: the ring, then `runnext`. Waits for a thief that is in the ring. Gs that
    /// the owner queues meanwhile might stay.
    pub(crate) fn drain(&self, mut out: impl FnMut(GRef<H>)) {
        #[cfg(gmp_policies)]
        if let Some(locked) = &self.locked {
            locked.take_all().into_iter().for_each(&mut out);
        }
        loop {
            match self.claim(|waiting| waiting) {
                Ok(claim) => claim.gs().for_each(&mut out),
                Err(Refused::Empty) => break,
                Err(Refused::Busy) => {
                    mutant!(DrainLeavesToTheThief: break);
                    relax();
                }
            }
        }
        if let Some(g) = self.steal_next(&|| 0) {
            out(g);
        }
    }

    /// T1 to T3. `want` gets the number of Gs that wait, and returns how many to claim.
    pub(super) fn claim(&self, want: impl Fn(u32) -> u32) -> Result<Claim<'_, H>, Refused> {
        mutant!(RingTailReadFirst: keep early = self.tail.load(Acquire));
        // Acquire: invariant 3; partners the exchanges of the heads.
        let look = Acquire.unless(RingHeadLoadRelaxed);
        let mut head = Head(self.head.load(look));
        loop {
            // Acquire: partner `publish`, so that the slots below the tail can be read.
            let tail = self.tail.load(Acquire.unless(RingTailLoadRelaxed));
            mutant!(RingTailReadFirst: let tail = early.unwrap_or(tail));
            let waiting = tail.wrapping_sub(head.real());
            let n = want(waiting);
            if n == 0 {
                return Err(Refused::Empty);
            }
            if head.has_thief() {
                return Err(Refused::Busy);
            }
            // Release: invariant 3; partners `is_empty` and other claims.
            let ordering = Release.unless(RingClaimRelaxed);
            match self.head.compare_exchange(head.0, head.claimed(n).0, ordering, look) {
                Ok(_) => {
                    // Otherwise the head was out of date, and the exchange would have failed.
                    assert!(
                        waiting <= RUNQ,
                        "claim: the heads are ahead of the tail ({head:?}, tail {tail})"
                    );
                    return Ok(Claim { ring: self, first: head.real(), n });
                }
                Err(now) => head = Head(now),
            }
        }
    }

    /// Takes `runnext` from its owner, unless the owner changes it, or runs a goroutine, during the grace period. Two
    /// goroutines that wake each other are in `runnext` in turn: an unchanged G in `runnext` proves nothing, so the owner's
    /// count has to be unchanged as well.
    fn steal_next(&self, ran: &dyn Fn() -> u32) -> Option<GRef<H>> {
        // Relaxed: the value is only compared before the exchange succeeds.
        let next = self.runnext.load(Relaxed);
        mutant!(RunnextNeverStolen: return None);
        if next.is_null() {
            return None;
        }
        // Relaxed: only compared.
        if !stays_the_same(|| (self.runnext.load(Relaxed), ran())) {
            return None;
        }
        // Acquire: partner the last exchange of `push_next`: the same G might have run and been put there again since the load.
        // Then the thief takes that G earlier than it should, which does no harm; the thief read nothing of the earlier turn.
        let ordering = Acquire.unless(RunnextStealRelaxed);
        self.runnext.compare_exchange(next, null_mut(), ordering, Relaxed).ok()?;
        // SAFETY: put there by `push_next`, and taken out by this exchange alone.
        Some(unsafe { GRef::from_raw(next) })
    }
}

/// The claim of a thief in a ring. Until this value is dropped, the claimed Gs belong to the thief alone, and their slots stay
/// as they are.
pub(super) struct Claim<'r, H: Host> {
    ring: &'r Runq<H>,
    first: u32,
    n: u32,
}

impl<H: Host> Claim<'_, H> {
    /// T4: returns the claimed Gs, the oldest first. The caller goes through them once.
    pub(super) fn gs(&self) -> impl Iterator<Item = GRef<H>> {
        // SAFETY: `claim` has seen the slots below the tail, and `steal` keeps the owner from writing them (invariant 2).
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
        // The exchange fails whenever the owner has popped meanwhile.
        while let Err(now) = self.ring.head.compare_exchange(head.0, head.released().0, ordering, Relaxed) {
            head = Head(now);
        }
    }
}
