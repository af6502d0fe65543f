//! The facade of shipped builds: std's atomics, locks whose unlock is a store, and the machine's own means.

use super::Ordering;
pub(crate) use super::buckets::{contentions, note_contention};
/// The identity of a plain thread, in a lock that the holder may take again.
pub(crate) use parking_lot::RawThreadId as ThreadIdentity;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicI64, AtomicPtr, AtomicU32, AtomicU64, fence};
use std::time::{Duration, Instant};

/// The locks over which `lock` puts a rank.
pub(crate) mod plain {
    use crate::prim::buckets::OfProcess;
    #[cfg(debug_assertions)]
    use crate::prim::lock::Ranks;
    use crate::prim::store_lock::StoreLock;
    use std::cell::UnsafeCell;
    use std::marker::PhantomData;
    use std::ops::{Deref, DerefMut};

    /// A lock with a place among those of its rank.
    pub(crate) trait Placed {
        fn place(&self) -> usize;
    }

    /// The lock, and what it protects.
    #[repr(C)]
    pub(crate) struct Mutex<T> {
        lock: StoreLock,
        value: UnsafeCell<T>,
    }

    // SAFETY: the value is reached under the lock alone.
    unsafe impl<T: Send> Send for Mutex<T> {}
    // SAFETY: as for `Send`.
    unsafe impl<T: Send> Sync for Mutex<T> {}

    impl<T> Mutex<T> {
        pub(crate) const fn new(value: T) -> Self {
            Mutex { lock: StoreLock::new(), value: UnsafeCell::new(value) }
        }

        #[inline(always)]
        pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
            self.lock.lock(&OfProcess);
            MutexGuard { mutex: self, _of_this_thread: PhantomData }
        }
    }

    /// The right to the value, until the drop, on the thread that took the lock.
    pub(crate) struct MutexGuard<'a, T> {
        mutex: &'a Mutex<T>,
        _of_this_thread: PhantomData<*const ()>,
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;

        #[inline(always)]
        fn deref(&self) -> &T {
            // SAFETY: the guard has the lock.
            unsafe { &*self.mutex.value.get() }
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        #[inline(always)]
        fn deref_mut(&mut self) -> &mut T {
            // SAFETY: the guard has the lock.
            unsafe { &mut *self.mutex.value.get() }
        }
    }

    impl<T> Drop for MutexGuard<'_, T> {
        #[inline(always)]
        fn drop(&mut self) {
            // SAFETY: the guard has the lock, and is dropped.
            unsafe { self.mutex.lock.unlock(&OfProcess) };
        }
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

    /// Calls `f` with the calling thread's ranks. Never inlined: after a switch a goroutine may be on another thread.
    #[cfg(debug_assertions)]
    #[inline(never)]
    pub(crate) fn with_ranks(f: impl FnOnce(&Ranks)) {
        RANKS.with(f);
    }
}

/// std's cell with loom's interface: access through closures, so that loom sees where an access ends.
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
    /// Shared access. The pointer is valid for reads as long as no thread is in `with_mut`.
    #[inline(always)]
    pub(crate) fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }
    /// Exclusive access. The caller guarantees that no other access is under way.
    #[inline(always)]
    pub(crate) fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }
}

/// Keeps the compiler from moving an M's entry into its window past the look at the hand-off word. The machine may
/// still reorder the two: the retaker's `membarrier` prevents that.
#[inline(always)]
pub(crate) fn light_barrier() {
    // SeqCst: EntryBarrier; partner RetakeBarrier.
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
}

