//! The settings of a runtime: the builder, the environment, and the checks.

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

/// While goroutines of a lower class wait, one in this many goroutines is of a lower class: as often as a visit comes.
const LOW_SHARE: usize = 61;

/// The settings of a runtime before it starts; made by [`Runtime::builder`].
///
/// An operator can change more settings from outside, by the environment variable `GMPDEBUG`: `name=value`s, separated by
/// commas. The variable is read when a runtime is built, and holds for each runtime of the process. A variable of this crate
/// whose value is empty or blank counts as not set.
///
/// | knob | what it does | default |
/// | --- | --- | --- |
/// | `schedtrace=MS` | prints a line about the scheduler on standard error every `MS` milliseconds, in Go's format | off |
/// | `scheddetail=1` | only with `schedtrace`: also prints a line for each P, M and goroutine | off |
/// | `migrate=1` | a goroutine that parks resumes on another thread, unless bound to one, so that a breach of [`gmp::migration`](crate::migration) shows | off |
/// | `panic=abort` | a panic that leaves its goroutine, main's too, ends the process by SIGABRT, after the message | `unwind` |
/// | `handoff=0` | no goroutine loses its P by running for long, or by an unmarked blocking call: as many such goroutines as there are Ps stall the rest | `1` |
/// | `helping=0` | a thread whose P has goroutines does not read the clock to look elsewhere. So such a P takes no goroutine from another P whose goroutines have waited far longer (a P without goroutines still does); goroutines that sockets or plain threads have readied have no turns of their own before the P's queue, and sockets are not polled for such turns; a P [looks](crate::policy::WorkStealing::tick) at the global queue by count alone, not also after half a millisecond; and a woken thread that waits for its waker's CPU is not moved to another CPU | `1` |
/// | `naps=0` | a thread without work looks at the other Ps' queues at once, even if the goroutines that it took from them last kept it busy for less than 100 µs, and either ran too briefly or found locks taken too often for a second core to be worth it: it finds work up to 16 µs sooner, but goroutines that exchange messages move from core to core | `1` |
/// | `policy=fifo` | the [policy](crate::policy) of each runtime whose builder has set none: `fifo`, `random:SEED`, or `stealing` with its variants, as in `policy=stealing:steal=one:tick=7` | `stealing` |
/// | `sigquit=dump` | the process goes on after SIGQUIT; `sigquit=off` does not catch the signal. See [`dump`](crate::dump) | `exit` |
/// | `dumpsignal=0` | a dump does not interrupt the threads of goroutines that run, and shows no calls of them. See [`dump`](crate::dump#goroutines-that-run) | `1` |
/// | `refusals=all` | prints a line on standard error, which names the frame that is to blame, each time that a goroutine should have been unwound but continues to wait, because a panic there might end the process | `first` in the process |
/// | `stackuse=1` | a dump shows how many bytes of its stack each goroutine that does not run has touched since its beginning, in whole pages: a guide for [`Builder::stack_size`](crate::Builder::stack_size). Costs a system call for each goroutine | off |
/// | `deadlock=always` | reports that all goroutines are asleep, see [`run`](crate::run), also when other threads might wake one | `alone` |
///
/// The line of `schedtrace` begins with the milliseconds since the first line. Then come the number of Ps (`gomaxprocs`) and of
/// idle Ps; the numbers of threads (the monitor included), of threads that look for work and of threads that sleep; the length
/// of the global queue, which includes goroutines that wait for a thread for a [`blocking`](crate::blocking) call; in brackets
/// the length of each P's own queue; and how many goroutines each P has run so far (`schedticks`). In the lines of
/// `scheddetail` a P's `status` is 0 for idle and 1 for running; a goroutine's is 1 for runnable, 2 for running, and 4 for
/// waiting, with the reason. Fields of Go that have no counterpart here say 0, `false` or `nil`.
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
    /// Sets how many goroutines may run at the same time, 1 to 1024. Default: the environment variable `GMPMAXPROCS`, otherwise
    /// the number that the machine allows the process, by the affinity mask and by the CPU quotas of the cgroup and the cgroups
    /// above it ([`std::thread::available_parallelism`]; rounded down, where Go rounds up). That number is read again about
    /// once a second while goroutines run, until the program sets the number by [`set_procs`](crate::set_procs). While the
    /// process can't read the quotas any more, because it has no descriptor left, or has since lost access to `/proc` or
    /// `/sys`, the number does not rise.
    #[doc(alias = "GOMAXPROCS")]
    pub fn procs(mut self, procs: usize) -> Self {
        self.procs = Some(procs);
        self
    }

    /// Sets the share of goroutines of a lower [class](crate::Priority) while such goroutines wait: one in this many goroutines
    /// that a P runs is [`Low`](crate::Priority::Low), and, beside [`High`](crate::Priority::High) ones, one is `Normal`. At
    /// least 3, so that `High` ones have a share, too; default: 61. The number has no effect if all goroutines are `Normal`,
    /// nor on `Background` goroutines, which have no share.
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
    /// the environment variable `GMPSTACK`, a number of bytes, or of KiB or MiB with `K` or `M` behind it; otherwise 64 KiB, or
    /// 256 KiB if this crate is built with debug assertions: code that is not optimised has larger frames. See
    /// [`Builder::stack_size`](crate::Builder::stack_size).
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the bytes of the guard below each stack, those of [`with_stack`](crate::with_stack) on goroutines too: up to 1 MiB,
    /// rounded up to pages. Default: 16 KiB.
    ///
    /// A fault in the guard is reported as a stack overflow. Functions of Rust touch every page of their frames, so the
    /// smallest guard stops them. A function of C that was compiled without `-fstack-clash-protection` can skip the guard and
    /// write into the stack of another goroutine, if its frame is larger than the guard: see [`migration`](crate::migration).
    /// The guard's highest page is the lowest page of the stack's size, and its other pages come on top of that size; they take
    /// no memory but page tables, 8 bytes for each 4 KiB. A kernel older than 6.13 needs two mappings for each guard, however
    /// large. The `generator` backend has guards of one page.
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

    /// Sets the most bytes of stack that all goroutines which have not ended may have together, each counted with the whole
    /// size of its stack, however little of that is touched. At the limit the next spawn is refused:
    /// [`Builder::go`](crate::Builder::go) returns an error, [`go`](crate::go) panics. The stacks of
    /// [`with_stack`](crate::with_stack) count, and those of 256 KiB on which names are [looked up](crate::net::lookup).
    /// Default: as many as the kernel gives.
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
    /// runtime reports that once, on standard error, and continues with the threads that it has. A goroutine that keeps a
    /// thread then keeps others waiting: in [`blocking`](crate::blocking), in an unmarked blocking call, by running on and on,
    /// or [locked to it](crate::lock_os_thread). If that goroutine waits for one of the others, the wait never ends. So allow
    /// more threads than there are Ps and locked goroutines.
    pub fn max_threads(mut self, threads: usize) -> Self {
        self.max_threads = Some(threads);
        self
    }

    /// Sets the most file calls that goroutines have under way at once, at least one. Default: 64. A call of [`fs`](crate::fs)
    /// that may have to wait for a disk takes a thread while it lasts. Goroutines beyond the bound wait in line, parked, so
    /// that 10,000 goroutines that read a slow disk do not take 10,000 threads. Calls beyond what a disk can queue would only
    /// wait in the kernel instead; for a network file system a larger bound keeps more requests under way.
    ///
    /// Reads of up to 256 KiB that find their data in the page cache do not count, nor do the calls of plain threads, nor calls
    /// that may wait for another process for ever: see [`fs`](crate::fs#the-line).
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
    /// takes a thread, and a descriptor or two, until the server has answered; goroutines beyond the bound wait in line,
    /// parked. Addresses that are not names are not looked up: a `SocketAddr`, and a text that is an address, such as
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

    /// Sets how long a thread that has nothing to do stays before it ends; one thread always stays. Default: 10 s. Data that a
    /// thread keeps in the kernel and in `thread_local!`s goes with the thread.
    pub fn thread_keep_alive(mut self, limit: Duration) -> Self {
        self.keep_alive = Some(limit);
        self
    }

    /// Sets how long the end of the runtime waits for goroutines that do not park: when [`run`](crate::run) or an attribute of
    /// the feature `macros` returns, or the runtime is dropped. Default: three seconds. With zero no goroutine is unwound, and
    /// the end waits for no thread. [`Runtime::shutdown_timeout`] has a limit of its own, and says what happens within it.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().shutdown_timeout(Duration::from_millis(20)).build()? };
    /// runtime.run(|| {
    ///     // Blocks its thread, and is left behind there.
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

    /// Sets how goroutines are queued and taken: see [`policy`](crate::policy). Default: the policy in `GMPDEBUG=policy=..`,
    /// otherwise [`WorkStealing`](crate::policy::WorkStealing), Go's scheduler with the additions of this crate.
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
    /// Without [`procs`](Self::procs) there are as many Ps as sets. If there are more Ps than sets, from `procs` or later by
    /// [`set_procs`](crate::set_procs), the next P begins again with the first set; with fewer Ps than sets, the first sets are
    /// in use. A set may lie outside of the CPUs with which the process was started (`taskset(1)`), but not outside of its
    /// cgroup's.
    ///
    /// The benefit is that no other P's goroutines come to these CPUs, and that the caches stay warm; the cost is that the
    /// kernel can't move a thread to a CPU that has nothing to do. Prefer sets of all CPUs under one last-level cache to single
    /// CPUs. A thread that comes to another P's set, or leaves one, makes two system calls; a thread that takes the same P
    /// again makes none. See `docs/threads.md`, "Bound to CPUs".
    ///
    /// # Which thread has which CPUs
    /// * **The set follows the P.** Goroutines move between Ps as usual, and so between sets.
    /// * **A thread that loses its P gets its previous CPUs back**, as soon as it continues with the program's code: in
    ///   [`blocking`](crate::blocking), in calls of this library that block a thread, and when the monitor has taken the P from
    ///   a goroutine that runs on and on, or blocks its thread unmarked. For threads of the runtime these are the CPUs of the
    ///   thread that called `build`; for the caller of [`run_locked`](crate::Runtime::run_locked), the CPUs that it had before
    ///   the call, which it also has when the call returns.
    /// * **A [locked](crate::lock_os_thread) goroutine** runs on the set of its thread's current P, like any other.
    /// * **CPUs that the program sets on a thread by itself stay**: before each change the runtime reads the thread's CPUs, and
    ///   if they are not those that the runtime has set, the thread keeps them until the program restores those that it found.
    ///   The same holds for a change by the kernel, when a CPU goes offline or the cgroup changes: then start the runtime anew.
    /// * **Threads and processes that a goroutine starts inherit the set** of its P: threads of std, other runtimes, and
    ///   children that are not started by [`process`](crate::process). On a goroutine [`std::thread::available_parallelism`]
    ///   counts the CPUs of that set. Within [`blocking`](crate::blocking) both behave as elsewhere in the process.
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
    /// [`build`](Self::build) returns `InvalidInput` for no set, an empty set, more sets than `procs`, a CPU above 1023, and a
    /// CPU that the machine does not have, that is offline, or that the process may not use; and the kernel's error if the
    /// kernel refuses to bind threads at all. A later refusal is reported on standard error and counted
    /// ([`Refused::affinities`](crate::Refused::affinities)).
    #[doc(alias = "affinity")]
    pub fn cpu_sets<S>(mut self, sets: impl IntoIterator<Item = S>) -> Self
    where
        S: IntoIterator<Item = usize>,
    {
        self.cpu_sets = Some(sets.into_iter().map(|set| set.into_iter().collect()).collect());
        self
    }

    /// Sets the name of the runtime's threads, which is followed by their number. Default: `gmp-`. Linux shows 15 bytes of the
    /// name.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = Some(name.into());
        self
    }

    /// Makes each thread that runs goroutines call `f` before the first of them, and drop the value of `f` after the last of
    /// them, on the same thread. For state that belongs to a thread and that goroutines rely on: the context of another
    /// library, which hands out a guard that is not `Send`; the thread's priority; its registration with a profiler. Several
    /// functions are called in the order in which they were set, and the guards are dropped in the opposite order.
    ///
    /// Each such thread calls `f` once, on the thread's own stack: the first thread, threads that are started when there is
    /// more work, and threads that take over from a thread that blocks, or to which a goroutine goes over for a
    /// [`blocking`](crate::blocking) call while others wait. When a goroutine changes threads, `f` is not called. A thread that
    /// calls [`Runtime::run_locked`] is one of these threads for as long as that call lasts: it calls `f` first, and has
    /// dropped the guard when the call returns, or unwinds. Threads that run no goroutine do not call `f`: the monitor, the
    /// thread that ends a runtime, and those for timers outside of runtimes.
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
    /// In `f`, and in the drop of its value, the thread is a plain one: [`current`](crate::current) returns `None`, and a call
    /// that would park a goroutine blocks the thread. While `f` runs, a P and the goroutines in its queue may wait for this
    /// thread: keep `f` short, and do not wait for a goroutine of the same runtime, which may be one of them. The end of the
    /// runtime waits for functions and drops as for goroutines, within its time limit. At the end of the runtime `f` itself is
    /// dropped, on the thread that ends the runtime, or on another thread if that one belongs to the runtime.
    ///
    /// # Panics
    /// A panic of `f` on a thread of the runtime ends the process by SIGABRT, after the panic's message: goroutines rely on the
    /// effect of `f`, and the runtime has counted on the thread. An `f` that can fail should record the failure, for goroutines
    /// to check. In `run_locked` such a panic unwinds that call, before its function has run. A panic in the drop of a guard is
    /// printed, and has no other effect.
    ///
    /// # When a thread ends
    /// A thread ends when it has had nothing to do for [`thread_keep_alive`](Self::thread_keep_alive), with a goroutine that
    /// [has locked itself](crate::lock_os_thread) to the thread, and with the runtime. Threads that the end of the runtime
    /// leaves behind, and threads that exist when the program's `main` returns, drop nothing. A drop that waits for the end of
    /// its own runtime waits for its own thread, for the whole limit. While a drop takes longer than a second, a deadlock of
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
    /// `InvalidInput` when a setting, `GMPMAXPROCS` or `GMPSTACK`, is out of range, or `GMPDEBUG` has an unknown knob or value;
    /// `OutOfMemory` if there is no memory for the Ps; the kernel's error, with what was attempted, when the kernel refuses a
    /// thread or the poller's descriptors.
    ///
    /// # Descriptors
    /// A runtime has three descriptors for the poller, and one for each of its threads, by which the monitor sees that a
    /// goroutine blocks the thread. The latter take at most a quarter of `RLIMIT_NOFILE` in a process, and none of the last
    /// quarter: further threads do without, which is reported on standard error and counted
    /// ([`Refused::descriptors`](crate::Refused::descriptors)). For such a thread the monitor opens a file at each look; while
    /// no descriptor is left at all, a goroutine that blocks that thread keeps others waiting for some 40 ms, instead of 10 ms
    /// at most. All are closed at the runtime's end.
    pub unsafe fn build(self) -> io::Result<Runtime> {
        self.build_where(|_| ())
    }

    /// As `build`; `change` may set a knob that a program can set only for its whole process, in the environment.
    pub(crate) fn build_where(self, change: impl FnOnce(&mut Config)) -> io::Result<Runtime> {
        let max_stack_bytes = self.max_stack_bytes;
        let guard = self.guard()?;
        let mut config = self.settle()?;
        change(&mut config);
        let sched = Sched::start(Active::new(max_stack_bytes, guard)?, config)?;
        Ok(Runtime { sched, stopped: false })
    }

    fn guard(&self) -> io::Result<usize> {
        in_range("guard_size", self.guard_size.unwrap_or(host::GUARD), 1, host::MAX_GUARD)
    }

    fn settle(self) -> io::Result<Config> {
        let cpu_sets = self.cpu_sets.map(|sets| CpuSets::settle(&sets, self.procs)).transpose()?;
        let (procs, procs_follow) = match self.procs.or(cpu_sets.as_ref().map(CpuSets::len)) {
            Some(procs) => (check_procs("procs", procs).map_err(invalid)?, false),
            None => default_procs(variable("GMPMAXPROCS").as_deref())?,
        };
        let count = |what, given: Option<usize>, default, least| {
            in_range(what, given.unwrap_or(default), least, u32::MAX as usize)
        };
        let max_threads = count("max_threads", self.max_threads, MAX_THREADS, 1)?;
        let max_file_calls = count("max_file_calls", self.max_file_calls, MAX_FILE_CALLS, 1)?;
        let max_lookups = count("max_lookups", self.max_lookups, MAX_LOOKUPS, 1)?;
        let low_share = count("low_share", self.low_share.map(|share| share as usize), LOW_SHARE, 3)?;
        let thread_name = self.thread_name.unwrap_or_else(|| "gmp-".to_owned());
        if thread_name.contains('\0') {
            return Err(invalid(format!("thread_name: {thread_name:?} contains a zero byte")));
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
            low_share: low_share as u32,
            cpu_sets,
            knobs,
        })
    }
}

