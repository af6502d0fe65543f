//! Making a goroutine runnable, and waking an M for that goroutine: why no wake-up is lost.
//!
//! *The problem.* A submitter queues a goroutine just when the last M that looked for work gives up. The submitter reads that
//! an M spins, but that M has already read that the queues are empty. So no M runs the goroutine.
//!
//! *The obvious way* is one lock around both sides; then every spawn and every wake-up takes that lock. *Here* each side
//! writes, fences, and reads what the other side has written:
//!
//! ```text
//!   submitter                                      M going idle
//!
//!   S1  queue the G                                I1  lock: its P is idle, it does not spin, it stands by
//!   S2  SubmitFence                                I2  IdleFence
//!   S3  no M spins and a P is idle?                I3  look at every queue:
//!       claim to spin, summon an M                     a G?  take an idle P back, spin
//! ```
//! One of the fences comes first:
//!
//! * *SubmitFence*: I3 sees the G.
//! * *IdleFence*: S3 sees an idle P, and the submitter summons an M unless another M spins. A spinning M either goes
//!   through I1 to I3 itself, or finds work, stops spinning, and then looks at every queue (L1 to L3 of `spin.rs`). So the G
//!   that a submitter left to a spinning M is found by that M, or by the M that the spinning M wakes, and so on.
//! * *No P is idle* at S3: every P is held. A holder that sleeps goes through I1 to I3 first. (The holder might nap first, for
//!   microseconds: `nap.rs`.) A holder that gives its P away instead (`handoffp`) either assigns the P to an M, which then
//!   holds it; or idles the P, and then does I3, or claims to spin and summons an M. The next paragraph covers a claim that is
//!   undone because there is no M.
//!
//! *At `max_threads`* there might be no M for an idle P. The next M that joins the idle set looks at all queues before it
//! sleeps (`mput` and `sleep_unless` in `idle.rs`). The exception is an M that finds, under the lock, that no P is idle
//! (`sleep_without_p` in `threads/procs.rs`): then the next M that idles a P looks. An M that takes a blocker instead of
//! sleeping (`threads/blockers.rs`), or that sends its goroutine on under `migrate=1`, looks at the global queue and at the
//! jobs, but not at the rings. The same holds in the pause after a refused thread (`threads/newm.rs`).
//!
//! I1 is one critical section of the central lock: so a submitter that sees the idle P under that lock also finds an M to
//! summon. In Go an M stands by only after its last recheck; a submission before that starts a thread. Go's `needspinning` is
//! not needed here: *every* M rechecks, not only those that spun, so a submission that finds all Ps busy takes no lock.
//!
//! One M is woken for many submissions: as long as an M spins, submitters leave their goroutines to that M. Once the M
//! has found work, and there is still an idle P and more work, that M wakes the next. A burst of goroutines costs the submitter
//! one futex call.
//!
//! **A summons** brings no P:
//!
//! ```text
//!   submitter                                      summoned M
//!
//!   C1  claims to spin
//!   C2  lock: a P is idle?
//!       takes an M out of its idle spot,
//!       and summons it;  none: undoes C1
//!   C3  wakes the M                                D1  lock: a P is idle?  takes it, and spins
//!                                                  D2  none: undoes C1, stands by, in the same lock
//!                                                  D3  SummonedInVainFence, sleep
//! ```
//! The P stays idle until D1. In Go, and in the obvious code, C2 takes the P, and the woken M gets that P. Then no other M can
//! use the P until the woken M runs, not even an M that is awake and comes back from a blocking call or from the poller. In
//! programs that often block, all goroutines would wait for such wake-ups (`sched/threads/blocking.rs`).
//!
//! At D2 no P is idle. A submitter that skipped the wake-up has read the claim at S3, before D2. An M that idles a P later does
//! so under the lock, after D2, and then executes IdleFence. If SubmitFence came after that IdleFence, S3 would have seen the
//! idle P. So SubmitFence comes first, and I3 sees the goroutine. (If the goroutine is in the global queue, the M that idles
//! its P sees the goroutine under the lock; in `handoffp` that M summons another M for it, or leaves it to a spinning M.) So D2
//! needs no recheck. But D2 has to be under the lock. Otherwise an M could idle a P between D1 and D2, while the claim still
//! counts and no M will come for it.
//!
//! If C2 finds no M, the submitter starts a new one, after the lock. The thread of the new M can take long to start, so an M
//! that stands by meanwhile takes the claim over: `threads/newm.rs`.
//!
//! Checked by `models/submit_vs_idle.rs`; the fence of `wakep` by `models/classes.rs`, and summonses by `models/summons.rs`.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::{Assignment, M};
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Ordering, event, fence, fence_after_exchange};
use crate::sched::lasting::MRef;
use crate::sched::threads::blockers::BlockerM;
use crate::sched::{Central, Sched};
use crate::wait::abandon::AbandonHook;
use crate::wait::status::{Then, WaitNumber};

