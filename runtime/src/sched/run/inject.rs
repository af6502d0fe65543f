//! New goroutines, and goroutines that move between the global queue and a P's ring.
//!
//! The queue is under the lock; its length is read without the lock, as a hint. Goroutines move from the global queue to a
//! ring, and an M that looks at the ring before such a move, and at the queue afterwards, sees them in neither: so an M that is
//! about to sleep first looks at the queue itself, under the lock (I1), and at the rings after that (I3).
//!
//! Goroutines move the other way when a ring is full (`spill`) and when a round ends. An M that looks at the global queue
//! before such a move, and at the ring after it, when those that stayed there have been taken out, sees the moved goroutines in
//! neither. The move is made under the lock. If I1 comes after the move, I1 sees them. If I1 comes before, the census shows the
//! mover an idle P, and S3, which follows each such move, wakes an M. So S3 also follows where no goroutine was submitted, but
//! one yields, or goes from `runnext` to the end of the ring (`spill_and_wake`).
//!
//! Checked by `models/submit_vs_idle.rs` and `models/visits.rs`.

use crate::g::list::GList;
use crate::g::pool::GPool;
use crate::g::{self, Birth, GRef};
use crate::host::Host;
use crate::m::{Inside, M};
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Arc, Relaxed, Weak, event};
use crate::runtime::policy::Overflow;
use crate::sched::run::place::Place;
use crate::sched::run::round::{Exchange, Take};
use crate::sched::{Central, Sched};
use std::io;

impl<H: Host> Sched<H> {
    /// Makes a goroutine of `f` and queues that goroutine. If the runtime ends already, `f` is dropped here, and
    /// the goroutine's joiner learns that the runtime ended.
    ///
    /// # Errors
    /// When no stack can be reserved. The error says which limit was met.
    ///
    /// # Safety
    /// What `f` borrows outlives the goroutine.
    #[doc(alias = "newproc")]
    pub(crate) unsafe fn spawn<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> io::Result<GRef<H>> {
        // SAFETY: by this function's contract.
        unsafe { self.spawn_to(birth, Place::Next, f) }
    }

    /// As `spawn`, at a place of the spawner's choice.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`.
    pub(crate) unsafe fn spawn_at<F: FnOnce() -> T, T>(
        &self,
        birth: Birth,
        place: Place,
        f: F,
    ) -> io::Result<GRef<H>> {
        // SAFETY: by this function's contract.
        unsafe { self.spawn_to(birth, place, f) }
    }

    /// As `spawn`, for a goroutine without a handle. `make` gives the closure once there is a goroutine for it, and neither
    /// unwinds nor parks: a refused call drops `make` uncalled.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`, for what `make` gives.
    pub(crate) unsafe fn spawn_detached<F: FnOnce()>(
        &self,
        birth: Birth,
        make: impl FnOnce() -> F,
    ) -> io::Result<()> {
        if self.is_ending() {
            // SAFETY: by this function's contract.
            g::drop_handle(unsafe { self.spawn_unrun(birth, make()) });
            return Ok(());
        }
        let m = M::current_of(self);
        let g = self.blank(m, true, birth)?;
        // SAFETY: as in `spawn_to`.
        unsafe { g.task.load(make()) };
        g.begin_detached();
        self.submit_fresh(m, g, Place::Next);
        Ok(())
    }

    /// What depends on the closure is the closure's move alone; what comes before and after is compiled once.
    ///
    /// # Safety
    /// As `spawn`.
    #[inline(always)]
    unsafe fn spawn_to<F: FnOnce() -> T, T>(&self, birth: Birth, place: Place, f: F) -> io::Result<GRef<H>> {
        if self.is_ending() {
            // SAFETY: by this function's contract.
            return Ok(unsafe { self.spawn_unrun(birth, f) });
        }
        let m = M::current_of(self);
        let g = self.blank(m, true, birth)?;
        // SAFETY: `g` is fresh from the pool; the borrows are this function's contract.
        unsafe { g.task.load(f) };
        self.submit_fresh(m, g, place);
        Ok(g)
    }

    /// S1 to S3 for a goroutine that was just made, and has its closure; `m` is the caller's, if that is an M of this runtime.
    #[inline(never)]
    fn submit_fresh(&self, m: Option<&M<H>>, g: GRef<H>, place: Place) {
        g.word.spawn();
        match m {
            Some(m) => {
                m.count_live(1);
                self.submit_at(m, g, place);
            }
            None => {
                mutant!(SubmitWakeFirst: self.wakep());
                self.inject_fresh(g, place);
            }
        }
        if self.is_stopping().unless(LateSpawnKeepsItsClosure) {
            self.drop_set_aside();
        }
    }

