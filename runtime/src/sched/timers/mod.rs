//! Which goroutine sleeps until when, and which callbacks are due.
//!
//! One heap for all Ps would be one lock for every sleep. So each P has a heap of timers under a lock of its own, and a copy
//! of the heap's earliest time that is read without the lock. A goroutine sleeps in the heap of its P, and due timers there
//! are taken by:
//!
//! * the P's own M, between two goroutines (`schedule`);
//! * a thief, in its last rounds (`steal`), and a helper (`help`);
//! * the M in the poller, which waits only until the earliest timer of all heaps. An idle P keeps its timers;
//! * while no M is in the poller and a P is idle, a busy M at its visits (`sched/run/look.rs`); for the heaps of retired Ps
//!   always;
//! * the monitor, when no P is idle, or no M comes to the poller.
//!
//! An entry is a wait or a callback. A wait with a time limit has a timer, which claims the wait like any waker and says so in
//! the word; a goroutine that another waker has readied takes its timer out again. The commit hook inserts the timer, when the
//! goroutine is saved, and notes the timer's place under the heap's lock: the goroutine may run again as soon as that lock is
//! free. The lock decides whether a callback fires, and the call comes after the lock (`callback.rs`).
//!
//! A goroutine that has slept for long is in no cache. So an M prefetches the G when it pops the timer, and claims the wait
//! some timers later. The M prefetches the goroutine's frames when it readies the goroutine, for as many as the ring takes.
//!
//! When the runtime ends the heaps become *orphans*: waits are dropped, callbacks stay where they are, and the timer thread
//! takes what is due (`timer_thread.rs`). So a heap is counted, and may outlive the P.
//!
//! How a new timer and the poller's wait meet is in `sched/poll.rs`; checked by `models/poll.rs`. While an M holds a P, the
//! P is in `timer_mask`. A thread that puts a callback into the heap of a P that it does not hold sets the mask in the same
//! critical section of the scheduler's lock in which it inserts, since `pidleput` may clear the mask there. Checked by
//! `models/timer.rs`.

pub(crate) mod callback;
pub(crate) mod shared;
pub(crate) mod timer_thread;

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU64, Mutex, MutexGuard, Rank, Relaxed, UnsafeCell, Weak, event, prefetch};
use crate::sched::Sched;
use crate::sched::poll::NO_POLLER;
use crate::sched::timers::callback::{Callback, RunMode};
use crate::sched::timers::shared::Shared;
use crate::sched::watch::deadlock::Serving;
use crate::wait::status::{Then, WaitNumber};
use gmp_timers::{Handle, Heap, Nanos};
use std::ptr::NonNull;

/// What a timer is for.
enum Entry<H: Host> {
    /// One wait with a limit.
    Wait(Limit<H>),
    /// A callback.
    Callback(Shared<Callback<H>>),
}

/// The limit of one wait.
struct Limit<H: Host> {
    g: GRef<H>,
    wait: WaitNumber,
}

impl<H: Host> Limit<H> {
    /// Fetches the word that the end of the wait changes into the cache.
    #[inline(always)]
    fn fetch(&self) {
        prefetch(self.g.to_raw());
    }

    /// Claims and readies the wait. Appends the goroutine to `waits` if that is to be queued.
    #[inline(always)]
    fn pass(self, waits: &mut Sleepers<H>) {
        let Limit { g, wait } = self;
        if g.word.claim_by_timer(wait) && g.word.ready() == Then::Queue {
            if waits.gs.len() < waits.room {
                // SAFETY: the wait was claimed, and `ready` has found the goroutine saved; the caller queues it.
                unsafe { g.fetch_frames() };
            }
            waits.gs.push(g);
        }
    }
}

/// Goroutines that are due.
struct Sleepers<H: Host> {
    gs: GList<H>,
    /// So many of them have their frames fetched: those that the ring takes. The frames of later ones would have left the cache
    /// again when they come to run.
    room: usize,
}

impl<H: Host> Sleepers<H> {
    /// For those that `m` is to queue.
    fn of(m: &M<H>) -> Self {
        Sleepers { gs: GList::new(), room: m.p().map_or(0, |p| p.runq.room() as usize) }
    }
}