/// A full fence for a thread whose last store was a read-modify-write: on x86 that store was a full fence already.
#[inline(always)]
pub(crate) fn fence_after_exchange() {
    // SeqCst, both: the caller says which fence this is, and names its partner.
    #[cfg(target_arch = "x86_64")]
    std::sync::atomic::compiler_fence(Ordering::SeqCst);
    // SeqCst: the caller says which fence this is, and names its partner.
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

/// Returns `true` if `peek` returns the same value again after 3 µs, the time that an owner gets to run a G that it has just
/// put into `runnext` (Go sleeps 3 µs here). `peek` is not called in between, as each call takes the cache line away from the
/// owner.
pub(crate) fn stays_the_same<T: PartialEq>(peek: impl Fn() -> T) -> bool {
    let (start, seen) = (Instant::now(), peek());
    while start.elapsed() < Duration::from_micros(3) {
        std::hint::spin_loop();
    }
    peek() == seen
}

/// Returns `true` if busy Ps help each other by default.
#[inline(always)]
pub(crate) const fn may_help() -> bool {
    true
}

/// The most `pause` instructions between two looks: Go's number.
const MOST_PAUSES: u32 = 30;
/// How long the pause between two looks is at most.
const LONGEST_PAUSE: Duration = Duration::from_nanos(400);

/// How many instructions make a pause on this machine.
static PAUSES: AtomicU32 = AtomicU32::new(MOST_PAUSES);

/// The pause between two looks at a lock or a queue that another thread may change in a moment.
pub(crate) fn pause() {
    // Relaxed: a number, which publishes no other memory.
    for _ in 0..PAUSES.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

/// Settles how long a pause is. The instruction took some 10 cycles on Intel's processors before Skylake, and takes some 140
/// since (Intel's optimization manual), so a fixed number of them would be short on one machine, and longer than a sleep and a
/// wake on another. (.NET measures it for the same reason.) The shortest of a few tries counts, as the kernel may take the core
/// away in between.
pub(crate) fn settle_pause() {
    const TRIES: u32 = 4;
    let try_once = || {
        let start = Instant::now();
        (0..MOST_PAUSES).for_each(|_| std::hint::spin_loop());
        start.elapsed()
    };
    let shortest = (0..TRIES).map(|_| try_once()).min().unwrap_or_default();
    // Relaxed: as in `pause`.
    PAUSES.store(pauses_within(shortest), Ordering::Relaxed);
}

/// Returns how many instructions fit into a pause if `MOST_PAUSES` of them take `all`.
fn pauses_within(all: Duration) -> u32 {
    let fit = u128::from(MOST_PAUSES) * LONGEST_PAUSE.as_nanos() / all.as_nanos().max(1);
    fit.clamp(1, MOST_PAUSES.into()) as u32
}

/// Asks the cache to load the line at `at`, which is read soon. A hint: any address will do.
#[inline(always)]
pub(crate) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads nothing that the program sees, and never faults.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Does the same as `prefetch`, for a line that is written soon: the cache gets the line for itself. Loading it first and
/// claiming it at the write would take two trips to the core that wrote the line last.
#[inline(always)]
pub(crate) fn prefetch_to_write<T>(at: *const T) {
    // SAFETY: as in `prefetch`. A processor that does not know the instruction takes it for a `nop`, except for Intel's first
    // ones with 64 bits, of 2004.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags, readonly));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// One round of waiting for another thread that needs a few more instructions, unless the kernel has preempted that
/// thread.
pub(crate) fn relax() {
    std::thread::yield_now();
}

/// Runs a check of the models in which loom weighs the words of single writers: here, nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails when a pause is as long as many slow instructions, or longer than Go's number of fast ones.
    #[test]
    fn a_pause_is_short_wherever_its_instruction_is_slow() {
        let within = |each: u64| pauses_within(Duration::from_nanos(each * u64::from(MOST_PAUSES)));
        assert_eq!([10, 13, 20, 57, 400, 10_000].map(within), [30, 30, 20, 7, 1, 1]);
        assert_eq!(pauses_within(Duration::ZERO), MOST_PAUSES);
        settle_pause();
        assert!((1..=MOST_PAUSES).contains(&PAUSES.load(Ordering::Relaxed)));
    }
}
