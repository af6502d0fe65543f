//! Idle Ps, and Ms that stand by: the lists under the lock.
//!
//! An M without work idles its P and *stands by* in the same critical section: in the poller, if no M is there, else in the
//! idle set, asleep on its note. So a waker that sees the idle P finds the M, even before the M has fallen asleep: the note
//! keeps a wake, and the poller a break, until then.
//!
//! Invariant: an M in the idle set, or blocked in the poller (`sched/poll.rs`), holds no P. The M takes itself out, or a waker
//! takes it out: the waker assigns a P, a summons or a blocker, or nothing (for an earlier timer, and when the runtime ends),
//! and wakes the M once.
//!
//! Checked by `models/summons.rs`.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Ordering, fence};
use crate::sched::lasting::{MRef, PRef};
use crate::sched::run::classes::Heeded;
use crate::sched::threads::blockers::BlockerM;
use crate::sched::{Central, Sched};

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
        let m = MRef::of(m);
        self.poller.blocked() == Some(m) || self.idle.contains_m(m)
    }
}

impl<H: Host> Sched<H> {
    /// Puts a P among the idle ones. The caller changes the census.
    pub(crate) fn pidleput(&self, central: &mut Central<H>, p: PRef<H>) {
        debug_assert!(!self.is_to_retire(&p), "pidleput: {:?} is surplus", *p);
        self.offer_stacks(central, &p);
        self.nobody_has(&p);
        central.idle.put_p(p);
    }

    /// Notes that no M holds `p` from here on: other Ms need not look at the P's queue, nor at its timers if there are none.
    /// Under the lock.
    pub(crate) fn nobody_has(&self, p: &P<H>) {
        debug_assert!(!self.has_work(p), "nobody_has: the queue of {p:?} is not empty");
        if p.timers.is_empty() {
            self.timer_mask.clear(p.id);
        }
        mutant!(LeftJobsNotedFirst: self.note_left_jobs(p));
        self.idle_mask.set(p.id);
        // After the store to the mask, where `take_left_job` looks for the P.
        unless!(LeftJobsNotedFirst, self.note_left_jobs(p));
        self.tell_the_end();
    }

    /// Takes the P that became idle last, and makes the monitor watch the caller's M from now on.
    pub(crate) fn pidleget(&self, central: &mut Central<H>) -> Option<PRef<H>> {
        let p = central.idle.take_p()?;
        self.p_taken(central, p);
        Some(p)
    }

    /// As `pidleget`, but takes the wanted P if that is idle.
    pub(crate) fn pidleget_or(&self, central: &mut Central<H>, wanted: Option<PRef<H>>) -> Option<PRef<H>> {
        let Some(p) = wanted.and_then(|wanted| central.idle.take_this_p(wanted)) else {
            return self.pidleget(central);
        };
        self.p_taken(central, p);
        Some(p)
    }

    fn p_taken(&self, central: &mut Central<H>, p: PRef<H>) {
        debug_assert!(!self.is_to_retire(&p), "p_taken: {:?} is surplus", *p);
        p.poll_schedule.arrivals.begin_anew();
        // From here on the P's owner can insert timers.
        self.timer_mask.set(p.id);
        self.idle_mask.clear(p.id);
        self.census.p_taken();
        central.watch_again(&self.monitor_note);
    }

    /// Returns `true` if no M holds the P, whose queue is then empty. A hint, without the lock.
    #[inline]
    pub(crate) fn is_idle(&self, p: &P<H>) -> bool {
        self.idle_mask.has(p.id)
    }

    /// Makes `m`, which holds no P, stand by. The caller releases the lock, and then sleeps at the idle spot that
    /// this returns.
    #[doc(alias = "mput")]
    pub(crate) fn stand_by(&self, m: &M<H>, central: &mut Central<H>) -> IdleSpot {
        if central.poller.is_empty() {
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
        if central.poller.blocked() == Some(MRef::of(m)) {
            self.leave_poller(central);
        } else {
            central.idle.take_this_m(m);
        }
    }

    /// For `m`, which has no P: takes a blocker; or takes an idle P and spins (`mput`); or sleeps until a waker leaves an
    /// assignment, the runtime ends, or `keep_alive` is over.
    pub(crate) fn stopm(&self, m: &M<H>) -> Heeded<H> {
        let mut central = self.central.lock();
        if m.sent_for_blockers.replace(false).unless(BlockerCountedOnLate) {
            // H1 of `threads/blockers.rs`.
            central.blocker_m = BlockerM::None;
        }
        if self.is_stopping() {
            return Heeded::LooksAgain;
        }
        if !central.blockers.is_empty() {
            // The goroutine that this M runs next has given its P away: the spawns of the last goroutine here no longer count.
            m.spawn_burst.end();
            return self.serve_blockers(m, central);
        }
        let p = self.mput(m, &mut central);
        drop(central);
        self.sleep_unless(m, p);
        Heeded::LooksAgain
    }

    /// Puts `m`, which has given its P away or lost it, into the idle set; or returns an idle P for `m`. Another M might have
    /// idled a P, rechecked the queues, and found work, but no M to summon: at `max_threads`, while `m` was not yet in the idle
    /// set. So `m` checks the global queue, and the jobs, in the critical section in which it joins the idle set, and the
    /// queues of the Ps after that: the order of I1 and I3 (`sleep_unless`).
    pub(crate) fn mput(&self, m: &M<H>, central: &mut Central<H>) -> Option<PRef<H>> {
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

    /// Called after `mput`, without the lock: acquires `p` and spins, or sleeps.
    pub(crate) fn sleep_unless(&self, m: &M<H>, p: Option<PRef<H>>) {
        let Some(p) = p else {
            self.wake_for_the_idle();
            return self.sleep_on_note(m);
        };
        m.acquire(p);
        self.become_spinning(m);
    }

    /// Called by an M that has joined the idle set without idling a P. If a P is idle, no M spins, and a goroutine or a job
    /// waits, wakes an M, perhaps the caller itself. Such work was left because there was no M to summon, or because a claim to
    /// spin, on which a submitter relied, was undone when there was no M.
    fn wake_for_the_idle(&self) {
        mutant!(StopmSkipsRings: return);
        // StopmFence. SeqCst: other Ms' stores to the census, which the lock has made visible, then loads from the queues;
        // partner: SubmitFence in `wakep`.
        fence(Ordering::SeqCst.unless(StopmNoFence));
        if self.census.lacks_a_spinner() && self.work_somewhere(&self.idle_mask) {
            self.wakep();
        }
    }
}
