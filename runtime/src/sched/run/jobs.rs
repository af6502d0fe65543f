//! Jobs: how a fork is offered to other Ms, and which M starts a job that its forker does not come to.
//!
//! A fork costs no goroutine as long as no other M has time for it: the forker puts a record into a slot of its P, and
//! withdraws the record when it comes to the job itself. An M without work takes the job and makes a goroutine of it. What a
//! slot is, and why an address in it is never followed too late, stands in `p/jobs.rs`; how the forker waits for a job that was
//! taken, in `jobs/record.rs`.
//!
//! **No job is forgotten.** Putting a job in is a submission (S1 to S3 of `wake.rs`), with SubmitFence in the exchange of the
//! slot; an M that gives up looks at the jobs of *all* Ps after IdleFence (I3). So:
//!
//! * a job that no M takes has been seen by every M that went idle later, or its submitter has summoned one;
//! * the jobs of a P stay in their slots when the P is given away, becomes idle or retires. Goroutines in the queue of such a P
//!   are moved to where others look, in the lock; jobs are looked at wherever they stand. The giver of a P looks at the
//!   jobs after that, as at the queues (`handoffp`), and an M that joins the idle set looks under the lock (`mput`);
//! * the judge of deadlocks looks at them as well, since a P with jobs may be idle;
//! * the ender takes them out like queued goroutines, after StopFence, and gives the records back to their forkers. Before
//!   that it asks whether a job is in the hand of an M that makes a goroutine of it (`starting`): else the ender would find
//!   the forker alone, asleep with others, and leave it.
//!
//! *The order.* An M runs its own queue first, then takes from the global queue, then its own newest job, then looks at
//! the poller, then steals: from rings and batches first, then the oldest job of another P. So a goroutine that is there
//! already goes before one that would have to be made, and what an M takes from itself lies deepest, which keeps the
//! number of live goroutines in the order of the tree's depth.
//!
//! *Visits move jobs.* Where all other Ps have work as well, a P whose own queue is never empty would keep its jobs waiting for
//! ever. So a visit (`look.rs`) moves the P's oldest job to the end of the ring, if the M has come to no job since the last
//! visit. (If the M has come to its own jobs, the tree goes on depth first, and another branch begun at each visit would be one
//! more path of live goroutines. So newer jobs that never end keep the oldest one waiting, until another P takes it.) A visit
//! also moves the oldest job of a P that no M holds: one that has retired, or was given away when no M could be had. Otherwise
//! goroutines that are always ready on the Ps in use, or jobs that are put in there again and again, would keep that job
//! waiting for ever. While the mover has a job in hand, an M that gives up sees the job in neither place: so the mover does S2
//! and S3 once more.
//!
//! *A program without forks* pays for none of this: `forks` is set with the first job, and all looks beyond the M's own P
//! ask that first.
//!
//! Checked by `models/jobs.rs` and `models/jobs_beside.rs`.

pub(crate) mod record;

use crate::g::list::GList;
use crate::g::{self, Birth, GRef};
use crate::host::Host;
use crate::m::{M, Window};
use crate::p::P;
use crate::p::jobs::{Entry, Slot};
use crate::prim::hooks::*;
use crate::prim::{Acquire, Relaxed, Release, event, fence_after_exchange};
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::run::place::Place;
use record::Job;
use std::io;
use std::ptr::NonNull;

/// A record on the way to its goroutine. If that never runs, the record goes back to its forker.
struct Taken<H: Host>(Option<NonNull<Job<H>>>);

// SAFETY: a record is made for this: its closure and its result are Send (`goroutine/fork.rs`).
unsafe impl<H: Host> Send for Taken<H> {}

impl<H: Host> Taken<H> {
    fn run(&mut self) {
        if let Some(job) = self.0.take() {
            // SAFETY: taken out of its slot, or never put in, and not settled yet.
            unsafe { Job::run(job) }
        }
    }
}

impl<H: Host> Drop for Taken<H> {
    fn drop(&mut self) {
        if let Some(job) = self.0.take() {
            // SAFETY: as in `run`.
            unsafe { Job::give_back(job) }
        }
    }
}

