//! The lock of a [`Mutex`](super::Mutex) without the value: running threads may barge, and a starved waiter is handed
//! the lock.
//!
//! ```text
//!   word:  LOCKED    a holder has the lock
//!          QUEUED    a waiter stands in the queue. Changes under the lock of the queue
//!          WOKEN     a waiter was notified to try, and has not tried yet
//!          STARVING  hand-over: no thread barges. Without LOCKED only while an unlock is on its way to hand over
//! ```
//! While no waiter is queued, lock is one exchange 0 → LOCKED, and unlock one subtraction. The lock is free when
//! neither LOCKED nor STARVING is set.
//!
//! *Normal mode.* An unlock frees the lock, and notifies the first waiter of the queue, which *tries* to take the lock. A
//! thread that runs already, on the core that has the data in its cache, may take the lock first (that thread *barges*); then
//! the notified waiter goes back to the front of the queue. At most one notified waiter is about to try (WOKEN), as otherwise
//! each unlock under contention would pay for a switch. An unlock that finds the lock taken again notifies no waiter: the new
//! holder's unlock will.
//!
//! *Starving mode.* A waiter that has tried in vain 1 ms or more after its arrival sets STARVING as it goes back. From then on
//! an unlock hands the lock over: the word stays LOCKED, and the lock belongs to the first waiter of the queue. The unlock that
//! hands over to the last waiter, or to a waiter that has waited less than 1 ms, ends the mode. (From Go's `sync.Mutex`, where
//! the waiter that was handed the lock ends the mode.)
//!
//! WOKEN says that a notified waiter is about to try. The waiter clears WOKEN by the exchange with which it takes the lock, or
//! with which it finds the lock held and queues itself, under the lock of the queue; the next unlock then sees QUEUED without
//! WOKEN, and notifies again. If the waiter's runtime ends before the waiter runs, its abandon hook clears WOKEN, or releases
//! the lock that was handed to the waiter; so does the drop of a future that was notified. A waiter that has tried in vain and
//! has to park for a P before it can queue itself clears WOKEN, and tries once more, before that park, during which it has no
//! abandon hook.
//!
//! Invariants:
//! 1. While the lock is not free, only the holder of the queue's lock changes the word, except for the unlock's
//!    subtraction.
//! 2. QUEUED in a free lock without WOKEN occurs only while an unlock is on its way to the queue.
//! 3. The waiter that sets STARVING has no WOKEN, or clears WOKEN by the same exchange. STARVING and WOKEN are both set only if
//!    that waiter has given WOKEN back, because it had to park for a P, and an unlock has notified another waiter meanwhile. So
//!    a hand-over leaves WOKEN as it is.
//!
//! Checked by `models/mutex.rs`.

mod future;

use crate::host::{Active, Clock};
use crate::m::M;
use crate::prim::hooks::*;
use crate::prim::{
    Acquire, AtomicU32, Mutex, MutexGuard, Rank, Relaxed, Release, capacity, const_fn, note_contention, pause,
};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, WaitQueue, wait_in};
use crate::wait::interrupt::{Interrupt, OnInterrupt};
use crate::wait::task::Readied;
use crate::wait::waiter::{How, Opened, Wait};
use gmp_timers::Nanos;
use std::cell::Cell;

pub(super) use future::Locking;

const LOCKED: u32 = 1;
const QUEUED: u32 = 2;
const WOKEN: u32 = 4;
const STARVING: u32 = 8;
/// While one of these bits is set, the lock can't be taken.
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
    fn settle(ask: &Ask, notified: bool) -> Readied<Active> {
        if notified.unless(MutexLeftBehind) {
            // SAFETY: the record's owner never runs again, and borrows the mutex for good.
            unsafe { &*ask.mutex }.settle(ask.handed.get())
        } else {
            Readied::new()
        }
    }
}

/// A waiter's request in the queue.
pub(super) struct Ask {
    mutex: *const RawMutex,
    since: Nanos,
    /// The waiter was handed the lock. Written by the unlocker that notifies the waiter.
    handed: Cell<bool>,
}

