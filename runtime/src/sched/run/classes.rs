//! Classes of goroutines: which class goes first, and why no goroutine is forgotten or starved.
//!
//! *The problem.* A goroutine of a high class has to run before thousands that stand in the rings of all Ps, and a goroutine of
//! a low class only when those are gone; and a program that uses no class must pay nothing for that.
//!
//! *The obvious way* is a queue for each class in each P. Then each pop, each thief, and each look before an M sleeps has to
//! read all of these queues. With a single shared queue, ordered by class, each pop takes its lock.
//!
//! *Here* `Normal` goroutines stand in the rings and in the global queue. Those of other classes stand in one shared queue per
//! class, under the central lock (`class_queues.rs`), and are taken out in batches, as in SObjectizer: an owner takes up to
//! [`CLASS_BATCH`](capacity::CLASS_BATCH) of them, at one acquisition of the lock, into the batch of its P (`p/batch.rs`).
//! Before each goroutine the owner reads one word, which says whether any class but `Normal` has goroutines.
//!
//! ```text
//!   submitter of a class                            owner, before each goroutine
//!
//!   S1  lock: the end of the class's queue;         H1  `attention` not above the P's `alert`?
//!       `attention` := 0                                no: its ring, as ever
//!   S2, S3 as ever (`wake.rs`)                      H2  its own batch, or lock: takes one, and fills the batch;
//!                                                       `attention` := the number of Ps, if the queues are empty
//!                                                   H3  runs the highest of: batch or queue of High, ring and global
//!                                                       queue, Low, Background
//! ```
//! H1 is the comparison that finds a P surplus (`sched/threads/procs.rs`). `attention` is `wanted`, or zero while a goroutine
//! is in a class's queue. A P's `alert` is its number, or greater than any P's number while its batch might hold a goroutine.
//! So H1 costs nothing if no class is used. `detours` shows a submitter whether its goroutines might have to go into the global
//! queue; under the policies with one queue every submitter reads that word anyway.
//!
//! *No wake-up is lost.* S1 is under the lock, like that of any goroutine for the global queue, and `GlobalQueue::is_empty`,
//! which an M calls in I1, counts the classes. An owner fills its batch under the lock, as it fills its ring from the global
//! queue: so an M that looks at the class's queue under the lock (I1), and at all batches after that (I3), sees the goroutine.
//! I3, and every other check after which an M can sleep, or a P can go idle, calls [`has_work`](Sched::has_work), which looks
//! at the batch before the ring. The order matters: a `Normal` goroutine that yields goes into the ring; then its M takes the
//! last goroutine of the batch, and wakes no M. An M that read the ring before that and the batch after it would see neither.
//! The same holds when a look puts one goroutine into the ring of an owner that has a batch, and wakes no M (`submit_found`).
//!
//! A goroutine of another class that yields goes into its class's queue, and its M takes another goroutine. If that goroutine
//! comes from the P's own ring, batch or jobs, an M that gave up might have looked at the queue before the yield, and at the
//! ring, batch and jobs after it: so S2 and S3 follow. S2 and S3 also follow when a batch goes back into its queue because a
//! goroutine of a higher class has come; when a sleeper goes first (`others_wait`); and when the same look finds one more
//! goroutine for the ring (`submit_found`).
//!
//! *A reader that finds no class bit in `detours`* has not learned of any goroutine with a class: the bit is set, under the
//! lock, before the first goroutine gets a class. A class that changes while its goroutine is being submitted counts from the
//! next submission on.
//!
//! *Jobs* (`jobs.rs`): an owner runs its jobs as if they were `Normal`, or after `Low` goroutines if the newest job is that of
//! a forker below `Normal`: otherwise each look would make one more goroutine of a tree, instead of running an existing one.
//! The goroutine that is made of a record has the class of its forker, and a thief queues it in that class if the class is
//! below `Normal`.
//!
//! *No class but `Background` starves.* While goroutines of other classes wait, an owner counts its turns: one in `low_share`
//! turns is for `Low`, if a `Low` goroutine waits, and one is for `Normal` ([`Turns`](crate::p::batch::Turns)). A goroutine
//! that a look of `look.rs` finds goes before the ring. If a goroutine above `Normal` waits, the owner queues the found one
//! instead, unless that is `High` itself.
//!
//! *Goroutines from outside.* While all Ps run, no M waits in the poller, and visits come once in 61 goroutines. An owner that
//! is about to run a goroutine below `Normal` looks first at the poller and at the rings and batches of other Ps, if its last
//! such look is [`LOOK_BEYOND`](capacity::LOOK_BEYOND) ago: so a High goroutine that waits for a socket runs after one piece of
//! work of a Low goroutine, or after that time.
//!
//! Checked by `models/classes.rs`.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::p::batch::Turn;
use crate::p::runq::StealNext;
use crate::prim::capacity::CLASS_BATCH as BATCH;
use crate::prim::hooks::*;
use crate::prim::{Acquire, Relaxed, Release, capacity, event};
use crate::runtime::priority::{ClassLoad, Priority};
use crate::sched::run::class_queues::CLASSES;
use crate::sched::{Central, Sched};

