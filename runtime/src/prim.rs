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
    /// `StatusWord::run` is no Acquire.
    RunWithoutAcquire,
    /// `StatusWord::call_off` is no Acquire.
    CallOffWithoutAcquire,
    /// `StatusWord::call_off` is no Release.
    CallOffWithoutRelease,
    /// `StatusWord::ready` is no Release.
    ReadyRelaxed,
    /// A dump holds a G without Acquire.
    HoldRelaxed,
    /// A dump lets a G go without Acquire.
    UnholdWithoutAcquire,
    /// A dump lets a G go without Release.
    UnholdWithoutRelease,
    /// A dump looks without Acquire whether a G is live.
    LiveLooksRelaxed,
    /// A handle that goes looks without Acquire whether there is an outcome.
    HandleLooksRelaxed,
    /// An M that makes idle the P that it gives away looks at the queues without a fence.
    HandOffNoFence,
    /// A P that is given away and idle is counted after the lock.
    HandOffCountsLate,
    /// An M that makes idle the P that it gives away does not look at the queues.
    HandOffNoRecheck,
    /// A goroutine that comes back looks for an idle P in one critical section and is queued in another.
    ExitInTwoSections,
    /// The M in the poller does not say so.
    PollerSaysNothing,
    /// The M that waited for a timer does not run it.
    PollerRunsNoTimers,
    /// pollDesc: the owner takes its event without Acquire.
    PollSettleRelaxed,
    /// A turn is passed on without Release.
    TurnPassRelaxed,
    /// A turn that has become free meanwhile is taken without Acquire.
    TurnLateTakeRelaxed,
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
    /// A submission looks for an idle P before it queues its goroutine.
    SubmitWakeFirst,
    /// A submission that finds only the blocked poller does not break its wait.
    SubmitNoBreak,
    /// A timer that is now the earliest does not break the poller's wait.
    TimerNoBreak,
    /// A look of a busy M that swallowed a break does not pass it on.
    SwallowedBreakKept,
    /// An M that comes back from the poller by an event looks for no P that was left for it.
    GiftOnlyByBreak,
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
    /// A submission reads the census without the fence S2.
    SubmitNoFence,
    /// An M that gives up looks at the queues without the fence I2.
    IdleNoFence,
    /// An M that gives up does not look again.
    IdleNoRecheck,
    /// An M that gives up looks again before it has given up.
    IdleLooksFirst,
    /// Only an M that spun looks again.
    IdleOnlySpinnersLook,
    /// An M gives up although the global queue is not empty.
    IdleSkipsGlobal,
    /// An M that sees work after giving up searches without being counted.
    RecheckDoesNotSpin,
    /// An M that stops spinning because it found work wakes nobody.
    SpinnerWakesNobody,
    /// A submission that found no idle P after all leaves the count of spinning Ms after the lock.
    WakepUndoesLate,
    /// An M that sees work after giving up takes a P although it was given one.
    CallOffTakesAnyP,
    /// A P for which no M was found stays in the count of spinning Ms.
    TakeBackLeaksSpinning,
    /// An M that gives up changes the census after the lock.
    CensusAfterTheLock,
    /// An M gives up although the runtime ends.
    IdleIgnoresTheEnd,
    /// A submission that found no idle P after all stays in the count of spinning Ms.
    WakepLeaksSpinning,
    /// An M that is started to spin does not know that it counts.
    StartForgetsSpinning,
    /// The end of a runtime looks at the queues without a fence.
    StopNoFence,
    /// What the poller or the timers made runnable wakes nobody.
    InjectWakesNobody,
    /// The mask of idle Ps is read before the P is given up.
    MaskReadEarly,
    /// A new timer looks at the poller without a fence.
    TimerNoFence,
    /// The poller's M does not look at the timers before it waits.
    PollerSkipsTimers,
    /// A P that is handed off is idle although its queue is not empty.
    HandOffSkipsQueue,
    /// A turn is taken without Acquire.
    TurnTakeRelaxed,
    /// The waiter that was queued first in a turn is not handed it.
    TurnNoHandOver,
    /// A ring's tail moves on without Release.
    RingTailStoreRelaxed,
    /// A thief reads the tail without Acquire.
    RingTailLoadRelaxed,
    /// A thief reads the tail before the heads.
    RingTailReadFirst,
    /// A thief reads the heads without Acquire.
    RingHeadLoadRelaxed,
    /// `Runq::pop` stores the heads instead of exchanging them.
    RingHeadStore,
    /// `Runq::pop` moves the heads without Release.
    RingPopRelaxed,
    /// The owner looks without Acquire whether a slot is free.
    RingPushHeadRelaxed,
    /// The owner of a full ring takes half of it without Release.
    RingSpillRelaxed,
    /// An owner that takes a G moves the thief's head although a thief copies.
    RingClaimForgotten,
    /// A thief claims without Release.
    RingClaimRelaxed,
    /// A thief gives its claim back without Release.
    RingReleaseRelaxed,
    /// `Runq::push_next` publishes its G without Release.
    RunnextPutRelaxed,
    /// `Runq::pop_next` stores null instead of exchanging.
    RunnextTakenByStore,
    /// `Runq::pop_next` takes without Release.
    RunnextPopRelaxed,
    /// A thief takes runnext without Acquire.
    RunnextStealRelaxed,
    /// A thief leaves runnext alone.
    RunnextNeverStolen,
    /// `Runq::is_empty` looks at the ring only.
    EmptyIgnoresRunnext,
    /// `Runq::is_empty` reads the tail before runnext, and not again after it.
    EmptyTailReadFirst,
    /// `Runq::is_empty` reads the heads without Acquire.
    EmptyHeadRelaxed,
    /// `Runq::is_empty` reads runnext without Acquire.
    EmptyNextRelaxed,
}