/// The M to wake or start: chosen under the lock, woken or started after the lock.
#[must_use]
pub(crate) enum Wake<H: Host> {
    /// An M that sleeps on a note.
    M(MRef<H>),
    /// The M that waits in the poller.
    Poller,
    /// A new M.
    New(Assignment<H>),
}

/// Makes a goroutine, whose wait the caller has claimed, runnable. Any thread may call this.
#[doc(alias = "ready")]
pub(crate) fn goready<H: Host>(g: GRef<H>) {
    if let Some(m) = M::<H>::current()
        && g.is_of(m.sched())
    {
        if g.word.ready() == Then::Queue {
            m.sched().submit_on(m, g);
        }
        return;
    }
    if g.word.ready() == Then::Queue {
        queue_from_afar(g);
    }
}

/// Queues a goroutine that this thread has readied or nudged.
#[inline(always)]
fn queue_from_afar<H: Host>(g: GRef<H>) {
    // Taking the count of the scheduler here is as good as earlier: the goroutine belongs to this thread alone, which has to
    // queue it. No M runs the goroutine, and the end of the runtime passes over it (`seize`), so its memory stays, even if the
    // runtime ends at this moment.
    match g.home().upgrade() {
        Some(sched) => sched.submit(g),
        // The runtime has ended and left the goroutine behind: this thread alone has to queue the goroutine. After a nudge the
        // goroutine's wait is open, or a waker has claimed that wait, and comes here later. No model has this: the unit tests
        // below fail without this call.
        None => {
            if g.word.seize_queued() {
                AbandonHook::run_of(g);
            }
        }
    }
}

/// The most goroutines that one notifier queues together. Of thousands of goroutines the first need not wait until the last is
/// readied.
const TOGETHER: usize = 64;

/// As `goready`, for one of several goroutines. Appends a goroutine of the calling M's scheduler to `readied`, for
/// `queue_readied`.
pub(crate) fn goready_for<H: Host>(g: GRef<H>, readied: &mut GList<H>) {
    match M::<H>::current() {
        Some(m) if g.is_of(m.sched()) => {
            if g.word.ready() == Then::Queue {
                readied.push(g);
                if readied.len() == TOGETHER {
                    queue_readied(std::mem::replace(readied, GList::new()));
                }
            }
        }
        _ => goready(g),
    }
}

/// Queues the goroutines that `goready_for` has appended to the list. The caller has not parked since then, so it is still on
/// the M on which it called `goready_for`.
pub(crate) fn queue_readied<H: Host>(readied: GList<H>) {
    let m = M::<H>::current().expect("queue_readied: on the M that has readied them");
    m.sched().submit_each_on(m, readied);
}

/// Makes the parker of a published wait look again. Any thread may call this.
pub(crate) fn nudge<H: Host>(g: GRef<H>, number: WaitNumber) {
    if g.word.nudge(number) == Then::Queue {
        queue_from_afar(g);
    }
}

/// Makes a goroutine look again, whatever it waits for. Appends the goroutine to `nudged` if it has to be queued for that.
pub(crate) fn nudge_any<H: Host>(g: GRef<H>, nudged: &mut GList<H>) {
    if g.word.nudge_any() == Then::Queue {
        nudged.push(g);
    }
}

/// Queues the goroutines that `nudge_any` has appended to the list. The caller holds none of the locks any more.
pub(crate) fn queue_nudged<H: Host>(mut nudged: GList<H>) {
    while let Some(g) = nudged.pop() {
        queue_from_afar(g);
    }
}

impl<H: Host> Sched<H> {
    /// S1 to S3. `g` becomes the next goroutine of the calling M's P. If the caller has no P, `g` becomes the last of the
    /// arrivals. Under a policy with one queue `g` becomes the last of the global queue.
    #[inline]
    pub(crate) fn submit(&self, g: GRef<H>) {
        match M::current_of(self) {
            Some(m) => self.submit_on(m, g),
            None => {
                self.inject(GList::one(g));
            }
        }
    }

