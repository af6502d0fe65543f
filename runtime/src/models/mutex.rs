//! `sync::Mutex`: one holder at a time, and each waiter in the queue is notified.
//!
//! *The mutants* take out the orderings of the word, the hand-over, and each step by which a notified waiter that is late,
//! gives up, or is left behind passes its notification on.

use super::caught;
use super::cover::Held;
use super::task::{Foreign, poll, run};
use crate::context::Context;
use crate::model::{Flag, Model, Mutant, at_rest, done, runtime};
use crate::sync::{Mutex, MutexGuard};
use loom::thread;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Shorter than any wait of a model.
const AT_ONCE: Duration = Duration::from_nanos(1);

/// Fails by a causality violation when two threads have the value at once, or one does not see what the last holder
/// did.
#[test]
fn two_threads_count() {
    Model::new().preemptions(4).check("mutex_two", || {
        let lock = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.lock() += 1);
        *lock.lock() += 1;
        other.join().unwrap();
        assert_eq!(*lock.lock(), 2);
    });
}

/// A waiter that was notified finds the lock taken, goes back to its place, and is notified again, or handed the lock.
/// Fails by deadlock.
#[test]
fn a_waiter_that_lost_to_a_barger_is_notified_again() {
    Model::new().check("mutex_three", || {
        let lock = Arc::new(Mutex::new(0));
        let others = [(); 2].map(|()| {
            let theirs = Arc::clone(&lock);
            thread::spawn(move || *theirs.lock() += 1)
        });
        *lock.lock() += 1;
        *lock.lock() += 1;
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*lock.lock(), 4);
    });
}

/// A thread waits, and the holder takes the lock again and again. Fails by deadlock, or by the assertion, when a waiter that
/// lost is not handed the lock: with a model's clock every waiter is starved at once.
#[test]
fn a_starved_waiter_is_handed_the_lock() {
    Model::new().preemptions(4).check("mutex_starved", || {
        let lock = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&lock);
        let guard = lock.lock();
        let other = thread::spawn(move || *theirs.lock() = 1);
        MutexGuard::unlock_fair(guard);
        // The other thread goes on, whether it waits in the queue or comes just now, and whether it loses to this thread.
        drop(lock.try_lock());
        drop(lock.lock());
        other.join().unwrap();
        assert_eq!(*lock.lock(), 1);
    });
}

/// As `a_starved_waiter_is_handed_the_lock`, with a goroutine that is certain to wait in the queue. Fails by the assertion when
/// the lock is released instead of handed over.
#[test]
fn a_fair_unlock_hands_the_lock_over() {
    Model::new().check("mutex_fair", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let (lock, waits) = (Arc::new(Mutex::new(0)), Flag::default());
        let guard = lock.lock();
        let theirs = Arc::clone(&lock);
        let waiter = runtime.go(move || *theirs.lock() = 1);
        let raises = waits.clone();
        // This goroutine has the P once the first one has parked.
        runtime.go(move || raises.raise()).join().unwrap();
        waits.wait_on_thread();
        loom::explore();
        MutexGuard::unlock_fair(guard);
        if let Some(value) = lock.try_lock() {
            assert_eq!(*value, 1, "somebody was faster than the one in line");
        }
        waiter.join().unwrap();
        done();
    });
}

/// A goroutine's time limit ends its wait while the lock is released, and a thread waits, too. Fails by deadlock when the
/// thread's notification is lost with the waiter that gives up.
#[test]
fn a_waiter_that_times_out_loses_no_notification() {
    Model::new().check("mutex_limit", || {
        let runtime = at_rest::<1>();
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let theirs = Arc::clone(&lock);
        let limited = runtime.go(move || theirs.try_lock_for(AT_ONCE).map(|mut value| *value += 1).is_some());
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.lock() += 1);
        drop(guard);
        let got = limited.join().unwrap();
        other.join().unwrap();
        assert_eq!(*lock.lock(), 1 + i32::from(got));
        done();
    });
}

/// A goroutine is unwound while it waits, or just as it is notified. Fails by deadlock when no waiter is notified in its
/// place, by the count when the goroutine has the lock and is unwound all the same.
#[test]
fn an_interrupted_waiter_loses_no_notification() {
    Model::new().preemptions_by_default(1).check("mutex_interrupt", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(Mutex::new(0));
        let (context, cancel) = Context::background().with_cancel();
        let guard = lock.lock();
        let theirs = Arc::clone(&lock);
        let interrupted = runtime.go(move || context.run(|| *theirs.lock() += 1).is_ok());
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let cuts = thread::spawn(move || cancel.cancel());
        drop(guard);
        *lock.lock() += 1;
        let got = interrupted.join().unwrap();
        cuts.join().unwrap();
        assert_eq!(*lock.lock(), 1 + i32::from(got));
        done();
    });
}

