//! Which goroutine sleeps until when, and which callbacks are due.
//!
//! One heap for all Ps would be one lock for every sleep. So each P has a heap of timers under a lock of its own, and a copy of
//! the heap's earliest time that is read without the lock. A goroutine sleeps in the heap of its P. Due timers there are taken
//! by:
//!
//! * the P's own M, between two goroutines (`schedule`);
//! * a thief, in its last rounds (`steal`), and a helper (`help`);
//! * the M in the poller, which waits only until the earliest timer of all heaps. An idle P keeps its timers;
//! * a busy M at its visits (`sched/run/look.rs`), while no M is in the poller and a P is idle; from the heaps of retired Ps
//!   always;
//! * the monitor, when no P is idle, or no M comes to the poller.
//!
//! An entry of a heap (`heap.rs`) is a wait or a callback. A wait with a time limit has a timer, which claims the wait like any
//! waker and marks the claim in the word; a goroutine that another waker has readied takes its timer out again. The commit hook
//! inserts the timer, when the goroutine is saved, and notes the timer's place under the heap's lock: the goroutine can run
//! again as soon as that lock is free. The lock decides whether a callback fires, and the call comes after the lock
//! (`callback.rs`).
//!
//! When the runtime ends, the heaps become *orphans*: waits are dropped, callbacks stay where they are, and the timer thread
//! takes the due ones (`timer_thread.rs`). So a heap is counted, and can outlive its P.
//!
//! `sched/poll.rs` says how a new timer and the poller's wait meet; `models/poll.rs` checks that. While an M holds a P, the P
//! is in `timer_mask`. A thread that puts a callback into the heap of a P that it does not hold sets the mask in the same
//! critical section of the central lock in which it inserts the callback, because `pidleput` clears the mask under that lock if
//! the heap is empty. Checked by `models/timer.rs`.

pub(crate) mod callback;
mod heap;
pub(crate) mod shared;
pub(crate) mod timer_thread;

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Acquire, Relaxed, event, may_help};
use crate::sched::Sched;
use crate::sched::lasting::PRef;
use crate::sched::poll::NO_POLLER;
use crate::sched::timers::callback::{Callback, RunMode};
use crate::sched::timers::shared::Shared;
use crate::sched::watch::deadlock::Serving;
use crate::wait::status::WaitNumber;
use gmp_timers::Nanos;
use heap::{Entry, LATEST, Limit, Sleepers};

pub(crate) use heap::{Locked, Set, Timers, WaitTimer};

impl<H: Host> Sched<H> {
    /// Takes the due timers of `p`. Returns `true` if a goroutine was queued or a callback was called.
    #[inline]
    pub(crate) fn run_timers(&self, m: &M<H>, p: &P<H>) -> bool {
        match p.timers.earliest() {
            None => false,
            Some(earliest) => self.run_timers_due(m, p, earliest),
        }
    }

    fn run_timers_due(&self, m: &M<H>, p: &P<H>, earliest: Nanos) -> bool {
        let now = H::now();
        if now < earliest {
            return false;
        }
        let mut due = Sleepers::of(m);
        let called = self.take_due(p, now, &mut due);
        let queued = !due.gs.is_empty();
        self.queue_sleepers(m, due.gs, now);
        called || queued
    }

    /// Queues the due goroutines, behind the others. A goroutine that becomes due from here on is due later than these, so no
    /// such goroutine goes first until these have run.
    fn queue_sleepers(&self, m: &M<H>, due: GList<H>, now: Nanos) {
        if due.is_empty() {
            return;
        }
        self.submit_found(m, due);
        if let Some(p) = m.p() {
            p.poll_schedule.sleepers_are_queued(p.tick(), p.runq.len(), now);
        }
    }