/// A bit of `detours`: the policy keeps all goroutines in the global queue.
pub(crate) const ONE_QUEUE: u8 = 1;
/// A bit of `detours`: goroutines have classes.
const BY_CLASS: u8 = 2;
/// A bit of `detours`: goroutines that live have hints: see `mail.rs`.
pub(crate) const BY_HINT: u8 = 4;

/// The result of `heed`: the next step of an M that does not just take the first goroutine of its ring.
pub(crate) enum Heeded<H: Host> {
    /// A goroutine to run.
    Runs(GRef<H>),
    /// The M looks again, with the same P, another one, or none.
    LooksAgain,
    /// The M, or its runtime, ends.
    Ends,
}

impl<H: Host> Sched<H> {
    /// H1. Returns `true` if the owner of `p` must not just take the next goroutine of its ring: `p` is surplus, the runtime
    /// ends, or goroutines of other classes wait. A hint.
    #[inline(always)]
    pub(crate) fn is_called(&self, p: &P<H>) -> bool {
        // Relaxed: a hint. With an old value the M runs one more goroutine; an M that is about to sleep decides under the lock.
        p.alert() >= self.attention.load(Relaxed)
    }

    /// Called under the lock when the number of Ps has changed, or when goroutines of classes might have come or gone.
    pub(crate) fn settle_attention(&self, central: &Central<H>) {
        let waits = self.waiting_classes.publish(&central.globq.classes);
        let attention = if waits { 0 } else { self.wanted.load(Relaxed) };
        mutant!(AttentionNotCalled: let attention = self.wanted.load(Relaxed));
        if self.attention.load(Relaxed) != attention {
            // Release: `wanted`, partner `heed`. No model has this: an owner that does not see the new `wanted` runs one more
            // goroutine, and looks again. At the end of the runtime, `no_p_is_wanted` has a Release of its own.
            self.attention.store(attention, Release);
        }
    }

    /// Makes the runtime heed classes from now on. Any thread calls this before it first gives a goroutine a class.
    pub(crate) fn use_classes(&self) {
        if self.detours.get() & BY_CLASS == 0 {
            self.begin_classes(&mut self.central.lock());
        }
    }

    pub(crate) fn begin_classes(&self, central: &mut Central<H>) {
        central.globq.classes.begin();
        self.begin_detours(BY_CLASS);
    }

    /// Makes submitters queue some goroutines globally from now on, for this reason. Under the lock.
    pub(crate) fn begin_detours(&self, reason: u8) {
        self.detours.set(self.detours.get() | reason);
        self.globq_len.note_detours();
    }

    /// Returns `true` if `g` is to be queued globally, and not on `p`. For a caller that has found `detours`.
    #[cold]
    #[inline(never)]
    pub(crate) fn takes_detour(&self, p: Option<&P<H>>, g: GRef<H>) -> bool {
        self.config.policy.has_one_queue() || self.has_class(g) || self.is_away(p, g)
    }