/// Limits that were popped and whose waits are still to be claimed, in order. Claim and ready are exchanges, which let nothing
/// pass: each would wait alone for the G of a goroutine that has slept for long. Meanwhile the next ones are popped.
struct Ahead<T> {
    limits: [Option<T>; AHEAD],
    first: usize,
    len: usize,
}

/// A pop takes about as long as half a cache miss.
const AHEAD: usize = 4;

impl<T> Ahead<T> {
    #[inline(always)]
    fn new() -> Self {
        Ahead { limits: [const { None }; AHEAD], first: 0, len: 0 }
    }

    /// Appends `limit`. Returns the first, if there were `AHEAD` before.
    #[inline(always)]
    fn exchange(&mut self, limit: T) -> Option<T> {
        let before = if self.len == AHEAD { self.pop() } else { None };
        self.limits[(self.first + self.len) % AHEAD] = Some(limit);
        self.len += 1;
        before
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        let first = self.limits[self.first].take();
        self.first = (self.first + 1) % AHEAD;
        self.len -= 1;
        first
    }
}

/// The place of a wait's timer. Belongs to the parker.
pub(crate) struct Alarm<H: Host>(UnsafeCell<Option<(NonNull<P<H>>, Handle)>>);

impl<H: Host> Alarm<H> {
    pub(crate) fn new() -> Self {
        Alarm(UnsafeCell::new(None))
    }

    /// In place of `disarm`, after the timer has claimed the wait: it stands in no heap, and there is nothing to take out.
    #[inline]
    pub(crate) fn fired(&self) {
        // For loom: no write of the place is under way, as in `disarm`.
        self.0.with(|_| ());
    }

    /// Takes the timer out of the heap, if the timer has not fired. The goroutine itself calls this, after the wait.
    pub(crate) fn disarm(&self) {
        // SAFETY: the owner of the alarm runs this, so the owner's commit hook is over, or past the heap's lock, and does not
        // write the place any more.
        if let Some((p, handle)) = self.0.with_mut(|place| unsafe { (*place).take() }) {
            mutant!(AlarmStaysArmed: return);
            // SAFETY: Ps live as long as their scheduler, which a running goroutine keeps.
            drop(unsafe { p.as_ref() }.timers.lock().remove(handle));
        }
    }
}

/// The timers of a P, or the timer thread's own.
#[repr(align(128))]
pub(crate) struct Timers<H: Host> {
    inner: Mutex<Inner<H>>,
    /// The earliest time in the heap, or NONE. Written under the lock. Relaxed: the fences of `sched/poll.rs` order it.
    earliest: AtomicU64,
    /// The runtime of the P, while that lives, and the P's number.
    home: Weak<Sched<H>>,
    p: u32,
}

struct Inner<H: Host> {
    heap: Heap<Entry<H>>,
    /// The timer thread takes what is due here.
    orphaned: bool,
}

const NONE: u64 = u64::MAX;

impl<H: Host> Timers<H> {
    /// The timers of a P.
    pub(crate) fn of_p(p: u32, home: &Weak<Sched<H>>) -> Self {
        Self::new(p, Weak::clone(home), false)
    }

    /// The timers of no runtime.
    pub(crate) fn of_nobody() -> Self {
        Self::new(0, Weak::new(), true)
    }

    fn new(p: u32, home: Weak<Sched<H>>, orphaned: bool) -> Self {
        let inner = Mutex::new(Rank::Timers, Inner { heap: Heap::new(), orphaned });
        Timers { inner, earliest: AtomicU64::new(NONE), home, p }
    }

