//! [`Handle`]: the use of a runtime by plain threads and other runtimes.

use crate::goroutine::{self, Builder, JoinHandle};
use crate::host::{Active, Clock};
use crate::impls::unwind_safe;
use crate::prim::{Arc, Weak};
use crate::runtime::load::Load;
use crate::runtime::priority::{ClassLoad, Priority};
use crate::sched::{Refused, Sched};
use crate::time::Timer;
use std::fmt;
use std::io;
use std::panic::Location;
use std::time::Duration;

/// A way to start goroutines in a runtime from anywhere: from plain threads, from callbacks of C, from goroutines of other
/// runtimes. [`handle`](crate::handle) and [`Runtime::handle`](crate::Runtime::handle) return one; clones are the same.
///
/// A handle keeps no runtime alive. When the runtime has begun to end, each call that needs the runtime returns an error of
/// kind `NotConnected`, and no call waits for the end. Goroutines that were accepted before are treated as
/// [`Runtime::shutdown_timeout`](crate::Runtime::shutdown_timeout) says: joining a goroutine that the end has unwound, or that
/// has not begun, returns an error for which [`is_shutdown`](crate::JoinError::is_shutdown) returns `true`.
///
/// To exchange messages, a goroutine and a plain thread need no handle: channels, the types of [`sync`](crate::sync), contexts
/// and [`JoinHandle`]s work on both, and across all runtimes of the process. A wait blocks the goroutine, or the thread.
///
/// ```
/// use gmp::context::{Context, ContextError};
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let handle = gmp::handle();
///         let outside = std::thread::spawn(move || {
///             // A plain thread starts a goroutine, waits for it, and ends another by a deadline.
///             assert_eq!(handle.go(|| 6 * 7)?.join().unwrap(), 42);
///             let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(1));
///             let sleeper = handle.go(move || context.run(|| gmp::time::sleep(Duration::MAX)))?;
///             assert_eq!(sleeper.join().unwrap(), Err(ContextError::DeadlineExceeded));
///             Ok::<_, std::io::Error>(handle)
///         });
///         let handle = gmp::blocking(|| outside.join()).unwrap().unwrap();
///         assert!(!handle.is_ended());
///         handle
///     })
/// };
/// ```
///
/// After the end:
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let handle = unsafe { gmp::run(gmp::handle) };
/// assert!(handle.is_ended());
/// assert_eq!(handle.go(|| ()).unwrap_err().kind(), std::io::ErrorKind::NotConnected);
/// ```
#[derive(Clone)]
pub struct Handle(Weak<Sched<Active>>);

// A `Handle` guards no user data that an unwinding could leave half changed.
unwind_safe!(Handle);

impl Handle {
    pub(crate) fn of(sched: &Sched<Active>) -> Self {
        Handle(sched.weak().clone())
    }