    /// As `submit`, on the thread of `m`, which is one of this scheduler's Ms.
    #[inline]
    pub(crate) fn submit_on(&self, m: &M<H>, g: GRef<H>) {
        self.submit_on_or(m, g, |g| self.inject(GList::one(g)));
    }

    /// As `submit_on`; if `m` has no P, `without_p` does S1 to S3, unless `detours` send `g` to the global queue
    /// (`classes.rs`).
    #[inline(always)]
    pub(crate) fn submit_on_or(&self, m: &M<H>, g: GRef<H>, without_p: impl FnOnce(GRef<H>)) {
        if self.detours.get() != 0 && self.takes_detour(m.p(), g) {
            return self.inject(GList::one(g));
        }
        mutant!(SubmitWakeFirst: self.wakep());
        let Some(inside) = m.look_in() else { return without_p(g) };
        inside.p.owner.touch();
        event(format_args!("queues {g:?} as the next of {:?}", inside.p));
        // SubmitFence, as in `wakep`, with the same partners.
        let fence = fence_after_exchange;
        mutant!(SubmitNoFence: let fence = || ());
        let full = inside.p.runq.push_next(g, fence);
        if let Some(g) = full {
            // An M that goes idle looks at the global queue under the lock that `spill` takes.
            self.spill(inside.p, g);
        }
        drop(inside);
        mutant!(SubmitWakeFirst: return);
        self.wakep_beside_own();
    }

    /// As `submit_on` for each goroutine of the list, in order, but writes the queue once, and wakes one M.
    fn submit_each_on(&self, m: &M<H>, mut list: GList<H>) {
        if list.len() < 2 || self.detours.get() != 0 {
            return self.submit_one_by_one(m, list);
        }
        mutant!(SubmitEachWakesFirst: self.wakep());
        let Some(inside) = m.look_in() else { return self.inject(list) };
        if (inside.p.runq.room() as usize) < list.len() {
            drop(inside);
            return self.submit_one_by_one(m, list);
        }
        inside.p.owner.touch();
        event(format_args!("queues {list:?} as the next of {:?}", inside.p));
        // SubmitFence, as in `wakep`, with the same partners.
        let fence = fence_after_exchange;
        mutant!(SubmitEachNoFence: let fence = || ());
        inside.p.runq.push_next_each(&mut list, fence);
        drop(inside);
        mutant!(SubmitEachWakesFirst: return);
        self.wakep_beside_own();
    }

    #[cold]
    fn submit_one_by_one(&self, m: &M<H>, mut list: GList<H>) {
        while let Some(g) = list.pop() {
            self.submit_on(m, g);
        }
    }

    /// S1 to S3 for several goroutines at once, on a thread that is no M or holds no P.
    #[doc(alias = "injectglist")]
    pub(crate) fn inject(&self, list: GList<H>) {
        if !list.is_empty() {
            self.put_arrivals(list);
            mutant!(InjectWakesNobody: return);
            self.wakep();
        }
    }

    /// S1 to S3 for the goroutines that `m` has found in the poller or among the timers, a list on `m`'s stack. `m` itself
    /// takes the first goroutine at once, so a single one in an empty queue needs no other M.
    #[doc(alias = "injectglist")]
    pub(crate) fn submit_found(&self, m: &M<H>, mut list: GList<H>) {
        let Some(p) = m.p() else { return self.inject(list) };
        if self.detours.get() != 0 {
            list = self.submit_found_globally(p, list);
        }
        p.owner.touch();
        // Instead of this goroutine `m` might run a goroutine of a class that the same look has queued: then `wakep` is needed.
        // `m` might also run a goroutine out of the batch of `p`. That needs no `wakep`: an M that gives up sees the batch
        // filled, or sees this goroutine in the ring afterwards (`has_work`).
        let beside = self.waiting_classes.any().unless(FoundBesideAClassInSilence);
        let takes_it = list.is_empty() || list.len() == 1 && p.runq.is_empty() && !beside;
        mutant!(FoundBesideTheRingInSilence: let takes_it = list.len() <= 1 && !beside);
        let ends = p.runq.ends();
        p.runq.push_batch(&mut list);
        p.poll_schedule.arrivals.fill(ends, p.runq.ends().1);
        self.globrunqput(list);
        if !takes_it {
            mutant!(FoundWakesNobody: return);
            self.wakep();
        }
    }