// SAFETY: the mutex is Sync; the cell is written by the unlocker that has claimed the wait, and read by the owner
// after the wake (or by its abandon hook).
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

    /// Locks. An interrupt unwinds the wait.
    #[inline]
    pub(super) fn lock(&self) {
        if !self.lock_fast()
            && let Err(Some(interrupt)) = self.lock_slow(None, OnInterrupt::Unwinding)
        {
            interrupt.throw::<Active>();
        }
    }

    /// Locks; an interrupt does not end the wait.
    #[inline]
    pub(super) fn lock_surely(&self) {
        if !self.lock_fast() {
            let _locked = self.lock_slow(None, OnInterrupt::Never);
        }
    }

    /// Locks, until `until` at most. Returns `false` after that. An interrupt unwinds the wait.
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

    /// As `lock_until`; an interrupt does not end the wait.
    #[cfg_attr(gmp_loom, allow(dead_code, reason = "the constants of `lock_api` are in no model"))]
    pub(super) fn lock_surely_until(&self, until: Nanos) -> bool {
        self.lock_fast() || self.lock_slow(Some(until), OnInterrupt::Never).is_ok()
    }

    #[inline]
    fn lock_fast(&self) -> bool {
        // Acquire: sees the work of earlier holders; partners all Releases here.
        let acquire = Acquire.unless(MutexLockRelaxed);
        self.word.compare_exchange_weak(0, LOCKED, acquire, Relaxed).is_ok()
    }

    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.take(0)
    }

    /// Takes a free lock, and clears `woken` by the same exchange.
    #[inline]
    fn take(&self, woken: u32) -> bool {
        let mut seen = self.word.load(Relaxed);
        while seen & HELD == 0 {
            // Acquire: as in `lock_fast`, with the same partners.
            let acquire = Acquire.unless(MutexTakeRelaxed);
            match self.word.compare_exchange_weak(seen, (seen | LOCKED) & !woken, acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Locks. The error is the interrupt that ended the wait, or `None` for the time limit.
    #[cold]
    fn lock_slow(&self, until: Option<Nanos>, ends: OnInterrupt) -> Result<(), Option<Interrupt>> {
        note_contention();
        if self.take_awake() {
            return Ok(());
        }
        let since = Active::now();
        let how = How::new(WaitReason::Mutex).until(until).ends(ends);
        let (mut woken, mut starved, mut position) = (0, 0, Position::Back);
        loop {
            let opened = Wait::try_open().or_else(|| self.open_late(&mut woken));
            let Some(opened) = opened else { return Ok(()) };
            let wait = Wait::of(opened);
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

    /// Opens a wait for a caller that has to park for a P first. The runtime may leave the caller behind in that park, so a
    /// caller that was notified gives WOKEN back before. Returns `None` if the caller got the lock as it did so.
    #[cold]
    fn open_late(&self, woken: &mut u32) -> Option<Opened<Active>> {
        mutant!(MutexWokenParks: return Some(Wait::open()));
        if std::mem::take(woken) != 0 && self.take_for_the_notified() {
            return None;
        }
        Some(Wait::open())
    }

    /// Spins for a moment, where that can help. Returns `true` if the lock was taken.
    fn take_awake(&self) -> bool {
        for () in std::iter::repeat_n((), capacity::LOCK_SPINS) {
            let seen = self.word.load(Relaxed);
            if seen & HELD == 0 {
                return self.take(0);
            }
            // Waiters in the queue came first, and the unlock notifies one of them.
            if seen & QUEUED != 0 {
                break;
            }
            // A goroutine spins only if the holder may be running and no other goroutine needs the P; a plain thread
            // has nothing else to do.
            if M::<Active>::current().is_some_and(|m| !m.sched().may_wait_awake(m)) {
                break;
            }
            pause();
        }
        false
    }

    /// With the queue locked: takes a free lock, and returns `true`; otherwise sets QUEUED, and the bits in `starved`, for a
    /// waiter that is about to queue.
    fn join_queue(&self, woken: u32, starved: u32) -> bool {
        mutant!(MutexWokenStays: let woken = 0);
        let mut seen = self.word.load(Relaxed);
        loop {
            let free = seen & HELD == 0;
            let next = (if free { seen | LOCKED } else { seen | QUEUED | starved }) & !woken;
            // Acquire: as in `lock_fast`, with the same partners.
            let acquire = Acquire.unless(MutexRecheckRelaxed);
            match self.word.compare_exchange_weak(seen, next, acquire, Relaxed) {
                Ok(_) => return free,
                Err(now) => seen = now,
            }
        }
    }

    /// With the queue locked: clears QUEUED if the waiter that has left was the last.
    fn note_left(&self, waiters: &WaitQueue<Ask>) {
        if waiters.is_empty() {
            // Relaxed: every thread that sets or uses QUEUED holds the queue's lock, which orders the change.
            self.word.fetch_and(!QUEUED, Relaxed);
        }
    }

    /// Unlocks, on any thread; does not block. The lock is held, and the caller acts for its holder.
    #[inline]
    pub(super) fn unlock(&self) {
        // Release: publishes the holder's work; partners all Acquires here.
        let before = self.word.fetch_sub(LOCKED, Release.unless(MutexUnlockRelaxed));
        debug_assert!(before & LOCKED != 0, "unlock: the mutex is not locked");
        if before != LOCKED {
            self.call_next(before).ready();
        }
    }

    /// As `unlock`, for a caller that holds a lock, and readies the waiter later.
    pub(super) fn unlock_and_tell(&self) -> Notified<Ask> {
        // Release: as in `unlock`, with the same partners.
        let before = self.word.fetch_sub(LOCKED, Release.unless(MutexTellsRelaxed));
        debug_assert!(before & LOCKED != 0, "unlock_and_tell: the mutex is not locked");
        if before == LOCKED { Notified::new() } else { self.call_next(before) }
    }

    /// As `unlock`, but hands the lock to the first waiter.
    #[cold]
    pub(super) fn unlock_fair(&self) {
        // Release: as in `unlock`, with the same partners.
        if self.word.compare_exchange(LOCKED, 0, Release.unless(MutexFairRelaxed), Relaxed).is_err() {
            self.hand_over(self.waiters.lock()).ready();
        }
    }

    /// Does the rest of an unlock that found more than LOCKED. The caller readies the waiter.
    #[cold]
    fn call_next(&self, before: u32) -> Notified<Ask> {
        let mut notified = Notified::new();
        if before & (QUEUED | WOKEN) == QUEUED || before & STARVING != 0 {
            let mut waiters = self.waiters.lock();
            if before & STARVING != 0 {
                return self.hand_over(waiters);
            }
            // Relaxed: the marks change under the queue's lock, or by an exchange that sets LOCKED.
            if (self.word.load(Relaxed) & (HELD | WOKEN) != 0).unless(MutexCallsTwo) {
                return notified;
            }
            let woken = if waiters.0.notify(&mut notified).is_some() { WOKEN } else { 0 };
            let emptied = if waiters.0.is_empty() { self.word.load(Relaxed) & QUEUED } else { 0 };
            // Relaxed: the wake orders the notified waiter, which takes the lock by an exchange.
            self.word.fetch_add(woken.wrapping_sub(emptied), Relaxed);
        }
        notified
    }

    /// Hands the lock to the first waiter, which the caller readies. The caller has the lock, or has freed LOCKED with
    /// STARVING set.
    fn hand_over(&self, mut waiters: MutexGuard<'_, Waiters>) -> Notified<Ask> {
        // Relaxed: the word stays as it is from here on (invariant 1). The last waiter may have left the queue
        // meanwhile.
        let seen = self.word.load(Relaxed);
        let mut notified = Notified::new();
        let next = match waiters.0.notify(&mut notified) {
            None => seen & WOKEN,
            Some(first) => {
                unless!(MutexNoHandOver, first.want.handed.set(true));
                let queued = if waiters.0.is_empty() { 0 } else { QUEUED };
                let short = Active::now().saturating_since(first.want.since) < capacity::STARVED;
                let starving = if short || queued == 0 { 0 } else { seen & STARVING };
                LOCKED | queued | starving | seen & WOKEN
            }
        };
        mutant!(MutexNoHandOver: let next = if next & LOCKED == 0 { next } else { WOKEN | next & QUEUED });
        // Release: as in `unlock`, with the same partners; the wake orders a waiter that is handed the lock.
        self.word.store(next, Release.unless(MutexHandsRelaxed));
        drop(waiters);
        notified
    }

    /// Clears WOKEN, and tries to take the lock for the waiter that was notified to try. If another thread has the lock, its
    /// unlock notifies the next waiter.
    fn take_for_the_notified(&self) -> bool {
        mutant!(MutexSettlesWithoutTheLock: self.word.fetch_and(!WOKEN, Relaxed); return self.take(0));
        let _waiters = self.waiters.lock();
        self.word.fetch_and(!WOKEN, Relaxed);
        self.take(0)
    }

    /// For a notified waiter that never runs, or was dropped: releases the lock that was handed to it, or clears WOKEN.
    /// The caller calls the wakers of tasks.
    fn settle(&self, handed: bool) -> Readied<Active> {
        // Tries in the waiter's place, and unlocks, which notifies the next waiter.
        if handed || self.take_for_the_notified() {
            self.unlock_and_tell().ready_in_silence()
        } else {
            Readied::new()
        }
    }
}
