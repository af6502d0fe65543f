//! The futures of [`sync`](super), by name: what `lock_async` and its like return. So a future can be a field of a
//! struct, or the future type of a trait.
//!
//! Each of these futures waits in the queue in which goroutines and threads wait, from the first poll that does not end
//! it; the task that has polled last is woken. No poll blocks. A future may be dropped at any time, as its method says.
//! Polled again after its end, a future begins anew. To limit the wait of one, put
//! [`time::timeout_async`](crate::time::timeout_async) around it. None of them is `Unpin`, as the place in the queue lies
//! in the future: a field that is polled is pinned with its struct, or is a `Pin<Box<_>>`.
//!
//! ```
//! use gmp::sync::{OwnedSemaphorePermit, Semaphore, futures::AcquireOwned};
//! use std::future::Future;
//! use std::pin::Pin;
//! use std::sync::Arc;
//! use std::task::{Context, Poll};
//!
//! /// Is ready for a request when there is a permit for it.
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
pub use super::event::EventWait;
pub use super::wait_group::WaitGroupWait;

use super::semaphore::Request;
use super::{
    AcquireError, ArcMutexGuard, ArcRwLockReadGuard, ArcRwLockWriteGuard, Mutex, MutexGuard,
    OwnedSemaphorePermit, RwLock, RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard, Semaphore,
    SemaphorePermit, raw_mutex, raw_rwlock,
};
use crate::prim::Arc;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future with a name: what it waits for, and the wait, which the drop ends. `$of` is what the wait is polled with, and
/// `$take` what comes of its end.
macro_rules! future {
    (
        $(#[$doc:meta])*
        $name:ident [$($declared:tt)*] [$($used:tt)*] { $owner:ty, $wait:ty } -> $output:ty,
        |$it:ident| $of:expr, $take:expr
    ) => {
        $(#[$doc])*
        #[must_use = "a future does nothing unless it is polled"]
        pub struct $name<$($declared)*> {
            owner: $owner,
            wait: $wait,
        }

        impl<$($declared)*> $name<$($used)*> {
            pub(super) fn new(owner: $owner, wait: $wait) -> Self {
                $name { owner, wait }
            }

            fn parts(self: Pin<&mut Self>) -> (&$owner, Pin<&mut $wait>) {
                // SAFETY: `wait` is pinned with the future; nothing moves it.
                unsafe {
                    let this = self.get_unchecked_mut();
                    (&this.owner, Pin::new_unchecked(&mut this.wait))
                }
            }
        }

        impl<$($declared)*> Future for $name<$($used)*> {
            type Output = $output;

            fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<$output> {
                let ($it, wait) = self.parts();
                wait.poll($of, cx).map($take)
            }
        }

        impl<$($declared)*> Drop for $name<$($used)*> {
            fn drop(&mut self) {
                // SAFETY: the future is dropped where it was pinned, if it was polled, and is not moved any more.
                let ($it, wait) = unsafe { Pin::new_unchecked(self) }.parts();
                wait.leave($of);
            }
        }

        impl<$($declared)*> fmt::Debug for $name<$($used)*> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($name)).finish_non_exhaustive()
            }
        }
    };
}

future!(
    /// Locks a mutex, as a future; made by [`Mutex::lock_async`].
    Lock ['a, T: ?Sized] ['a, T] { &'a Mutex<T>, raw_mutex::Locking } -> MutexGuard<'a, T>,
    |mutex| &mutex.raw, |()| mutex.guard()
);
future!(
    /// As [`Lock`], with an `Arc` of the mutex; made by [`Mutex::lock_arc_async`].
    LockArc [T: ?Sized] [T] { Arc<Mutex<T>>, raw_mutex::Locking } -> ArcMutexGuard<T>,
    |mutex| &mutex.raw, |()| ArcMutexGuard::of(mutex)
);
future!(
    /// Locks for reading, as a future; made by [`RwLock::read_async`].
    Read ['a, T: ?Sized] ['a, T] { &'a RwLock<T>, raw_rwlock::Locking } -> RwLockReadGuard<'a, T>,
    |lock| &lock.raw, |()| lock.read_guard()
);
future!(
    /// As [`Read`], with an `Arc` of the lock; made by [`RwLock::read_arc_async`].
    ReadArc [T: ?Sized] [T] { Arc<RwLock<T>>, raw_rwlock::Locking } -> ArcRwLockReadGuard<T>,
    |lock| &lock.raw, |()| ArcRwLockReadGuard::of(lock)
);
future!(
    /// Locks for a read that may become a write, as a future; made by [`RwLock::upgradable_read_async`].
    UpgradableRead ['a, T: ?Sized] ['a, T] { &'a RwLock<T>, raw_rwlock::Locking } -> RwLockUpgradableReadGuard<'a, T>,
    |lock| &lock.raw, |()| lock.upgradable_guard()
);
future!(
    /// Locks for writing, as a future; made by [`RwLock::write_async`].
    Write ['a, T: ?Sized] ['a, T] { &'a RwLock<T>, raw_rwlock::Locking } -> RwLockWriteGuard<'a, T>,
    |lock| &lock.raw, |()| lock.write_guard()
);
future!(
    /// As [`Write`], with an `Arc` of the lock; made by [`RwLock::write_arc_async`].
    WriteArc [T: ?Sized] [T] { Arc<RwLock<T>>, raw_rwlock::Locking } -> ArcRwLockWriteGuard<T>,
    |lock| &lock.raw, |()| ArcRwLockWriteGuard::of(lock)
);
future!(
    /// Takes permits, as a future; made by [`Semaphore::acquire_async`].
    AcquirePermits ['a] ['a] { &'a Semaphore, Request } -> Result<SemaphorePermit<'a>, AcquireError>,
    |semaphore| semaphore, |taken| taken.map(|permits| semaphore.guard(permits))
);
future!(
    /// As [`AcquirePermits`], with an `Arc` of the semaphore; made by [`Semaphore::acquire_owned_async`].
    AcquireOwned [] [] { Arc<Semaphore>, Request } -> Result<OwnedSemaphorePermit, AcquireError>,
    |semaphore| semaphore, |taken| taken.map(|permits| semaphore.owned(permits))
);
