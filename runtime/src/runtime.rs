//! Starting and ending a runtime: [`run`], [`Runtime`].

use crate::g::Birth;
use crate::goroutine::{self, JoinHandle};
use crate::host::{self, Active};
use crate::prim::Arc;
use crate::sched::{Config, Sched};
use std::fmt;
use std::io;
use std::panic::{Location, resume_unwind};
use std::time::Duration;

pub use crate::sched::Report;

/// Bytes of stack of a goroutine that asks for no size of its own.
const STACK_SIZE: usize = 64 << 10;
/// The most threads of a runtime, as in Go.
const MAX_THREADS: usize = 10_000;
/// The most Ps of a runtime.
const MAX_PROCS: usize = 1024;
/// What `drop` waits for the threads.
const PATIENCE: Duration = Duration::from_secs(3);

/// Runs `f` as the main goroutine of a new runtime with all defaults, and returns its value when it returns.
/// Blocks the calling thread. The other goroutines end with it: see [`Runtime::shutdown_timeout`]; for one that does
/// not park it waits three seconds.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let answer = unsafe { gmp::run(|| gmp::go(|| 42).join().unwrap()) };
/// assert_eq!(answer, 42);
/// ```
///
/// # Safety
/// The contract of [`gmp::migration`](crate::migration): a goroutine may go on on another thread after every
/// call that may park it, and no code that runs in it may rely on the opposite.
///
/// # Panics
/// With the panic of `f`; when the machine refuses what a runtime needs, or `GMPMAXPROCS` is no number within 1 to
/// 1024: [`RuntimeBuilder::build`] gives that as an error.
#[track_caller]
pub unsafe fn run<F, T>(f: F) -> T
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    // SAFETY: by this function's contract.
    match unsafe { Runtime::builder().build() } {
        Ok(runtime) => runtime.run(f),
        Err(refused) => panic!("gmp::run: {refused}"),
    }
}

/// A runtime: its Ps, its threads, its goroutines. Several may live in one process.
///
/// Dropping it ends it, as [`shutdown_timeout`](Self::shutdown_timeout) with three seconds of patience, and blocks the
/// thread, also when a goroutine of another runtime does it. On one of its own goroutines it only begins to end, and
/// `drop` does not wait; whoever joins a goroutine of it hears of the end then, though it may run on for a while.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { gmp::Runtime::builder().procs(2).build()? };
/// let double = |n: u32| runtime.go(move || 2 * n);
/// assert_eq!(double(21).join().unwrap(), 42);
/// assert!(runtime.shutdown_timeout(std::time::Duration::from_secs(1)));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    sched: Arc<Sched<Active>>,
    stopped: bool,
}

impl Runtime {
    /// What a runtime may be told before it starts.
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Runs `f` as a goroutine and returns its value. Blocks the calling thread, or goroutine. The other
    /// goroutines go on after it.
    ///
    /// # Panics
    /// With the panic of `f`.
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let birth = self.birth(Some("main"));
        // SAFETY: the borrows of `f` and `T` outlive this call, which does not return before the goroutine has
        // ended; `&self` keeps the runtime from ending before it.
        let main = unsafe { goroutine::spawn_unchecked(&self.sched, birth, f) };
        match main.join() {
            Ok(value) => value,
            Err(error) => resume_unwind(error.into_panic()),
        }
    }

    /// Starts a goroutine from any thread. Does not block.
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        goroutine::spawn(&self.sched, self.birth(None), f)
    }

    #[track_caller]
    fn birth(&self, name: Option<&str>) -> Birth {
        Birth {
            name: name.map(Arc::from),
            stack_size: self.sched.config.stack_size,
            site: Location::caller(),
        }
    }

    #[cfg(gmp_loom)]
    pub(crate) fn sched(&self) -> Arc<Sched<Active>> {
        Arc::clone(&self.sched)
    }

    /// How many Ps it has.
    pub fn procs(&self) -> usize {
        self.sched.procs()
    }

    /// How many goroutines have not ended.
    pub fn num_goroutines(&self) -> usize {
        self.sched.num_goroutines()
    }

    /// What all its goroutines are doing, as text: number, name, what each waits for, where it was spawned.
    /// Works from any thread, also while every goroutine is stuck. Running ones are only counted.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// runtime.run(|| {
    ///     let _sleeper = gmp::go(|| gmp::time::sleep(std::time::Duration::from_secs(60)));
    ///     gmp::yield_now();
    /// });
    /// println!("{}", runtime.dump());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump(&self) -> String {
        self.sched.dump()
    }

    /// Ends the runtime. Blocks the calling thread until its threads are gone, at most for `limit`. True when
    /// every goroutine had ended and every thread is gone.
    ///
    /// A goroutine that runs is left at its next call that parks or yields; one that makes none keeps its thread. Those
    /// that never ran are dropped. Those that are parked, or left, stay as they are: their stacks are leaked, what
    /// lies on them is not dropped, and sockets that they were using go on for others. Whoever joins one of them gets
    /// an error that [`is_shutdown`](crate::JoinError::is_shutdown). [`shutdown`](Self::shutdown) tells how many there
    /// were.
    pub fn shutdown_timeout(self, limit: Duration) -> bool {
        self.shutdown(limit).is_clean()
    }

    /// As [`shutdown_timeout`](Self::shutdown_timeout), and tells what was left.
    pub fn shutdown(mut self, limit: Duration) -> Report {
        self.stopped = true;
        self.sched.stop(limit)
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.stopped {
            self.sched.stop(PATIENCE);
        }
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("procs", &self.procs())
            .field("goroutines", &self.num_goroutines())
            .finish_non_exhaustive()
    }
}

