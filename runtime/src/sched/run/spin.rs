//! Looking for work, and giving up.
//!
//! An M without work of its own begins to *spin*: the M counts in `nmspinning` and looks at the other Ps' queues. A
//! spinning M stops in one of two ways:
//!
//! * the M finds work, leaves the count, and looks whether more is *left* (L1 to L3): submitters may have left more than
//!   one goroutine to this M, and if no other M spins, no M would look for the rest. If something is left, the M wakes
//!   the next M;
//! * the M finds none, gives the P up and looks *again* at every queue (I1 to I3 of `wake.rs`). If the M now sees work
//!   that it missed before, it takes an idle P back, spins, and searches once more.
//!
//! The M looks at the global queue in the critical section of I1; a submitter that queues a goroutine there later finds
//! the P idle. At I3 the M looks at the queue of each P that is not idle. I3 has to come after I1: goroutines move from
//! the global queue to a P's, and an M that looked the other way round could miss them in both places. An idle P has an
//! empty queue. The M reads the mask that says which Ps are idle after IdleFence: else it would pass over a P that was
//! idle *before* the fence, and has got an owner and a goroutine since.
//!
//! ```text
//!   submitter                                      M that spins and finds work
//!
//!   S1  queue the G                                L1  leave the count
//!   S2  SubmitFence                                L2  SpinnerFence
//!   S3  an M spins?  leave the G to that M         L3  in the lock: a G in the global queue?  after the lock: in a ring?
//!                                                      wake the next M
//! ```
//! One of the fences comes first: L3 sees the G, or S3 sees that the M spins no more. (A thief may have the G in hand, so that
//! it is in no queue. That thief still counts as spinning, and comes to an L3 of its own.) The order of the two looks of L3 is
//! that of I1 and I3. Go's M wakes the next without a look: then each goroutine that is submitted to a process at rest with
//! several Ps wakes two threads, the second for nothing, and before the goroutine runs. Where no M is in the poller, L3 wakes
//! the next M in any case, and that M goes there.
//!
//! Timers are not part of I3: an M that stands by in the poller looks at all of them after IdleFence and waits only
//! until the first is due (`sched/timers/mod.rs`); an M that stands by on its note leaves them to the poller.
//!
//! Checked by `models/submit_vs_idle.rs` and, where Ms are summoned, `models/summons.rs`.

use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{Ordering, event, fence};
use crate::sched::Sched;
use crate::sched::run::idle::IdleSpot;
use crate::sched::run::mask::Mask;

impl<H: Host> Sched<H> {
    /// Counts the M in `nmspinning`.
    pub(crate) fn become_spinning(&self, m: &M<H>) {
        debug_assert!(!m.spinning.get(), "become_spinning: it spins already");
        m.spinning.set(true);
        self.census.begin_spinning();
    }

    /// The M has found a goroutine to run.
    #[inline]
    #[doc(alias = "resetspinning")]
    pub(crate) fn reset_spinning(&self, m: &M<H>) {
        if m.spinning.replace(false) {
            self.end_spinning();
        }
    }

    /// As `reset_spinning`, for an M that has spun.
    #[cold]
    #[inline(never)]
    fn end_spinning(&self) {
        mutant!(SpinnerLooksFirst: keep left = self.is_work_left());
        self.census.end_spinning();
        mutant!(SpinnerWakesNobody: return);
        // SpinnerFence. SeqCst: a store to the census, then loads from the queues; partner: SubmitFence in `wakep`.
        fence(Ordering::SeqCst.unless(SpinnerNoFence));
        mutant!(SpinnerLooksFirst: if left == Some(false) { return });
        if self.is_stopping() || self.census.lacks_a_spinner() && self.is_work_left() {
            self.wakep();
        }
    }

    /// L3. Returns `true` if there is something for one more M.
    fn is_work_left(&self) -> bool {
        let central = self.central.lock();
        let left = (!central.globq.is_empty()).unless(SpinnerSkipsGlobal);
        // An M whose wait was broken does not count: it may come back with a P, and as no spinner, and then none polls.
        let polls = central.poller.blocked().is_some();
        drop(central);
        left || !polls || self.work_somewhere(&self.idle_mask)
    }

