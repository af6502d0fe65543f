//! A lock that is released by a store: one holder at a time, and no sleeper is forgotten.
//!
//! loom has no barrier that one thread asks for and another passes. Here each thread has a word, which its light barrier
//! exchanges, and a heavy barrier exchanges the words of all threads. So each light barrier comes before or after each heavy
//! one, but a light one is not ordered with other light ones or with fences, as on a machine.
//!
//! *Left out*: the futex; a sleeper waits for a `Condvar` of loom's. *The mutants* take out the barrier, the fences, the wake,
//! and the orderings of the lock.

use super::caught;
use crate::model::{Model, Mutant};
use crate::prim::store_lock::{Buckets, PASSED, StoreLock};
use crate::prim::{AcqRel, AtomicU32};
use loom::cell::UnsafeCell;
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The word of all after a sleeper of another lock has had all threads pass a barrier.
const ANOTHER_SLEEPS: u32 = PASSED | 1;
/// How many threads there are; the first one makes the others.
const THREADS: usize = 3;

/// Two locks, and one bucket for both.
struct Locks {
    all: AtomicU32,
    bucket: AtomicU32,
    barriers: [AtomicU32; THREADS],
    /// No sleeper needs a barrier.
    spared: bool,
    queues: [(Mutex<()>, Condvar); 2],
    locks: [StoreLock; 2],
    /// Changed under the first lock.
    count: UnsafeCell<u32>,
}

// SAFETY: the lock orders the accesses to `count`; loom checks that it does.
unsafe impl Send for Locks {}
// SAFETY: as for `Send`.
unsafe impl Sync for Locks {}

/// The locks, as one of the threads sees them.
#[derive(Clone)]
struct On(Arc<Locks>, usize);

impl Buckets for On {
    fn all(&self) -> &AtomicU32 {
        &self.0.all
    }

    fn bucket(&self, _lock: usize) -> &AtomicU32 {
        &self.0.bucket
    }

    fn light_barrier(&self) {
        // AcqRel: partner `heavy_barrier`.
        self.0.barriers[self.1].fetch_add(1, AcqRel);
    }

    fn heavy_barrier(&self) -> bool {
        assert!(!self.0.spared, "a barrier although another sleeper has had one");
        for passed in &self.0.barriers {
            // AcqRel: partner `light_barrier`.
            passed.fetch_add(1, AcqRel);
        }
        true
    }

    fn spin(&self, _tried: impl FnMut() -> bool) -> bool {
        false
    }

    fn sleep(&self, lock: usize, is_taken: impl Fn() -> bool, _limited: bool) {
        let (queue, woken) = self.queue(lock);
        let queue = queue.lock().unwrap();
        if is_taken() {
            drop(woken.wait(queue).unwrap());
        }
    }

    fn wake_one(&self, lock: usize) {
        let (queue, woken) = self.queue(lock);
        drop(queue.lock().unwrap());
        woken.notify_one();
    }

    fn is_quiet_for_long(&self) -> bool {
        true
    }
}

impl On {
    /// Makes the locks, for the first thread; `all` is the word of all at the beginning.
    fn new(all: u32) -> Self {
        let locks = Locks {
            all: AtomicU32::new(all),
            bucket: AtomicU32::new(0),
            barriers: [(); THREADS].map(|()| AtomicU32::new(0)),
            spared: all == ANOTHER_SLEEPS,
            queues: [(); 2].map(|()| (Mutex::new(()), Condvar::new())),
            locks: [(); 2].map(|()| StoreLock::new()),
            count: UnsafeCell::new(0),
        };
        On(Arc::new(locks), 0)
    }

    fn queue(&self, lock: usize) -> &(Mutex<()>, Condvar) {
        let is_first = lock == std::ptr::from_ref(&self.0.locks[0]).addr();
        &self.0.queues[usize::from(!is_first)]
    }

    fn take(&self, lock: usize) {
        self.0.locks[lock].lock(self);
    }

    /// The caller has the lock.
    fn let_go(&self, lock: usize) {
        // SAFETY: the caller has it.
        unsafe { self.0.locks[lock].unlock(self) };
    }

    fn add(&self) {
        self.take(0);
        self.add_and_let_go();
    }

    /// The caller has the first lock.
    fn add_and_let_go(&self) {
        // SAFETY: under the lock.
        self.0.count.with_mut(|count| unsafe { *count += 1 });
        self.let_go(0);
    }

