//! The settings of a runtime: the builder, the environment, and what is refused.

use super::lines::{MAX_FILE_CALLS, MAX_LOOKUPS};
use super::{DROP_LIMIT, MAX_THREADS, Runtime, STACK_SIZE};
use crate::host::{self, Active, Threads};
use crate::prim::capacity;
use crate::runtime::cpu_sets::CpuSets;
use crate::runtime::knobs::Knobs;
use crate::runtime::policy::Policy;
use crate::runtime::thread_start::ThreadStarts;
use crate::sched::threads::procs::check_procs;
use crate::sched::{Config, Sched};
use std::io;
use std::time::Duration;

/// Of so many goroutines one is of a lower class, while such ones wait: as often as a visit comes.
const LOW_SHARE: u32 = 61;

/// The settings of a runtime before it starts; made by [`Runtime::builder`].
///
/// An operator may change more settings from outside, by the variable `GMPDEBUG` of the environment: `name=value`s, separated
/// by commas. The variable is read when a runtime is built, and holds for each runtime of the process. A variable of this
/// crate whose value is empty or blank is taken as not set.
///
/// | knob | what it does | default |
/// | --- | --- | --- |
/// | `schedtrace=MS` | every so many milliseconds a line about the scheduler on standard error, in Go's format | off |
/// | `scheddetail=1` | with `schedtrace`, and not alone, also a line for each P, M and goroutine | off |
/// | `migrate=1` | a goroutine that parks resumes on another thread, unless bound to one, so that a breach of [`gmp::migration`](crate::migration) shows | off |
/// | `panic=abort` | a panic that leaves its goroutine, main's too, ends the process by SIGABRT, after the message | `unwind` |
/// | `handoff=0` | no goroutine loses a P by running for long, or by an unmarked blocking call: as many of them as there are Ps stall the rest | `1` |
/// | `helping=0` | a thread whose P has goroutines does not read the clock to look elsewhere. So such a P takes no goroutine from another P whose goroutines have waited far longer (a P without goroutines still does); goroutines that sockets or plain threads have readied have no turns of their own before the P's queue, and sockets are not polled for such turns; no half millisecond brings the next [look](crate::policy::WorkStealing::tick) at the global queue forward; and a woken thread that waits for its waker's CPU is not moved to another one | `1` |
/// | `naps=0` | a thread without work looks at the other Ps' queues at once, also when what it took from them last kept it busy for less than 100 µs: up to 16 µs sooner, and goroutines that exchange messages go from core to core | `1` |
/// | `policy=fifo` | the [policy](crate::policy) of each runtime whose builder has set none: `fifo`, `random:SEED`, or `stealing` with its variants, as in `policy=stealing:steal=one:tick=7` | `stealing` |
/// | `sigquit=dump` | the process goes on after SIGQUIT; `sigquit=off` does not catch the signal. See [`dump`](crate::dump) | `exit` |
/// | `dumpsignal=0` | a dump does not interrupt the threads of goroutines that run, and shows no calls of them. See [`dump`](crate::dump#goroutines-that-run) | `1` |
/// | `refusals=all` | each time that a goroutine should have been unwound but waits on, because a panic there might end the process: a line on standard error, which names the frame that is to blame | `first` in the process |
/// | `stackuse=1` | a dump says how many bytes of its stack each goroutine that does not run has touched since its beginning, in whole pages: what to ask [`Builder::stack_size`](crate::Builder::stack_size) for. Costs a system call for each goroutine | off |
/// | `deadlock=always` | reports that all goroutines are asleep, see [`run`](crate::run), also when other threads might wake one | `alone` |
///
/// The line of `schedtrace` begins with the milliseconds since the first one. Then come the number of Ps (`gomaxprocs`), how
/// many of them are idle, the threads, the monitor among them, those that look for work and those that sleep, the length of the
/// global queue, which includes those that wait for a thread for a [`blocking`](crate::blocking) call, of each P's own in
/// brackets, and how many goroutines each P has run so far (`schedticks`). In the lines of `scheddetail` a P's `status` is 0
/// for idle and 1 for running; a goroutine's is 1 for runnable, 2 for running, and 4 for waiting, with the reason. Fields of
/// what there is none of here say 0, `false` or `nil`.
///
/// ```
/// use gmp::Runtime;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { Runtime::builder().procs(2).stack_size(128 << 10).build() }.unwrap();
/// // From a plain thread, which joins like a goroutine.
/// assert_eq!(runtime.go(|| 6 * 7).join().unwrap(), 42);
/// assert_eq!(runtime.procs(), 2);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing starts before `build`"]
pub struct RuntimeBuilder {
    procs: Option<usize>,
    stack_size: Option<usize>,
    guard_size: Option<usize>,
    max_stack_bytes: Option<usize>,
    max_threads: Option<usize>,
    max_file_calls: Option<usize>,
    max_lookups: Option<usize>,
    keep_alive: Option<Duration>,
    shutdown_timeout: Option<Duration>,
    thread_name: Option<String>,
    thread_starts: ThreadStarts,
    policy: Option<Policy>,
    low_share: Option<u32>,
    cpu_sets: Option<Vec<Vec<usize>>>,
}