    /// Returns `true` if `g` belongs in the queue of a class.
    pub(crate) fn has_class(&self, g: GRef<H>) -> bool {
        self.detours.get() & BY_CLASS != 0 && g.class() != Priority::Normal
    }

    /// Any thread: returns `true` if goroutines stand on `p`. See [`Runq::is_empty`](crate::p::runq::Runq::is_empty).
    ///
    /// The order of the two looks matters, because goroutines come and go meanwhile. The batch is read first. The owner can put
    /// a goroutine into the ring, wake no M for it, and then take the last goroutine out of the batch; a reader that finds the
    /// batch empty must see the ring filled. The exchange that takes that last goroutine is a Release, so a reader that sees it
    /// gone sees the goroutine that was put into the ring before. No goroutine goes from the ring to the batch.
    #[inline]
    pub(crate) fn has_work(&self, p: &P<H>) -> bool {
        mutant!(BatchReadLast: return !p.runq.is_empty() || self.has_batch(p));
        self.has_batch(p) || !p.runq.is_empty()
    }

    /// As `has_work`, for the batch.
    #[inline]
    pub(crate) fn has_batch(&self, p: &P<H>) -> bool {
        mutant!(BatchUnseen: return false);
        self.detours.get() & BY_CLASS != 0 && !p.batch.is_empty()
    }

    /// As `has_work`, for a caller that takes a P from a goroutine that runs on: goroutines of `Background` wait for that
    /// goroutine, and do not count. A hint, so ring and batch can be read in either order: the caller asks again at its next
    /// look.
    pub(crate) fn has_work_for_now(&self, p: &P<H>) -> bool {
        !p.runq.is_empty()
            || self.has_batch(p) && p.batch.class() != Priority::Background
            || self.waiting_classes.any_above_background()
    }

    /// For a goroutine that runs on `p`: returns `true` if a quick look finds no other goroutine, neither on `p` nor in the
    /// global queue, and no detours. A hint.
    #[inline(always)]
    pub(crate) fn is_alone_on(&self, p: &P<H>) -> bool {
        self.globq_len.look().is_nothing() && p.runq.is_empty()
    }

    /// Returns `true` if goroutines stand in the queue of a class, or in the batch of `p`. A hint, for a caller that has found
    /// no other goroutines: then these are of `Background`.
    pub(crate) fn has_background(&self, p: &P<H>) -> bool {
        self.waiting_classes.any() || self.has_batch(p)
    }

    /// For the owner of `p`: returns `true` if goroutines of a class above `Normal` wait for a turn on `p`. A hint.
    pub(crate) fn waits_above_normal(&self, p: &P<H>) -> bool {
        self.waiting_classes.has(Priority::High) || self.has_batch(p) && p.batch.class() > Priority::Normal
    }

    /// For a goroutine of `class` that yields on `p` while no `Normal` goroutine waits: returns `true` if another goroutine
    /// goes first, one of that class or a higher class, or a `Low` goroutine that has its turn.
    pub(crate) fn gives_way_to_a_class(&self, p: &P<H>, class: Priority) -> bool {
        let batch = self.has_batch(p).then(|| p.batch.class());
        if self.waiting_classes.any_from(class) || batch.is_some_and(|of_batch| of_batch >= class) {
            return true;
        }
        if !self.waiting_classes.any_above_background() && batch != Some(Priority::Low) {
            return false;
        }
        let turns = &p.batch.turns;
        match turns.next(self.config.low_share) {
            // The turn stays due until the M that gets the P takes it.
            Turn::Low => true,
            Turn::Normal => {
                turns.ran(Priority::Normal);
                false
            }
            Turn::Highest => false,
        }
    }

    /// Any thread, under the lock: puts the batch of `p` back into its class's queue.
    pub(crate) fn empty_batch(&self, central: &mut Central<H>, p: &P<H>) {
        if !self.has_batch(p) {
            return;
        }
        let (class, mut gs) = (p.batch.class(), Vec::new());
        p.batch.drain(|g| gs.push(g));
        central.globq.classes.put_back(class, gs.into_iter());
    }

