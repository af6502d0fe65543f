//! A lock around a value that many may read, or one may write; for goroutines and threads.

mod guards;

pub use guards::{
    MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLockReadGuard, RwLockUpgradableReadGuard,
    RwLockWriteGuard,
};

use crate::host::{Active, Clock};
use crate::prim::{UnsafeCell, const_fn};
use crate::sync::futures::{Read, UpgradableRead, Write};
use crate::sync::raw_rwlock::{Kind, Locking, RawRwLock};
use gmp_timers::Nanos;
use std::fmt;
use std::marker::PhantomData;
use std::time::{Duration, Instant};

/// Protects a value: many readers at a time, or one writer. Names and signatures are `parking_lot`'s; nothing poisons.
///
/// A goroutine that has to wait parks, a plain thread sleeps; both may share a lock. A waiting writer holds back new readers,
/// so a goroutine with a read guard must not call [`read`](Self::read) again: with a writer waiting in between, the goroutine
/// would wait for itself. After a writer all waiting readers get the lock together, so neither side starves (the order of Go's
/// `sync.RWMutex`). A reader also waits while the lock has 2²⁸ readers, whose guards must have been leaked.
///
/// The guards may be held across calls that park, and may be dropped on another thread. A goroutine that has a read guard and
/// may read again uses [`read_recursive`](Self::read_recursive); a goroutine that reads to decide whether to write uses
/// [`upgradable_read`](Self::upgradable_read). [`RwLockWriteGuard::downgrade`] makes a write a read.
///
/// ```
/// use gmp::{go, sync::RwLock};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let names = Arc::new(RwLock::new(vec!["g"]));
///         let theirs = Arc::clone(&names);
///         let writer = go(move || theirs.write().push("m"));
///         assert!(names.read().starts_with(&["g"]));
///         writer.join().unwrap();
///         assert_eq!(*names.read(), ["g", "m"]);
///     })
/// }
/// ```
#[doc(alias = "RWMutex")]
pub struct RwLock<T: ?Sized> {
    pub(super) raw: RawRwLock,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the lock owns the value, and nothing else in the lock is bound to a thread.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: the lock gives `&T` to many threads, or the value to one.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

impl<T> RwLock<T> {
    const_fn! {
        /// Makes an unlocked lock.
        pub fn new(value: T) -> Self {
            RwLock { raw: RawRwLock::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    pub(super) fn read_guard(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { lock: self, borrows: PhantomData }
    }

    pub(super) fn write_guard(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { lock: self, borrows: PhantomData }
    }

    pub(super) fn upgradable_guard(&self) -> RwLockUpgradableReadGuard<'_, T> {
        RwLockUpgradableReadGuard { lock: self, borrows: PhantomData }
    }

    /// Locks for reading. Blocks the calling goroutine, or the plain thread, while a writer has the lock or waits.
    ///
    /// ```
    /// use gmp::sync::RwLock;
    ///
    /// let names = RwLock::new(vec!["a"]);
    /// let (first, second) = (names.read(), names.try_read().unwrap());
    /// assert_eq!(first.len(), second.len());
    /// assert!(names.try_write().is_none());
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        self.raw.lock(Kind::Read, None);
        self.read_guard()
    }

    /// Locks for writing. Blocks the calling goroutine, or the plain thread, until there is no reader and no other
    /// writer.
    ///
    /// ```
    /// use gmp::sync::RwLock;
    ///
    /// let names = RwLock::new(vec!["a"]);
    /// names.write().push("b");
    /// assert_eq!(*names.read(), ["a", "b"]);
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.raw.lock(Kind::Write, None);
        self.write_guard()
    }

    /// As [`read`](Self::read), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)), on plain threads and under other executors, and the task that has polled last is woken.
    /// The future joins the queue, which it shares with goroutines and threads, in its first poll.
    ///
    /// The future can be dropped at any time: a lock that it was granted meanwhile goes to the next waiters, and a future
    /// without a grant leaves the queue, and holds no others back. A future that was granted the lock, and is neither polled
    /// nor dropped, keeps the lock.
    ///
    /// ```
    /// use gmp::sync::RwLock;
    ///
    /// let names = RwLock::new(vec!["a"]);
    /// let sum = gmp::block_on(async { names.read_async().await.len() + names.read_async().await.len() });
    /// assert_eq!(sum, 2);
    /// ```
    pub fn read_async(&self) -> Read<'_, T> {
        Read::new(self, Locking::new(Kind::Read))
    }