/// What a runtime may be told before it starts; made by [`Runtime::builder`].
#[derive(Clone, Debug, Default)]
#[must_use = "nothing starts before `build`"]
pub struct RuntimeBuilder {
    procs: Option<usize>,
    stack_size: Option<usize>,
    max_threads: Option<usize>,
    thread_name: Option<String>,
}

impl RuntimeBuilder {
    /// How many goroutines may run at the same time, 1 to 1024. Default: the variable `GMPMAXPROCS` of the
    /// environment, else what [`std::thread::available_parallelism`] says.
    #[doc(alias = "GOMAXPROCS")]
    pub fn procs(mut self, procs: usize) -> Self {
        self.procs = Some(procs);
        self
    }

    /// Bytes of stack of a goroutine that asks for no size of its own, 16 KiB to 64 MiB, rounded up to a power of two.
    /// Default: 64 KiB. See [`Builder::stack_size`](crate::Builder::stack_size).
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// The most threads that run goroutines, at least one; the monitor is one more. Default: 10,000. At
    /// the limit the runtime goes on with those that it has: a goroutine in [`blocking`](crate::blocking) then may keep
    /// others waiting.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = Some(threads);
        self
    }

    /// What its threads are called, followed by their number. Default: `gmp-`. Linux shows 15 bytes of it.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = Some(name.into());
        self
    }

    /// Starts the runtime, with one thread; others are made when there is work for them.
    ///
    /// # Safety
    /// The contract of [`gmp::migration`](crate::migration).
    ///
    /// # Errors
    /// `InvalidInput` when a setting, or `GMPMAXPROCS`, is out of range; the kernel's error, with what was
    /// attempted, when it refuses a thread or the poller's descriptors.
    pub unsafe fn build(self) -> io::Result<Runtime> {
        let config = self.settle()?;
        let sched = Sched::start(host::active()?, config)?;
        Ok(Runtime { sched, stopped: false })
    }

    fn settle(self) -> io::Result<Config> {
        let procs = match self.procs {
            Some(procs) => in_range("procs", procs, 1, MAX_PROCS)?,
            None => default_procs()?,
        };
        let max_threads =
            in_range("max_threads", self.max_threads.unwrap_or(MAX_THREADS), 1, u32::MAX as usize)?;
        let thread_name = self.thread_name.unwrap_or_else(|| "gmp-".to_owned());
        if thread_name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("thread_name: {thread_name:?} contains a zero byte"),
            ));
        }
        Ok(Config {
            procs: procs as u32,
            stack_size: check_stack_size(self.stack_size.unwrap_or(STACK_SIZE))?,
            max_threads: max_threads as u32,
            thread_name,
        })
    }
}

fn default_procs() -> io::Result<usize> {
    match std::env::var("GMPMAXPROCS") {
        Err(std::env::VarError::NotPresent) => {
            Ok(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_PROCS))
        }
        Err(std::env::VarError::NotUnicode(text)) => {
            Err(invalid(format!("GMPMAXPROCS: {text:?} is no number")))
        }
        Ok(text) => match text.trim().parse() {
            Ok(procs) => in_range("GMPMAXPROCS", procs, 1, MAX_PROCS),
            Err(_) => Err(invalid(format!("GMPMAXPROCS: {text:?} is no number"))),
        },
    }
}

/// Refuses a stack that can't be had.
pub(crate) fn check_stack_size(bytes: usize) -> io::Result<usize> {
    in_range("stack_size", bytes, host::MIN_STACK, host::MAX_STACK)
}

fn in_range(what: &str, value: usize, least: usize, most: usize) -> io::Result<usize> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(invalid(format!("{what}: {value} is not within {least}..={most}")))
    }
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    fn refusal(builder: RuntimeBuilder) -> String {
        let refused = builder.settle().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
        refused.to_string()
    }

    #[test]
    fn a_setting_out_of_range_is_an_error_that_names_it_and_the_limits() {
        let b = Runtime::builder;
        assert_eq!(refusal(b().procs(0)), "procs: 0 is not within 1..=1024");
        assert_eq!(refusal(b().procs(1025)), "procs: 1025 is not within 1..=1024");
        assert_eq!(refusal(b().max_threads(0)), "max_threads: 0 is not within 1..=4294967295");
        assert_eq!(refusal(b().stack_size(1)), "stack_size: 1 is not within 16384..=67108864");
        assert_eq!(refusal(b().thread_name("a\0b")), "thread_name: \"a\\0b\" contains a zero byte");
    }
}
