//! Waiting for a time: [`sleep`], [`sleep_until`].

use crate::host::{Active, Host};
use crate::sched::Sched;
use crate::waiter::Wait;
use std::time::{Duration, Instant};

/// Parks the calling goroutine for at least `dur`; its thread goes on running other goroutines. A plain thread
/// sleeps. A zero duration returns at once.
///
/// The wait is as exact as the machine allows: its threads run with a timer slack of one nanosecond, and the
/// kernel is asked in nanoseconds. A duration beyond the clock's 584 years waits until then.
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
pub fn sleep(dur: Duration) {
    if dur.is_zero() {
        return;
    }
    match Sched::<Active>::current() {
        None => std::thread::sleep(dur),
        Some(sched) => sched.sleep_until(Wait::begin(), sched.host.now().saturating_add(dur)),
    }
}

/// Parks the calling goroutine until `deadline`; its thread goes on running other goroutines. A plain thread
/// sleeps. A time that has passed returns at once.
pub fn sleep_until(deadline: Instant) {
    if deadline <= Instant::now() {
        return;
    }
    match Sched::<Active>::current() {
        None => std::thread::sleep(deadline.saturating_duration_since(Instant::now())),
        Some(sched) => sched.sleep_until(Wait::begin(), sched.host.nanos(deadline)),
    }
}
