//! A heap of timers under its lock: the heap of a P, or that of the timer thread.
//!
//! An entry is a wait or a callback. The `handle` of a callback and the *timer* of a wait name the entry in the heap; both are
//! written and read under the heap's lock. The heap's earliest time is copied into `earliest` before the lock is released, for
//! readers without the lock.
//!
//! A goroutine that has slept for long is in no cache. So an M prefetches the G when it pops the timer, and claims the wait
//! some timers later (`Ahead`). The M prefetches a goroutine's frames when it readies the goroutine, for as many goroutines as
//! the ring takes (`Sleepers`).
//!
//! Checked by `models/poll.rs` and `models/timer.rs`.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{AtomicU64, Mutex, MutexGuard, Rank, Relaxed, UnsafeCell, Weak, prefetch};
use crate::sched::Sched;
use crate::sched::lasting::PRef;
use crate::sched::timers::callback::Callback;
use crate::sched::timers::shared::Shared;
use crate::wait::status::{Then, WaitNumber};
use gmp_timers::{Handle, Heap, Nanos};

/// An entry of the heap.
pub(super) enum Entry<H: Host> {
    /// One wait with a limit.
    Wait(Limit<H>),
    /// A callback.
    Callback(Shared<Callback<H>>),
}

/// The limit of one wait.
pub(super) struct Limit<H: Host> {
    pub(super) g: GRef<H>,
    pub(super) wait: WaitNumber,
}

impl<H: Host> Limit<H> {
    /// Prefetches the word that the end of the wait changes.
    #[inline(always)]
    fn fetch(&self) {
        prefetch(self.g.to_raw());
    }

    /// Claims the wait and readies its goroutine. Appends the goroutine to `waits` if it is to be queued.
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
pub(super) struct Sleepers<H: Host> {
    pub(super) gs: GList<H>,
    /// The frames of this many of them are prefetched: as many goroutines as the ring takes. The frames of later ones would
    /// have left the cache again when these run.
    pub(super) room: usize,
}

impl<H: Host> Sleepers<H> {
    /// Makes an empty list of goroutines that `m` is to queue.
    pub(super) fn of(m: &M<H>) -> Self {
        Sleepers { gs: GList::new(), room: m.p().map_or(0, |p| p.runq.room() as usize) }
    }
}

/// Limits that were popped and whose waits are still to be claimed, in order. Claiming and readying are exchanges, which no
/// later access passes: each of them would wait alone for the G of a goroutine that has slept for long. Instead the M pops the
/// next limits meanwhile.
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

    /// Appends `limit`. Returns the first limit, if there were `AHEAD` before.
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
pub(crate) struct WaitTimer<H: Host>(pub(super) UnsafeCell<Option<(PRef<H>, Handle)>>);

impl<H: Host> WaitTimer<H> {
    pub(crate) fn new() -> Self {
        WaitTimer(UnsafeCell::new(None))
    }

    /// Called instead of `disarm` after the timer has claimed the wait: the timer stands in no heap, so nothing has to be taken
    /// out.
    #[inline]
    pub(crate) fn fired(&self) {
        // For loom: no write of the place is under way, as in `disarm`.
        self.0.with(|_| ());
    }

    /// Takes the timer out of the heap, if the timer has not fired. The goroutine itself calls this, after the wait.
    pub(crate) fn disarm(&self) {
        // SAFETY: the owner of the timer runs this, so the owner's commit hook has returned, or has released the heap's lock,
        // and no longer writes the place.
        if let Some((p, handle)) = self.0.with_mut(|place| unsafe { (*place).take() }) {
            mutant!(AlarmStaysArmed: return);
            drop(p.timers.lock().remove(handle));
        }
    }
}

/// The timers of a P, or the timer thread's own.
#[repr(align(128))]
pub(crate) struct Timers<H: Host> {
    inner: Mutex<Inner<H>>,
    /// The earliest time in the heap, or NONE. Written under the lock. Relaxed: the fences of `sched/poll.rs` order its
    /// accesses.
    earliest: AtomicU64,
    /// The runtime of the P, while that lives, and the P's number.
    home: Weak<Sched<H>>,
    pub(super) p: u32,
}

pub(super) struct Inner<H: Host> {
    pub(super) heap: Heap<Entry<H>>,
    /// The timer thread takes the due callbacks of this heap.
    pub(super) orphaned: bool,
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

    /// Returns the earliest time at which a timer is due.
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

    /// Claims and readies the waits that are due, up to the first due callback, which it returns. That callback fires: the
    /// caller makes the call.
    pub(super) fn pop_due(&self, now: Nanos, waits: &mut Sleepers<H>) -> Option<Shared<Callback<H>>> {
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

    /// For the timer thread: takes a due callback.
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

    /// Makes the heap an orphan, because the runtime ends. Returns `true` if callbacks are armed, which the timer thread then
    /// serves.
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
    pub(super) inner: MutexGuard<'a, Inner<H>>,
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

    /// Puts a callback into the heap, or moves it.
    #[inline]
    pub(crate) fn set(&mut self, due: Nanos, call: &Shared<Callback<H>>) -> Set {
        match call.handle(self) {
            Some(handle) => self.reset(handle, due),
            None => {
                let earlier = self.add(due, Shared::clone(call));
                Set { armed: false, earlier, orphaned: self.inner.orphaned }
            }
        }
    }

    /// Moves a callback that is armed.
    #[inline]
    pub(crate) fn reset(&mut self, handle: Handle, due: Nanos) -> Set {
        let due = due.min(LATEST);
        let before = self.inner.heap.next_due();
        let moved = self.inner.heap.reset(handle, due);
        debug_assert!(moved, "reset: an armed callback stands in its heap");
        self.publish();
        let earlier = before.is_none_or(|before| due < before);
        Set { armed: true, earlier, orphaned: self.inner.orphaned }
    }

    /// Puts a callback that is not armed into the heap. Returns `true` if the callback is due before all other timers there.
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
        // SAFETY: the heap is an owner of the callback now, and `self` holds the heap's lock: the entry stays.
        unsafe { &*raw }.set_handle(self, Some(handle));
    }

    /// Takes a callback out. Returns the heap's share of the callback, which the caller drops after the lock; `None` if the
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

    pub(super) fn publish(&self) {
        let earliest = self.inner.heap.next_due().map_or(NONE, Nanos::as_nanos);
        self.timers.earliest.store(earliest, Relaxed);
    }
}

/// The latest time that the copy can tell from "none".
pub(super) const LATEST: Nanos = Nanos::from_nanos(NONE - 1);

/// How a callback was set.
#[derive(Copy, Clone, Debug)]
#[must_use]
pub(crate) struct Set {
    /// The callback was armed before.
    pub(crate) armed: bool,
    /// The callback is now the earliest in the heap.
    pub(crate) earlier: bool,
    /// The timer thread takes the due callbacks of the heap.
    pub(crate) orphaned: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if a limit comes out before an earlier one, twice or not at all, at whatever place of the array the first one
    /// stands.
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
