//! The facade: every atomic, fence, lock and shared cell of the runtime comes from here.
//!
//! Natively these are std's atomics, parking_lot's mutex and crossbeam-utils' padding; under the cfg
//! `gmp_loom` they are loom's, and loom then explores the very code that ships. Nothing in `sched/`, in `g`,
//! `m`, `p`, `note`, `runq` or `waiter` names `std::sync` or a clock; `tests/facade.rs` reads the files and
//! says so. With `hooks.rs`, `lock.rs`, `host/mod.rs` and `host/model/mod.rs` this is one of the five files that choose
//! by the cfg; a few others hold an item that only the models have.
//!
//! The annotations of [`hooks`] stand in shipped code so that loom can be shown to see what it must see.
//!
//! A [`Ghost`] is state of the proof alone: a zero-sized nothing natively, a checked cell under loom.

pub(crate) mod hooks;
mod lock;
mod mutant;

// The pool of stacks has one, and there is none over the `generator` backend.
#[cfg_attr(any(feature = "generator", not(target_arch = "x86_64")), allow(unused_imports))]
pub(crate) use lock::HostMutex;
pub(crate) use lock::{Mutex, MutexGuard, Rank, assert_none_held};
pub use mutant::Mutant;
pub(crate) use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release};
/// std's `Arc` in both builds: it carries handles, and no protocol relies on its ordering.
pub(crate) use std::sync::{Arc, Weak};

pub(crate) use crossbeam_utils::CachePadded;

#[cfg(not(gmp_loom))]
pub(crate) use native::*;

#[cfg(gmp_loom)]
pub(crate) use model::*;

/// A constructor that is `const`, for statics; except in models, whose atomics and locks can't be made in one.
macro_rules! const_fn {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),*) -> $out:ty $body:block) => {
        #[cfg(not(gmp_loom))]
        $(#[$doc])*
        $vis const fn $name($($arg: $type),*) -> $out $body
        #[cfg(gmp_loom)]
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) -> $out $body
    };
}
pub(crate) use const_fn;