/// A goroutine waits in the queue, and its runtime ends while the lock is handed to it. Fails by deadlock when the
/// abandoned goroutine keeps the lock.
#[test]
fn what_was_handed_to_a_left_goroutine_is_not_lost() {
    Model::new().check("mutex_left_handed", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let theirs = Arc::clone(&lock);
        drop(runtime.go(move || *theirs.lock() += 1));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let ends = thread::spawn(move || super::cover::leave(runtime, Duration::from_secs(1)));
        MutexGuard::unlock_fair(guard);
        drop(lock.lock());
        ends.join().unwrap();
        done();
    });
}

/// A goroutine is notified to try, and its runtime ends before the goroutine tries; a thread waits in the queue behind.
/// Fails by deadlock when the thread is not notified in the goroutine's place.
#[test]
fn a_left_goroutine_that_was_called_holds_nobody_back() {
    Model::new().preemptions_by_default(1).check("mutex_left_called", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let theirs = Arc::clone(&lock);
        drop(runtime.go(move || *theirs.lock() += 1));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.lock() += 1);
        let ends = thread::spawn(move || super::cover::leave(runtime, Duration::from_secs(1)));
        drop(guard);
        other.join().unwrap();
        ends.join().unwrap();
        drop(lock.lock());
        done();
    });
}

/// A goroutine was notified to try, and comes too late; then the monitor takes its P for another goroutine, and the runtime
/// ends before the first one has a P again. A task stands behind it in the queue. Fails by deadlock when the goroutine has kept
/// WOKEN, the mark of a waiter that is about to try.
#[test]
fn a_waiter_that_lost_and_is_left_on_its_way_back_holds_nobody_back() {
    Model::new().with_retaker().preemptions(2).check("mutex_left_in_vain", || {
        let runtime = runtime(1, 2);
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let (theirs, found) = (Arc::clone(&lock), Arc::new(std::sync::Mutex::new(None)));
        let finds = Arc::clone(&found);
        drop(runtime.go(move || {
            *finds.lock().unwrap() = Some(Held::current());
            *theirs.lock() += 1;
        }));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        let (mut behind, task) = (Box::pin(lock.lock_async()), Foreign::new());
        assert!(poll(behind.as_mut(), &task).is_pending());
        let mut held = found.lock().unwrap().take().expect("the goroutine has run");
        loom::explore();
        drop(guard);
        let again = lock.try_lock();
        let (begins, ends) = (Flag::default(), Flag::default());
        drop(runtime.go({
            let (begins, ends) = (begins.clone(), ends.clone());
            move || {
                begins.raise();
                ends.wait_on_thread();
            }
        }));
        held.judge_again();
        let _taken = held.retake();
        begins.wait_on_thread();
        let _report = super::cover::leave(runtime, Duration::ZERO);
        ends.raise();
        drop(again);
        *run(behind.as_mut(), &task) += 1;
        done();
    });
}

/// Two goroutines wait, and a thread takes the lock between an unlock and the queue; so two unlocks come to the queue.
/// Fails by deadlock when the second unlock notifies the other goroutine as well: the word can tell of one notified waiter
/// only.
#[test]
fn of_two_unlocks_one_calls() {
    Model::new().preemptions(1).check("mutex_two_unlocks", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let waiters = [(); 2].map(|()| {
            let theirs = Arc::clone(&lock);
            runtime.go(move || *theirs.lock() += 1)
        });
        // This goroutine has the P once both have parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let theirs = Arc::clone(&lock);
        let barges = thread::spawn(move || *theirs.lock() += 1);
        drop(guard);
        barges.join().unwrap();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(*lock.lock(), 3);
        done();
    });
}

/// A task locks beside a thread that locks twice, so the task may be woken in vain, and then handed the lock. Fails by
/// deadlock, or by the count.
#[test]
fn a_task_that_lost_to_a_barger_is_called_again() {
    Model::new().check("mutex_task", || {
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let mut locks = Box::pin(lock.lock_async());
        let task = Foreign::new();
        assert!(poll(locks.as_mut(), &task).is_pending());
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || {
            *theirs.lock() += 1;
            *theirs.lock() += 1;
        });
        drop(guard);
        *run(locks.as_mut(), &task) += 1;
        other.join().unwrap();
        assert_eq!(*lock.lock(), 3);
    });
}

/// A task waits, and a thread behind it; the future is dropped as it is woken, or handed the lock. Fails by deadlock when the
/// notification or the lock is lost with the future.
#[test]
fn a_future_that_is_dropped_takes_no_call_with_it() {
    for fair in [false, true] {
        Model::new().check("mutex_task_dropped", move || {
            let lock = Arc::new(Mutex::new(0));
            let guard = lock.lock();
            let mut locks = Box::pin(lock.lock_async());
            assert!(poll(locks.as_mut(), &Foreign::new()).is_pending());
            let theirs = Arc::clone(&lock);
            let other = thread::spawn(move || *theirs.lock() += 1);
            if fair {
                MutexGuard::unlock_fair(guard)
            } else {
                drop(guard)
            }
            drop(locks);
            other.join().unwrap();
            assert_eq!(*lock.lock(), 1);
        });
    }
}

