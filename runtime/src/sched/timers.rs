//! Who sleeps until when.
//!
//! One heap of waits under one lock, and a copy of its earliest time that is read without it. Whoever inserts a
//! timer that is now the earliest looks at the poller afterwards; whoever is about to block in the poller reads
//! the heap under the scheduler's lock:
//!
//! ```text
//!   sleeper: T1 insert (timers' lock) · T2 central lock: does the poller wait past it?  break
//!   poller:  B1 central lock: B2 earliest time (timers' lock) · B3 Blocked{until}
//! ```
//! If T1 comes before B2, the poller waits only until then; if B2 does, T2 comes after B3 and sees `until`.
//!
//! Checked by `tests/loom_poll.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::prim::{AtomicU64, Mutex, Relaxed};
use crate::runq::GList;
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::status::{Then, WaitNumber};
use crate::waiter::Wait;
use gmp_timers::{Heap, Nanos};

/// One sleeping wait.
struct Sleeper<H: Host> {
    g: GRef<H>,
    wait: WaitNumber,
}

/// The timers of a runtime.
pub(crate) struct Timers<H: Host> {
    heap: Mutex<Heap<Sleeper<H>>>,
    /// The earliest time in the heap, `u64::MAX` for none. Written under the lock; Relaxed, because it is a hint: an
    /// M that reads an old one finds the timer at its next turn, or in the heap before it sleeps.
    earliest: AtomicU64,
}

const NONE: u64 = u64::MAX;

impl<H: Host> Timers<H> {
    pub(crate) fn new() -> Self {
        Timers { heap: Mutex::new(Heap::new()), earliest: AtomicU64::new(NONE) }
    }

    /// The earliest time at which something is due.
    pub(crate) fn next_due(&self) -> Option<Nanos> {
        self.heap.lock().next_due()
    }

    /// True: the new one is the earliest.
    fn insert(&self, due: Nanos, sleeper: Sleeper<H>) -> bool {
        let mut heap = self.heap.lock();
        let before = heap.next_due();
        heap.insert(due, sleeper);
        self.publish(&heap);
        before.is_none_or(|before| due < before)
    }

    fn publish(&self, heap: &Heap<Sleeper<H>>) {
        self.earliest.store(heap.next_due().map_or(NONE, Nanos::as_nanos), Relaxed);
    }
}

impl<H: Host> Sched<H> {
    /// Readies all whose time has come.
    pub(crate) fn run_timers(&self) {
        let earliest = self.timers.earliest.load(Relaxed);
        if earliest == NONE {
            return;
        }
        let now = self.host.now();
        if now.as_nanos() < earliest {
            return;
        }
        let mut due = GList::new();
        {
            let mut heap = self.timers.heap.lock();
            while let Some((_, sleeper)) = heap.pop_due(now) {
                if sleeper.g.word.claim(sleeper.wait) && sleeper.g.word.ready() == Then::Queue {
                    due.push(sleeper.g);
                }
            }
            self.timers.publish(&heap);
        }
        self.submit(due);
    }

    /// Parks the calling goroutine, one of this scheduler's, until `due`.
    pub(crate) fn sleep_until(&self, wait: Wait<H>, due: Nanos) {
        let Wait::G(window, number) = &wait else { unreachable!("sleep_until: called on a plain thread") };
        let sleeper = Sleeper { g: window.g(), wait: *number };
        let woke = wait.park(WaitReason::Sleep, move || {
            // In the heap only now: the timer may fire at once, and must find the goroutine saved.
            if self.timers.insert(due, sleeper) {
                self.wake_poller_before(due);
            }
            Commit::Park
        });
        debug_assert_eq!(woke, crate::status::Woke::Readied, "only its timer wakes a sleeper");
    }
}
