//! The lock of an [`RwLock`](super::RwLock) without the value.
//!
//! ```text
//!   word:  READER ×     the number of readers: from `MANY` on no further reader is let in
//!          UPGRADABLE   a reader that may become the writer has the lock: beside readers, never beside a writer
//!          WRITER       a writer has the lock
//!          QUEUED       a waiter stands in a queue. Changes under the lock of the queues
//! ```
//! While no waiter is queued, a read begins and ends with one exchange or addition, and so does a write. With QUEUED set no
//! thread takes the lock by itself: the lock is *granted* to waiters, under the lock of the queues, in phases. After a writer
//! the lock is granted to all waiting readers together, with one upgradable reader, or, if no reader waits, to the next writer;
//! after the last reader it is granted to a writer. So a waiting writer holds back new readers and waits only for the readers
//! before it, and a waiting reader waits for one writer, or two. (The order of Go's `sync.RWMutex`, where the writers wait in a
//! mutex of their own.)
//!
//! *Readers try.* A reader that was granted the lock holds it before it runs. If many goroutines share a few Ps, the next
//! writer would wait for all of these readers. Each of them would get its turn, read, read again, find that writer, and queue:
//! a convoy that does not end, since the writer grants them the lock once more. So if the lock is free and no writer waits, a
//! reader is notified without a grant, and *tries*, like a reader that has just come. If that reader finds a writer again, the
//! reader queues and *insists*: it is granted the lock after that writer. A reader that tries holds nothing, and no waiter
//! waits for it.
//!
//! Readers are granted the lock, and do not try, in two cases. If a writer waits, a trying reader would release neither that
//! writer nor a reader behind it, as it may have nothing to unlock. If the lock is held for reading, as after a downgrade,
//! readers are let in before any writer.
//!
//! *Upgrade.* The upgradable reader becomes the writer by an exchange UPGRADABLE → WRITER, when no other reader has the lock.
//! Otherwise the upgradable reader waits in a queue of its own, before all others: no waiter is granted the lock before it (a
//! recursive read, below, needs no grant beside readers), and the last of the other readers grants the upgrade. UPGRADABLE
//! stays set throughout, so at most one upgrader waits there, and no writer comes in between.
//!
//! *A recursive read* takes the lock beside readers although others wait, as its caller may be the reader for which they wait.
//! With QUEUED set the recursive reader does so under the lock of the queues. An exchange without that lock could come between
//! a granter's look at the word, which shows no reader, and the grant to a writer.
//!
//! A waiter that leaves a queue without a grant, by its time limit or an interrupt, grants as an unlock does: the readers
//! behind a writer that has left get the lock at once. A reader that leaves grants, too: the last writer may have passed over
//! waiting writers in favour of this reader, which claimed its own wait just then. For a goroutine that its runtime leaves
//! behind in a queue the abandon hook grants, and releases a grant that the goroutine never used; an upgrader keeps its
//! upgradable read, like any guard. The drop of a future that waits does the same as that hook.
//!
//! Invariants, whenever the lock of the queues is free:
//! 1. QUEUED is set if and only if a waiter stands in a queue.
//! 2. With QUEUED set, the lock is held, or the last reader is on its way to grant it.
//! 3. With QUEUED set, only the holder of the lock of the queues adds to the word; others take their own part away, or, for an
//!    upgradable reader that becomes a plain one, exchange UPGRADABLE for READER. The exchange admits no writer: the lock is
//!    held for reading before and after, so a granter that saw either value grants none. The reader then grants as an unlock
//!    does, for the waiter that is admitted without UPGRADABLE.
//!
//! Checked by `models/rwlock.rs`.

mod future;
#[cfg(all(test, not(gmp_loom)))]
mod tests;

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Mutex, MutexGuard, Rank, Relaxed, Release, const_fn, note_contention};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, Record, WaitQueue, wait_in};
use crate::wait::interrupt::OnInterrupt;
use crate::wait::task::Readied;
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::cell::Cell;

pub(super) use future::Locking;

const WRITER: u32 = 1;
const QUEUED: u32 = 2;
const UPGRADABLE: u32 = 4;
const READER: u32 = 8;
/// With this many readers, guards must have been leaked. A further reader waits, as for a writer, until readers have gone: the
/// count must not wrap, and the lock after an `unlocked` must not panic. A further upgradable reader waits, too, since it would
/// become a plain one without a look at the count. So at most one reader is added at `MANY`: the upgradable reader that came
/// before.
const MANY: u32 = 1 << 31;