/// As `a_future_that_is_dropped_takes_no_call_with_it`, with the unlock on another thread, beside the drop. Fails by a
/// causality violation when the future is freed while the unlock reads it.
#[test]
fn a_future_that_is_dropped_beside_the_unlock_takes_no_call_with_it() {
    Model::new().check("mutex_task_unlock", || {
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock_arc();
        let mut locks = Box::pin(lock.lock_async());
        assert!(poll(locks.as_mut(), &Foreign::new()).is_pending());
        let unlocks = thread::spawn(move || drop(guard));
        drop(locks);
        *run(pin!(lock.lock_async()), &Foreign::new()) += 1;
        unlocks.join().unwrap();
        assert_eq!(*lock.lock(), 1);
    });
}

/// Fails by a causality violation when a thread that takes the lock after a fair unlock without a queue does not see what the
/// holder did.
#[test]
fn a_fair_unlock_shows_what_was_done() {
    Model::new().check("mutex_fair_alone", || {
        let lock = Arc::new(Mutex::new(0));
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.lock() += 1);
        let mut guard = lock.lock();
        *guard += 1;
        MutexGuard::unlock_fair(guard);
        other.join().unwrap();
        assert_eq!(*lock.lock(), 2);
    });
}

/// The only waiter lost twice, so that the lock is to be handed to it, and gives up. Fails by a causality violation when the
/// thread that takes the lock after that hand-over without a waiter does not see what the holder did.
#[test]
fn a_hand_over_without_a_waiter_shows_what_was_done() {
    Model::new().check("mutex_handed_to_nobody", || {
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let (mut waits, task) = (Box::pin(lock.lock_arc_async()), Foreign::new());
        assert!(poll(waits.as_mut(), &task).is_pending());
        drop(guard);
        let mut guard = lock.try_lock().expect("the waiter has not tried yet");
        assert!(poll(waits.as_mut(), &task).is_pending());
        drop(waits);
        let theirs = Arc::clone(&lock);
        let other = thread::spawn(move || *theirs.lock() += 1);
        *guard += 1;
        drop(guard);
        other.join().unwrap();
        assert_eq!(*lock.lock(), 2);
    });
}

/// Two tasks wait; the first is woken in vain, and its future is dropped while the lock is handed to the second. Fails by
/// deadlock when the hand-over brings WOKEN back, the mark of a waiter that is about to try: no unlock notifies any more.
#[test]
fn a_future_that_is_dropped_beside_a_hand_over_holds_nobody_back() {
    Model::new().check("mutex_task_hand_over", || {
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let (mut first, mut second) = (Box::pin(lock.lock_arc_async()), Box::pin(lock.lock_async()));
        let task = Foreign::new();
        assert!(poll(first.as_mut(), &Foreign::new()).is_pending());
        assert!(poll(second.as_mut(), &task).is_pending());
        drop(guard);
        let again = lock.try_lock().expect("the first has not tried yet");
        let drops = thread::spawn(move || drop(first));
        MutexGuard::unlock_fair(again);
        let guard = run(second.as_mut(), &task);
        drops.join().unwrap();
        let (mut third, task) = (Box::pin(lock.lock_async()), Foreign::new());
        assert!(poll(third.as_mut(), &task).is_pending());
        drop(guard);
        *run(third.as_mut(), &task) += 1;
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::MutexLockRelaxed, "two_threads_count"),
            (Mutant::MutexTakeRelaxed, "a_fair_unlock_hands_the_lock_over"),
            (Mutant::MutexTakeRelaxed, "a_waiter_that_times_out_loses_no_notification"),
            (Mutant::MutexTakeRelaxed, "an_interrupted_waiter_loses_no_notification"),
            (Mutant::MutexTakeRelaxed, "a_left_goroutine_that_was_called_holds_nobody_back"),
            (Mutant::MutexUnlockRelaxed, "two_threads_count"),
            (Mutant::MutexRecheckRelaxed, "two_threads_count"),
            (Mutant::MutexFairRelaxed, "a_fair_unlock_shows_what_was_done"),
            (Mutant::MutexHandsRelaxed, "a_hand_over_without_a_waiter_shows_what_was_done"),
            (Mutant::MutexCallsTwo, "of_two_unlocks_one_calls"),
            (Mutant::MutexWokenStays, "a_waiter_that_lost_to_a_barger_is_notified_again"),
            (Mutant::MutexNoHandOver, "a_fair_unlock_hands_the_lock_over"),
            (Mutant::MutexDropsTheCall, "a_future_that_is_dropped_takes_no_call_with_it"),
            (Mutant::MutexWokenStays, "a_task_that_lost_to_a_barger_is_called_again"),
            (Mutant::MutexWokenParks, "a_waiter_that_lost_and_is_left_on_its_way_back_holds_nobody_back"),
            (
                Mutant::MutexSettlesWithoutTheLock,
                "a_future_that_is_dropped_beside_a_hand_over_holds_nobody_back",
            ),
            (Mutant::MutexLeftBehind, "what_was_handed_to_a_left_goroutine_is_not_lost"),
        ],
    );
}
