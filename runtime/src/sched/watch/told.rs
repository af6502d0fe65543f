//! Refusals of the system that the scheduler works around: the scheduler counts them, and reports each kind once for each
//! runtime, however often that kind occurs.

use crate::host::Host;
use crate::prim::{AtomicU64, Relaxed};
use crate::sched::Sched;
use std::fmt;

/// The kinds of refusals.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// A thread.
    Thread,
    /// The descriptor by which the monitor looks at a thread.
    Descriptor,
    /// A look at what a thread is doing.
    Watch,
    /// The barrier by which a retaker saves each entry into the runtime a fence.
    Barrier,
    /// That barrier, and its substitute for Ms that relied on it.
    SlowBarrier,
    /// Every call by which the poller waits.
    Poll,
    /// The break that ends such a wait.
    Break,
    /// The descriptor that tells of a child's end.
    ChildEnd,
    /// Setting the CPUs of a thread.
    Affinity,
    /// The stack of a goroutine that was to begin.
    Stack,
    /// A thread that was to call a function of the program.
    Call,
}

const KINDS: usize = Refusal::Call as usize + 1;

/// How often each refusal occurred.
pub(crate) struct Told([AtomicU64; KINDS]);

impl Told {
    pub(crate) fn new() -> Self {
        Told(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// Relaxed: counts.
    pub(crate) fn counts(&self) -> Refused {
        Refused { counts: std::array::from_fn(|what| self.0[what].load(Relaxed)) }
    }
}

/// How often the system has refused a request that the runtime could do without. [`Runtime::refused`](crate::Runtime::refused)
/// and [`Handle::refused`](crate::Handle::refused) return the counts so far, [`Report::refused`](crate::Report::refused) those
/// of the runtime's whole life.
///
/// The first refusal of each kind is reported on standard error, in one line. A thread that is refused for the end of a runtime
/// ([`Runtime::shutdown`](crate::Runtime::shutdown) by one of its own goroutines) is reported even if an earlier thread was
/// refused. A refusal is not counted if a substitute is as good: `ppoll` or `epoll_pwait` for `epoll_pwait2`, another eventfd
/// for the one that wakes the poller, `mprotect` and `munmap` for `madvise` of guards and of memory. If the system refuses a
/// call of the program, such as making a socket, or the stack of a goroutine that is spawned, that call returns the error.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let runtime = unsafe { gmp::Runtime::builder().build()? };
/// runtime.run(|| gmp::time::sleep(std::time::Duration::from_millis(1)));
/// let refused = runtime.shutdown(std::time::Duration::from_secs(3)).refused();
/// assert!(refused.is_empty(), "{refused:?}");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Copy, Clone, Default, Eq, PartialEq)]
pub struct Refused {
    counts: [u64; KINDS],
}

impl Refused {
    fn count(&self, what: Refusal) -> u64 {
        self.counts[what as usize]
    }

    /// Returns how many threads were refused. The work of these threads waited for the threads that the runtime had, or for the
    /// next thread that the runtime got: after each refusal the runtime asks for no thread during 10 ms.
    pub fn threads(&self) -> u64 {
        self.count(Refusal::Thread)
    }

    /// Returns for how many threads the runtime kept no descriptor by which the monitor looks at the thread, because there are
    /// too few descriptors: see [`RuntimeBuilder::build`](crate::RuntimeBuilder::build).
    pub fn descriptors(&self) -> u64 {
        self.count(Refusal::Descriptor)
    }

    /// Returns how many looks in `/proc` at what a thread is doing were refused. Then a goroutine that blocks its thread keeps
    /// others waiting for some 40 ms instead of at most 10 ms.
    pub fn looks(&self) -> u64 {
        self.count(Refusal::Watch)
    }

    /// Returns how many calls of `membarrier` were refused. From the first refusal on, each entry of a goroutine into the
    /// runtime has a fence.
    pub fn barriers(&self) -> u64 {
        self.count(Refusal::Barrier)
    }

    /// Returns how often the runtime failed to take a P from a goroutine that had run since before `membarrier` was refused,
    /// because its thread could not be made to pass a barrier by other means. The goroutine kept its P.
    pub fn retakes(&self) -> u64 {
        self.count(Refusal::SlowBarrier)
    }

    /// Returns how many waits for sockets were refused, by every call that can make them. The runtime looks at sockets every
    /// millisecond instead.
    pub fn waits(&self) -> u64 {
        self.count(Refusal::Poll)
    }

    /// Returns how many wake-ups of a thread that waits for sockets were refused. From the first refusal on, these waits last
    /// at most a millisecond.
    pub fn wakes(&self) -> u64 {
        self.count(Refusal::Break)
    }

    /// Returns how many waits for child processes took a thread each, because there was no descriptor that reports the child's
    /// end (`pidfd_open(2)`). A context does not end such a wait.
    pub fn child_waits(&self) -> u64 {
        self.count(Refusal::ChildEnd)
    }

    /// Returns how often a thread was refused the CPUs of its P, or the return to its own CPUs: see
    /// [`RuntimeBuilder::cpu_sets`](crate::RuntimeBuilder::cpu_sets). The thread kept the CPUs that it had.
    pub fn affinities(&self) -> u64 {
        self.count(Refusal::Affinity)
    }

    /// Returns how often a goroutine that was to begin got no stack: see [`Builder::go`](crate::Builder::go). The goroutine
    /// waited, and asked again, at least ten times a second.
    pub fn stacks(&self) -> u64 {
        self.count(Refusal::Stack)
    }

    /// Returns how often the system refused a thread for a function of the program that no goroutine can call: the callback of
    /// a timer, a function of a context, or the waker of a task, if there is no stack for a goroutine
    /// ([`max_stack_bytes`](crate::RuntimeBuilder::max_stack_bytes)), or if the runtime ends. No thread of the runtime calls
    /// the function instead, except that the goroutine that ends a context may call a function of that context. The function
    /// waits, all runtimes of the process ask again, ten times a second each, and each of these refusals counts. A function
    /// that still waits when a runtime has ended waits for a thread of another runtime, or for the next such function; if there
    /// is never a thread, the function is never called. The timer thread's refusals count here, too, while a timer that was set
    /// outside of runtimes waits for that thread.
    pub fn calls(&self) -> u64 {
        self.count(Refusal::Call)
    }

    /// Returns `true` if nothing was refused.
    pub fn is_empty(&self) -> bool {
        self.counts == [0; KINDS]
    }
}

impl fmt::Debug for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused")
            .field("threads", &self.threads())
            .field("descriptors", &self.descriptors())
            .field("looks", &self.looks())
            .field("barriers", &self.barriers())
            .field("retakes", &self.retakes())
            .field("waits", &self.waits())
            .field("wakes", &self.wakes())
            .field("child_waits", &self.child_waits())
            .field("affinities", &self.affinities())
            .field("stacks", &self.stacks())
            .field("calls", &self.calls())
            .finish()
    }
}

impl<H: Host> Sched<H> {
    /// Returns the refusals so far.
    pub(crate) fn refused(&self) -> Refused {
        self.told.counts()
    }

    /// Returns `true` if `what` was ever refused. Relaxed: a hint, for callers that work differently from then on.
    pub(crate) fn was_refused(&self, what: Refusal) -> bool {
        self.told.0[what as usize].load(Relaxed) > 0
    }

    /// Counts a refusal. Returns `true` for the first of its kind.
    #[cold]
    #[must_use]
    pub(crate) fn count_refused(&self, what: Refusal) -> bool {
        // Relaxed: the addition alone decides which of two callers is the first.
        self.told.0[what as usize].fetch_add(1, Relaxed) == 0
    }

    /// Counts a refusal, and reports the first of its kind to the operator.
    #[cold]
    pub(crate) fn tell_refused(&self, what: Refusal, text: impl FnOnce() -> String) {
        if self.count_refused(what) {
            H::warn(&text());
        }
    }
}