/// The purpose for which a caller wants the lock.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Read,
    /// As `Read`, past waiters.
    Recursive,
    Write,
    Upgradable,
    /// From `Upgradable`, which the caller holds, to `Write`.
    Upgrade,
}

/// The lock.
pub(super) struct RawRwLock {
    word: AtomicU32,
    queues: Mutex<Queues>,
}

struct Queues {
    readers: WaitQueue<Ask>,
    writers: WaitQueue<Ask>,
    upgradables: WaitQueue<Ask>,
    /// At most one.
    upgrader: WaitQueue<Ask>,
}

impl Queues {
    const fn new() -> Self {
        Queues {
            readers: WaitQueue::new(),
            writers: WaitQueue::new(),
            upgradables: WaitQueue::new(),
            upgrader: WaitQueue::new(),
        }
    }

    fn is_empty(&self) -> bool {
        let Queues { readers, writers, upgradables, upgrader } = self;
        [readers, writers, upgradables, upgrader].into_iter().all(WaitQueue::is_empty)
    }

    /// Returns `true` if no queue has a waiter that could be notified. `first` removes records of goroutines that their runtime
    /// has left behind, so these hold no waiter back.
    fn has_no_waiters(&mut self) -> bool {
        let Queues { readers, writers, upgradables, upgrader } = self;
        [readers, writers, upgradables, upgrader].into_iter().all(|queue| queue.first().is_none())
    }

    /// Returns `true` if an earlier waiter has precedence over a caller of this kind.
    fn come_before(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Recursive | Kind::Upgrade => false,
            Kind::Write | Kind::Upgradable => !self.has_no_waiters(),
            // A waiter for the upgradable read of another reader holds no reader back.
            Kind::Read => {
                let Queues { readers, writers, upgrader, .. } = self;
                [readers, writers, upgrader].into_iter().any(|queue| queue.first().is_some())
            }
        }
    }
}

impl HasWaitQueue for Queues {
    type Want = Ask;
    fn waiters(&mut self, want: &Ask) -> &mut WaitQueue<Ask> {
        match want.kind {
            Kind::Read | Kind::Recursive => &mut self.readers,
            Kind::Write => &mut self.writers,
            Kind::Upgradable => &mut self.upgradables,
            Kind::Upgrade => &mut self.upgrader,
        }
    }
    fn settle(ask: &Ask, notified: bool) -> Readied<Active> {
        // SAFETY: the record's owner never runs again, and borrows the lock for good; or it is a future, whose drop calls this.
        let lock = unsafe { &*ask.lock };
        match (notified, ask.kind) {
            // The waiter was to try, and holds nothing.
            (true, _) if (!ask.granted.get()).unless(RwLockLeftTakesATryForAGrant) => Readied::new(),
            (true, Kind::Read | Kind::Recursive) => lock.unlock_read_in_silence(),
            (true, Kind::Write) => lock.unlock_write_in_silence(),
            (true, Kind::Upgradable) => lock.upgradable_leaves(0).ready_in_silence(),
            // The upgrader's guard stays with it.
            (true, Kind::Upgrade) => {
                mutant!(RwLockLeftKeepsTheGrant: return Readied::new());
                lock.end_write_in_silence(UPGRADABLE)
            }
            (false, _) => lock.granted_to_others(lock.queues.lock()).ready_in_silence(),
        }
    }
}

struct Ask {
    lock: *const RawRwLock,
    kind: Kind,
    /// Set for a reader that has tried in vain.
    insists: bool,
    /// The waiter was granted the lock. Written by the granter that notifies the waiter.
    granted: Cell<bool>,
}

// SAFETY: the lock is Sync; the cell is written by the granter that has claimed the wait, and read by the owner after the
// wake (or by its abandon hook).
unsafe impl Send for Ask {}

impl Ask {
    fn new(lock: &RawRwLock, kind: Kind, insists: bool) -> Self {
        Ask { lock, kind, insists, granted: Cell::new(false) }
    }
}