fn knobs() -> io::Result<Knobs> {
    let text = variable("GMPDEBUG").unwrap_or_default();
    Knobs::parse(&text).map_err(|unknown| invalid(format!("GMPDEBUG: {unknown}")))
}

/// Returns a variable of the environment; `None` if it is not set, or blank, which is how a script sets a variable to nothing.
fn variable(name: &str) -> Option<String> {
    let text = std::env::var_os(name)?.to_string_lossy().into_owned();
    (!text.trim().is_empty()).then_some(text)
}

/// Returns the default number of Ps, and whether that number follows the machine. `text` is the value of `GMPMAXPROCS`.
fn default_procs(text: Option<&str>) -> io::Result<(u32, bool)> {
    let Some(text) = text else {
        let (Ok(procs) | Err(procs)) = Active::parallelism();
        return Ok((procs.clamp(1, capacity::PROCS) as u32, true));
    };
    match text.trim().parse() {
        Ok(procs) => Ok((check_procs("GMPMAXPROCS", procs).map_err(invalid)?, false)),
        Err(_) => Err(invalid(format!("GMPMAXPROCS: {text:?} is not a number"))),
    }
}

/// Returns the default size of a stack in bytes. `text` is the value of `GMPSTACK`.
fn default_stack_size(text: Option<&str>) -> io::Result<u32> {
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
        .ok_or_else(|| invalid(format!("GMPSTACK: {text:?} is not a size from 16K to 64M, in bytes, K or M")))
}

/// Returns an error for a size that no stack can have.
pub(crate) fn check_stack_size(bytes: usize) -> io::Result<u32> {
    in_range("stack_size", bytes, host::MIN_STACK, host::MAX_STACK).map(|bytes| bytes as u32)
}

fn in_range(what: &str, value: usize, least: usize, most: usize) -> io::Result<usize> {
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
            let expected = format!("GMPSTACK: {text:?} is not a size from 16K to 64M, in bytes, K or M");
            assert_eq!(refused.to_string(), expected);
        }
    }
}
