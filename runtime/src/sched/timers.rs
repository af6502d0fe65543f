//! Who sleeps until when.
//!
//! Each P has a heap of waits under a lock of its own, and a copy of the heap's earliest time that is read without
//! it. A goroutine sleeps in the heap of its P; who runs what is due there:
//!
//! * the P's own M, between two goroutines (`schedule`);
//! * an M that looks for work, in its last round (`steal`);
//! * the M that waits in the poller no longer than for the earliest of all of them. An idle P keeps its timers.
//!
//! How a new timer and the poller's wait meet stands in `poll.rs`; checked by `tests/loom_poll.rs`.

use crate::g::GRef;
use crate::glist::GList;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::{AtomicU64, Mutex, Relaxed};
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::sched::poll::NOBODY;
use crate::status::{Then, WaitNumber};
use crate::waiter::Wait;
use gmp_timers::{Heap, Nanos};

/// One sleeping wait.
struct Sleeper<H: Host> {
    g: GRef<H>,
    wait: WaitNumber,
}

/// The timers of a P.
pub(crate) struct Timers<H: Host> {
    heap: Mutex<Heap<Sleeper<H>>>,
    /// The earliest time in the heap, or NONE. Written under the lock. Relaxed: the fences of `poll.rs` order it.
    earliest: AtomicU64,
}

const NONE: u64 = u64::MAX;

impl<H: Host> Timers<H> {
    pub(crate) fn new() -> Self {
        Timers { heap: Mutex::new(Heap::new()), earliest: AtomicU64::new(NONE) }
    }

    /// The earliest time at which something is due.
    #[inline]
    pub(crate) fn earliest(&self) -> Option<Nanos> {
        let earliest = self.earliest.load(Relaxed);
        (earliest != NONE).then(|| Nanos::from_nanos(earliest))
    }

    /// Whether there is no timer. Exact for the P's owner.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.earliest.load(Relaxed) == NONE
    }

    /// True: the new one is the earliest.
    fn insert(&self, due: Nanos, sleeper: Sleeper<H>) -> bool {
        // A time that the copy can't tell from "none"; 584 years from the start.
        let due = due.min(Nanos::from_nanos(NONE - 1));
        let mut heap = self.heap.lock();
        let before = heap.next_due();
        heap.insert(due, sleeper);
        self.publish(&heap);
        before.is_none_or(|before| due < before)
    }

    /// Claims and readies what is due.
    fn take_due(&self, now: Nanos) -> GList<H> {
        let mut due = GList::new();
        let mut heap = self.heap.lock();
        while let Some((_, sleeper)) = heap.pop_due(now) {
            if sleeper.g.word.claim(sleeper.wait) && sleeper.g.word.ready() == Then::Queue {
                due.push(sleeper.g);
            }
        }
        self.publish(&heap);
        due
    }

    fn publish(&self, heap: &Heap<Sleeper<H>>) {
        self.earliest.store(heap.next_due().map_or(NONE, Nanos::as_nanos), Relaxed);
    }
}

impl<H: Host> Sched<H> {
    /// Readies what is due in the heap of `p`. True when there was anything.
    #[inline]
    pub(crate) fn run_timers(&self, m: &M<H>, p: &P<H>) -> bool {
        match p.timers.earliest() {
            None => false,
            Some(earliest) => self.run_timers_due(m, p, earliest),
        }
    }

    fn run_timers_due(&self, m: &M<H>, p: &P<H>, earliest: Nanos) -> bool {
        let now = self.host.now();
        if now < earliest {
            return false;
        }
        let due = p.timers.take_due(now);
        let any = !due.is_empty();
        self.submit_found(m, due);
        any
    }

    /// Readies what is due in any heap.
    pub(crate) fn run_all_timers(&self, m: &M<H>) {
        for p in self.ps.iter().filter(|p| self.timer_mask.has(p.id)) {
            self.run_timers(m, p);
        }
    }

    /// What is due in any heap, taken by a thread that is no M.
    pub(crate) fn take_all_due(&self) -> GList<H> {
        let (now, mut due) = (self.host.now(), GList::new());
        for p in self.ps.iter().filter(|p| p.timers.earliest().is_some_and(|earliest| earliest <= now)) {
            due.append(&mut p.timers.take_due(now));
        }
        due
    }

    /// B3 of `poll.rs`: the earliest time in any heap.
    #[doc(alias = "timeSleepUntil")]
    pub(crate) fn earliest_timer(&self) -> Option<Nanos> {
        self.ps.iter().filter(|p| self.timer_mask.has(p.id)).filter_map(|p| p.timers.earliest()).min()
    }

    /// Parks the calling goroutine, one of this scheduler's, until `due`.
    #[doc(alias = "timeSleep")]
    pub(crate) fn sleep_until(&self, wait: Wait<H>, due: Nanos) {
        let Wait::G(window, number) = &wait else { unreachable!("sleep_until: called on a plain thread") };
        let sleeper = Sleeper { g: window.g(), wait: *number };
        let p = window.p();
        let woke = wait.park(WaitReason::Sleep, move || {
            // In the heap only now: the timer may fire at once, and must find the goroutine saved.
            if p.timers.insert(due, sleeper) {
                self.wake_poller_before(due);
            }
            // T1 to T3 see to it that whoever waits in the poller knows. If nobody does, and this M has other
            // goroutines to run before it looks at the clock again, another M is to go there.
            if !p.runq.is_empty() && self.poll_until.load(Relaxed) == NOBODY {
                self.wakep();
            }
            Commit::Park
        });
        debug_assert_eq!(woke, crate::status::Woke::Readied, "only its timer wakes a sleeper");
    }
}
