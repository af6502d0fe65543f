//! A lock that is released by a store.
//!
//! *The problem.* A lock of one word is taken by an exchange, and released by another exchange, because a thread that has to
//! sleep notes that in the same word. Each exchange is a full fence, and the fences are most of the cost of a send into a
//! buffer. But a thread hardly ever sleeps for one of these locks, which are held for some dozen instructions.
//!
//! *Here* a thread that has to sleep counts itself elsewhere, and pays for the fences of all holders, by a barrier that each
//! running thread of the process passes (`membarrier`).
//!
//! ```text
//!   holder                                     sleeper
//!
//!   U1  the word := free                       W1  counts itself, in the lock's bucket and among all
//!   U2  light barrier: no instruction          W2  PASSED stands?  a fence;  else the heavy barrier, PASSED is set
//!   U3  the word of all is zero?  done         W3  tries;  the word is taken?  sleeps in the bucket, until woken;  W3 again
//!   U4  fence                                  W4  counts itself out: PASSED stays
//!   U5  one in this lock's bucket?  wakes one
//!   U6  PASSED alone stands, for long?         U6 is one exchange: of PASSED without a sleeper, for zero
//!       it is taken back
//! ```
//! PASSED says that each thread has passed a barrier since the word of all was last zero. The barriers are those of Goldblatt's
//! *Asymmetric Fences* (WG21 P1202): a heavy barrier is ordered with each light one as a fence with a fence; light barriers are
//! not ordered among each other. The kernel guarantees that for each thread: the kernel interrupts the threads that run, and a
//! thread that does not run passes a full fence in the scheduler before it runs next.
//!
//! * *U2 comes before the heavy barrier*: then W3 sees the word of U1, or of a later holder, which has its own U1. The same
//!   holds for W3 of a sleeper that has found PASSED: by Release and W2's fence, that W3 comes after the barrier.
//! * *The heavy barrier comes before U2*: U3 then reads a word of all that is not zero: W1 of the sleeper that issued the
//!   barrier, or a later value. U6 clears the word only when no sleeper is counted. A sleeper that found PASSED is covered too:
//!   the word has not been zero since that barrier.
//! * *U3 has seen a word that is not zero*, perhaps because of another lock's sleeper: one of the fences U4 and W2 comes first.
//!   So U5 sees W1, or W3 sees U1.
//! * *U5 beside W3*: the sleeper looks at the word and queues itself in one critical section of the bucket, and the waker takes
//!   a sleeper out in another. A sleeper that was woken stays counted until it has the lock.
//!
//! U1 is the last access to the lock: another thread may take the lock, and free its memory. From there on the lock's address
//! is only a number, and all words that are read are statics. If another lock has been made at the same address since, a
//! sleeper for that lock may be woken once too often; it looks at the word again, and sleeps on.
//!
//! *Why U6.* The heavy barrier interrupts each CPU that runs a thread of the process. If the last sleeper took PASSED back, a
//! lock for which a thread sleeps now and then would cause such an interrupt each time. With U6 there is one barrier in so many
//! unlocks, which meanwhile fence, as an exchange does.
//!
//! *If the barrier is refused* (a sandbox, an old kernel, an emulator), REFUSED stays in the word of all for ever: all unlocks
//! fence from the moment when they see it. A holder that has read the word before that may miss a sleeper, so a sleeper sleeps
//! for a millisecond at most, and looks again.
//!
//! *The lock is not fair*: a sleeper that was woken may find the word taken again, as often as others come. The lock is for
//! sections of some dozen instructions, and a thread sleeps for it only if the kernel makes the holder wait.
//!
//! *A fork* copies the registration with the memory. If threads sleep for locks, it copies the counts and the queues, too, with
//! threads that the child does not have: such a child must run another program (`exec`), as with parking_lot's locks.
//!
//! *An allocator* must not use these locks: a wake may allocate, in parking_lot.
//!
//! Checked by `models/store_lock.rs`.

use super::hooks::*;
use super::{Acquire, AtomicBool, AtomicU32, Ordering, Relaxed, Release, fence};

/// In the word of all: each thread has passed a barrier since the word was last zero.
pub(crate) const PASSED: u32 = 1 << 31;
/// In the word of all: the barrier was refused once. The bits below are the number of sleepers, at most that of threads.
const REFUSED: u32 = 1 << 30;

