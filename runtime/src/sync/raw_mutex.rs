//! The lock of a [`Mutex`](super::Mutex) without what it protects: barging, with hand-over to who is starved.
//!
//! ```text
//!   word:  LOCKED    somebody holds it
//!          QUEUED    somebody waits in the queue. Changes under the lock of the queue
//!          WOKEN     somebody was notified to try, and has not yet
//!          STARVING  hand-over: nobody barges. Without LOCKED only while an unlock is on its way to hand over
//! ```
//! Lock is one exchange 0 → LOCKED and unlock one subtraction, while nobody waits. It is free when neither LOCKED nor
//! STARVING is set.
//!
//! *Normally* an unlock lets the lock go, and notifies the first in the queue, which *tries*: whoever runs already, on the
//! core that has the data, may be faster (it barges), and the one that was notified goes back to the front of the queue. One
//! at a time is on its way (WOKEN), else each unlock under contention would pay for a switch. An unlock that finds the lock
//! taken again notifies nobody: that holder's unlock will.
//!
//! *Starving*: one who tried in vain 1 ms or more after it came sets the bit as it goes back. From then on an unlock hands
//! the lock over: it stays LOCKED, and belongs to the first in the queue. The last of the queue, or one who has waited less
//! than 1 ms, ends this. (Go's `sync.Mutex`; there who was handed the lock ends it, here the unlock that hands it over.)
//!
//! The mark WOKEN says that a woken waiter is about to try. It is taken back by the exchange in which the notified waiter
//! takes the lock, or, under the lock of the queue, finds it LOCKED and queues itself: the next unlock sees QUEUED without
//! WOKEN and notifies again. If that one's runtime ends before it runs, that mark, or the lock that was handed to it, is
//! released by its abandon hook.
//!
//! Invariants:
//! 1. While it is not free, nobody but the holder of the queue's lock changes the word, except for the unlock's subtraction.
//! 2. QUEUED in a free lock without WOKEN occurs only while an unlock is on its way to the queue.
//! 3. STARVING excludes WOKEN.
//!
//! Checked by `models/mutex.rs`.

use crate::host::{Active, Host};
use crate::m::M;
use crate::prim::{
    Acquire, AtomicU32, Mutant, Mutex, MutexGuard, Rank, Relaxed, Release, capacity, const_fn, mutated,
    order, pause,
};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, WaitQueue, wait_in};
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::cell::Cell;

const LOCKED: u32 = 1;
const QUEUED: u32 = 2;
const WOKEN: u32 = 4;
const STARVING: u32 = 8;
/// What keeps others from taking it.
const HELD: u32 = LOCKED | STARVING;

/// The lock.
pub(super) struct RawMutex {
    word: AtomicU32,
    waiters: Mutex<Waiters>,
}

struct Waiters(WaitQueue<Ask>);

impl HasWaitQueue for Waiters {
    type Want = Ask;
    fn waiters(&mut self, _want: &Ask) -> &mut WaitQueue<Ask> {
        &mut self.0
    }
    fn settle(ask: &Ask, notified: bool) {
        if notified && !mutated(Mutant::MutexLeftBehind) {
            // SAFETY: its owner is left as it is, in the middle of a borrow of the mutex.
            unsafe { &*ask.mutex }.settle(ask.handed.get());
        }
    }
}

/// What a waiter leaves in the queue.
struct Ask {
    mutex: *const RawMutex,
    since: Nanos,
    /// The lock is its own. Written by whoever calls it.
    handed: Cell<bool>,
}

// SAFETY: the mutex is Sync; the cell is its owner's before and after, and the caller's in between.
unsafe impl Send for Ask {}

impl RawMutex {
    const_fn! {
        pub(super) fn new() -> Self {
            RawMutex { word: AtomicU32::new(0), waiters: Mutex::new(Rank::WaitQueue, Waiters(WaitQueue::new())) }
        }
    }

