//! `sync::raw`: the locks through the traits of `lock_api`, and the types that are built on them.

use crate::support::{cast, count, rounds, with_every_cast};
use common::{dumps, everywhere, until};
use gmp::sync::raw::{RawCondvar, RawFairMutex, RawMutex, RawRwLock};
use gmp::sync::{FairMutex, ReentrantMutex, ReentrantMutexGuard};
use lock_api::{MutexGuard, RawMutexFair, RawMutexTimed, RwLockUpgradableReadGuard, RwLockWriteGuard};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

static CONSTANT: FairMutex<u32> = FairMutex::new(1);
static OWN: gmp::sync::Mutex<u32> = gmp::sync::Mutex::new(1);
static MANY: lock_api::RwLock<RawRwLock, u32> = lock_api::RwLock::new(1);
static AGAIN: ReentrantMutex<Cell<u32>> = ReentrantMutex::new(Cell::new(1));

/// Code that is generic over the traits of `lock_api`, as in other crates.
fn counts<R>(rt: &gmp::Runtime, goroutines: usize, threads: usize)
where
    R: RawMutexFair + RawMutexTimed<Duration = Duration> + Send + Sync + 'static,
{
    let shared = Arc::new(lock_api::Mutex::<R, _>::new(0_usize));
    let theirs = Arc::clone(&shared);
    let got = count(rt, (goroutines, threads), rounds(4_000), move |number, round| {
        let guard = match (round + number) % 4 {
            0 => Some(theirs.lock()),
            1 => theirs.try_lock(),
            _ => theirs.try_lock_for(Duration::from_nanos((round % 3000) as u64)),
        };
        let Some(mut guard) = guard else { return false };
        *guard += 1;
        match round % 64 {
            0 => gmp::yield_now(),
            1 => MutexGuard::bump(&mut guard),
            2 => MutexGuard::unlocked(&mut guard, gmp::yield_now),
            3 => MutexGuard::unlock_fair(guard),
            _ => {}
        }
        true
    });
    assert_eq!(*shared.lock(), got);
    assert!(!shared.is_locked());
}

/// Fails by a wrong sum when two callers have the lock at once, or when a limit gives out a lock that is held; or by a hang.
#[test]
fn generic_code_counts_under_either_mutex() {
    with_every_cast(|rt, goroutines, threads| {
        counts::<RawMutex>(rt, goroutines, threads);
        counts::<RawFairMutex>(rt, goroutines, threads);
    });
}

/// Fails by a value that is seen half written, by the sum, or by a hang.
#[test]
fn generic_code_reads_writes_and_upgrades() {
    with_every_cast(|rt, goroutines, threads| {
        let shared = Arc::new(lock_api::RwLock::<RawRwLock, _>::new((0_usize, 0_usize)));
        let theirs = Arc::clone(&shared);
        let wrote = count(rt, (goroutines, threads), rounds(4_000), move |number, round| {
            let guard = match (round + number) % 5 {
                0 => Some(theirs.write()),
                1 => Some(RwLockUpgradableReadGuard::upgrade(theirs.upgradable_read())),
                2 => theirs.try_write_for(Duration::from_nanos((round % 3000) as u64)),
                3 => RwLockUpgradableReadGuard::try_upgrade_for(theirs.upgradable_read(), MS / 100).ok(),
                _ => {
                    let guard = theirs.read();
                    assert_eq!(guard.0, guard.1);
                    None
                }
            };
            let Some(mut guard) = guard else { return false };
            guard.0 += 1;
            if round % 64 == 0 {
                gmp::yield_now();
            }
            guard.1 += 1;
            match round % 3 {
                0 => drop(RwLockWriteGuard::downgrade(guard)),
                1 => drop(RwLockWriteGuard::downgrade_to_upgradable(guard)),
                _ => drop(guard),
            }
            true
        });
        assert_eq!(*shared.read(), (wrote, wrote));
        assert!(!shared.is_locked());
    });
}

/// Fails to compile when a constructor is not `const`.
#[test]
fn all_of_them_are_made_in_constants() {
    assert_eq!((*CONSTANT.lock(), *OWN.lock(), *MANY.read(), AGAIN.lock().get()), (1, 1, 1, 1));
}

/// Fails by a hang when the holder waits for itself; or by the sum when another goroutine, on the same thread or on one where
/// the holder was before, is taken for the holder.
#[test]
fn the_holder_is_the_goroutine_wherever_it_goes_on() {
    with_every_cast(|rt, goroutines, threads| {
        let shared = Arc::new(ReentrantMutex::new(Cell::new(0_usize)));
        let theirs = Arc::clone(&shared);
        let counted = count(rt, (goroutines, threads), rounds(4_000), move |number, round| {
            let outer = theirs.lock();
            assert!(theirs.is_owned_by_current_thread());
            let before = outer.get();
            if (round + number) % 32 == 0 {
                // The goroutine may go on on another thread.
                gmp::yield_now();
            }
            let inner = match round % 3 {
                0 => theirs.lock(),
                1 => theirs.try_lock().expect("its own"),
                _ => theirs.try_lock_for(MS).expect("its own"),
            };
            drop(outer);
            inner.set(before + 1);
            if round % 64 == 0 {
                gmp::yield_now();
            }
            inner.get() == before + 1
        });
        assert_eq!([shared.lock().get(), counted], [(goroutines + threads) * rounds(4_000); 2]);
        assert!(shared.try_lock_until(Instant::now()).is_some());
    });
}

