//! The locks of [`Mutex`](super::Mutex) and [`RwLock`](super::RwLock) without the value, by the traits of the crate
//! `lock_api` 0.5: for locks of your own, and for code that is generic over them.
//!
//! ```
//! use gmp::sync::raw::RawMutex;
//!
//! /// A mutex with the whole interface of `lock_api`, and its guard.
//! type Mutex<T> = lock_api::Mutex<RawMutex, T>;
//! type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
//!
//! static NAMES: Mutex<Vec<&str>> = Mutex::new(Vec::new());
//!
//! fn named<'a>() -> MutexGuard<'a, Vec<&'static str>> {
//!     NAMES.lock()
//! }
//! named().push("g");
//! assert_eq!(*NAMES.lock(), ["g"]);
//! ```
//!
//! A goroutine that waits for one of these locks parks, a plain thread sleeps. *These waits are never ended from outside*:
//! neither by a context, nor by the end of the runtime, which waits for them within its time limit. After `unlocked`,
//! `lock_api` locks again in a destructor, and aborts the process if that unwinds. The locks of [`sync`](super) itself do not
//! have that restriction, and their waits unwind; a wait with a limit (`try_lock_for`) ends by itself. The guards may be held
//! across calls that park, and those that are `Send` may be dropped on another thread.
//!
//! *Versions.* These traits and types are part of this crate's interface: your `lock_api` has to be a 0.5, too. A release of
//! this crate that needs another 0.x of `lock_api`, or a 1.x, is one that breaks the interface, and has such a number itself.

pub(super) mod types;

use crate::g::GRef;
use crate::host::{Active, Clock};
use crate::m::M;
use crate::prim::ThreadIdentity;
use crate::sync::raw_mutex;
use crate::sync::raw_rwlock::{self, Kind};
use lock_api::{GetThreadId, GuardSend};
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

/// The lock of [`Mutex`](super::Mutex): running goroutines may barge, and a waiter that has waited 1 ms is handed the lock.
/// An uncontended lock and unlock are one atomic operation each.
///
/// ```
/// use lock_api::RawMutex as _;
///
/// static LOCK: gmp::sync::raw::RawMutex = gmp::sync::raw::RawMutex::INIT;
/// let held = LOCK.lock();
/// assert!(LOCK.is_locked() && LOCK.try_lock().is_none());
/// // SAFETY: `held` is the state of the lock above.
/// unsafe { LOCK.unlock(held) };
/// ```
pub struct RawMutex(raw_mutex::RawMutex);

/// As [`RawMutex`]; each unlock hands the lock to the waiter that has waited longest, as `unlock_fair` does.
pub struct RawFairMutex(raw_mutex::RawMutex);

/// The lock of [`RwLock`](super::RwLock): it is granted to waiters in phases, so a waiting writer holds back new readers and
/// each unlock is fair. One upgradable reader can hold the lock beside others.
///
/// ```
/// use lock_api::RawRwLock as _;
///
/// static LOCK: gmp::sync::raw::RawRwLock = gmp::sync::raw::RawRwLock::INIT;
/// let reads = LOCK.lock_shared();
/// assert!(LOCK.is_locked() && LOCK.try_lock_exclusive().is_none());
/// // SAFETY: `reads` is the state of the read above.
/// unsafe { LOCK.unlock_shared(reads) };
/// ```
pub struct RawRwLock(raw_rwlock::RawRwLock);

