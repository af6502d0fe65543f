//! `Semaphore`.

use crate::support::{cast, rounds, with_every_cast};
use common::{everywhere, until};
use gmp::context::{Context, ContextError};
use gmp::sync::Semaphore;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// Fails by a count: more are out than there are. Or by a hang: a release wakes too few.
#[test]
fn no_more_are_out_than_there_are() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(10_000);
        let shared = Arc::new((Semaphore::new(4), AtomicUsize::new(0)));
        let theirs = Arc::clone(&shared);
        cast(rt, goroutines, threads, move |number| {
            let (permits, out) = &*theirs;
            for round in 0..rounds {
                let count = 1 + (round + number) % 4;
                if round % 5 == 0 {
                    if !permits.try_acquire(count) {
                        continue;
                    }
                } else {
                    permits.acquire(count);
                }
                assert!(out.fetch_add(count, SeqCst) + count <= 4);
                if round % 16 == 0 {
                    gmp::yield_now();
                }
                out.fetch_sub(count, SeqCst);
                permits.release(count);
            }
        });
        assert!(shared.0.try_acquire(4) && !shared.0.try_acquire(1) && shared.0.try_acquire(0));
    });
}

/// Waits until so many stand in line.
fn until_waiting(permits: &Semaphore, count: usize) {
    until(|| format!("{permits:?}").contains(&format!("waiting: {count}")));
}

/// Fails by the order: a small request overtakes a large one that came first.
#[test]
fn requests_are_met_in_their_order() {
    everywhere(|rt| {
        let shared = Arc::new((Semaphore::new(3), std::sync::Mutex::new(Vec::new())));
        shared.0.acquire(2);
        let mut waiters = Vec::new();
        for (place, count) in [3, 1, 1, 2].into_iter().enumerate() {
            let theirs = Arc::clone(&shared);
            let waits = move || {
                theirs.0.acquire(count);
                theirs.1.lock().unwrap().push(place);
            };
            waiters.push(if place % 2 == 0 { Ok(rt.go(waits)) } else { Err(std::thread::spawn(waits)) });
            until_waiting(&shared.0, place + 1);
        }
        // One is free, and the second would fit.
        assert!(!shared.0.try_acquire(1));
        for (release, then) in [(2, 1), (1, 2), (1, 3), (1, 3), (1, 4)] {
            shared.0.release(release);
            until(|| shared.1.lock().unwrap().len() == then);
        }
        for waiter in waiters {
            match waiter {
                Ok(goroutine) => goroutine.join().unwrap(),
                Err(thread) => thread.join().unwrap(),
            }
        }
        assert_eq!(*shared.1.lock().unwrap(), [0, 1, 2, 3]);
    });
}

/// Fails by a hang: a request that can never be met stands in line before others.
#[test]
fn a_request_for_more_than_there_is_holds_nobody_back() {
    everywhere(|rt| {
        let permits = Arc::new(Semaphore::new(2));
        let theirs = Arc::clone(&permits);
        drop(rt.go(move || theirs.acquire(3)));
        rt.run(gmp::yield_now);
        assert!(!permits.try_acquire(3));
        permits.acquire(2);
        permits.release(2);
    });
}

#[test]
fn a_release_of_what_nobody_has_panics() {
    let permits = Semaphore::new(2);
    permits.acquire(1);
    for count in [2, usize::MAX] {
        assert!(catch_unwind(AssertUnwindSafe(|| permits.release(count))).is_err());
    }
    assert!(permits.try_acquire(1) && !permits.try_acquire(1));
}

/// Fails if a request outlives its context, takes permits all the same, or keeps those behind it waiting.
#[test]
fn a_context_ends_a_request_and_lets_those_behind_it_go_on() {
    everywhere(|rt| {
        rt.run(|| {
            let semaphore = Arc::new(Semaphore::new(2));
            semaphore.acquire(1);
            let (ctx, cancel) = Context::background().with_cancel();
            let large = gmp::go({
                let semaphore = Arc::clone(&semaphore);
                move || semaphore.acquire_ctx(&ctx, 2)
            });
            until(|| {
                !semaphore.try_acquire(1) || {
                    semaphore.release(1);
                    false
                }
            });
            let small = gmp::go({
                let semaphore = Arc::clone(&semaphore);
                move || semaphore.acquire(1)
            });
            cancel.cancel();
            assert_eq!(large.join().unwrap(), Err(ContextError::Canceled));
            small.join().unwrap();
            // One that is done already takes nothing, a live one does, and one that asks for too much waits for its end.
            semaphore.release(2);
            let (done, cancel) = Context::background().with_cancel();
            cancel.cancel();
            assert_eq!(semaphore.acquire_ctx(&done, 1), Err(ContextError::Canceled));
            assert_eq!(semaphore.acquire_ctx(&Context::background(), 2), Ok(()));
            let (late, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
            assert_eq!(semaphore.acquire_ctx(&late, 3), Err(ContextError::DeadlineExceeded));
            semaphore.release(2);
            // A context around it returns its error, too, and nothing is unwound.
            semaphore.acquire(2);
            let (outer, cancel) = Context::background().with_cancel();
            let waits = gmp::go({
                let semaphore = Arc::clone(&semaphore);
                move || outer.run(|| semaphore.acquire_ctx(&Context::background(), 1))
            });
            gmp::yield_now();
            cancel.cancel();
            assert_eq!(waits.join().unwrap(), Ok(Err(ContextError::Canceled)));
        });
    });
}

/// Fails if permits that come after the cancel, and before the one who waits runs again, are taken all the same.
#[test]
fn a_cancel_that_came_before_the_permits_wins() {
    common::runtime(1).run(|| {
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let (ctx, cancel) = Context::background().with_cancel();
        let theirs = Arc::clone(&permits);
        let waits = gmp::go(move || theirs.acquire_ctx(&ctx, 1));
        gmp::time::sleep(Duration::from_millis(5));
        cancel.cancel();
        permits.release(1);
        assert_eq!(waits.join().unwrap(), Err(ContextError::Canceled));
        assert!(permits.try_acquire(1));
    });
}
