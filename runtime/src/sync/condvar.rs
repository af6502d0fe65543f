//! A condition variable: waiting for a change of the value that a mutex protects.

use crate::goroutine::own_frame::in_own_frame;
use crate::host::{Active, Clock};
use crate::impls::opaque;
use crate::prim::hooks::*;
use crate::prim::{Mutex as Lock, Rank, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::mutex::MutexGuard;
use crate::sync::raw_mutex::RawMutex;
use crate::sync::wait_queue::{HasWaitQueue, Notified, NotifiedOne, Position, WaitQueue, wait_in_and};
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::time::{Duration, Instant};

struct State {
    waiters: WaitQueue<()>,
    /// The mutex of the waiters in the queue; compared, never dereferenced.
    mutex: *const RawMutex,
}

// SAFETY: the pointer is only compared.
unsafe impl Send for State {}

impl HasWaitQueue for State {
    type Want = ();
    fn waiters(&mut self, _want: &()) -> &mut WaitQueue<()> {
        &mut self.waiters
    }
}

/// Tells whether a wait with a limit has timed out.
///
/// ```
/// use gmp::sync::{Condvar, Mutex};
/// use std::time::Duration;
///
/// let (ready, changed) = (Mutex::new(false), Condvar::new());
/// let mut guard = ready.lock();
/// assert!(changed.wait_for(&mut guard, Duration::from_millis(1)).timed_out());
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub(super) fn new(timed_out: bool) -> Self {
        WaitTimeoutResult(timed_out)
    }

    /// Returns `true` if the limit passed before the event for which the caller waited: the notification, or the count of zero.
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

/// Blocks callers until another goroutine or thread has changed the value that a [`Mutex`](super::Mutex) protects, and notifies
/// them. Names and signatures are `parking_lot`'s.
///
/// Waiters are woken in the order in which they came. A later waiter never takes a notification that was meant for an earlier
/// one, and there are no spurious wake-ups. After the wake the waiter locks the mutex again, which may block; nothing
/// interrupts that wait. A notification for a goroutine whose runtime then ends is lost with the goroutine.
///
/// ```
/// use gmp::{go, sync::{Condvar, Mutex}};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let shared = Arc::new((Mutex::new(false), Condvar::new()));
///         let theirs = Arc::clone(&shared);
///         go(move || {
///             *theirs.0.lock() = true;
///             theirs.1.notify_one();
///         });
///         let (ready, changed) = &*shared;
///         changed.wait_while(&mut ready.lock(), |ready| !*ready);
///     })
/// }
/// ```
#[doc(alias = "Cond")]
pub struct Condvar {
    state: Lock<State>,
}

impl Condvar {
    const_fn! {
        /// Makes a condition variable without waiters.
        pub fn new() -> Self {
            Condvar { state: Lock::new(Rank::Condvar, State { waiters: WaitQueue::new(), mutex: std::ptr::null() }) }
        }
    }

    /// Unlocks the mutex and blocks the calling goroutine, or the plain thread, until a notification; then locks the mutex
    /// again. A notification that follows the unlock is not missed.
    ///
    /// ```
    /// use gmp::sync::{Condvar, Mutex};
    ///
    /// let (jobs, added) = (Mutex::new(Vec::new()), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         jobs.lock().push("clean");
    ///         added.notify_one();
    ///     });
    ///     let mut jobs = jobs.lock();
    ///     while jobs.is_empty() {
    ///         added.wait(&mut jobs);
    ///     }
    ///     assert_eq!(jobs.pop(), Some("clean"));
    /// });
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, with the mutex locked again; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// If other waiters wait with another mutex.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        let _notified = self.wait_in(guard.raw(), None);
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// ```
    /// use gmp::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    ///
    /// let (count, changed) = (Mutex::new(0), Condvar::new());
    /// let waited = changed.wait_for(&mut count.lock(), Duration::from_millis(1));
    /// assert!(waited.timed_out());
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, with the mutex locked again; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// As `wait`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        self.wait_in(guard.raw(), Some(Active::after(timeout)))
    }

    /// As [`wait`](Self::wait), until `timeout` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, with the mutex locked again; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// As `wait`.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Instant,
    ) -> WaitTimeoutResult {
        self.wait_in(guard.raw(), Some(Active::nanos(timeout)))
    }

    /// Waits while `condition` returns `true` for the value. Blocks the goroutine, or the plain thread, as [`wait`](Self::wait)
    /// does, and then for the lock.
    ///
    /// ```
    /// use gmp::sync::{Condvar, Mutex};
    ///
    /// let (left, changed) = (Mutex::new(1), Condvar::new());
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| {
    ///         *left.lock() -= 1;
    ///         changed.notify_all();
    ///     });
    ///     changed.wait_while(&mut left.lock(), |left| *left > 0);
    /// });
    /// assert_eq!(*left.lock(), 0);
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, with the mutex locked again; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while in_own_frame(|| condition(guard)) {
            self.wait(guard);
        }
    }

    /// As [`wait_while`](Self::wait_while), for at most `timeout` in all. After the limit `condition` is called once
    /// more, and the result is a timeout if `condition` still returns `true`, as with std's `wait_timeout_while`.
    /// (`parking_lot`'s returns a timeout without that last call.)
    ///
    /// # Unwinds
    /// When the wait is ended from outside, with the mutex locked again; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// As `wait`.
    #[track_caller]
    pub fn wait_while_for<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Duration,
    ) -> WaitTimeoutResult {
        self.wait_while_in(guard, condition, Active::after(timeout))
    }

    /// As [`wait_while_for`](Self::wait_while_for), until `timeout` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, with the mutex locked again; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// As `wait`.
    #[track_caller]
    pub fn wait_while_until<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        condition: impl FnMut(&mut T) -> bool,
        timeout: Instant,
    ) -> WaitTimeoutResult {
        self.wait_while_in(guard, condition, Active::nanos(timeout))
    }

    #[track_caller]
    fn wait_while_in<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
        until: Nanos,
    ) -> WaitTimeoutResult {
        let mut last = WaitTimeoutResult(false);
        while in_own_frame(|| condition(guard)) {
            if last.timed_out() {
                return last;
            }
            last = self.wait_in(guard.raw(), Some(until));
        }
        WaitTimeoutResult(false)
    }

    #[track_caller]
    pub(super) fn wait_in(&self, mutex: &RawMutex, until: Option<Nanos>) -> WaitTimeoutResult {
        let wait = Wait::begin();
        let mut state = self.state.lock();
        if !std::ptr::eq(state.mutex, mutex) && state.waiters.first().is_some() {
            drop(state);
            wait.withdraw();
            panic!("Condvar: others wait with another mutex");
        }
        state.mutex = mutex;
        mutant!(CondvarUnlocksFirst: drop(state); mutex.unlock(); state = self.state.lock());
        // Unlocks before the park, while the mutex is certainly alive, and under the lock of the queue: a notifier that changes
        // the value from here on finds this waiter in the queue. The mutex's next waiter is readied after the lock.
        let called = true.unless(CondvarUnlocksFirst).then(|| mutex.unlock_and_tell());
        let how = How::new(WaitReason::Condvar).until(until);
        let (place, tell) = (((), Position::Back), || called.into_iter().for_each(Notified::ready_elsewhere));
        let interrupt = match wait_in_and(wait, (&self.state, state), place, how, tell) {
            Ok(()) => {
                mutex.lock_surely();
                return WaitTimeoutResult(false);
            }
            Err(left) => left.by,
        };
        mutex.lock_surely();
        match interrupt {
            None => WaitTimeoutResult(true),
            // By now the caller's guard holds the lock again.
            Some(interrupt) => interrupt.throw::<Active>(),
        }
    }

    /// Wakes the waiter that has waited longest. Returns `false` if there is no waiter. Does not block.
    #[doc(alias = "Signal")]
    pub fn notify_one(&self) -> bool {
        let notified = self.state.lock().waiters.notify_one();
        notified.map(NotifiedOne::ready).is_some()
    }

    /// Wakes all present waiters, and returns their number. Does not block.
    #[doc(alias = "Broadcast")]
    pub fn notify_all(&self) -> usize {
        let mut notified = Notified::new();
        let count = self.state.lock().waiters.notify_all(&mut notified);
        notified.ready();
        count
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

opaque!(Condvar);
