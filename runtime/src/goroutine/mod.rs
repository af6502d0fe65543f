//! Goroutines as the user sees them: [`go`], [`JoinHandle`], [`Builder`], [`yield_now`], [`goexit`], [`current`].

mod abort;
pub(crate) mod block_on;
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
mod verbs;
pub(crate) mod waker;
pub(crate) mod with_stack;

pub use abort::{AbortHandle, go_abortable};
pub use join::{JoinError, JoinHandle};
pub use priority::{priority, set_priority};
pub use verbs::{Affinity, go_fair, yield_to};

use crate::g::{Birth, Name};
use crate::host::Active;
use crate::m::{M, Window};
use crate::runtime::Handle;
use crate::runtime::priority::Priority;
use crate::sched::Sched;
use crate::sched::park::{Seldom, Yield};
use crate::sched::run::place::Place;
use crate::sched::run::spree;
use crate::sched::switch::{self, Duties};
use crate::sync::WaitGroup;
use crate::wait::interrupt::{self, Interrupt};
use own_frame::in_own_frame;
use scope::{Scope, ScopedJoinHandle};
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
/// A stack does not grow: 64 KiB by default, 256 KiB in a debug build, of which the lowest page is the guard's, which
/// goes on below ([`guard_size`](crate::RuntimeBuilder::guard_size)). An overflow meets that guard and ends the process
/// by SIGABRT, after a message with the goroutine's number, name, place of the spawn, and frames.
/// [`Builder::stack_size`] asks for more, [`with_stack`](crate::with_stack) for one call.
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
/// Outside of a goroutine: a program has the first one by [`run`](crate::run), and a thread that has a
/// [`Runtime`](crate::Runtime) starts others by [`Runtime::go`](crate::Runtime::go); any other thread does by the
/// [`Handle`](crate::Handle) of a runtime. When the goroutine can get no stack, with
/// a text that names the limit: the runtime's own ([`max_stack_bytes`](crate::RuntimeBuilder::max_stack_bytes)), the address
/// space (`ulimit -v`) or data (`ulimit -d`), or the number of mappings (`vm.max_map_count`, before Linux 6.13).
/// [`Builder::go`] gives that as an error.
#[track_caller]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let sched = here("go", FROM_A_THREAD);
    let birth = Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() };
    accepted("go", spawn(sched, birth, f))
}

/// As [`go`], on a goroutine of `sched`, without a handle, with the closure that `make` gives. A panic because the goroutine
/// can get no stack drops `make` uncalled.
#[track_caller]
pub(crate) fn go_detached<F>(sched: &Sched<Active>, make: impl FnOnce() -> F)
where
    F: FnOnce() + Send + 'static,
{
    let birth = Birth { name: None, stack_size: sched.config.stack_size, site: Location::caller() };
    // SAFETY: the closure borrows nothing that ends.
    accepted("go", unsafe { sched.spawn_detached(birth, make) });
}

/// What starts goroutines where none runs.
pub(crate) const FROM_A_THREAD: &str = "gmp::run, Runtime::go or Handle::go";

/// Returns the spawned goroutine's handle, or panics with the error.
#[track_caller]
pub(crate) fn accepted<T>(call: &str, spawned: io::Result<T>) -> T {
    match spawned {
        Ok(spawned) => spawned,
        Err(refused) => panic!("{call}: {refused}"),
    }
}

/// The scheduler of the calling goroutine.
#[track_caller]
pub(crate) fn here<'a>(call: &str, elsewhere: &str) -> &'a Sched<Active> {
    match Sched::current() {
        Some(sched) => sched,
        None => panic!("{call}: not called on a goroutine; from a thread use {elsewhere}"),
    }
}

/// Starts a goroutine of `sched` with what its builder says, or says what limit was met.
pub(crate) fn spawn_in<F, T>(
    sched: &Sched<Active>,
    asked: Builder,
    site: &'static Location<'static>,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: `f` borrows nothing that ends.
    unsafe { spawn_in_unchecked(sched, asked, site, f) }
}