    /// As [`write`](Self::write), as a future; see [`read_async`](Self::read_async).
    ///
    /// ```
    /// use gmp::sync::RwLock;
    ///
    /// let names = RwLock::new(vec!["a"]);
    /// gmp::block_on(async { names.write_async().await.push("b") });
    /// assert_eq!(names.into_inner(), ["a", "b"]);
    /// ```
    pub fn write_async(&self) -> Write<'_, T> {
        Write::new(self, Locking::new(Kind::Write))
    }

    /// As [`upgradable_read`](Self::upgradable_read), as a future; see [`read_async`](Self::read_async).
    pub fn upgradable_read_async(&self) -> UpgradableRead<'_, T> {
        UpgradableRead::new(self, Locking::new(Kind::Upgradable))
    }

    /// Locks for reading if that is possible at once; returns `None` while a writer has the lock or waits. Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.try_lock_in_line(Kind::Read).then(|| self.read_guard())
    }

    /// Locks for writing if that is possible at once; returns `None` while the lock is held. Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.try_lock(Kind::Write).then(|| self.write_guard())
    }

    /// As [`read`](Self::read), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.lock(Kind::Read, Some(Active::after(timeout))).then(|| self.read_guard())
    }

    /// As [`read`](Self::read), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_until(&self, timeout: Instant) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.lock(Kind::Read, Some(Active::nanos(timeout))).then(|| self.read_guard())
    }

    /// As `read`, until `until` at most.
    pub(crate) fn read_until(&self, until: Option<Nanos>) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.lock(Kind::Read, until).then(|| self.read_guard())
    }

    /// As [`write`](Self::write), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_write_for(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.lock(Kind::Write, Some(Active::after(timeout))).then(|| self.write_guard())
    }

    /// As [`write`](Self::write), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_write_until(&self, timeout: Instant) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.lock(Kind::Write, Some(Active::nanos(timeout))).then(|| self.write_guard())
    }

    /// Locks for reading, also past a waiting writer. Blocks the calling goroutine, or the plain thread, while a writer has the
    /// lock; so the call never blocks a caller that reads already.
    ///
    /// Readers that lock this way again and again starve the writers.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// ```
    /// let names = gmp::sync::RwLock::new(vec!["g"]);
    /// let first = names.read();
    /// assert_eq!(first.len(), names.read_recursive().len());
    /// ```
    pub fn read_recursive(&self) -> RwLockReadGuard<'_, T> {
        self.raw.lock(Kind::Recursive, None);
        self.read_guard()
    }

    /// As [`read_recursive`](Self::read_recursive), if that is possible at once; returns `None` while a writer has the lock.
    /// Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_recursive(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.try_lock_in_line(Kind::Recursive).then(|| self.read_guard())
    }

    /// As [`read_recursive`](Self::read_recursive), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_recursive_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.lock(Kind::Recursive, Some(Active::after(timeout))).then(|| self.read_guard())
    }

    /// As [`read_recursive`](Self::read_recursive), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_read_recursive_until(&self, timeout: Instant) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.lock(Kind::Recursive, Some(Active::nanos(timeout))).then(|| self.read_guard())
    }

    /// Locks for a read that may become a write, without another writer in between. Other readers may read meanwhile, but there
    /// is only one upgradable read at a time. Blocks the calling goroutine, or the plain thread, while there is another
    /// upgradable read or a writer, or while an earlier caller waits.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// ```
    /// use gmp::sync::{RwLock, RwLockUpgradableReadGuard};
    ///
    /// let cache = RwLock::new(vec![1, 2]);
    /// let looks = cache.upgradable_read();
    /// if !looks.contains(&3) {
    ///     // The values that it has seen are unchanged.
    ///     RwLockUpgradableReadGuard::upgrade(looks).push(3);
    /// }
    /// assert_eq!(*cache.read(), [1, 2, 3]);
    /// ```
    pub fn upgradable_read(&self) -> RwLockUpgradableReadGuard<'_, T> {
        self.raw.lock(Kind::Upgradable, None);
        self.upgradable_guard()
    }

    /// As [`upgradable_read`](Self::upgradable_read), if that is possible at once; returns `None` otherwise. Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_upgradable_read(&self) -> Option<RwLockUpgradableReadGuard<'_, T>> {
        self.raw.try_lock(Kind::Upgradable).then(|| self.upgradable_guard())
    }

    /// As [`upgradable_read`](Self::upgradable_read), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_upgradable_read_for(&self, timeout: Duration) -> Option<RwLockUpgradableReadGuard<'_, T>> {
        self.raw.lock(Kind::Upgradable, Some(Active::after(timeout))).then(|| self.upgradable_guard())
    }

    /// As [`upgradable_read`](Self::upgradable_read), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_upgradable_read_until(&self, timeout: Instant) -> Option<RwLockUpgradableReadGuard<'_, T>> {
        self.raw.lock(Kind::Upgradable, Some(Active::nanos(timeout))).then(|| self.upgradable_guard())
    }

    /// Returns `true` if a writer or a reader holds the lock at this moment.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// Returns `true` if a writer holds the lock at this moment.
    pub fn is_locked_exclusive(&self) -> bool {
        self.raw.is_locked_exclusive()
    }

    /// Returns the value without locking: `&mut self` rules out a guard.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` rules out any other reference to the value.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns the address of the value.
    pub fn data_ptr(&self) -> *mut T {
        self.value.with(<*const T>::cast_mut)
    }

    /// Ends a read.
    ///
    /// # Safety
    /// A read guard was leaked (`std::mem::forget`); the caller ends that guard's read.
    pub unsafe fn force_unlock_read(&self) {
        self.raw.unlock_read();
    }

    /// Ends a write.
    ///
    /// # Safety
    /// The write guard was leaked (`std::mem::forget`); the caller ends that guard's write.
    pub unsafe fn force_unlock_write(&self) {
        self.raw.unlock_write();
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("RwLock");
        match self.try_read() {
            Some(value) => it.field("data", &&*value),
            None => it.field("data", &format_args!("<locked>")),
        };
        it.finish()
    }
}