    #[inline]
    pub(super) fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & HELD != 0
    }

    /// Locks; an interrupt unwinds.
    #[inline]
    pub(super) fn lock(&self) {
        if !self.lock_fast()
            && let Err(Some(interrupt)) = self.lock_slow(None, OnInterrupt::Unwinding)
        {
            interrupt.throw::<Active>();
        }
    }

    /// Locks, whatever interrupts it.
    #[inline]
    pub(super) fn lock_surely(&self) {
        if !self.lock_fast() {
            let _locked = self.lock_slow(None, OnInterrupt::Never);
        }
    }

    /// Locks, if it can until then; an interrupt unwinds.
    #[inline]
    pub(super) fn lock_until(&self, until: Nanos) -> bool {
        if self.lock_fast() {
            return true;
        }
        match self.lock_slow(Some(until), OnInterrupt::Unwinding) {
            Ok(()) => true,
            Err(None) => false,
            Err(Some(interrupt)) => interrupt.throw::<Active>(),
        }
    }

    #[inline]
    fn lock_fast(&self) -> bool {
        // Acquire: what was done under the lock before; partners all Releases here.
        let acquire = order(Mutant::MutexLockRelaxed, Acquire);
        self.word.compare_exchange_weak(0, LOCKED, acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.take(0)
    }

    /// Takes the lock if it is free, and takes `woken` back with the same exchange.
    #[inline]
    fn take(&self, woken: u32) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen & HELD == 0 {
            // Acquire: as in `lock_fast`, with the same partners.
            let acquire = order(Mutant::MutexLockRelaxed, Acquire);
            match self.word.compare_exchange_weak(seen, (seen | LOCKED) & !woken, acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Locks. The error is what ended the wait: an interrupt, or nothing but the time limit.
    #[cold]
    fn lock_slow(&self, until: Option<Nanos>, ends: OnInterrupt) -> Result<(), Option<Interrupt>> {
        if self.take_awake() {
            return Ok(());
        }
        let since = Active::now();
        let how = How::new(WaitReason::Mutex).until(until).ends(ends);
        let (mut woken, mut starved, mut position) = (0, 0, Position::Back);
        loop {
            let wait = Wait::begin();
            let waiters = self.waiters.lock();
            if self.join_queue(woken, starved) {
                drop(waiters);
                wait.withdraw();
                return Ok(());
            }
            let ask = Ask { mutex: self, since, handed: Cell::new(false) };
            match wait_in(wait, &self.waiters, waiters, (ask, position), how) {
                Ok(ask) if ask.handed.get() => return Ok(()),
                Ok(_tries) if self.take(WOKEN) => return Ok(()),
                Ok(_in_vain) => {
                    (woken, position) = (WOKEN, Position::Front);
                    if Active::now().saturating_since(since) >= capacity::STARVED {
                        starved = STARVING;
                    }
                }
                Err(Left { state: waiters, by }) => {
                    self.note_left(&waiters.0);
                    return Err(by);
                }
            }
        }
    }

    /// Waits for a moment, awake, where that can help.
    fn take_awake(&self) -> bool {
        for () in std::iter::repeat_n((), capacity::LOCK_SPINS) {
            let seen = self.word.load(Relaxed);
            if seen & HELD == 0 {
                return self.take(0);
            }
            // Those in the queue came first, and one of them is on its way.
            if seen & QUEUED != 0 {
                break;
            }
            // On a goroutine only if the holder may be at work and nobody needs the P; a thread has nothing else to do.
            if M::<Active>::current().is_some_and(|m| !m.sched().may_wait_awake(m)) {
                break;
            }
            pause();
        }
        false
    }

    /// With the queue locked: takes the lock if it is free (true), or says that somebody waits in the queue from here on.
    fn join_queue(&self, woken: u32, starved: u32) -> bool {
        let woken = if mutated(Mutant::MutexWokenStays) { 0 } else { woken };
        let mut seen = self.word.load(Relaxed);
        loop {
            let free = seen & HELD == 0;
            let next = (if free { seen | LOCKED } else { seen | QUEUED | starved }) & !woken;
            // Acquire: as in `lock_fast`, with the same partners.
            match self.word.compare_exchange_weak(seen, next, Acquire, Relaxed) {
                Ok(_) => return free,
                Err(now) => seen = now,
            }
        }
    }

    /// With the queue locked: somebody has left it.
    fn note_left(&self, waiters: &WaitQueue<Ask>) {
        if waiters.is_empty() {
            // Relaxed: the queue's lock orders it for those who set and use it.
            self.word.fetch_and(!QUEUED, Relaxed);
        }
    }

    /// Lets the lock go. Any thread may call it; it does not block. Only the holder calls it.
    #[inline]
    pub(super) fn unlock(&self) {
        // Release: what was done under the lock; partners all Acquires here.
        let before = self.word.fetch_sub(LOCKED, order(Mutant::MutexUnlockRelaxed, Release));
        debug_assert!(before & LOCKED != 0, "unlock: the mutex is not locked");
        if before != LOCKED {
            self.call_next(before);
        }
    }

    /// As `unlock`, and the first in the queue has it next.
    #[cold]
    pub(super) fn unlock_fair(&self) {
        // Release: as in `unlock`, with the same partners.
        if self.word.compare_exchange(LOCKED, 0, Release, Relaxed).is_err() {
            self.hand_over(self.waiters.lock());
        }
    }

    /// The rest of an unlock that found more than LOCKED.
    #[cold]
    fn call_next(&self, before: u32) {
        if before & (QUEUED | WOKEN) == QUEUED || before & STARVING != 0 {
            let mut waiters = self.waiters.lock();
            if before & STARVING != 0 {
                return self.hand_over(waiters);
            }
            // Relaxed: the marks change under the queue's lock, or with LOCKED being set.
            if self.word.load(Relaxed) & (HELD | WOKEN) != 0 {
                return;
            }
            let mut notified = Notified::new();
            let woken = if waiters.0.notify(&mut notified).is_some() { WOKEN } else { 0 };
            let emptied = if waiters.0.is_empty() { self.word.load(Relaxed) & QUEUED } else { 0 };
            // Relaxed: whoever is called has its wake, and takes the lock by an exchange.
            self.word.fetch_add(woken.wrapping_sub(emptied), Relaxed);
            drop(waiters);
            notified.ready();
        }
    }

    /// With the lock, or with STARVING in its place.
    fn hand_over(&self, mut waiters: MutexGuard<'_, Waiters>) {
        // Relaxed: from here on it stays as it is (invariant 1). The last one may have left the queue meanwhile.
        let seen = self.word.load(Relaxed);
        let mut notified = Notified::new();
        let next = match waiters.0.notify(&mut notified) {
            None => seen & WOKEN,
            Some(_) if mutated(Mutant::MutexNoHandOver) => {
                WOKEN | if waiters.0.is_empty() { 0 } else { QUEUED }
            }
            Some(first) => {
                first.want.handed.set(true);
                let queued = if waiters.0.is_empty() { 0 } else { QUEUED };
                let short = Active::now().saturating_since(first.want.since) < capacity::STARVED;
                let starving = if short || queued == 0 { 0 } else { seen & STARVING };
                LOCKED | queued | starving | seen & WOKEN
            }
        };
        // Release: as in `unlock`, with the same partners; who is handed the lock has it by its wake.
        self.word.store(next, Release);
        drop(waiters);
        notified.ready();
    }

    /// One who was called never runs.
    fn settle(&self, handed: bool) {
        if handed {
            self.unlock();
            return;
        }
        // It would have tried. So do we, and let go again, which calls the next.
        let waiters = self.waiters.lock();
        self.word.fetch_and(!WOKEN, Relaxed);
        let locked = self.take(0);
        drop(waiters);
        if locked {
            self.unlock();
        }
    }
}