/// As `spawn_in`.
///
/// # Safety
/// What `f` and `T` borrow outlives the goroutine and the handle.
pub(crate) unsafe fn spawn_in_unchecked<F, T>(
    sched: &Sched<Active>,
    asked: Builder,
    site: &'static Location<'static>,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let stack_size = match asked.stack_size {
        Some(bytes) => crate::runtime::check_stack_size(bytes)?,
        None => sched.config.stack_size,
    };
    let place = if asked.class == Priority::Normal { asked.place } else { Place::of(asked.class) };
    // SAFETY: by this function's contract.
    unsafe { sched.spawn_at(Birth { name: asked.name, stack_size, site }, place, f) }.map(JoinHandle::of)
}

/// Starts a goroutine of `sched`, or says what limit of stacks was met.
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

/// A goroutine with a name, or with a stack of its own size. A function that wraps [`go`](Self::go) should be
/// `#[track_caller]`: else dumps and panics name that function as the place of each spawn.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let name = unsafe {
///     gmp::run(|| {
///         let parser = gmp::Builder::new().name("parser").stack_size(1 << 20);
///         let named = parser.go(|| gmp::current().and_then(|g| g.name().map(str::to_owned)))?;
///         Ok::<_, std::io::Error>(named.join().unwrap())
///     })
/// };
/// assert_eq!(name.unwrap().as_deref(), Some("parser"));
/// ```
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let worker = gmp::Builder::new().name("digits").stack_size(256 << 10).go(|| {
///             gmp::current().and_then(|goroutine| goroutine.name().map(str::to_owned))
///         });
///         let name = worker.expect("there is room for a stack").join().unwrap();
///         assert_eq!(name.as_deref(), Some("digits"));
///     })
/// }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Builder {
    name: Option<Name>,
    stack_size: Option<usize>,
    place: Place,
    class: Priority,
}

impl Builder {
    /// Returns a builder of goroutines without a name, with the runtime's stack size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the name, for panic messages and dumps.
    pub fn name(mut self, name: impl AsRef<str>) -> Self {
        self.name = Some(Name::new(name.as_ref().into()));
        self
    }

    /// Sets the bytes of stack, rounded up to a power of two; at least 16 KiB, at most 64 MiB. The lowest page is the guard's;
    /// a page takes memory once touched. A stack does not grow: an overflow is reported, and ends the process by SIGABRT.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Starts the goroutine, as [`go`] does.
    ///
    /// A goroutine that was accepted has its stack reserved. Where the kernel has no memory left for the stack's guard when the
    /// goroutine is to begin, or, with the [`generator` backend](crate::migration#the-generator-backend), for the stack, the
    /// goroutine waits for it, however long: see [`Refused::stacks`](crate::Refused::stacks).
    ///
    /// # Errors
    /// `InvalidInput` when the stack size is out of range; when the goroutine can get no stack, as [`go`] panics with:
    /// `QuotaExceeded` at [`max_stack_bytes`](crate::RuntimeBuilder::max_stack_bytes), `OutOfMemory` where the kernel
    /// refuses.
    ///
    /// # Panics
    /// Outside of a goroutine.
    #[track_caller]
    pub fn go<F, T>(self, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let sched = here("Builder::go", FROM_A_THREAD);
        spawn_in(sched, self, Location::caller(), f)
    }

    /// Starts the goroutine in the runtime of `handle`, from any thread. Does not block.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let handle = runtime.handle();
    /// let name = || gmp::current().and_then(|goroutine| goroutine.name().map(str::to_owned));
    /// // On a plain thread.
    /// let worker = gmp::Builder::new().name("worker").stack_size(256 << 10).go_in(&handle, name)?;
    /// assert_eq!(worker.join().unwrap().as_deref(), Some("worker"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotConnected` when the runtime has begun to end; as [`go`](Self::go) otherwise.
    #[track_caller]
    pub fn go_in<F, T>(self, handle: &Handle, f: F) -> io::Result<JoinHandle<T>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        spawn_in(&*handle.sched("Builder::go_in")?, self, site, f)
    }

    /// Starts the goroutine as a task of a wait group, as [`WaitGroup::go`] does: a server that counts its connections goes on
    /// where there is no stack for one more. Does not block.
    ///
    /// ```
    /// use gmp::sync::WaitGroup;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let requests = WaitGroup::new();
    ///         for number in 0..3 {
    ///             let request = gmp::Builder::new().name(format!("request {number}"));
    ///             if let Err(refused) = request.go_counted(&requests, move || println!("{number} is served")) {
    ///                 eprintln!("{number} is not served: {refused}");
    ///             }
    ///         }
    ///         requests.wait();
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`go`](Self::go). The group's count is as before then, and `f` was dropped.
    ///
    /// # Panics
    /// Outside of a goroutine.
    #[track_caller]
    pub fn go_counted<F>(self, tasks: &WaitGroup, f: F) -> io::Result<()>
    where
        F: FnOnce() + Send + 'static,
    {
        let sched = here("Builder::go_counted", FROM_A_THREAD);
        spawn_in(sched, self, Location::caller(), tasks.counted(f)).map(drop)
    }

    /// Starts the goroutine in a scope, where it may borrow, as [`Scope::go`] does. Does not block.
    ///
    /// ```
    /// use gmp::{Builder, Priority};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let words = ["one", "three"];
    ///         let lengths = gmp::scope(|scope| {
    ///             let counts = Builder::new().name("counter").priority(Priority::Low);
    ///             counts.go_scoped(scope, || words.map(str::len)).expect("there is room for a stack").join().unwrap()
    ///         });
    ///         assert_eq!(lengths, [3, 5]);
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// `NotConnected` when the runtime of the scope has ended, as a plain thread may find that was handed the scope; as
    /// [`go`](Self::go) otherwise. In each case `f` was dropped.
    #[track_caller]
    pub fn go_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        scope.start(self, Location::caller(), f)
    }
}