/// Fails when an inner guard unlocks the whole lock, or when the guard of a part does not unlock.
#[test]
fn the_last_guard_of_a_reentrant_mutex_unlocks() {
    everywhere(|rt| {
        let lock = Arc::new(ReentrantMutex::new((Cell::new(1), 2)));
        let is_free = || {
            let theirs = Arc::clone(&lock);
            rt.go(move || theirs.try_lock().is_some()).join().unwrap()
        };
        let outer = lock.lock();
        let part = ReentrantMutexGuard::map(lock.lock(), |whole| &whole.0);
        drop(outer);
        assert!(!is_free());
        part.set(5);
        drop(part);
        assert!(is_free());
        let owned = lock.lock_arc();
        assert!(!is_free());
        drop(owned);
        assert!(is_free());
        assert_eq!(lock.lock().0.get(), 5);
    });
}

/// Fails by the order when an unlock lets in another waiter than the longest.
#[test]
fn a_fair_mutex_goes_to_the_longest_waiter() {
    everywhere(|rt| {
        let order = Arc::new(FairMutex::new(Vec::new()));
        let guard = order.lock();
        let waiters: Vec<_> = (0..5)
            .map(|number| {
                let theirs = Arc::clone(&order);
                let waiter = rt.go(move || theirs.lock().push(number));
                let id = waiter.id().get();
                until(|| {
                    dumps::read(&rt.dump()).iter().any(|g| g.0 == id && g.1.starts_with("sync.Mutex.Lock"))
                });
                waiter
            })
            .collect();
        drop(guard);
        // The lock was handed over before, and goes from one waiter to the next.
        order.lock().push(5);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(*order.lock(), [0, 1, 2, 3, 4, 5]);
    });
}

/// Fails by a hang or an abort when a wait through `lock_api` is ended from outside, where `unlocked` can't be unwound.
#[test]
fn a_context_does_not_end_the_wait_behind_unlocked() {
    everywhere(|rt| {
        let lock = Arc::new(lock_api::Mutex::<RawMutex, _>::new(0));
        let (theirs, asks) = (Arc::clone(&lock), Arc::new(AtomicUsize::new(0)));
        let asked = Arc::clone(&asks);
        let (context, cancel) = gmp::context::Context::background().with_cancel();
        let waiter = rt.go(move || {
            context.run(|| {
                let mut guard = theirs.lock();
                MutexGuard::unlocked(&mut guard, || {
                    asks.store(1, SeqCst);
                    while asks.load(SeqCst) == 1 {
                        gmp::yield_now();
                    }
                });
                *guard += 1;
            })
        });
        until(|| asked.load(SeqCst) == 1);
        let guard = lock.lock();
        asked.store(2, SeqCst);
        rt.run(|| (0..50).for_each(|_| gmp::yield_now()));
        cancel.cancel();
        rt.run(|| (0..50).for_each(|_| gmp::yield_now()));
        drop(guard);
        let _ended = waiter.join().unwrap();
        assert_eq!(*lock.lock(), 1);
    });
}

/// Fails by a hang when a notification is lost or its count is wrong; when a wait ends for nothing; or when the mutex is not
/// held after a context has ended the wait.
#[test]
fn generic_code_waits_for_a_condition() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(2_000);
        let (stock, changed) =
            (lock_api::Mutex::<RawMutex, _>::new((0_usize, 0_usize)), lock_api::Condvar::<RawCondvar>::new());
        let shared = Arc::new((stock, changed));
        let theirs = Arc::clone(&shared);
        cast(rt, goroutines, threads, move |number| {
            let (stock, changed) = &*theirs;
            for round in 0..rounds {
                if number % 2 == 0 {
                    stock.lock().0 += 1;
                    changed.notify_one();
                    continue;
                }
                let mut guard = stock.lock();
                while guard.0 == 0 {
                    match round % 3 {
                        0 => _ = changed.wait_for(&mut guard, MS),
                        1 => _ = changed.wait_until(&mut guard, Instant::now() + MS),
                        _ => changed.wait(&mut guard),
                    }
                }
                guard.0 -= 1;
                guard.1 += 1;
            }
        });
        assert_eq!(*shared.0.lock(), (0, (goroutines + threads) / 2 * rounds));
        assert_eq!((shared.1.notify_one(), shared.1.notify_all()), (false, 0));
        let theirs = Arc::clone(&shared);
        let (context, cancel) = gmp::context::Context::background().with_cancel();
        let waiter = rt.go(move || context.run(|| theirs.1.wait(&mut theirs.0.lock())));
        cancel.cancel();
        assert!(waiter.join().unwrap().is_err());
        assert!(shared.0.try_lock().is_some() && !shared.1.notify_one());
    });
}
