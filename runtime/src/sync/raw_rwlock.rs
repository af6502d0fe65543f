//! The lock of an [`RwLock`](super::RwLock) without the value.
//!
//! ```text
//!   word:  READER ×     the number of readers: from `MANY` on no further one is let in
//!          UPGRADABLE   a reader that may become the writer has the lock: beside readers, never beside a writer
//!          WRITER       a writer has the lock
//!          QUEUED       a waiter stands in a queue. Changes under the lock of the queues
//! ```
//! While no waiter is queued, a read begins and ends with one exchange or addition, and so does a write. With QUEUED
//! set no thread takes the lock by itself: the lock is *granted* to waiters, under the lock of the queues, in phases.
//! After a writer all waiting readers go together, with one upgradable reader, or, if none waits, the next writer; after
//! the last reader a writer goes. So a waiting writer holds back new readers and waits only for the readers before it,
//! and a waiting reader waits for one writer, or two. (The order of Go's `sync.RWMutex`; there the writers wait in a mutex of
//! their own.)
//!
//! *Readers try.* A reader that was granted the lock holds it before it runs. Where many goroutines share a few Ps, the next
//! writer would wait for all of them. Each of them would come to its turn, read, read again, find that writer, and queue: a
//! convoy that does not end, since the writer grants them the lock once more. So where the lock is free and no writer waits, a
//! reader is notified without a grant, and *tries*, like a reader that has just come. If it finds a writer again it queues and
//! *insists*: it is granted the lock after that writer. A reader that tries holds nothing, and no waiter waits for it.
//!
//! Readers are granted the lock, and do not try, in two cases. If a writer waits, a trying reader would release neither that
//! writer nor a reader behind it, as it may have nothing to unlock. If the lock is held for reading, as after a downgrade,
//! readers are let in before any writer.
//!
//! *Upgrade.* The upgradable reader becomes the writer by an exchange UPGRADABLE → WRITER, when no other reader has the
//! lock. Otherwise the upgradable reader waits in a queue of its own, before all others: no waiter is granted the lock before
//! it (a recursive read, below, needs no grant beside readers), and the last of the other readers grants the upgrade.
//! UPGRADABLE stays set throughout, so at most one waits there, and no writer comes in between.
//!
//! *A recursive read* takes the lock beside readers although others wait, as its caller may be the reader for which they
//! wait. With QUEUED set the recursive reader does so under the lock of the queues. By an exchange alone the reader could
//! come between a granter's look at the word, which shows no reader, and the grant to a writer.
//!
//! A waiter that leaves a queue without a grant, by its time limit or an interrupt, grants as an unlock does: the
//! readers behind a writer that has left go on at once. For a goroutine that its runtime leaves behind in a queue the
//! abandon hook does so, and releases a grant that the goroutine never used; of an upgrade it keeps the upgradable read,
//! as of any guard. The drop of a future that waits does as that hook does.
//!
//! Invariants, whenever the lock of the queues is free:
//! 1. QUEUED is set if and only if a waiter stands in a queue.
//! 2. With QUEUED set, the lock is held, or the last reader is on its way to grant it.
//! 3. With QUEUED set, only the holder of the lock of the queues adds to the word; others take their own part away, or, as
//!    the upgradable reader that becomes a plain one, exchange UPGRADABLE for READER. The exchange lets no waiter in: the
//!    lock is held for reading before and after, so a granter, whichever of the two its look found, grants no writer.
//!    The reader then grants as an unlock does, for the waiter that is admitted without UPGRADABLE.
//!
//! Checked by `models/rwlock.rs`.

mod future;
#[cfg(all(test, not(gmp_loom)))]
mod tests;

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Mutex, MutexGuard, Rank, Relaxed, Release, const_fn};
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
/// From here on there are so many readers that guards must have been leaked. Another one waits, as it does for a writer, until
/// these have gone: the count must not wrap, and a lock behind `unlocked` must not panic. An upgradable reader waits, too: it
/// becomes a plain one without a look at the count. So at most one is added at `MANY`, by the upgradable reader before.
const MANY: u32 = 1 << 31;