/// Returns a handle of the calling goroutine's runtime, for other threads, and other runtimes, that start goroutines in it.
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

/// Lets other goroutines run first: the calling one goes to the end of the queue, or is unwound, when the runtime has
/// begun to end. Blocks the goroutine until its next turn. On a plain thread the call is [`std::thread::yield_now`].
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let other = gmp::go(|| 1);
///         while !other.is_finished() {
///             gmp::yield_now();
///         }
///         assert_eq!(other.join().unwrap(), 1);
///     })
/// }
/// ```
///
/// # Unwinds
/// When the goroutine's runtime ends; see [`migration`](crate::migration#what-may-unwind).
#[doc(alias = "Gosched")]
pub fn yield_now() {
    yield_as(|| Yield::Requeue);
}

/// `what`: which goroutine is to run instead.
#[inline(always)]
fn yield_as(what: impl FnOnce() -> Yield) {
    let Some(window) = Window::<Active>::enter() else { return std::thread::yield_now() };
    let duties = window.m().sched().duties();
    if !duties.are_none() {
        return yield_with_duties(window, duties, what);
    }
    window.suspend(what());
}

/// The rest of `yield_as` where the runtime ends, or functions of [`hooks`] are registered.
#[cold]
#[inline(never)]
fn yield_with_duties(window: Window<Active>, duties: Duties, what: impl FnOnce() -> Yield) {
    drop(window);
    if duties.ends() {
        interrupt::end_here::<Active>();
    }
    let_run(what);
}

/// The calling goroutine goes to the end of the queue, with the functions of [`hooks`] around that. Never unwinds.
pub(crate) fn let_others_run() {
    let_run(|| Yield::Requeue);
}

fn let_run(what: impl FnOnce() -> Yield) {
    switch::suspend::<Active>();
    // A plain thread leaves that to the kernel.
    if let Some(window) = Window::<Active>::enter() {
        window.suspend(what());
    }
    switch::resume::<Active>();
}