    /// S3 of a submission to the caller's own P, after `push_next` or `put_in`, which has fenced.
    #[inline]
    pub(crate) fn wakep_beside_own(&self) {
        mutant!(SubmitNoWake: return);
        // If there never was more than one P, none is idle here, and SubmitFence is needed for the ender alone.
        if self.ps.len() > 1 && self.census.lacks_a_spinner() {
            self.wake_one();
        }
        unless!(SubmitLeavesTheEnd, self.tell_if_stopping());
    }

    /// S2 and S3: summons an M if no M spins and a P is idle. Called after each submission, and by an M that spun, has found
    /// work, and sees more.
    #[inline]
    pub(crate) fn wakep(&self) {
        self.wakep_for_no_g();
        self.tell_if_stopping();
    }

    /// As `wakep`, for a caller that has queued no goroutine, and may hold a lock of `sync`. Such a caller sets nothing aside
    /// at the end of the runtime: the submitters set aside the goroutines that they have queued, and so does the ender.
    #[inline]
    pub(crate) fn wakep_for_no_g(&self) {
        mutant!(WakepWakesNobody: return);
        // SubmitFence. SeqCst: a store to a queue, then loads of the census and of `wanted`; partners: IdleFence in `go_idle`,
        // HandoffpFence, StopmFence in `wake_for_the_idle`, SpinnerFence in `end_spinning`, and StopFence in `begin_stop`.
        fence(Ordering::SeqCst.unless(WakepNoFence));
        if self.census.lacks_a_spinner() {
            self.wake_one();
        }
    }

    #[inline]
    fn tell_if_stopping(&self) {
        if self.is_stopping() {
            self.set_queued_aside();
        }
    }

    #[cold]
    fn wake_one(&self) {
        if !self.census.claim_spinning() {
            return;
        }
        let mut central = self.central.lock();
        let wake = if central.idle.has_p() {
            let wake = self.startm(&mut central, Assignment::Summons);
            // An M whose wait in the poller was broken is about to come for an idle P.
            let comes = central.poller.is_broken();
            if wake.is_none() && !comes && !self.is_stopping() {
                return self.warn_at_the_limit(central);
            }
            wake
        } else {
            // The claim is undone under the lock: an M that idles a P after this finds no M spinning.
            mutant!(WakepUndoesLate: drop(central); relax(); return self.census.end_spinning());
            unless!(WakepLeaksSpinning, self.census.end_spinning());
            None
        };
        drop(central);
        match M::current_of(self).and_then(M::p) {
            Some(p) => self.start_woken_by(p, wake),
            None => self.start_woken(wake),
        }
    }

    /// As `start_woken`, for the owner of `p`. Shows thieves that the owner is in that call.
    pub(crate) fn start_woken_by(&self, p: &P<H>, wake: Option<Wake<H>>) {
        if wake.is_some() {
            // The woken M might run on this CPU, in the owner's place: then it gives the CPU back (`steal.rs`).
            p.queue_age.show_cpu(H::cpu());
            if let Some(Wake::M(m)) = wake {
                self.await_m(p, &m);
            }
            p.while_waking(|| self.start_woken(wake));
        }
    }

    /// Chooses an M for an assignment: a sleeping M, else the M in the poller, else a new M. If `max_threads` allows no new M,
    /// or a thread was refused a moment ago, the P is idle again, or still is. Then each M is in one of four states:
    ///
    /// * it works, and looks at the queues before it sleeps;
    /// * it comes without a P, and looks before it sleeps (`mput`, `sleep_unless`), though not before it takes a blocker;
    /// * it is being started, and comes for an idle P;
    /// * it waits for its bound goroutine, which might be in the global queue (`rescue`).
    pub(crate) fn startm(&self, central: &mut Central<H>, assignment: Assignment<H>) -> Option<Wake<H>> {
        if let Some(m) = central.idle.take_m() {
            m.assign(assignment);
            return Some(Wake::M(m));
        }
        if let Some(m) = central.poller.blocked() {
            self.expel_poller(central);
            m.assign(assignment);
            return Some(Wake::Poller);
        }
        if matches!(assignment, Assignment::Summons) {
            debug_assert!(
                !central.start_claims,
                "startm: the caller has claimed to spin, and so has a start"
            );
            central.start_claims = true;
        }
        if self.may_start(central) {
            central.asked_for += 1;
            return Some(Wake::New(assignment));
        }
        self.take_back(central, assignment);
        self.rescue(central)
    }