#[cfg(not(gmp_loom))]
mod native {
    use super::{Mutant, Ordering};
    pub(crate) use parking_lot::Mutex;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence};

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

    /// A full fence for one whose last store was a read-modify-write: on x86 that was one already.
    #[inline(always)]
    pub(crate) fn fence_after_exchange() {
        #[cfg(target_arch = "x86_64")]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }

    /// Whether what the caller looks at stays as it is for 3 µs, as long as a G that was just put is given to its owner
    /// (Go sleeps for that long, and then takes it in any case).
    pub(crate) fn holds_still(as_it_was: impl Fn() -> bool) -> bool {
        let start = std::time::Instant::now();
        while as_it_was() {
            if start.elapsed() >= std::time::Duration::from_micros(3) {
                return true;
            }
            std::hint::spin_loop();
        }
        false
    }

    /// One round of waiting for another thread that needs a few more instructions, unless the kernel has preempted it.
    pub(crate) fn relax() {
        std::thread::yield_now();
    }

    /// One event of the schedule, for the report of a model that fails.
    #[inline(always)]
    pub(crate) fn event(_: std::fmt::Arguments<'_>) {}

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
    use loom::sync::MutexGuard;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence};

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

    /// loom has no `membarrier`: both sides of the hand-off fence. Only where there is a retaker: else the fence, which
    /// is none for the machine, would hide that others are missing.
    pub(crate) fn light_barrier() {
        if crate::model::has_retaker() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    /// The retaker's side of it.
    pub(crate) fn heavy_barrier() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// A full fence: loom has no exchange that is one.
    pub(crate) fn fence_after_exchange() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// In a model the other thread may run between any two steps anyway.
    pub(crate) fn holds_still(_as_it_was: impl Fn() -> bool) -> bool {
        true
    }

    /// Lets the thread that is waited for run.
    pub(crate) fn relax() {
        loom::thread::yield_now();
    }

    /// One event of the schedule, for the report of a model that fails.
    pub(crate) fn event(what: std::fmt::Arguments<'_>) {
        crate::model::note_event(what);
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
    /// Gs that a P takes from the pool, and gives back to it, at a time.
    pub(crate) const G_BATCH: usize = if cfg!(gmp_loom) { 1 } else { 32 };
    /// Gs that the ring of a P holds, a power of two. Go's number.
    pub(crate) const RUNQ: u32 = if cfg!(gmp_loom) { 4 } else { 256 };
    /// How often a spinning M visits the other Ps before it gives up. Go's number.
    pub(crate) const STEAL_ROUNDS: u32 = if cfg!(gmp_loom) { 1 } else { 4 };
    /// Whether a spinning M begins its rounds anywhere. A model's schedule is to depend on loom alone.
    pub(crate) const RANDOM_VICTIMS: bool = !cfg!(gmp_loom);
    /// So many goroutines in a row may come from `runnext`. Two that wake each other then share a P with the others
    /// in the proportion of this number to one round of the queue.
    pub(crate) const SLICE: u32 = if cfg!(gmp_loom) { 2 } else { 16 };
}
