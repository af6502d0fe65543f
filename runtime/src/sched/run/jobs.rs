//! Jobs: how a fork is offered to other Ms, and which M starts a job if its forker does not come to it.
//!
//! A fork costs no goroutine while every other M has work: the forker puts a record into a slot of its P, and withdraws the
//! record when it is ready to run the job itself. An M without work takes the job and makes a goroutine of it. `p/jobs.rs` says
//! what a slot is, and why no M follows an address in a slot too late; `jobs/record.rs` says how the forker waits for a job
//! that was taken.
//!
//! **No job is forgotten.** Putting a job in is a submission (S1 to S3 of `wake.rs`), with SubmitFence in the exchange of the
//! slot; an M that gives up looks at the jobs of *all* Ps after IdleFence (I3). So:
//!
//! * if SubmitFence comes before the IdleFence of an M that gives up, that M sees the job; otherwise the submitter sees the P
//!   of that M idle at S3, and summons an M, unless one spins;
//! * the jobs of a P stay in their slots when the P is given away, becomes idle or retires. The goroutines in the queue of such
//!   a P are moved, under the lock, to the global queue; its jobs stay, and every look at jobs covers the slots of all Ps. An M
//!   or retaker that gives a P away looks at the jobs after that, as at the queues (`handoffp`), and an M that joins the idle
//!   set looks at them under the lock (`mput`);
//! * the judge of deadlocks looks at them as well, because a P with jobs can be idle;
//! * the ender takes the jobs out like queued goroutines, after StopFence, and gives the records back to their forkers. Before
//!   that the ender asks whether an M holds a job of which it is making a goroutine (`starting_jobs`): otherwise the ender
//!   could find only the forker, asleep among others, and leave it.
//!
//! *The order.* An M runs its own queue first, then takes from the global queue, then its own newest job, then looks at the
//! poller, then steals: from rings and batches first, then the oldest job of another P. So an existing goroutine goes before
//! one that has to be made. An M takes the newest of its own jobs, which is the deepest in the tree: that keeps the number of
//! live goroutines proportional to the tree's depth.
//!
//! *Visits move jobs.* If all other Ps have work, and a P's own queue is never empty, the jobs of that P would wait for ever.
//! So a visit (`look.rs`) moves the P's oldest job to the end of the ring, if the M has taken none of its own jobs since the
//! last visit. (If the M has taken one, the tree goes on depth first, and a further branch begun at each visit would add a path
//! of live goroutines. So while new jobs are put in without end, the oldest one waits until another P takes it.) A visit also
//! moves the oldest job of a P that no M holds, because the P has retired, or was given away when there was no M for it.
//! Otherwise goroutines that are always ready on the Ps in use, or new jobs there, could keep that job waiting for ever. (An M
//! whose goroutine runs on makes no visit: for the jobs of a P that has retired the monitor takes the P of that M, as it does
//! for goroutines that wait, `threads/retake.rs`.) Between the slot and the ring a moved job is in neither place, and an M that
//! gives up in that moment does not see it: so the mover does S2 and S3 once more.
//!
//! *A program without forks* pays for none of this: `forks` is set with the first job, and each look beyond the M's own P reads
//! `forks` first.
//!
//! Checked by `models/jobs.rs` and `models/jobs_beside.rs`.

pub(crate) mod record;

use crate::g::list::GList;
use crate::g::{Birth, GRef};
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

/// A record on the way to its goroutine. If that goroutine never runs, the record goes back to its forker.
struct Taken<H: Host>(Option<NonNull<Job<H>>>);

// SAFETY: the closure of a record and its result are Send (`goroutine/fork.rs`).
unsafe impl<H: Host> Send for Taken<H> {}

impl<H: Host> Taken<H> {
    fn run(&mut self) {
        if let Some(job) = self.0.take() {
            // SAFETY: the record was taken out of its slot, or never put in, and is not settled yet.
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

/// While this value lives, a job might be out of its slot and not yet be a goroutine.
struct Starting<'a, H: Host>(&'a Sched<H>);

impl<'a, H: Host> Starting<'a, H> {
    fn begin(sched: &'a Sched<H>) -> Self {
        // Relaxed: the exchange of `take` publishes the count.
        sched.starting_jobs.fetch_add(1, Relaxed);
        Starting(sched)
    }
}

impl<H: Host> Drop for Starting<'_, H> {
    fn drop(&mut self) {
        // Release: the partner, `jobs_are_starting`, which reads the count, sees the goroutine that was made of the job.
        self.0.starting_jobs.fetch_sub(1, Release.unless(StartingEndsRelaxed));
    }
}

/// The jobs of Ps that have retired.
#[derive(Copy, Clone, Debug, Eq, PartialEq, PartialOrd, Ord)]
pub(crate) enum LeftJobs {
    None,
    /// All are of class `Background`.
    Background,
    /// One at least is of another class.
    Urgent,
}

impl<H: Host> Sched<H> {
    /// S1 to S3 for the record of the calling goroutine. Returns the slot. Returns `None` if there is no room: then a goroutine
    /// was made of the record at once, or the record has gone back to the forker because there was no stack.
    #[inline]
    pub(crate) fn offer<'a>(window: Window<H>, job: NonNull<Job<H>>) -> Option<&'a Slot<H>> {
        let (p, sched) = (window.p(), window.m().sched());
        p.owner.touch();
        let slot = sched.put_in(p, Entry::Job(job));
        drop(window);
        match slot {
            Some(_) => unless!(ForkWakesNobody, sched.wakep_beside_own()),
            None => sched.make_and_submit(job),
        }
        slot
    }

