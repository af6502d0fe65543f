//! The facade: every atomic, fence, lock and shared cell of the runtime comes from here.
//!
//! Natively these are std's atomics, parking_lot's mutex and crossbeam-utils' padding; under the cfg
//! `gmp_loom` they are loom's, and loom then explores the very code that ships. Nothing in `sched/`, in `g`,
//! `m`, `p`, `note`, `runq` or `waiter` names `std::sync` or a clock; `tests/facade.rs` reads the files and
//! says so. With `host.rs` and `model.rs` this is one of the three files that choose by the cfg; a few others hold
//! an item that only the models have.
//!
//! Three hooks live in shipped code so that loom can be shown to see what it must see. Outside `gmp_loom` they are
//! constants:
//!
//! * [`unless`]`(Mutant::X, || ..)` runs the statement, except in a model where the mutant `X` is switched on;
//! * [`order`]`(Mutant::X, Release)` is the ordering, weakened to `Relaxed` where `X` is on;
//! * [`mutated`]`(Mutant::X)` is false, and true where `X` is on.
//!
//! A [`Ghost`] is state of the proof alone: a zero-sized nothing natively, a checked cell under loom.

pub(crate) use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
/// std's `Arc` in both builds: it carries handles, and no protocol relies on its ordering.
pub(crate) use std::sync::{Arc, Weak};

pub(crate) use crossbeam_utils::CachePadded;

#[cfg(not(gmp_loom))]
pub(crate) use native::*;

#[cfg(gmp_loom)]
pub(crate) use model::*;

/// What may be switched off or weakened in a model, by name. Each is a line of shipped code that a protocol
/// needs, and loom must fail when it is gone; the lists in `tests/loom_*.rs` hold it to that.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Mutant {
    /// `Note::wake` publishes its word without Release.
    NoteWakeRelaxed,
    /// `Note::sleep` reads its word without Acquire.
    NoteSleepRelaxed,
    /// `Note::wake` wakes before it stores the word.
    NoteWakeBeforeStore,
    /// `execute` runs the commit hook before the status is Waiting.
    ParkStatusAfterCommit,
    /// A park stores its status without Release.
    ParkStatusRelaxed,
    /// A commit hook that refuses resumes a G that a dump holds.
    CallOffIgnoresScan,
    /// A yield makes its G runnable without Release.
    RequeueRelaxed,
    /// `execute`, meeting a held G, leaves it to the holder without Release.
    RunHeldWithoutRelease,
    /// A G becomes live without Release.
    SpawnRelaxed,
    /// `StatusWord::claim` compares no wait number.
    ClaimAnyWait,
    /// A ready that meets the scan bit leaves no mark.
    ReadyIgnoresScan,
    /// A pollDesc's park goes on although its commit failed.
    PollCommitIgnored,
    /// pollDesc: the commit publishes the waiter without Release.
    PollCommitRelaxed,
    /// A socket empties the event slot after its system call instead of before it.
    SocketClearsLate,
    /// A drained read empties the event slot instead of waiting for what comes into it.
    SocketDrainedClears,
    /// A short read counts as drained although the peer's end was seen.
    SocketTrustsAfterHup,
    /// pollDesc: an event sets its sticky part after it has woken the owner.
    PollSeenLate,
    /// pollDesc: an unblock without Acquire reads who waits.
    PollUnblockRelaxed,
    /// pollDesc: an unblock that would not change the slot does not write it.
    PollLookSparesTheExchange,
    /// A goroutine's end does not look for the one who joins it.
    JoinNoWake,
    /// `join` looks whether its goroutine is done only before it queues itself.
    JoinNoRecheck,
    /// A goroutine publishes its outcome without Release.
    OutcomeRelaxed,
    /// A handle goes without Release.
    HandleRelaxed,
    /// A handle goes before it has dropped the outcome.
    HandleGoesFirst,
    /// An M lets a goroutine go that has ended without Release.
    LiveRelaxed,
    /// A submission queues its goroutine and wakes nobody.
    SubmitNoWake,
    /// An M that takes work and leaves some wakes nobody.
    TakerWakesNobody,
    /// A submission looks for an idle P before it queues its goroutine.
    SubmitWakeFirst,
    /// The lock is let go between the last look at the queue and the place among the idle.
    IdleNoRecheck,
    /// A submission that finds only the blocked poller does not break its wait.
    SubmitNoBreak,
    /// A timer that is now the earliest does not break the poller's wait.
    TimerNoBreak,
    /// A look of a busy M that swallowed a break does not pass it on.
    SwallowedBreakKept,
    /// What the poller found is dropped when no P is idle.
    PollResultsDropped,
    /// An M enters the runtime without E2.
    HandoffNoLightBarrier,
    /// A retaker goes on without R2.
    #[cfg(gmp_loom)]
    HandoffNoHeavyBarrier,
    /// A retaker takes the P although the M is inside.
    #[cfg(gmp_loom)]
    HandoffBlind,
    /// An M that finds its P requested goes in without taking the request back.
    HandoffEnterBlind,
    /// A P that is given up keeps its generation.
    HandoffSameGeneration,
    /// An M leaves the runtime without Release.
    HandoffLeaveRelaxed,
    /// A retaker looks without Acquire whether the M is inside.
    #[cfg(gmp_loom)]
    HandoffLookRelaxed,
    /// A notification that nobody waits for leaves no permit.
    EventLeavesNoPermit,
    /// A turn that is handed over forgets those who stand behind.
    TurnForgetsTheRest,
    /// The turn of a goroutine that its runtime leaves behind stays with it.
    TurnLeftBehind,
    /// A turn is taken without Acquire.
    TurnTakeRelaxed,
    /// The waiter that was queued first in a turn is not handed it.
    TurnNoHandOver,
}

