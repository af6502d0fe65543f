//! Guards of permits, which give them back.

use super::{
    AcquireContextError, AcquireError, AcquireTimeoutError, Refused, Semaphore, TryAcquireError, how,
};
use crate::context::Context;
use crate::host::{Active, Clock};
use crate::prim::Arc;
use crate::wait::interrupt::OnInterrupt;
use gmp_timers::Nanos;
use std::fmt;
use std::time::{Duration, Instant};

/// A guard of permits. `$of` is the guard's reference to its semaphore, and `$shows` the expression that returns the semaphore.
macro_rules! permit {
    ($(#[$doc:meta])* $guard:ident $(<$lifetime:lifetime>)?, $of:ty, |$it:ident| $shows:expr => $shown:ty) => {
        $(#[$doc])*
        #[must_use = "the permits are given back as the guard is dropped"]
        pub struct $guard$(<$lifetime>)? {
            semaphore: $of,
            permits: usize,
        }

        impl$(<$lifetime>)? $guard$(<$lifetime>)? {
            /// Returns the number of permits that the guard holds.
            pub fn num_permits(&self) -> usize {
                self.permits
            }

            /// Returns the semaphore.
            pub fn semaphore(&self) -> $shown {
                let $it = self;
                $shows
            }

            /// Drops the guard, and leaves the permits taken. [`Semaphore::release`] gives them back.
            pub fn forget(mut self) {
                self.permits = 0;
            }

            /// Moves `permits` out of the guard into a guard of their own. Returns `None` if the guard holds fewer.
            pub fn split(&mut self, permits: usize) -> Option<Self> {
                self.permits = self.permits.checked_sub(permits)?;
                Some($guard { semaphore: Clone::clone(&self.semaphore), permits })
            }

            /// Adds the permits of `other`, which this guard then gives back with its own.
            ///
            /// # Panics
            /// If the two belong to different semaphores; then `other` gives its permits back.
            #[track_caller]
            pub fn merge(&mut self, mut other: Self) {
                let same = std::ptr::eq::<Semaphore>(&raw const *self.semaphore, &raw const *other.semaphore);
                assert!(same, "merge: the permits are of another semaphore");
                self.permits += std::mem::take(&mut other.permits);
            }
        }

        impl$(<$lifetime>)? Drop for $guard$(<$lifetime>)? {
            fn drop(&mut self) {
                if self.permits > 0 {
                    self.semaphore.release(self.permits);
                }
            }
        }

        impl$(<$lifetime>)? fmt::Debug for $guard$(<$lifetime>)? {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($guard)).field("permits", &self.permits).finish_non_exhaustive()
            }
        }
    };
}

permit!(
    /// Permits of a semaphore; the drop gives them back. Made by [`Semaphore::acquire_guard`].
    ///
    /// ```
    /// use gmp::sync::Semaphore;
    ///
    /// let permits = Semaphore::new(3);
    /// let mut held = permits.acquire_guard(3).unwrap();
    /// let one = held.split(1).unwrap();
    /// drop(held);
    /// assert_eq!((one.num_permits(), permits.available_permits()), (1, 2));
    /// // Stays taken, until a `release` gives it back.
    /// one.forget();
    /// assert_eq!(permits.available_permits(), 2);
    /// permits.release(1);
    /// assert_eq!(permits.available_permits(), 3);
    /// ```
    SemaphorePermit<'a>, &'a Semaphore, |it| it.semaphore => &'a Semaphore
);
permit!(
    /// Permits of a semaphore that the guard keeps alive; the drop gives them back. Made by
    /// [`Semaphore::acquire_owned`].
    ///
    /// ```
    /// use gmp::sync::Semaphore;
    /// use std::sync::Arc;
    ///
    /// let permits = Arc::new(Semaphore::new(1));
    /// let permit = permits.acquire_owned(1).unwrap();
    /// std::thread::spawn(move || drop(permit)).join().unwrap();
    /// assert_eq!(permits.available_permits(), 1);
    /// ```
    OwnedSemaphorePermit, Arc<Semaphore>, |it| &it.semaphore => &Arc<Semaphore>
);

