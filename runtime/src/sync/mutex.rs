//! A lock around a value, for goroutines and threads.

use crate::host::{Active, Clock};
use crate::prim::{UnsafeCell, const_fn};
use crate::sync::futures::Lock;
use crate::sync::guard::{mapped, maps, shows, unlocked};
use crate::sync::raw_mutex::{Locking, RawMutex};
use gmp_timers::Nanos;
use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::DerefMut;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Protects a value: one goroutine or thread at a time. Names and signatures are `parking_lot`'s; nothing poisons.
///
/// A goroutine that has to wait parks, a plain thread sleeps; both may share a mutex. A running goroutine may take a free lock
/// before the waiters do, which is fast; a waiter that has waited 1 ms is handed the lock, so no waiter starves (this is the
/// algorithm of Go's `sync.Mutex`). Without contention, locking and unlocking are one atomic operation each.
///
/// The guard may be held across calls that park, and may be dropped on another thread; holding one is no breach of
/// the contract in [`migration`](crate::migration). A goroutine that its runtime leaves behind with a guard keeps the
/// lock.
///
/// ```
/// use gmp::{go, sync::Mutex};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let count = Arc::new(Mutex::new(0));
///         let adders: Vec<_> = (0..8)
///             .map(|_| {
///                 let count = Arc::clone(&count);
///                 go(move || *count.lock() += 1)
///             })
///             .collect();
///         adders.into_iter().for_each(|adder| adder.join().unwrap());
///         assert_eq!(*count.lock(), 8);
///     })
/// }
/// ```
pub struct Mutex<T: ?Sized> {
    pub(super) raw: RawMutex,
    pub(super) value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    const_fn! {
        /// Makes an unlocked mutex.
        pub fn new(value: T) -> Self {
            Mutex { raw: RawMutex::new(), value: UnsafeCell::new(value) }
        }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(super) fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { mutex: self, unlocks: Unlocks(&self.raw) }
    }

    /// Locks. Blocks the calling goroutine, or the plain thread, until it has the lock. Locking a mutex that the caller
    /// already holds blocks for ever.
    ///
    /// ```
    /// use gmp::sync::Mutex;
    ///
    /// let count = Mutex::new(1);
    /// *count.lock() += 1;
    /// assert_eq!(count.into_inner(), 2);
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock();
        self.guard()
    }

    /// Locks a free mutex; returns `None` if the mutex is locked. Does not block.
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| self.guard())
    }

    /// As [`lock`](Self::lock), for at most `timeout`; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.raw.lock_until(Active::after(timeout)).then(|| self.guard())
    }

    /// As [`lock`](Self::lock), until `timeout` at most; `None` after that.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[must_use = "the guard, if there is one, unlocks as it is dropped"]
    pub fn try_lock_until(&self, timeout: Instant) -> Option<MutexGuard<'_, T>> {
        self.raw.lock_until(Active::nanos(timeout)).then(|| self.guard())
    }

    /// As [`lock`](Self::lock), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)), on plain threads and under other executors, and the task that has polled last is woken.
    /// The future joins the queue, which it shares with goroutines and threads, in its first poll.
    ///
    /// The future can be dropped at any time: a lock that it was handed, or was woken for, goes to the next waiter, and a
    /// future that was not woken leaves the queue. A future that was woken, and is neither polled nor dropped, holds up the
    /// waiters behind it.
    ///
    /// ```
    /// use gmp::sync::Mutex;
    ///
    /// let count = Mutex::new(1);
    /// gmp::block_on(async {
    ///     // A guard may be held across an await.
    ///     let mut held = count.lock_async().await;
    ///     std::future::ready(()).await;
    ///     *held += 1;
    /// });
    /// assert_eq!(count.into_inner(), 2);
    /// ```
    pub fn lock_async(&self) -> Lock<'_, T> {
        Lock::new(self, Locking::new())
    }

    /// As `lock`, until `until` at most, or without a limit.
    #[inline]
    pub(crate) fn lock_within(&self, until: Option<Nanos>) -> Option<MutexGuard<'_, T>> {
        match until {
            Some(until) => self.raw.lock_until(until).then(|| self.guard()),
            None => Some(self.lock()),
        }
    }

    /// Returns `true` if the mutex is locked at this moment.
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }

    /// Returns the value without locking: `&mut self` rules out a guard.
    pub fn get_mut(&mut self) -> &mut T {
        // SAFETY: `&mut self` rules out any other reference to the value.
        self.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Returns the address of the value.
    pub fn data_ptr(&self) -> *mut T {
        // Shared access suffices, as only the address is taken.
        self.value.with(<*const T>::cast_mut)
    }

    /// Unlocks.
    ///
    /// # Safety
    /// The lock is held, and the guard was leaked (`std::mem::forget`); the caller unlocks in the guard's place.
    pub unsafe fn force_unlock(&self) {
        self.raw.unlock();
    }

    /// Locks; an interrupt does not end the wait.
    pub(super) fn lock_surely(&self) -> MutexGuard<'_, T> {
        self.raw.lock_surely();
        self.guard()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(value) => it.field("data", &&*value),
            None => it.field("data", &format_args!("<locked>")),
        };
        it.finish()
    }
}

/// Unlocks when dropped.
struct Unlocks<'a>(&'a RawMutex);