    /// S1 and S2, by the owner of `p`.
    #[inline]
    pub(crate) fn put_in<'a>(&self, p: &'a P<H>, entry: Entry<H>) -> Option<&'a Slot<H>> {
        if self.detours.get() != 0 {
            p.jobs.note_class(Self::class_of(entry));
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

    /// Returns the class of `entry`, which the caller puts in next.
    #[cold]
    fn class_of(entry: Entry<H>) -> Priority {
        match entry {
            // SAFETY: the record is still the caller's.
            Entry::Job(job) => unsafe { job.as_ref() }.class(),
            Entry::Goroutine(g) => g.class(),
        }
    }

    /// Makes a goroutine of a record for which no slot is free, because enough other jobs wait, and queues that goroutine.
    #[cold]
    #[inline(never)]
    fn make_and_submit(&self, job: NonNull<Job<H>>) {
        if let Some(g) = self.start_job(Entry::Job(job)) {
            self.submit(g);
        }
    }

    /// Returns the goroutine of a job that the caller has taken, runnable and in no queue. The goroutine has no handle: the
    /// forker waits for the record. Returns `None` if there is no stack: then the record has gone back to its forker.
    fn start_job(&self, entry: Entry<H>) -> Option<GRef<H>> {
        let job = match entry {
            Entry::Goroutine(g) => return Some(g),
            Entry::Job(job) => job,
        };
        // SAFETY: the record was taken out of its slot, or never put in: the forker keeps it until settled.
        let there = unsafe { job.as_ref() };
        let birth =
            Birth { name: None, stack_size: there.stack_size(self.config.stack_size), site: there.site };
        let mut taken = Taken(Some(job));
        // SAFETY: the values that the job borrows outlive the forker's call, which does not return before the record is
        // settled.
        let g = unsafe { self.make_detached(true, birth, move || taken.run()) }.ok()?;
        event(format_args!("makes {g:?} of a job"));
        if (self.detours.get() != 0).unless(JobForgetsTheClass) {
            let _lives = g.set_class(there.class());
        }
        Some(g)
    }

    /// Owner: takes the newest of the jobs of `p`, and returns its goroutine.
    pub(crate) fn take_own_job(&self, p: &P<H>) -> Option<GRef<H>> {
        if p.jobs.is_empty() {
            return None;
        }
        p.owner.touch();
        let _starting = Starting::begin(self);
        std::iter::from_fn(|| p.jobs.take_own()).find_map(|entry| self.start_job(entry))
    }

    /// Thief: takes the oldest job of another P, and returns its goroutine.
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
        mutant!(JobsOfTheRetiredLeft: if self.is_surplus(victim) { return None });
        let mut entries = std::iter::from_fn(|| victim.jobs.take_oldest());
        mutant!(StolenJobStartsUnseen: return entries.find_map(start));
        let _starting = Starting::begin(self);
        entries.find_map(start)
    }

    /// As `steal_job`, for an owner that has goroutines of `Low`: jobs of forkers below `Normal` wait for these.
    pub(crate) fn steal_urgent_job(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if !self.has_forked() {
            return None;
        }
        let mut victims = self.victims(m, p).filter(|victim| !victim.jobs.are_lower());
        victims.find_map(|victim| self.steal_job_of(victim)).and_then(|g| self.unless_lower(g))
    }

