//! A lock that is let go by a store.
//!
//! *The problem.* A lock of one word is taken by an exchange. It is let go by another, as a thread that has to sleep notes that
//! in the same word. Each exchange is a full fence, and the fences are most of what a send into a buffer takes. But hardly ever
//! does a thread sleep for one of these locks, which are held for some dozen instructions.
//!
//! *Here* a thread that has to sleep counts itself elsewhere, and pays for the fences of all holders: by a barrier that each
//! running thread of the process passes (`membarrier`).
//!
//! ```text
//!   holder                                     sleeper
//!
//!   U1  the word := free                       W1  counts itself, in the lock's bed and among all
//!   U2  light barrier: no instruction          W2  PASSED stands?  a fence;  else the heavy barrier, PASSED is set
//!   U3  the word of all is zero?  done         W3  tries;  the word is taken?  sleeps in the bed, until woken;  W3 again
//!   U4  fence                                  W4  counts itself out: PASSED stays
//!   U5  one in this lock's bed?  wakes one
//!   U6  PASSED alone stands, for long?         U6 is one exchange: of PASSED without a sleeper, for zero
//!       it is taken back
//! ```
//! PASSED says that each thread has passed a barrier since the word of all was zero last. The barriers are those of Goldblatt's
//! *Asymmetric Fences* (WG21 P1202): the heavy one is ordered with each light one as a fence with a fence; light ones are not
//! ordered among each other. The kernel keeps that for each thread: it interrupts those that run, and those that do not have
//! passed a full fence in the scheduler when they run next.
//!
//! * *U2 comes before the heavy barrier*: then W3 sees the word of U1, or of a later holder, which has its own U1. So does W3
//!   of a sleeper that has found PASSED, which comes after that barrier, by Release and W2's fence.
//! * *The heavy barrier comes before U2*: U3 then reads a word of all that is not zero: W1 of the sleeper that issued the
//!   barrier, or a later value. U6 clears the word only when no sleeper is counted. A sleeper that found PASSED is covered too:
//!   the word has not been zero since that barrier.
//! * *U3 has seen a word that is not zero*, perhaps for another lock's sleeper: of the fences U4 and W2 one comes first. So U5
//!   sees W1, or W3 sees U1.
//! * *U5 beside W3*: the sleeper looks at the word and lies down in one critical section of the bed, and the waker takes one
//!   out in another. A sleeper that was woken is counted until it has the lock.
//!
//! U1 is the last access to the lock: another thread may take the lock, and free its memory. From there on its address is a
//! number, and what is read lies in statics. A lock that was made at the same address since has a sleeper woken once too often,
//! which looks at the word again, and sleeps on.
//!
//! *Why U6.* The heavy barrier interrupts each CPU that runs a thread of the process. If the last sleeper took PASSED along, a
//! lock for which a thread sleeps now and then would have all CPUs interrupted as often. As it is there is one barrier in so
//! many unlocks, which meanwhile fence, as an exchange does.
//!
//! *Where the barrier is refused* (a sandbox, an old kernel, an emulator), REFUSED stands in the word of all for ever: all
//! unlocks fence from the moment when they see it. A holder that has read the word before that may miss a sleeper, so one
//! sleeps for a millisecond at most, and looks again.
//!
//! *The lock is not fair*: a sleeper that was woken may find the word taken again, as often as others come. It is for sections
//! of some dozen instructions, and a thread sleeps for one only if the kernel has the holder wait.
//!
//! *A fork* copies the registration with the memory. Of a process whose threads sleep for locks it copies the counts and the
//! queues, too, with threads that the child does not have: such a child has to run another program (`exec`), as it has to
//! with parking_lot's locks.
//!
//! *An allocator* must not use these locks: a wake may allocate, in parking_lot.
//!
//! Checked by `models/store_lock.rs`.

use super::hooks::*;
use super::{Acquire, AtomicBool, AtomicU32, Ordering, Relaxed, Release, fence};

/// In the word of all: each thread has passed a barrier since the word was zero last.
pub(crate) const PASSED: u32 = 1 << 31;
/// In the word of all: the barrier was refused once. The bits below are the number of sleepers, at most that of threads.
const REFUSED: u32 = 1 << 30;

