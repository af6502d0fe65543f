//! The guards of an [`RwLock`], and their conversions.

use super::RwLock;
use crate::host::{Active, Clock};
use crate::sync::guard::{lets_others_in, mapped, maps, shows, upgrades, writes_meanwhile};
use crate::sync::raw_rwlock::{Kind, RawRwLock};
use crate::wait::task::Readied;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::DerefMut;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Holds an [`RwLock`] for reading, and gives access to the value. Dropping the guard ends the read, on any thread,
/// and does not block.
///
/// ```
/// use gmp::sync::{RwLock, RwLockReadGuard};
///
/// let pair = RwLock::new((1, "one"));
/// let name = RwLockReadGuard::map(pair.read(), |pair| &pair.1);
/// assert_eq!(*name, "one");
/// drop(name);
/// assert!(pair.try_write().is_some());
/// ```
/// The guard is `Send` only if the value is `Send`, too, as the guard gives access to the lock
/// ([`rwlock`](Self::rwlock)):
///
/// ```compile_fail,E0277
/// let held = std::sync::Mutex::new(());
/// let lock = gmp::sync::RwLock::new(held.lock().unwrap());
/// let guard = lock.read();
/// std::thread::scope(|threads| threads.spawn(move || drop(guard)).join());
/// ```
#[must_use = "dropped at once it unlocks at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    pub(super) lock: &'a RwLock<T>,
    pub(super) borrows: PhantomData<*const T>,
}

/// Holds an [`RwLock`] for a read that may become a write, and gives access to the value. Dropping the guard ends the read,
/// on any thread, and does not block.
///
/// ```
/// use gmp::sync::{RwLock, RwLockUpgradableReadGuard};
///
/// let names = RwLock::new(vec!["a"]);
/// let guard = names.upgradable_read();
/// if !guard.contains(&"b") {
///     // No other writer comes in between.
///     RwLockUpgradableReadGuard::upgrade(guard).push("b");
/// }
/// assert_eq!(*names.read(), ["a", "b"]);
/// ```
#[must_use = "dropped at once it unlocks at once"]
pub struct RwLockUpgradableReadGuard<'a, T: ?Sized> {
    pub(super) lock: &'a RwLock<T>,
    pub(super) borrows: PhantomData<*mut T>,
}

/// Holds an [`RwLock`] for writing, and gives access to the value. Dropping the guard unlocks, on any thread, and
/// does not block.
///
/// ```
/// use gmp::sync::{RwLock, RwLockWriteGuard};
///
/// let names = RwLock::new(vec!["a"]);
/// let mut guard = names.write();
/// guard.push("b");
/// // Others may read from here on, and none has written in between.
/// let guard = RwLockWriteGuard::downgrade(guard);
/// assert_eq!(guard.len(), names.try_read().unwrap().len());
/// ```
/// The guard is `Send` only if the value is `Sync`, too, as the guard can become a reader's on the other thread:
///
/// ```compile_fail,E0277
/// let lock = gmp::sync::RwLock::new(std::cell::Cell::new(1));
/// let guard = lock.write();
/// std::thread::scope(|threads| threads.spawn(move || drop(guard)).join());
/// ```
#[must_use = "dropped at once it unlocks at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    pub(super) lock: &'a RwLock<T>,
    pub(super) borrows: PhantomData<*mut T>,
}

