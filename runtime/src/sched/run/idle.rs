//! Idle Ps, and Ms that stand by: the lists under the lock.
//!
//! An M without work gives the P up and *stands by* in the same critical section: in the poller, if no M is there, else
//! in the list of Ms that sleep on their notes. So a waker that sees the idle P finds the M, also while the M has not
//! fallen asleep yet: a note's wake and a break are kept until then.
//!
//! Invariant: an M in the idle set, or named by [`Poller::Blocked`], holds no P. The M takes itself out, or a waker takes it
//! out: the waker assigns a P, a summons or a caller, or nothing, for an earlier timer and when the runtime ends, and wakes the
//! M once.
//!
//! Checked by `models/summons.rs`.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Ordering, fence};
use crate::sched::poll::Poller;
use crate::sched::run::classes::Heeded;
use crate::sched::threads::callers::CallerM;
use crate::sched::{Central, Sched};
use std::ptr::NonNull;

/// Where an M stands by.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum IdleSpot {
    /// The M waits in the poller.
    Poller,
    /// The M sleeps on the note.
    Note,
}

impl<H: Host> Central<H> {
    /// Returns `true` if `m` still stands by, and was not taken out since.
    pub(crate) fn stands_by(&self, m: &M<H>) -> bool {
        let m = NonNull::from(m);
        self.poller.blocked() == Some(m) || self.idle.contains_m(m)
    }
}

impl<H: Host> Sched<H> {
    /// Puts a P among the idle ones. The caller changes the census.
    pub(crate) fn pidleput(&self, central: &mut Central<H>, p: NonNull<P<H>>) {
        // SAFETY: Ps live as long as their scheduler.
        let there = unsafe { p.as_ref() };
        debug_assert!(!self.is_surplus(there) || self.is_stopping(), "pidleput: {there:?} is surplus");
        self.offer_stacks(central, there);
        self.nobody_has(there);
        central.idle.put_p(p);
    }

    /// No M holds `p` from here on: other Ms need not look at the P's queue, nor at the P's timers if there are none.
    /// Under the lock.
    pub(crate) fn nobody_has(&self, p: &P<H>) {
        debug_assert!(!self.has_work(p), "nobody_has: the queue of {p:?} is not empty");
        if p.timers.is_empty() {
            self.timer_mask.clear(p.id);
        }
        mutant!(LeftJobsNotedFirst: self.note_left_jobs(p));
        self.idle_mask.set(p.id);
        // After the mask, in which `take_left_job` looks for the P.
        unless!(LeftJobsNotedFirst, self.note_left_jobs(p));
        self.tell_the_end();
    }

    /// Takes the P that became idle last, and has the monitor watch the caller's M from now on.
    pub(crate) fn pidleget(&self, central: &mut Central<H>) -> Option<NonNull<P<H>>> {
        let p = central.idle.take_p()?;
        self.p_taken(central, p);
        Some(p)
    }

    /// As `pidleget`, but takes the preferred P if that is idle.
    pub(crate) fn pidleget_or(
        &self,
        central: &mut Central<H>,
        wanted: Option<NonNull<P<H>>>,
    ) -> Option<NonNull<P<H>>> {
        let Some(p) = wanted.and_then(|wanted| central.idle.take_this_p(wanted)) else {
            return self.pidleget(central);
        };
        self.p_taken(central, p);
        Some(p)
    }

    fn p_taken(&self, central: &mut Central<H>, p: NonNull<P<H>>) {
        // SAFETY: Ps live as long as their scheduler.
        let there = unsafe { p.as_ref() };
        debug_assert!(!self.is_surplus(there) || self.is_stopping(), "p_taken: {there:?} is surplus");
        let id = there.id;
        there.poll_schedule.arrivals.begin_anew();
        // From here on the P's owner may insert timers.
        self.timer_mask.set(id);
        self.idle_mask.clear(id);
        self.census.p_taken();
        central.watch_again(&self.monitor_note);
    }

    /// Returns `true` if no M has the P, whose queue is empty then. A hint, without the lock.
    #[inline]
    pub(crate) fn is_idle(&self, p: &P<H>) -> bool {
        self.idle_mask.has(p.id)
    }

