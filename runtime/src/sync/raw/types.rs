//! The types of `lock_api` over the raw locks, by parking_lot's names.

use super::{GoroutineOrThread, RawFairMutex, RawMutex};

/// A mutex that its holder may lock again. The holder is a goroutine, on whatever thread it runs, or a plain thread. The guards
/// give only `&T`, and stay with the goroutine or thread; use a `Cell` or a `RefCell` for a value that changes.
///
/// A wait for the lock parks the goroutine, or blocks the plain thread; the wait is never ended from outside
/// ([`raw`](super)). A goroutine that its runtime leaves behind with a guard keeps the lock.
///
/// ```
/// use gmp::sync::ReentrantMutex;
/// use std::cell::Cell;
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let depth = Arc::new(ReentrantMutex::new(Cell::new(1)));
///         let outer = depth.lock();
///         // The goroutine may be on another thread afterwards.
///         gmp::yield_now();
///         depth.lock().set(2);
///         let theirs = Arc::clone(&depth);
///         assert!(gmp::go(move || theirs.try_lock().is_none()).join().unwrap());
///         assert_eq!(outer.get(), 2);
///     })
/// }
/// ```
///
/// A guard belongs to its goroutine, which must not leave it to another one in a `thread_local!`; see
/// [`migration`](crate::migration).
///
/// ```compile_fail,E0277
/// fn sends(_: impl Send) {}
/// let mutex = gmp::sync::ReentrantMutex::new(1);
/// sends(mutex.lock());
/// ```
pub type ReentrantMutex<T> = lock_api::ReentrantMutex<RawMutex, GoroutineOrThread, T>;

/// The guard of a [`ReentrantMutex`].
pub type ReentrantMutexGuard<'a, T> = lock_api::ReentrantMutexGuard<'a, RawMutex, GoroutineOrThread, T>;

/// The guard of a part of the value of a [`ReentrantMutex`].
pub type MappedReentrantMutexGuard<'a, T> =
    lock_api::MappedReentrantMutexGuard<'a, RawMutex, GoroutineOrThread, T>;

/// A mutex whose unlock hands the lock to the waiter that has waited longest: a holder that unlocks and locks again queues
/// behind all waiters. That costs a switch for each lock, and is seldom needed: a [`Mutex`](crate::sync::Mutex) is handed to a
/// waiter that has waited 1 ms.
///
/// A wait for the lock parks the goroutine, or blocks the plain thread; the wait is never ended from outside
/// ([`raw`](super)).
///
/// ```
/// use gmp::sync::FairMutex;
///
/// static TURNS: FairMutex<u32> = FairMutex::new(0);
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let players = [(); 3].map(|()| gmp::go(|| (0..10).for_each(|_| *TURNS.lock() += 1)));
///         players.into_iter().for_each(|player| player.join().unwrap());
///         assert_eq!(*TURNS.lock(), 30);
///     })
/// }
/// ```
pub type FairMutex<T> = lock_api::Mutex<RawFairMutex, T>;

/// The guard of a [`FairMutex`].
pub type FairMutexGuard<'a, T> = lock_api::MutexGuard<'a, RawFairMutex, T>;

/// The guard of a part of the value of a [`FairMutex`].
pub type MappedFairMutexGuard<'a, T> = lock_api::MappedMutexGuard<'a, RawFairMutex, T>;