/// Tells goroutines and plain threads apart, for [`ReentrantMutex`](super::ReentrantMutex): a goroutine keeps its identity on
/// whatever thread it runs; a plain thread has its own.
///
/// ```
/// use gmp::sync::raw::GoroutineOrThread;
/// use lock_api::GetThreadId;
///
/// let whoami = || GoroutineOrThread::INIT.nonzero_thread_id();
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(move || {
///         let main = whoami();
///         assert_ne!(gmp::go(whoami).join().unwrap(), main);
///         gmp::yield_now();
///         assert_eq!(whoami(), main);
///     })
/// }
/// ```
pub struct GoroutineOrThread(ThreadIdentity);

// SAFETY: the address of a goroutine's G is unique while the goroutine lives, and differs from the address of a thread's
// variable, which identifies the thread. A thread's own identity is used only if no goroutine runs on it. A guard, which is not
// `Send`, stays with its goroutine, by the sixth clause of `migration`.
unsafe impl GetThreadId for GoroutineOrThread {
    const INIT: Self = GoroutineOrThread(ThreadIdentity::INIT);

    fn nonzero_thread_id(&self) -> NonZeroUsize {
        match M::<Active>::current().and_then(M::g) {
            Some(g) => GRef::get(g).addr(),
            None => self.0.nonzero_thread_id(),
        }
    }
}

/// The implementations of a mutex, which differ in how they unlock.
macro_rules! raw_mutex {
    ($name:ident, $unlock:ident) => {
        // SAFETY: `sync/raw_mutex.rs`: one holder at a time, with Acquire and Release. Nothing unwinds; any thread may
        // unlock.
        unsafe impl lock_api::RawMutex for $name {
            const INIT: Self = $name(raw_mutex::RawMutex::new());
            type Guard = GuardSend;

            #[inline]
            fn lock(&self) -> GuardSend {
                self.0.lock_surely();
                GuardSend::new()
            }

            #[inline]
            fn try_lock(&self) -> Option<GuardSend> {
                self.0.try_lock().then(GuardSend::new)
            }

            #[inline]
            unsafe fn unlock(&self, _: GuardSend) {
                self.0.$unlock();
            }

            fn is_locked(&self) -> bool {
                self.0.is_locked()
            }
        }

        // SAFETY: as for `lock_api::RawMutex` above.
        unsafe impl lock_api::RawMutexFair for $name {
            unsafe fn unlock_fair(&self, _: GuardSend) {
                self.0.unlock_fair();
            }

            unsafe fn bump(&self, _: &mut GuardSend) {
                self.0.unlock_fair();
                self.0.lock_surely();
            }
        }

        // SAFETY: as for `lock_api::RawMutex` above.
        unsafe impl lock_api::RawMutexTimed for $name {
            type Duration = Duration;
            type Instant = Instant;

            fn try_lock_for(&self, timeout: Duration) -> Option<GuardSend> {
                self.0.lock_surely_until(Active::after(timeout)).then(GuardSend::new)
            }

            fn try_lock_until(&self, timeout: Instant) -> Option<GuardSend> {
                self.0.lock_surely_until(Active::nanos(timeout)).then(GuardSend::new)
            }
        }
    };
}

raw_mutex!(RawMutex, unlock);
raw_mutex!(RawFairMutex, unlock_fair);

/// The waits of [`Condvar`](super::Condvar), for a [`RawMutex`]. Waiters are woken in order, and never spuriously. These waits
/// can be ended from outside, with the mutex locked again, as `lock_api` allows here.
///
/// ```
/// use gmp::sync::raw::{RawCondvar, RawMutex};
///
/// static READY: lock_api::Mutex<RawMutex, bool> = lock_api::Mutex::new(false);
/// static CHANGED: lock_api::Condvar<RawCondvar> = lock_api::Condvar::new();
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         gmp::go(|| {
///             *READY.lock() = true;
///             CHANGED.notify_one();
///         });
///         CHANGED.wait_while(&mut READY.lock(), |ready| !*ready);
///     })
/// }
/// ```
pub struct RawCondvar(super::Condvar);

// SAFETY: `sync/condvar.rs`: the mutex is unlocked under the lock of the queue, and locked again before the wait returns or
// unwinds. The guard's marker carries no state.
unsafe impl lock_api::RawCondvar for RawCondvar {
    const INIT: Self = RawCondvar(super::Condvar::new());
    type RawMutex = RawMutex;

    #[track_caller]
    unsafe fn wait(&self, mutex: &RawMutex, _: &mut GuardSend) {
        let _notified = self.0.wait_in(&mutex.0, None);
    }

    fn notify_one(&self) -> bool {
        self.0.notify_one()
    }

    fn notify_all(&self) -> usize {
        self.0.notify_all()
    }
}

// SAFETY: as for `lock_api::RawCondvar` above.
unsafe impl lock_api::RawCondvarTimed for RawCondvar {
    fn checked_duration_to_instant(timeout: &Duration) -> Option<Instant> {
        Active::instant(Active::now()).checked_add(*timeout)
    }

    #[track_caller]
    unsafe fn wait_until(&self, mutex: &RawMutex, _: &mut GuardSend, timeout: &Instant) -> bool {
        self.0.wait_in(&mutex.0, Some(Active::nanos(*timeout))).timed_out()
    }
}

impl RawRwLock {
    fn wait(&self, kind: Kind) -> GuardSend {
        let _locked = self.0.lock_surely(kind, None);
        GuardSend::new()
    }

    fn wait_for(&self, kind: Kind, timeout: Duration) -> Option<GuardSend> {
        self.0.lock_surely(kind, Some(Active::after(timeout))).then(GuardSend::new)
    }

    fn wait_until(&self, kind: Kind, timeout: Instant) -> Option<GuardSend> {
        self.0.lock_surely(kind, Some(Active::nanos(timeout))).then(GuardSend::new)
    }
}

// SAFETY: `sync/raw_rwlock.rs`: readers, or one writer, with Acquire and Release. Nothing unwinds; any thread may unlock.
unsafe impl lock_api::RawRwLock for RawRwLock {
    const INIT: Self = RawRwLock(raw_rwlock::RawRwLock::new());
    type SharedGuard = GuardSend;
    type ExclusiveGuard = GuardSend;

    #[inline]
    fn lock_shared(&self) -> GuardSend {
        self.wait(Kind::Read)
    }

    #[inline]
    fn try_lock_shared(&self) -> Option<GuardSend> {
        self.0.try_lock_in_line(Kind::Read).then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock_shared(&self, _: GuardSend) {
        self.0.unlock_read();
    }

    #[inline]
    fn lock_exclusive(&self) -> GuardSend {
        self.wait(Kind::Write)
    }

    #[inline]
    fn try_lock_exclusive(&self) -> Option<GuardSend> {
        self.0.try_lock(Kind::Write).then(GuardSend::new)
    }

    #[inline]
    unsafe fn unlock_exclusive(&self, _: GuardSend) {
        self.0.unlock_write();
    }

    fn is_locked(&self) -> bool {
        self.0.is_locked()
    }

    fn is_locked_exclusive(&self) -> bool {
        self.0.is_locked_exclusive()
    }
}

// SAFETY: as for `lock_api::RawRwLock` above; each unlock grants the lock to waiters.
unsafe impl lock_api::RawRwLockFair for RawRwLock {
    unsafe fn unlock_shared_fair(&self, _: GuardSend) {
        self.0.unlock_read();
    }

    unsafe fn unlock_exclusive_fair(&self, _: GuardSend) {
        self.0.unlock_write();
    }
}

// SAFETY: as for `lock_api::RawRwLock` above.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self, _: GuardSend) -> GuardSend {
        self.0.downgrade();
        GuardSend::new()
    }
}

// SAFETY: as for `lock_api::RawRwLock` above.
unsafe impl lock_api::RawRwLockTimed for RawRwLock {
    type Duration = Duration;
    type Instant = Instant;

    fn try_lock_shared_for(&self, timeout: Duration) -> Option<GuardSend> {
        self.wait_for(Kind::Read, timeout)
    }

    fn try_lock_shared_until(&self, timeout: Instant) -> Option<GuardSend> {
        self.wait_until(Kind::Read, timeout)
    }

    fn try_lock_exclusive_for(&self, timeout: Duration) -> Option<GuardSend> {
        self.wait_for(Kind::Write, timeout)
    }

    fn try_lock_exclusive_until(&self, timeout: Instant) -> Option<GuardSend> {
        self.wait_until(Kind::Write, timeout)
    }
}

// SAFETY: as for `lock_api::RawRwLock` above. The upgrade acquires what all the readers have released, by the exchange or
// by the grant of the last reader.
unsafe impl lock_api::RawRwLockUpgrade for RawRwLock {
    type UpgradableGuard = GuardSend;

    fn lock_upgradable(&self) -> GuardSend {
        self.wait(Kind::Upgradable)
    }

    fn try_lock_upgradable(&self) -> Option<GuardSend> {
        self.0.try_lock(Kind::Upgradable).then(GuardSend::new)
    }

    unsafe fn unlock_upgradable(&self, _: GuardSend) {
        self.0.unlock_upgradable();
    }

    unsafe fn upgrade(&self, _: GuardSend) -> GuardSend {
        self.wait(Kind::Upgrade)
    }

    unsafe fn try_upgrade(&self, guard: GuardSend) -> Result<GuardSend, GuardSend> {
        if self.0.try_lock_in_line(Kind::Upgrade) { Ok(GuardSend::new()) } else { Err(guard) }
    }
}

// SAFETY: as for `lock_api::RawRwLock` above.
unsafe impl lock_api::RawRwLockUpgradeFair for RawRwLock {
    unsafe fn unlock_upgradable_fair(&self, _: GuardSend) {
        self.0.unlock_upgradable();
    }
}

// SAFETY: as for `lock_api::RawRwLock` above.
unsafe impl lock_api::RawRwLockUpgradeDowngrade for RawRwLock {
    unsafe fn downgrade_upgradable(&self, _: GuardSend) -> GuardSend {
        self.0.downgrade_upgradable();
        GuardSend::new()
    }

    unsafe fn downgrade_to_upgradable(&self, _: GuardSend) -> GuardSend {
        self.0.downgrade_to_upgradable();
        GuardSend::new()
    }
}

// SAFETY: as for `lock_api::RawRwLock` above.
unsafe impl lock_api::RawRwLockUpgradeTimed for RawRwLock {
    fn try_lock_upgradable_for(&self, timeout: Duration) -> Option<GuardSend> {
        self.wait_for(Kind::Upgradable, timeout)
    }

    fn try_lock_upgradable_until(&self, timeout: Instant) -> Option<GuardSend> {
        self.wait_until(Kind::Upgradable, timeout)
    }

    unsafe fn try_upgrade_for(&self, guard: GuardSend, timeout: Duration) -> Result<GuardSend, GuardSend> {
        self.wait_for(Kind::Upgrade, timeout).ok_or(guard)
    }

    unsafe fn try_upgrade_until(&self, guard: GuardSend, timeout: Instant) -> Result<GuardSend, GuardSend> {
        self.wait_until(Kind::Upgrade, timeout).ok_or(guard)
    }
}
