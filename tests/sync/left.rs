//! Goroutines that a runtime leaves behind in a wait queue do not hold up the waiters of another runtime.

use common::bolt::bolted;
use common::crew::Member;
use common::{PROCS, child, runtime, until, watched};
use gmp::Runtime;
use gmp::sync::{Barrier, Event, Mutex, Once, RwLock, RwLockUpgradableReadGuard, Semaphore, SingleFlight};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;

/// Queues three goroutines of a runtime by `waits`, calls `then`, and ends that runtime. Returns another runtime.
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

/// Fails by a hang when the lock is handed to a goroutine that will never take it.
#[test]
fn a_mutex_goes_to_waiters_that_run() {
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

/// Fails by a hang when readers wait behind a writer that will never write.
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

/// Fails by a hang when readers wait behind an upgrade that never comes, or for a read that was granted to a goroutine that is
/// left behind. The upgradable read itself stays with its goroutine, like any guard.
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

/// Fails by a hang when a large request that will never be met holds back a small one that was queued before the end.
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

/// Fails by a hang when goroutines that were left behind count: the round then opens for one waiter, or for pairs of which one
/// never comes.
#[test]
fn a_goroutine_that_is_left_at_a_barrier_does_not_count() {
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

/// The goroutine that is notified first is queued, and its runtime ends, with a limit of zero, before the goroutine has run;
/// should it run, it passes the notification on itself. Fails by a hang when the notification is lost with that goroutine, and
/// the next one goes on waiting.
#[test]
fn a_notification_for_a_left_waiter_goes_to_the_next() {
    for procs in PROCS {
        watched(procs, || {
            let event = Arc::new(Event::new());
            let waiting =
                |count: usize| until(|| format!("{event:?}").contains(&format!("waiting: {count}")));
            let (first, second) = (runtime(procs), runtime(procs));
            let (theirs, next) = (Arc::clone(&event), Arc::clone(&event));
            drop(first.go(move || {
                bolted(|| theirs.wait());
                theirs.notify_one();
            }));
            waiting(1);
            let next = second.go(move || next.wait());
            waiting(2);
            // These goroutines keep every P.
            let (kept, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            for _ in 0..procs {
                let (kept, over) = (Arc::clone(&kept), Arc::clone(&over));
                drop(first.go(move || {
                    kept.fetch_add(1, SeqCst);
                    while !over.load(SeqCst) {
                        std::thread::yield_now();
                    }
                }));
            }
            until(|| kept.load(SeqCst) == procs);
            event.notify_one();
            first.shutdown(Duration::ZERO);
            next.join().unwrap();
            over.store(true, SeqCst);
        });
    }
}

/// Goroutines of a runtime that ends are granted permits, some of which the program gives back twice. Fails by a panic out of
/// the end, or by the count where the goroutines that come after it keep theirs.
#[test]
fn permits_that_were_released_twice_do_not_disturb_an_end() {
    child::without_retakes("permits_that_were_released_twice_do_not_disturb_an_end", || {
        watched(1, || {
            let (first, over) = (runtime(1), Arc::new(AtomicBool::new(false)));
            let each: Vec<_> = (0..5).map(|_| Arc::new(Semaphore::new(1))).collect();
            for permits in &each {
                permits.acquire(1);
                let theirs = Arc::clone(permits);
                drop(first.go(move || theirs.acquire(1)));
                until(|| format!("{permits:?}").contains("waiting: 1"));
            }
            // This goroutine keeps the P.
            let (kept, ends) = (Arc::new(AtomicBool::new(false)), Arc::clone(&over));
            let keeps = Arc::clone(&kept);
            drop(first.go(move || {
                keeps.store(true, SeqCst);
                while !ends.load(SeqCst) {
                    std::thread::yield_now();
                }
            }));
            until(|| kept.load(SeqCst));
            for (at, permits) in each.iter().enumerate() {
                permits.release(1);
                if at % 2 == 0 {
                    permits.release(1);
                }
            }
            first.shutdown(Duration::ZERO);
            assert!(each.iter().all(|permits| permits.available_permits() == 1));
            over.store(true, SeqCst);
        });
    });
}

/// A waker that records the thread on which it was called.
#[derive(Default)]
struct Tells(OnceLock<ThreadId>);

impl Wake for Tells {
    fn wake(self: Arc<Self>) {
        self.0.set(std::thread::current().id()).expect("woken once");
    }
}

/// A task waits behind a goroutine of a runtime. The goroutine is notified, and queued, and the caller ends that runtime before
/// the goroutine has run. Fails when the caller calls the task's waker, which may wait for the caller.
fn wakes_the_task_elsewhere<F: Future>(
    waits: impl FnOnce() + Send + 'static,
    task: F,
    notifies: impl FnOnce(),
    waiting: impl Fn(usize) -> bool,
) {
    let first = runtime(1);
    drop(first.go(waits));
    until(|| waiting(1));
    let tells = Arc::new(Tells::default());
    let mut task = pin!(task);
    let polled = task.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&tells))));
    assert!(polled.is_pending() && waiting(2));
    // This goroutine keeps the P.
    let (kept, over) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (keeps, ends) = (Arc::clone(&kept), Arc::clone(&over));
    drop(first.go(move || {
        keeps.store(true, SeqCst);
        while !ends.load(SeqCst) {
            std::thread::yield_now();
        }
    }));
    until(|| kept.load(SeqCst));
    notifies();
    first.shutdown(Duration::ZERO);
    over.store(true, SeqCst);
    until(|| tells.0.get().is_some());
    assert_ne!(tells.0.get(), Some(&std::thread::current().id()));
}