/// The places where threads sleep for locks, and the means of the machine that a lock needs.
pub(crate) trait Buckets {
    /// Returns the word of all: how many threads sleep for any lock, or are about to, with the bits above.
    fn all(&self) -> &AtomicU32;
    /// Returns how many of these are in the bucket of the lock at this address, which other locks share.
    fn bucket(&self, lock: usize) -> &AtomicU32;
    /// U2: keeps the compiler from moving U3 before U1.
    fn light_barrier(&self);
    /// Makes the calling thread pass a full fence, and all other running threads of the process a barrier. Returns `false` if
    /// the barrier is refused.
    fn heavy_barrier(&self) -> bool;
    /// Calls `tried` a few times with pauses in between, until `tried` returns `true`. Returns `false` if it never did.
    fn spin(&self, tried: impl FnMut() -> bool) -> bool;
    /// Sleeps in the bucket if `is_taken` returns `true`, until woken; may return at any time. `is_taken` is called in the
    /// critical section of the bucket. `limited`: for a short while at most.
    fn sleep(&self, lock: usize, is_taken: impl Fn() -> bool, limited: bool);
    /// Wakes a thread that sleeps for this lock, if there is one.
    fn wake_one(&self, lock: usize);
    /// Called by each unlock that finds PASSED alone. Returns `true` once in many calls.
    fn is_quiet_for_long(&self) -> bool;
}

/// The lock, without what it protects.
#[derive(Debug)]
pub(crate) struct StoreLock(AtomicBool);

impl StoreLock {
    super::const_fn! {
        pub(crate) fn new() -> Self {
            StoreLock(AtomicBool::new(false))
        }
    }

    /// Takes the lock; blocks the thread until the lock is free.
    #[inline(always)]
    pub(crate) fn lock(&self, buckets: &impl Buckets) {
        if !self.try_lock() {
            self.lock_slowly(buckets);
        }
    }

    #[inline(always)]
    fn try_lock(&self) -> bool {
        // Acquire: what the last holder did: partner U1.
        let acquire = Acquire.unless(StoreLockTakenRelaxed);
        // Relaxed: a failed try decides nothing.
        self.0.compare_exchange(false, true, acquire, Relaxed).is_ok()
    }

    #[cold]
    #[inline(never)]
    fn lock_slowly(&self, buckets: &impl Buckets) {
        // Relaxed: hints, until the word is found free.
        let free = || !self.0.load(Relaxed) && self.try_lock();
        if buckets.spin(free) {
            return;
        }
        let (lock, all) = (self.at(), buckets.all());
        // W1. Relaxed: ordered by W2.
        buckets.bucket(lock).fetch_add(1, Relaxed);
        // Relaxed: the fence of W2 acquires what PASSED says.
        let passed = all.fetch_add(1, Relaxed) & PASSED != 0;
        // W2.
        let mut limited = false;
        if passed {
            // SeqCst: W1 comes before W3; partner U4. The fence also acquires the barrier that this thread leaves out; partner
            // the Release below.
            fence(Ordering::SeqCst.unless(StoreLockSleepsNoFence));
        } else {
            unless!(StoreLockSleepsNoBarrier, limited = !buckets.heavy_barrier());
            // Release: the barrier, for a sleeper that leaves out its own; partner the fence above.
            all.fetch_or(if limited { REFUSED } else { PASSED }, Release.unless(StoreLockPassedRelaxed));
        }
        // W3.
        while !free() {
            // Relaxed: the critical section of the bucket comes before or after that of a holder that has seen W1.
            buckets.sleep(lock, || self.0.load(Relaxed), limited);
            if buckets.spin(free) {
                break;
            }
        }
        // W4. Relaxed: counts. The release sequence of the exchanges hands on what PASSED says.
        buckets.bucket(lock).fetch_sub(1, Relaxed);
        all.fetch_sub(1, Relaxed);
    }

    /// Lets the lock go.
    ///
    /// # Safety
    /// The caller has the lock. The lock's memory may be gone before the call returns.
    #[inline(always)]
    pub(crate) unsafe fn unlock(&self, buckets: &impl Buckets) {
        let lock = self.at();
        // U1. Release: what the holder did: partner `try_lock`.
        self.0.store(false, Release.unless(StoreLockFreedRelaxed));
        // U2.
        buckets.light_barrier();
        // U3. Relaxed: the barriers order this load.
        if buckets.all().load(Relaxed) != 0 {
            Self::wake_sleeper(lock, buckets);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_sleeper(lock: usize, buckets: &impl Buckets) {
        mutant!(StoreLockWakesNobody: return);
        // U4. SeqCst: U1 comes before U5; partner W2.
        fence(Ordering::SeqCst.unless(StoreLockWakesNoFence));
        // U5. Relaxed: U4 orders this load.
        if buckets.bucket(lock).load(Relaxed) != 0 {
            buckets.wake_one(lock);
        } else if buckets.all().load(Relaxed) == PASSED && buckets.is_quiet_for_long() {
            mutant!(StoreLockForgetsASleeper: { buckets.all().store(0, Relaxed); return });
            // U6. Relaxed: a sleeper that is counted from here on has its own barrier, which orders its W1.
            let _unless_one_came = buckets.all().compare_exchange(PASSED, 0, Relaxed, Relaxed);
        }
    }

    fn at(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