    /// For an M that has no P, or for whose P `is_called` returned `true`.
    #[cold]
    #[inline(never)]
    pub(crate) fn heed(&self, m: &M<H>) -> Heeded<H> {
        // Acquire: partner `no_p_is_wanted` and `settle_attention`. So the M also sees the new `wanted`, if its P is surplus or
        // the runtime ends, and then does not look for goroutines of classes.
        let _why = self.attention.load(Acquire.unless(CalledInTheDark));
        let Some(p) = m.p().filter(|p| !self.is_surplus(p)) else { return self.change_p(m) };
        match self.find_by_class(m, p) {
            Some(g) => Heeded::Runs(g),
            None => {
                self.go_idle_here(m);
                Heeded::LooksAgain
            }
        }
    }

    /// As `go_idle`, which is inlined into the M's loop; here it is a call.
    #[inline(never)]
    fn go_idle_here(&self, m: &M<H>) {
        self.go_idle(m);
    }

    /// As one turn of the loop of `find_runnable`, if goroutines have classes.
    fn find_by_class(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        let tick = p.next_tick();
        p.settle_alert();
        if (!p.timers.is_empty() || p.poll_schedule.is_due(tick))
            && let Some(found) = self.look_before_the_queue(m, p, tick)
        {
            if found.class() == Priority::High || !self.waits_above_normal(p) {
                // Not counted as a turn of the ring: otherwise sleepers and visits would keep the ring from ever having a turn.
                return Some(found);
            }
            self.queue_behind(p, found);
        }
        let turns = &p.batch.turns;
        let first = match turns.next(self.config.low_share) {
            Turn::Highest => None,
            Turn::Low => {
                turns.ran(Priority::Low);
                self.take_of(p, Priority::Low)
            }
            Turn::Normal => {
                turns.ran(Priority::Normal);
                let arrival = self.arrival_in_turn(p);
                arrival.or_else(|| self.runqget(p)).or_else(|| self.globrunqget(p, true))
            }
        };
        if let Some(g) = first.or_else(|| self.take_of(p, Priority::High)) {
            return Some(g);
        }
        // Jobs of forkers below `Normal` come behind existing `Low` goroutines, so that a tree stays narrow.
        let lower = p.jobs.are_lower().unless(JobsOfTheLowerGoFirst);
        let own_job = || self.take_own_job(p).and_then(|g| self.unless_lower(g));
        let own_first = || if lower { None } else { own_job() };
        if let Some(g) = self.runqget(p).or_else(|| self.globrunqget(p, true)).or_else(own_first) {
            turns.ran(Priority::Normal);
            return Some(g);
        }
        if let Some(g) = self.look_beyond(m, p) {
            return Some(g);
        }
        if let Some(g) = self.take_of(p, Priority::Low) {
            turns.ran(Priority::Low);
            return Some(g);
        }
        if lower && let Some(g) = self.take_own_job(p) {
            turns.ran(Priority::Low);
            return Some(g);
        }
        self.take_of(p, Priority::Background).or_else(|| self.look_elsewhere(m, p))
    }

    /// For the owner of `p`, which is about to run a `High` goroutine: queues `found`, which it has taken from elsewhere,
    /// behind the others of its class. An M that gave up meanwhile might have looked at that class's queue before the push, and
    /// at the place from which `found` came after the take: so `wakep` follows.
    fn queue_behind(&self, p: &P<H>, found: GRef<H>) {
        p.owner.touch();
        if !self.requeue_by_class(p, found)
            && let Some(found) = p.runq.push(found)
        {
            self.spill(p, found);
        }
        mutant!(BehindHighInSilence: return);
        self.wakep();
    }

    /// H2: takes the oldest goroutine of this class out of the P's batch or the class's queue.
    fn take_of(&self, p: &P<H>, class: Priority) -> Option<GRef<H>> {
        p.owner.touch();
        let found = p.batch.pop(class).or_else(|| self.take_of_queue(p, class))?;
        p.batch.count(class);
        Some(found)
    }