    /// S1 to S3 for a goroutine that was just made, on a thread that is no M of this runtime. From E1 on (`sched/stop.rs`) the
    /// goroutine is not queued, and its closure is dropped here: the ender, whose looks see nothing of this thread, may have
    /// found the runtime quiet since the caller asked. So the goroutine is counted in the section that queues it: the ender,
    /// which counts what is left, would else count a goroutine that is about to be dropped.
    fn inject_fresh(&self, g: GRef<H>, place: Place) {
        let mut central = self.central.lock();
        if self.is_ending().unless(SpawnLooksOnce) {
            drop(central);
            return self.drop_beside_the_end(g);
        }
        self.count_live_outside(1);
        self.put_at(&mut central, g, place);
        drop(central);
        mutant!(InjectWakesNobody: return);
        self.wakep();
    }

    /// For a runtime that ends: makes a goroutine that never runs, is counted nowhere, and has no stack reserved.
    ///
    /// # Safety
    /// As `spawn`.
    #[cold]
    #[inline(never)]
    unsafe fn spawn_unrun<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> GRef<H> {
        let g = self.blank_unrun(birth);
        // SAFETY: `g` is fresh from the pool; the borrows are this function's contract.
        unsafe { g.task.load(f) };
        self.drop_fresh(g);
        g
    }

    /// A goroutine that has no closure yet, and no stack reserved.
    #[cold]
    #[inline(never)]
    fn blank_unrun(&self, birth: Birth) -> GRef<H> {
        self.blank_reserved(M::current_of(self).and_then(M::look_in), false, birth)
    }

    /// Drops the closure of `g`, which has just got it and is not counted.
    #[cold]
    #[inline(never)]
    fn drop_fresh(&self, g: GRef<H>) {
        g.word.spawn();
        match M::current_of(self) {
            // Its goroutine goes on, and the M tells the ender later.
            Some(_) => g::drop_unrun(g),
            None => self.drop_beside_the_end(g),
        }
    }

    /// Drops the closure of `g`, which was just made and is not counted, on a thread that is no M. The ender may have seen `g`,
    /// and sleeps until it is told.
    fn drop_beside_the_end(&self, g: GRef<H>) {
        mutant!(UnrunIsCounted: self.count_live_outside(1));
        g::drop_unrun(g);
        mutant!(UnrunIsCounted: self.count_live_outside(-1));
        mutant!(UnrunNotTold: return);
        self.tell_the_end();
    }

    /// Makes a goroutine of `f`, runnable and in no queue yet.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`.
    #[inline]
    pub(crate) unsafe fn make<F: FnOnce() -> T, T>(&self, birth: Birth, f: F) -> io::Result<GRef<H>> {
        // SAFETY: by this function's contract.
        unsafe { self.make_counting(true, birth, f) }
    }

    /// As `make`, for a goroutine that may be the library's own: with `counts` false `num_goroutines` does not count
    /// the goroutine.
    ///
    /// # Errors
    /// As `spawn`.
    ///
    /// # Safety
    /// As `spawn`.
    pub(crate) unsafe fn make_counting<F: FnOnce() -> T, T>(
        &self,
        counts: bool,
        birth: Birth,
        f: F,
    ) -> io::Result<GRef<H>> {
        let m = M::current_of(self);
        let g = self.blank(m, counts, birth)?;
        // SAFETY: `g` is fresh from the pool; the borrows are this function's contract.
        unsafe { g.task.load(f) };
        g.word.spawn();
        let live = i64::from(counts);
        m.map_or_else(|| self.count_live_outside(live), |m| m.count_live(live));
        Ok(g)
    }

    /// A goroutine that has no closure yet. The caller loads one, says that it is spawned, and adds it to the live ones; `m` is
    /// the caller's, if that is an M of this runtime.
    ///
    /// # Errors
    /// As `spawn`.
    #[inline(never)]
    fn blank(&self, m: Option<&M<H>>, counts: bool, birth: Birth) -> io::Result<GRef<H>> {
        let inside = m.and_then(|m| m.look_in().or_else(|| self.come_back_to_spawn(m)));
        // A refusal leaves the runtime (`inside`) before the closure is dropped.
        self.reserve_stack(inside.as_ref().map(|inside| inside.p), birth.stack_size as usize)?;
        Ok(self.blank_reserved(inside, counts, birth))
    }

    /// As `blank`, once a stack is reserved.
    #[inline(always)]
    fn blank_reserved(&self, inside: Option<Inside<'_, H>>, counts: bool, birth: Birth) -> GRef<H> {
        let (id, g) = match &inside {
            Some(inside) => {
                inside.p.owner.touch();
                // SAFETY: the pool is closed when the scheduler is dropped.
                (inside.p.next_id(&self.next_id), unsafe { inside.p.free_gs.get(self.pool) })
            }
            // Relaxed: a number, ordered by nothing.
            // SAFETY: the pool is closed when the scheduler is dropped.
            None => (self.next_id.fetch_add(1, Relaxed), unsafe { GPool::get(self.pool) }),
        };
        drop(inside);
        g.begin(id, birth, counts, self.config.knobs.migrate);
        g
    }

