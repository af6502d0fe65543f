//! Starting and ending a runtime: [`run`], [`Runtime`].

pub(crate) mod cpu_sets;
pub(crate) mod knobs;
pub(crate) mod lines;
pub mod policy;
pub(crate) mod priority;

mod builder;
mod handle;
pub(crate) mod thread_start;

use crate::g::{Birth, Name};
use crate::goroutine::{self, Builder, JoinHandle};
use crate::host::Active;
use crate::m::M;
use crate::prim::Arc;
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::sched::threads::procs::check_procs;
use crate::sched::watch::deadlock::{Doing, Presence};
use crate::sched::watch::dump;
#[cfg(all(test, gmp_loom))]
use crate::sched::watch::ending::Patience;
use crate::wait::interrupt::OnInterrupt;
use crate::wait::waiter::{How, Wait};
pub use builder::RuntimeBuilder;
pub(crate) use builder::check_stack_size;
pub use handle::Handle;
use std::fmt;
use std::panic::{Location, resume_unwind};
use std::time::Duration;

pub use crate::sched::{Refused, Report};

/// Bytes of stack of a goroutine that asks for no size. Why so many: `docs/stacks.md`.
const STACK_SIZE: u32 = if cfg!(debug_assertions) { 256 << 10 } else { 64 << 10 };
/// The most threads of a runtime, as in Go.
const MAX_THREADS: usize = 10_000;
/// How long the end waits when the program does not say.
const DROP_LIMIT: Duration = Duration::from_secs(3);

/// Runs `f` as the main goroutine of a new runtime with all defaults, and returns the value of `f` when `f` returns.
/// Blocks the calling thread. The other goroutines end with main: they are unwound where they are parked, so that their
/// destructors run; see [`Runtime::shutdown_timeout`]. `run` waits up to three seconds for goroutines that do not park
/// ([`RuntimeBuilder::shutdown_timeout`] sets that time), and after 200 ms names them on standard error. Only
/// [`Runtime::shutdown`] returns how many were left where they are.
///
/// The main goroutine's stack is one like all others, of 64 KiB, or 256 KiB in a debug build: for more there are
/// [`RuntimeBuilder::stack_size`] and [`Builder::stack_size`](crate::Builder::stack_size), and `GMPSTACK` in the environment. A
/// debug build adds up the locals of all branches of a function.
///
/// # When all goroutines are asleep
/// As in Go, a program that can't go on is ended, by "fatal error: all goroutines are asleep - deadlock!" and the
/// text of [`dump`] on standard error, with exit status 2 and without running anything that was registered for the
/// exit: an unterminated line in standard output's buffer is not flushed. The deadlock is found within a second of
/// the last goroutine's falling asleep, most often at once, where
/// * a thread is inside `run`, of this or any other runtime of the process;
/// * every goroutine of every runtime is parked, by this library: a goroutine that blocks its thread, in a lock of std for
///   example, is not;
/// * none waits for a descriptor or, in [`block_on`](crate::block_on), for a future, and no timer is pending: no `sleep`, time
///   limit, callback, or deadline of a context;
/// * none listens for signals, by a receiver of [`signal`](crate::signal) or a context that a signal ends;
/// * the process has no threads but the library's own and those that wait inside `run`. Any other thread might still do
///   something. `GMPDEBUG=deadlock=always` ignores them. A `#[test]` has another thread, the harness's, and so has a program
///   that calls `run` on a thread and joins that.
///
/// So crossed locks, a ring of joins, a lock taken twice, a receive from a channel without a sender are reported, if
/// no other goroutine or thread could ever run. Goroutines that wait for each other while others go on are not; nor
/// is what becomes a deadlock by nothing but the end of another thread, or of a callback outside of a runtime, later
/// than a second after the last goroutine fell asleep. Where `/proc` is missing nothing is reported.
///
/// The first runtime of a process installs a panic hook, which prints the goroutine's number, name, and place of the spawn, and
/// then calls the hook that was there before. A hook that is set later replaces the runtime's, and may ask
/// [`current`](crate::current).
///
/// That runtime also installs a handler of SIGSEGV, which reports the overflow of a goroutine's stack and hands every other
/// fault to the handler that was there before. A handler that the program installs later replaces the runtime's; for overflows
/// to be reported, that handler hands on unknown faults, and is installed with `SA_SIGINFO | SA_ONSTACK`. A SIGSEGV that a
/// process sends goes to the handler from before, too, and ends the process if that handler sets the default action, as std's
/// does.
///
/// The runtime's threads let SIGSEGV and SIGBUS through, also in a program that blocks all signals; so does the caller of
/// `run_locked` until the return. They keep the rest of the mask that they inherit, but for the signal of
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
/// The contract of [`gmp::migration`](crate::migration): a goroutine may go on on another thread after every call that
/// may park it, and every such call may unwind; no code that runs in the runtime may rely on the opposite.
///
/// # Panics
/// With the panic of `f`. If the system refuses what a runtime needs, `GMPMAXPROCS` is no number within 1 to 1024,
/// `GMPSTACK` is no valid size, or `GMPDEBUG` has an unknown knob or value; [`RuntimeBuilder::build`] returns an
/// error instead.
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

