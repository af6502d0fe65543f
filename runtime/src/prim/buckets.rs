//! The buckets of a process: the counts of `store_lock.rs`, and the queues of parking_lot, in which threads sleep.

use super::store_lock::Buckets;
use super::{AtomicU32, CachePadded, Ordering};
use crate::host::native::pass_by_all;
use parking_lot_core::{DEFAULT_UNPARK_TOKEN, FilterOp, ParkToken, SpinWait};
use std::cell::Cell;
use std::sync::atomic::compiler_fence;
use std::time::{Duration, Instant};

const BUCKETS: usize = 64;
/// How long a sleeper sleeps if the barrier is refused.
const LIMIT: Duration = Duration::from_millis(1);
/// After so many unlocks of one thread that have found no sleeper, PASSED is taken back; until then they fence. A small number:
/// with 4096, nearly all unlocks of a lock for which two cores contend fenced.
const QUIET: u32 = 16;

/// Read by each unlock, so alone in its line.
static ALL: CachePadded<AtomicU32> = CachePadded::new(AtomicU32::new(0));
static COUNTS: CachePadded<[AtomicU32; BUCKETS]> = CachePadded::new([const { AtomicU32::new(0) }; BUCKETS]);

thread_local! {
    /// How often this thread has found a lock taken.
    static CONTENTIONS: Cell<u32> = const { Cell::new(0) };
    /// How many unlocks of this thread have found no sleeper while PASSED stood. A count of each thread, as a count of all
    /// threads would be a cache line that all write.
    static QUIET_UNLOCKS: Cell<u32> = const { Cell::new(0) };
}

/// The buckets of this process.
#[derive(Copy, Clone, Debug)]
pub(crate) struct OfProcess;

/// Notes that the calling thread has found a lock taken. Never inlined: after a switch a goroutine may be on another thread.
#[inline(never)]
pub(crate) fn note_contention() {
    CONTENTIONS.set(CONTENTIONS.get().wrapping_add(1));
}

/// Returns how often the calling thread has found a lock taken. Wraps around.
#[inline(never)]
pub(crate) fn contentions() -> u32 {
    CONTENTIONS.get()
}

/// Returns the key of the parking_lot queue for the lock: the address of a count, which no other user has. By the time of the
/// wake the address of the lock itself may be that of a mutex of the program's.
fn queue(lock: usize) -> usize {
    std::ptr::from_ref(OfProcess.bucket(lock)).addr()
}

impl Buckets for OfProcess {
    #[inline(always)]
    fn all(&self) -> &AtomicU32 {
        &ALL
    }

