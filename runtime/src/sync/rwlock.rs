//! A lock around a value that many may read, or one may write; for goroutines and threads.

use crate::host::{Active, Clock};
use crate::prim::{UnsafeCell, const_fn};
use crate::sync::guard::{mapped, shows};
use crate::sync::raw_rwlock::{Kind, RawRwLock};
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::DerefMut;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Protects a value: many readers at a time, or one writer. Names and signatures are `parking_lot`'s; nothing poisons.
///
/// A goroutine that has to wait parks, a plain thread sleeps; both may share a lock. A waiting writer holds back new
/// readers, so a goroutine with a read guard must not call [`read`](Self::read) again: with a writer waiting in
/// between, the goroutine would wait for itself. After a writer all waiting readers go together, so neither side
/// starves (the order of Go's `sync.RWMutex`).
///
/// The guards may be held across calls that park, and may be dropped on another thread.
/// There is no upgradable read, and no read that passes a waiting writer, as `parking_lot`'s `read_recursive` does.
/// [`RwLockWriteGuard::downgrade`] makes a write a read.
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
    raw: RawRwLock,
    value: UnsafeCell<T>,
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

    /// The value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    fn read_guard(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard { lock: self, borrows: PhantomData }
    }

    fn write_guard(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard { lock: self, borrows: PhantomData }
    }

    /// Locks for reading. Blocks the calling goroutine, or the plain thread, while a writer has the lock or waits.
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
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.raw.lock(Kind::Write, None);
        self.write_guard()
    }

    /// Locks for reading if that is possible at once; `None` while a writer has the lock or waits. Does not block.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.try_lock(Kind::Read).then(|| self.read_guard())
    }

    /// Locks for writing if that is possible at once; `None` while the lock is held. Does not block.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.try_lock(Kind::Write).then(|| self.write_guard())
    }

    /// As [`read`](Self::read), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn try_read_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, T>> {
        let until = Active::now().saturating_add(timeout);
        self.raw.lock(Kind::Read, Some(until)).then(|| self.read_guard())
    }

    /// As [`read`](Self::read), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn try_read_until(&self, timeout: Instant) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.lock(Kind::Read, Some(Active::nanos(timeout))).then(|| self.read_guard())
    }

    /// As [`write`](Self::write), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn try_write_for(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, T>> {
        let until = Active::now().saturating_add(timeout);
        self.raw.lock(Kind::Write, Some(until)).then(|| self.write_guard())
    }

    /// As [`write`](Self::write), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn try_write_until(&self, timeout: Instant) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.lock(Kind::Write, Some(Active::nanos(timeout))).then(|| self.write_guard())
    }

    /// Returns `true` if the lock is held, by a writer or readers, at this moment.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// Returns `true` if the lock is held by a writer at this moment.
    pub fn is_locked_exclusive(&self) -> bool {
        self.raw.is_locked_exclusive()
    }

    /// Returns the value without locking: by `&mut self` there is no guard.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: by `&mut self` there is no other reference to the value.
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

/// Holds an [`RwLock`] for reading, and gives access to the value. Dropping the guard ends the read, on any thread,
/// and does not block.
#[must_use = "dropped at once it unlocks at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    borrows: PhantomData<*const T>,
}

/// Holds an [`RwLock`] for writing, and gives access to the value. Dropping the guard unlocks, on any thread, and
/// does not block.
#[must_use = "dropped at once it unlocks at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    borrows: PhantomData<*mut T>,
}

