//! Goroutines as the user sees them: [`go`], [`JoinHandle`], [`Builder`], [`yield_now`], [`goexit`], [`current`].

mod abort;
pub(crate) mod block_on;
mod builder;
pub(crate) mod fork;
pub mod hooks;
mod join;
pub mod local;
pub mod migration;
pub(crate) mod own_frame;
pub(crate) mod park;
mod priority;
pub(crate) mod scope;
pub(crate) mod thread;
mod turns;
mod verbs;
pub(crate) mod waker;
pub(crate) mod with_stack;

pub use abort::{AbortHandle, go_abortable};
pub use builder::Builder;
pub(crate) use builder::{spawn_in, spawn_in_unchecked};
pub(crate) use join::panic_text;
pub use join::{JoinError, JoinHandle};
pub use priority::{priority, set_priority};
pub(crate) use turns::let_others_run;
pub use turns::{blocking, yield_now, yield_to};
pub use verbs::{Affinity, go_fair};

use crate::g::{Birth, Name};
use crate::host::Active;
use crate::m::M;
use crate::runtime::Handle;
use crate::sched::Sched;
use crate::sched::run::place::Place;
use crate::wait::interrupt::Interrupt;
use std::fmt;
use std::io;
use std::panic::Location;

/// Starts a goroutine in the runtime of the calling goroutine. Go's `go f()`. Does not block.
///
/// The goroutine is queued, and starts when an M takes it out of the queue. The goroutine lives on when the
/// [`JoinHandle`] is dropped, and ends at the latest with the runtime, which unwinds a parked goroutine: see
/// [`Runtime::shutdown_timeout`](crate::Runtime::shutdown_timeout). When the runtime has begun to end, `f` is dropped
/// unrun, on the calling thread.
///
/// A panic ends only the goroutine, and is reported on standard error by the panic hook, which has a stack of its own
/// for its backtrace (but see [the `generator` backend](crate::migration#the-generator-backend)). The panic itself
/// takes up to 8 KiB of the goroutine's stack.
///
/// A stack does not grow: 64 KiB by default, 256 KiB in a debug build, of which the lowest page belongs to the guard, which
/// extends below it ([`guard_size`](crate::RuntimeBuilder::guard_size)). An overflow hits the guard and ends the process by
/// SIGABRT, after a message with the goroutine's number, name, place of the spawn, and frames. [`Builder::stack_size`] asks for
/// a larger stack, [`with_stack`](crate::with_stack) for a larger one during one call.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let sum = unsafe {
///     gmp::run(|| {
///         let halves = [gmp::go(|| (0..50).sum::<u32>()), gmp::go(|| (50..100).sum::<u32>())];
///         halves.map(|half| half.join().unwrap()).iter().sum::<u32>()
///     })
/// };
/// assert_eq!(sum, 4950);
/// ```
///
/// # Panics
/// Outside of a goroutine: there [`run`](crate::run) starts the first one, [`Runtime::go`](crate::Runtime::go) others on a
/// thread that has a [`Runtime`](crate::Runtime), and a [`Handle`](crate::Handle) on any other thread. When the goroutine can
/// get no stack, with a text that names the limit: the runtime's own
/// ([`max_stack_bytes`](crate::RuntimeBuilder::max_stack_bytes)), the address space (`ulimit -v`) or data (`ulimit -d`), or the
/// number of mappings (`vm.max_map_count`, before Linux 6.13). When `f`, or its value, has as many bytes as the stack onto
/// which it is moved, with a text that names these sizes. [`Builder::go`] gives both as an error.
#[track_caller]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let sched = here("go", FROM_A_THREAD);
    accepted("go", spawn(sched, plain(sched), f))
}

/// As [`go`], from a goroutine of `sched`, without a handle, for the closure that `make` returns. If the goroutine can get no
/// stack, this panics and drops `make` uncalled.
#[track_caller]
pub(crate) fn go_detached<F>(sched: &Sched<Active>, make: impl FnOnce() -> F)
where
    F: FnOnce() + Send + 'static,
{
    // SAFETY: the closure borrows nothing that ends.
    accepted("go", unsafe { sched.spawn_detached(plain(sched), Place::Next, make) });
}

