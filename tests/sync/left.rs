//! What a runtime leaves behind in a wait queue does not hold up the waiters of another runtime.

use common::bolt::bolted;
use common::{PROCS, runtime, until, watched};
use gmp::Runtime;
use gmp::sync::{Barrier, Mutex, Once, RwLock, RwLockUpgradableReadGuard, Semaphore, SingleFlight};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Has three goroutines of a runtime stand in line by `waits`, and ends that runtime when `then` is over. Gives another.
fn leave_behind(
    procs: usize,
    waits: impl Fn() + Send + Sync + Clone + 'static,
    then: impl FnOnce(),
) -> Runtime {
    let (first, came) = (runtime(procs), Arc::new(AtomicUsize::new(0)));
    for _ in 0..3 {
        let (waits, came) = (waits.clone(), Arc::clone(&came));
        drop(first.go(move || {
            came.fetch_add(1, SeqCst);
            bolted(waits);
        }));
    }
    until(|| came.load(SeqCst) == 3);
    first.run(|| (0..100).for_each(|_| gmp::yield_now()));
    then();
    first.shutdown(Duration::from_secs(5));
    runtime(procs)
}

/// Fails by a hang: the lock is handed to one who will never take it.
#[test]
fn a_mutex_goes_to_those_who_run() {
    for procs in PROCS {
        watched(procs, || {
            let lock = Arc::new(Mutex::new(0));
            let guard = lock.lock();
            let theirs = Arc::clone(&lock);
            let rt = leave_behind(procs, move || *theirs.lock() += 1, || ());
            let theirs = Arc::clone(&lock);
            let other = rt.go(move || *theirs.lock());
            rt.run(gmp::yield_now);
            drop(guard);
            assert_eq!(other.join().unwrap(), 0);
            assert_eq!(*lock.lock(), 0);
        });
    }
}

/// Fails by a hang: readers wait behind a writer that will never write.
#[test]
fn readers_go_on_behind_a_writer_that_is_left() {
    for procs in PROCS {
        watched(procs, || {
            let lock = Arc::new(RwLock::new(0));
            let reads = lock.read();
            let theirs = Arc::clone(&lock);
            let rt = leave_behind(procs, move || *theirs.write() += 1, || ());
            let theirs = Arc::clone(&lock);
            assert_eq!(rt.go(move || *theirs.read()).join().unwrap(), 0);
            assert_eq!(*lock.read(), 0);
            drop(reads);
            assert_eq!(*lock.write(), 0);
        });
    }
}

/// Fails by a hang: readers wait behind an upgrade that never comes, or for a read that was granted to nobody. The upgradable
/// read itself stays with its goroutine, as any guard.
#[test]
fn readers_go_on_behind_an_upgrade_that_is_left() {
    for procs in PROCS {
        watched(procs, || {
            let lock = Arc::new(RwLock::new(0));
            let reads = lock.read();
            let theirs = Arc::clone(&lock);
            let upgrades = move || match theirs.try_upgradable_read() {
                Some(looks) => *RwLockUpgradableReadGuard::upgrade(looks) += 1,
                None => drop(theirs.upgradable_read()),
            };
            let rt = leave_behind(procs, upgrades, || ());
            let theirs = Arc::clone(&lock);
            assert_eq!(rt.go(move || *theirs.read()).join().unwrap(), 0);
            drop(reads);
            assert_eq!(*lock.read(), 0);
            assert!(lock.try_write().is_none() && lock.try_upgradable_read().is_none());
        });
    }
}

/// Fails by a hang: a large request that will never be taken holds back a small one, which was there before the end.
#[test]
fn a_large_request_that_is_left_holds_nobody_back() {
    for procs in PROCS {
        watched(procs, || {
            let permits = Arc::new(Semaphore::new(2));
            permits.acquire(1);
            let second = runtime(procs);
            let mut small = None;
            let (large, waiting) = (Arc::clone(&permits), |count: usize| {
                until(|| format!("{permits:?}").contains(&format!("waiting: {count}")));
            });
            let _third = leave_behind(
                procs,
                move || large.acquire(2),
                || {
                    waiting(3);
                    let permits = Arc::clone(&permits);
                    small = Some(second.go(move || permits.acquire(1)));
                    waiting(4);
                },
            );
            small.unwrap().join().unwrap();
            assert!(!permits.try_acquire(1));
        });
    }
}

/// Fails by a hang: those who were left count, and the round opens for one, or in pairs of which one never comes.
#[test]
fn who_is_left_at_a_barrier_does_not_count() {
    for procs in PROCS {
        watched(procs, || {
            let barrier = Arc::new(Barrier::new(4));
            let theirs = Arc::clone(&barrier);
            let rt = leave_behind(procs, move || _ = theirs.wait(), || ());
            let others = [(); 3].map(|()| {
                let theirs = Arc::clone(&barrier);
                rt.go(move || usize::from(theirs.wait().is_leader()))
            });
            let mut leaders = usize::from(barrier.wait().is_leader());
            leaders += others.map(|other| other.join().unwrap()).iter().sum::<usize>();
            assert_eq!(leaders, 1);
        });
    }
}

/// Does what waits for ever, in a goroutine that is left behind.
fn forever() {
    gmp::time::sleep(Duration::from_secs(3600));
}

/// Fails by a hang: a closure that will never end counts as one that runs.
#[test]
fn a_closure_that_is_left_poisons_its_once() {
    for procs in PROCS {
        watched(procs, || {
            let once = Arc::new(Once::new());
            let (theirs, waits) = (Arc::clone(&once), Arc::clone(&once));
            let mut waiter = None;
            let second = runtime(procs);
            let starts = || {
                waiter = Some(second.go(move || waits.call_once(|| unreachable!("another one runs"))));
                second.run(|| (0..100).for_each(|_| gmp::yield_now()));
            };
            let rt = leave_behind(procs, move || theirs.call_once(forever), starts);
            assert!(waiter.unwrap().join().unwrap_err().is_panic());
            assert!(catch_unwind(AssertUnwindSafe(|| once.call_once(|| ()))).is_err());
            assert!(catch_unwind(AssertUnwindSafe(|| once.wait())).is_err());
            rt.run(move || once.call_once_force(|state| assert!(state.is_poisoned())));
        });
    }
}

/// Fails by a hang: the callers wait for one that will never have a value.
#[test]
fn a_call_that_is_left_is_made_by_the_next_caller() {
    for procs in PROCS {
        watched(procs, || {
            let flight = Arc::new(SingleFlight::new());
            let (theirs, waits) = (Arc::clone(&flight), Arc::clone(&flight));
            let mut waiter = None;
            let second = runtime(procs);
            let starts = || {
                waiter = Some(second.go(move || waits.work(&1, || 2).0));
                second.run(|| (0..100).for_each(|_| gmp::yield_now()));
            };
            let leaves = move || {
                theirs.work(&1, || {
                    forever();
                    3
                });
            };
            let rt = leave_behind(procs, leaves, starts);
            assert_eq!(waiter.unwrap().join().unwrap(), 2);
            assert_eq!(flight.work(&1, || 4), (4, false));
            assert_eq!(rt.run(move || flight.work(&1, || 5)), (5, false));
        });
    }
}