    /// As `run_timers`, for `p` of `m`, between two goroutines. If a single goroutine is due and is allowed to run before those
    /// in the queue (`look.rs`), returns that goroutine, and the caller wakes an M for the others.
    pub(crate) fn run_own_timers(&self, m: &M<H>, p: &P<H>, tick: u32) -> Option<GRef<H>> {
        let earliest = p.timers.earliest()?;
        // Thieves might have emptied the ring since the last look.
        let others = !p.runq.is_empty();
        let schedule = &p.poll_schedule;
        if others && (schedule.timers_are_far(tick, earliest) || schedule.timers_wait(tick)) {
            return None;
        }
        let now = H::now();
        if now < earliest {
            if others {
                schedule.none_is_due(tick, p.runq.len(), now, earliest);
            }
            return None;
        }
        let mut due = Sleepers::of(m);
        self.take_due(p, now, &mut due);
        let mut due = due.gs;
        let waits = |g| self.has_class(g) || self.is_away(Some(p), g);
        let alone = due.len() == 1 && !due.first().is_some_and(waits);
        if !alone || !p.poll_schedule.sleeper_goes_first(tick) {
            if self.sleepers_arrive(p, tick, now) {
                schedule.sleepers_are_queued(tick, due.len() as u32, now);
                schedule.take_time_now(tick);
                mutant!(SleeperArrivesInSilence: { self.put_arrivals(due); return None });
                self.inject(due);
            } else {
                self.queue_sleepers(m, due, now);
            }
            return None;
        }
        event(format_args!("runs {due:?} before the queue of {p:?}"));
        due.pop()
    }

    /// Returns `true` if the sleepers that the owner of `p` has found due are to stand among the arrivals, which take turns
    /// with the ring by time (`run/arrivals.rs`): at the end of a ring of long goroutines they would wait for all of these.
    fn sleepers_arrive(&self, p: &P<H>, tick: u32, now: Nanos) -> bool {
        p.poll_schedule.ring_is_long(tick, p.runq.len(), now)
            && self.config.knobs.helping
            && may_help()
            && !self.config.policy.has_one_queue()
            && !self.waits_above_normal(p)
            && self.has_own_ring(p)
    }

    /// Takes the due timers of any heap.
    pub(crate) fn run_all_timers(&self, m: &M<H>) {
        for p in self.ps.iter().filter(|p| self.timer_mask.has(p.id)) {
            self.run_timers(m, p);
        }
    }

    /// Takes the due timers of the heaps that no other M serves: of all heaps while no M waits in the poller and a P is idle,
    /// as if the caller came back from the poller; otherwise of the heaps of retired Ps.
    pub(crate) fn run_unserved_timers(&self, m: &M<H>) {
        // Relaxed: hints. An M that goes into the poller after this looks at all heaps itself.
        let nobody = self.poll_until.load(Relaxed) == NO_POLLER && self.census.read().npidle() > 0;
        let first_retired = self.wanted.load(Relaxed);
        let first = if nobody { 0 } else { first_retired };
        if first as usize >= self.ps.len() {
            return;
        }
        let mut due = Sleepers::of(m);
        let mut clock = None;
        // A new P can be in the mask before this M sees that P.
        for p in self.timer_mask.members_from(first).filter_map(|id| self.ps.get(id as usize)) {
            let Some(earliest) = p.timers.earliest() else { continue };
            let now = *clock.get_or_insert_with(H::now);
            if now >= earliest {
                self.take_due(p, now, &mut due);
            }
        }
        if let Some(now) = clock {
            self.queue_sleepers(m, due.gs, now);
        }
    }

    /// Takes the due timers of any heap, for a thread that is no M.
    pub(crate) fn take_all_due(&self) -> GList<H> {
        let _serving = Serving::begin(self);
        let (now, mut due) = (H::now(), Sleepers { gs: GList::new(), room: 0 });
        for p in self.ps.iter().filter(|p| p.timers.earliest().is_some_and(|earliest| earliest <= now)) {
            self.take_due(p, now, &mut due);
        }
        due.gs
    }

    /// Appends to `due` every goroutine that a due timer of `p` readies, including those started for callbacks.
    /// Returns `true` if a callback ran inline.
    fn take_due(&self, p: &P<H>, now: Nanos, due: &mut Sleepers<H>) -> bool {
        let mut called = false;
        while let Some(call) = p.timers.pop_due(now, due) {
            let inline = match call.run() {
                RunMode::Wakes => M::<H>::current().is_some(),
                RunMode::Goroutine | RunMode::Uncounted => false,
            };
            if inline {
                call.call();
            } else {
                self.make_firing(call).into_iter().for_each(|g| due.gs.push(g));
            }
            called |= inline;
        }
        called
    }