    /// The earliest time at which something is due.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<Nanos> {
        let earliest = self.earliest.load(Relaxed);
        (earliest != NONE).then(|| Nanos::from_nanos(earliest))
    }

    /// Returns `true` if there is no timer. Exact for the P's owner.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.earliest.load(Relaxed) == NONE
    }

    pub(crate) fn home(&self) -> &Weak<Sched<H>> {
        &self.home
    }

    #[inline]
    pub(crate) fn lock(&self) -> Locked<'_, H> {
        Locked { timers: self, inner: self.inner.lock() }
    }

    /// Claims and readies the waits that are due, up to the first due callback, which it returns. That callback fires:
    /// the caller calls it.
    fn pop_due(&self, now: Nanos, waits: &mut Sleepers<H>) -> Option<Shared<Callback<H>>> {
        let mut locked = self.lock();
        if locked.inner.orphaned {
            return None;
        }
        let (mut ahead, mut fires) = (Ahead::new(), None);
        while let Some((_, entry)) = locked.inner.heap.pop_due(now) {
            match entry {
                Entry::Wait(limit) => {
                    limit.fetch();
                    if let Some(first) = ahead.exchange(limit) {
                        first.pass(waits);
                    }
                }
                Entry::Callback(call) => {
                    locked = self.disarm_popped(locked, &call);
                    fires = Some(call);
                    break;
                }
            }
        }
        while let Some(first) = ahead.pop() {
            first.pass(waits);
        }
        locked.publish();
        fires
    }

    /// Takes a due callback, for the timer thread.
    pub(crate) fn pop_orphan(&self, now: Nanos) -> Option<Shared<Callback<H>>> {
        let mut locked = self.lock();
        let fires = match locked.inner.heap.pop_due(now) {
            None => None,
            Some((_, Entry::Wait(_))) => unreachable!("pop_orphan: waits went with their runtime"),
            Some((_, Entry::Callback(call))) => {
                locked = self.disarm_popped(locked, &call);
                Some(call)
            }
        };
        locked.publish();
        fires
    }

    fn disarm_popped<'a>(&'a self, locked: Locked<'a, H>, call: &Callback<H>) -> Locked<'a, H> {
        mutant!(FiringInTwoSections: let locked = { locked.publish(); drop(locked); self.lock() });
        mutant!(FiringStaysArmed: return locked);
        call.set_handle(&locked, None);
        locked
    }

    /// Makes the heap an orphan, as the runtime ends. Returns `true` if callbacks are armed, for the timer thread.
    pub(crate) fn orphan(&self) -> bool {
        let mut locked = self.lock();
        unless!(OrphanStaysHome, locked.inner.orphaned = true);
        for (due, entry) in locked.inner.heap.drain() {
            if let Entry::Callback(call) = entry {
                locked.insert(due, call);
            }
        }
        locked.publish();
        !locked.inner.heap.is_empty()
    }
}

/// The timers, locked.
pub(crate) struct Locked<'a, H: Host> {
    timers: &'a Timers<H>,
    inner: MutexGuard<'a, Inner<H>>,
}

impl<H: Host> Locked<'_, H> {
    /// Returns how many timers there are.
    pub(crate) fn len(&self) -> usize {
        self.inner.heap.len()
    }

    /// Returns `true` if the timer thread serves these timers.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.inner.orphaned
    }

    /// Puts a callback into the heap, or moves it. Returns `true` if the earliest time is an earlier one now.
    pub(crate) fn set(&mut self, due: Nanos, call: &Shared<Callback<H>>) -> bool {
        match call.handle(self) {
            Some(handle) => self.reset(handle, due),
            None => self.add(due, Shared::clone(call)),
        }
    }

    /// Moves a callback. Returns `true` if the earliest time is an earlier one now.
    #[inline]
    pub(crate) fn reset(&mut self, handle: Handle, due: Nanos) -> bool {
        let due = due.min(LATEST);
        let before = self.inner.heap.next_due();
        let moved = self.inner.heap.reset(handle, due);
        debug_assert!(moved, "reset: an armed callback stands in its heap");
        self.publish();
        before.is_none_or(|before| due < before)
    }

    /// Puts a callback that is not armed into the heap. Returns `true` if the callback is due before all others
    /// there.
    #[inline(always)]
    pub(crate) fn add(&mut self, due: Nanos, call: Shared<Callback<H>>) -> bool {
        let due = due.min(LATEST);
        let before = self.inner.heap.next_due();
        self.insert(due, call);
        self.publish();
        before.is_none_or(|before| due < before)
    }

    #[inline]
    fn insert(&mut self, due: Nanos, call: Shared<Callback<H>>) {
        let raw: *const Callback<H> = &*call;
        let handle = self.inner.heap.insert(due, Entry::Callback(call));
        // SAFETY: the heap is an owner of the callback now, and `self` holds its lock: the entry stays.
        unsafe { &*raw }.set_handle(self, Some(handle));
    }

    /// Takes a callback out. Returns the heap's share of the callback, for a drop after the lock; `None` if the
    /// callback was not armed.
    #[must_use]
    pub(crate) fn take(&mut self, call: &Callback<H>) -> Option<impl Sized + use<H>> {
        let handle = call.handle(self)?;
        call.set_handle(self, None);
        Some(self.remove(handle))
    }

    fn remove(&mut self, handle: Handle) -> Option<Entry<H>> {
        let entry = self.inner.heap.remove(handle);
        if entry.is_some() {
            self.publish();
        }
        entry
    }

    fn publish(&self) {
        let earliest = self.inner.heap.next_due().map_or(NONE, Nanos::as_nanos);
        self.timers.earliest.store(earliest, Relaxed);
    }
}

