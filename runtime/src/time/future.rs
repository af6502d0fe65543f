//! Time for futures: [`Sleep`], [`timeout_async`].
//!
//! A [`Sleep`] that was polled is a callback timer, which claims the wait of a task and wakes it. The clock alone decides
//! whether the time has come: after a wake that comes early, from a time that was set before, the next poll sets the timer
//! again. So `reset` can move the timer without asking whether it is just firing.

use crate::context::ContextError;
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use crate::wait::task::TaskWait;
use gmp_timers::Nanos;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// A future that is ready at a given time: [`sleep`](super::sleep) for tasks. Made by [`sleep_async`], or by
/// [`until`](Self::until).
///
/// A poll does not block. Any task may poll, on goroutines ([`block_on`](crate::block_on)), on plain threads and under other
/// executors, and the task that has polled last is woken. The first poll sets the timer: on a goroutine a timer of its runtime;
/// elsewhere, and when that runtime has ended, one thread of the process waits for all such futures. The time is as exact as
/// that of [`sleep`](super::sleep). A foreign waker is called a moment later, by a goroutine or another thread of the library,
/// and may block.
///
/// The future can be dropped at any time; no task is woken for it then. The future can be moved between polls. Polled again
/// after its end, the future is ready again.
///
/// ```
/// use gmp::time::Sleep;
/// use std::time::{Duration, Instant};
///
/// let begin = Instant::now();
/// let mut sleep = Sleep::until(begin + Duration::from_secs(3600));
/// sleep.reset(begin + Duration::from_millis(2));
/// gmp::block_on(&mut sleep);
/// assert!(begin.elapsed() >= Duration::from_millis(2));
/// assert!(sleep.is_elapsed());
/// ```
#[must_use = "a future does nothing unless it is polled"]
pub struct Sleep {
    due: Nanos,
    /// `Some` from the first poll that comes before the time.
    armed: Option<Armed>,
}

struct Armed {
    wait: TaskWait<Active>,
    timer: Guard<Active>,
}

impl Armed {
    fn new(due: Nanos, cx: &Context<'_>) -> Self {
        let wait = TaskWait::open(cx.waker());
        let waiter = wait.waiter();
        let timer = call_at(due, RunMode::Wakes, move || {
            waiter.wake_from_timer();
        });
        Armed { wait, timer }
    }
}

impl Drop for Armed {
    fn drop(&mut self) {
        self.timer.stop();
        // A firing that is under way finds the wait closed, or has already woken the task.
        let _closed = self.wait.leave();
    }
}

impl Sleep {
    /// Returns a future that is ready at `deadline`; in its first poll if `deadline` has passed.
    pub fn until(deadline: Instant) -> Self {
        Sleep { due: Active::nanos(deadline), armed: None }
    }

    /// Sets another time. A waiting task continues to wait, and is woken at the new time; a future that was ready can be polled
    /// again. Does not block.
    pub fn reset(&mut self, deadline: Instant) {
        self.due = Active::nanos(deadline);
        if let Some(armed) = &self.armed {
            mutant!(SleepKeepsItsTimer: return);
            armed.timer.set(self.due);
        }
    }

    /// Returns when the future is ready.
    pub fn deadline(&self) -> Instant {
        Active::instant(self.due)
    }

    /// Returns `true` if the time has come: the next poll is ready.
    pub fn is_elapsed(&self) -> bool {
        Active::now() >= self.due
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let woken = self.armed.as_ref().is_some_and(|armed| armed.wait.is_over(cx.waker()));
        if self.is_elapsed() {
            self.armed = None;
            return Poll::Ready(());
        }
        if woken.unless(SleepEndsEarly) || self.armed.is_none() {
            self.armed = Some(Armed::new(self.due, cx));
        }
        Poll::Pending
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline()).finish_non_exhaustive()
    }
}

/// Returns a future that is ready `dur` after this call; see [`Sleep`].
///
/// ```
/// use std::time::{Duration, Instant};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let begin = Instant::now();
///         gmp::block_on(gmp::time::sleep_async(Duration::from_millis(2)));
///         assert!(begin.elapsed() >= Duration::from_millis(2));
///     })
/// }
/// ```
pub fn sleep_async(dur: Duration) -> Sleep {
    Sleep { due: Active::after(dur), armed: None }
}

/// Returns a future that is ready when `future` is, or, with an error, when `dur` has passed since this call.
/// [`timeout`](super::timeout) for futures: nothing unwinds, and the poll that returns the error drops `future`. Each poll
/// polls `future` before it looks at the time, and once more when the time has passed: so a `future` that is ready when the
/// time has passed is in time.
///
/// ```
/// use gmp::context::ContextError;
/// use gmp::sync::Event;
/// use gmp::time::timeout_async;
/// use std::time::Duration;
///
/// let never = Event::new();
/// let late = gmp::block_on(timeout_async(Duration::from_millis(1), never.wait_async()));
/// assert_eq!(late, Err(ContextError::DeadlineExceeded));
/// let soon = gmp::block_on(timeout_async(Duration::from_secs(60), async { 7 }));
/// assert_eq!(soon, Ok(7));
/// ```
///
/// # Errors
/// The output is [`ContextError::DeadlineExceeded`] if the time has passed.
///
/// # Panics
/// If the future is polled after it was ready.
pub fn timeout_async<F: IntoFuture>(dur: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout { sleep: sleep_async(dur), future: Some(future.into_future()) }
}

/// As [`timeout_async`], until `deadline`. A `future` that is ready in the first poll is in time, even if `deadline` has
/// passed.
///
/// ```
/// use gmp::context::ContextError;
/// use gmp::time::{Sleep, timeout_until_async};
/// use std::time::{Duration, Instant};
///
/// let begin = Instant::now();
/// let limit = begin + Duration::from_millis(2);
/// let hour = Sleep::until(begin + Duration::from_secs(3600));
/// let late = gmp::block_on(timeout_until_async(limit, hour));
/// assert_eq!(late, Err(ContextError::DeadlineExceeded));
/// assert_eq!(gmp::block_on(timeout_until_async(limit, async { 7 })), Ok(7));
/// ```
///
/// # Errors
/// As [`timeout_async`].
///
/// # Panics
/// If the future is polled after it was ready.
pub fn timeout_until_async<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout { sleep: Sleep::until(deadline), future: Some(future.into_future()) }
}

/// A future with a limit; made by [`timeout_async`] or [`timeout_until_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Timeout<F> {
    sleep: Sleep,
    /// `Some` until its end, or the limit.
    future: Option<F>,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, ContextError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: `future` is pinned with this; nothing moves it.
        let (sleep, mut future) = unsafe {
            let this = self.get_unchecked_mut();
            (&mut this.sleep, Pin::new_unchecked(&mut this.future))
        };
        let mut poll = |cx: &mut Context<'_>| {
            future.as_mut().as_pin_mut().expect("timeout_async: polled after it was ready").poll(cx)
        };
        let mut polled = poll(cx);
        if polled.is_pending() {
            std::task::ready!(Pin::new(&mut *sleep).poll(cx));
            // The future may have become ready between its poll and the look at the time.
            polled = poll(cx);
        }
        let ended = match polled {
            Poll::Ready(output) => Ok(output),
            Poll::Pending => Err(ContextError::DeadlineExceeded),
        };
        // The timer goes now, not with this future, which might live on for long: the timer would wake a task that no longer
        // waits.
        sleep.armed = None;
        future.set(None);
        Poll::Ready(ended)
    }
}

impl<F> fmt::Debug for Timeout<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timeout").field("sleep", &self.sleep).finish_non_exhaustive()
    }
}