#[test]
fn the_ender_of_a_runtime_calls_no_waker_for_an_event() {
    watched(1, || {
        let event = Arc::new(Event::new());
        let theirs = Arc::clone(&event);
        let waiting = |count: usize| format!("{event:?}").contains(&format!("waiting: {count}"));
        let waits = move || theirs.wait();
        wakes_the_task_elsewhere(waits, event.wait_async(), || event.notify_one(), waiting);
    });
}

#[test]
fn the_ender_of_a_runtime_calls_no_waker_for_a_permit() {
    watched(1, || {
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        let waiting = |count: usize| format!("{permits:?}").contains(&format!("waiting: {count}"));
        let (waits, task) = (move || theirs.acquire(1), permits.acquire_async(1));
        wakes_the_task_elsewhere(waits, task, || permits.release(1), waiting);
    });
}

/// Fails as `wakes_the_task_elsewhere`, for a task that waits for the end of a closure.
#[test]
fn who_ends_a_runtime_calls_no_waker_for_a_once() {
    watched(1, || {
        let (cell, rt) = (Arc::new(gmp::sync::OnceLock::new()), runtime(1));
        let theirs = Arc::clone(&cell);
        let makes = rt.go(move || *theirs.get_or_init(forever));
        Member::Goroutine(&rt, makes).until_it_waits();
        let tells = Arc::new(Tells::default());
        let mut task = pin!(cell.wait_async());
        assert!(task.as_mut().poll(&mut Context::from_waker(&Waker::from(Arc::clone(&tells)))).is_pending());
        rt.shutdown(Duration::ZERO);
        until(|| tells.0.get().is_some());
        assert_ne!(tells.0.get(), Some(&std::thread::current().id()));
    });
}

/// A goroutine with a small stack notifies those of a runtime that ends with a limit of zero. Fails, in some of the rounds, by
/// an overflow of that stack when each abandoned goroutine passes the notification to the next within its own call.
#[test]
fn a_notification_goes_through_thousands_of_left_waiters() {
    watched(1, || (0..10).for_each(|_| notifies_thousands()));
}

fn notifies_thousands() {
    const WAITERS: usize = 2000;
    let (event, over) = (Arc::new(Event::new()), Arc::new(AtomicBool::new(false)));
    let (first, second) = (runtime(1), runtime(1));
    for _ in 0..WAITERS {
        let theirs = Arc::clone(&event);
        drop(first.go(move || {
            loop {
                theirs.wait();
            }
        }));
    }
    until(|| format!("{event:?}").contains(&format!("waiting: {WAITERS}")));
    let (theirs, ends) = (Arc::clone(&event), Arc::clone(&over));
    let notifies = move || {
        while !ends.load(SeqCst) {
            theirs.notify_one();
        }
    };
    let notifier =
        second.go(|| gmp::Builder::new().stack_size(64 << 10).go(notifies).unwrap().join().unwrap());
    std::thread::sleep(Duration::from_millis(1));
    first.shutdown(Duration::ZERO);
    over.store(true, SeqCst);
    notifier.join().unwrap();
}

/// Waits for ever, in a goroutine that is left behind.
fn forever() {
    gmp::time::sleep(Duration::from_secs(3600));
}

/// Fails by a hang when a closure that will never end counts as running.
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

/// Fails by a panic when the condition variable refuses another mutex because goroutines that were left behind wait for ever
/// with theirs.
#[test]
fn a_left_waiter_for_a_condition_holds_no_other_mutex_off() {
    for procs in PROCS {
        watched(procs, || {
            let (condvar, first) = (Arc::new(gmp::sync::Condvar::new()), Arc::new(Mutex::new(())));
            let (theirs, waits) = (Arc::clone(&first), Arc::clone(&condvar));
            let rt = leave_behind(procs, move || waits.wait(&mut theirs.lock()), || ());
            let waits = move || {
                let second = Mutex::new(());
                condvar.wait_for(&mut second.lock(), Duration::from_millis(1)).timed_out()
            };
            assert!(waits() && rt.run(&waits));
        });
    }
}

/// Fails by the permits when a goroutine that is left behind in a sleep gives back the grant of an earlier wait.
#[test]
fn a_wait_that_was_over_is_not_settled() {
    for procs in PROCS {
        watched(procs, || {
            let (permits, first) = (Arc::new(Semaphore::new(2)), runtime(procs));
            permits.acquire(2);
            let (theirs, came) = (Arc::clone(&permits), Arc::new(AtomicUsize::new(0)));
            let comes = Arc::clone(&came);
            drop(first.go(move || {
                theirs.acquire(1);
                comes.store(1, SeqCst);
                bolted(forever);
            }));
            until(|| format!("{permits:?}").contains("waiting: 1"));
            permits.release(1);
            until(|| came.load(SeqCst) == 1);
            first.shutdown(Duration::from_secs(5));
            assert_eq!(permits.available_permits(), 0);
        });
    }
}

/// Fails by a hang when callers wait for a call that will never have a value.
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
