//! Time: [`sleep`], [`timeout`], [`Timer`], [`Ticker`], [`after_func`]; for futures [`Sleep`], [`timeout_async`].

mod future;
mod source;
mod timer;

pub use future::{Sleep, Timeout, sleep_async, timeout_async, timeout_until_async};
pub use timer::{Ticker, Timer, after_func};

use crate::context::{Context, ContextError, interrupted};
use crate::host::{Active, Clock};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::OnInterrupt;
use crate::wait::waiter::{How, Wait, Woke};
use gmp_timers::Nanos;
use std::io;
use std::time::{Duration, Instant};

/// Parks the calling goroutine for at least `dur`; its thread runs other goroutines. A plain thread sleeps. A zero duration
/// returns at once.
///
/// The wait is as exact as the machine allows: the time is given to the kernel in nanoseconds, and the kernel's timer slack, by
/// which it may be 50 µs late to save power, is taken into account. The slack of the threads stays as it was, so threads and
/// processes that a goroutine starts inherit the usual slack. A duration beyond the clock's range of 484 years waits until the
/// end of that range.
///
/// ```
/// use std::time::{Duration, Instant};
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let start = Instant::now();
///         gmp::time::sleep(Duration::from_millis(2));
///         assert!(start.elapsed() >= Duration::from_millis(2));
///     })
/// }
/// ```
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
pub fn sleep(dur: Duration) {
    if dur.is_zero() {
        return;
    }
    sleep_in(Active::after(dur));
}

/// Parks the calling goroutine until `deadline`; its thread runs other goroutines. A plain thread sleeps. Returns at once if
/// `deadline` has passed.
///
/// ```
/// use std::time::{Duration, Instant};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let deadline = Instant::now() + Duration::from_millis(2);
///         gmp::time::sleep_until(deadline);
///         assert!(Instant::now() >= deadline);
///     })
/// }
/// ```
///
/// # Unwinds
/// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
pub fn sleep_until(deadline: Instant) {
    if deadline <= Instant::now() {
        return;
    }
    sleep_in(Active::nanos(deadline));
}

// Inlined, because a tail call in the public function would leave no frame of that function for a dump to show.
#[inline(always)]
#[doc(alias = "timeSleep")]
fn sleep_in(due: Nanos) {
    let how = How::new(WaitReason::Sleep).until(Some(due));
    // The wait is dropped here: a throw stops at each frame that has a value to drop.
    let woke = Wait::<Active>::begin().park(how, || Commit::Park);
    if let Woke::Interrupted(why) = woke {
        why.throw::<Active>();
    }
}

/// As `sleep_until`, for a call whose error can hold a context's error: a context that is done ends the sleep by that error.
pub(crate) fn pause_until(due: Nanos) -> io::Result<()> {
    let how = How::new(WaitReason::Sleep).until(Some(due)).ends(OnInterrupt::Returning);
    match Wait::<Active>::begin().park(how, || Commit::Park) {
        Woke::Interrupted(why) => Err(interrupted::<Active>(why).into()),
        _ => Ok(()),
    }
}

/// Runs `f`, and ends waits inside it after `dur`: [`Context::run`](crate::context::Context::run) under a context with that
/// timeout. Blocks as `f` does.
///
/// Only a wait of this library is ended. A computation, a wait of std or of another crate (a lock, a channel, a `sleep`), a
/// system call that blocks and a wait inside a C function continue until they return by themselves, however late. So do all
/// waits that would have to be unwound in a build that [unwinds nothing](crate::context::Context::run): with `panic = "abort"`,
/// or on the `generator` backend.
///
/// # Unwinds
/// When a wait of `f` is ended from outside, except by this timeout; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// [`ContextError::DeadlineExceeded`] if the time has passed, and a wait of `f` was ended by unwinding to here. If `f` returns,
/// the result is its value, however late. A call of [`net`](crate::net), [`fs`](crate::fs), [`io`](crate::io) or
/// [`process`](crate::process) that returns an [`io::Error`] is not unwound, but returns an error of kind `TimedOut`: if `f`
/// returns that error, the result is `Ok(Err(error))`.
///
/// # Panics
/// If `f` panics.
///
/// ```
/// use gmp::{context::ContextError, time};
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (_sender, receiver) = gmp::chan::bounded::<u32>(0);
///         let late = time::timeout(Duration::from_millis(1), || receiver.recv());
///         assert_eq!(late, Err(ContextError::DeadlineExceeded));
///     })
/// }
/// ```
pub fn timeout<T>(dur: Duration, f: impl FnOnce() -> T) -> Result<T, ContextError> {
    // `_cancel` and the context are dropped at the end of the call, which stops the timer.
    let (context, _cancel) = Context::background().with_timeout(dur);
    context.run(f)
}

/// As [`timeout`], until `deadline` at most: for several calls that share a limit. If `deadline` has passed, `f` runs up to its
/// first wait.
///
/// ```
/// use gmp::{chan, time};
/// use std::time::{Duration, Instant};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (sender, receiver) = chan::bounded(1);
///         sender.send("first").unwrap();
///         let limit = Instant::now() + Duration::from_millis(2);
///         assert_eq!(time::timeout_until(limit, || receiver.recv()), Ok(Ok("first")));
///         assert!(time::timeout_until(limit, || receiver.recv()).is_err());
///     })
/// }
/// ```
///
/// # Unwinds
/// As [`timeout`]; see [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`timeout`].
///
/// # Panics
/// If `f` panics.
pub fn timeout_until<T>(deadline: Instant, f: impl FnOnce() -> T) -> Result<T, ContextError> {
    let (context, _cancel) = Context::background().with_deadline(deadline);
    context.run(f)
}