impl RuntimeBuilder {
    /// Sets how many goroutines may run at the same time, 1 to 1024. Default: the variable `GMPMAXPROCS` of the environment,
    /// else what the machine allows the process, by the affinity mask and by the CPU quotas of the cgroup and those above
    /// ([`std::thread::available_parallelism`]; rounded down, where Go rounds up). The machine is asked again about once a
    /// second while goroutines run, until the program sets the number by [`set_procs`](crate::set_procs). While the process can
    /// no longer read the quotas, as it has no descriptor left, or has left `/proc` or `/sys` behind since, the number does not
    /// rise.
    #[doc(alias = "GOMAXPROCS")]
    pub fn procs(mut self, procs: usize) -> Self {
        self.procs = Some(procs);
        self
    }

    /// Sets the share of goroutines of a lower [class](crate::Priority) while such ones wait: one in so many goroutines that a P
    /// runs is [`Low`](crate::Priority::Low), and, beside [`High`](crate::Priority::High) ones, one is `Normal`. At least 3,
    /// so that `High` ones have a share, too; default: 61. The number has no effect where all goroutines are `Normal`, and
    /// none on `Background` ones, which have no share.
    ///
    /// ```
    /// use gmp::Priority;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().procs(1).low_share(10).build()? };
    /// let turns = runtime.run(|| {
    ///     let low = gmp::Builder::new().priority(Priority::Low).go(|| ()).unwrap();
    ///     // Another one is always ready.
    ///     let _other = gmp::go(|| loop {
    ///         gmp::yield_now();
    ///     });
    ///     let turns = (0..).inspect(|_| gmp::yield_now()).find(|_| low.is_finished());
    ///     turns.unwrap()
    /// });
    /// assert!(turns <= 20, "{turns}");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn low_share(mut self, goroutines: u32) -> Self {
        self.low_share = Some(goroutines);
        self
    }

    /// Sets the bytes of stack of a goroutine that asks for no size, 16 KiB to 64 MiB, rounded up to a power of two. Default:
    /// the variable `GMPSTACK` of the environment, a number of bytes, which `K` or `M` behind it makes KiB or MiB; else 64 KiB,
    /// or 256 KiB where this crate is built with debug assertions: code that is not optimised has larger frames.
    /// See [`Builder::stack_size`](crate::Builder::stack_size).
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the bytes of the guard below each stack, those of [`with_stack`](crate::with_stack) on goroutines too: up to 1 MiB,
    /// rounded up to pages. Default: 16 KiB.
    ///
    /// A fault in the guard is reported as a stack overflow. Functions of Rust touch every page of their frames, so the
    /// smallest guard stops them. A function of C that was compiled without `-fstack-clash-protection` may write beyond the
    /// guard at once, into the stack of another goroutine, if its frame is larger than the guard: see
    /// [`migration`](crate::migration). The guard's highest page is the lowest of the stack's size, and the others come on top
    /// of that size; they take no memory but page tables, 8 bytes for each 4 KiB. A kernel older than 6.13 needs two mappings
    /// for each guard, however large. The `generator` backend has guards of one page.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call, and no C function that is called has a
    /// // frame of more than 256 KiB.
    /// let runtime = unsafe { gmp::Runtime::builder().guard_size(256 << 10).build()? };
    /// assert_eq!(runtime.run(|| 1), 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn guard_size(mut self, bytes: usize) -> Self {
        self.guard_size = Some(bytes);
        self
    }

    /// Sets the most bytes of stack that goroutines which have not ended have together, each counted with the whole size of the
    /// stack, however little of that is touched. The next spawn is refused then: [`Builder::go`](crate::Builder::go) gives an
    /// error, [`go`](crate::go) panics. Default: as many as the kernel gives.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().stack_size(64 << 10).max_stack_bytes(192 << 10).build()? };
    /// let refused = runtime.run(|| {
    ///     let _sleeper = gmp::go(|| gmp::time::sleep(std::time::Duration::from_secs(60)));
    ///     // Main has 64 KiB, and so has the sleeper.
    ///     gmp::Builder::new().stack_size(128 << 10).go(|| ()).unwrap_err()
    /// });
    /// assert_eq!(refused.kind(), std::io::ErrorKind::QuotaExceeded);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_stack_bytes(mut self, bytes: usize) -> Self {
        self.max_stack_bytes = Some(bytes);
        self
    }

    /// Sets the most threads that run goroutines, at least one; the monitor is one more. Default: 10,000. At the limit the
    /// runtime says so once, on standard error, and goes on with the threads at hand. A goroutine that keeps a thread then
    /// keeps others waiting: in [`blocking`](crate::blocking), in an unmarked blocking call, by running on and on, or [locked
    /// to it](crate::lock_os_thread). If that goroutine waits for one of them, the wait never ends. So leave more than the
    /// number of Ps and of locked goroutines.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = Some(threads);
        self
    }

    /// Sets the most calls on files that goroutines have under way at once, at least one. Default: 64. A call of
    /// [`fs`](crate::fs) that may have to wait for a disk takes a thread for as long as that lasts. The goroutines beyond the
    /// bound wait in line, parked, so that 10,000 of them that read a slow disk are not 10,000 threads. More calls at once than
    /// a disk can queue only wait in the kernel instead; for a file system behind a network a larger bound has more answers on
    /// their way.
    ///
    /// Reads of up to 256 KiB that find their data in the page cache do not count, nor do the calls of plain threads, nor what
    /// may wait for another process for ever: see [`fs`](crate::fs#the-line).
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().max_file_calls(500).build()? };
    /// let text = runtime.run(|| gmp::fs::read_to_string("/proc/self/comm"))?;
    /// assert!(!text.is_empty());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_file_calls(mut self, calls: usize) -> Self {
        self.max_file_calls = Some(calls);
        self
    }

    /// Sets the most name look-ups that goroutines have under way at once, at least one. Default: 64. A look-up (`getaddrinfo`)
    /// takes a thread, and a descriptor or two, until the server has answered; the goroutines beyond the bound wait in line,
    /// parked. Addresses that are no names are not looked up: a `SocketAddr`, and a text of std's types that is an address, as
    /// `"127.0.0.1:80"` or `("::1", 80)`.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().max_lookups(500).build()? };
    /// runtime.run(|| gmp::net::TcpListener::bind(("localhost", 0)))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_lookups(mut self, lookups: usize) -> Self {
        self.max_lookups = Some(lookups);
        self
    }

    /// Sets how long a thread stays that has nothing to do, before it ends; one thread always stays. Default: 10 s. What a
    /// thread keeps in the kernel and in `thread_local!`s goes with the thread.
    pub fn thread_keep_alive(mut self, limit: Duration) -> Self {
        self.keep_alive = Some(limit);
        self
    }

    /// Sets how long the end of the runtime waits for goroutines that do not park: when [`run`](crate::run) or an attribute
    /// of the feature `macros` returns, or the runtime is dropped. Default: three seconds. With zero no goroutine is unwound,
    /// and no thread waited for. [`Runtime::shutdown_timeout`] has a limit of its own, and says what happens within it.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().shutdown_timeout(Duration::from_millis(20)).build()? };
    /// runtime.run(|| {
    ///     // Blocks its thread, and is left there.
    ///     gmp::go(|| std::thread::sleep(Duration::from_secs(3600)));
    ///     gmp::time::sleep(Duration::from_millis(1));
    /// });
    /// let begun = Instant::now();
    /// drop(runtime);
    /// assert!(begun.elapsed() < Duration::from_secs(60));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown_timeout(mut self, limit: Duration) -> Self {
        self.shutdown_timeout = Some(limit);
        self
    }

    /// Sets how goroutines are queued and taken: see [`policy`](crate::policy). Default: what `GMPDEBUG=policy=..` says, else
    /// [`WorkStealing`](crate::policy::WorkStealing), Go's scheduler with the additions of this crate.
    ///
    /// ```
    /// use gmp::policy::Policy;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().procs(1).policy(Policy::GlobalFifo).build()? };
    /// let order = std::sync::Mutex::new(Vec::new());
    /// runtime.run(|| {
    ///     let order = &order;
    ///     gmp::scope(|s| (0..3).for_each(|who| drop(s.go(move || order.lock().unwrap().push(who)))));
    /// });
    /// assert_eq!(order.into_inner().unwrap(), [0, 1, 2]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn policy(mut self, policy: impl Into<Policy>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Binds each P to CPUs: while a thread runs goroutines with P number i, it runs on the CPUs of set i alone.
    ///
    /// Without [`procs`](Self::procs) there are as many Ps as sets. Where there are more Ps than sets, from `procs` or later by
    /// [`set_procs`](crate::set_procs), the next P begins again with the first set; after `set_procs` of fewer, the first sets
    /// are in use. A set may lie outside of the CPUs with which the process was started (`taskset(1)`), but not outside of its
    /// cgroup's.
    ///
    /// What it buys is that no other P's goroutines come to these CPUs, and that the caches stay warm; it costs the kernel's
    /// freedom to move a thread to a CPU that has nothing to do. Prefer sets of all CPUs under one last-level cache to single
    /// CPUs. A thread that comes to another P's set, or leaves one, makes two system calls; one that takes the same P again,
    /// none. See `docs/threads.md`, "Bound to CPUs".
    ///
    /// # Which thread has which CPUs
    /// * **The set follows the P.** Goroutines move between Ps as ever, and so between sets.
    /// * **A thread that loses its P gets back what it had before**, as soon as it goes on with the program's code: in
    ///   [`blocking`](crate::blocking), in calls of this library that block a thread, and when the monitor has taken the P from
    ///   a goroutine that runs on and on, or blocks its thread unmarked. For threads of the runtime that is what the thread had
    ///   that called `build`; for the caller of [`run_locked`](crate::Runtime::run_locked), what that thread had before the
    ///   call, and it has that again when the call returns.
    /// * **A [locked](crate::lock_os_thread) goroutine** runs on the set of the P that its thread has at the moment, as any
    ///   other.
    /// * **What the program sets on a thread by itself stays**: before each change the runtime reads what the thread has, and
    ///   if that is not what the runtime has given it, the thread keeps it until the program puts back what it found. The same
    ///   goes for a change by the kernel, when a CPU goes offline or the cgroup changes: start the runtime anew then.
    /// * **What a goroutine starts inherits the set** of its P: threads of std, other runtimes, and children that are not
    ///   started by [`process`](crate::process). On a goroutine [`std::thread::available_parallelism`] counts the CPUs of that
    ///   set. Within [`blocking`](crate::blocking) both are as elsewhere in the process.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = match unsafe { gmp::Runtime::builder().cpu_sets([[0], [1]]).build() } {
    ///     Ok(runtime) => runtime,
    ///     // As on a machine with one CPU.
    ///     Err(refused) => return println!("{refused}"),
    /// };
    /// assert_eq!(runtime.procs(), 2);
    /// // Or ranges: .cpu_sets([0..4, 4..8])
    /// runtime.run(|| println!("on CPU 0 or CPU 1"));
    /// ```
    ///
    /// # Errors
    /// Of [`build`](Self::build), `InvalidInput`: no set, an empty one, more sets than `procs`, a CPU above 1023, and a CPU that
    /// the machine does not have, that is offline, or that the process may not use. The kernel's error where it refuses to bind
    /// threads at all. A refusal later is reported on standard error and counted
    /// ([`Refused::affinities`](crate::Refused::affinities)).
    #[doc(alias = "affinity")]
    pub fn cpu_sets<S>(mut self, sets: impl IntoIterator<Item = S>) -> Self
    where
        S: IntoIterator<Item = usize>,
    {
        self.cpu_sets = Some(sets.into_iter().map(|set| set.into_iter().collect()).collect());
        self
    }

    /// Sets what the runtime's threads are called, followed by their number. Default: `gmp-`. Linux shows 15 bytes of the name.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = Some(name.into());
        self
    }

    /// Has each thread that is to run goroutines call `f` before the first of them, and drop what `f` has returned after the
    /// last of them, on the same thread. For what belongs to a thread and what goroutines rely on: the context of another
    /// library, which hands out a guard that is not `Send`; the thread's priority; its registration with a profiler. Several
    /// functions are called in the order in which they were set, and the guards are dropped in the opposite order.
    ///
    /// Each such thread calls `f` once, on the thread's own stack: the first one, those that are started when there is more
    /// work, and those that take over from a thread that blocks, or make a goroutine's [`blocking`](crate::blocking) call, to
    /// which the goroutine goes over when others wait. A goroutine's change of threads calls nothing. A thread that calls
    /// [`Runtime::run_locked`] is one of them for as long as that call lasts: it calls `f` first, and has dropped the guard
    /// when the call returns, or unwinds. Threads that run no goroutine do not call `f`: the monitor, the thread that ends a
    /// runtime, and those for timers outside of runtimes.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    ///
    /// static THREADS: AtomicUsize = AtomicUsize::new(0);
    ///
    /// struct Entered;
    ///
    /// impl Entered {
    ///     fn new() -> Self {
    ///         THREADS.fetch_add(1, SeqCst);
    ///         Entered
    ///     }
    /// }
    ///
    /// impl Drop for Entered {
    ///     fn drop(&mut self) {
    ///         THREADS.fetch_sub(1, SeqCst);
    ///     }
    /// }
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().on_thread_start(Entered::new).build()? };
    /// assert!(runtime.run(|| THREADS.load(SeqCst)) >= 1);
    /// assert!(runtime.shutdown_timeout(std::time::Duration::from_secs(60)));
    /// assert_eq!(THREADS.load(SeqCst), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// In an attribute of the feature `macros`: `#[gmp::main(unsafe, on_thread_start = Entered::new)]`.
    ///
    /// # What the function may do
    /// In `f`, and in the drop of what it returns, the thread is a plain one: [`current`](crate::current) returns `None`, and
    /// what would park a goroutine blocks the thread. While `f` runs, a P and the goroutines in its queue may wait for this
    /// thread: keep `f` short, and do not wait for a goroutine of the same runtime, which may be one of them. The end of the
    /// runtime waits for functions and drops like for goroutines, within its time limit. At its end it drops `f` itself, on the
    /// thread that ends the runtime, or beside it if that is one of the runtime's own.
    ///
    /// # Panics
    /// A panic of `f` on a thread of the runtime ends the process by SIGABRT, after the panic's message: goroutines rely on
    /// what `f` does, and the runtime has counted on the thread. An `f` that may fail returns what says so, and goroutines ask.
    /// In `run_locked` such a panic unwinds that call, before its function has run. A panic in the drop of a guard is printed,
    /// and changes nothing else.
    ///
    /// # When a thread ends
    /// When it has had nothing to do for [`thread_keep_alive`](Self::thread_keep_alive), with a goroutine that
    /// [has locked itself](crate::lock_os_thread) to the thread, and with the runtime. Threads that the end of the runtime
    /// leaves behind, and those that are there when the program's `main` returns, drop nothing. A drop that waits for the end
    /// of its own runtime waits for its own thread, for the whole limit. While a drop takes longer than a second, a deadlock of
    /// the goroutines may go unreported.
    pub fn on_thread_start<F, T>(mut self, f: F) -> Self
    where
        F: Fn() -> T + Send + Sync + 'static,
        T: 'static,
    {
        self.thread_starts.push(f);
        self
    }

    /// Starts the runtime, with one thread; others are made when there is work for them.
    ///
    /// # Safety
    /// The contract of [`gmp::migration`](crate::migration).
    ///
    /// # Errors
    /// `InvalidInput` when a setting, `GMPMAXPROCS` or `GMPSTACK`, is out of range, or `GMPDEBUG` has an unknown knob
    /// or value; the kernel's error, with what was attempted, when the kernel refuses a thread or the poller's
    /// descriptors.
    ///
    /// # Descriptors
    /// A runtime has three for the poller, and one for each of its threads, by which the monitor sees that a goroutine blocks
    /// the thread. Of the latter a process has as many as a quarter of `RLIMIT_NOFILE` at most, and none of the last quarter:
    /// threads that would need more do without, which is reported on standard error and counted
    /// ([`Refused::descriptors`](crate::Refused::descriptors)). Of such a thread the monitor opens a file at each look; while
    /// no descriptor is left at all, a goroutine that blocks that thread keeps others waiting for some 40 ms, where it is for
    /// 10 ms at most else. All are closed at the runtime's end.
    pub unsafe fn build(self) -> io::Result<Runtime> {
        let max_stack_bytes = self.max_stack_bytes;
        let guard = self.guard()?;
        let config = self.settle()?;
        let sched = Sched::start(host::active(max_stack_bytes, guard)?, config)?;
        Ok(Runtime { sched, stopped: false })
    }

    pub(super) fn guard(&self) -> io::Result<usize> {
        in_range("guard_size", self.guard_size.unwrap_or(host::GUARD), 1, host::MAX_GUARD)
    }

    pub(super) fn settle(self) -> io::Result<Config> {
        let cpu_sets = self.cpu_sets.map(|sets| CpuSets::settle(&sets, self.procs)).transpose()?;
        let (procs, procs_follow) = match self.procs.or(cpu_sets.as_ref().map(CpuSets::len)) {
            Some(procs) => (check_procs("procs", procs).map_err(invalid)?, false),
            None => default_procs(variable("GMPMAXPROCS").as_deref())?,
        };
        let max_threads =
            in_range("max_threads", self.max_threads.unwrap_or(MAX_THREADS), 1, u32::MAX as usize)?;
        let max_file_calls =
            in_range("max_file_calls", self.max_file_calls.unwrap_or(MAX_FILE_CALLS), 1, u32::MAX as usize)?;
        let max_lookups =
            in_range("max_lookups", self.max_lookups.unwrap_or(MAX_LOOKUPS), 1, u32::MAX as usize)?;
        let thread_name = self.thread_name.unwrap_or_else(|| "gmp-".to_owned());
        if thread_name.contains('\0') {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("thread_name: {thread_name:?} contains a zero byte"),
            ));
        }
        let knobs = knobs()?;
        let policy = self.policy.or(knobs.policy).unwrap_or_default().check().map_err(invalid)?;
        Ok(Config {
            procs,
            procs_follow,
            stack_size: match self.stack_size {
                Some(bytes) => check_stack_size(bytes)?,
                None => default_stack_size(variable("GMPSTACK").as_deref())?,
            },
            max_threads: max_threads as u32,
            max_file_calls,
            max_lookups,
            keep_alive: self.keep_alive.or(capacity::KEEP_ALIVE),
            end_limit: self.shutdown_timeout.unwrap_or(DROP_LIMIT),
            thread_name,
            thread_starts: self.thread_starts,
            policy,
            has_one_queue: policy.has_one_queue(),
            low_share: in_range(
                "low_share",
                self.low_share.unwrap_or(LOW_SHARE) as usize,
                3,
                u32::MAX as usize,
            )? as u32,
            cpu_sets,
            knobs,
        })
    }
}