/// Where threads sleep for locks; what a lock asks the machine for.
pub(crate) trait Beds {
    /// How many threads sleep for any lock, or are about to, with the bits above.
    fn all(&self) -> &AtomicU32;
    /// How many of these lie in the bed of the lock at this address, which is that of other locks, too.
    fn bed(&self, lock: usize) -> &AtomicU32;
    /// U2: keeps the compiler from moving U3 before U1.
    fn light_barrier(&self);
    /// Has the calling thread pass a full fence, and all other running threads of the process a barrier. Returns `false` if the
    /// latter is refused.
    fn heavy_barrier(&self) -> bool;
    /// Calls `tried` a few times with pauses in between, until it returns `true`. Returns `false` if it never did.
    fn spin(&self, tried: impl FnMut() -> bool) -> bool;
    /// Sleeps in the bed if `is_taken`, until woken; may return at any time. `is_taken` is asked in the critical section of the
    /// bed. `limited`: for a short while at most.
    fn sleep(&self, lock: usize, is_taken: impl Fn() -> bool, limited: bool);
    /// Wakes a thread that sleeps for this lock, if there is one.
    fn wake_one(&self, lock: usize);
    /// Called by each unlock beside PASSED alone. Returns `true` once in many calls.
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

    /// Takes the lock; blocks the thread until then.
    #[inline(always)]
    pub(crate) fn lock(&self, beds: &impl Beds) {
        if !self.try_lock() {
            self.lock_slowly(beds);
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
    fn lock_slowly(&self, beds: &impl Beds) {
        // Relaxed: hints, until the word is found free.
        let free = || !self.0.load(Relaxed) && self.try_lock();
        if beds.spin(free) {
            return;
        }
        let (lock, all) = (self.at(), beds.all());
        // W1. Relaxed: ordered by W2.
        beds.bed(lock).fetch_add(1, Relaxed);
        // Relaxed: what PASSED says is acquired by the fence of W2.
        let passed = all.fetch_add(1, Relaxed) & PASSED != 0;
        // W2.
        let mut limited = false;
        if passed {
            // SeqCst: W1 comes before W3; partner U4. It acquires the barrier that is left out; partner the Release below.
            fence(Ordering::SeqCst.unless(StoreLockSleepsNoFence));
        } else {
            unless!(StoreLockSleepsNoBarrier, limited = !beds.heavy_barrier());
            // Release: the barrier, for a sleeper that leaves out its own: partner the fence above.
            all.fetch_or(if limited { REFUSED } else { PASSED }, Release.unless(StoreLockPassedRelaxed));
        }
        // W3.
        while !free() {
            // Relaxed: the section of the bed comes before or after that of a holder that has seen W1.
            beds.sleep(lock, || self.0.load(Relaxed), limited);
            if beds.spin(free) {
                break;
            }
        }
        // W4. Relaxed: counts. What PASSED says is handed on by the exchanges' release sequence.
        beds.bed(lock).fetch_sub(1, Relaxed);
        all.fetch_sub(1, Relaxed);
    }

    /// Lets the lock go.
    ///
    /// # Safety
    /// The caller has the lock. The lock's memory may be gone before the call returns.
    #[inline(always)]
    pub(crate) unsafe fn unlock(&self, beds: &impl Beds) {
        let lock = self.at();
        // U1. Release: what the holder did: partner `try_lock`.
        self.0.store(false, Release.unless(StoreLockFreedRelaxed));
        // U2.
        beds.light_barrier();
        // U3. Relaxed: by the barriers.
        if beds.all().load(Relaxed) != 0 {
            Self::wake_sleeper(lock, beds);
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_sleeper(lock: usize, beds: &impl Beds) {
        mutant!(StoreLockWakesNobody: return);
        // U4. SeqCst: U1 comes before U5; partner W2.
        fence(Ordering::SeqCst.unless(StoreLockWakesNoFence));
        // U5. Relaxed: by U4.
        if beds.bed(lock).load(Relaxed) != 0 {
            beds.wake_one(lock);
        } else if beds.all().load(Relaxed) == PASSED && beds.is_quiet_for_long() {
            mutant!(StoreLockForgetsASleeper: { beds.all().store(0, Relaxed); return });
            // U6. Relaxed: a sleeper that is counted from here on has its own barrier, which orders its W1.
            let _unless_one_came = beds.all().compare_exchange(PASSED, 0, Relaxed, Relaxed);
        }
    }

    fn at(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}