    /// Owner, at a visit: moves the oldest job of `p` to the end of the ring, as a goroutine, unless the owner has taken one of
    /// its jobs since the last visit. In any case moves the oldest job of a P that no M holds.
    pub(crate) fn queue_oldest_job(&self, p: &P<H>) {
        mutant!(VisitLeavesJobs: return);
        // Relaxed: a hint.
        if p.jobs.is_empty() && !self.left_jobs.load(Relaxed) {
            return;
        }
        let starting = Some(Starting::begin(self));
        let own = p.jobs.take_starving();
        // Even if the owner has a job of its own: otherwise a P that has one at each visit would keep the left jobs waiting for
        // ever.
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

    /// Notes that no M holds `p` from now on, and that it has jobs, if any. Under the lock.
    pub(crate) fn note_left_jobs(&self, p: &P<H>) {
        mutant!(LeftJobsUnnoted: return);
        if self.has_forked() && !p.jobs.is_empty() {
            // Release: `idle_mask`, partner `take_left_job`.
            self.left_jobs.store(true, Release.unless(LeftJobsNotedRelaxed));
        }
    }

    /// At a visit: takes the oldest job of a P that no M holds.
    fn take_left_job(&self) -> Option<Entry<H>> {
        // Cleared before the look: an M that gives up a P with jobs meanwhile sets the flag again. Acquire: partner
        // `note_left_jobs`.
        if !self.left_jobs.swap(false, Acquire.unless(LeftJobsTakenRelaxed)) {
            return None;
        }
        let found = self.ps.iter().filter(|p| self.is_idle(p)).find_map(|p| p.jobs.take_oldest())?;
        mutant!(LeftJobsOnlyOne: return Some(found));
        // Relaxed: there might be more jobs, and this thread has already seen them.
        self.left_jobs.store(true, Relaxed);
        Some(found)
    }

    /// For the monitor: returns which jobs stand on Ps that have retired. Does not take the lock: a hint.
    pub(crate) fn jobs_of_the_retired(&self) -> LeftJobs {
        if !self.has_forked() {
            return LeftJobs::None;
        }
        let retired = self.ps.iter().filter(|p| self.is_to_retire(p) && self.is_idle(p));
        let left = retired.map(|p| match (p.jobs.is_empty(), p.jobs.stand_above_background()) {
            (true, _) => LeftJobs::None,
            (false, false) => LeftJobs::Background,
            (false, true) => LeftJobs::Urgent,
        });
        left.max().unwrap_or(LeftJobs::None)
    }

    /// Returns `true` if a job was ever put in; otherwise no P has one. Exact for the caller's own P.
    #[inline(always)]
    pub(crate) fn has_forked(&self) -> bool {
        // Relaxed: for the own P this reads the owner's own store, or a store before the lock under which the owner got the P;
        // otherwise a hint.
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

    /// For the ender, which has found a forker asleep: returns `true` if the goroutine for which that forker waits might not be
    /// live yet.
    pub(crate) fn jobs_are_starting(&self) -> bool {
        mutant!(EndOverlooksStarting: return false);
        // Acquire: partner the end of `Starting`. The slot, and the forker's park, order the beginning of `Starting` before
        // this.
        self.starting_jobs.load(Acquire.unless(EndLooksForStartingRelaxed)) > 0
    }

    /// For models: as `steal_job`, on any thread. Calls `between` between X2 and Y1.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn take_job_and_pause(&self, mut between: impl FnMut()) -> Option<GRef<H>> {
        self.ps.iter().find_map(|p| {
            self.start_oldest_job_of(p, |entry| {
                between();
                self.start_job(entry)
            })
        })
    }

    /// For a goroutine that was made of a job, or that was one: returns `g` if it may run before `Low` goroutines; otherwise
    /// queues `g` in its class, and returns `None`. The caller has found `detours`, and looks at the queues of the classes
    /// next.
    pub(crate) fn unless_lower(&self, g: GRef<H>) -> Option<GRef<H>> {
        mutant!(JobsOfTheLowerGoFirst: return Some(g));
        if self.has_class(g) && g.class() < Priority::Normal {
            self.inject(GList::one(g));
            return None;
        }
        Some(g)
    }

    /// Empties all slots as the runtime ends: gives records back to their forkers, and appends goroutines to `queued`.
    pub(crate) fn take_jobs(&self, queued: &mut GList<H>) {
        mutant!(JobsForgottenAtTheEnd: return);
        for p in self.ps.iter() {
            while let Some(entry) = p.jobs.take_oldest() {
                match entry {
                    Entry::Goroutine(g) => queued.push(g),
                    // SAFETY: the record was taken out of its slot, and is not settled yet.
                    Entry::Job(job) => unsafe { Job::give_back(job) },
                }
            }
        }
    }

    /// As `spawn`, for a goroutine that the caller's P runs before older goroutines of `go_lifo`.
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

    /// S1 to S3: `g` becomes the newest job of the calling M's P. If there is no room, `g` becomes the next goroutine of that
    /// P. If the M has no P, `g` becomes the last of the global queue.
    fn submit_lifo(&self, m: &M<H>, g: GRef<H>) {
        let Some(inside) = m.look_in() else { return self.send(g, Place::Shared) };
        inside.p.owner.touch();
        event(format_args!("queues {g:?} as the newest job of {:?}", inside.p));
        let has_room = self.put_in(inside.p, Entry::Goroutine(g)).is_some();
        drop(inside);
        if has_room {
            unless!(LifoWakesNobody, self.wakep_beside_own());
        } else {
            self.submit_at(m, g, Place::Next);
        }
    }
}
