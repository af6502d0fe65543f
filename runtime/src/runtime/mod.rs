//! Starting and ending a runtime: [`run`], [`Runtime`].

pub(crate) mod cpu_sets;
pub(crate) mod knobs;
pub(crate) mod lines;
pub(crate) mod load;
pub mod policy;
pub(crate) mod priority;

mod builder;
mod dump;
mod handle;
pub(crate) mod thread_start;

use crate::g::{Birth, Name};
use crate::goroutine::{self, Builder, JoinHandle};
use crate::host::Active;
use crate::impls::unwind_safe;
use crate::m::M;
use crate::prim::Arc;
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::sched::threads::procs::check_procs;
use crate::sched::watch::deadlock::{Doing, Presence};
#[cfg(all(test, gmp_loom))]
use crate::sched::watch::ending::Patience;
use crate::wait::interrupt::OnInterrupt;
use crate::wait::waiter::{How, Wait};
pub use builder::RuntimeBuilder;
pub(crate) use builder::check_stack_size;
pub use dump::dump;
pub use handle::Handle;
use std::fmt;
use std::panic::{Location, resume_unwind};
use std::time::Duration;

pub use crate::sched::{Refused, Report};

/// Bytes of stack of a goroutine that asks for no size. `docs/stacks.md` says why this many.
const STACK_SIZE: u32 = if cfg!(debug_assertions) { 256 << 10 } else { 64 << 10 };
/// The most threads of a runtime, as in Go.
const MAX_THREADS: usize = 10_000;
/// How long the end waits if the program does not set a limit.
const DROP_LIMIT: Duration = Duration::from_secs(3);

/// Runs `f` as the main goroutine of a new runtime with all defaults, and returns the value of `f` when `f` returns. Blocks the
/// calling thread. The other goroutines end with main: they are unwound where they are parked, and their destructors run; see
/// [`Runtime::shutdown_timeout`]. `run` waits up to three seconds for goroutines that do not park
/// ([`RuntimeBuilder::shutdown_timeout`] sets that time), and after 200 ms names them on standard error. Only
/// [`Runtime::shutdown`] returns how many were left behind.
///
/// The main goroutine's stack has the size of all others, 64 KiB, or 256 KiB in a debug build: for more use
/// [`RuntimeBuilder::stack_size`], [`Builder::stack_size`](crate::Builder::stack_size), or `GMPSTACK` in the environment. In a
/// debug build a frame holds the locals of all branches of its function.
///
/// # When all goroutines are asleep
/// As in Go, a program that can't go on is ended, with "fatal error: all goroutines are asleep - deadlock!" and the text of
/// [`dump`](crate::dump) on standard error, with exit status 2 and without running exit handlers: an unterminated line in
/// standard output's buffer is not flushed. The deadlock is found within a second after the last goroutine has fallen asleep,
/// most often at once, if
/// * a thread is inside `run`, of this or any other runtime of the process;
/// * every goroutine of every runtime is parked by this library: a goroutine that blocks its thread, in a lock of std for
///   example, is not parked;
/// * no goroutine waits for a descriptor or, in [`block_on`](crate::block_on), for a future, and no timer is pending: no
///   `sleep`, time limit, callback, or deadline of a context;
/// * no socket keeps the waker of a task, which a `poll_read`, for example, has left there, even if the task's future was
///   dropped since;
/// * the program does not listen for signals, by a receiver of [`signal`](crate::signal) or a context that a signal ends;
/// * the process has no threads except the library's own and those that wait inside `run`. Any other thread might still wake a
///   goroutine. `GMPDEBUG=deadlock=always` ignores other threads. A `#[test]` has another thread, the harness's, and so has a
///   program that calls `run` on a thread and joins that thread.
///
/// So crossed locks, a ring of joins, a lock taken twice, a receive from a channel without a sender are reported, if no other
/// goroutine or thread could ever run. Goroutines that wait for each other while others run are not reported. Nor is a deadlock
/// that only arises from the end of another thread, or of a callback outside of a runtime, later than a second after the last
/// goroutine fell asleep. If `/proc` is missing, no deadlock is reported.
///
/// The first runtime of a process installs a panic hook, which prints the goroutine's number, name, and place of the spawn, and
/// then calls the previous hook. A hook that is set later replaces the runtime's, and can call [`current`](crate::current).
///
/// That runtime also installs a handler of SIGSEGV, which reports the overflow of a goroutine's stack and hands every other
/// fault to the previous handler. Both run on the thread's signal stack, even if the previous handler was installed without
/// `SA_ONSTACK`: that stack has at least 48 KiB on the runtime's threads, but 8 KiB on std's. A handler that the program
/// installs later replaces the runtime's; for overflows to be reported, that handler has to hand on unknown faults, and has to
/// be installed with `SA_SIGINFO | SA_ONSTACK`. A SIGSEGV that a process sends goes to the previous handler, too, and ends the
/// process if that handler sets the default action, as std's does.
///
/// The runtime's threads unblock SIGSEGV and SIGBUS, even in a program that blocks all signals; so does the caller of
/// `run_locked` until the return. They keep the rest of the mask that they inherit, except for the signal of
/// [dumps](crate::dump#goroutines-that-run).
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let answer = unsafe { gmp::run(|| gmp::go(|| 42).join().unwrap()) };
/// assert_eq!(answer, 42);
/// ```
///
/// # Unwinds
/// With the panic of `f` only: an interrupt does not end the wait.
///
/// # Safety
/// The contract of [`gmp::migration`](crate::migration): a goroutine can resume on another thread after every call that may
/// park it, and every such call may unwind; no code that runs in the runtime may rely on the opposite.
///
/// # Panics
/// With the panic of `f`, and when `f` can't be started, as [`go`](crate::go). If the system refuses what a runtime needs,
/// `GMPMAXPROCS` is not a number within 1 to 1024, `GMPSTACK` is not a valid size, or `GMPDEBUG` has an unknown knob or value;
/// [`RuntimeBuilder::build`] returns an error instead.
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