    /// B3 of `sched/poll.rs`: returns the earliest time in any heap.
    #[doc(alias = "timeSleepUntil")]
    pub(crate) fn earliest_timer(&self) -> Option<Nanos> {
        let all = self.ps.iter().filter(|p| self.timer_mask.has(p.id)).filter_map(|p| p.timers.earliest());
        mutant!(PollerTakesTheFirstTimer: return all.take(1).min());
        all.min()
    }

    /// Arms a timer that claims the wait of `parker`, which is saved, and readies it at `due`. Called by the parker's commit
    /// hook, on the M that ran the parker.
    pub(crate) fn arm(
        &self,
        p: &P<H>,
        timer: *const WaitTimer<H>,
        due: Nanos,
        parker: (GRef<H>, WaitNumber),
    ) {
        let due = due.min(LATEST);
        let mut locked = p.timers.lock();
        if locked.inner.orphaned {
            // The runtime ends, and this goroutine does not run again.
            return;
        }
        let before = locked.inner.heap.next_due();
        let (g, wait) = parker;
        let handle = locked.inner.heap.insert(due, Entry::Wait(Limit { g, wait }));
        // SAFETY: the timer lies on the stack of `parker`, which was saved before the commit hook called this. The parker does
        // not run before the heap's lock is free: until then the timer alone knows of the wait.
        let place = unsafe { &(*timer).0 };
        // SAFETY: the parker does not run before the heap's lock is free, and until then the timer alone knows of the
        // wait.
        let note = || place.with_mut(|place| unsafe { *place = Some((PRef::of(p), handle)) });
        unless!(AlarmNotedLate, note());
        locked.publish();
        drop(locked);
        mutant!(AlarmNotedLate: relax(); note());
        if before.is_none_or(|before| due < before) {
            self.wake_poller_before(due);
        }
        // By T1 to T3 an M that waits in the poller learns of the timer. If no M waits there, and this M has other goroutines
        // to run before it looks at its timers again, another M has to go into the poller.
        if self.others_wait(p) && self.poll_until.load(Relaxed) == NO_POLLER {
            mutant!(ArmSendsNobody: return);
            // No goroutine is set aside here: the caller holds the lock of the queue in which the parker stands, and an abandon
            // hook takes such locks.
            mutant!(ArmSetsAside: return self.wakep());
            self.wakep_for_no_g();
        }
    }

    /// T2 and T3 for a callback that is now the earliest in its heap: as in `arm`, except that the goroutine that set the
    /// callback goes on.
    pub(crate) fn call_is_next(&self, due: Nanos) {
        unless!(CallMovedInSilence, self.wake_poller_before(due));
        mutant!(CallSendsNobody: return);
        // Acquire: partner `note_no_poller`; the census is read after that. No model has the two: without this wake the monitor
        // sends an M to the poller, as it does when the M in the poller was sent away with a P. TimerFence orders the load,
        // too: an M that enters the poller later sees the timer.
        if self.poll_until.load(Acquire) == NO_POLLER && self.census.lacks_a_spinner() {
            self.wakep();
        }
    }

    /// Puts a callback into the heap of a P that the caller does not hold.
    pub(crate) fn set_from_afar(&self, timers: &Timers<H>, due: Nanos, call: &Shared<Callback<H>>) -> Set {
        let _central = self.central.lock();
        mutant!(CallWithoutTheLock: drop(_central));
        let mut locked = timers.lock();
        unless!(CallUnmasked, self.timer_mask.set(timers.p));
        locked.set(due, call)
    }

    /// Step 2 of `sched/stop.rs`.
    pub(crate) fn leave_timers(&self) {
        for p in self.ps.iter() {
            if p.timers.orphan() {
                mutant!(OrphansForgotten: continue);
                H::shared().timer_thread.keep(&p.timers);
            }
        }
    }
}