// Each guard gives a reference to its lock, and a writer's guard can become a reader's, beside readers on other threads: so to
// send or share a guard is to send and share the value. SAFETY: the guard is a `&T` and a `&RwLock<T>`, and any thread may end
// the read.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: the guard is a `&T`, a `&RwLock<T>`, and becomes a `&mut T`; any thread may end the read.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockUpgradableReadGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` and `&RwLock<T>`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockUpgradableReadGuard<'_, T> {}
// SAFETY: the guard is a `&mut T`, becomes a `&T`, and any thread may unlock.
unsafe impl<T: ?Sized + Send + Sync> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` and `&RwLock<T>`.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLockWriteGuard<'_, T> {}

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

    fn mapped(self) -> MappedRwLockReadGuard<'a, T> {
        let lock = ManuallyDrop::new(self).lock;
        let value = NonNull::new(lock.data_ptr()).expect("a reference is not null");
        MappedRwLockReadGuard { raw: &lock.raw, value, borrows: PhantomData }
    }
}

impl<'a, T: ?Sized> RwLockUpgradableReadGuard<'a, T> {
    #[inline]
    fn value(&self) -> &T {
        // SAFETY: the lock is held for reading.
        self.lock.value.with(|value| unsafe { &*value })
    }

    /// Returns the lock of this guard.
    pub fn rwlock(s: &Self) -> &'a RwLock<T> {
        s.lock
    }

    fn upgraded(self) -> RwLockWriteGuard<'a, T> {
        ManuallyDrop::new(self).lock.write_guard()
    }

    /// Makes the upgradable read a plain one, so another caller can have the upgradable read.
    pub fn downgrade(s: Self) -> RwLockReadGuard<'a, T> {
        let lock = ManuallyDrop::new(s).lock;
        lock.raw.downgrade_upgradable();
        lock.read_guard()
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

    /// Makes the write a read that may become a write again, and lets the waiting readers in. No writer comes in between.
    pub fn downgrade_to_upgradable(s: Self) -> RwLockUpgradableReadGuard<'a, T> {
        let lock = ManuallyDrop::new(s).lock;
        lock.raw.downgrade_to_upgradable();
        lock.upgradable_guard()
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

impl<T: ?Sized> Drop for RwLockUpgradableReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_upgradable();
    }
}

impl<T: ?Sized> RwLockWriteGuard<'_, T> {
    /// As the drop, but leaves it to the caller to call the wakers of tasks.
    pub(crate) fn unlock_in_silence(this: Self) -> Readied<Active> {
        ManuallyDrop::new(this).lock.raw.unlock_write_in_silence()
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unlock_write();
    }
}

shows!(RwLockReadGuard);
shows!(RwLockUpgradableReadGuard);
shows!(RwLockWriteGuard);

lets_others_in!(RwLockReadGuard<'_>, read, Read, unlock_read);
lets_others_in!(RwLockUpgradableReadGuard<'_>, upgradable_read, Upgradable, unlock_upgradable);
lets_others_in!(RwLockWriteGuard<'_>, write, Write, unlock_write);
writes_meanwhile!(RwLockUpgradableReadGuard<'_>, upgradable_read);
upgrades!(
    /// ```
    /// use gmp::sync::{RwLock, RwLockUpgradableReadGuard};
    ///
    /// let lock = RwLock::new(1);
    /// let read = lock.upgradable_read();
    /// if *read == 1 {
    ///     *RwLockUpgradableReadGuard::upgrade(read) = 2;
    /// }
    /// assert_eq!(*lock.read(), 2);
    /// ```
    RwLockUpgradableReadGuard<'a>, RwLockWriteGuard
);
maps!(
    /// ```
    /// use gmp::sync::{RwLock, RwLockReadGuard};
    ///
    /// let limits = RwLock::new(vec![10, 20]);
    /// let (limits, error) = RwLockReadGuard::try_map_or_err(limits.read(), |all| all.get(2).ok_or("no third")).unwrap_err();
    /// assert_eq!((limits.len(), error), (2, "no third"));
    /// let first = RwLockReadGuard::try_map_or_err(limits, |all| all.first().ok_or("empty")).unwrap();
    /// assert_eq!(*first, 10);
    /// ```
    RwLockReadGuard, MappedRwLockReadGuard, (), lock, read_guard
);
maps!(
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
    RwLockWriteGuard, MappedRwLockWriteGuard, (mut), lock, write_guard
);

mapped!(
    /// Holds an [`RwLock`] for reading, and gives access to a part of the value. Dropping the guard ends the read, on
    /// any thread.
    MappedRwLockReadGuard, RawRwLock, unlock_read, unlock_read, as_ref, (), Sync
);
mapped!(
    /// Holds an [`RwLock`] for writing, and gives access to a part of the value. Dropping the guard unlocks, on any
    /// thread.
    MappedRwLockWriteGuard, RawRwLock, unlock_write, unlock_write, as_mut, (mut), Send
);

impl<T: ?Sized> DerefMut for MappedRwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `&mut self` is the only guard.
        unsafe { self.value.as_mut() }
    }
}
