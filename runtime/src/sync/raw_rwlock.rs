//! The lock of an [`RwLock`](super::RwLock) without the value.
//!
//! ```text
//!   word:  READER ×   the number of readers
//!          WRITER     a writer has the lock
//!          QUEUED     a waiter stands in a queue. Changes under the lock of the queues
//! ```
//! While no waiter is queued, a read begins and ends with one exchange or addition, and so does a write. With QUEUED
//! set no thread takes the lock by itself: the lock is *granted* to waiters, under the lock of the queues, in phases.
//! After a writer all waiting readers go together, or, if none waits, the next writer; after the last reader a writer
//! goes. So a waiting writer holds back new readers and waits only for the readers before it, and a waiting reader
//! waits for one writer. (The order of Go's `sync.RWMutex`; there the writers wait in a mutex of their own.)
//!
//! A waiter that leaves a queue without a grant, by its time limit or an interrupt, grants as an unlock does: the
//! readers behind a writer that has left go on at once. For a goroutine that its runtime leaves behind in a queue the
//! abandon hook does so, and releases a grant that the goroutine never used.
//!
//! Invariants, whenever the lock of the queues is free:
//! 1. QUEUED is set if and only if a waiter stands in a queue.
//! 2. With QUEUED set, the lock is held, or the last reader is on its way to grant it.
//!
//! Checked by `models/rwlock.rs`.

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Mutex, MutexGuard, Rank, Relaxed, Release, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, WaitQueue, wait_in};
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;

const WRITER: u32 = 1;
const QUEUED: u32 = 2;
const READER: u32 = 4;
/// The limit of the count above which no reader takes the lock by itself: so many guards can only have been leaked.
/// The other half of the range is for waiters in the queue, which are granted the lock without a check; each has a
/// stack or a thread, so they never fill it.
const MOST: u32 = 1 << 31;

/// What a caller wants the lock for.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Read,
    Write,
}

/// The lock.
pub(super) struct RawRwLock {
    word: AtomicU32,
    queues: Mutex<Both>,
}

struct Both {
    readers: WaitQueue<Ask>,
    writers: WaitQueue<Ask>,
}

impl HasWaitQueue for Both {
    type Want = Ask;
    fn waiters(&mut self, want: &Ask) -> &mut WaitQueue<Ask> {
        match want.kind {
            Kind::Read => &mut self.readers,
            Kind::Write => &mut self.writers,
        }
    }
    fn settle(ask: &Ask, notified: bool) {
        // SAFETY: the record's owner never runs again, and borrows the lock for good.
        let lock = unsafe { &*ask.lock };
        match (notified, ask.kind) {
            (true, Kind::Read) => lock.unlock_read(),
            (true, Kind::Write) => lock.unlock_write(),
            (false, _) => lock.let_others_go(lock.queues.lock()),
        }
    }
}

struct Ask {
    lock: *const RawRwLock,
    kind: Kind,
}

// SAFETY: the lock is Sync.
unsafe impl Send for Ask {}