/// A runtime: Ps, threads, goroutines. One process can have several.
///
/// Dropping a runtime ends the runtime, as [`shutdown_timeout`](Self::shutdown_timeout) with the limit of
/// [`RuntimeBuilder::shutdown_timeout`], three seconds by default, and blocks the thread, also when a goroutine of another
/// runtime drops it. On one of the runtime's own goroutines `drop` only begins the end, and does not wait: a thread ends the
/// runtime, and that goroutine is unwound like all others at its next park.
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

// A `Runtime` guards no user data that an unwinding could leave half changed.
unwind_safe!(Runtime);

impl Runtime {
    /// Returns a builder, which has the settings of a runtime before it starts.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().procs(2).thread_name("worker-").build()? };
    /// assert_eq!(runtime.procs(), 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> RuntimeBuilder {
        RuntimeBuilder::default()
    }

    /// Runs `f` as a goroutine and returns the value of `f`. Blocks the calling thread, or goroutine. The other goroutines
    /// continue afterwards. If `f` calls [`goexit`](crate::goexit), the call does not return; when the others are done, or
    /// asleep, the process ends as [`run`](crate::run) says.
    ///
    /// # Unwinds
    /// With the panic of `f` only: an interrupt does not end the wait.
    ///
    /// # Panics
    /// With the panic of `f`, and when `f` can't be started, as [`go`](crate::go).
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        self.run_main(f, block_for_good)
    }

    /// As [`run`](Self::run), for the attribute `gmp::test`: the call panics when `f` calls [`goexit`](crate::goexit). The
    /// other tests of the process run on, so no deadlock would be found.
    ///
    /// # Unwinds
    /// As `run`.
    ///
    /// # Panics
    /// With the panic of `f`, and when `f` calls `goexit`.
    #[doc(hidden)]
    #[track_caller]
    pub fn run_test<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        self.run_main(f, |_| panic!("gmp::test: the test called goexit"))
    }

    /// Runs `f` as main; calls `exits` if `f` has called `goexit`.
    #[track_caller]
    fn run_main<F, T>(&self, f: F, exits: fn(&Presence<Active>) -> !) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        let birth = self.birth(Some("main"));
        let presence = Presence::<Active>::begin();
        // SAFETY: the borrows of `f` and `T` outlive this call, which does not return before the goroutine has ended;
        // `&self` keeps the runtime from ending before.
        let main = unsafe { goroutine::spawn_unchecked(&self.sched, birth, f) };
        let main = goroutine::accepted("run", main);
        Self::outcome_of(main, &presence, exits)
    }

    #[track_caller]
    fn outcome_of<T>(
        main: JoinHandle<T>,
        presence: &Presence<Active>,
        exits: fn(&Presence<Active>) -> !,
    ) -> T {
        // Main borrows from the caller, so the caller must wait for main: a `shutdown` of the caller's own runtime waits for
        // this within its time limit.
        let how = How::new(WaitReason::Join).ends(OnInterrupt::Never);
        presence.set(Doing::WaitsFor(main.g()));
        main.wait(how);
        // Before the handle lets the G go.
        presence.set(Doing::Awake);
        match main.join_in(how) {
            Ok(value) => value,
            Err(error) if error.is_goexit() => exits(presence),
            Err(error) => resume_unwind(error.into_panic()),
        }
    }

    /// Runs `f` as a goroutine that is bound to the calling thread from beginning to end, and returns the value of `f`. For a
    /// library that insists on the process's first thread: call this in `main`. Blocks the thread, which meanwhile belongs to
    /// the runtime and runs this goroutine only; [`max_threads`](RuntimeBuilder::max_threads) does not count it.
    /// [`unlock_os_thread`](crate::unlock_os_thread) does not unbind the goroutine. The other goroutines continue afterwards.
    /// If `f` calls [`goexit`](crate::goexit), the call does not return.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call, except those that are bound to theirs.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let first = std::thread::current().id();
    /// // SAFETY: as above.
    /// let there = unsafe {
    ///     runtime.run_locked(|| {
    ///         gmp::time::sleep(std::time::Duration::from_millis(1));
    ///         std::thread::current().id()
    ///     })
    /// };
    /// assert_eq!(there, first);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// With the panic of `f` only: an interrupt does not end the wait. If this is called while its thread unwinds, by a
    /// destructor, no context ends a wait of `f` either, as none ends a wait of that thread; [`run`](Self::run) has no such
    /// limit.
    ///
    /// # Safety
    /// The contract of [`gmp::migration`](crate::migration), for goroutines that `f` starts; and `f` runs on a stack of its
    /// own, where no code may look for the frames of the thread that calls this.
    ///
    /// # Panics
    /// With the panic of `f`, or of a function of [`on_thread_start`](RuntimeBuilder::on_thread_start); when `f` can't be
    /// started, as [`go`](crate::go); and when a goroutine calls this, as a goroutine has no thread to lend.
    #[track_caller]
    pub unsafe fn run_locked<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        assert!(
            M::<Active>::current().is_none(),
            "run_locked: called on a goroutine; it needs a plain thread, most often the process's first"
        );
        // Declared first, so that they are dropped last, when the thread is no longer an M.
        let _guards = self.sched.thread_starts.get().call::<Active>();
        let birth = self.birth(Some("main"));
        let presence = Presence::<Active>::begin_as_m();
        // SAFETY: as in `run`.
        let g = goroutine::accepted("run_locked", unsafe { self.sched.make(birth, f) });
        let main = JoinHandle::of(g);
        presence.set(Doing::WaitsFor(g));
        self.sched.run_here(g);
        presence.ends_as_m();
        Self::outcome_of(main, &presence, block_for_good)
    }

    /// Starts a goroutine from any thread. Does not block.
    ///
    /// # Panics
    /// When the goroutine can get no stack, or `f` or its value is too large for it, as [`go`](crate::go).
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        goroutine::accepted("Runtime::go", goroutine::spawn(&self.sched, self.birth(None), f))
    }

    /// As [`go`](Self::go), for a goroutine that has its turn in the order of the whole runtime: see
    /// [`go_fair`](crate::go_fair). Does not block.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// assert_eq!(runtime.go_fair(|| 1).join().unwrap(), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// As [`go`](Self::go).
    #[track_caller]
    pub fn go_fair<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let site = Location::caller();
        goroutine::accepted(
            "Runtime::go_fair",
            goroutine::spawn_in(&self.sched, Builder::new().fair(), site, f),
        )
    }

    /// Returns a handle by which goroutines are started in this runtime from anywhere. The handle does not keep the
    /// runtime alive.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let handle = runtime.handle();
    /// let thread = std::thread::spawn(move || handle.go(|| 1 + 1)?.join().map_err(std::io::Error::other));
    /// assert_eq!(thread.join().unwrap()?, 2);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn handle(&self) -> Handle {
        Handle::of(&self.sched)
    }

    #[track_caller]
    fn birth(&self, name: Option<&str>) -> Birth {
        Birth {
            name: name.map(|name| Name::new(name.into())),
            stack_size: self.sched.config.stack_size,
            site: Location::caller(),
        }
    }

    #[cfg(all(test, gmp_loom))]
    pub(crate) fn leave(mut self, limit: Duration) -> Report {
        self.stopped = true;
        let until = <Active as crate::host::Clock>::after(limit);
        self.sched.leave(until, &mut Patience::of::<Active>(limit))
    }

    /// For the bench of policies: see `Sched::counters`.
    #[cfg(gmp_policies)]
    pub(crate) fn counters(&self) -> [u64; 3] {
        self.sched.counters()
    }

    #[cfg(gmp_loom)]
    pub(crate) fn sched(&self) -> Arc<Sched<Active>> {
        Arc::clone(&self.sched)
    }

    /// Returns how many Ps the runtime has: how many goroutines may run at the same time. The number follows the machine,
    /// unless it was set by the builder, by the variable `GMPMAXPROCS`, or by [`set_procs`](Self::set_procs).
    pub fn procs(&self) -> usize {
        self.sched.procs()
    }

    /// Changes the number of Ps, 1 to 1024, and returns the previous number. Can be called on any thread; does not block, and
    /// does not wait for goroutines: see [`gmp::set_procs`](crate::set_procs).
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().procs(4).build()? };
    /// assert_eq!(runtime.set_procs(1), 4);
    /// assert_eq!(runtime.run(gmp::procs), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Panics
    /// When `procs` is out of range.
    #[track_caller]
    pub fn set_procs(&self, procs: usize) -> usize {
        set_procs(&self.sched, procs)
    }

    /// Returns how many goroutines have not ended.
    pub fn num_goroutines(&self) -> usize {
        self.sched.num_goroutines()
    }

    /// Returns what the system has refused the runtime so far, and the runtime did without: for a gauge of a running server.
    /// [`Report::refused`](crate::Report::refused) has the final numbers. Does not block.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// runtime.run(|| gmp::time::sleep(std::time::Duration::from_millis(1)));
    /// assert!(runtime.refused().is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn refused(&self) -> Refused {
        self.sched.refused()
    }

    /// Returns what all goroutines of the runtime are doing, as text: the number and name of each, what it waits for and since
    /// when, the calls that led there, and where it was spawned. Goroutines that do the same at the same place are shown
    /// together. Works on any thread, also while every goroutine is stuck. The time is right to some 10 ms.
    ///
    /// ```text
    /// 5 goroutines, 1 of them running
    ///
    /// goroutine 1 'main' [running]:
    /// gmp::runtime::Runtime::dump
    ///     /src/gmp/runtime/src/runtime/mod.rs:327
    /// demo::main::{{closure}}
    ///     src/main.rs:24
    /// created at src/main.rs:17:5
    ///
    /// 3 goroutines [chan receive, 2 s, 1304 to 1560 bytes of stack]: 2-4
    /// gmp::chan::ends::Receiver<T>::recv
    ///     /src/gmp/runtime/src/chan/ends.rs:194
    /// demo::worker
    ///     src/main.rs:11
    /// demo::main::{{closure}}::{{closure}}
    ///     src/main.rs:19
    /// created at src/main.rs:19:64
    ///
    /// goroutine 5 'waits' [event, 120 ms, 1256 bytes of stack]:
    /// gmp::sync::event::Event::wait
    ///     /src/gmp/runtime/src/sync/event.rs:79
    /// demo::main::{{closure}}::{{closure}}
    ///     src/main.rs:22
    /// created at src/main.rs:22:52
    /// ```
    /// Of the library's functions at the inner end only the outermost is shown: the call that the program makes. Places, and
    /// functions that were inlined, are shown with debug information; `debug = "line-tables-only"` in the profile is enough.
    /// Without it the call may be shown under the name of an inner function that was not inlined.
    ///
    /// A goroutine is held for some microseconds while its innermost 63 frames are read; if readied meanwhile, it runs after
    /// that. A goroutine that never ran is shown as not started. A goroutine that runs, or hangs in a call that blocks its
    /// thread, is interrupted by a signal to say where it is: see [`dump`](crate::dump#goroutines-that-run). The amount of
    /// stack in use is not shown for a goroutine that is parked in [`with_stack`](crate::with_stack). There are no frames with
    /// the feature `generator`, and therefore on architectures other than x86-64. Names are looked up while no goroutine is
    /// held, on another thread if a goroutine asks: that takes milliseconds the first time, or some hundred milliseconds in a
    /// large program with debug information.
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

    /// Ends the runtime. Blocks the calling thread until the runtime's threads are gone, for at most `limit`, also on a
    /// goroutine of another runtime. Returns `true` if every goroutine has ended and every thread is gone.
    ///
    /// **On one of the runtime's own goroutines** the call does not wait, because that goroutine has not ended itself, and
    /// returns `false` at once. A thread does the rest within `limit`, and the calling goroutine is unwound like all others at
    /// its next park.
    ///
    /// **Goroutines are unwound** where they are parked: as by a panic, but without the panic hook, so that the
    /// values on their stacks are dropped. A goroutine that runs is unwound at its next call that parks or yields. A
    /// goroutine that never ran does not begin; its closure is dropped. [`go`](crate::go) drops its closure at once.
    /// Joining one of these goroutines returns an error for which [`is_shutdown`](crate::JoinError::is_shutdown)
    /// returns `true`.
    ///
    /// Destructors may do what they may do in any unwinding, and may park: the shutdown waits for them, and for the goroutines
    /// that they wait for. In a destructor a wait is not interrupted, and [`std::thread::panicking`] returns `true`. A panic
    /// that leaves a destructor ends the process, as in std. Goroutines of a [`scope`](crate::scope()) are unwound before the
    /// goroutine that waits for them. A `catch_unwind` that does not ask [`is_interrupt`](crate::is_interrupt) can stop the
    /// unwinding: then the goroutine is unwound again when it next parks, three times in all, or it returns its value.
    ///
    /// **Some goroutines are left** as they are: their stacks are leaked, with the values on them; sockets that they were
    /// using, and locks for which they waited, keep working for others. These are the goroutines
    /// * that for all of `limit`, less the time that the threads need to end, do not park, or wait in destructors, or wait for
    ///   main in `run` of another runtime;
    /// * whose unwinding might end the process: with a function of the C ABI among their frames, with less than 12 KiB left of
    ///   their current stack, the guard page included, with [`panic = "abort"`](crate::migration#panic--abort-and-fork), and
    ///   all on [the `generator` backend](crate::migration#the-generator-backend);
    /// * that have caught the unwinding three times;
    /// * from whose frames such a goroutine borrows: the caller of a `scope`.
    ///
    /// With a `limit` of zero all goroutines are left. A goroutine that does not come back to the runtime keeps its thread; a
    /// thread that is not done with the destructors of its `thread_local!`s in time continues to run them.
    /// [`shutdown`](Self::shutdown) returns how many goroutines and threads were left. The first goroutine in the process that
    /// is left because of a frame is reported on standard error, with that frame; see [`Report::unwinds_refused`].
    ///
    /// **An end that waits is reported.** After 200 ms a line on standard error says for which goroutines, or for how many
    /// threads, the end waits, and another line at the end says which of them were left; with a `limit` of no more than 200 ms
    /// there is no such line:
    ///
    /// ```text
    /// gmp: a runtime ends, and waits 3s at most, for goroutine 2 'reader' [blocks its thread] created at src/main.rs:9:10
    /// gmp: a runtime has ended, and left goroutine 2 'reader' [blocks its thread] created at src/main.rs:9:10
    /// ```
    /// The words in brackets are those of [`dump`](crate::dump), except for "blocks its thread": such a goroutine is in a call
    /// of std or of C. A goroutine that was inside the runtime at every look is named only by its number. If nobody reads
    /// standard error, such a line is given up after 10 ms, and the next one says how many were lost.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// struct Tells;
    /// impl Drop for Tells {
    ///     fn drop(&mut self) {
    ///         println!("closed");
    ///     }
    /// }
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let sleeper = runtime.go(|| {
    ///     let _open = Tells;
    ///     gmp::time::sleep(Duration::from_secs(3600));
    /// });
    /// runtime.run(gmp::yield_now);
    /// assert!(runtime.shutdown_timeout(Duration::from_secs(1)));
    /// assert!(sleeper.join().unwrap_err().is_shutdown());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(self, limit: Duration) -> bool {
        self.shutdown(limit).is_clean()
    }

    /// As [`shutdown_timeout`](Self::shutdown_timeout), and blocks like it, but returns what was left. On one of the runtime's
    /// own goroutines the call does not wait: the report counts the goroutines and threads that existed when the call returned,
    /// and most of them, or all, end within `limit`.
    pub fn shutdown(mut self, limit: Duration) -> Report {
        self.stopped = true;
        self.sched.stop(limit)
    }
}

/// Blocks the caller for ever, after main has called `goexit`.
fn block_for_good(presence: &Presence<Active>) -> ! {
    presence.set(Doing::WaitsForEver);
    loop {
        let how = How::new(WaitReason::Main).ends(OnInterrupt::WithOthers);
        let _nobody_knows_of_it = Wait::<Active>::begin().park(how, || Commit::Park);
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if !self.stopped {
            self.sched.stop(self.sched.config.end_limit);
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

/// Changes the number of Ps, and panics if the number is out of range.
#[track_caller]
pub(crate) fn set_procs(sched: &Sched<Active>, procs: usize) -> usize {
    match check_procs("set_procs", procs) {
        Ok(procs) => sched.set_procs(procs),
        Err(out_of_range) => panic!("{out_of_range}"),
    }
}
