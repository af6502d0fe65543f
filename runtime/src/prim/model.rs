//! The facade of the models: loom's atomics, cells and locks, and the model's answers in place of the machine's.

use super::Ordering;
use std::fmt::Arguments;
use std::sync::OnceLock;

pub(crate) use loom::cell::UnsafeCell;
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64};

/// Natively counts the locks that the calling thread has found taken, for naps, which models do not have.
pub(crate) fn note_contention() {}

/// As `note_contention`.
pub(crate) fn contentions() -> u32 {
    0
}

/// The locks over which `lock` puts a rank.
pub(crate) mod plain {
    use crate::prim::lock::Ranks;
    pub(crate) use loom::sync::MutexGuard;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// A lock with a place among those of its rank.
    pub(crate) trait Placed {
        fn place(&self) -> usize;
    }

    /// loom's mutex with parking_lot's interface: no poisoning. The mutex's place is its number: addresses differ
    /// from one execution to the next, and loom repeats schedules.
    #[derive(Debug)]
    pub(crate) struct Mutex<T> {
        inner: loom::sync::Mutex<T>,
        number: usize,
    }

    impl<T> Mutex<T> {
        pub(crate) fn new(value: T) -> Self {
            static MADE: AtomicUsize = AtomicUsize::new(1);
            // Relaxed: the number need only be unique.
            Self { inner: loom::sync::Mutex::new(value), number: MADE.fetch_add(1, Ordering::Relaxed) }
        }
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            match self.inner.lock() {
                Ok(guard) => guard,
                Err(poisoned) => poisoned.into_inner(),
            }
        }
    }

    impl<T> Placed for Mutex<T> {
        fn place(&self) -> usize {
            self.number
        }
    }

    impl<T> Placed for parking_lot::Mutex<T> {
        fn place(&self) -> usize {
            std::ptr::from_ref(self).addr()
        }
    }

    loom::thread_local! {
        static RANKS: Ranks = Ranks::new();
    }

    /// Calls `f` with the calling thread's ranks. A lock that is released after loom has ended its thread is not counted.
    pub(crate) fn with_ranks(f: impl FnOnce(&Ranks)) {
        let _ended = RANKS.try_with(f);
    }
}

/// The answers of the machine of the model under check. The machine is in a module above this one (`host/model`), which calls
/// `run_on`.
pub(crate) struct Machine {
    /// Returns `true` if a retaker relies on each entry into the runtime being a barrier.
    pub(crate) relies_on_entries: fn() -> bool,
    /// Called where the kernel may switch the calling thread out.
    pub(crate) switch_point: fn(),
    /// Returns `true` if the queue that a thief looks at does not change meanwhile.
    pub(crate) stays_the_same: fn() -> bool,
    /// Returns `true` if busy Ps help each other.
    pub(crate) has_helpers: fn() -> bool,
    /// Returns `true` if loom weighs the words of single writers.
    pub(crate) weighs_single_writers: fn() -> bool,
    /// Adds an event to the schedule that is printed when an execution fails.
    pub(crate) event: fn(Arguments<'_>),
}

static MACHINE: OnceLock<Machine> = OnceLock::new();

/// Sets the machine, before the first model of the process. Later calls do nothing.
pub(crate) fn run_on(machine: Machine) {
    let _the_same = MACHINE.set(machine);
}

fn machine() -> &'static Machine {
    MACHINE.get().expect("machine: a model begins by `Model::check`, which calls `run_on`")
}

pub(super) fn weighs_single_writers() -> bool {
    (machine().weighs_single_writers)()
}

/// loom's fence; no fence with `Relaxed`, which a mutant passes.
pub(crate) fn fence(ordering: Ordering) {
    if ordering != Ordering::Relaxed {
        loom::sync::atomic::fence(ordering);
    }
}

/// loom has no `membarrier`, so both sides of the hand-off fence. Only in a model with a retaker: elsewhere this fence, which a
/// machine does not have, would hide that another fence is missing.
pub(crate) fn light_barrier() {
    if (machine().relies_on_entries)() {
        // SeqCst: EntryBarrier; partner RetakeBarrier.
        loom::sync::atomic::fence(Ordering::SeqCst);
    }
    (machine().switch_point)();
}

/// A full fence: loom has no exchange that is one.
pub(crate) fn fence_after_exchange() {
    // SeqCst: the caller says which fence this is, and names its partner.
    loom::sync::atomic::fence(Ordering::SeqCst);
}

/// In a model the owner may run between any two steps anyway. The model says how many thieves find a change.
pub(crate) fn stays_the_same<T>(_look: impl Fn() -> T) -> bool {
    (machine().stays_the_same)()
}

/// Only in models of helping: other models need no clock, and no M that helps unasked.
pub(crate) fn may_help() -> bool {
    (machine().has_helpers)()
}

/// A model's threads do not spin.
pub(crate) fn pause() {}

/// Runs a check of the models in which loom weighs the words of single writers.
pub(crate) fn when_weighed(check: impl FnOnce()) {
    if weighs_single_writers() {
        check();
    }
}

/// A model has no cache.
pub(crate) fn prefetch<T>(_: *const T) {}

/// Does the same as `prefetch`.
pub(crate) fn prefetch_to_write<T>(_: *const T) {}

/// Lets the awaited thread run.
pub(crate) fn relax() {
    loom::thread::yield_now();
}

/// One event of the schedule, for the report of a model that fails.
pub(crate) fn event(what: Arguments<'_>) {
    (machine().event)(what);
}

#[derive(Debug)]
pub(crate) struct Ghost(UnsafeCell<()>);

impl Ghost {
    pub(crate) fn new() -> Self {
        Ghost(UnsafeCell::new(()))
    }
    /// An exclusive access: loom fails the execution if two accesses are not ordered.
    pub(crate) fn touch(&self) {
        self.0.with_mut(|_| ());
    }
}
