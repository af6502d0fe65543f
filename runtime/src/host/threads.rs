//! Threads: starting them, their sleep and wake-up, the state that each keeps for itself, and barriers on all of them.

use crate::prim::{Arc, AtomicU32};
use crate::runtime::cpu_sets::CpuSet;
use crate::stack::switch::Home;
use gmp_timers::Nanos;
use std::any::Any;
use std::io;
use std::thread::Scope;
use std::time::Duration;

/// Whether an M goes without a descriptor because the process has too few.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Lack {
    /// The M goes without.
    Yes,
    /// The M has a descriptor, or needs none.
    No,
}

/// Whether a dump may interrupt threads to ask them where they are.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Interrupts {
    /// It may.
    Yes,
    /// The program has turned that off.
    No,
}

/// The threads of the process.
pub(crate) trait Threads: Sized + 'static {
    /// The host's state for each M, in which the M's own context waits.
    type Local: Default + AsRef<Home>;
    /// The state for a note's sleeper, besides the note's word.
    type SleepState: Default + Send + Sync;
    /// A started thread.
    type Thread: Send;
    /// Identifies a thread, among all threads that the process ever has.
    type ThreadId: Copy + Eq + Send + Sync + std::fmt::Debug;
    /// The calling thread.
    fn thread_id() -> Self::ThreadId;
    /// Starts a thread of the library's, to be joined or detached, whose panic ends the process.
    fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<Self::Thread>;
    /// Waits until no other thread is starting, for 10 ms at most, and starts a thread whose panic ends that thread alone.
    /// `stack`: its size, if that is not the usual one.
    fn spawn(name: &str, stack: Option<usize>, body: impl FnOnce() + Send + 'static) -> io::Result<()>;
    /// Does the same as `spawn`, in a scope, which waits for its end.
    fn spawn_scoped<'s>(
        scope: &'s Scope<'s, '_>,
        name: &str,
        body: impl FnOnce() + Send + 's,
    ) -> io::Result<()>;
    /// Returns `true` if the calling thread is this one.
    fn is_own(thread: &Self::Thread) -> bool;
    /// Waits until `until`, at most, for the end of a thread whose body is about to return. Gives a thread back that is late:
    /// after the body come the destructors of its thread-locals, which are the program's.
    fn join(thread: Self::Thread, until: Nanos) -> Result<(), Self::Thread>;
    /// Runs `f` on a thread that belongs to no runtime. If no thread can be started, the error is the number of `f`, which then
    /// waits for the thread of the next call, or of `ask_aside`. `refused` is called if calls that were accepted may have to
    /// wait after all.
    fn run_aside(f: impl FnOnce() + Send + 'static, refused: fn()) -> Result<(), u64>;
    /// Takes back a call that waits; `None` if a thread has it.
    fn take_back_aside(number: u64) -> Option<Box<dyn FnOnce() + Send>>;
    /// Returns `true` if calls of `run_aside` may wait for a thread.
    fn waits_aside() -> bool;
    /// Asks again for a thread, if calls wait for one.
    fn ask_aside() -> io::Result<()>;
    /// Runs `f` on a stack that is large enough for everything, and waits for the end. Returns `None`, without a call, if there
    /// is no such stack.
    fn with_room<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R>;
    /// Sleeps while `*word == expected`, at most for `limit`. May return early.
    fn sleep(sleep_state: &Self::SleepState, word: &AtomicU32, expected: u32, limit: Option<Duration>);
    /// Sleeps for `time`, which no waker ends. May return early.
    fn rest(time: Duration) {
        Self::sleep(&Self::SleepState::default(), &AtomicU32::new(0), 0, Some(time));
    }
    /// Ends the sleep on `word`.
    fn wake(sleep_state: &Self::SleepState, word: &AtomicU32);
    /// Returns how many threads the process has, if that is known.
    fn threads() -> Option<u32>;
    /// Returns the calling thread's M, as set by `set_current`, by value; null on a thread that is no M.
    ///
    /// Never inlined into a function that also switches stacks, where the compiler might keep the *address* of the
    /// thread-local: a goroutine may resume on another thread.
    fn current() -> *const ();
    /// The calling thread is from now on this M, whose `Local` is `now`, and no longer the M whose `Local` is `before`;
    /// null, and `None`, stand for no M.
    fn set_current(m: *const (), before: Option<&Self::Local>, now: Option<&Self::Local>);
    /// Returns the address that the calling thread, which is no M's, has set by `set_thread_frame`; null before the first call.
    fn thread_frame() -> *const ();
    /// Keeps an address for the calling thread: that of its innermost frame of `Context::run`.
    fn set_thread_frame(frame: *const ());
    /// Returns the token that the calling thread, which is no M's, keeps for its `park`; the first call makes it. `None` if the
    /// thread ends, and has dropped its token.
    fn thread_token(make: fn() -> Arc<dyn Any + Send + Sync>) -> Option<Arc<dyn Any + Send + Sync>>;
    /// Returns a number without a pattern, for a choice between equals.
    fn random() -> u32;

    /// Makes the calling thread's next numbers from `random` follow from `seed`, which is not zero.
    fn seed_random(seed: u32);
    /// Returns the CPU on which the calling thread runs, for now. Zero if that is not known.
    fn cpu() -> u32;
    /// Returns a number for the last-level cache of a CPU. The same for all CPUs if nothing is known.
    fn cache_of(cpu: u32) -> u32;
    /// Returns whether CPUs have different last-level caches, as far as that is known: see `prepare`.
    fn has_several_caches() -> bool;
    /// Returns the CPUs on which the calling thread may run.
    fn own_affinity() -> io::Result<CpuSet>;
    /// Returns the CPUs on which the thread of an M may run; 0 stands for the calling one. `local` is what the host keeps
    /// for the M of that thread.
    fn affinity(local: &Self::Local, thread: u32) -> io::Result<CpuSet>;
    /// Sets the CPUs on which the thread of an M may run, as `affinity` names it.
    fn set_affinity(local: &Self::Local, thread: u32, cpus: &CpuSet) -> io::Result<()>;
    /// Sets the CPUs on which the calling thread, which is no M's, may run.
    fn set_own_affinity(cpus: &CpuSet) -> io::Result<()>;
    /// Returns the CPUs that a thread of this process has after it has asked for `cpus`.
    fn try_affinity(cpus: &CpuSet) -> io::Result<CpuSet>;
    /// Prepares what the first goroutine of a runtime needs and the runtime's threads do not: the scheduler calls this while
    /// the first of these threads starts, and then starts another one.
    fn prepare();
    /// Finds out facts of the machine that Ms do without until then: the monitor calls this when its runtime has lived for a
    /// moment. Later calls do nothing.
    fn settle();
    /// Returns `true` if `settle` was called.
    fn is_settled() -> bool;
    /// Returns how many threads of the process the machine runs at the same time. The monitor asks now and then, as the number
    /// may change. `Err`: an upper bound, as a limit could not be read.
    fn parallelism() -> Result<usize, usize>;
    /// Returns `true` if Ms may count on `heavy_barrier` from now on. The answer changes to `false` at most once: when the
    /// first barrier was refused.
    fn heavy_barrier_exists() -> bool;
    /// Makes every running thread of the process pass a full barrier. An error if that was refused: `heavy_barrier_exists`
    /// returns `false` from before this call returns.
    fn heavy_barrier() -> io::Result<()>;
    /// Makes the thread of one M, and the caller, pass a full barrier: slowly, for Ms that have counted on `heavy_barrier`
    /// since before it was refused. Returns `false` if that is impossible, too.
    fn slow_barrier(local: &Self::Local, thread: u32) -> bool;
    /// The calling thread, which `set_current` has made an M with this `Local`, begins to work as that M. From here until
    /// `set_current` ends that, the thread lets through the signals that the host needs; `interrupts` says whether the signal
    /// of dumps is one of them. Returns the number by which `cpu_time` knows the thread, and whether there are too few
    /// descriptors to keep one for `is_blocked`.
    fn thread_begins(local: &Self::Local, interrupts: Interrupts) -> (u32, Lack);
    /// The M has no thread any more, or `is_blocked` will not be asked about that thread. Any thread may call this, also
    /// more than once.
    fn thread_ends(local: &Self::Local);
    /// Returns how long a thread has used a CPU; `None` if that is not known.
    fn cpu_time(thread: u32) -> Option<Duration>;
    /// Returns `true` if the M's thread waits in the kernel for something other than a CPU. Any thread may call this. An
    /// error if that is not known.
    fn is_blocked(local: &Self::Local) -> io::Result<bool>;
}