    /// As `take_of`, for an owner whose batch is of another class, or empty.
    fn take_of_queue(&self, p: &P<H>, class: Priority) -> Option<GRef<H>> {
        if !self.waiting_classes.has(class) {
            return None;
        }
        let mut central = self.central.lock();
        #[cfg(test)]
        p.batch.locks.set(p.batch.locks.get() + 1);
        let procs = central.procs as usize;
        let classes = &mut central.globq.classes;
        let mut went_back = false;
        if !p.batch.is_empty() && p.batch.class() < class {
            // A batch of a less urgent class goes back into its queue, unless a thief is in the ring.
            let lower = p.batch.class();
            if let Some(all) = p.batch.take_all() {
                classes.put_back(lower, all);
                went_back = true;
            }
        }
        let first = classes.pop(class);
        if p.batch.is_empty() && !p.take_fresh() {
            // One P's share, so that no P has a batch while another has nothing.
            let mut rest = (classes.len(class) + 1).div_ceil(procs).min(BATCH) - 1;
            p.batch.fill(class, || {
                rest = rest.checked_sub(1)?;
                classes.pop(class)
            });
            event(format_args!("takes {first:?} and {} more of class {class}", p.batch.len()));
        }
        self.publish_len(&central);
        drop(central);
        p.settle_alert();
        if went_back {
            mutant!(BatchGoesBackInSilence: return first);
            self.wakep();
        }
        first
    }

    /// Called before a goroutine below `Normal` runs: looks into the poller, and at the rings and batches of other Ps, unless
    /// the last such look was a moment ago.
    fn look_beyond(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        let now = H::now();
        if now.saturating_since(p.batch.looked.get()) < capacity::LOOK_BEYOND {
            return None;
        }
        p.batch.looked.set(now);
        if self.nobody_polls() {
            let found = self.poll_now(&m.local);
            if !found.is_empty() {
                self.submit_found(m, found);
                let first = self
                    .take_of(p, Priority::High)
                    .or_else(|| self.runqget(p))
                    .or_else(|| self.globrunqget(p, true));
                if first.is_some() {
                    return first;
                }
            }
        }
        let found = self.victims(m, p).find_map(|victim| self.take_more_urgent(p, victim));
        let found = found.or_else(|| self.steal_urgent_job(m, p));
        let found = found.or_else(|| self.steal_mail(p))?;
        mutant!(LookBeyondWakesNobody: return Some(found));
        // As B4 of `help.rs`: an M that gave up meanwhile has seen the stolen goroutines neither there nor here.
        self.wakep();
        Some(found)
    }

    /// For the owner of `p`, which has no goroutine above `Low`: takes goroutines above `Low` that stand on `victim`.
    fn take_more_urgent(&self, p: &P<H>, victim: &P<H>) -> Option<GRef<H>> {
        if self.is_idle(victim) {
            return None;
        }
        p.owner.touch();
        if self.has_batch(victim)
            && victim.batch.class() == Priority::High
            && let Some(g) = self.steal_batch(p, victim)
        {
            return Some(g);
        }
        p.runq.steal_from(&victim.runq, self.steals(), StealNext::No)
    }

    /// For a thief, the owner of `p`: takes goroutines from the batch of `victim`, which has one.
    pub(crate) fn steal_batch(&self, p: &P<H>, victim: &P<H>) -> Option<GRef<H>> {
        let g = p.batch.steal_from(&victim.batch)?;
        p.batch.count(g.class());
        unless!(StolenBatchUnalerted, p.settle_alert());
        Some(g)
    }

    /// Queues `g`, which yields, globally if it has a class, or a hint that names a P other than `p`. For any other goroutine
    /// does nothing, and returns `false`. The caller has found `detours`.
    #[cold]
    #[inline(never)]
    pub(crate) fn requeue_by_class(&self, p: &P<H>, g: GRef<H>) -> bool {
        let has_class = self.has_class(g);
        if !has_class && !self.is_away(Some(p), g) {
            return false;
        }
        event(format_args!("queues {g:?}, of class {}, hint {:?}, behind others", g.class(), g.hint()));
        let mut central = self.central.lock();
        central.globq.push(g);
        self.publish_len(&central);
        drop(central);
        mutant!(ClassYieldsInSilence: return true);
        // If `g` has a hint, the P that it names might be idle, and an M has to come for that P before this M takes the mail.
        // Otherwise a goroutine or job of this P might go before `g`, and an M that gave up meanwhile might have seen neither.
        if !has_class || self.has_work(p) || (!p.jobs.is_empty()).unless(JobBeforeTheYielderUnseen) {
            self.wakep();
        }
        true
    }