    /// Adds to the number of live goroutines, for a thread that is no M, or a goroutine that no M runs.
    pub(crate) fn count_live_outside(&self, by: i64) {
        // Relaxed: a count. A reader that needs an exact one was told of the goroutine, or holds the lock under which the
        // goroutine was queued.
        self.live.fetch_add(by, Relaxed);
    }

    /// S1 of a submission: `list` goes to the end of the global queue. The caller wakes an M.
    #[inline]
    #[doc(alias = "globrunqputbatch")]
    pub(crate) fn globrunqput(&self, list: GList<H>) {
        if !list.is_empty() {
            self.put_global(list);
        }
    }

    #[cold]
    fn put_global(&self, mut list: GList<H>) {
        let mut central = self.central.lock();
        event(format_args!("queues {list:?} globally"));
        central.globq.append(&mut list);
        self.publish_len(&central);
    }

    /// S1 of a submission: `list`, readied from outside of all Ps, goes to the end of the arrivals. The caller wakes an M.
    #[cold]
    pub(crate) fn put_arrivals(&self, mut list: GList<H>) {
        let mut central = self.central.lock();
        event(format_args!("queues {list:?} globally, as arrivals"));
        central.globq.append_arrivals(&mut list);
        self.publish_len(&central);
    }

    /// By the owner of `p`: `g` found the ring full. Half of the ring goes with `g`, or, as the policy has it, `g` alone: then
    /// a round goes on as it was, and `g`, the youngest, stands behind those that the round has still to exchange. Where the
    /// policy has no rings, `g` goes where a goroutine goes that yields. S2 and S3 follow, by the caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn spill(&self, p: &P<H>, g: GRef<H>) {
        self.spill_here(p, g);
    }

    /// As `spill`, compiled into each of its two callers: where there is one queue each yield comes here.
    #[inline(always)]
    fn spill_here(&self, p: &P<H>, g: GRef<H>) {
        let mut central = self.central.lock();
        event(format_args!("queues {g:?} globally, and what {p:?} can't hold"));
        let policy = self.config.policy;
        if policy.has_one_queue() {
            central.globq.push_yielded(g);
        } else {
            let tail = p.runq.ends().1;
            let (round, out) = (&p.poll_schedule.round, |g| central.globq.push(g));
            if policy.stealing().overflow == Overflow::PutOne {
                central.globq.push(g);
            } else if !round.is_on() {
                p.runq.spill(g, out);
            } else if let Some(head) = p.runq.spill_newer(g, out) {
                round.keep_older_half(head);
            } else {
                round.take_in(p.runq.ends().1);
            }
            p.poll_schedule.arrivals.note_queued(p.runq.ends().1.wrapping_sub(tail), 1);
        }
        mutant!(SpillKeepsTheLength: return);
        self.publish_len(&central);
    }

    /// As `spill`, with S2 and S3, where the caller has submitted nothing. Where there is one queue `g` only goes to its end,
    /// in the lock, where an M that gives up looks.
    #[cold]
    #[inline(never)]
    pub(crate) fn spill_and_wake(&self, p: &P<H>, g: GRef<H>) {
        self.spill_here(p, g);
        mutant!(SpillWakesNobody: return);
        if !self.config.has_one_queue {
            self.wakep();
        }
    }

    /// By the owner of `p`: a round is over, see `round.rs`.
    #[cold]
    #[inline(never)]
    pub(crate) fn end_round(&self, p: &P<H>) {
        p.owner.touch();
        let mut central = self.central.lock();
        let (ring, global) = (p.runq.len() as usize, central.globq.len());
        let take = self.take(global, &central);
        let moved = p.poll_schedule.round.exchange((ring, global), take, |Exchange { gives_all, takes }| {
            if gives_all {
                // With a thief in the ring the next look tries again.
                let Some(all) = p.runq.take_all() else { return false };
                central.globq.extend(all);
            }
            let takes = takes.min(p.runq.room() as usize);
            central.globq.move_to(&p.runq, takes);
            p.poll_schedule.arrivals.note_queued(takes as u32, 0);
            event(format_args!("ends a round of {p:?}: {gives_all}, takes {takes}"));
            true
        });
        if !moved {
            return;
        }
        p.poll_schedule.round.take_in(p.runq.ends().1);
        self.publish_len(&central);
        drop(central);
        // S2 and S3 for the goroutines that were in this M's hand: an M that gives up may have looked at the global queue
        // before they came there, and at the ring after they left it, and found both empty.
        mutant!(RoundWakesNobody: return);
        self.wakep();
    }

    /// How many goroutines stand in the global queue, without the arrivals and the mailboxes: exact under the lock, else a hint
    /// (Relaxed).
    #[inline]
    pub(crate) fn globrunq_len(&self) -> usize {
        self.globq_len.read()
    }

    /// Returns `true` if there are arrivals: exact under the lock, else a hint (Relaxed).
    #[inline]
    pub(crate) fn arrivals_wait(&self) -> bool {
        self.globq_len.has_arrivals()
    }

    /// Returns `true` if no goroutine stands in the global queue, nor in a mailbox: exact under the lock, else a hint
    /// (Relaxed).
    #[inline]
    pub(crate) fn globrunq_is_empty(&self) -> bool {
        self.globq_len.is_zero()
    }

    pub(crate) fn publish_len(&self, central: &Central<H>) {
        self.globq_len.publish(&central.globq);
        if central.globq.classes.are_in_use() {
            self.settle_attention(central);
        }
    }

    /// Takes the first of the mailbox of `p`, or of the global queue: an arrival only if `arrivals_too`.
    #[doc(alias = "globrunqget")]
    pub(crate) fn globrunqget_one(&self, p: &P<H>, arrivals_too: bool) -> Option<GRef<H>> {
        if self.globrunq_is_empty() {
            return None;
        }
        p.owner.touch();
        let mut central = self.central.lock();
        let mailed = central.globq.mailed_to(p.id, arrivals_too);
        let first = mailed.or_else(|| central.globq.pop_of(arrivals_too));
        self.publish_len(&central);
        first
    }

    /// Takes the first of the arrivals, for the owner of `p`.
    pub(crate) fn take_arrival(&self, p: &P<H>) -> Option<GRef<H>> {
        if !self.arrivals_wait() {
            return None;
        }
        p.owner.touch();
        let mut central = self.central.lock();
        let first = central.globq.pop_arrival();
        self.publish_len(&central);
        first
    }

    /// Takes the first goroutine of the mailbox of `p`; or the first of the global queue, and puts the share of `p` into the
    /// queue of `p`: behind others there no arrivals, and no arrival is the first unless `arrivals_too`. An M that has just
    /// acquired `p` gets only the first: that goroutine may block at once, and leave the others behind
    /// (`sched/threads/blocking.rs`).
    #[doc(alias = "globrunqgetbatch")]
    pub(crate) fn globrunqget(&self, p: &P<H>, arrivals_too: bool) -> Option<GRef<H>> {
        if self.globrunq_is_empty() {
            return None;
        }
        p.owner.touch();
        let mut central = self.central.lock();
        if let Some(mailed) = central.globq.mailed_to(p.id, arrivals_too) {
            self.publish_len(&central);
            return Some(mailed);
        }
        // One goroutine of the global queue at a time goes before the mail.
        let alone = p.is_fresh() || central.globq.mail.is_for(p.id);
        let ends = p.runq.ends();
        let of = central.globq.num_of(arrivals_too && ends.0 == ends.1);
        let share = if alone { 1 } else { self.take(of, &central).share };
        let first = central.globq.pop_of(arrivals_too);
        if share > 1 {
            self.fill_from_global(p, &mut central, share - 1);
        }
        p.poll_schedule.round.take_in(p.runq.ends().1);
        self.publish_len(&central);
        first
    }

    /// Puts `most` goroutines into the ring of `p`, or as many as there are. Arrivals go only into an empty ring, which is a
    /// ring of arrivals then.
    fn fill_from_global(&self, p: &P<H>, central: &mut Central<H>, mut most: usize) {
        let ends = p.runq.ends();
        let arrivals_too = ends.0 == ends.1;
        p.runq.push_from(|| {
            most = most.checked_sub(1)?;
            central.globq.pop_of(arrivals_too)
        });
        let (arrivals, filled) = (&p.poll_schedule.arrivals, p.runq.ends().1);
        if arrivals_too {
            arrivals.fill(ends, filled);
        } else {
            arrivals.note_queued(filled.wrapping_sub(ends.1), 0);
        }
    }

    /// How many of so many a P takes out of the global queue, at least one.
    fn take(&self, of: usize, central: &Central<H>) -> Take {
        Take::of(of, central.procs as usize, self.config.policy.stealing().global)
    }

    /// Returns a handle to this scheduler that does not keep it alive.
    pub(crate) fn weak(&self) -> Weak<Self> {
        // SAFETY: the pool lives as long as the scheduler.
        unsafe { self.pool.as_ref() }.sched().clone()
    }

    /// Returns a counted handle to this scheduler; `None` while the last one is dropped.
    pub(crate) fn arc(&self) -> Option<Arc<Self>> {
        // SAFETY: the pool lives as long as the scheduler.
        unsafe { self.pool.as_ref() }.sched().upgrade()
    }
}