pub(super) fn knobs() -> io::Result<Knobs> {
    let text = variable("GMPDEBUG").unwrap_or_default();
    Knobs::parse(&text).map_err(|unknown| invalid(format!("GMPDEBUG: {unknown}")))
}

/// Returns a variable of the environment; `None` if it is not set, or blank: scripts have no other way to set it to nothing.
pub(super) fn variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!text.trim().is_empty()).then_some(text)
}

/// Returns how many Ps there are by default, and whether their number follows the machine. `text`: the value of `GMPMAXPROCS`.
pub(super) fn default_procs(text: Option<&str>) -> io::Result<(u32, bool)> {
    let Some(text) = text else {
        let (Ok(procs) | Err(procs)) = Active::parallelism();
        return Ok((procs.clamp(1, capacity::PROCS) as u32, true));
    };
    match text.trim().parse() {
        Ok(procs) => Ok((check_procs("GMPMAXPROCS", procs).map_err(invalid)?, false)),
        Err(_) => Err(invalid(format!("GMPMAXPROCS: {text:?} is no number"))),
    }
}

/// Returns the bytes of a stack by default. `text`: the value of `GMPSTACK`.
pub(super) fn default_stack_size(text: Option<&str>) -> io::Result<u32> {
    let Some(text) = text else { return Ok(STACK_SIZE) };
    let (number, unit) = match text.trim() {
        kib if kib.ends_with(['K', 'k']) => (&kib[..kib.len() - 1], 1 << 10),
        mib if mib.ends_with(['M', 'm']) => (&mib[..mib.len() - 1], 1 << 20),
        bytes => (bytes, 1),
    };
    let bytes = number.parse().ok().and_then(|number: usize| number.checked_mul(unit));
    let in_range = bytes.filter(|bytes| (host::MIN_STACK..=host::MAX_STACK).contains(bytes));
    in_range
        .map(|bytes| bytes as u32)
        .ok_or_else(|| invalid(format!("GMPSTACK: {text:?} is no size from 16K to 64M, in bytes, K or M")))
}