impl Semaphore {
    /// Returns a guard for permits that the caller has taken.
    pub(in crate::sync) fn guard(&self, permits: usize) -> SemaphorePermit<'_> {
        SemaphorePermit { semaphore: self, permits }
    }

    /// As `guard`.
    pub(in crate::sync) fn owned(self: &Arc<Self>, permits: usize) -> OwnedSemaphorePermit {
        OwnedSemaphorePermit { semaphore: Arc::clone(self), permits }
    }

    fn try_take(&self, permits: usize) -> Result<(), TryAcquireError> {
        let mut state = self.state.lock();
        match state.take(permits) {
            true => Ok(()),
            false if state.closed => Err(TryAcquireError::Closed),
            false => Err(TryAcquireError::NoPermits),
        }
    }

    fn acquire_until(&self, permits: usize, limit: Nanos) -> Result<(), AcquireTimeoutError> {
        self.acquire_in(permits, how(OnInterrupt::Unwinding).until(Some(limit))).map_err(|refused| {
            match refused {
                Refused::Closed => AcquireTimeoutError::Closed,
                Refused::Late => AcquireTimeoutError::Timeout,
                Refused::Interrupted(interrupt) => interrupt.throw::<Active>(),
            }
        })
    }

    /// Takes `permits`, with a guard that gives them back. Blocks the calling goroutine, or the plain thread, until they are
    /// free and all earlier requests have been met; for a request for more than the capacity, until
    /// [`add_permits`](Self::add_permits) has made the capacity large enough, too.
    ///
    /// ```
    /// use gmp::sync::Semaphore;
    ///
    /// let permits = Semaphore::new(3);
    /// let two = permits.acquire_guard(2).unwrap();
    /// assert_eq!(permits.available_permits(), 1);
    /// drop(two);
    /// assert_eq!(permits.available_permits(), 3);
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the semaphore is [closed](Self::close), before the call or meanwhile.
    pub fn acquire_guard(&self, permits: usize) -> Result<SemaphorePermit<'_>, AcquireError> {
        self.acquire_open(permits)?;
        Ok(self.guard(permits))
    }

    /// As [`acquire_guard`](Self::acquire_guard), if the permits are free and no request waits. Does not block.
    ///
    /// # Errors
    /// If too few permits are free, a request waits, or the semaphore is closed.
    pub fn try_acquire_guard(&self, permits: usize) -> Result<SemaphorePermit<'_>, TryAcquireError> {
        self.try_take(permits)?;
        Ok(self.guard(permits))
    }

    /// As [`acquire_guard`](Self::acquire_guard), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the time has passed, or the semaphore is closed.
    pub fn acquire_guard_timeout(
        &self,
        permits: usize,
        timeout: Duration,
    ) -> Result<SemaphorePermit<'_>, AcquireTimeoutError> {
        self.acquire_until(permits, Active::after(timeout))?;
        Ok(self.guard(permits))
    }

    /// As [`acquire_guard`](Self::acquire_guard), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`acquire_guard_timeout`](Self::acquire_guard_timeout).
    pub fn acquire_guard_deadline(
        &self,
        permits: usize,
        deadline: Instant,
    ) -> Result<SemaphorePermit<'_>, AcquireTimeoutError> {
        self.acquire_until(permits, Active::nanos(deadline))?;
        Ok(self.guard(permits))
    }

    /// As [`acquire_guard`](Self::acquire_guard), while `context` is not done: a cancel that comes before the permits wins. A
    /// context under which the caller runs ([`Context::run`]) ends the wait as well.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The context's error, or `Closed` if the semaphore is closed; no permits were taken then.
    pub fn acquire_guard_ctx(
        &self,
        context: &Context,
        permits: usize,
    ) -> Result<SemaphorePermit<'_>, AcquireContextError> {
        self.acquire_under(context, permits)?;
        Ok(self.guard(permits))
    }

    /// As [`acquire_guard`](Self::acquire_guard), with a guard that holds the `Arc`, and can be sent to another goroutine or
    /// thread.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the semaphore is [closed](Self::close), before the call or meanwhile.
    pub fn acquire_owned(self: &Arc<Self>, permits: usize) -> Result<OwnedSemaphorePermit, AcquireError> {
        self.acquire_open(permits)?;
        Ok(self.owned(permits))
    }

    /// As [`acquire_owned`](Self::acquire_owned), if the permits are free and no request waits. Does not block.
    ///
    /// # Errors
    /// If too few permits are free, a request waits, or the semaphore is closed.
    pub fn try_acquire_owned(
        self: &Arc<Self>,
        permits: usize,
    ) -> Result<OwnedSemaphorePermit, TryAcquireError> {
        self.try_take(permits)?;
        Ok(self.owned(permits))
    }

    /// As [`acquire_owned`](Self::acquire_owned), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the time has passed, or the semaphore is closed.
    pub fn acquire_owned_timeout(
        self: &Arc<Self>,
        permits: usize,
        timeout: Duration,
    ) -> Result<OwnedSemaphorePermit, AcquireTimeoutError> {
        self.acquire_until(permits, Active::after(timeout))?;
        Ok(self.owned(permits))
    }

    /// As [`acquire_owned`](Self::acquire_owned), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`acquire_owned_timeout`](Self::acquire_owned_timeout).
    pub fn acquire_owned_deadline(
        self: &Arc<Self>,
        permits: usize,
        deadline: Instant,
    ) -> Result<OwnedSemaphorePermit, AcquireTimeoutError> {
        self.acquire_until(permits, Active::nanos(deadline))?;
        Ok(self.owned(permits))
    }

    /// As [`acquire_owned`](Self::acquire_owned), while `context` is not done: a cancel that comes before the permits wins. A
    /// context under which the caller runs ([`Context::run`]) ends the wait as well.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The context's error, or `Closed` if the semaphore is closed; no permits were taken then.
    pub fn acquire_owned_ctx(
        self: &Arc<Self>,
        context: &Context,
        permits: usize,
    ) -> Result<OwnedSemaphorePermit, AcquireContextError> {
        self.acquire_under(context, permits)?;
        Ok(self.owned(permits))
    }
}