    /// For the owner of `p`, which has found `list`: does S1 to S3 for the goroutines that do not go into its ring, and returns
    /// the others. The caller has found `detours`.
    #[cold]
    #[inline(never)]
    pub(crate) fn submit_found_globally(&self, p: &P<H>, mut list: GList<H>) -> GList<H> {
        let (mut out, mut rest) = (GList::new(), GList::new());
        while let Some(g) = list.pop() {
            if self.takes_detour(Some(p), g) { out.push(g) } else { rest.push(g) }
        }
        if out.is_empty() {
            return rest;
        }
        let away = out.first().is_some_and(|g| self.is_away(Some(p), g));
        let nothing_own = !self.has_work(p) && p.jobs.is_empty();
        let alone = out.len() == 1 && rest.is_empty() && nothing_own && !away;
        let mut central = self.central.lock();
        event(format_args!("queues {out:?} globally"));
        // The caller's M takes a single goroutine itself.
        let takes_it = alone && central.globq.is_empty();
        central.globq.append(&mut out);
        self.publish_len(&central);
        drop(central);
        if !takes_it {
            mutant!(FoundOfClassesWakesNobody: return rest);
            self.wakep();
        }
        rest
    }

    /// Returns how many goroutines of this class wait for a turn, and how many have had one. Exact while nothing changes.
    pub(crate) fn class_load(&self, class: Priority) -> ClassLoad {
        let central = self.central.lock();
        let (queue, ps) = (&central.globq, self.ps.iter());
        if class == Priority::Normal {
            let own: usize = ps.map(|p| p.runq.len() as usize + usize::from(p.runq.has_next())).sum();
            return ClassLoad { waiting: queue.num_normal() + own, turns: None };
        }
        let (mut waiting, mut turns) = (queue.classes.len(class), 0);
        for p in ps {
            turns += p.batch.ran(class);
            if p.batch.class() == class {
                waiting += p.batch.len() as usize;
            }
        }
        ClassLoad { waiting, turns: Some(turns) }
    }

    /// Under the lock: returns `true` if no goroutine of the class of `g`, or of a higher class, waits in the global queue.
    pub(crate) fn goes_first(&self, central: &Central<H>, g: GRef<H>) -> bool {
        let queue = &central.globq;
        if !queue.classes.are_in_use() {
            return queue.is_empty();
        }
        let class = g.class();
        let higher = CLASSES.into_iter().any(|it| it >= class && queue.classes.len(it) > 0);
        !higher && (class > Priority::Normal || queue.has_no_normal())
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::{Builder, Runtime};

    /// Fails when goroutines are taken out of the queue of their class one by one: the goal is 1.2 acquisitions of the lock for
    /// each full batch.
    #[test]
    fn the_lock_is_taken_once_a_batch() {
        const COUNT: usize = 1_600;
        for (class, procs) in
            [(Priority::High, 1), (Priority::Low, 1), (Priority::Background, 1), (Priority::Low, 2)]
        {
            // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
            let runtime = unsafe { Runtime::builder().procs(procs).build() }.unwrap();
            let sched = runtime.handle().sched("classes").unwrap();
            runtime.run(|| {
                let all = (0..COUNT).map(|_| Builder::new().priority(class).go(|| ()).unwrap());
                Vec::from_iter(all).into_iter().for_each(|one| one.join().unwrap());
            });
            let locks: usize = sched.ps.iter().map(|p| p.batch.locks.get()).sum();
            println!(
                "{COUNT} of {class} on {procs} Ps: {locks} acquisitions, {:.3} each",
                locks as f64 / COUNT as f64
            );
            if procs == 1 {
                assert!(locks * BATCH * 10 <= 12 * COUNT, "{class}: {locks} acquisitions");
            }
        }
    }
}