/// Returns an error for a size that no stack can have.
pub(crate) fn check_stack_size(bytes: usize) -> io::Result<u32> {
    in_range("stack_size", bytes, host::MIN_STACK, host::MAX_STACK).map(|bytes| bytes as u32)
}

pub(super) fn in_range(what: &str, value: usize, least: usize, most: usize) -> io::Result<usize> {
    if (least..=most).contains(&value) {
        Ok(value)
    } else {
        Err(invalid(format!("{what}: {value} is not within {least}..={most}")))
    }
}

pub(super) fn invalid(text: String) -> io::Error {
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
        assert_eq!(refusal(b().max_file_calls(0)), "max_file_calls: 0 is not within 1..=4294967295");
        assert_eq!(refusal(b().max_lookups(0)), "max_lookups: 0 is not within 1..=4294967295");
        assert_eq!(refusal(b().stack_size(1)), "stack_size: 1 is not within 16384..=67108864");
        let refused = b().guard_size(2 << 20).guard().unwrap_err().to_string();
        assert_eq!(refused, "guard_size: 2097152 is not within 1..=1048576");
        assert_eq!(refusal(b().thread_name("a\0b")), "thread_name: \"a\\0b\" contains a zero byte");
    }

    #[test]
    fn the_default_stack_is_what_the_environment_says_or_that_is_an_error() {
        let size = |text: &str| default_stack_size(Some(text));
        let default = if cfg!(debug_assertions) { 256 << 10 } else { 64 << 10 };
        assert_eq!(default_stack_size(None).unwrap(), default);
        for (text, bytes) in [("16384", 16 << 10), ("16K", 16 << 10), ("1m", 1 << 20), (" 64M ", 64 << 20)] {
            assert_eq!(size(text).unwrap(), bytes);
        }
        for text in ["K", "-1", "1G", "64KB", "16383", "65M", "99999999999999999999", "18014398509481985K"] {
            let refused = size(text).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
            let expected = format!("GMPSTACK: {text:?} is no size from 16K to 64M, in bytes, K or M");
            assert_eq!(refused.to_string(), expected);
        }
    }
}