// SAFETY: the guard is a `&T`, and any thread may end the read.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: the guard is a `&mut T`, and any thread may unlock.
unsafe impl<T: ?Sized + Send> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    #[inline]
    fn value(&self) -> &T {
        // SAFETY: the lock is held for reading.
        self.lock.value.with(|value| unsafe { &*value })
    }

    /// Returns the lock of this guard.
    pub fn rwlock(s: &Self) -> &'a RwLock<T> {
        s.lock
    }

    /// A guard of a part of the value.
    pub fn map<U: ?Sized>(s: Self, f: impl FnOnce(&T) -> &U) -> MappedRwLockReadGuard<'a, U> {
        MappedRwLockReadGuard::map(s.mapped(), f)
    }

    /// A guard of a part of the value, or `s` again, where there is no such part.
    ///
    /// # Errors
    /// `s`, if `f` returns `None`.
    pub fn try_map<U: ?Sized>(
        s: Self,
        f: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedRwLockReadGuard<'a, U>, Self> {
        Self::try_map_or_err(s, |value| f(value).ok_or(())).map_err(|(s, ())| s)
    }

    /// A guard of a part of the value, or `s` again with the error of `f`, which says why there is no such part.
    ///
    /// # Errors
    /// `s` and the error of `f`; the lock is held throughout.
    ///
    /// ```
    /// use gmp::sync::{RwLock, RwLockReadGuard};
    ///
    /// let limits = RwLock::new(vec![10, 20]);
    /// let (limits, error) = RwLockReadGuard::try_map_or_err(limits.read(), |all| all.get(2).ok_or("no third")).unwrap_err();
    /// assert_eq!((limits.len(), error), (2, "no third"));
    /// let first = RwLockReadGuard::try_map_or_err(limits, |all| all.first().ok_or("empty")).unwrap();
    /// assert_eq!(*first, 10);
    /// ```
    pub fn try_map_or_err<U: ?Sized, E>(
        s: Self,
        f: impl FnOnce(&T) -> Result<&U, E>,
    ) -> Result<MappedRwLockReadGuard<'a, U>, (Self, E)> {
        let lock = s.lock;
        MappedRwLockReadGuard::try_map_or_err(s.mapped(), f).map_err(|(whole, error)| {
            std::mem::forget(whole);
            (lock.read_guard(), error)
        })
    }

    fn mapped(self) -> MappedRwLockReadGuard<'a, T> {
        let lock = ManuallyDrop::new(self).lock;
        let value = NonNull::new(lock.data_ptr()).expect("a reference is not null");
        MappedRwLockReadGuard { raw: &lock.raw, value, borrows: PhantomData }
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    #[inline]
    fn value(&self) -> &T {
        // SAFETY: the lock is held.
        self.lock.value.with(|value| unsafe { &*value })
    }

    /// Returns the lock of this guard.
    pub fn rwlock(s: &Self) -> &'a RwLock<T> {
        s.lock
    }

    /// Makes the write a read, and lets the waiting readers in. No writer comes in between.
    pub fn downgrade(s: Self) -> RwLockReadGuard<'a, T> {
        let lock = ManuallyDrop::new(s).lock;
        lock.raw.downgrade();
        lock.read_guard()
    }

    /// A guard of a part of the value.
    pub fn map<U: ?Sized>(s: Self, f: impl FnOnce(&mut T) -> &mut U) -> MappedRwLockWriteGuard<'a, U> {
        MappedRwLockWriteGuard::map(s.mapped(), f)
    }

    /// A guard of a part of the value, or `s` again, where there is no such part.
    ///
    /// # Errors
    /// `s`, if `f` returns `None`.
    pub fn try_map<U: ?Sized>(
        s: Self,
        f: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U>, Self> {
        Self::try_map_or_err(s, |value| f(value).ok_or(())).map_err(|(s, ())| s)
    }

    /// A guard of a part of the value, or `s` again with the error of `f`, which says why there is no such part.
    ///
    /// # Errors
    /// `s` and the error of `f`; the lock is held throughout.
    ///
    /// ```
    /// use gmp::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let limits = RwLock::new(vec![10, 20]);
    /// let (whole, error) =
    ///     RwLockWriteGuard::try_map_or_err(limits.write(), |all| all.get_mut(2).ok_or("no third")).unwrap_err();
    /// assert_eq!((whole.len(), error), (2, "no third"));
    /// *RwLockWriteGuard::try_map_or_err(whole, |all| all.first_mut().ok_or("empty")).unwrap() = 5;
    /// assert_eq!(*limits.read(), [5, 20]);
    /// ```
    pub fn try_map_or_err<U: ?Sized, E>(
        s: Self,
        f: impl FnOnce(&mut T) -> Result<&mut U, E>,
    ) -> Result<MappedRwLockWriteGuard<'a, U>, (Self, E)> {
        let lock = s.lock;
        MappedRwLockWriteGuard::try_map_or_err(s.mapped(), f).map_err(|(whole, error)| {
            std::mem::forget(whole);
            (lock.write_guard(), error)
        })
    }

    fn mapped(self) -> MappedRwLockWriteGuard<'a, T> {
        let lock = ManuallyDrop::new(self).lock;
        let value = NonNull::new(lock.data_ptr()).expect("a reference is not null");
        MappedRwLockWriteGuard { raw: &lock.raw, value, borrows: PhantomData }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `&mut self` is the only guard.
        self.lock.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_read();
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_write();
    }
}

shows!(RwLockReadGuard);
shows!(RwLockWriteGuard);

mapped!(
    /// Holds an [`RwLock`] for reading, and gives access to a part of the value. Dropping the guard ends the read, on
    /// any thread.
    MappedRwLockReadGuard, RawRwLock, unlock_read, as_ref, (), Sync
);
mapped!(
    /// Holds an [`RwLock`] for writing, and gives access to a part of the value. Dropping the guard unlocks, on any
    /// thread.
    MappedRwLockWriteGuard, RawRwLock, unlock_write, as_mut, (mut), Send
);

impl<T: ?Sized> DerefMut for MappedRwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `&mut self` is the only guard.
        unsafe { self.value.as_mut() }
    }
}