    fn spawn(&self, thread: usize, f: impl FnOnce(&On) + 'static) -> loom::thread::JoinHandle<()> {
        let theirs = On(Arc::clone(&self.0), thread);
        loom::thread::spawn(move || f(&theirs))
    }

    /// Asserts the sum, and the counts of sleepers, once all threads have released the lock. Unless another sleeper keeps
    /// PASSED there (`spared`), an unlock has taken PASSED back, or no thread has slept.
    fn assert_sum(&self, sum: u32) {
        self.take(0);
        // SAFETY: under the lock.
        assert_eq!(self.0.count.with(|count| unsafe { *count }), sum);
        self.let_go(0);
        let counts = [&self.0.all, &self.0.bucket].map(|count| count.load(Ordering::Relaxed));
        let all = if self.0.spared { ANOTHER_SLEEPS } else { 0 };
        assert_eq!(counts, [all, 0], "a sleeper is counted that is not there, or PASSED is kept");
    }
}

/// Fails by deadlock when a sleeper is forgotten, by a causality violation when two threads have the lock, or a holder does not
/// see what the holder before it has done.
#[test]
fn a_holder_lets_go_while_another_falls_asleep() {
    Model::new().unbounded().check("store_lock", || {
        let locked = On::new(0);
        let other = locked.spawn(1, On::add);
        locked.add();
        other.join().unwrap();
        locked.assert_sum(2);
    });
}

/// As `a_holder_lets_go_while_another_falls_asleep`, while a thread sleeps for a lock of another bucket.
#[test]
fn a_holder_lets_go_while_others_sleep_elsewhere() {
    Model::new().unbounded().check("store_lock_elsewhere", || {
        let locked = On::new(ANOTHER_SLEEPS);
        let other = locked.spawn(1, On::add);
        locked.add();
        other.join().unwrap();
        locked.assert_sum(2);
    });
}

/// A thread sleeps for the second lock until the sleeper of the first lock is done; the sleeper of the first lock may rely on
/// the barrier of the second's. Fails by deadlock when that sleeper does not see what came before the barrier.
#[test]
fn a_sleeper_relies_on_the_barrier_of_another() {
    Model::new().check("store_lock_passed", || {
        let locked = On::new(0);
        locked.take(0);
        locked.take(1);
        let elsewhere = locked.spawn(1, |on| (on.take(1), on.let_go(1)).1);
        let sleeper = locked.spawn(2, On::add);
        locked.add_and_let_go();
        sleeper.join().unwrap();
        locked.let_go(1);
        elsewhere.join().unwrap();
        locked.assert_sum(2);
    });
}

/// Two threads sleep for one lock. Fails by deadlock when one of them is forgotten.
#[test]
fn two_sleepers_are_woken() {
    Model::new().check("store_lock_two", || {
        let locked = On::new(0);
        locked.take(0);
        let others = [1, 2].map(|thread| locked.spawn(thread, On::add));
        locked.add_and_let_go();
        others.into_iter().for_each(|other| other.join().unwrap());
        locked.assert_sum(3);
    });
}

/// PASSED is set, and no thread sleeps. Fails by deadlock or a wrong count when the thread that takes PASSED back forgets a
/// sleeper that has relied on it.
#[test]
fn a_sleeper_comes_as_the_barrier_is_forgotten() {
    Model::new().check("store_lock_quiet", || {
        let locked = On::new(PASSED);
        let others = [1, 2].map(|thread| locked.spawn(thread, On::add));
        locked.add();
        others.into_iter().for_each(|other| other.join().unwrap());
        locked.assert_sum(3);
    });
}

#[test]
fn mutants() {
    const ONE: &str = "a_holder_lets_go_while_another_falls_asleep";
    const ELSEWHERE: &str = "a_holder_lets_go_while_others_sleep_elsewhere";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::StoreLockTakenRelaxed, ONE),
            (Mutant::StoreLockFreedRelaxed, ONE),
            (Mutant::StoreLockFreedRelaxed, "two_sleepers_are_woken"),
            (Mutant::StoreLockWakesNobody, ONE),
            (Mutant::StoreLockSleepsNoBarrier, ONE),
            (Mutant::StoreLockSleepsNoFence, ELSEWHERE),
            (Mutant::StoreLockWakesNoFence, ELSEWHERE),
            (Mutant::StoreLockPassedRelaxed, "a_sleeper_relies_on_the_barrier_of_another"),
            (Mutant::StoreLockForgetsASleeper, "a_sleeper_comes_as_the_barrier_is_forgotten"),
        ],
    );
}