/// A runtime: Ps, threads, goroutines. Several may live in one process.
///
/// Dropping a runtime ends the runtime, as [`shutdown_timeout`](Self::shutdown_timeout) with the limit of
/// [`RuntimeBuilder::shutdown_timeout`], three seconds by default, and blocks the thread, also when a goroutine of another
/// runtime drops it. On one of the runtime's own goroutines `drop` only begins the end, and does not wait: a thread does, and
/// that goroutine is unwound like all others at its next park.
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

    /// Runs `f` as a goroutine and returns the value of `f`. Blocks the calling thread, or goroutine. The other goroutines go
    /// on afterwards. When `f` calls [`goexit`](crate::goexit) the call does not return; when the others are done, or asleep,
    /// the process ends as [`run`](crate::run) tells.
    ///
    /// # Unwinds
    /// With the panic of `f` only: an interrupt does not end the wait.
    ///
    /// # Panics
    /// With the panic of `f`.
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        self.run_main(f, block_for_good)
    }

    /// As [`run`](Self::run), for the attribute `gmp::test`: the call panics when `f` calls [`goexit`](crate::goexit). The
    /// other tests of the process go on, so that no deadlock would be found.
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

    /// Runs `f` as main; `exits` is called when `f` has called `goexit`.
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
        // Main borrows from the caller, and is to be waited for: `shutdown` of the caller's own runtime does so within the time
        // limit.
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
    /// library that insists on the process's first thread: call it in `main`. Blocks the thread, which is one of the runtime's
    /// meanwhile and runs this goroutine only; [`max_threads`](RuntimeBuilder::max_threads) does not count it.
    /// [`unlock_os_thread`](crate::unlock_os_thread) does not unbind the goroutine. The other goroutines go on afterwards. When
    /// `f` calls [`goexit`](crate::goexit) the call does not return.
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
    /// With the panic of `f` only: an interrupt does not end the wait.
    ///
    /// # Safety
    /// The contract of [`gmp::migration`](crate::migration), for what `f` starts; and `f` runs on a stack of its own, on which
    /// nothing may look for the frames of the thread that calls this.
    ///
    /// # Panics
    /// With the panic of `f`, and of a function of [`on_thread_start`](RuntimeBuilder::on_thread_start); and when a goroutine
    /// calls this, which has no thread to give.
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
        // First, so that they are dropped last, when the thread is no M any more.
        let _guards = self.sched.thread_starts.get().call();
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
    /// When the goroutine can get no stack, as [`go`](crate::go).
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        goroutine::accepted("Runtime::go", goroutine::spawn(&self.sched, self.birth(None), f))
    }

    /// As [`go`](Self::go), for a goroutine that is to have its turn in the order of the whole runtime: see
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
        let until = <Active as crate::host::Clock>::now().saturating_add(limit);
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

    /// Returns how many Ps the runtime has: how many goroutines may run at the same time. Unless the number was set, by the
    /// builder, by the variable `GMPMAXPROCS`, or by [`set_procs`](Self::set_procs), the number follows the machine.
    pub fn procs(&self) -> usize {
        self.sched.procs()
    }

    /// Changes the number of Ps, 1 to 1024, and returns the number before. From any thread; does not block, and does not wait
    /// for goroutines: see [`gmp::set_procs`](crate::set_procs).
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

    /// Returns what all goroutines of the runtime are doing, as text: number, name, what each waits for and since when, the
    /// calls that led there, where it was spawned. Goroutines that do the same at the same place are shown together. Works
    /// from any thread, also while every goroutine is stuck. The time is right to some 10 ms.
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
    /// Of the library's functions at the inner end only the outermost is shown: the call that the program makes.
    /// Places, and functions that were inlined, show with debug information; `debug = "line-tables-only"` in the profile is
    /// enough. Without it the call may show under the name of what was not inlined.
    ///
    /// A goroutine is held for some microseconds while its frames are read, the innermost 63 of them; one that is readied
    /// meanwhile runs after that. A goroutine that never ran is shown as not started. A goroutine that runs, or hangs in a
    /// call that blocks its thread, is interrupted by a signal to say where it is: see
    /// [`dump`](crate::dump#goroutines-that-run). How much stack is in use is not shown of a goroutine that is parked in
    /// [`with_stack`](crate::with_stack). There are no frames with the feature `generator`, and so on other architectures
    /// than x86-64. The names are looked up when no goroutine is held, on another thread if a goroutine asks: that takes
    /// milliseconds the first time, or some hundred in a large program with debug information.
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
    /// **On one of the runtime's own goroutines** the call does not wait: that goroutine has not ended itself. It returns at
    /// once, and `false`. A thread does the rest within `limit`, and the calling goroutine is unwound like all others at its
    /// next park.
    ///
    /// **Goroutines are unwound** where they are parked: as by a panic, but without the panic hook, so that the
    /// values on their stacks are dropped. A goroutine that runs is unwound at its next call that parks or yields. A
    /// goroutine that never ran does not begin; its closure is dropped. [`go`](crate::go) drops its closure at once.
    /// Joining one of these goroutines returns an error for which [`is_shutdown`](crate::JoinError::is_shutdown)
    /// returns `true`.
    ///
    /// Destructors may do what they may in any unwinding. They may park: the shutdown waits for them, and for what
    /// they wait for. In a destructor a wait is not interrupted, and [`std::thread::panicking`] returns `true`. A
    /// panic that leaves a destructor ends the process, as in std. Goroutines of a [`scope`](crate::scope()) are
    /// unwound before the goroutine that waits for them. A `catch_unwind` that does not ask
    /// [`is_interrupt`](crate::is_interrupt) may stop the unwinding: then the unwind is raised again where the
    /// goroutine next parks, three times in all, or the goroutine returns its value.
    ///
    /// **Some goroutines are left** as they are: their stacks are leaked, with the values on them; sockets that they
    /// were using, and locks for which they waited, go on for others. These are the goroutines
    /// * that do not park, or wait in destructors, or for main in `run` of another runtime, for as long as `limit` says, less
    ///   what the threads need to go;
    /// * that an unwinding might end the process for: with a function of the C ABI among their frames, with less than
    ///   12 KiB left of the stack on which they are, the guard page included, with
    ///   [`panic = "abort"`](crate::migration#panic--abort-and-fork), and all on
    ///   [the `generator` backend](crate::migration#the-generator-backend);
    /// * that have caught the unwinding three times;
    /// * whose frames such a goroutine borrows: the caller of a `scope`.
    ///
    /// With a `limit` of zero all goroutines are left. A goroutine that does not come back to the runtime keeps its
    /// thread; a thread that is not done with the destructors of its `thread_local!`s in time goes on with them.
    /// [`shutdown`](Self::shutdown) returns how many goroutines and threads were left. The first goroutine in the process for
    /// which a frame is to blame is reported on standard error, with that frame; see [`Report::unwinds_refused`].
    ///
    /// **An end that waits is reported.** After 200 ms a line on standard error says for which goroutines, or for how many
    /// threads, the end waits, and another one at the end which of them were left; with a `limit` of no more than 200 ms
    /// there is no such line:
    ///
    /// ```text
    /// gmp: a runtime ends, and waits 3s at most, for goroutine 2 'reader' [blocks its thread] created at src/main.rs:9:10
    /// gmp: a runtime has ended, and left goroutine 2 'reader' [blocks its thread] created at src/main.rs:9:10
    /// ```
    /// The words in brackets are those of [`dump`](crate::dump), except for "blocks its thread": such a goroutine is in a
    /// call of std's or of C's. A goroutine that was inside the runtime at every look is named by its number alone.
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

    /// As [`shutdown_timeout`](Self::shutdown_timeout), blocks as that does, and returns what was left. On one of the runtime's
    /// own goroutines the call does not wait: the report counts the goroutines and threads that were there when it returned,
    /// and most of them, or all, end within `limit`.
    pub fn shutdown(mut self, limit: Duration) -> Report {
        self.stopped = true;
        self.sched.stop(limit)
    }
}