/// While this value lives, a job may be out of its slot and not be a goroutine yet.
struct Starting<'a, H: Host>(&'a Sched<H>);

impl<'a, H: Host> Starting<'a, H> {
    fn begin(sched: &'a Sched<H>) -> Self {
        // Relaxed: the exchange of `take` publishes it.
        sched.starting.fetch_add(1, Relaxed);
        Starting(sched)
    }
}

impl<H: Host> Drop for Starting<'_, H> {
    fn drop(&mut self) {
        // Release: the goroutine that was made of the job is seen by the reader of the count, `jobs_are_starting`, its partner.
        self.0.starting.fetch_sub(1, Release.unless(StartingEndsRelaxed));
    }
}

impl<H: Host> Sched<H> {
    /// S1 to S3 for the record of the calling goroutine. Returns the slot; `None` where there is no room, and a goroutine was
    /// made of the record at once.
    #[inline]
    pub(crate) fn offer<'a>(window: Window<H>, job: NonNull<Job<H>>) -> Option<&'a Slot<H>> {
        let (p, sched) = (window.p(), window.m().sched());
        p.owner.touch();
        let slot = sched.put_in(p, Entry::Job(job));
        drop(window);
        match slot {
            Some(_) => sched.wakep_beside_own(),
            None => sched.make_and_submit(job),
        }
        slot
    }

