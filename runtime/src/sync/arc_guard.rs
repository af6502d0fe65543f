//! Guards that own an `Arc` of their lock, in place of a borrow: they can be stored, returned, and sent to goroutines.

use crate::host::{Active, Clock};
use crate::prim::Arc;
use crate::sync::futures::{LockArc, ReadArc, WriteArc};
use crate::sync::guard::{lets_others_in, unlocked, upgrades, writes_meanwhile};
use crate::sync::mutex::Mutex;
use crate::sync::raw_rwlock::Kind;
use crate::sync::rwlock::RwLock;
use crate::sync::{raw_mutex, raw_rwlock};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::ptr;
use std::time::{Duration, Instant};

/// The common part of the guards that own an `Arc` of their lock.
macro_rules! arc_guard {
    ($(#[$doc:meta])* $guard:ident, $lock:ident, $unlock:ident, $accessor:ident, $bound:path) => {
        $(#[$doc])*
        #[must_use = "dropped at once it unlocks at once"]
        pub struct $guard<T: ?Sized> {
            lock: Arc<$lock<T>>,
            /// The bounds of the guard are written out below.
            bounds: std::marker::PhantomData<*mut ()>,
        }

        // SAFETY: any thread may unlock; this `Arc` may be the last one, which drops the value. A guard of an `RwLock` also
        // gives the `Arc` of the lock, and a writer's guard can become a reader's beside those of other threads: so such a
        // guard requires `Sync`, too.
        unsafe impl<T: ?Sized + Send + $bound> Send for $guard<T> {}
        // SAFETY: a shared guard gives `&T`, and the `Arc` of a lock that is Sync.
        unsafe impl<T: ?Sized + Send + Sync> Sync for $guard<T> {}

        impl<T: ?Sized> $guard<T> {
            /// Makes the guard of a lock that the caller holds.
            pub(super) fn of(lock: &Arc<$lock<T>>) -> Self {
                Self::holds(Arc::clone(lock))
            }

            /// As `of`.
            fn holds(lock: Arc<$lock<T>>) -> Self {
                $guard { lock, bounds: std::marker::PhantomData }
            }

            /// Returns the lock of this guard.
            pub fn $accessor(s: &Self) -> &Arc<$lock<T>> {
                &s.lock
            }

            /// Unlocks, and returns the lock.
            pub fn into_arc(s: Self) -> Arc<$lock<T>> {
                let lock = s.disarm();
                lock.raw.$unlock();
                lock
            }

            /// Returns the lock, which stays held.
            fn disarm(self) -> Arc<$lock<T>> {
                let it = ManuallyDrop::new(self);
                // SAFETY: read once, from a guard that is never dropped.
                unsafe { ptr::read(&it.lock) }
            }
        }

        impl<T: ?Sized> Deref for $guard<T> {
            type Target = T;
            fn deref(&self) -> &T {
                // SAFETY: the lock is held.
                self.lock.value.with(|value| unsafe { &*value })
            }
        }

        impl<T: ?Sized> Drop for $guard<T> {
            fn drop(&mut self) {
                self.lock.raw.$unlock();
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $guard<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display> fmt::Display for $guard<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

/// A guard that may also change the value.
macro_rules! changes {
    ($guard:ident) => {
        impl<T: ?Sized> DerefMut for $guard<T> {
            fn deref_mut(&mut self) -> &mut T {
                // SAFETY: the lock is held, and `&mut self` is the only guard.
                self.lock.value.with_mut(|value| unsafe { &mut *value })
            }
        }
    };
}

arc_guard!(
    /// Holds the lock of a [`Mutex`] by an `Arc`, and gives access to the value. Dropping the guard unlocks, on any
    /// thread, and does not block. [`Mutex::lock_arc`] has an example.
    ArcMutexGuard, Mutex, unlock, mutex, Send
);
arc_guard!(
    /// Holds an [`RwLock`] for reading by an `Arc`, and gives access to the value. Dropping the guard ends the read, on
    /// any thread, and does not block.
    ArcRwLockReadGuard, RwLock, unlock_read, rwlock, Sync
);
arc_guard!(
    /// Holds an [`RwLock`] by an `Arc` for a read that may become a write, and gives access to the value. Dropping the
    /// guard ends the read, on any thread, and does not block.
    ArcRwLockUpgradableReadGuard, RwLock, unlock_upgradable, rwlock, Sync
);
arc_guard!(
    /// Holds an [`RwLock`] for writing by an `Arc`, and gives access to the value. Dropping the guard unlocks, on any
    /// thread, and does not block.
    ArcRwLockWriteGuard, RwLock, unlock_write, rwlock, Sync
);
changes!(ArcMutexGuard);
changes!(ArcRwLockWriteGuard);
lets_others_in!(ArcRwLockReadGuard, read_arc, Read, unlock_read);
lets_others_in!(ArcRwLockUpgradableReadGuard, upgradable_read_arc, Upgradable, unlock_upgradable);
lets_others_in!(ArcRwLockWriteGuard, write_arc, Write, unlock_write);
writes_meanwhile!(ArcRwLockUpgradableReadGuard, upgradable_read_arc);
upgrades!(ArcRwLockUpgradableReadGuard, ArcRwLockWriteGuard);

impl<T: ?Sized> Mutex<T> {
    /// As [`lock`](Self::lock), with a guard that owns an `Arc` of the mutex.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// ```
    /// use gmp::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let total = Arc::new(Mutex::new(1));
    ///         let mut held = total.lock_arc();
    ///         // The guard goes to another goroutine, which unlocks.
    ///         gmp::go(move || *held += 1).join().unwrap();
    ///         assert_eq!(*total.lock(), 2);
    ///     })
    /// }
    /// ```
    pub fn lock_arc(self: &Arc<Self>) -> ArcMutexGuard<T> {
        self.raw.lock();
        ArcMutexGuard::of(self)
    }

    /// As [`lock_async`](Self::lock_async), with a guard that owns an `Arc` of the mutex. The future owns one, too, so it can
    /// be spawned.
    ///
    /// ```
    /// use gmp::sync::Mutex;
    /// use std::sync::Arc;
    ///
    /// let total = Arc::new(Mutex::new(1));
    /// let locks = total.lock_arc_async();
    /// std::thread::spawn(|| *gmp::block_on(locks) += 1).join().unwrap();
    /// assert_eq!(*total.lock(), 2);
    /// ```
    pub fn lock_arc_async(self: &Arc<Self>) -> LockArc<T> {
        LockArc::new(Arc::clone(self), raw_mutex::Locking::new())
    }

    /// As [`lock_arc`](Self::lock_arc) if the mutex is free; returns `None` if it is locked. Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_lock_arc(self: &Arc<Self>) -> Option<ArcMutexGuard<T>> {
        self.raw.try_lock().then(|| ArcMutexGuard::of(self))
    }

    /// As [`lock_arc`](Self::lock_arc), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_lock_arc_for(self: &Arc<Self>, timeout: Duration) -> Option<ArcMutexGuard<T>> {
        self.raw.lock_until(Active::after(timeout)).then(|| ArcMutexGuard::of(self))
    }

    /// As [`lock_arc`](Self::lock_arc), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_lock_arc_until(self: &Arc<Self>, timeout: Instant) -> Option<ArcMutexGuard<T>> {
        self.raw.lock_until(Active::nanos(timeout)).then(|| ArcMutexGuard::of(self))
    }
}

impl<T: ?Sized> ArcMutexGuard<T> {
    /// Unlocks, and hands the lock to the waiter that has waited longest.
    pub fn unlock_fair(s: Self) {
        drop(Self::into_arc_fair(s));
    }

    /// As [`unlock_fair`](Self::unlock_fair), and returns the mutex.
    pub fn into_arc_fair(s: Self) -> Arc<Mutex<T>> {
        let lock = s.disarm();
        lock.raw.unlock_fair();
        lock
    }

    /// Hands the lock to the waiter that has waited longest, and locks again behind the other waiters: blocks as
    /// [`Mutex::lock`] does. Does nothing if there is no waiter.
    ///
    /// # Unwinds
    /// Never: nothing interrupts the wait for the lock.
    pub fn bump(s: &mut Self) {
        s.lock.raw.unlock_fair();
        s.lock.raw.lock_surely();
    }

    /// Unlocks, runs `f`, and locks again, as [`MutexGuard::unlocked`](super::MutexGuard::unlocked) does.
    ///
    /// # Unwinds
    /// When a wait of `f` is ended from outside, with the mutex locked again; see
    /// [`migration`](crate::migration#what-may-unwind). The wait for the lock itself does not unwind.
    pub fn unlocked<U>(s: &mut Self, f: impl FnOnce() -> U) -> U {
        let raw = &s.lock.raw;
        unlocked(|| raw.unlock(), f, || raw.lock_surely())
    }

    /// As [`unlocked`](Self::unlocked), and hands the lock to the waiter that has waited longest.
    ///
    /// # Unwinds
    /// As [`unlocked`](Self::unlocked).
    pub fn unlocked_fair<U>(s: &mut Self, f: impl FnOnce() -> U) -> U {
        let raw = &s.lock.raw;
        unlocked(|| raw.unlock_fair(), f, || raw.lock_surely())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// As [`read`](Self::read), with a guard that owns an `Arc` of the lock.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn read_arc(self: &Arc<Self>) -> ArcRwLockReadGuard<T> {
        self.raw.lock(Kind::Read, None);
        ArcRwLockReadGuard::of(self)
    }

    /// As [`read_async`](Self::read_async), with a guard that owns an `Arc` of the lock. The future owns one, too, so it can be
    /// spawned.
    pub fn read_arc_async(self: &Arc<Self>) -> ReadArc<T> {
        ReadArc::new(Arc::clone(self), raw_rwlock::Locking::new(Kind::Read))
    }

    /// As [`write_async`](Self::write_async), with a guard that owns an `Arc` of the lock. The future owns one, too, so it can
    /// be spawned.
    ///
    /// ```
    /// use gmp::sync::RwLock;
    /// use std::sync::Arc;
    ///
    /// let names = Arc::new(RwLock::new(vec!["g"]));
    /// let writes = names.write_arc_async();
    /// std::thread::spawn(|| gmp::block_on(writes).push("m")).join().unwrap();
    /// assert_eq!(*gmp::block_on(names.read_arc_async()), ["g", "m"]);
    /// ```
    pub fn write_arc_async(self: &Arc<Self>) -> WriteArc<T> {
        WriteArc::new(Arc::clone(self), raw_rwlock::Locking::new(Kind::Write))
    }

    /// As [`read_arc`](Self::read_arc) if that is possible at once; returns `None` otherwise. Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_arc(self: &Arc<Self>) -> Option<ArcRwLockReadGuard<T>> {
        self.raw.try_lock_in_line(Kind::Read).then(|| ArcRwLockReadGuard::of(self))
    }

    /// As [`read_arc`](Self::read_arc), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_arc_for(self: &Arc<Self>, timeout: Duration) -> Option<ArcRwLockReadGuard<T>> {
        self.raw.lock(Kind::Read, Some(Active::after(timeout))).then(|| ArcRwLockReadGuard::of(self))
    }

    /// As [`read_arc`](Self::read_arc), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_arc_until(self: &Arc<Self>, timeout: Instant) -> Option<ArcRwLockReadGuard<T>> {
        self.raw.lock(Kind::Read, Some(Active::nanos(timeout))).then(|| ArcRwLockReadGuard::of(self))
    }

    /// As [`write`](Self::write), with a guard that owns an `Arc` of the lock.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// ```
    /// use gmp::sync::{ArcRwLockWriteGuard, RwLock};
    /// use std::sync::Arc;
    ///
    /// let names = Arc::new(RwLock::new(Vec::new()));
    /// let mut writes = names.write_arc();
    /// writes.push("g");
    /// let reads = ArcRwLockWriteGuard::downgrade(writes);
    /// assert_eq!((reads.len(), names.try_read_arc().is_some()), (1, true));
    /// ```
    pub fn write_arc(self: &Arc<Self>) -> ArcRwLockWriteGuard<T> {
        self.raw.lock(Kind::Write, None);
        ArcRwLockWriteGuard::of(self)
    }

    /// As [`write_arc`](Self::write_arc) if that is possible at once; returns `None` otherwise. Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_write_arc(self: &Arc<Self>) -> Option<ArcRwLockWriteGuard<T>> {
        self.raw.try_lock(Kind::Write).then(|| ArcRwLockWriteGuard::of(self))
    }

    /// As [`write_arc`](Self::write_arc), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_write_arc_for(self: &Arc<Self>, timeout: Duration) -> Option<ArcRwLockWriteGuard<T>> {
        self.raw.lock(Kind::Write, Some(Active::after(timeout))).then(|| ArcRwLockWriteGuard::of(self))
    }

    /// As [`write_arc`](Self::write_arc), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_write_arc_until(self: &Arc<Self>, timeout: Instant) -> Option<ArcRwLockWriteGuard<T>> {
        self.raw.lock(Kind::Write, Some(Active::nanos(timeout))).then(|| ArcRwLockWriteGuard::of(self))
    }

    /// As [`upgradable_read`](Self::upgradable_read), with a guard that owns an `Arc` of the lock.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn upgradable_read_arc(self: &Arc<Self>) -> ArcRwLockUpgradableReadGuard<T> {
        self.raw.lock(Kind::Upgradable, None);
        ArcRwLockUpgradableReadGuard::of(self)
    }

    /// As [`upgradable_read_arc`](Self::upgradable_read_arc) if that is possible at once; returns `None` otherwise. Does not
    /// block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_upgradable_read_arc(self: &Arc<Self>) -> Option<ArcRwLockUpgradableReadGuard<T>> {
        self.raw.try_lock(Kind::Upgradable).then(|| ArcRwLockUpgradableReadGuard::of(self))
    }

    /// As [`upgradable_read_arc`](Self::upgradable_read_arc), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_upgradable_read_arc_for(
        self: &Arc<Self>,
        timeout: Duration,
    ) -> Option<ArcRwLockUpgradableReadGuard<T>> {
        self.raw
            .lock(Kind::Upgradable, Some(Active::after(timeout)))
            .then(|| ArcRwLockUpgradableReadGuard::of(self))
    }

    /// As [`upgradable_read_arc`](Self::upgradable_read_arc), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_upgradable_read_arc_until(
        self: &Arc<Self>,
        timeout: Instant,
    ) -> Option<ArcRwLockUpgradableReadGuard<T>> {
        self.raw
            .lock(Kind::Upgradable, Some(Active::nanos(timeout)))
            .then(|| ArcRwLockUpgradableReadGuard::of(self))
    }
}

impl<T: ?Sized> ArcRwLockWriteGuard<T> {
    /// Makes the write a read, and lets the waiting readers in. No writer comes in between.
    pub fn downgrade(s: Self) -> ArcRwLockReadGuard<T> {
        let lock = s.disarm();
        lock.raw.downgrade();
        ArcRwLockReadGuard::holds(lock)
    }

    /// Makes the write a read that may become a write again, and lets the waiting readers in. No writer comes in between.
    pub fn downgrade_to_upgradable(s: Self) -> ArcRwLockUpgradableReadGuard<T> {
        let lock = s.disarm();
        lock.raw.downgrade_to_upgradable();
        ArcRwLockUpgradableReadGuard::holds(lock)
    }
}

impl<T: ?Sized> ArcRwLockUpgradableReadGuard<T> {
    fn upgraded(self) -> ArcRwLockWriteGuard<T> {
        ArcRwLockWriteGuard::holds(self.disarm())
    }

    /// Makes the upgradable read a plain one, so another caller can have the upgradable read.
    pub fn downgrade(s: Self) -> ArcRwLockReadGuard<T> {
        let lock = s.disarm();
        lock.raw.downgrade_upgradable();
        ArcRwLockReadGuard::holds(lock)
    }
}