impl Drop for Unlocks<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Holds the lock of a [`Mutex`], and gives access to the value. Dropping the guard unlocks, on any thread, and does
/// not block.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let counter = gmp::sync::Mutex::new(0);
///         gmp::scope(|scope| {
///             for _ in 0..4 {
///                 scope.go(|| {
///                     let mut count = counter.lock();
///                     // A guard may be held across a wait.
///                     gmp::yield_now();
///                     *count += 1;
///                 });
///             }
///         });
///         assert_eq!(counter.into_inner(), 4);
///     })
/// }
/// ```
#[must_use = "dropped at once it unlocks at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    unlocks: Unlocks<'a>,
}

// SAFETY: the guard is a `&mut T`, and any thread may unlock.
unsafe impl<T: ?Sized + Send> Send for MutexGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` and `&Mutex<T>`.
unsafe impl<T: ?Sized + Send + Sync> Sync for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    #[inline]
    fn value(&self) -> &T {
        // SAFETY: the guard holds the lock.
        self.mutex.value.with(|value| unsafe { &*value })
    }

    pub(super) fn raw(&self) -> &'a RawMutex {
        self.unlocks.0
    }

    /// Returns the mutex of this guard.
    pub fn mutex(s: &Self) -> &'a Mutex<T> {
        s.mutex
    }

    fn mapped(self) -> MappedMutexGuard<'a, T> {
        let it = ManuallyDrop::new(self);
        let value = it.mutex.value.with_mut(NonNull::new).expect("a reference is not null");
        MappedMutexGuard { raw: &it.mutex.raw, value, borrows: std::marker::PhantomData }
    }

    /// Unlocks, runs `f`, and locks again. The last step blocks as [`Mutex::lock`] does, and nothing interrupts it. A panic of
    /// `f` propagates with the lock held.
    ///
    /// # Unwinds
    /// When a wait of `f` is ended from outside, with the mutex locked again; see
    /// [`migration`](crate::migration#what-may-unwind). The wait for the lock itself does not unwind.
    pub fn unlocked<U>(s: &mut Self, f: impl FnOnce() -> U) -> U {
        let raw = s.raw();
        unlocked(|| raw.unlock(), f, || raw.lock_surely())
    }

    /// As [`unlocked`](Self::unlocked), and hands the lock to the waiter that has waited longest.
    ///
    /// # Unwinds
    /// As [`unlocked`](Self::unlocked).
    pub fn unlocked_fair<U>(s: &mut Self, f: impl FnOnce() -> U) -> U {
        let raw = s.raw();
        unlocked(|| raw.unlock_fair(), f, || raw.lock_surely())
    }

    /// Leaks the guard: the mutex stays locked, and the caller has the value for as long as the mutex is borrowed.
    ///
    /// ```
    /// use gmp::sync::{Mutex, MutexGuard};
    ///
    /// let mutex = Mutex::new(1);
    /// *MutexGuard::leak(mutex.lock()) += 1;
    /// assert!(mutex.is_locked());
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    pub fn leak(s: Self) -> &'a mut T {
        let mutex = ManuallyDrop::new(s).mutex;
        // SAFETY: the lock is held from here on, and no guard exists that gives the value.
        mutex.value.with_mut(|value| unsafe { &mut *value })
    }

    /// Unlocks, and hands the lock to the waiter that has waited longest.
    pub fn unlock_fair(s: Self) {
        ManuallyDrop::new(s).raw().unlock_fair();
    }

    /// Hands the lock to the waiter that has waited longest, and locks again behind the other waiters: blocks as
    /// [`Mutex::lock`] does. Does nothing if there is no waiter.
    ///
    /// # Unwinds
    /// Never: nothing interrupts the wait for the lock.
    pub fn bump(s: &mut Self) {
        s.raw().unlock_fair();
        s.raw().lock_surely();
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `&mut self` is the only guard.
        self.mutex.value.with_mut(|value| unsafe { &mut *value })
    }
}

shows!(MutexGuard);
maps!(
    /// ```
    /// use gmp::sync::{MappedMutexGuard, Mutex, MutexGuard};
    ///
    /// let line = Mutex::new(vec!["7".to_owned(), "eight".to_owned()]);
    /// let Err((whole, error)) = MutexGuard::try_map_or_err(line.lock(), |line| line.get_mut(5).ok_or("too short")) else {
    ///     panic!("there are two words")
    /// };
    /// assert_eq!((whole.len(), error), (2, "too short"));
    ///
    /// // From the guard that came back to one of its parts, and from that to another.
    /// let word = MutexGuard::try_map_or_err(whole, |line| line.last_mut().ok_or("empty")).unwrap();
    /// let (word, error) = MappedMutexGuard::try_map_or_err(word, |word| word.parse::<u32>().map(|_| word)).unwrap_err();
    /// assert_eq!(format!("{}: {error}", *word), "eight: invalid digit found in string");
    /// ```
    MutexGuard, MappedMutexGuard, (mut), mutex, guard
);

mapped!(
    /// Holds the lock of a [`Mutex`], and gives access to a part of the value. Dropping the guard unlocks, on any
    /// thread.
    MappedMutexGuard, RawMutex, unlock, unlock_fair, as_mut, (mut), Send
);

impl<T: ?Sized> DerefMut for MappedMutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the lock is held, and `&mut self` is the only guard.
        unsafe { self.value.as_mut() }
    }
}