/// The properties of a goroutine that `go` starts.
#[inline(always)]
#[track_caller]
pub(crate) fn plain(sched: &Sched<Active>) -> Birth {
    Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() }
}

/// The calls that start goroutines on a plain thread, for messages.
pub(crate) const FROM_A_THREAD: &str = "gmp::run, Runtime::go or Handle::go";

/// Returns the spawned goroutine's handle, or panics with the error.
#[track_caller]
pub(crate) fn accepted<T>(call: &str, spawned: io::Result<T>) -> T {
    match spawned {
        Ok(spawned) => spawned,
        Err(refused) => panic!("{call}: {refused}"),
    }
}

/// Returns the scheduler of the calling goroutine.
#[inline(always)]
#[track_caller]
pub(crate) fn here<'a>(call: &str, elsewhere: &str) -> &'a Sched<Active> {
    match Sched::current() {
        Some(sched) => sched,
        None => not_here(call, elsewhere),
    }
}

#[cold]
#[inline(never)]
#[track_caller]
fn not_here(call: &str, elsewhere: &str) -> ! {
    panic!("{call}: not called on a goroutine; from a thread use {elsewhere}")
}

/// Starts a goroutine of `sched`, or says which limit on stacks was met.
pub(crate) fn spawn<F, T>(sched: &Sched<Active>, birth: Birth, f: F) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: `f` borrows nothing that ends.
    unsafe { spawn_unchecked(sched, birth, f) }
}

/// # Safety
/// What `f` and `T` borrow outlives the goroutine and the handle.
pub(crate) unsafe fn spawn_unchecked<F, T>(
    sched: &Sched<Active>,
    birth: Birth,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    // SAFETY: by this function's contract.
    unsafe { sched.spawn(birth, f) }.map(JoinHandle::of)
}

/// Returns a handle of the calling goroutine's runtime, by which other threads and runtimes start goroutines in it.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (handle, (sender, receiver)) = (gmp::handle(), gmp::chan::bounded(0));
///         std::thread::spawn(move || handle.go(move || sender.send("from a thread")));
///         assert_eq!(receiver.recv(), Ok("from a thread"));
///     })
/// }
/// ```
///
/// # Panics
/// Outside of a goroutine: there [`Runtime::handle`](crate::Runtime::handle) returns a handle.
#[track_caller]
pub fn handle() -> Handle {
    Handle::of(here("handle", "Runtime::handle"))
}

/// Ends the calling goroutine: the stack is unwound, destructors run, and [`join`](JoinHandle::join) returns an error
/// for which [`JoinError::is_goexit`] returns `true`. Go's `runtime.Goexit`. No panic hook runs.
///
/// `goexit` unwinds like a panic, and [`is_interrupt`](crate::is_interrupt) tells the two apart. If a `catch_unwind` stops the
/// unwinding, the next call that parks unwinds the goroutine again, up to three unwindings in all; the goroutine ends at the
/// latest when its function returns, and the function's value is dropped. Where a panic would end the process, in a destructor
/// that runs because of a panic or below a function that must not unwind, `goexit` ends it too.
///
/// If the main goroutine calls `goexit`, [`Runtime::run`](crate::Runtime::run) never returns; the other goroutines continue.
/// When they have ended too, the process ends with Go's words, "fatal error: no goroutines (main called runtime.Goexit) -
/// deadlock!", wherever [`run`](crate::run) would report a deadlock. A test of the attribute `gmp::test` that calls `goexit`
/// fails, as in Go.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let ended = gmp::go(|| gmp::goexit()).join();
///         assert!(ended.unwrap_err().is_goexit());
///     })
/// }
/// ```
///
/// # Panics
/// Outside of a goroutine.
#[doc(alias = "Goexit")]
#[track_caller]
pub fn goexit() -> ! {
    let Some(g) = M::<Active>::current().and_then(M::g) else {
        panic!("goexit: not called on a goroutine");
    };
    g.exits.set(true);
    Interrupt::Exit.throw_unseen::<Active>()
}