/// Returns what all goroutines of all runtimes of the process are doing, as text. May be called on any thread, also
/// while every goroutine is stuck; waits for no goroutine. [`Runtime::dump`] describes the text.
///
/// # Goroutines that run
///
/// A goroutine that computes for ever, or hangs in a lock of std or in a system call, is shown like the others: the signal
/// SIGRTMIN+12 interrupts its thread, and the signal's handler copies up to 64 KiB of the goroutine's stack, without a lock
/// or an allocation. The handler is installed by the first dump that needs it, or by the first thread of a runtime that has
/// inherited a mask in which the signal is blocked: that thread lets it through.
///
/// A thread that does not answer in 100 ms is shown as such: it has blocked the signal since, or waits in the kernel where no
/// signal reaches it. The dump waits for all of them together for a second at most. Nothing but the number is shown of a
/// goroutine that has switched whenever it was looked for, that runs a signal handler on the thread's signal stack, or that has
/// changed to a stack which this library does not know. Code without unwind tables, such as musl's, ends a trace with "...".
///
/// A handler that the program has installed for that signal stays, whether it was installed before or after the first dump;
/// the dump says so then, and shows no calls of goroutines that run, except for the caller. With `GMPDEBUG=dumpsignal=0` no
/// thread is interrupted at all, and the signal stays blocked where it is. A dump that is printed unasked, before the process
/// is ended for a deadlock, interrupts no thread.
///
/// **System calls that are interrupted** go on by themselves (`SA_RESTART`), and so do locks, condition variables, channels and
/// sleeps of std and of this library. As at any signal that has a handler, these fail with `EINTR` in the thread that
/// is asked, and code that calls them has to expect it:
/// * `nanosleep`, `clock_nanosleep`, `usleep`; `sleep` returns what is left;
/// * `poll`, `ppoll`, `select`, `pselect`, `epoll_wait`, `epoll_pwait`, `io_getevents`;
/// * `recv`, `send`, `accept`, `connect` and their relatives on a socket with `SO_RCVTIMEO` or `SO_SNDTIMEO`;
/// * `semop`, `semtimedop`, `msgrcv`, `msgsnd`; `pause`, `sigsuspend`, `sigtimedwait`, `sigwaitinfo`.
///
/// # Names
///
/// Functions and lines are told with the feature `symbols`, which is on by default. With `default-features = false` a frame is
/// the file that was loaded there and the offset in it, `target/debug/server+0x1a2b3`: `addr2line -ifCe target/debug/server
/// 0x1a2b3` names it.
///
/// # SIGQUIT
///
/// A program that hangs can be asked from outside: `kill -QUIT`, or `Ctrl-\` at the terminal, prints "SIGQUIT: quit"
/// and this text on standard error and ends the process with status 2, as Go's programs do. The handler only wakes a
/// monitor, a thread that runs no goroutine; so it works while all other threads are stuck, or asleep.
/// `GMPDEBUG=sigquit=dump` in the environment has the process go on after the dump, as Java's do. If a second SIGQUIT
/// comes before the first is taken up, or while the process ends by the first, the kernel's default action ends the
/// process at once: so there is a way out whatever hangs. The first process of a PID namespace, for which the kernel has
/// none, exits with status 131.
///
/// The signal is caught when the first runtime of the process starts, unless the program has set the signal's action
/// before: a handler of the program stays, and so does a signal that is ignored. A handler that the program sets later
/// replaces this one. A receiver of [`signal::notify`](crate::signal::notify), also one from before the first runtime, has the
/// signal until it is dropped; then SIGQUIT asks for a dump again. `GMPDEBUG=sigquit=off` leaves the signal alone. While there
/// is no runtime SIGQUIT ends the process as ever.
///
/// A shell without job control, as in a script, has a program that it starts by `&` ignore the signal;
/// `env --default-signal=QUIT PROGRAM &` does not.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let text = unsafe { gmp::run(gmp::dump) };
/// assert!(text.starts_with("1 goroutine, running"));
/// ```
pub fn dump() -> String {
    dump::dump_all::<Active>(dump::Wanted::ByUser)
}

/// Main has called `goexit`.
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

/// Changes the number of Ps, and panics if it can't be had.
#[track_caller]
pub(crate) fn set_procs(sched: &Sched<Active>, procs: usize) -> usize {
    match check_procs("set_procs", procs) {
        Ok(procs) => sched.set_procs(procs),
        Err(out_of_range) => panic!("{out_of_range}"),
    }
}