    /// S1 and S2, by the owner of `p`.
    #[inline]
    pub(crate) fn put_in<'a>(&self, p: &'a P<H>, entry: Entry<H>) -> Option<&'a Slot<H>> {
        if self.detours.get() != 0 {
            p.jobs.note_class(Self::is_lower(entry));
        }
        // SubmitFence, as in `wakep`, with the same partners.
        let fence = fence_after_exchange;
        mutant!(JobNoFence: let fence = || ());
        p.jobs.put_in(entry, p.tick(), fence).or_else(|| {
            p.jobs.open().then(|| {
                // Relaxed: before SubmitFence, as the job itself.
                self.forks.store(true, Relaxed);
                p.jobs.put_in(entry, p.tick(), fence)
            })?
        })
    }

    /// Returns `true` if `entry`, which the caller puts in next, is one below `Normal`.
    #[cold]
    fn is_lower(entry: Entry<H>) -> bool {
        match entry {
            // SAFETY: the record is still the caller's.
            Entry::Job(job) => unsafe { job.as_ref() }.class() < Priority::Normal,
            Entry::Goroutine(g) => g.class() < Priority::Normal,
        }
    }

    /// There is no room for the record: enough other jobs wait there. A goroutine is queued like any other.
    #[cold]
    #[inline(never)]
    fn make_and_submit(&self, job: NonNull<Job<H>>) {
        if let Some(g) = self.start_job(Entry::Job(job)) {
            self.submit(g);
        }
    }

    /// Returns the goroutine of a job that the caller has taken, runnable and in no queue. `None` if there is no stack for it:
    /// then the record is its forker's again.
    fn start_job(&self, entry: Entry<H>) -> Option<GRef<H>> {
        let job = match entry {
            Entry::Goroutine(g) => return Some(g),
            Entry::Job(job) => job,
        };
        // SAFETY: taken out of its slot, or never put in: the forker keeps the record until it is settled.
        let there = unsafe { job.as_ref() };
        let birth =
            Birth { name: None, stack_size: there.stack_size(self.config.stack_size), site: there.site };
        let mut taken = Taken(Some(job));
        // SAFETY: what the job borrows outlives the forker's call, which does not return before the record is settled.
        let g = unsafe { self.make(birth, move || taken.run()) }.ok()?;
        event(format_args!("makes {g:?} of a job"));
        if (self.detours.get() != 0).unless(JobForgetsTheClass) {
            let _lives = g.set_class(there.class());
        }
        // The forker waits for the record.
        g::drop_handle(g);
        Some(g)
    }

    /// Owner: the newest of the jobs of `p`, as a goroutine.
    pub(crate) fn take_own_job(&self, p: &P<H>) -> Option<GRef<H>> {
        if p.jobs.is_empty() {
            return None;
        }
        p.owner.touch();
        let _starting = Starting::begin(self);
        std::iter::from_fn(|| p.jobs.take_own()).find_map(|entry| self.start_job(entry))
    }

    /// Thief: the oldest job of another P, as a goroutine.
    pub(crate) fn steal_job(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if !self.has_forked() {
            return None;
        }
        self.victims(m, p).find_map(|victim| self.steal_job_of(victim))
    }

    /// As `steal_job`, from this P.
    fn steal_job_of(&self, victim: &P<H>) -> Option<GRef<H>> {
        self.start_oldest_job_of(victim, |entry| self.start_job(entry))
    }

    /// As `steal_job_of`; `start` makes the goroutine.
    #[inline(always)]
    fn start_oldest_job_of(
        &self,
        victim: &P<H>,
        start: impl FnMut(Entry<H>) -> Option<GRef<H>>,
    ) -> Option<GRef<H>> {
        if victim.jobs.is_empty() {
            return None;
        }
        mutant!(JobsOfTheRetiredUnseen: if self.is_surplus(victim) { return None });
        let mut entries = std::iter::from_fn(|| victim.jobs.take_oldest());
        mutant!(StolenJobStartsUnseen: return entries.find_map(start));
        let _starting = Starting::begin(self);
        entries.find_map(start)
    }

    /// As `steal_job`, for an owner that has goroutines of `Low`: those of forkers below `Normal` wait for these.
    pub(crate) fn steal_urgent_job(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if !self.has_forked() {
            return None;
        }
        let mut victims = self.victims(m, p).filter(|victim| !victim.jobs.are_lower());
        victims.find_map(|victim| self.steal_job_of(victim)).and_then(|g| self.unless_lower(g))
    }

    /// Owner, at a visit: the oldest of the jobs of `p` goes to the end of the ring, as a goroutine, unless the owner comes to
    /// its jobs by itself; and so does the oldest job of a P that no M has: no M puts jobs into such a P.
    pub(crate) fn queue_oldest_job(&self, p: &P<H>) {
        mutant!(VisitLeavesJobs: return);
        if p.jobs.is_empty() && !self.has_left_jobs() {
            return;
        }
        let starting = Some(Starting::begin(self));
        let own = p.jobs.take_starving();
        // Also beside an own one: a P that has one at each visit would keep the other waiting for ever.
        let takes_left = true;
        mutant!(LeftJobsComeLast: let takes_left = own.is_none());
        let left = if takes_left { self.take_left_job() } else { None };
        mutant!(QueuedJobStartsUnseen: let starting = { drop(starting); relax(); None });
        let mut queued = false;
        for g in [left, own].into_iter().flatten().filter_map(|entry| self.start_job(entry)) {
            if self.detours.get() != 0 && self.takes_detour(Some(p), g) {
                self.inject(GList::one(g));
                continue;
            }
            queued = true;
            p.owner.touch();
            if let Some(g) = p.runq.push(g) {
                self.spill(p, g);
            }
        }
        drop(starting);
        if !queued {
            return;
        }
        mutant!(QueuedJobWakesNobody: return);
        self.wakep();
    }

    /// Returns `true` if a P that no M has may have jobs. A hint.
    #[inline]
    fn has_left_jobs(&self) -> bool {
        // Relaxed: a hint.
        self.left_jobs.load(Relaxed)
    }

    /// No M has `p` from now on. Under the lock.
    pub(crate) fn note_left_jobs(&self, p: &P<H>) {
        mutant!(LeftJobsUnnoted: return);
        if self.has_forked() && !p.jobs.is_empty() {
            // Release: `idle_mask`, partner `take_left_job`.
            self.left_jobs.store(true, Release.unless(LeftJobsNotedRelaxed));
        }
    }

    /// At a visit: the oldest job of a P that no M has.
    fn take_left_job(&self) -> Option<Entry<H>> {
        // Taken back before the look: a P that is left meanwhile says so again. Acquire: partner `note_left_jobs`.
        if !self.left_jobs.swap(false, Acquire.unless(LeftJobsTakenRelaxed)) {
            return None;
        }
        let found = self.ps.iter().filter(|p| self.is_idle(p)).find_map(|p| p.jobs.take_oldest())?;
        mutant!(LeftJobsOnlyOne: return Some(found));
        // Relaxed: there may be more, which this thread has seen.
        self.left_jobs.store(true, Relaxed);
        Some(found)
    }

    /// Returns `true` if a job was ever put in; else no P has one. Exact for the caller's own P.
    #[inline(always)]
    pub(crate) fn has_forked(&self) -> bool {
        // Relaxed: the owner's own store, or one before the lock under which the owner got the P; else a hint.
        self.forks.load(Relaxed)
    }

    /// I3 for jobs: returns `true` if there is a job on any P, also on an idle or a retired P.
    #[inline]
    pub(crate) fn jobs_somewhere(&self) -> bool {
        mutant!(JobsUnseenAtTheLastLook: return false);
        // Relaxed: set before SubmitFence.
        self.forks.load(Relaxed)
            && self.ps.iter().any(|p| {
                mutant!(JobsOfTheIdleUnseen: if self.is_idle(p) { return false });
                mutant!(JobsOfTheRetiredUnseen: if self.is_surplus(p) { return false });
                !p.jobs.is_empty()
            })
    }

    /// For the ender, which has found a forker asleep: returns `true` if the goroutine for which that forker waits may not be
    /// live yet.
    pub(crate) fn jobs_are_starting(&self) -> bool {
        mutant!(EndOverlooksStarting: return false);
        // Acquire: partner the end of `Starting`. That it began is seen by way of the slot, and the forker's park.
        self.starting.load(Acquire.unless(EndLooksForStartingRelaxed)) > 0
    }

    /// For models: as `steal_job`, on any thread, which calls `between` between X2 and Y1.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn take_job_and_pause(&self, mut between: impl FnMut()) -> Option<GRef<H>> {
        self.ps.iter().find_map(|p| {
            self.start_oldest_job_of(p, |entry| {
                between();
                self.start_job(entry)
            })
        })
    }

    /// A goroutine that was made of a job, or was one. Returns it if it may run before goroutines of `Low`; else it is queued
    /// among its own. The caller has found `detours`, and looks there next.
    pub(crate) fn unless_lower(&self, g: GRef<H>) -> Option<GRef<H>> {
        mutant!(JobsOfTheLowerGoFirst: return Some(g));
        if self.has_class(g) && g.class() < Priority::Normal {
            self.inject(GList::one(g));
            return None;
        }
        Some(g)
    }

    /// The runtime ends: records go back to their forkers, goroutines to `queued`.
    pub(crate) fn take_jobs(&self, queued: &mut GList<H>) {
        mutant!(JobsForgottenAtTheEnd: return);
        for p in self.ps.iter() {
            while let Some(entry) = p.jobs.take_oldest() {
                match entry {
                    Entry::Goroutine(g) => queued.push(g),
                    // SAFETY: taken out of its slot, and not settled yet.
                    Entry::Job(job) => unsafe { Job::give_back(job) },
                }
            }
        }
    }

    /// As `spawn`, for a goroutine that the caller's P runs before older ones of its kind (`go_lifo`).
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`.
    pub(crate) unsafe fn spawn_lifo<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> io::Result<GRef<H>> {
        let m = M::current_of(self).filter(|_| !self.is_ending());
        // SAFETY: by this function's contract.
        let Some(m) = m else { return unsafe { self.spawn(birth, f) } };
        // SAFETY: by this function's contract.
        let g = unsafe { self.make(birth, f) }?;
        self.submit_lifo(m, g);
        if self.is_stopping() {
            self.drop_set_aside();
        }
        Ok(g)
    }

    /// S1 to S3: `g` becomes the newest job of the calling M's P; the next goroutine where there is no room; and the last of
    /// the global queue without a P.
    fn submit_lifo(&self, m: &M<H>, g: GRef<H>) {
        let Some(inside) = m.look_in() else { return self.send(g, Place::Shared) };
        inside.p.owner.touch();
        event(format_args!("queues {g:?} as the newest job of {:?}", inside.p));
        let has_room = self.put_in(inside.p, Entry::Goroutine(g)).is_some();
        drop(inside);
        if has_room {
            self.wakep_beside_own();
        } else {
            self.submit_at(m, g, Place::Next);
        }
    }
}
