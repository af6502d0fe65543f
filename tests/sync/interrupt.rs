//! A context that is done ends the waits of the goroutines and threads that run under it, and no other waiter suffers.

use crate::support::rounds;
use common::{everywhere, until};
use gmp::JoinHandle;
use gmp::context::{Context, ContextError};
use gmp::sync::{
    Barrier, Condvar, Mutex, Once, RwLock, RwLockUpgradableReadGuard, Semaphore, SingleFlight, WaitGroup,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Makes a goroutine wait by `waits` under a context, and cancels the context: in one round at once, in the other when the
/// goroutine may be parked.
fn canceled<T: Send + Sync + 'static>(rt: &gmp::Runtime, shared: &Arc<T>, waits: fn(&T)) {
    for yields in [0, 50] {
        let (context, cancel) = Context::background().with_cancel();
        let theirs = Arc::clone(shared);
        let waiter: JoinHandle<_> = rt.go(move || context.run(|| waits(&theirs)));
        rt.run(move || (0..yields).for_each(|_| gmp::yield_now()));
        cancel.cancel();
        assert_eq!(waiter.join().unwrap(), Err(ContextError::Canceled));
    }
}

/// Fails by a hang when the wait goes on, or when its place in the queue holds up others; or when the lock is not as it was
/// before.
#[test]
fn locks_are_left_as_they_were() {
    everywhere(|rt| {
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        canceled(&rt, &lock, |lock| *lock.lock() = 1);
        drop(guard);
        assert_eq!(lock.try_lock().map(|value| *value), Some(0));

        let lock = Arc::new(RwLock::new(0));
        let reads = lock.read();
        canceled(&rt, &lock, |lock| *lock.write() = 1);
        assert_eq!(lock.try_read().map(|value| *value), Some(0));
        drop(reads);
        let writes = lock.write();
        canceled(&rt, &lock, |lock| drop(lock.read()));
        canceled(&rt, &lock, |lock| drop(lock.read_recursive()));
        canceled(&rt, &lock, |lock| drop(lock.upgradable_read()));
        drop(writes);
        assert!(lock.try_write().is_some());
        let reads = lock.read();
        // The unwinding drops the upgradable read.
        canceled(&rt, &lock, |lock| drop(RwLockUpgradableReadGuard::upgrade(lock.upgradable_read())));
        assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_some());
        canceled(&rt, &lock, |lock| lock.upgradable_read().with_upgraded(|value| *value = 1));
        assert!(lock.try_read().is_some() && lock.try_upgradable_read().is_some());
        drop(reads);
        assert!(lock.try_write().is_some());

        let permits = Arc::new(Semaphore::new(2));
        permits.acquire(1);
        canceled(&rt, &permits, |permits| permits.acquire(2));
        canceled(&rt, &permits, |permits| permits.acquire(3));
        assert!(permits.try_acquire(1));
    });
}

/// Fails by a hang, when the mutex is not held while the unwinding passes, or when its guard does not unlock.
#[test]
fn a_condition_is_left_with_its_mutex() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new(0), Condvar::new(), AtomicBool::new(false)));
        canceled(&rt, &shared, |(lock, changed, held)| {
            struct Looks<'a>(&'a Mutex<i32>, &'a AtomicBool);
            impl Drop for Looks<'_> {
                fn drop(&mut self) {
                    self.1.store(self.0.is_locked(), SeqCst);
                }
            }
            let mut guard = lock.lock();
            let _looks = Looks(lock, held);
            changed.wait(&mut guard);
        });
        assert!(shared.2.load(SeqCst), "the mutex was not locked again");
        assert!(!shared.0.is_locked() && !shared.1.notify_one());
    });
}

/// Fails by a hang, or by a count that is wrong afterwards.
#[test]
fn counters_are_left_as_they_were() {
    everywhere(|rt| {
        let tasks = Arc::new(WaitGroup::new());
        tasks.add(1);
        canceled(&rt, &tasks, |tasks| tasks.wait());
        tasks.done();
        tasks.wait();

        let barrier = Arc::new(Barrier::new(2));
        canceled(&rt, &barrier, |barrier| assert!(!barrier.wait().is_leader()));
        // The waiter that was canceled does not count.
        let theirs = Arc::clone(&barrier);
        let other = rt.go(move || theirs.wait().is_leader());
        assert_ne!(barrier.wait().is_leader(), other.join().unwrap());

        let once = Arc::new(Once::new());
        canceled(&rt, &once, |once| once.wait());
        once.call_once(|| ());
        once.wait();
    });
}

/// Waiters that come again and again, each under a context that ends soon. Fails by the count when a round opened with a waiter
/// that was unwound. They come so often that the last ones are too few for a round: under a policy that runs all waiters before
/// their cancellers no other is unwound.
#[test]
fn a_round_lets_as_many_go_on_as_it_is_for() {
    const SIZE: usize = 3;
    const WAITERS: usize = 8;
    let visits = rounds(3000) + 1;
    assert_ne!(WAITERS * visits % SIZE, 0, "some are left over");
    everywhere(|rt| {
        let barrier = Arc::new(Barrier::new(SIZE));
        let [leaders, others, canceled] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
        let waiters: Vec<_> = (0..WAITERS)
            .map(|seed| {
                let barrier = Arc::clone(&barrier);
                let (leaders, others, canceled) =
                    (Arc::clone(&leaders), Arc::clone(&others), Arc::clone(&canceled));
                rt.go(move || {
                    for round in 0..visits {
                        let (context, cancel) = Context::background().with_cancel();
                        let spins = (seed * 7 + round * 3) % 40;
                        let canceler = gmp::go(move || {
                            (0..spins * 50).for_each(|_| std::hint::spin_loop());
                            cancel.cancel();
                        });
                        let came_to = match context.run(|| barrier.wait().is_leader()) {
                            Ok(true) => &leaders,
                            Ok(false) => &others,
                            Err(_) => &canceled,
                        };
                        came_to.fetch_add(1, SeqCst);
                        canceler.join().unwrap();
                    }
                })
            })
            .collect();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        let [leaders, others, canceled] = [leaders, others, canceled].map(|count| count.load(SeqCst));
        assert_eq!(others, (SIZE - 1) * leaders, "{leaders} rounds, {canceled} were unwound");
        assert!(leaders > 0 && canceled > 0, "{leaders} rounds, {canceled} were unwound");
    });
}

/// Fails by a hang or a panic when waiters for a call are told that the call was cancelled, instead of working themselves.
#[test]
fn a_canceled_call_is_begun_again_by_a_waiter() {
    everywhere(|rt| {
        let flights = Arc::new(SingleFlight::new());
        let (context, cancel) = Context::background().with_cancel();
        let (theirs, begun) = (Arc::clone(&flights), Arc::new(AtomicBool::new(false)));
        let begins = Arc::clone(&begun);
        let first = rt.go(move || {
            context.run(|| {
                theirs.work(&1, || {
                    begins.store(true, SeqCst);
                    let never = WaitGroup::new();
                    never.add(1);
                    never.wait();
                })
            })
        });
        until(|| begun.load(SeqCst));
        let theirs = Arc::clone(&flights);
        let second = rt.go(move || theirs.work(&1, || ()));
        rt.run(|| (0..20).for_each(|_| gmp::yield_now()));
        cancel.cancel();
        assert_eq!(first.join().unwrap(), Err(ContextError::Canceled));
        assert_eq!(second.join().unwrap().0, ());
    });
}
