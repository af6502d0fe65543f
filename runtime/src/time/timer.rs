//! [`Timer`], [`Ticker`], [`after_func`].

use crate::chan::{Receiver, never};
use crate::host::{Active, Host};
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use crate::time::source::Source;
use gmp_timers::Nanos;
use std::fmt;
use std::time::{Duration, Instant};

fn after(dur: Duration) -> Nanos {
    Active::now().saturating_add(dur)
}

/// One event in the future: a value to receive, or, made by [`after_func`], a function to be called. Go's `time.Timer`.
///
/// | | pending | fired, and not received yet | received, or the function was called | stopped |
/// | --- | --- | --- | --- | --- |
/// | [`stop`](Self::stop) | true: it never fires | true: the value is gone | false | false |
/// | [`reset`](Self::reset) | true: it fires at the new time only | true: the value is gone | false: fires once more | false: fires |
///
/// A callback counts as fired from the moment at which its goroutine is made, though that may begin to run later.
///
/// Waiting for the value blocks the goroutine, or the plain thread. A timer that nobody waits for costs nothing: it is
/// in no heap. Dropping it stops it, and a clone of its receiver then blocks for ever; dropping a callback's stops nothing.
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
    Callback(Guard<Active>, Receiver<Instant>),
}

impl Timer {
    /// A value, the due time, that can be received `dur` from now. Does not block, also on plain threads.
    pub fn new(dur: Duration) -> Self {
        Timer(Kind::Channel(Source::new(after(dur), Duration::ZERO)))
    }

    /// Where to receive the due time. A callback's never receives.
    pub fn receiver(&self) -> &Receiver<Instant> {
        match &self.0 {
            Kind::Channel(source) => source.receiver(),
            Kind::Callback(_, never) => never,
        }
    }

    /// Stops it; see the table. After it no value of before is received, and a callback is not called for what was set
    /// before, unless that has fired already. Does not block, and does not wait for a callback that runs.
    pub fn stop(&self) -> bool {
        match &self.0 {
            Kind::Channel(source) => source.set(None, Duration::ZERO),
            Kind::Callback(guard, _) => guard.stop(),
        }
    }

    /// Has it fire `dur` from now, and not when it was to before; see the table. A stopped or fired one is set again.
    /// Does not block.
    pub fn reset(&self, dur: Duration) -> bool {
        match &self.0 {
            Kind::Channel(source) => source.set(Some(after(dur)), Duration::ZERO),
            Kind::Callback(guard, _) => guard.set(after(dur)),
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
            Kind::Callback(guard, _) => {
                f.debug_struct("Timer").field("callback_pending", &guard.is_armed()).finish()
            }
        }
    }
}

/// Has `f` called `dur` from now, in a goroutine of its own. Go's `time.AfterFunc`. Does not block.
///
/// The goroutine belongs to the runtime in which `after_func` was called, whoever resets the timer later. Called
/// outside of one, `f` runs on a thread of its own; so it does when the runtime has ended before it was due. A
/// process-wide thread waits for those, as long as there are any. A firing whose goroutine did not come to run before its
/// runtime ended runs on such a thread as well: what has fired, and what was not stopped, runs.
///
/// [`Timer::stop`] keeps `f` from being called, [`Timer::reset`] has it called again; each setting calls it once, two calls
/// may overlap. Dropping the timer stops nothing. A panic of `f` ends its goroutine; the panic hook prints it.
/// `f` is dropped with the timer, or by the last call's goroutine.
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
    Timer(Kind::Callback(call_at(after(dur), RunMode::Goroutine, f), never()))
}

/// A value every so often. Go's `time.Ticker`.
///
/// Each value is the time at which it was due, the beginning plus a multiple of the period. Whoever receives too
/// slowly misses some: at most one is there to be received. A ticker that nobody waits for costs nothing. Dropping it
/// stops it.
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
    /// The first value is due one `period` from now. Does not block.
    ///
    /// # Panics
    /// If the period is zero.
    #[track_caller]
    pub fn new(period: Duration) -> Self {
        assert!(!period.is_zero(), "Ticker::new: the period is zero");
        Ticker(Source::new(after(period), period))
    }

    /// Where to receive the due times.
    pub fn receiver(&self) -> &Receiver<Instant> {
        self.0.receiver()
    }

    /// No more values, not even one that is due and was not received. True when it was not stopped before. Does not block.
    pub fn stop(&self) -> bool {
        self.0.set(None, Duration::ZERO)
    }

    /// Begins anew, with another period: the next value is due one `period` from now. True when it was not stopped before.
    /// Does not block.
    ///
    /// # Panics
    /// If the period is zero.
    #[track_caller]
    pub fn reset(&self, period: Duration) -> bool {
        assert!(!period.is_zero(), "Ticker::reset: the period is zero");
        self.0.set(Some(after(period)), period)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.0.set(None, Duration::ZERO);
    }
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticker").finish_non_exhaustive()
    }
}