/// The latest time that the copy can tell from "none".
const LATEST: Nanos = Nanos::from_nanos(NONE - 1);

impl<H: Host> Sched<H> {
    /// Takes what is due in the heap of `p`. Returns `true` if anything was.
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

    /// Queues the due goroutines, behind the others. They were due before those that are due from here on, so no later one
    /// goes first until these have run.
    fn queue_sleepers(&self, m: &M<H>, due: GList<H>, now: Nanos) {
        if due.is_empty() {
            return;
        }
        self.submit_found(m, due);
        if let Some(p) = m.p() {
            p.poll_schedule.sleepers_are_queued(p.tick(), p.runq.len(), now);
        }
    }

    /// As `run_timers`, for `p` of `m`, between two goroutines. One goroutine that is due alone may run before those in the
    /// queue, see `look.rs`: then it is returned, and the caller wakes an M for the others.
    pub(crate) fn run_own_timers(&self, m: &M<H>, p: &P<H>, tick: u32) -> Option<GRef<H>> {
        let earliest = p.timers.earliest()?;
        // Thieves may have emptied the ring since the last look.
        let others = !p.runq.is_empty();
        let schedule = &p.poll_schedule;
        if others && (schedule.timers_are_far(tick, earliest) || schedule.timers_wait(tick)) {
            return None;
        }
        let now = H::now();
        if now < earliest {
            if others {
                schedule.none_is_due(tick, now, earliest);
            }
            return None;
        }
        let mut due = Sleepers::of(m);
        self.take_due(p, now, &mut due);
        let mut due = due.gs;
        let waits = |g| self.has_class(g) || self.is_away(Some(p), g);
        let alone = due.len() == 1 && !due.first().is_some_and(waits);
        if !alone || !p.poll_schedule.sleeper_goes_first(tick) {
            self.queue_sleepers(m, due, now);
            return None;
        }
        event(format_args!("runs {due:?} before the queue of {p:?}"));
        due.pop()
    }

    /// Takes what is due in any heap.
    pub(crate) fn run_all_timers(&self, m: &M<H>) {
        for p in self.ps.iter().filter(|p| self.timer_mask.has(p.id)) {
            self.run_timers(m, p);
        }
    }