/// What a caller wants the lock for.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Read,
    /// As `Read`, past those that wait.
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

    /// Returns `true` if no waiter stands in a queue that could be notified. `first` removes records of goroutines that
    /// their runtime has left behind: they hold no waiter back.
    fn nobody_waits(&mut self) -> bool {
        let Queues { readers, writers, upgradables, upgrader } = self;
        [readers, writers, upgradables, upgrader].into_iter().all(|queue| queue.first().is_none())
    }

    /// Returns `true` if an earlier waiter waits for what a caller of this kind would take.
    fn come_before(&mut self, kind: Kind) -> bool {
        match kind {
            Kind::Recursive | Kind::Upgrade => false,
            Kind::Write | Kind::Upgradable => !self.nobody_waits(),
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
    fn settle(ask: &Ask, notified: bool) {
        // SAFETY: the record's owner never runs again, and borrows the lock for good; or it is a future, whose drop calls this.
        let lock = unsafe { &*ask.lock };
        match (notified, ask.kind) {
            // It was to try.
            (true, _) if (!ask.granted.get()).unless(RwLockLeftTakesATryForAGrant) => {}
            (true, Kind::Read | Kind::Recursive) => lock.unlock_read(),
            (true, Kind::Write) => lock.unlock_write(),
            (true, Kind::Upgradable) => lock.unlock_upgradable(),
            // Its guard stays with it.
            (true, Kind::Upgrade) => unless!(RwLockLeftKeepsTheGrant, lock.downgrade_to_upgradable()),
            (false, _) => lock.let_others_go(lock.queues.lock()),
        }
    }
}

struct Ask {
    lock: *const RawRwLock,
    kind: Kind,
    /// A reader that has tried in vain.
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
            // Acquire: what was done under the lock before; partners all Releases here.
            let acquire = Acquire.unless(RwLockTakeRelaxed);
            match self.word.compare_exchange_weak(seen, Self::with(seen, kind), acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
    }

    /// Takes the lock without waiting, if no earlier waiter waits for it.
    pub(super) fn try_lock_in_line(&self, kind: Kind) -> bool {
        // Relaxed: only whether to look under the lock, where a writer that has it lets no kind in.
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

    /// Locks, until then at most. Returns `false` after that; an interrupt unwinds.
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
                    // Grants the lock to the waiters that this one held back.
                    self.let_others_go(queues);
                    return by.is_some_and(|interrupt| interrupt.throw::<Active>());
                }
            }
        }
    }

    /// For a waiter that was notified: it was granted the lock, or tries.
    fn has_or_takes(&self, ask: &Ask) -> bool {
        mutant!(RwLockTakesATryForAGrant: return true);
        ask.granted.get() || self.try_lock(ask.kind)
    }

    /// With the queues locked: takes the lock, if `kind` is admitted and overtakes no waiter, and returns `true`;
    /// otherwise sets `mark`: QUEUED, for a waiter that is about to queue.
    fn take_or_mark(&self, queues: &mut Queues, kind: Kind, mark: u32) -> bool {
        let first = !queues.come_before(kind);
        // If no waiter is left in the queues, clears a QUEUED that only goroutines that were left behind have kept set.
        let queued = if queues.nobody_waits() { 0 } else { QUEUED };
        let mut seen = self.word.load(Relaxed);
        loop {
            let takes = first && Self::admits(seen, kind);
            let next = if takes { Self::with(seen & !QUEUED, kind) | queued } else { seen | mark };
            // Acquire: as in `try_lock`, with the same partners.
            match self.word.compare_exchange_weak(seen, next, Acquire, Relaxed) {
                Ok(_) => return takes,
                Err(now) => seen = now,
            }
        }
    }

    /// With the queues locked: grants the lock to the waiters that are admitted now, waiters of kind `first` before the
    /// others.
    fn grant(&self, queues: &mut Queues, first: Kind, notified: &mut Notified<Ask>) {
        // Acquire: what was done under the lock before, for the waiters that are notified; partners all Releases here.
        // While a waiter stands in a queue, only readers that leave, or are upgradable no more, change the word besides the
        // holder of the queues' lock (invariant 3). A holder that makes room for a waiter that way comes here next.
        let seen = self.word.load(Acquire.unless(RwLockGrantRelaxed));
        let upgrades = queues.upgrader.first().is_some();
        let granted = |record: &Record<Ask>| record.want.granted.set(true);
        if upgrades && seen & !QUEUED == UPGRADABLE && queues.upgrader.notify(notified).map(granted).is_some()
        {
            // Relaxed: the notified waiter learns of the grant by the wake.
            self.word.fetch_add(WRITER.wrapping_sub(UPGRADABLE), Relaxed);
        }
        // While an upgrade waits no other waiter goes.
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
            // Those that wait behind MANY readers go when these have left.
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
        // Release: a writer comes after what was read; partners all Acquires here.
        let before = self.word.fetch_sub(READER, Release.unless(RwLockReadRelaxed));
        debug_assert!(before >= READER, "unlock_read: nobody reads");
        if before & QUEUED != 0 {
            self.reader_left(before);
        }
    }

    /// The rest of the end of a read that others wait for.
    #[cold]
    fn reader_left(&self, before: u32) {
        mutant!(RwLockLastReaderLeaves: return);
        mutant!(RwLockUpgradeForgotten: if before & UPGRADABLE != 0 { return });
        if before & !UPGRADABLE == READER | QUEUED {
            self.let_others_go(self.queues.lock());
        }
    }

    #[inline]
    pub(super) fn unlock_write(&self) {
        if !self.writer_leaves_alone() {
            self.release_write(0);
        }
    }

    /// As `unlock_write`; the caller calls the wakers of tasks.
    pub(super) fn unlock_write_in_silence(&self) -> Readied<Active> {
        if self.writer_leaves_alone() { Readied::new() } else { self.written(0).ready_in_silence() }
    }

    /// Ends a write while no waiter is queued. Returns `false`, and has done nothing, if others wait.
    #[inline]
    fn writer_leaves_alone(&self) -> bool {
        // Release: what was done under the lock; partners all Acquires here.
        let release = Release.unless(RwLockWriteRelaxed);
        self.word.compare_exchange(WRITER, 0, release, Relaxed).is_ok()
    }

    pub(super) fn unlock_upgradable(&self) {
        self.release_upgradable(0);
    }

    /// The upgradable reader becomes a plain one.
    pub(super) fn downgrade_upgradable(&self) {
        self.release_upgradable(READER);
    }

    fn release_upgradable(&self, becomes: u32) {
        // Release: as in `unlock_read`, with the same partners.
        let release = Release.unless(RwLockUpgradableRelaxed);
        let before = self.word.fetch_add(becomes.wrapping_sub(UPGRADABLE), release);
        debug_assert!(before & UPGRADABLE != 0, "unlock_upgradable: no upgradable reader has the lock");
        if before & QUEUED != 0 {
            mutant!(RwLockUpgradableLeaves: return);
            self.let_others_go(self.queues.lock());
        }
    }

    /// A writer becomes a reader, together with the readers that wait.
    pub(super) fn downgrade(&self) {
        self.downgrade_to(READER);
    }

    /// A writer becomes the upgradable reader, together with readers that wait.
    pub(super) fn downgrade_to_upgradable(&self) {
        self.downgrade_to(UPGRADABLE);
    }

    fn downgrade_to(&self, becomes: u32) {
        // Release: the readers that come see what was written; partners all Acquires here.
        if self.word.compare_exchange(WRITER, becomes, Release, Relaxed).is_err() {
            self.release_write(becomes);
        }
    }

    #[cold]
    fn release_write(&self, becomes: u32) {
        self.written(becomes).ready();
    }

    /// The writer leaves a lock for which others wait. Returns the waiters that have the lock now.
    #[cold]
    fn written(&self, becomes: u32) -> Notified<Ask> {
        let mut notified = Notified::new();
        let mut queues = self.queues.lock();
        // Release: as in `writer_leaves_alone`, with the same partners.
        let before = self.word.fetch_add(becomes.wrapping_sub(WRITER), Release);
        assert!(before & WRITER != 0, "unlock_write: nobody writes");
        self.grant(&mut queues, Kind::Read, &mut notified);
        drop(queues);
        notified
    }

    /// Grants the lock, after the last reader or a waiter without a grant has left.
    #[cold]
    fn let_others_go(&self, mut queues: MutexGuard<'_, Queues>) {
        let mut notified = Notified::new();
        self.grant(&mut queues, Kind::Write, &mut notified);
        drop(queues);
        notified.ready();
    }
}