    /// Undoes an assignment for which there is no M. An assigned P becomes idle, or retires, and the goroutines in its queue go
    /// to the global queue. The claim of a summons leaves `nmspinning`, unless an M has taken that claim over. If the M was to
    /// take blockers, these go to the global queue.
    pub(crate) fn take_back(&self, central: &mut Central<H>, assignment: Assignment<H>) {
        let p = match assignment {
            Assignment::P(p) => p,
            Assignment::Summons => {
                let claims = std::mem::take(&mut central.start_claims);
                mutant!(TakeBackLeaksSpinning: return);
                mutant!(TakeBackTakesTwice: let claims = true);
                if claims {
                    self.census.end_spinning();
                }
                return;
            }
            Assignment::Blocker => {
                central.blocker_m = BlockerM::None;
                return self.blockers_go_back(central);
            }
        };
        p.runq.drain(|g| central.globq.push(g));
        unless!(TakeBackKeepsTheBatch, self.empty_batch(central, &p));
        self.publish_len(central);
        if self.is_to_retire(&p).unless(TakeBackKeepsTheSurplus) {
            self.retire(central, p);
        } else {
            self.pidleput(central, p);
            self.census.p_returned();
        }
    }

    /// Wakes or starts the M that was chosen under the lock.
    pub(crate) fn start_woken(&self, wake: Option<Wake<H>>) {
        mutant!(SubmitNoBreak: if matches!(wake, Some(Wake::Poller)) { return });
        match wake {
            None => {}
            // `m` was taken out of the idle set, or of `bound_ms`.
            Some(Wake::M(m)) => m.note.wake(),
            Some(Wake::Poller) => self.break_poll(),
            Some(Wake::New(assignment)) => self.newm(assignment),
        }
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::context::Context;
    use crate::host::Active;
    use crate::prim::{Arc, AtomicU32, Relaxed, Weak};
    use crate::sched::park::{Commit, WaitReason};
    use crate::sync::Semaphore;
    use crate::wait::waiter::{How, Wait, Waiter};
    use std::sync::mpsc;
    use std::thread::yield_now;
    use std::time::Duration;

    fn runtime() -> Runtime {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        unsafe { Runtime::builder().procs(1).build() }.unwrap()
    }

    /// Ends the runtime, and waits until its scheduler has gone.
    fn end(runtime: Runtime) {
        let home = Weak::clone(runtime.handle().sched("end").unwrap().weak());
        let _report = runtime.shutdown(Duration::ZERO);
        while home.strong_count() > 0 {
            yield_now();
        }
    }

    /// Fails if a goroutine that a canceller has nudged, and has not queued when the runtime has gone, keeps its place in a
    /// queue: then it is granted what it never takes.
    #[test]
    fn a_nudged_goroutine_whose_runtime_has_gone_leaves_its_queue() {
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let runtime = runtime();
        let (context, _cancel) = Context::background().with_cancel();
        let wanted = Arc::clone(&permits);
        drop(runtime.go(move || context.run(|| wanted.acquire(1))));
        let sched = runtime.handle().sched("nudge").unwrap();
        let (g, mut nudged) = (sched.gs().find_live(|_| true).expect("it waits for good"), GList::new());
        drop(sched);
        // The goroutine might not have parked yet, or be awake because of an earlier nudge.
        while nudged.is_empty() {
            nudge_any(g, &mut nudged);
            yield_now();
        }
        end(runtime);
        queue_nudged(nudged);
        permits.release(1);
        assert!(permits.try_acquire(1), "the permit was granted to a goroutine that never runs");
    }

    /// Fails if the abandon hook of such a goroutine runs between a waker's claim and ready, or never runs.
    #[test]
    fn a_nudged_goroutine_whose_runtime_has_gone_is_left_to_its_waker() {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        static HOOK: AbandonHook = AbandonHook::new(|_| {
            RUNS.fetch_add(1, Relaxed);
        });
        let (runtime, (publish, published)) = (runtime(), mpsc::channel());
        drop(runtime.go(move || {
            let mut wait = Wait::<Active>::begin();
            wait.on_abandon(&raw const HOOK);
            let waiter = wait.waiter();
            let _never = wait.park(How::new(WaitReason::Event), move || {
                publish.send(waiter).unwrap();
                Commit::Park
            });
        }));
        let waiter = published.recv().unwrap();
        let Waiter::G(g, number) = waiter else { unreachable!("a goroutine waits") };
        assert_eq!(g.word.nudge(number), Then::Queue);
        end(runtime);
        assert!(waiter.claim());
        queue_nudged(GList::one(g));
        assert_eq!(RUNS.load(Relaxed), 0, "run beside the waker");
        waiter.claimed().ready();
        assert_eq!(RUNS.load(Relaxed), 1);
    }
}