    /// Takes what is due in heaps that no other M serves: any heap while no M waits in the poller and a P is idle, as if
    /// the caller came back from there; else the heaps of retired Ps.
    pub(crate) fn run_unserved_timers(&self, m: &M<H>) {
        // Relaxed: hints. An M that goes into the poller after this looks at all heaps itself.
        let nobody = self.poll_until.load(Relaxed) == NO_POLLER && self.census.read().npidle() > 0;
        let first = if nobody { 0 } else { self.first_retired() };
        if first as usize >= self.ps.len() {
            return;
        }
        let mut due = Sleepers::of(m);
        let mut clock = None;
        // A P may be in the mask, and new, before this M sees that P.
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

    /// Takes what is due in any heap, for a thread that is no M.
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

    /// B3 of `sched/poll.rs`: the earliest time in any heap.
    #[doc(alias = "timeSleepUntil")]
    pub(crate) fn earliest_timer(&self) -> Option<Nanos> {
        let all = self.ps.iter().filter(|p| self.timer_mask.has(p.id)).filter_map(|p| p.timers.earliest());
        mutant!(PollerTakesTheFirstTimer: return all.take(1).min());
        all.min()
    }

    /// Has a timer claim and ready `parker`, which is saved, at `due`. Called by the parker's commit hook, on the M
    /// that ran the parker.
    pub(crate) fn arm(&self, p: &P<H>, alarm: *const Alarm<H>, due: Nanos, parker: (GRef<H>, WaitNumber)) {
        let due = due.min(LATEST);
        let mut locked = p.timers.lock();
        if locked.inner.orphaned {
            // The runtime ends, and this goroutine does not run again.
            return;
        }
        let before = locked.inner.heap.next_due();
        let (g, wait) = parker;
        let handle = locked.inner.heap.insert(due, Entry::Wait(Limit { g, wait }));
        // SAFETY: the alarm lies on the stack of `parker`, which was saved before the commit hook called this, and does not run
        // before the heap's lock is free: until then the timer alone knows of the wait.
        let place = unsafe { &(*alarm).0 };
        // SAFETY: the parker does not run before the heap's lock is free, and until then the timer alone knows of the
        // wait.
        let note = || place.with_mut(|place| unsafe { *place = Some((NonNull::from(p), handle)) });
        unless!(AlarmNotedLate, note());
        locked.publish();
        drop(locked);
        mutant!(AlarmNotedLate: relax(); note());
        if before.is_none_or(|before| due < before) {
            self.wake_poller_before(due);
        }
        // By T1 to T3 an M that waits in the poller learns of the timer. If none waits, and this M has other goroutines to
        // run before it looks at the clock again, another M has to go there.
        if self.others_wait(p) && self.poll_until.load(Relaxed) == NO_POLLER {
            mutant!(ArmSendsNobody: return);
            self.wakep();
        }
    }

    /// A callback is now the earliest in the heap: T2 and T3, as in `arm`, except that the goroutine that set the callback
    /// goes on.
    pub(crate) fn call_is_next(&self, due: Nanos) {
        unless!(CallMovedInSilence, self.wake_poller_before(due));
        mutant!(CallSendsNobody: return);
        // Acquire: partner `nobody_waits`; the census is read after that. No model has the two: without this wake the monitor
        // sends an M to the poller, as it does when one was sent from there with a P. TimerFence orders the load, too: an M
        // that enters the poller later sees the timer.
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
        Set {
            armed: call.handle(&locked).is_some(),
            earlier: locked.set(due, call),
            orphaned: locked.is_orphaned(),
        }
    }

    /// Step 2 of `sched/stop.rs`.
    pub(crate) fn leave_timers(&self) {
        for p in &self.ps {
            if p.timers.orphan() {
                mutant!(OrphansForgotten: continue);
                H::shared().timer_thread.keep(&p.timers);
            }
        }
    }
}

/// How a callback was set.
#[derive(Copy, Clone, Debug)]
#[must_use]
pub(crate) struct Set {
    /// The callback was armed before.
    pub(crate) armed: bool,
    /// The heap's earliest time is an earlier one now.
    pub(crate) earlier: bool,
    /// The timer thread takes what is due in the heap.
    pub(crate) orphaned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails by a limit that comes out before an earlier one, twice or not at all: at whichever place of the array the first
    /// one stands.
    #[test]
    fn limits_that_were_popped_ahead_come_out_in_order() {
        for count in 0..4 * AHEAD {
            let (mut ahead, mut out) = (Ahead::new(), Vec::new());
            for _again in 0..3 {
                out.clear();
                out.extend((0..count).filter_map(|limit| ahead.exchange(limit)));
                assert_eq!(out.len(), count.saturating_sub(AHEAD), "so many are kept");
                out.extend(std::iter::from_fn(|| ahead.pop()));
                assert!(out.iter().copied().eq(0..count), "{out:?}");
            }
        }
    }
}