/// A goroutine's number, unique within a runtime and never used again.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let worker = gmp::go(|| gmp::current().unwrap().id());
///         let id = worker.id();
///         assert_eq!(worker.join().unwrap(), id);
///         assert_eq!(id.to_string(), id.get().to_string());
///     })
/// }
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq, Ord, PartialOrd, Hash)]
pub struct GoroutineId(u64);

impl GoroutineId {
    /// Returns the number itself.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GoroutineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The calling goroutine, as [`current`] returns it.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let worker = gmp::Builder::new().name("digits").go(|| gmp::current().unwrap()).unwrap();
///         let seen = worker.join().unwrap();
///         assert_eq!(seen.name(), Some("digits"));
///         assert_ne!(seen.id(), gmp::current().unwrap().id());
///     })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Goroutine {
    id: GoroutineId,
    name: Option<Name>,
}

impl Goroutine {
    /// Returns the goroutine's number.
    pub fn id(&self) -> GoroutineId {
        self.id
    }

    /// Returns the goroutine's name, if any.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref().map(|name| &**name)
    }
}

/// Returns the calling goroutine; `None` on a plain thread.
///
/// ```
/// assert!(gmp::current().is_none());
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| assert_eq!(gmp::current().unwrap().name(), Some("main")));
/// }
/// ```
pub fn current() -> Option<Goroutine> {
    let g = M::<Active>::current()?.g()?;
    Some(Goroutine { id: GoroutineId(g.id()), name: g.with_birth(|birth| birth.name.clone()) })
}

/// Returns the number of goroutines of the calling goroutine's runtime, the caller included; 0 outside of a runtime.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (sender, receiver) = gmp::chan::bounded::<()>(0);
///         let waits = gmp::go(move || receiver.recv());
///         assert_eq!(gmp::num_goroutines(), 2);
///         drop(sender);
///         assert!(waits.join().unwrap().is_err());
///         assert_eq!(gmp::num_goroutines(), 1);
///     })
/// }
/// ```
pub fn num_goroutines() -> usize {
    Sched::<Active>::current().map_or(0, Sched::num_goroutines)
}

/// Returns the number of Ps of the calling goroutine's runtime: how many goroutines may run at the same time. 0
/// outside of a runtime.
///
/// ```
/// assert_eq!(gmp::procs(), 0);
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { gmp::Runtime::builder().procs(3).build()? };
/// assert_eq!(runtime.run(gmp::procs), 3);
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "GOMAXPROCS")]
pub fn procs() -> usize {
    Sched::<Active>::current().map_or(0, Sched::procs)
}

/// Changes how many goroutines of the calling goroutine's runtime may run at the same time, 1 to 1024, and returns
/// the number before. Does not block. On a plain thread use [`Runtime::set_procs`](crate::Runtime::set_procs).
///
/// With more Ps, goroutines that wait for one begin to run at once. With fewer, idle surplus Ps retire at once, and a goroutine
/// on another surplus P runs on until it parks, yields, ends, or loses the P within some milliseconds. Go stops the world for
/// that; this call returns before. No goroutine that is queued or asleep is lost. Threads that are no longer needed sleep.
///
/// Concurrent calls take effect one after the other, and each returns the number that the previous call has set. From the first
/// call on, the number no longer follows the machine's number of CPUs. At the end of a runtime, once its goroutines were
/// unwound, the call has no effect.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let before = gmp::set_procs(2);
///         assert_eq!(gmp::procs(), 2);
///         assert_eq!(gmp::set_procs(before), 2);
///     })
/// }
/// ```
///
/// # Panics
/// Outside of a goroutine; when `procs` is out of range (Go ignores a number below one).
#[doc(alias = "GOMAXPROCS")]
#[track_caller]
pub fn set_procs(procs: usize) -> usize {
    crate::runtime::set_procs(here("set_procs", "Runtime::set_procs"), procs)
}
