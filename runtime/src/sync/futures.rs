//! The types of the futures that `lock_async` and the other such methods of [`sync`](super) return, for use as a field of a
//! struct, or as the future type of a trait.
//!
//! Each of these futures waits in the queue in which goroutines and threads wait, from the first poll that does not end it; the
//! task that has polled last is woken. No poll blocks. A future can be dropped at any time, as its method says. Polled again
//! after its end, a future begins anew. To limit the wait of a future, wrap it in
//! [`time::timeout_async`](crate::time::timeout_async). None of them is `Unpin`, as the place in the queue lies in the future:
//! a field that is polled is pinned with its struct, or is a `Pin<Box<_>>`.
//!
//! ```
//! use gmp::sync::{OwnedSemaphorePermit, Semaphore, futures::AcquireOwned};
//! use std::future::Future;
//! use std::pin::Pin;
//! use std::sync::Arc;
//! use std::task::{Context, Poll};
//!
//! /// A service that is ready for a request when there is a permit for it.
//! struct Limit {
//!     permits: Arc<Semaphore>,
//!     request: Option<Pin<Box<AcquireOwned>>>,
//! }
//!
//! impl Limit {
//!     fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<OwnedSemaphorePermit> {
//!         let permits = &self.permits;
//!         let request = self.request.get_or_insert_with(|| Box::pin(permits.acquire_owned_async(1)));
//!         let permit = std::task::ready!(request.as_mut().poll(cx)).expect("nobody closes it");
//!         self.request = None;
//!         Poll::Ready(permit)
//!     }
//! }
//!
//! let mut limit = Limit { permits: Arc::new(Semaphore::new(1)), request: None };
//! let permit = gmp::block_on(std::future::poll_fn(|cx| limit.poll_ready(cx)));
//! assert_eq!(permit.semaphore().available_permits(), 0);
//! ```

pub use super::barrier::BarrierWait;
pub use super::err_group::ErrGroupWait;
pub use super::wait_group::WaitGroupWait;

use super::event::Hearing;
use super::semaphore::Request;
use super::{
    AcquireError, ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockWriteGuard, Event, Mutex, MutexGuard, OnceLock,
    OwnedSemaphorePermit, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, Semaphore,
    SemaphorePermit, once, raw_mutex, raw_rwlock,
};
use crate::impls::future;
use crate::prim::Arc;

future!(
    /// Locks a mutex, as a future; made by [`Mutex::lock_async`].
    ['a, T: ?Sized] Lock<'a, T> { &'a Mutex<T>, raw_mutex::Locking } -> MutexGuard<'a, T>,
    |mutex| &mutex.raw, |()| mutex.guard()
);
future!(
    /// As [`Lock`], with an `Arc` of the mutex; made by [`Mutex::lock_arc_async`].
    [T: ?Sized] LockArc<T> { Arc<Mutex<T>>, raw_mutex::Locking } -> ArcMutexGuard<T>,
    |mutex| &mutex.raw, |()| ArcMutexGuard::of(mutex)
);
future!(
    /// Locks for reading, as a future; made by [`RwLock::read_async`].
    ['a, T: ?Sized] Read<'a, T> { &'a RwLock<T>, raw_rwlock::Locking } -> RwLockReadGuard<'a, T>,
    |lock| &lock.raw, |()| lock.read_guard()
);
future!(
    /// As [`Read`], with an `Arc` of the lock; made by [`RwLock::read_arc_async`].
    [T: ?Sized] ReadArc<T> { Arc<RwLock<T>>, raw_rwlock::Locking } -> ArcRwLockReadGuard<T>,
    |lock| &lock.raw, |()| ArcRwLockReadGuard::of(lock)
);
future!(
    /// Locks for a read that may become a write, as a future; made by [`RwLock::upgradable_read_async`].
    ['a, T: ?Sized] UpgradableRead<'a, T> { &'a RwLock<T>, raw_rwlock::Locking } -> RwLockUpgradableReadGuard<'a, T>,
    |lock| &lock.raw, |()| lock.upgradable_guard()
);
future!(
    /// Locks for writing, as a future; made by [`RwLock::write_async`].
    ['a, T: ?Sized] Write<'a, T> { &'a RwLock<T>, raw_rwlock::Locking } -> RwLockWriteGuard<'a, T>,
    |lock| &lock.raw, |()| lock.write_guard()
);
future!(
    /// As [`Write`], with an `Arc` of the lock; made by [`RwLock::write_arc_async`].
    [T: ?Sized] WriteArc<T> { Arc<RwLock<T>>, raw_rwlock::Locking } -> ArcRwLockWriteGuard<T>,
    |lock| &lock.raw, |()| ArcRwLockWriteGuard::of(lock)
);
future!(
    /// Takes permits, as a future; made by [`Semaphore::acquire_async`].
    ['a] AcquirePermits<'a> { &'a Semaphore, Request } -> Result<SemaphorePermit<'a>, AcquireError>,
    |semaphore| semaphore, |taken| taken.map(|permits| semaphore.guard(permits))
);
future!(
    /// As [`AcquirePermits`], with an `Arc` of the semaphore; made by [`Semaphore::acquire_owned_async`].
    AcquireOwned { Arc<Semaphore>, Request } -> Result<OwnedSemaphorePermit, AcquireError>,
    |semaphore| semaphore, |taken| taken.map(|permits| semaphore.owned(permits))
);
future!(
    /// Waits for a notification, as a future; made by [`Event::wait_async`].
    ['a] EventWait<'a> { &'a Event, Hearing } -> (),
    |event| event
);
future!(
    /// Waits until there is a value, as a future; made by [`OnceLock::wait_async`].
    ['a, T] OnceLockWait<'a, T> { &'a OnceLock<T>, once::Completion } -> &'a T,
    |cell| &cell.once, |()| cell.get().expect("wait_async: a closure has run to its end")
);