    /// Starts a goroutine in the runtime, as [`go`](crate::go) does for a goroutine of that runtime. Does not block.
    /// [`Builder::go_in`](crate::Builder::go_in) can give it a name or a stack size.
    ///
    /// # Errors
    /// `NotConnected` when the runtime has begun to end; as [`Builder::go`](crate::Builder::go) when the goroutine can get no
    /// stack, or `f` or its value is too large for it. Then `f` is dropped, on the calling thread.
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        goroutine::spawn_in(&*self.sched("Handle::go")?, Builder::new(), site, f)
    }

    /// Calls `f`, `dur` from now, in a goroutine of the runtime, as [`time::after_func`](crate::time::after_func) does when a
    /// goroutine of that runtime calls it. If the runtime ends before the timer is due, `f` runs on a thread of the library.
    /// Does not block.
    ///
    /// ```
    /// use gmp::chan;
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let (sender, receiver) = chan::bounded(1);
    /// // On a plain thread.
    /// let timer = runtime.handle().after_func(Duration::from_millis(1), move || {
    ///     let _nobody_hears = sender.send(gmp::current().is_some());
    /// })?;
    /// assert_eq!(receiver.recv(), Ok(true));
    /// assert!(!timer.stop());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotConnected` when the runtime has begun to end. `f` is dropped then, on the calling thread.
    #[track_caller]
    pub fn after_func(&self, dur: Duration, f: impl Fn() + Send + Sync + 'static) -> io::Result<Timer> {
        let sched = self.sched("Handle::after_func")?;
        Ok(Timer::calls_in(&sched, Active::after(dur), f))
    }

    /// Returns how many goroutines of the runtime have not ended; 0 if the runtime has begun to end.
    pub fn num_goroutines(&self) -> usize {
        self.alive().map_or(0, |sched| sched.num_goroutines())
    }

    /// Returns what the system has refused the runtime so far, and the runtime did without; zeros if the runtime has begun to
    /// end, whose report then has the numbers. Does not block.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let refused = unsafe { gmp::run(|| gmp::handle().refused()) };
    /// assert_eq!(refused.threads(), 0);
    /// ```
    pub fn refused(&self) -> Refused {
        self.alive().map_or_else(Refused::default, |sched| sched.refused())
    }

    /// Returns what the runtime is doing, in numbers; zeros if the runtime has begun to end. The numbers are of about this
    /// moment, as they are read one after the other. Takes the lock of the global queue twice, and looks at each P and
    /// thread: suited for a gauge that is read now and then. Does not block otherwise. `GMPDEBUG=schedtrace=MS` prints most
    /// of these numbers.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().procs(2).build()? };
    /// let (handle, event) = (runtime.handle(), std::sync::Arc::new(gmp::sync::Event::new()));
    /// let waits = runtime.go({
    ///     let event = event.clone();
    ///     move || event.wait()
    /// });
    /// let load = handle.load();
    /// assert_eq!((load.procs, load.goroutines, load.file_calls), (2, 1, 0));
    /// event.notify_one();
    /// waits.join().unwrap();
    /// assert_eq!(handle.load().goroutines, 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[doc(alias = "metrics")]
    pub fn load(&self) -> Load {
        self.alive().map_or_else(Load::default, |sched| sched.load())
    }

    /// Returns how many goroutines of a class wait for their turn, and how many turns there were; zeros if the runtime has
    /// begun to end. The numbers are of this moment, and change while they are added up. Takes the lock of the global queue,
    /// and looks at each P: suited for a gauge that is read now and then. Does not block otherwise.
    ///
    /// ```
    /// use gmp::{Builder, Priority};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let low = runtime.run(|| Builder::new().priority(Priority::Low).go(|| 1))?;
    /// assert_eq!(low.join().unwrap(), 1);
    /// let load = runtime.handle().class_load(Priority::Low);
    /// assert_eq!((load.waiting, load.turns), (0, Some(1)));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn class_load(&self, class: Priority) -> ClassLoad {
        let none = ClassLoad { waiting: 0, turns: (class != Priority::Normal).then_some(0) };
        self.alive().map_or(none, |sched| sched.class_load(class))
    }

    /// Returns `true` if the runtime has begun to end: no further goroutine starts in it.
    pub fn is_ended(&self) -> bool {
        self.alive().is_none()
    }

    /// Returns the runtime, which lives while the caller has the `Arc`; `None` once it has begun to end.
    fn alive(&self) -> Option<Arc<Sched<Active>>> {
        self.0.upgrade().filter(|sched| !sched.is_ending())
    }

    /// As `alive`, for a function of the name `call`, which needs the runtime.
    pub(crate) fn sched(&self, call: &str) -> io::Result<Arc<Sched<Active>>> {
        let ended = || io::Error::new(io::ErrorKind::NotConnected, format!("{call}: the runtime has ended"));
        self.alive().ok_or_else(ended)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("is_ended", &self.is_ended()).finish_non_exhaustive()
    }
}