    fn bucket(&self, lock: usize) -> &AtomicU32 {
        // Fibonacci's hash: the high bits of the product depend on all bits of the address.
        const BITS: u32 = BUCKETS.trailing_zeros();
        let hash = (lock as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (u64::BITS - BITS);
        &COUNTS[hash as usize]
    }

    #[inline(always)]
    fn light_barrier(&self) {
        // SeqCst: the compiler alone; partner the heavy barrier.
        compiler_fence(Ordering::SeqCst);
    }

    fn heavy_barrier(&self) -> bool {
        pass_by_all()
    }

    fn spin(&self, mut tried: impl FnMut() -> bool) -> bool {
        note_contention();
        let mut spin = SpinWait::new();
        while spin.spin() {
            if tried() {
                return true;
            }
        }
        false
    }

    fn sleep(&self, lock: usize, is_taken: impl Fn() -> bool, limited: bool) {
        let until = limited.then(|| Instant::now() + LIMIT);
        // SAFETY: the key is an address of this module; the functions neither panic nor call parking_lot.
        let _woken = unsafe {
            parking_lot_core::park(queue(lock), is_taken, || (), |_, _| (), ParkToken(lock), until)
        };
    }

    fn wake_one(&self, lock: usize) {
        let mut woken = false;
        let of_this_lock = |sleeper: ParkToken| match sleeper {
            _ if woken => FilterOp::Stop,
            ParkToken(its) if its == lock => {
                woken = true;
                FilterOp::Unpark
            }
            _ => FilterOp::Skip,
        };
        // SAFETY: as in `sleep`.
        unsafe { parking_lot_core::unpark_filter(queue(lock), of_this_lock, |_| DEFAULT_UNPARK_TOKEN) };
    }

    #[inline(never)]
    fn is_quiet_for_long(&self) -> bool {
        let unlocks = QUIET_UNLOCKS.get().wrapping_add(1);
        QUIET_UNLOCKS.set(unlocks);
        unlocks.is_multiple_of(QUIET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prim::Relaxed;
    use crate::prim::store_lock::StoreLock;
    use std::cell::UnsafeCell;
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread;

    const THREADS: usize = 16;
    const SECTIONS: usize = 2_000;

    /// Locks with counts of their own, so that what a test sees of sleepers are its own.
    struct Fight {
        all: AtomicU32,
        counts: [AtomicU32; BUCKETS],
        refuses: bool,
        fighters: AtomicU32,
        locks: Vec<StoreLock>,
        /// Changed under the first lock.
        sum: UnsafeCell<usize>,
    }

    // SAFETY: the lock orders the accesses to `sum`, which is what the tests check.
    unsafe impl Sync for Fight {}
    // SAFETY: as for `Sync`.
    unsafe impl Send for Fight {}

    impl Buckets for Fight {
        fn all(&self) -> &AtomicU32 {
            &self.all
        }
        fn bucket(&self, lock: usize) -> &AtomicU32 {
            &self.counts[(queue(lock) - queue(0)) / size_of::<AtomicU32>()]
        }
        fn light_barrier(&self) {
            OfProcess.light_barrier();
        }
        fn heavy_barrier(&self) -> bool {
            OfProcess.heavy_barrier() && !self.refuses
        }
        fn spin(&self, tried: impl FnMut() -> bool) -> bool {
            OfProcess.spin(tried)
        }
        fn sleep(&self, lock: usize, is_taken: impl Fn() -> bool, limited: bool) {
            OfProcess.sleep(lock, is_taken, limited);
        }
        fn wake_one(&self, lock: usize) {
            OfProcess.wake_one(lock);
        }
        fn is_quiet_for_long(&self) -> bool {
            OfProcess.is_quiet_for_long()
        }
    }

    impl Fight {
        fn new(locks: usize, refuses: bool) -> Arc<Self> {
            Arc::new(Fight {
                all: AtomicU32::new(0),
                counts: [const { AtomicU32::new(0) }; BUCKETS],
                refuses,
                fighters: AtomicU32::new(0),
                locks: (0..locks).map(|_| StoreLock::new()).collect(),
                sum: UnsafeCell::new(0),
            })
        }

        fn sleepers(&self) -> u32 {
            self.counts.iter().map(|count| count.load(Relaxed)).sum()
        }

        /// Calls `f` on so many threads, and returns when all are through. Panics after a minute.
        fn on_threads(self: &Arc<Self>, threads: usize, f: impl Fn(&Fight, usize) + Copy + Send + 'static) {
            let (ends, ended) = channel();
            self.fighters.store(threads as u32, Relaxed);
            for nth in 0..threads {
                let (fight, ends) = (Arc::clone(self), ends.clone());
                thread::spawn(move || {
                    f(&fight, nth);
                    fight.fighters.fetch_sub(1, Relaxed);
                    ends.send(()).unwrap();
                });
            }
            for _ in 0..threads {
                let asleep = || format!("{} of {threads} are asleep", self.sleepers());
                ended.recv_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("{}", asleep()));
            }
        }

        /// Now and then a holder waits until another thread is about to sleep, or is the last one.
        fn fight(self: &Arc<Self>) {
            self.on_threads(THREADS, |fight, nth| {
                let lock = &fight.locks[0];
                for section in 0..SECTIONS {
                    lock.lock(fight);
                    // SAFETY: under the lock.
                    unsafe { *fight.sum.get() += 1 };
                    let waits = section % 64 == nth;
                    while waits && fight.sleepers() == 0 && fight.fighters.load(Relaxed) > 1 {
                        thread::yield_now();
                    }
                    // SAFETY: taken above.
                    unsafe { lock.unlock(fight) };
                }
            });
            // SAFETY: the threads are through, as the channel says.
            assert_eq!(unsafe { *self.sum.get() }, THREADS * SECTIONS);
            assert_eq!(self.sleepers(), 0, "a sleeper is counted that is not there");
        }
    }

    /// Fails after a minute where a sleeper is forgotten; fails where two threads have the lock, or where unlocks go on to
    /// fence long after the last sleeper.
    #[test]
    fn threads_that_sleep_for_a_lock_get_it() {
        let fight = Fight::new(1, false);
        fight.fight();
        let unlocks = (0..100 * QUIET).take_while(|_| {
            fight.locks[0].lock(&*fight);
            // SAFETY: just taken.
            unsafe { fight.locks[0].unlock(&*fight) };
            fight.all.load(Relaxed) != 0
        });
        assert!(unlocks.count() < 100 * QUIET as usize);
    }

    /// Fails if a thread that finds a lock taken does not count that, or if a thread counts a lock that is free.
    #[test]
    fn the_thread_that_finds_a_lock_taken_counts_it() {
        let fight = Fight::new(1, false);
        let lock = &fight.locks[0];
        let counted = contentions();
        lock.lock(&*fight);
        assert_eq!(contentions(), counted);
        thread::scope(|scope| {
            let finder = scope.spawn(|| {
                let counted = contentions();
                lock.lock(&*fight);
                // SAFETY: just taken.
                unsafe { lock.unlock(&*fight) };
                contentions() - counted
            });
            while fight.sleepers() == 0 {
                thread::yield_now();
            }
            // SAFETY: taken above.
            unsafe { lock.unlock(&*fight) };
            assert!(finder.join().unwrap() > 0);
        });
        assert_eq!(contentions(), counted);
    }

    /// Does the same as `threads_that_sleep_for_a_lock_get_it`, where the kernel refuses the barrier.
    #[test]
    fn a_refused_barrier_is_replaced() {
        let fight = Fight::new(1, true);
        fight.fight();
        assert_ne!(fight.all.load(Relaxed), 0, "the unlocks no longer fence");
    }

    /// More locks than buckets, and a sleeper for each. Fails after a minute where a thread is woken for another one's lock in
    /// its place.
    #[test]
    fn locks_that_share_a_bed_have_their_own_sleepers() {
        const LOCKS: usize = 2 * BUCKETS + 1;
        let fight = Fight::new(LOCKS, false);
        fight.locks.iter().for_each(|lock| lock.lock(&*fight));
        fight.on_threads(LOCKS + 1, |fight, nth| match fight.locks.get(nth) {
            Some(lock) => {
                lock.lock(fight);
                // SAFETY: just taken.
                unsafe { lock.unlock(fight) };
            }
            None => {
                while fight.sleepers() < LOCKS as u32 {
                    thread::yield_now();
                }
                // SAFETY: the test has taken them; no thread can have another one's.
                fight.locks.iter().for_each(|lock| unsafe { lock.unlock(fight) });
            }
        });
        assert_eq!(fight.sleepers(), 0);
    }
}