impl RawRwLock {
    const_fn! {
        pub(super) fn new() -> Self {
            RawRwLock { word: AtomicU32::new(0), queues: Mutex::new(Rank::WaitQueue, Queues::new()) }
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & !QUEUED != 0
    }

    pub(super) fn is_locked_exclusive(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }

    /// Takes the lock without waiting, if no waiter is queued.
    #[inline]
    pub(super) fn try_lock(&self, kind: Kind) -> bool {
        let mut seen = self.word.load(Relaxed);
        loop {
            let waits = seen & QUEUED != 0;
            mutant!(RwLockRecursiveBesideGrant: let waits = waits && kind != Kind::Recursive);
            if waits || !Self::admits(seen, kind) {
                return false;
            }
            // Acquire: sees the work of earlier holders; partners all Releases here.
            let acquire = Acquire.unless(RwLockTakeRelaxed);
            match self.word.compare_exchange_weak(seen, Self::with(seen, kind), acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the lock without waiting, if no earlier waiter has precedence.
    pub(super) fn try_lock_in_line(&self, kind: Kind) -> bool {
        // Relaxed: decides only whether to look under the lock of the queues. While a writer has the lock, no kind is admitted.
        let may = |seen: u32| seen & WRITER == 0;
        self.try_lock(kind)
            || may(self.word.load(Relaxed)) && self.take_or_mark(&mut self.queues.lock(), kind, 0)
    }

    #[inline(always)]
    fn admits(seen: u32, kind: Kind) -> bool {
        match kind {
            Kind::Read | Kind::Recursive => seen & (WRITER | MANY) == 0,
            Kind::Write => seen & !QUEUED == 0,
            Kind::Upgradable => seen & (WRITER | UPGRADABLE | MANY) == 0,
            Kind::Upgrade => seen & !QUEUED == UPGRADABLE,
        }
    }

    #[inline(always)]
    fn with(seen: u32, kind: Kind) -> u32 {
        match kind {
            Kind::Read | Kind::Recursive => seen + READER,
            Kind::Write => seen | WRITER,
            Kind::Upgradable => seen | UPGRADABLE,
            Kind::Upgrade => seen ^ (UPGRADABLE | WRITER),
        }
    }

    /// Locks, until `until` at most. Returns `false` after that. An interrupt unwinds the wait.
    #[inline]
    pub(super) fn lock(&self, kind: Kind, until: Option<Nanos>) -> bool {
        self.try_lock(kind) || self.lock_slow(kind, until, OnInterrupt::Unwinding)
    }

    /// As `lock`; an interrupt does not end the wait.
    pub(super) fn lock_surely(&self, kind: Kind, until: Option<Nanos>) -> bool {
        self.try_lock(kind) || self.lock_slow(kind, until, OnInterrupt::Never)
    }

    #[cold]
    fn lock_slow(&self, kind: Kind, until: Option<Nanos>, ends: OnInterrupt) -> bool {
        let reason = match kind {
            Kind::Read | Kind::Recursive | Kind::Upgradable => WaitReason::RwLockRead,
            Kind::Write | Kind::Upgrade => WaitReason::RwLockWrite,
        };
        note_contention();
        let how = How::new(reason).until(until).ends(ends);
        let mut insists = false;
        loop {
            let wait = Wait::begin();
            let mut queues = self.queues.lock();
            if self.take_or_mark(&mut queues, kind, QUEUED) {
                drop(queues);
                wait.withdraw();
                return true;
            }
            let ask = Ask::new(self, kind, insists);
            match wait_in(wait, &self.queues, queues, (ask, Position::Back), how) {
                Ok(ask) if self.has_or_takes(&ask) => return true,
                Ok(_tried_in_vain) => insists = true,
                Err(Left { state: queues, by }) => {
                    mutant!(RwLockLeavesQuietly: drop(queues); return by.is_some_and(|why| why.throw::<Active>()));
                    // Grants the lock to the waiters that this waiter held back.
                    self.granted_to_others(queues).ready();
                    return by.is_some_and(|interrupt| interrupt.throw::<Active>());
                }
            }
        }
    }

    /// For a waiter that was notified: returns `true` if it was granted the lock, or takes the lock by a try.
    fn has_or_takes(&self, ask: &Ask) -> bool {
        mutant!(RwLockTakesATryForAGrant: return true);
        ask.granted.get() || self.try_lock(ask.kind)
    }

    /// With the queues locked: takes the lock, if `kind` is admitted and overtakes no waiter, and returns `true`;
    /// otherwise sets `mark`: QUEUED, for a waiter that is about to queue.
    fn take_or_mark(&self, queues: &mut Queues, kind: Kind, mark: u32) -> bool {
        let first = !queues.come_before(kind);
        // If no waiter is left in the queues, QUEUED is set only because of goroutines that were left behind: it is cleared.
        let queued = if queues.has_no_waiters() { 0 } else { QUEUED };
        let mut seen = self.word.load(Relaxed);
        loop {
            let takes = first && Self::admits(seen, kind);
            let next = if takes { Self::with(seen & !QUEUED, kind) | queued } else { seen | mark };
            // Acquire: as in `try_lock`, with the same partners.
            let acquire = Acquire.unless(RwLockRecheckRelaxed);
            match self.word.compare_exchange_weak(seen, next, acquire, Relaxed) {
                Ok(_) => return takes,
                Err(now) => seen = now,
            }
        }
    }

    /// With the queues locked: grants the lock to the waiters that are admitted now, waiters of kind `first` before the
    /// others.
    fn grant(&self, queues: &mut Queues, first: Kind, notified: &mut Notified<Ask>) {
        // Acquire: the work of earlier holders, for the waiters that are notified; partners all Releases here. While a waiter
        // stands in a queue, only the holder of the queues' lock, and readers that leave or give up UPGRADABLE, change the word
        // (invariant 3). A reader that so makes room for a waiter comes here next.
        let seen = self.word.load(Acquire.unless(RwLockGrantRelaxed));
        let upgrades = queues.upgrader.first().is_some();
        let granted = |record: &Record<Ask>| record.want.granted.set(true);
        if upgrades && seen & !QUEUED == UPGRADABLE && queues.upgrader.notify(notified).map(granted).is_some()
        {
            // Relaxed: the notified waiter learns of the grant by the wake.
            self.word.fetch_add(WRITER.wrapping_sub(UPGRADABLE), Relaxed);
        }
        // While an upgrade waits, no other waiter is granted the lock.
        let mut writes = seen & WRITER != 0 || upgrades.unless(RwLockReadsBesideUpgrade);
        let shared = queues.readers.first().is_some() || queues.upgradables.first().is_some();
        let readers_first = first == Kind::Read && shared;
        if seen & !QUEUED == 0 && !readers_first && queues.writers.notify(notified).map(granted).is_some() {
            // Relaxed: the notified waiter learns of the grant by the wake.
            self.word.fetch_or(WRITER, Relaxed);
            writes = true;
        }
        let no_writer_waits = queues.writers.first().is_none();
        if !writes && (readers_first || no_writer_waits) {
            let try_it = no_writer_waits && seen & !QUEUED == 0;
            mutant!(RwLockReadersTryBesideAWriter: let try_it = true);
            // Readers that wait because of MANY readers get the lock when some of these have left.
            let mut room = MANY.saturating_sub(seen).div_ceil(READER);
            while room > 0
                && let Some(reader) = queues.readers.notify(notified)
            {
                room -= 1;
                if try_it && !reader.want.insists {
                    continue;
                }
                granted(reader);
                // Relaxed: the notified waiter learns of the grant by the wake.
                self.word.fetch_add(READER, Relaxed);
            }
            let admits = seen & (UPGRADABLE | MANY) == 0;
            if admits && queues.upgradables.notify(notified).map(granted).is_some() {
                // Relaxed: the notified waiter learns of the grant by the wake.
                self.word.fetch_or(UPGRADABLE, Relaxed);
            }
        }
        if queues.is_empty() {
            // Relaxed: QUEUED is set and cleared under the lock of the queues only.
            self.word.fetch_and(!QUEUED, Relaxed);
        }
    }

    #[inline]
    pub(super) fn unlock_read(&self) {
        // Release: orders these reads before the next writer; partners all Acquires here.
        let before = self.word.fetch_sub(READER, Release.unless(RwLockReadRelaxed));
        debug_assert!(before >= READER, "unlock_read: nobody reads");
        if before & QUEUED != 0 {
            self.reader_left(before);
        }
    }

    /// As `unlock_read`, but leaves it to the caller to call the wakers of tasks.
    fn unlock_read_in_silence(&self) -> Readied<Active> {
        // Release: as in `unlock_read`, with the same partners. No model has this: the reader was granted the lock, and has not
        // run since, so it has read nothing.
        let before = self.word.fetch_sub(READER, Release);
        if before & QUEUED == 0 { Readied::new() } else { self.reader_leaves(before).ready_in_silence() }
    }

    /// Does the rest of the end of a read while others wait.
    #[cold]
    fn reader_left(&self, before: u32) {
        self.reader_leaves(before).ready();
    }

    /// As `reader_left`, for a caller that readies the waiters that have the lock now.
    fn reader_leaves(&self, before: u32) -> Notified<Ask> {
        mutant!(RwLockLastReaderLeaves: return Notified::new());
        mutant!(RwLockUpgradeForgotten: if before & UPGRADABLE != 0 { return Notified::new() });
        if before & !UPGRADABLE == READER | QUEUED {
            self.granted_to_others(self.queues.lock())
        } else {
            Notified::new()
        }
    }

    #[inline]
    pub(super) fn unlock_write(&self) {
        self.end_write(0);
    }

    /// Makes the writer a reader, together with the readers that wait.
    pub(super) fn downgrade(&self) {
        self.end_write(READER);
    }

    /// Makes the writer the upgradable reader, together with readers that wait.
    pub(super) fn downgrade_to_upgradable(&self) {
        self.end_write(UPGRADABLE);
    }

    /// Ends a write. The writer keeps the lock as a reader of the kind `becomes`; 0 for not at all.
    #[inline]
    fn end_write(&self, becomes: u32) {
        if !self.end_write_alone(becomes) {
            self.end_write_beside_others(becomes);
        }
    }

    /// As `end_write`, but leaves it to the caller to call the wakers of tasks.
    fn end_write_in_silence(&self, becomes: u32) -> Readied<Active> {
        if self.end_write_alone(becomes) { Readied::new() } else { self.written(becomes).ready_in_silence() }
    }

    /// As `unlock_write`, but leaves it to the caller to call the wakers of tasks.
    pub(super) fn unlock_write_in_silence(&self) -> Readied<Active> {
        self.end_write_in_silence(0)
    }

    /// Ends a write while no waiter is queued. If others wait, does nothing and returns `false`.
    #[inline]
    fn end_write_alone(&self, becomes: u32) -> bool {
        // Release: publishes the writer's work, also to later readers; partners all Acquires here.
        let release = Release.unless(RwLockWriteRelaxed);
        self.word.compare_exchange(WRITER, becomes, release, Relaxed).is_ok()
    }

    #[cold]
    fn end_write_beside_others(&self, becomes: u32) {
        self.written(becomes).ready();
    }

    /// Ends a write while others wait. Returns the waiters that have the lock now.
    #[cold]
    fn written(&self, becomes: u32) -> Notified<Ask> {
        let mut notified = Notified::new();
        let mut queues = self.queues.lock();
        // Release: as in `end_write_alone`, with the same partners.
        let release = Release.unless(RwLockWrittenRelaxed);
        let before = self.word.fetch_add(becomes.wrapping_sub(WRITER), release);
        assert!(before & WRITER != 0, "unlock_write: nobody writes");
        self.grant(&mut queues, Kind::Read, &mut notified);
        drop(queues);
        notified
    }

    pub(super) fn unlock_upgradable(&self) {
        self.upgradable_leaves(0).ready();
    }

    /// Makes the upgradable reader a plain one.
    pub(super) fn downgrade_upgradable(&self) {
        self.upgradable_leaves(READER).ready();
    }

    /// Ends an upgradable read, which becomes a plain one if `becomes` is `READER`. The caller readies the waiters that have
    /// the lock now.
    fn upgradable_leaves(&self, becomes: u32) -> Notified<Ask> {
        // Release: as in `unlock_read`, with the same partners.
        let release = Release.unless(RwLockUpgradableRelaxed);
        let before = self.word.fetch_add(becomes.wrapping_sub(UPGRADABLE), release);
        debug_assert!(before & UPGRADABLE != 0, "unlock_upgradable: no upgradable reader has the lock");
        mutant!(RwLockUpgradableLeaves: return Notified::new());
        if before & QUEUED == 0 { Notified::new() } else { self.granted_to_others(self.queues.lock()) }
    }

    /// Grants the lock, after the last reader or a waiter without a grant has left. The caller readies the waiters that have
    /// the lock now.
    #[cold]
    fn granted_to_others(&self, mut queues: MutexGuard<'_, Queues>) -> Notified<Ask> {
        let mut notified = Notified::new();
        self.grant(&mut queues, Kind::Write, &mut notified);
        drop(queues);
        notified
    }
}