#[cfg(not(gmp_loom))]
mod native {
    use super::{Mutant, Ordering};
    pub(crate) use parking_lot::{Mutex, MutexGuard};
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

    /// std's cell with loom's interface: access through closures, so that loom can see where one ends.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }
        /// Shared access. The pointer is good for reads as long as nobody holds `with_mut`.
        #[inline(always)]
        pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
            f(self.0.get())
        }
        /// Exclusive access. The caller guarantees that it is.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
            f(self.0.get())
        }
    }

    #[inline(always)]
    pub(crate) fn unless(_: Mutant, f: impl FnOnce()) {
        f();
    }

    #[inline(always)]
    pub(crate) const fn mutated(_: Mutant) -> bool {
        false
    }

    #[inline(always)]
    pub(crate) const fn order(_: Mutant, ordering: Ordering) -> Ordering {
        ordering
    }

    /// Keeps the compiler from moving the entry of a window past the look at the hand-off word.
    /// The machine may still do it: the retaker's `membarrier` answers for that.
    #[inline(always)]
    pub(crate) fn light_barrier() {
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    #[derive(Debug)]
    pub(crate) struct Ghost;

    impl Ghost {
        pub(crate) const fn new() -> Self {
            Ghost
        }
        #[inline(always)]
        pub(crate) fn touch(&self) {}
    }
}

#[cfg(gmp_loom)]
mod model {
    use super::{Mutant, Ordering};
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64};

    /// loom's mutex with parking_lot's interface: no poisoning.
    #[derive(Debug)]
    pub(crate) struct Mutex<T>(loom::sync::Mutex<T>);

    impl<T: Default> Default for Mutex<T> {
        fn default() -> Self {
            Self::new(T::default())
        }
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            match self.0.lock() {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }
    }

    /// The mutant of this process, named in the environment as its variant is spelt.
    fn chosen() -> Option<&'static str> {
        static CHOSEN: std::sync::OnceLock<Option<String>> = std::sync::OnceLock::new();
        CHOSEN.get_or_init(|| std::env::var("GMP_MUTANT").ok()).as_deref()
    }

    pub(crate) fn mutated(mutant: Mutant) -> bool {
        chosen().is_some_and(|name| name == format!("{mutant:?}"))
    }

    pub(crate) fn unless(mutant: Mutant, f: impl FnOnce()) {
        if !mutated(mutant) {
            f();
        }
    }

    pub(crate) fn order(mutant: Mutant, ordering: Ordering) -> Ordering {
        if mutated(mutant) { Ordering::Relaxed } else { ordering }
    }

    /// loom has no `membarrier`: both sides of the hand-off fence.
    pub(crate) fn light_barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// The retaker's side of it.
    pub(crate) fn heavy_barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    #[derive(Debug)]
    pub(crate) struct Ghost(UnsafeCell<()>);

    impl Ghost {
        pub(crate) fn new() -> Self {
            Ghost(UnsafeCell::new(()))
        }
        /// An exclusive access: loom fails the execution where two are not ordered.
        pub(crate) fn touch(&self) {
            self.0.with_mut(|_| ());
        }
    }
}

/// Sizes that a model must shrink to reach what lies behind them.
pub(crate) mod capacity {
    /// Gs that a pool makes at a time.
    pub(crate) const G_CHUNK: usize = if cfg!(gmp_loom) { 1 } else { 64 };
}
