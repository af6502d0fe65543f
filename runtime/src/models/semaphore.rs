//! `sync::Semaphore`: a released permit reaches the waiter, also when the waiter before it gives up.

use super::caught;
use super::cover::{Handle, keep_the_thread};
use super::task::{Foreign, poll, run};
use crate::context::Context;
use crate::model::{Flag, LONG, Model, Mutant, at_rest, done, runtime};
use crate::sync::Semaphore;
use loom::cell::UnsafeCell;
use loom::thread;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

struct Shared {
    permits: Semaphore,
    count: UnsafeCell<u32>,
}

// SAFETY: the one permit orders the accesses to `count`; loom checks that it does.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

/// Fails by deadlock when a release is lost, by a causality violation when two threads have the permit.
#[test]
fn one_permit_goes_from_one_thread_to_the_next() {
    Model::new().check("semaphore", || {
        let shared = Arc::new(Shared { permits: Semaphore::new(1), count: UnsafeCell::new(0) });
        let counts = |shared: &Shared| {
            shared.permits.acquire(1);
            // SAFETY: the caller has the permit.
            shared.count.with_mut(|count| unsafe { *count += 1 });
            shared.permits.release(1);
        };
        let others = [(); 2].map(|()| {
            let theirs = Arc::clone(&shared);
            thread::spawn(move || counts(&theirs))
        });
        counts(&shared);
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// A large request at the head is unwound; the small one behind fits. Fails by deadlock when the small one is not granted.
#[test]
fn a_head_that_is_interrupted_lets_requests_behind_it_go() {
    Model::new().check("semaphore_interrupt", || {
        let runtime = at_rest::<1>();
        let permits = Arc::new(Semaphore::new(2));
        let (context, cancel) = Context::background().with_cancel();
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        let large = runtime.go(move || context.run(|| theirs.acquire(2)).is_ok());
        let theirs = Arc::clone(&permits);
        let small = thread::spawn(move || theirs.acquire(1));
        cancel.cancel();
        small.join().unwrap();
        assert!(!large.join().unwrap());
        assert!(!permits.try_acquire(1));
        done();
    });
}

/// A request is unwound while its permit comes. Fails by the count when the permit is lost or doubled; by a causality
/// violation when the waker of a goroutine that was nudged meanwhile links that goroutine into a run queue too early.
#[test]
fn an_interrupt_against_a_release_loses_no_permit() {
    Model::new().check("semaphore_race", || {
        let runtime = at_rest::<1>();
        let permits = Arc::new(Semaphore::new(1));
        let (context, cancel) = Context::background().with_cancel();
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        let waiter = runtime.go(move || context.run(|| theirs.acquire(1)).is_ok());
        let cuts = thread::spawn(move || cancel.cancel());
        permits.release(1);
        let got = waiter.join().unwrap();
        cuts.join().unwrap();
        assert_eq!(permits.try_acquire(1), !got);
        done();
    });
}

/// Fails by deadlock when a permit is lost with a goroutine that never runs, or when that goroutine's request holds
/// back the waiter behind.
#[test]
fn a_request_that_is_left_holds_nobody_back() {
    Model::new().check("semaphore_left", || {
        let runtime = at_rest::<1>();
        let permits = Arc::new(Semaphore::new(2));
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        // If the goroutine gets the permits, it gives them back.
        drop(runtime.go(move || {
            theirs.acquire(2);
            theirs.release(2);
        }));
        let theirs = Arc::clone(&permits);
        let small = thread::spawn(move || theirs.acquire(1));
        super::cover::leave(runtime, Duration::from_secs(1));
        small.join().unwrap();
        done();
    });
}

/// As `a_request_that_is_left_holds_nobody_back`, with a goroutine that the ender has interrupted, and that is queued behind
/// one that keeps the thread. Fails by deadlock when the end takes the ender's claim for a waker's.
#[test]
fn a_request_that_is_interrupted_and_left_holds_nobody_back() {
    Model::new().preemptions(1).check("semaphore_left_queued", || {
        let runtime = runtime(1, 1);
        let handle = Handle::of(&runtime);
        let permits = Arc::new(Semaphore::new(2));
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        drop(runtime.go(move || theirs.acquire(2)));
        handle.await_poller();
        let over = keep_the_thread(&runtime);
        let theirs = Arc::clone(&permits);
        let small = thread::spawn(move || theirs.acquire(1));
        while permits.tally().1 < 2 {
            thread::yield_now();
        }
        handle.sweep();
        loom::explore();
        let _report = super::cover::leave(runtime, Duration::ZERO);
        small.join().unwrap();
        done();
        over.raise();
    });
}

/// A goroutine waits for permits, and its runtime ends while the semaphore is closed. Fails by the count when the goroutine's
/// request counts as granted.
#[test]
fn a_request_that_was_refused_and_is_left_gives_nothing_back() {
    Model::new().check("semaphore_left_closed", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let permits = Arc::new(Semaphore::new(2));
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        drop(runtime.go(move || drop(theirs.acquire_guard(2))));
        // This goroutine has the P once the first one has parked.
        runtime.go(|| ()).join().unwrap();
        loom::explore();
        let ends = thread::spawn(move || super::cover::leave(runtime, Duration::from_secs(1)));
        permits.close();
        ends.join().unwrap();
        assert_eq!(permits.available_permits(), 1);
        done();
    });
}

/// A goroutine that was granted a permit is in its P's queue, and another asks for one, as their runtime is left; a third one
/// keeps its thread until a thread behind them has a permit. The ender calls the first one's hook, which grants the permit to
/// the second one and queues it. Fails by deadlock when the ender does not look for queued goroutines again.
#[test]
fn a_permit_goes_on_through_goroutines_that_are_left() {
    Model::new().preemptions(1).check("semaphore_left_chain", || {
        let runtime = runtime(2, 2);
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let [there, go_on, granted, over]: [Flag; 4] = Default::default();
        let asks = || {
            let theirs = Arc::clone(&permits);
            move || {
                theirs.acquire(1);
                theirs.release(1);
            }
        };
        drop(runtime.go(asks()));
        while permits.tally().1 < 1 {
            thread::yield_now();
        }
        let (raises, waits, second) = (there.clone(), go_on.clone(), asks());
        drop(runtime.go(move || {
            raises.raise();
            waits.wait_on_thread();
            second();
        }));
        there.wait_on_thread();
        let (theirs, raises, waits) = (Arc::clone(&permits), granted.clone(), over.clone());
        drop(runtime.go(move || {
            theirs.release(1);
            raises.raise();
            waits.wait_on_thread();
        }));
        granted.wait_on_thread();
        let third = asks();
        let behind = thread::spawn(move || {
            third();
            done();
            over.raise();
        });
        loom::explore();
        go_on.raise();
        super::cover::leave(runtime, LONG);
        behind.join().unwrap();
    });
}

/// A context ends while its request is granted. Fails by the count when the permit goes with the request.
#[test]
fn a_context_that_ends_beside_a_release_loses_no_permit() {
    Model::new().preemptions(1).check("semaphore_context", || {
        let runtime = at_rest::<1>();
        let permits = Arc::new(Semaphore::new(1));
        let (context, cancel) = Context::background().with_cancel();
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        let waiter = runtime.go(move || theirs.acquire_ctx(&context, 1).is_ok());
        let cuts = thread::spawn(move || cancel.cancel());
        permits.release(1);
        let got = waiter.join().unwrap();
        cuts.join().unwrap();
        assert_eq!(permits.try_acquire(1), !got);
        done();
    });
}

/// A task asks beside a release. Fails by deadlock when it is not woken, by the count when its permit is lost or doubled.
#[test]
fn a_task_gets_the_permit_that_is_released() {
    Model::new().check("semaphore_task", || {
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        let releases = thread::spawn(move || theirs.release(1));
        let permit = run(pin!(permits.acquire_async(1)), &Foreign::new()).expect("nobody closes it");
        assert!(!permits.try_acquire(1));
        releases.join().unwrap();
        drop(permit);
        assert!(permits.try_acquire(1));
    });
}

/// A request is dropped while its permit comes. Fails by the count when the permit goes with the future, or is given back
/// twice; by a causality violation when the future goes while the notifier reads it.
#[test]
fn a_future_that_is_dropped_beside_a_release_loses_no_permit() {
    Model::new().check("semaphore_task_dropped", || {
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let mut asks = Box::pin(permits.acquire_async(1));
        assert!(poll(asks.as_mut(), &Foreign::new()).is_pending());
        let theirs = Arc::clone(&permits);
        let releases = thread::spawn(move || theirs.release(1));
        drop(asks);
        releases.join().unwrap();
        assert_eq!(permits.available_permits(), 1);
    });
}

/// A large request at the head is dropped; the small one behind fits. Fails by deadlock when the small one is not granted.
#[test]
fn a_head_that_is_dropped_lets_requests_behind_it_go() {
    Model::new().check("semaphore_task_head", || {
        let permits = Arc::new(Semaphore::new(2));
        permits.acquire(1);
        let mut large = Box::pin(permits.acquire_async(2));
        assert!(poll(large.as_mut(), &Foreign::new()).is_pending());
        let theirs = Arc::clone(&permits);
        let small = thread::spawn(move || theirs.acquire(1));
        drop(large);
        small.join().unwrap();
        assert_eq!(permits.available_permits(), 0);
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SemaphoreGrantsNobody, "one_permit_goes_from_one_thread_to_the_next"),
            (Mutant::SemaphoreGrantsNobody, "a_task_gets_the_permit_that_is_released"),
            (Mutant::SemaphoreKeepsTheGrant, "a_context_that_ends_beside_a_release_loses_no_permit"),
            (
                Mutant::SemaphoreLeftTakesARefusalForAGrant,
                "a_request_that_was_refused_and_is_left_gives_nothing_back",
            ),
            (Mutant::AsideLooksOnce, "a_permit_goes_on_through_goroutines_that_are_left"),
            (Mutant::SeizeQueuedAwaitsTheEnder, "a_request_that_is_interrupted_and_left_holds_nobody_back"),
            (Mutant::ReadyWithoutAcquire, "an_interrupt_against_a_release_loses_no_permit"),
            (Mutant::SemaphoreLeavesQuietly, "a_head_that_is_interrupted_lets_requests_behind_it_go"),
            (Mutant::SemaphoreDropsTheGrant, "a_future_that_is_dropped_beside_a_release_loses_no_permit"),
            (Mutant::SemaphoreDropsQuietly, "a_head_that_is_dropped_lets_requests_behind_it_go"),
        ],
    );
}