#[cfg(not(gmp_loom))]
mod native {
    use super::Ordering;
    pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence};

    /// What `lock` gives a rank.
    pub(crate) mod plain {
        #[cfg(debug_assertions)]
        use crate::prim::lock::Ranks;
        pub(crate) use parking_lot::{Mutex, MutexGuard};

        /// Whatever comes somewhere in the order of the locks of its rank.
        pub(crate) trait Placed {
            fn place(&self) -> usize;
        }

        impl<T> Placed for Mutex<T> {
            #[inline(always)]
            fn place(&self) -> usize {
                std::ptr::from_ref(self).addr()
            }
        }

        #[cfg(debug_assertions)]
        thread_local! {
            static RANKS: Ranks = const { Ranks::new() };
        }

        /// The calling thread's. Never in line: a goroutine that was switched may be on another thread.
        #[cfg(debug_assertions)]
        #[inline(never)]
        pub(crate) fn with_ranks(f: impl FnOnce(&Ranks)) {
            RANKS.with(f);
        }
    }

    /// std's cell with loom's interface: access through closures, so that loom can see where one ends.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T: ?Sized>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }
        pub(crate) fn into_inner(self) -> T {
            self.0.into_inner()
        }
    }

    impl<T: ?Sized> UnsafeCell<T> {
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

    /// Keeps the compiler from moving the entry of a window past the look at the hand-off word.
    /// The machine may still do it: the retaker's `membarrier` answers for that.
    #[inline(always)]
    pub(crate) fn light_barrier() {
        // SeqCst: EntryBarrier; partner RetakeBarrier.
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
    }

    /// A full fence for one whose last store was a read-modify-write: on x86 that was one already.
    #[inline(always)]
    pub(crate) fn fence_after_exchange() {
        // SeqCst, both: the caller says which fence this is, and names its partner.
        #[cfg(target_arch = "x86_64")]
        std::sync::atomic::compiler_fence(Ordering::SeqCst);
        // SeqCst: as above, with the caller's partner.
        #[cfg(not(target_arch = "x86_64"))]
        fence(Ordering::SeqCst);
    }

    /// Returns `true` if `peek` gives the same value again after 3 µs, the time that an owner gets to run a G that it
    /// has just put into `runnext` (Go sleeps 3 µs here). `peek` is not called in between, as each call takes the
    /// cache line away from the owner.
    pub(crate) fn stays_the_same<T: PartialEq>(peek: impl Fn() -> T) -> bool {
        let (start, seen) = (std::time::Instant::now(), peek());
        while start.elapsed() < std::time::Duration::from_micros(3) {
            std::hint::spin_loop();
        }
        peek() == seen
    }

    /// Returns `true` if busy Ps help each other, unless they are told not to.
    #[inline(always)]
    pub(crate) const fn may_help() -> bool {
        true
    }

    /// Between two looks at what another may change in a moment, a lock or a queue. Go's 30 pauses.
    pub(crate) fn pause() {
        for _ in 0..30 {
            std::hint::spin_loop();
        }
    }

    /// Has the cache bring what lies there, which is looked at soon. A hint: any address will do.
    #[inline(always)]
    pub(crate) fn prefetch<T>(at: *const T) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: it reads nothing that the program sees, and never faults.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(at.cast());
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = at;
    }

    /// One round of waiting for another thread that needs a few more instructions, unless the kernel has preempted it.
    pub(crate) fn relax() {
        std::thread::yield_now();
    }

    /// What a model checks that has loom weigh the words of single writers.
    #[inline(always)]
    pub(crate) fn when_weighed(_: impl FnOnce()) {}

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
    use super::Ordering;
    pub(crate) use loom::cell::UnsafeCell;
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64};

    /// What `lock` gives a rank.
    pub(crate) mod plain {
        use crate::prim::lock::Ranks;
        pub(crate) use loom::sync::MutexGuard;
        use std::sync::atomic::{AtomicUsize, Ordering};

        /// Whatever comes somewhere in the order of the locks of its rank.
        pub(crate) trait Placed {
            fn place(&self) -> usize;
        }

        /// loom's mutex with parking_lot's interface: no poisoning. Its place is its number: addresses differ from one
        /// execution to the next, and loom repeats schedules.
        #[derive(Debug)]
        pub(crate) struct Mutex<T> {
            inner: loom::sync::Mutex<T>,
            number: usize,
        }

        impl<T> Mutex<T> {
            pub(crate) fn new(value: T) -> Self {
                static MADE: AtomicUsize = AtomicUsize::new(1);
                // Relaxed: a number of its own is all that it is.
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

        /// The calling thread's. What is let go when loom has ended its thread is counted no more.
        pub(crate) fn with_ranks(f: impl FnOnce(&Ranks)) {
            let _ended = RANKS.try_with(f);
        }
    }

    /// loom's fence; none with `Relaxed`, which a mutant asks for.
    pub(crate) fn fence(ordering: Ordering) {
        if ordering != Ordering::Relaxed {
            loom::sync::atomic::fence(ordering);
        }
    }

    /// loom has no `membarrier`: both sides of the hand-off fence. Only where there is a retaker: else the fence, which
    /// is none for the machine, would hide that others are missing.
    pub(crate) fn light_barrier() {
        if crate::model::relies_on_entries() {
            // SeqCst: EntryBarrier; partner RetakeBarrier.
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
        crate::model::switch_point();
    }

    /// A full fence: loom has no exchange that is one.
    pub(crate) fn fence_after_exchange() {
        // SeqCst: the caller says which fence this is, and names its partner.
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    /// In a model the other thread may run between any two steps anyway. It says how many thieves are refused.
    pub(crate) fn stays_the_same<T>(_look: impl Fn() -> T) -> bool {
        crate::model::stays_the_same()
    }

    /// In models of helping only: others need no clock, and no M that comes to somebody's aid by itself.
    pub(crate) fn may_help() -> bool {
        crate::model::has_helpers()
    }

    /// A model's threads do not spin.
    pub(crate) fn pause() {}

    /// What a model checks that has loom weigh the words of single writers.
    pub(crate) fn when_weighed(check: impl FnOnce()) {
        if crate::model::weighs_single_writers() {
            check();
        }
    }

    /// A model has no cache.
    pub(crate) fn prefetch<T>(_: *const T) {}

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

/// What a trace may read of somebody else's word: one thread at a time writes it, and others `peek`. Relaxed, ordered by
/// nothing, but for `set_after`. std's in both builds: loom need not weigh it, but where a model asks for that.
/// The writer's own `get` is a plain load, which the compiler may merge with others as that of a `Cell`.
mod single_writer {
    use super::hooks::*;
    use super::{Acquire, Relaxed, Release};
    use std::ptr::{self, NonNull};
    use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU64};

    /// A pointer. A reader other than the writer compares it only, or knows that what it names is there to stay.
    #[derive(Debug)]
    pub(crate) struct SingleWriter<T>(AtomicPtr<T>, #[cfg(gmp_loom)] Shown<T>);

    /// What `peek_after` reads in a model that asks for it: there loom weighs which value it sees.
    #[cfg(gmp_loom)]
    type Shown<T> = Option<loom::sync::atomic::AtomicPtr<T>>;

    impl<T> SingleWriter<T> {
        pub(crate) fn new(value: Option<NonNull<T>>) -> Self {
            let value = value.map_or(ptr::null_mut(), NonNull::as_ptr);
            SingleWriter(
                AtomicPtr::new(value),
                #[cfg(gmp_loom)]
                crate::model::weighs_single_writers().then(|| loom::sync::atomic::AtomicPtr::new(value)),
            )
        }
        /// The writer's own.
        #[inline(always)]
        pub(crate) fn get(&self) -> Option<NonNull<T>> {
            // SAFETY: by the type's contract nobody writes it at the same time; reads of others don't matter.
            NonNull::new(unsafe { *self.0.as_ptr() })
        }
        /// Anybody's.
        pub(crate) fn peek(&self) -> Option<NonNull<T>> {
            NonNull::new(self.0.load(Relaxed))
        }
        #[inline(always)]
        pub(crate) fn set(&self, value: Option<NonNull<T>>) {
            self.0.store(value.map_or(ptr::null_mut(), NonNull::as_ptr), Relaxed);
        }
        /// Anybody's, who then sees what the writer did before `set_after`.
        pub(crate) fn peek_after(&self) -> Option<NonNull<T>> {
            // Acquire: partner `set_after`.
            let acquire = Acquire.unless(PeekAfterRelaxed);
            #[cfg(gmp_loom)]
            if let Some(shown) = &self.1 {
                return NonNull::new(shown.load(acquire));
            }
            NonNull::new(self.0.load(acquire))
        }
        /// `set`, for those who `peek_after`.
        #[inline(always)]
        pub(crate) fn set_after(&self, value: Option<NonNull<T>>) {
            let value = value.map_or(ptr::null_mut(), NonNull::as_ptr);
            // Release: what came before is over for `peek_after`, its partner.
            let release = Release.unless(SetAfterRelaxed);
            self.0.store(value, release);
            #[cfg(gmp_loom)]
            if let Some(shown) = &self.1 {
                shown.store(value, release);
            }
        }
        /// The writer's own.
        #[inline(always)]
        pub(crate) fn take(&self) -> Option<NonNull<T>> {
            let value = self.get();
            self.set(None);
            value
        }
    }

    /// A number.
    #[derive(Debug)]
    pub(crate) struct SingleWriterWord(AtomicU64);

    impl SingleWriterWord {
        pub(crate) fn new(value: u64) -> Self {
            SingleWriterWord(AtomicU64::new(value))
        }
        #[inline(always)]
        pub(crate) fn get(&self) -> u64 {
            self.0.load(Relaxed)
        }
        #[inline(always)]
        pub(crate) fn set(&self, value: u64) {
            self.0.store(value, Relaxed);
        }
    }

    /// A small number.
    #[derive(Debug)]
    pub(crate) struct SingleWriterByte(AtomicU8);

    impl SingleWriterByte {
        pub(crate) fn new(value: u8) -> Self {
            SingleWriterByte(AtomicU8::new(value))
        }
        #[inline(always)]
        pub(crate) fn get(&self) -> u8 {
            self.0.load(Relaxed)
        }
        #[inline(always)]
        pub(crate) fn set(&self, value: u8) {
            self.0.store(value, Relaxed);
        }
    }

    /// Yes or no.
    #[derive(Debug)]
    pub(crate) struct SingleWriterFlag(AtomicBool);

    impl SingleWriterFlag {
        pub(crate) fn new(value: bool) -> Self {
            SingleWriterFlag(AtomicBool::new(value))
        }
        /// The writer's own.
        #[inline(always)]
        pub(crate) fn get(&self) -> bool {
            // SAFETY: as in `SingleWriter::get`.
            unsafe { *self.0.as_ptr() }
        }
        /// Anybody's.
        pub(crate) fn peek(&self) -> bool {
            self.0.load(Relaxed)
        }
        #[inline(always)]
        pub(crate) fn set(&self, value: bool) {
            self.0.store(value, Relaxed);
        }
        /// The writer's own.
        #[inline(always)]
        pub(crate) fn replace(&self, value: bool) -> bool {
            let old = self.get();
            self.set(value);
            old
        }
    }
}
pub(crate) use single_writer::{SingleWriter, SingleWriterByte, SingleWriterFlag, SingleWriterWord};

/// Sizes that a model must shrink to reach what lies behind them.
pub(crate) mod capacity {
    use std::time::Duration;

    /// Gs that a pool makes at a time.
    pub(crate) const G_CHUNK: usize = if cfg!(gmp_loom) { 1 } else { 64 };
    /// Gs that a P takes from the pool, and gives back to it, at a time.
    pub(crate) const G_BATCH: usize = if cfg!(gmp_loom) { 1 } else { 32 };
    /// Gs that the ring of a P holds, a power of two. Go's number.
    pub(crate) const RUNQ: u32 = if cfg!(gmp_loom) { 4 } else { 256 };
    /// The most Ps of a runtime.
    pub(crate) const PROCS: usize = if cfg!(gmp_loom) { 4 } else { 1024 };
    /// Whether an M that has just acquired a P takes one goroutine alone from the global queue. In a model it takes the
    /// share at once: it may spin then while others stand in its ring.
    pub(crate) const FIRST_ALONE: bool = !cfg!(gmp_loom);
    /// How often a spinning M visits the other Ps, one time after the other. Go's number.
    pub(crate) const STEAL_ROUNDS: u32 = if cfg!(gmp_loom) { 1 } else { 4 };
    /// And at most, with pauses, while others' queues come and go.
    pub(crate) const STEAL_ROUNDS_MOST: u32 = if cfg!(gmp_loom) { 1 } else { 32 };
    /// How often who wants a lock looks again before it stands in line. Go's number.
    pub(crate) const LOCK_SPINS: usize = if cfg!(gmp_loom) { 0 } else { 4 };
    /// Who has waited so long for a mutex is handed it. Go's number. In a model, whose clock stands still, whoever
    /// was summoned in vain.
    pub(crate) const STARVED: std::time::Duration =
        if cfg!(gmp_loom) { std::time::Duration::ZERO } else { std::time::Duration::from_millis(1) };
    /// Parts of a `sync::Pool`. Ps with numbers that are equal modulo this share one.
    pub(crate) const POOL_SHARDS: usize = if cfg!(gmp_loom) { 2 } else { 32 };
    /// Whether a spinning M begins its rounds anywhere. A model's schedule is to depend on loom alone.
    pub(crate) const RANDOM_VICTIMS: bool = !cfg!(gmp_loom);
    /// So many goroutines in a row may come from `runnext`. Two that wake each other then share a P with the others
    /// in the proportion of this number to one round of the queue.
    pub(crate) const MAX_INHERITED: u32 = if cfg!(gmp_loom) { 2 } else { 16 };
    /// So long a thread stays that has nothing to do. A model's threads stay.
    pub(crate) const KEEP_ALIVE: Option<Duration> =
        if cfg!(gmp_loom) { None } else { Some(Duration::from_secs(10)) };
    /// From one look at another P to the next. In a model, whose clock stands still, each time.
    pub(crate) const LOOK_AROUND: Duration = Duration::from_micros(if cfg!(gmp_loom) { 0 } else { 50 });
    /// No queue that is younger is helped. In a model every one that looks no younger than the own.
    pub(crate) const HELP_FLOOR: Duration = Duration::from_micros(if cfg!(gmp_loom) { 0 } else { 200 });
    /// The same where the kernel runs another of our Ms in place of the owner: longer than it does so at a time with
    /// twice as many busy threads as CPUs, which is 4 ms.
    pub(crate) const HELP_FLOOR_OFF: Duration = Duration::from_millis(if cfg!(gmp_loom) { 0 } else { 4 });
    /// So long the timer thread waits for the next callback. A model's waits are not ended by time.
    pub(crate) const LINGER: Duration = Duration::from_millis(if cfg!(gmp_loom) { 0 } else { 100 });
}
