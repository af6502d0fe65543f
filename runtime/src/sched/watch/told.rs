//! What the system has refused, and the scheduler does without: counted, and reported once for each runtime, however
//! often it occurs.

use crate::host::Host;
use crate::prim::{AtomicU64, Relaxed};
use crate::sched::Sched;
use std::fmt;

/// What was refused.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// A thread.
    Thread,
    /// The descriptor by which the monitor looks at a thread.
    Descriptor,
    /// A look at what a thread does.
    Watch,
    /// The barrier by which a retaker saves each entry into the runtime a fence.
    Barrier,
    /// That barrier, and its substitute for Ms that counted on it.
    SlowBarrier,
    /// Every call by which the poller waits.
    Poll,
    /// The break that ends such a wait.
    Break,
    /// The descriptor that tells of a child's end.
    ChildEnd,
    /// The CPUs of a thread.
    Affinity,
    /// The stack of a goroutine that was to begin.
    Stack,
}

const KINDS: usize = Refusal::Stack as usize + 1;

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

/// How often the system refused a runtime what it then did without, by [`Report::refused`](crate::Report::refused).
///
/// The first time of each kind is reported on standard error, in one line. Not counted is what was replaced without loss:
/// `epoll_pwait2` by `ppoll` or `epoll_pwait`, the eventfd that wakes the poller by another one, `madvise` for guards and for
/// memory by `mprotect` and `munmap`. What is refused to a call of the program is its error: a socket, the
/// stack of a goroutine that is spawned.
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

    /// Returns how many threads were refused. What they were to run waited for those that the runtime had.
    pub fn threads(&self) -> u64 {
        self.count(Refusal::Thread)
    }

    /// Returns for how many threads of the runtime no descriptor was kept by which the monitor looks at them, because there
    /// are too few descriptors: see [`RuntimeBuilder::build`](crate::RuntimeBuilder::build).
    pub fn descriptors(&self) -> u64 {
        self.count(Refusal::Descriptor)
    }

    /// Returns how many looks in `/proc` at what a thread does were refused. A goroutine that blocks its thread then keeps
    /// others waiting for some 40 ms, where it is for 10 ms at most else.
    pub fn looks(&self) -> u64 {
        self.count(Refusal::Watch)
    }

    /// Returns how many calls of `membarrier` were refused. Each entry of a goroutine into the runtime has a fence from the
    /// first refusal on.
    pub fn barriers(&self) -> u64 {
        self.count(Refusal::Barrier)
    }

    /// Returns how many retakes failed of a P from a goroutine that had run since before `membarrier` was refused, as its
    /// thread could not be made to pass a barrier by other means. The goroutine kept its P.
    pub fn retakes(&self) -> u64 {
        self.count(Refusal::SlowBarrier)
    }

    /// Returns how many waits for sockets were refused, by every call that there is for them. Sockets are looked at every
    /// millisecond instead.
    pub fn waits(&self) -> u64 {
        self.count(Refusal::Poll)
    }

    /// Returns how many wake-ups of a thread that waits for sockets were refused. Such waits last a millisecond at most from
    /// the first refusal on.
    pub fn wakes(&self) -> u64 {
        self.count(Refusal::Break)
    }

    /// Returns how many waits for child processes took a thread each, because there was no descriptor that tells of the child's
    /// end (`pidfd_open(2)`). Such a wait is not ended by a context.
    pub fn child_waits(&self) -> u64 {
        self.count(Refusal::ChildEnd)
    }

    /// Returns how often a thread was refused the CPUs of its P, or its own again: see
    /// [`RuntimeBuilder::cpu_sets`](crate::RuntimeBuilder::cpu_sets). The thread kept those that it had.
    pub fn affinities(&self) -> u64 {
        self.count(Refusal::Affinity)
    }

    /// Returns how often a goroutine that was to begin got no stack: see [`Builder::go`](crate::Builder::go). The goroutine
    /// waited, and asked again, ten times a second at least.
    pub fn stacks(&self) -> u64 {
        self.count(Refusal::Stack)
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
            .finish()
    }
}

impl<H: Host> Sched<H> {
    /// Returns `true` if `what` was ever refused. Relaxed: a hint, for callers that go another way from then on.
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