impl RawRwLock {
    const_fn! {
        pub(super) fn new() -> Self {
            RawRwLock {
                word: AtomicU32::new(0),
                queues: Mutex::new(Rank::WaitQueue, Both { readers: WaitQueue::new(), writers: WaitQueue::new() }),
            }
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.word.load(Relaxed) & !QUEUED != 0
    }

    pub(super) fn is_locked_exclusive(&self) -> bool {
        self.word.load(Relaxed) & WRITER != 0
    }

    /// Takes the lock without waiting, if that overtakes no waiter.
    #[inline]
    pub(super) fn try_lock(&self, kind: Kind) -> bool {
        let mut seen = self.word.load(Relaxed);
        while Self::admits(seen, kind) && seen & QUEUED == 0 {
            // Acquire: what was done under the lock before; partners all Releases here.
            let acquire = Acquire.unless(RwLockTakeRelaxed);
            match self.word.compare_exchange_weak(seen, Self::with(seen, kind), acquire, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    fn admits(seen: u32, kind: Kind) -> bool {
        match kind {
            Kind::Read => seen & WRITER == 0,
            Kind::Write => seen & !QUEUED == 0,
        }
    }

    fn with(seen: u32, kind: Kind) -> u32 {
        match kind {
            Kind::Read => {
                assert!(seen < MOST, "RwLock: too many readers");
                seen + READER
            }
            Kind::Write => seen | WRITER,
        }
    }

    /// Locks, until then at most. Returns `false` after that; an interrupt unwinds.
    #[inline]
    pub(super) fn lock(&self, kind: Kind, until: Option<Nanos>) -> bool {
        self.try_lock(kind) || self.lock_slow(kind, until)
    }

    #[cold]
    fn lock_slow(&self, kind: Kind, until: Option<Nanos>) -> bool {
        let reason = match kind {
            Kind::Read => WaitReason::RwLockRead,
            Kind::Write => WaitReason::RwLockWrite,
        };
        let wait = Wait::begin();
        let mut queues = self.queues.lock();
        if self.join_queue(&mut queues, kind) {
            drop(queues);
            wait.withdraw();
            return true;
        }
        let ask = Ask { lock: self, kind };
        match wait_in(wait, &self.queues, queues, (ask, Position::Back), How::new(reason).until(until)) {
            Ok(_granted) => true,
            Err(Left { state: queues, by }) => {
                mutant!(RwLockLeavesQuietly: drop(queues); return by.is_some_and(|interrupt| interrupt.throw::<Active>()));
                // Grants the lock to the waiters that this one held back.
                self.let_others_go(queues);
                by.is_some_and(|interrupt| interrupt.throw::<Active>())
            }
        }
    }

    /// With the queues locked: takes the lock, if `kind` is admitted and overtakes no waiter, and returns `true`;
    /// otherwise sets QUEUED, for a waiter that is about to queue.
    fn join_queue(&self, queues: &mut Both, kind: Kind) -> bool {
        // `first` removes records of goroutines that their runtime has left behind: they hold no waiter back.
        let alone = queues.writers.first().is_none() && queues.readers.first().is_none();
        let mut seen = self.word.load(Relaxed);
        loop {
            // With too many readers the caller waits: there must be no panic under the lock.
            let takes = alone && Self::admits(seen, kind) && seen < MOST;
            // If no waiter is left in the queues, clears a QUEUED that only goroutines that were left behind have
            // kept set.
            let next = if takes { Self::with(seen & !QUEUED, kind) } else { seen | QUEUED };
            // Acquire: as in `try_lock`, with the same partners.
            match self.word.compare_exchange_weak(seen, next, Acquire, Relaxed) {
                Ok(_) => return takes,
                Err(now) => seen = now,
            }
        }
    }

    /// With the queues locked: grants the lock to the waiters that are admitted now, waiters of kind `first` before the
    /// others.
    fn grant(&self, queues: &mut Both, first: Kind, notified: &mut Notified<Ask>) {
        // Acquire: what was done under the lock before, for the waiters that are notified; partners all Releases here.
        // While a waiter stands in a queue, only readers that leave change the word besides the holder of the queues'
        // lock; the last of these readers comes here.
        let seen = self.word.load(Acquire.unless(RwLockGrantRelaxed));
        let mut writes = seen & WRITER != 0;
        let readers_first = first == Kind::Read && queues.readers.first().is_some();
        if seen & !QUEUED == 0 && !readers_first && queues.writers.notify(notified).is_some() {
            // Relaxed: the notified writer learns of the grant by the wake.
            self.word.fetch_or(WRITER, Relaxed);
            writes = true;
        }
        if !writes && (readers_first || queues.writers.first().is_none()) {
            while queues.readers.notify(notified).is_some() {
                // Relaxed: as above.
                self.word.fetch_add(READER, Relaxed);
            }
        }
        if queues.readers.is_empty() && queues.writers.is_empty() {
            // Relaxed: QUEUED is set and cleared under the lock of the queues only.
            self.word.fetch_and(!QUEUED, Relaxed);
        }
    }

    #[inline]
    pub(super) fn unlock_read(&self) {
        // Release: a writer comes after what was read; partners all Acquires here.
        let before = self.word.fetch_sub(READER, Release.unless(RwLockReadRelaxed));
        debug_assert!(before >= READER, "unlock_read: nobody reads");
        if before == READER | QUEUED {
            mutant!(RwLockLastReaderLeaves: return);
            self.let_others_go(self.queues.lock());
        }
    }

    #[inline]
    pub(super) fn unlock_write(&self) {
        // Release: what was done under the lock; partners all Acquires here.
        let release = Release.unless(RwLockWriteRelaxed);
        if self.word.compare_exchange(WRITER, 0, release, Relaxed).is_err() {
            self.release_write(0);
        }
    }

    /// A writer becomes a reader, together with the readers that wait.
    pub(super) fn downgrade(&self) {
        // Release: the readers that come see what was written; partners all Acquires here.
        if self.word.compare_exchange(WRITER, READER, Release, Relaxed).is_err() {
            self.release_write(READER);
        }
    }

    #[cold]
    fn release_write(&self, becomes: u32) {
        let mut notified = Notified::new();
        let mut queues = self.queues.lock();
        // Release: as in `unlock_write`, with the same partners.
        let before = self.word.fetch_add(becomes.wrapping_sub(WRITER), Release);
        assert!(before & WRITER != 0, "unlock_write: nobody writes");
        self.grant(&mut queues, Kind::Read, &mut notified);
        drop(queues);
        notified.ready();
    }

    /// Grants the lock, after the last reader or a waiter without a grant has left.
    #[cold]
    fn let_others_go(&self, mut queues: MutexGuard<'_, Both>) {
        let mut notified = Notified::new();
        self.grant(&mut queues, Kind::Write, &mut notified);
        drop(queues);
        notified.ready();
    }
}