    /// I1 to I3, and then sleep: in the poller, if no M is there, else on the note. Returns with a P if there is something to
    /// look for, and without one if the M was summoned and found no P on waking, or if the runtime ends.
    #[inline(always)]
    pub(crate) fn go_idle(&self, m: &M<H>) {
        mutant!(MaskReadEarly: keep early = self.idle_mask.copy());
        let mut central = self.central.lock();
        if let Some(p) = m.p() {
            self.offer_stacks(&mut central, p);
        }
        // In the lock the published word is exact.
        let nothing = self.globq_len.look().is_nothing();
        debug_assert!(
            !nothing || central.globq.is_empty(),
            "go_idle: the global queue's word is not what it has"
        );
        if (!nothing && !central.globq.is_empty()).unless(IdleSkipsGlobal) {
            return;
        }
        if m.p().is_some_and(|p| self.is_surplus(p)).unless(IdleKeepsTheSurplus) {
            // The P is to be retired, or the runtime ends: `change_p` tells which, at the caller's next look at the P.
            return;
        }
        mutant!(IdleLooksFirst: keep works = self.work_somewhere(&self.idle_mask));
        let p = m.release();
        self.pidleput(&mut central, p);
        let idle_spot = self.stand_by(m, &mut central);
        event(format_args!("gives its P up, to wait: {idle_spot:?}"));
        // I1, in the lock: a waker that sees the idle P finds this M standing by.
        let spun = m.spinning.replace(false);
        unless!(CensusAfterTheLock, self.census.give_up(spun));
        drop(central);
        mutant!(CensusAfterTheLock: self.census.give_up(spun));
        // IdleFence. SeqCst: a store to the census, then loads from the queues; partner: SubmitFence in `wakep`.
        fence(Ordering::SeqCst.unless(IdleNoFence));
        mutant!(IdleNoRecheck: return self.sleep_in(m, idle_spot));
        mutant!(IdleOnlySpinnersLook: if !spun { return self.sleep_in(m, idle_spot) });
        mutant!(IdleLooksFirst: if works == Some(false) { return self.sleep_in(m, idle_spot) });
        let idle = &self.idle_mask;
        mutant!(MaskReadEarly: let idle = early.as_ref().unwrap_or(idle));
        if self.work_somewhere(idle) {
            event(format_args!("sees work after all"));
            if self.leave_idle(m) {
                return;
            }
            // An M that was sent for the callers since I1 makes a call, and looks no more: another one comes for the work. With
            // a P or a summons the M itself looks.
            unless!(SentLeavesTheWork, self.wakep());
        }
        self.sleep_in(m, idle_spot);
    }

    #[inline(never)]
    fn sleep_in(&self, m: &M<H>, idle_spot: IdleSpot) {
        match idle_spot {
            IdleSpot::Poller => self.block_in_poller(m),
            IdleSpot::Note => self.sleep_on_note(m),
        }
    }

    /// D1 to D3 of `wake.rs`: `m` was summoned, and takes an idle P, and spins; or stands by again.
    pub(crate) fn come_for_p(&self, m: &M<H>) {
        let mut central = self.central.lock();
        if self.is_stopping().unless(SummonedInVainIgnoresTheEnd) {
            return;
        }
        if let Some(p) = self.addressee_or(&mut central, m.last_p()) {
            drop(central);
            return m.acquire(p);
        }
        // D2, in the lock: an M that idles a P after this finds no M spinning.
        m.spinning.set(false);
        unless!(SummonedInVainEndsLate, self.census.end_spinning());
        mutant!(SummonedInVainStandsByLate: drop(central); relax(); central = self.central.lock());
        let idle_spot = self.stand_by(m, &mut central);
        event(format_args!("comes in vain, and stands by: {idle_spot:?}"));
        drop(central);
        mutant!(SummonedInVainEndsLate: relax(); self.census.end_spinning());
        if idle_spot == IdleSpot::Poller {
            // SummonedInVainFence. SeqCst: a store to `poll_until`, then loads from the heaps; partner: TimerFence
            // (`sched/poll.rs`).
            fence(Ordering::SeqCst.unless(SummonedInVainNoFence));
        }
        self.sleep_in(m, idle_spot);
    }

    /// I3. Returns `true` if there is a goroutine in the queue, or the batch, of a P that is not among the `idle` ones, or a
    /// job on any P.
    #[inline]
    pub(crate) fn work_somewhere(&self, idle: &Mask) -> bool {
        self.ps.iter().any(|p| !idle.has(p.id) && self.has_work(p)) || self.jobs_somewhere()
    }

    /// Takes the M out of the idle spot, with an idle P, and has the M spin. Returns `false` if there is no idle P: then each P
    /// has a holder, which looks before sleeping. Returns `false`, too, if the M has an assignment, which the M finds on going
    /// to sleep: a P or a summons, with which the M looks, or a caller.
    fn leave_idle(&self, m: &M<H>) -> bool {
        let mut central = self.central.lock();
        if (!central.stands_by(m)).unless(RecheckTakesAnyP) {
            return false;
        }
        let Some(p) = self.pidleget(&mut central) else { return false };
        self.leave_post(m, &mut central);
        drop(central);
        m.acquire(p);
        mutant!(RecheckDoesNotSpin: return true);
        self.become_spinning(m);
        true
    }

    /// Returns `true` if a goroutine of `m` that wants a lock may find the lock free soon without leaving the M:
    /// another M is at work, and no goroutine stands in the queue of this one's P. A hint.
    #[doc(alias = "sync_runtime_canSpin")]
    pub(crate) fn may_wait_awake(&self, m: &M<H>) -> bool {
        let seen = self.census.read();
        seen.nbusy() > seen.nmspinning() + 1 && m.p().is_some_and(|p| !self.others_wait(p))
    }
}
