//! [`Timer`], [`Ticker`], [`after_func`].

use crate::chan::{Receiver, never};
use crate::host::{Active, Clock};
use crate::impls::{opaque, unwind_safe};
use crate::sched::Sched;
use crate::sched::timers::callback::{Guard, RunMode, call_at, call_in};
use crate::time::source::Source;
use gmp_timers::Nanos;
use std::fmt;
use std::time::{Duration, Instant};

/// One event in the future: a value to receive, or, made by [`after_func`], a function to be called. Go's `time.Timer`.
///
/// | | pending | fired, and not received yet | received, or the function was called | stopped |
/// | --- | --- | --- | --- | --- |
/// | [`stop`](Self::stop) | true: it never fires | true: the value is gone | false | false |
/// | [`reset`](Self::reset) | true: it fires at the new time only | true: the value is gone | false: fires once more | false: fires |
///
/// A callback counts as fired from the moment when its goroutine is made, though that goroutine may begin to run later.
///
/// Waiting for the value blocks the goroutine, or the plain thread. While no receiver waits, the timer is in no timer heap and
/// costs nothing. Dropping the timer stops it, and a clone of its receiver then blocks for ever; dropping the timer of a
/// callback does not stop the callback.
///
/// ```
/// use gmp::time::Timer;
/// use std::time::{Duration, Instant};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let start = Instant::now();
///         let timer = Timer::new(Duration::from_secs(3600));
///         assert!(timer.reset(Duration::from_millis(2)));
///         let due = timer.receiver().recv().unwrap();
///         assert!(due >= start + Duration::from_millis(2) && Instant::now() >= due);
///         assert!(!timer.stop());
///     })
/// }
/// ```
#[doc(alias = "NewTimer")]
pub struct Timer(Kind);

enum Kind {
    Channel(Source),
    Callback(Guard<Active>),
}

// Its only user data is the function, which another goroutine calls.
unwind_safe!(Timer);

impl Timer {
    /// Makes a timer whose value, the due time, can be received `dur` from now. Does not block.
    pub fn new(dur: Duration) -> Self {
        Timer(Kind::Channel(Source::new(Active::after(dur), Duration::ZERO)))
    }

    /// Makes the timer of a callback that runs in a goroutine of `sched`.
    #[track_caller]
    pub(crate) fn calls_in(sched: &Sched<Active>, due: Nanos, f: impl Fn() + Send + Sync + 'static) -> Self {
        Timer(Kind::Callback(call_in(sched, due, f)))
    }

    /// Returns the receiver of the due time. The receiver of a callback's timer blocks for ever.
    pub fn receiver(&self) -> &Receiver<Instant> {
        const NEVER: &Receiver<Instant> = &never();
        match &self.0 {
            Kind::Channel(source) => source.receiver(),
            Kind::Callback(_) => NEVER,
        }
    }

    /// Stops the timer; see the table. After the call no earlier value is received, and the callback is not called
    /// for an earlier setting, unless the timer has fired already. Does not block, and does not wait for a callback
    /// that runs.
    pub fn stop(&self) -> bool {
        match &self.0 {
            Kind::Channel(source) => source.set(None, Duration::ZERO),
            Kind::Callback(guard) => guard.stop(),
        }
    }

    /// Makes the timer fire `dur` from now, not at the time set before; see the table. A timer that was stopped or has fired is
    /// set again. Does not block.
    pub fn reset(&self, dur: Duration) -> bool {
        match &self.0 {
            Kind::Channel(source) => source.set(Some(Active::after(dur)), Duration::ZERO),
            Kind::Callback(guard) => guard.set(Active::after(dur)),
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if let Kind::Channel(source) = &self.0 {
            source.set(None, Duration::ZERO);
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Channel(_) => f.debug_struct("Timer").finish_non_exhaustive(),
            Kind::Callback(guard) => {
                f.debug_struct("Timer").field("callback_pending", &guard.is_armed()).finish()
            }
        }
    }
}

/// Calls `f`, `dur` from now, in a goroutine of its own. Go's `time.AfterFunc`. Does not block.
///
/// The goroutine belongs to the runtime in which `after_func` was called, even if a later `reset` is called
/// elsewhere. If `after_func` was called outside of a runtime, or the runtime has ended before the timer was due, `f`
/// runs on a thread of the library; one process-wide thread waits for such timers, as long as there are any. If a timer
/// has fired, but its goroutine did not run before the runtime ended, `f` runs on such a thread as well. So every
/// firing that was not stopped runs `f`.
///
/// At most 32 threads run such functions, one function after another each; further functions that are due wait until a thread
/// is free, in about the order of their due times. So a function that blocks holds up others only when 32 of them block. The
/// deadline of a context waits for none of them.
///
/// [`Timer::stop`] keeps `f` from being called, [`Timer::reset`] sets another call; each setting calls `f` once, and two calls
/// may overlap. Dropping the timer does not stop it. A panic of `f` ends the goroutine that runs `f`; the panic hook prints the
/// panic. `f` is dropped with the timer, or by the last call's goroutine.
///
/// ```
/// use gmp::{sync::Event, time::after_func};
/// use std::{sync::Arc, time::Duration};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let fired = Arc::new(Event::new());
///         let fires = Arc::clone(&fired);
///         let timer = after_func(Duration::from_millis(1), move || fires.notify_one());
///         fired.wait();
///         assert!(!timer.stop());
///         assert!(!timer.reset(Duration::from_secs(3600)));
///         assert!(timer.stop());
///     })
/// }
/// ```
#[doc(alias = "AfterFunc")]
#[track_caller]
pub fn after_func(dur: Duration, f: impl Fn() + Send + Sync + 'static) -> Timer {
    Timer(Kind::Callback(call_at(Active::after(dur), RunMode::Goroutine, f)))
}

/// A value at regular intervals. Go's `time.Ticker`.
///
/// Each value is the time at which that value was due: the beginning plus a multiple of the period. At most one value is ready
/// to be received, so a slow receiver misses some. While no receiver waits, the ticker costs nothing. Dropping the ticker stops
/// it.
///
/// ```
/// use gmp::time::Ticker;
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let period = Duration::from_millis(1);
///         let ticker = Ticker::new(period);
///         let [first, second] = [(); 2].map(|()| ticker.receiver().recv().unwrap());
///         assert!(second >= first + period);
///     })
/// }
/// ```
#[doc(alias = "NewTicker")]
pub struct Ticker(Source);

impl Ticker {
    /// Makes a ticker whose first value is due one `period` from now. Does not block.
    ///
    /// # Panics
    /// If the period is zero.
    #[track_caller]
    pub fn new(period: Duration) -> Self {
        assert!(!period.is_zero(), "Ticker::new: the period is zero");
        Ticker(Source::new(Active::after(period), period))
    }

    /// Returns the receiver of the due times.
    pub fn receiver(&self) -> &Receiver<Instant> {
        self.0.receiver()
    }

    /// Stops the ticker: no further value comes, not even a value that is due and was not received. Returns `true` if the
    /// ticker was not stopped before. Does not block.
    pub fn stop(&self) -> bool {
        self.0.set(None, Duration::ZERO)
    }

    /// Begins anew with another period: the next value is due one `period` from now. Returns `true` if the ticker was
    /// not stopped before. Does not block.
    ///
    /// # Panics
    /// If the period is zero.
    #[track_caller]
    pub fn reset(&self, period: Duration) -> bool {
        assert!(!period.is_zero(), "Ticker::reset: the period is zero");
        self.0.set(Some(Active::after(period)), period)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.set(None, Duration::ZERO);
    }
}

opaque!(Ticker);
