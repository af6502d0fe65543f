//! Looking for work, and giving up.
//!
//! An M without work of its own begins to *spin*: the M counts in `nmspinning` and looks at the other Ps' queues. A spinning M
//! stops in one of two ways.
//!
//! * The M finds work, leaves the count, and looks whether more is *left* (L1 to L3): submitters might have left more than one
//!   goroutine to this M, and if no other M spins, no M would look for the rest. If work is left, the M wakes the next M.
//! * The M finds no work, idles its P, and looks *again* at every queue (I1 to I3 of `wake.rs`). If the M now sees work, it
//!   takes an idle P, spins, and searches once more.
//!
//! The M looks at the global queue in the critical section of I1; a submitter that queues a goroutine there later finds the P
//! idle. At I3 the M looks at the queue of each P that is not idle. I3 has to come after I1: goroutines move from the global
//! queue to a P's queue. An M that looked at the Ps' queues first, and at the global queue after them, could miss a goroutine
//! in both. I3 passes over idle Ps, whose queues are empty. The M reads `idle_mask` after IdleFence. With a copy from before
//! the fence the M would pass over a P that was idle then, but has an owner and a goroutine by now.
//!
//! ```text
//!   submitter                                      M that spins and finds work
//!
//!   S1  queue the G                                L1  leave the count
//!   S2  SubmitFence                                L2  SpinnerFence
//!   S3  an M spins?  leave the G to that M         L3  in the lock: a G in the global queue?  after the lock: in a ring?
//!                                                      wake the next M
//! ```
//! One of the fences comes first: either L3 sees the G, or S3 sees that the M no longer spins. (If a thief has taken the G out
//! of one ring and not yet put it into its own, the G is in no queue. But that thief still counts as spinning, and does an L3
//! of its own.) L3 looks in the order of I1 and I3: at the global queue first. Go's M wakes the next M without a look. In Go,
//! therefore, each goroutine that is submitted to an idle process with several Ps wakes two threads: the second one for
//! nothing, and before the goroutine runs. If no M is in the poller, L3 wakes the next M in any case, and that M goes into the
//! poller.
//!
//! Timers are not part of I3: an M that stands by in the poller looks at all of them after IdleFence and waits only until the
//! first is due (`sched/timers/mod.rs`); an M that stands by on its note leaves the timers to the M in the poller.
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
        debug_assert!(!m.spinning.own(), "become_spinning: it spins already");
        m.spinning.set(true);
        self.census.begin_spinning();
    }

    /// Takes the M out of `nmspinning` if it counts there. The M has found a goroutine to run.
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
        // An M whose wait was broken does not count: it might come back with a P and without spinning, and then no M polls.
        let polls = central.poller.blocked().is_some();
        drop(central);
        left || !polls || self.work_somewhere(&self.idle_mask)
    }

    /// Does I1 to I3, and then sleeps: in the poller, if no other M is there, else on the note. Returns with a P if there is
    /// something to look for, the P is surplus, or a waker has assigned a P. Returns without a P if the M was summoned
    /// (`come_for_p` then takes one), was sent for the blockers, or has slept for `keep_alive`, or if the runtime ends.
    #[inline(always)]
    pub(crate) fn go_idle(&self, m: &M<H>) {
        mutant!(MaskReadEarly: keep early = self.idle_mask.copy());
        let mut central = self.central.lock();
        if let Some(p) = m.p() {
            self.offer_stacks(&mut central, p);
        }
        // Under the lock the published word is exact.
        let nothing = self.globq_len.look().is_nothing();
        debug_assert!(
            !nothing || central.globq.is_empty(),
            "go_idle: the global queue's word is not what it has"
        );
        if (!nothing && !central.globq.is_empty()).unless(IdleSkipsGlobal) {
            return;
        }
        if m.p().is_some_and(|p| self.is_surplus(p)).unless(IdleKeepsTheSurplus) {
            // The P is to be retired, or the runtime ends: `change_p` tells them apart, at the caller's next look at the P.
            return;
        }
        mutant!(IdleLooksFirst: keep works = self.work_somewhere(&self.idle_mask));
        let p = m.release();
        m.thefts.forget();
        self.pidleput(&mut central, p);
        let idle_spot = self.stand_by(m, &mut central);
        event(format_args!("gives its P up, to wait: {idle_spot:?}"));
        // I1, under the lock: a submitter that sees the idle P finds this M standing by.
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
            // Either a waker has taken `m` out of its idle spot, or no P is idle. If that waker has sent `m` for the blockers,
            // `m` runs a blocker and looks at no queue, so `wakep` sends another M for the work. With a P or a summons `m`
            // looks itself.
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

    /// D1 to D3 of `wake.rs`: the summoned `m` takes an idle P and spins, or stands by again.
    pub(crate) fn come_for_p(&self, m: &M<H>) {
        let mut central = self.central.lock();
        if self.is_stopping().unless(SummonedInVainIgnoresTheEnd) {
            return;
        }
        if let Some(p) = self.addressee_or(&mut central, m.last_p()) {
            drop(central);
            return m.acquire(p);
        }
        // D2, under the lock: an M that idles a P after this finds no M spinning.
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

    /// Takes the M out of its idle spot, acquires an idle P for it, and makes it spin. Returns `false` if no P is idle: then
    /// each P has a holder, which looks before it sleeps. Also returns `false` if a waker has taken the M out of its idle spot.
    /// On going to sleep the M then finds the assignment of that waker, if there is one: with a P or a summons the M looks at
    /// the queues; sent for the blockers it does not.
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

    /// Returns `true` if the goroutine on `m` should spin for a lock before it parks: another M holds a P and does not spin,
    /// and no goroutine waits for the P of `m`. A hint.
    #[doc(alias = "sync_runtime_canSpin")]
    pub(crate) fn may_wait_awake(&self, m: &M<H>) -> bool {
        let seen = self.census.read();
        seen.nbusy() > seen.nmspinning() + 1 && m.p().is_some_and(|p| !self.others_wait(p))
    }
}