    /// Makes `m`, which holds no P, stand by. The caller releases the lock, and then sleeps at the idle spot that
    /// this returns.
    #[doc(alias = "mput")]
    pub(crate) fn stand_by(&self, m: &M<H>, central: &mut Central<H>) -> IdleSpot {
        if central.poller.get() == Poller::Nobody {
            self.enter_poller(m, central);
            unless!(PollerLeavesTheClaim, self.take_claim_over(central));
            IdleSpot::Poller
        } else {
            self.stand_by_on_note(m, central);
            IdleSpot::Note
        }
    }

    /// As `stand_by`, on the note.
    pub(crate) fn stand_by_on_note(&self, m: &M<H>, central: &mut Central<H>) {
        central.idle.put_m(m);
        unless!(NoteLeavesTheClaim, self.take_claim_over(central));
        self.take_start_over(m, central);
    }

    /// Takes `m`, which stands by, out again.
    pub(crate) fn leave_post(&self, m: &M<H>, central: &mut Central<H>) {
        if central.poller.blocked() == Some(NonNull::from(m)) {
            self.leave_poller(central);
        } else {
            central.idle.take_this_m(m);
        }
    }

    /// `m`, which has no P, takes a caller; or sleeps until another M assigns something or the runtime ends; or takes an idle P
    /// and spins (`mput`).
    pub(crate) fn stopm(&self, m: &M<H>) -> Heeded<H> {
        let mut central = self.central.lock();
        if m.sent_for_callers.replace(false).unless(CallerCountedOnLate) {
            // H1 of `threads/callers.rs`.
            central.caller_m = CallerM::None;
        }
        if self.is_stopping() {
            return Heeded::LooksAgain;
        }
        if !central.callers.is_empty() {
            // The caller gives its P away, whatever the last goroutine here has lost.
            m.spree.end();
            return self.serve_callers(m, central);
        }
        let p = self.mput(m, &mut central);
        drop(central);
        self.sleep_unless(m, p);
        Heeded::LooksAgain
    }

    /// Puts `m`, which has given up or lost the P, on the idle set; or returns an idle P for `m`. An M that idled a P has
    /// rechecked the queues, but at `max_threads` it may have found no M to run that P, because `m` was not on the idle set
    /// yet. So `m` checks the global queue, and the jobs, in the critical section in which `m` joins the idle set, and the
    /// queues of the Ps after that, in the order of I1 and I3 (`sleep_unless`).
    pub(crate) fn mput(&self, m: &M<H>, central: &mut Central<H>) -> Option<NonNull<P<H>>> {
        mutant!(StopmSkipsGlobal: central.idle.put_m(m); return None);
        // The look after the lock would see jobs, too, and wake an M for them; here `m` itself takes the P.
        if (!central.globq.is_empty() || self.jobs_somewhere())
            && let Some(p) = self.pidleget_or(central, m.last_p())
        {
            return Some(p);
        }
        self.stand_by_on_note(m, central);
        None
    }

    /// After `mput`, without the lock.
    pub(crate) fn sleep_unless(&self, m: &M<H>, p: Option<NonNull<P<H>>>) {
        let Some(p) = p else {
            self.wake_for_the_idle();
            return self.sleep_on_note(m);
        };
        m.acquire(p);
        self.become_spinning(m);
    }

    /// By an M that has joined the idle set without idling a P: wakes an M, itself maybe, if there is a goroutine beside an
    /// idle P for which there was no M. A submitter may also have left one to a claim to spin that was undone for want of an M.
    fn wake_for_the_idle(&self) {
        mutant!(StopmSkipsRings: return);
        // StopmFence. SeqCst: others' stores to the census, seen by way of the lock, then loads from the queues; partner:
        // SubmitFence in `wakep`.
        fence(Ordering::SeqCst.unless(StopmNoFence));
        if self.census.lacks_a_spinner() && self.work_somewhere(&self.idle_mask) {
            self.wakep();
        }
    }
}