/// Ends the calling goroutine: the stack is unwound, destructors run, and [`join`](JoinHandle::join) returns an error
/// for which [`JoinError::is_goexit`] returns `true`. Go's `runtime.Goexit`. No panic hook runs.
///
/// `goexit` unwinds like a panic, and [`is_interrupt`](crate::is_interrupt) tells the two apart. Where a `catch_unwind`
/// stops the unwinding, the goroutine ends at its next call that parks, three times, and at the latest when its
/// function returns, whose value is dropped then. Called where a panic would end the process, in a destructor that runs
/// because of a panic, or below a function that must not unwind, `goexit` ends the process too.
///
/// In the main goroutine `goexit` has [`Runtime::run`](crate::Runtime::run) never return; the other goroutines go on. When they
/// have ended too the process does, by "fatal error: no goroutines (main called runtime.Goexit) - deadlock!", which are Go's
/// words, where [`run`](crate::run) would report a deadlock. A test of the attribute `gmp::test` that calls `goexit` has
/// failed, as in Go.
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

/// Runs `f`, which blocks the thread, and lets the other goroutines go on meanwhile: the calling goroutine runs `f` without a
/// P, and takes a P again afterwards, for which it may park. Where no goroutine waits for the P, `f` runs on the same thread.
/// Where others wait, the thread goes on with them, and `f` runs on another one: so `blocking` may park before `f` as well. A
/// goroutine that is [locked to its thread](crate::lock_os_thread) stays there. On a plain thread, and wherever the goroutine
/// has no P, the call just runs `f`: so inside another `blocking` until the outer `f` has parked for the first time. From then
/// on the goroutine has a P again, and an inner `blocking` gives it away. `f` needs to be neither `Send` nor `'static`.
///
/// A blocking call without `blocking` stalls other goroutines for a short time only: the monitor finds the thread
/// blocked, and retakes the P. With `blocking` the others are not stalled at all. So use `blocking` for calls that
/// block for longer than some 10 µs, the cost of waking another thread for the P: a file, a name look-up, a lock of
/// std, a long computation. `f` may do everything that a goroutine may. If `f` parks, the goroutine takes a P first,
/// and keeps that P. Until then `f` runs without a P, and goroutines that `f` starts or wakes go through the global
/// queue.
///
/// At [`max_threads`](crate::RuntimeBuilder::max_threads) there may be no thread to take the P: then an `f` that waits
/// for another goroutine waits for ever. As `blocking` may park before `f` and on return, [`migration`](crate::migration)'s
/// contract holds for what `f` is given and for what it gives back. After a panic in `f` the goroutine goes on without a P
/// until the next call that parks.
///
/// # Unwinds
/// When a wait of `f` is ended from outside; see [`migration`](crate::migration#what-may-unwind). The wait for a P is
/// not.
///
/// # Panics
/// When `f` does.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let text = unsafe { gmp::run(|| gmp::blocking(|| std::fs::read_to_string("/proc/self/comm"))) };
/// assert!(text.is_ok());
/// ```
#[doc(alias = "entersyscall")]
#[inline]
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    // In the frame of the caller, which has built the closure there: one call further it would be a copy.
    let left = leave_p_to_block();
    let value = in_own_frame(f);
    if left {
        come_back_for_p();
    }
    value
}

/// The calling goroutine, which is about to block its thread, goes on without its P, if it has one: returns `true` then.
fn leave_p_to_block() -> bool {
    let Some(window) = Window::<Active>::enter_with_p() else {
        spree::goes_on_without_p::<Active>();
        return false;
    };
    if window.m().sched().wants_p_of(&window) {
        window.suspend(Yield::Seldom(Seldom::Call));
        // Here with a P, which is given away, if there was no M for the call.
        Sched::<Active>::step_aside();
    } else {
        window.m().sched().entersyscallblock(&window);
        drop(window);
    }
    true
}

/// Takes a P, for which the calling goroutine may park.
fn come_back_for_p() {
    drop(Window::<Active>::enter());
}

/// A goroutine's number. Unique within a runtime, never used again.
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
/// With more Ps, goroutines that wait for one begin to run at once. With fewer, idle Ps go at once, and a goroutine that runs
/// on one of the others runs on until it parks, yields, ends, or loses the P within some milliseconds: Go stops the world for
/// that; this call returns before. Nothing that is queued or sleeps is lost. Threads that are not needed any more sleep.
///
/// Concurrent calls take effect one after the other, and each returns the number of the one before. From the first call on the
/// number no longer follows the machine's. At the end of a runtime, once the goroutines were unwound, the call has no effect.
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
