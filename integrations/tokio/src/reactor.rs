//! A runtime of tokio on threads of its own, and its owners.
//!
//! Each of these holds the reactor: the [`Reactor`], each function that [`Reactor::entering`] has returned (so the builders and
//! runtimes of gmp that have such a function), and each thread that has entered. The last holder that lets go ends the reactor,
//! and does not wait, as that holder may be a task of the reactor itself.

use gmp::RuntimeBuilder;
use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, EnterGuard, Handle, Runtime, RuntimeFlavor};

struct Shared {
    handle: Handle,
    state: Mutex<State>,
    one_less: Condvar,
}

struct State {
    holds: usize,
    /// Taken by the thread that ends the reactor.
    runtime: Option<Runtime>,
}

impl Shared {
    /// Never kept across a call that parks.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics under this lock")
    }
}

/// Keeps the reactor.
struct Hold(Arc<Shared>);

impl Clone for Hold {
    fn clone(&self) -> Self {
        self.0.state().holds += 1;
        Hold(Arc::clone(&self.0))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.holds -= 1;
        let runtime = if state.holds == 0 { state.runtime.take() } else { None };
        drop(state);
        self.0.one_less.notify_all();
        if let Some(runtime) = runtime {
            runtime.shutdown_background();
        }
    }
}

/// A thread is in the context of the reactor; returned by the functions of [`reactor`](crate::reactor()) and
/// [`Reactor::entering`]. Dropping the value makes the thread leave.
pub struct Entered {
    /// `guard` borrows the handle in `_hold`.
    guard: ManuallyDrop<EnterGuard<'static>>,
    _hold: Hold,
}

impl Entered {
    fn new(hold: Hold) -> Self {
        let guard = hold.0.handle.enter();
        // SAFETY: the drop below drops the guard before `hold`, which keeps the handle where it is.
        let guard = unsafe { std::mem::transmute::<EnterGuard<'_>, EnterGuard<'static>>(guard) };
        Entered { guard: ManuallyDrop::new(guard), _hold: hold }
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        // SAFETY: no code uses the guard after the drop.
        unsafe { ManuallyDrop::drop(&mut self.guard) };
    }
}

impl fmt::Debug for Entered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entered").finish_non_exhaustive()
    }
}

/// A reactor: a runtime of tokio on threads of its own, beside those that run goroutines.
///
/// [`install`](crate::install) makes one and keeps it in the builder. A caller that makes the value itself can configure
/// tokio's runtime, give one reactor to several runtimes of gmp, use its [`handle`](Self::handle) on plain threads, and wait
/// for its [`end`](Self::end).
///
/// ```
/// use gmp_tokio::Reactor;
/// use std::time::Duration;
///
/// let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
/// let reactor = Reactor::new(tokio);
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { reactor.install(gmp::Runtime::builder()).build()? };
/// let five = runtime.run(|| {
///     gmp_tokio::run(async {
///         tokio::time::sleep(Duration::from_millis(1)).await;
///         5
///     })
/// });
/// assert_eq!(five, 5);
/// drop(runtime);
/// assert!(reactor.end(Duration::from_secs(60)));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # When it ends
/// The reactor ends when nothing keeps it any more: not this value, no [`RuntimeBuilder`] that has it, no runtime of gmp that
/// was built from such a builder, no thread that has entered. A thread of a runtime leaves when the thread ends, so goroutines
/// have their reactor until the very end of their runtime, also in destructors during an unwind. A goroutine that the end of
/// its runtime leaves behind in a call that blocks keeps its thread, and the thread keeps the reactor until that call returns;
/// a goroutine that is left behind parked keeps nothing.
///
/// The end drops the tasks that exist, each where it waits. By default no thread waits for that; [`end`](Self::end) does. Wakes
/// that come with the end, or later, reach no goroutine.
pub struct Reactor(Hold);

impl Reactor {
    /// Starts a runtime of tokio with its sockets, its processes and its timers. It has as many threads as there are cores,
    /// tokio's default, which are called `gmp-reactor`. Does not block.
    ///
    /// # Errors
    /// The kernel's, if it refuses a descriptor to tokio, or a thread; in the second case tokio has panicked, so the panic's
    /// message was printed.
    pub fn start() -> io::Result<Self> {
        let build = || Builder::new_multi_thread().thread_name("gmp-reactor").enable_all().build();
        let built = catch_unwind(AssertUnwindSafe(build)).unwrap_or_else(|payload| {
            let text =
                payload.downcast::<String>().map_or_else(|_| "tokio has panicked".to_owned(), |text| *text);
            Err(io::Error::other(text))
        });
        let named = |refused: io::Error| {
            io::Error::new(refused.kind(), format!("gmp_tokio: cannot start the reactor: {refused}"))
        };
        built.map(Self::new).map_err(named)
    }

    /// Makes a reactor of a runtime of tokio that the program has configured. Does not block.
    ///
    /// # Panics
    /// If `runtime` is one of the current thread: no thread would drive it.
    #[track_caller]
    pub fn new(runtime: Runtime) -> Self {
        let handle = runtime.handle().clone();
        assert!(
            handle.runtime_flavor() != RuntimeFlavor::CurrentThread,
            "Reactor::new: a runtime of the current thread has no thread that would drive it; \
             make it by tokio::runtime::Builder::new_multi_thread"
        );
        let state = Mutex::new(State { holds: 1, runtime: Some(runtime) });
        Reactor(Hold(Arc::new(Shared { handle, state, one_less: Condvar::new() })))
    }

    /// Makes each thread of the runtime that `builder` will build enter this reactor, by [`RuntimeBuilder::on_thread_start`].
    /// Does not block.
    pub fn install(&self, builder: RuntimeBuilder) -> RuntimeBuilder {
        builder.on_thread_start(self.entering())
    }

    /// Returns a function that enters the reactor on the calling thread, which [`install`](Self::install) gives to
    /// [`RuntimeBuilder::on_thread_start`]. Does not block.
    pub fn entering(&self) -> impl Fn() -> Entered + Send + Sync + 'static + use<> {
        let hold = self.0.clone();
        move || Entered::new(hold.clone())
    }

    /// Returns tokio's handle, for plain threads, and for [`Handle::spawn`]. The handle does not keep the reactor from ending.
    pub fn handle(&self) -> &Handle {
        &self.0.0.handle
    }

    /// Waits until nothing else keeps the reactor, ends it, and waits until its threads have ended; within `limit` in total.
    /// Returns `false` if this did not happen in time: then the reactor ends by itself when the other holders let go.
    ///
    /// Blocks the thread. Call this after the end of the runtimes that have the reactor; in one of their goroutines the call
    /// waits for the goroutine's own thread, for the whole limit.
    ///
    /// # Panics
    /// In a task of tokio, where tokio does not allow blocking.
    pub fn end(self, limit: Duration) -> bool {
        let (shared, start) = (&self.0.0, Instant::now());
        let waited = shared.one_less.wait_timeout_while(shared.state(), limit, |state| state.holds > 1);
        let (mut state, _) = waited.expect("nobody panics under this lock");
        if state.holds > 1 {
            return false;
        }
        let runtime = state.runtime.take();
        drop(state);
        runtime.expect("end: this value has held it").shutdown_timeout(limit.saturating_sub(start.elapsed()));
        // tokio does not say whether the threads have ended; but it returns before the limit only if they have.
        start.elapsed() < limit
    }
}

impl fmt::Debug for Reactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reactor").field("handle", self.handle()).finish_non_exhaustive()
    }
}
