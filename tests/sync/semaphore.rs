//! `Semaphore`.

use crate::support::{cast, rounds, with_every_cast};
use common::cpu::cost;
use common::{everywhere, until};
use gmp::context::{Context, ContextError};
use gmp::sync::futures::AcquirePermits;
use gmp::sync::{
    AcquireContextError, AcquireError, AcquireTimeoutError, OwnedSemaphorePermit, Semaphore, SemaphorePermit,
    TryAcquireError,
};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{self, Waker};
use std::time::{Duration, Instant};

/// Fails by a count when more permits are out than exist; or by a hang when a release wakes too few.
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

/// Waits until this many requests are queued.
fn until_waiting(permits: &Semaphore, count: usize) {
    until(|| format!("{permits:?}").contains(&format!("waiting: {count}")));
}

/// Fails by the order when a small request overtakes a large one that came first.
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
        // One permit is free, which would do for the second request.
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

/// Fails by a hang when a request that can never be met holds up the requests behind it.
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
fn a_release_of_more_permits_than_are_out_panics() {
    let permits = Semaphore::new(2);
    permits.acquire(1);
    for count in [2, usize::MAX] {
        assert!(catch_unwind(AssertUnwindSafe(|| permits.release(count))).is_err());
    }
    assert!(permits.try_acquire(1) && !permits.try_acquire(1));
}

/// Fails if a request outlives its context, takes permits nevertheless, or keeps the requests behind it waiting.
#[test]
fn a_context_ends_a_request_and_lets_requests_behind_it_go_on() {
    everywhere(|rt| {
        rt.run(|| {
            let semaphore = Arc::new(Semaphore::new(2));
            semaphore.acquire(1);
            let (ctx, cancel) = Context::background().with_cancel();
            let large = gmp::go({
                let semaphore = Arc::clone(&semaphore);
                move || semaphore.acquire_ctx(&ctx, 2)
            });
            until_waiting(&semaphore, 1);
            assert!(!semaphore.try_acquire(1), "it would overtake");
            let small = gmp::go({
                let semaphore = Arc::clone(&semaphore);
                move || semaphore.acquire(1)
            });
            until_waiting(&semaphore, 2);
            cancel.cancel();
            assert_eq!(large.join().unwrap(), Err(ContextError::Canceled));
            small.join().unwrap();
            // A request whose context is done takes nothing, a request under a live context does, and a request for too many
            // permits waits for the end of its context.
            semaphore.release(2);
            let (done, cancel) = Context::background().with_cancel();
            cancel.cancel();
            assert_eq!(semaphore.acquire_ctx(&done, 1), Err(ContextError::Canceled));
            assert_eq!(semaphore.acquire_ctx(&Context::background(), 2), Ok(()));
            let (late, _cancel) = Context::background().with_timeout(Duration::from_millis(2));
            assert_eq!(semaphore.acquire_ctx(&late, 3), Err(ContextError::DeadlineExceeded));
            semaphore.release(2);
            // The end of a context around the call is returned as an error, too, and nothing is unwound.
            semaphore.acquire(2);
            let (outer, cancel) = Context::background().with_cancel();
            let waits = gmp::go({
                let semaphore = Arc::clone(&semaphore);
                move || outer.run(|| semaphore.acquire_ctx(&Context::background(), 1))
            });
            until_waiting(&semaphore, 1);
            cancel.cancel();
            assert_eq!(waits.join().unwrap(), Ok(Err(ContextError::Canceled)));
        });
    });
}

/// Fails if a waiter takes permits that come after the cancel, and before the waiter runs again.
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

/// A program has released permits twice, and no later caller is to blame. Fails by the panic of a caller that gives back
/// permits without a call of `release`, or by the count.
#[test]
fn what_was_released_twice_is_no_panic_of_a_request() {
    for (asks, doubled, free) in [(1, 1, 2), (2, 1, 2), (2, 2, 2)] {
        let permits = Semaphore::new(2);
        permits.acquire(2);
        let mut request = Box::pin(permits.acquire_async(asks));
        assert!(request.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending());
        permits.release(2);
        permits.release(doubled);
        drop(request);
        assert_eq!(permits.available_permits(), free);
    }
    common::runtime(1).run(|| {
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let (ctx, cancel) = Context::background().with_cancel();
        let theirs = Arc::clone(&permits);
        let waits = gmp::go(move || theirs.acquire_ctx(&ctx, 1));
        until(|| {
            gmp::yield_now();
            format!("{permits:?}").contains("waiting: 1")
        });
        cancel.cancel();
        permits.release(1);
        permits.release(1);
        assert_eq!(waits.join().unwrap(), Err(ContextError::Canceled));
        assert_eq!(permits.available_permits(), 1);
    });
}

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(3600);

/// Fails by a count when a guard gives back too much or too little, in any of the ways in which a guard can end.
#[test]
fn a_guard_gives_back_what_it_holds_once() {
    everywhere(|rt| {
        let permits = Arc::new(Semaphore::new(4));
        let theirs = Arc::clone(&permits);
        let panics = rt.go(move || {
            let _three = theirs.acquire_guard(3).unwrap();
            assert_eq!(theirs.available_permits(), 1);
            std::panic::resume_unwind(Box::new("a panic"))
        });
        let panics: Result<(), _> = panics.join();
        assert!(panics.unwrap_err().is_panic());
        assert_eq!(permits.available_permits(), 4, "an unwinding");
        let mut owned = permits.acquire_owned(3).unwrap();
        let one = owned.split(1).unwrap();
        assert!(owned.split(3).is_none(), "it holds two");
        assert_eq!((owned.num_permits(), one.num_permits(), permits.available_permits()), (2, 1, 1));
        rt.go(move || drop(one)).join().unwrap();
        assert_eq!(permits.available_permits(), 2, "in another goroutine");
        owned.merge(permits.acquire_owned(2).unwrap());
        drop(owned);
        assert_eq!(permits.available_permits(), 4, "merged");
        let held = permits.acquire_guard(2).unwrap();
        let other = Semaphore::new(1);
        let of_another = other.acquire_guard(1).unwrap();
        let mut held = {
            let mut held = Some(held);
            let merge = || held.as_mut().unwrap().merge(of_another);
            assert!(catch_unwind(AssertUnwindSafe(merge)).is_err());
            held.unwrap()
        };
        assert_eq!((other.available_permits(), held.num_permits()), (1, 2));
        held.merge(permits.acquire_guard(0).unwrap());
        held.forget();
        assert_eq!(permits.available_permits(), 2, "forgotten");
        permits.release(2);
        assert_eq!(permits.available_permits(), 4);
    });
    fn goes_anywhere<T: Send + Sync>() {}
    goes_anywhere::<OwnedSemaphorePermit>();
    goes_anywhere::<SemaphorePermit<'static>>();
}

/// Fails if a request goes on after its limit or its context, takes permits nevertheless, or keeps the requests behind it
/// waiting.
#[test]
fn a_guard_is_refused_at_a_limit_and_by_a_context() {
    with_every_cast(|rt, goroutines, threads| {
        let permits = Arc::new(Semaphore::new(2));
        let one = permits.acquire_owned(1).unwrap();
        let theirs = Arc::clone(&permits);
        cast(rt, goroutines, threads, move |number| {
            let late = Err(AcquireTimeoutError::Timeout);
            let start = Instant::now();
            if number % 2 == 0 {
                assert_eq!(theirs.acquire_guard_timeout(2, SHORT).map(drop), late);
                assert_eq!(theirs.acquire_guard_deadline(2, Instant::now() + SHORT).map(drop), late);
            } else {
                assert_eq!(theirs.acquire_owned_timeout(2, SHORT).map(drop), late);
                assert_eq!(theirs.acquire_owned_deadline(3, Instant::now() + SHORT).map(drop), late);
            }
            assert!(start.elapsed() >= 2 * SHORT);
            let (ctx, _cancel) = Context::background().with_timeout(SHORT);
            let done = Err(AcquireContextError::Context(ContextError::DeadlineExceeded));
            assert_eq!(theirs.acquire_guard_ctx(&ctx, 2).map(drop), done);
            assert_eq!(theirs.acquire_owned_ctx(&ctx, 1).map(drop), done, "it is done already");
            // These requests queue behind the large ones.
            drop(theirs.acquire_guard_timeout(1, LONG).unwrap());
            drop(theirs.acquire_owned_ctx(&Context::background(), 1).unwrap());
        });
        assert_eq!(permits.try_acquire_guard(2).map(drop), Err(TryAcquireError::NoPermits));
        assert_eq!(permits.try_acquire_owned(2).map(drop), Err(TryAcquireError::NoPermits));
        assert_eq!(permits.try_acquire_guard(1).unwrap().num_permits(), 1);
        drop(one);
        assert_eq!(permits.try_acquire_owned(2).unwrap().num_permits(), 2);
    });
}

/// Fails by a hang when a waiter is not told of the close, or by a result when permits are granted after it.
#[test]
fn a_close_ends_all_requests_and_refuses_later_ones() {
    with_every_cast(|rt, goroutines, threads| {
        let permits = Arc::new(Semaphore::new(2));
        let held = permits.acquire_owned(1).unwrap();
        let waiting = goroutines + threads;
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let theirs = Arc::clone(&permits);
                cast(rt, goroutines, threads, move |number| match number % 4 {
                    0 => assert_eq!(theirs.acquire_guard(2).map(drop), Err(AcquireError)),
                    1 => assert_eq!(theirs.acquire_owned(2).map(drop), Err(AcquireError)),
                    2 => {
                        let closed = Err(AcquireTimeoutError::Closed);
                        assert_eq!(theirs.acquire_guard_timeout(2, LONG).map(drop), closed);
                    }
                    _ => {
                        let closed = Err(AcquireContextError::Closed);
                        assert_eq!(theirs.acquire_guard_ctx(&Context::background(), 2).map(drop), closed);
                    }
                });
            });
            let too_large = scope.spawn(|| permits.acquire_guard(3).map(drop));
            until_waiting(&permits, waiting + 1);
            assert!(permits.close() && !permits.close() && permits.is_closed());
            assert_eq!(too_large.join().unwrap(), Err(AcquireError));
        });
        // Permits that are out come back, and are not granted again.
        drop(held);
        assert_eq!(permits.available_permits(), 2);
        assert_eq!(permits.acquire_guard(1).map(drop), Err(AcquireError));
        assert_eq!(permits.try_acquire_owned(1).map(drop), Err(TryAcquireError::Closed));
        assert!(!permits.try_acquire(1));
        let panics = |f: &dyn Fn()| catch_unwind(AssertUnwindSafe(f)).is_err();
        assert!(panics(&|| permits.acquire(1)), "it has no error to return");
        assert!(panics(&|| permits.acquire_ctx(&Context::background(), 1).unwrap()), "nor has this");
    });
}

/// Fails by a hang when a request that now fits is not granted.
#[test]
fn permits_that_are_added_meet_requests_that_were_too_large() {
    with_every_cast(|rt, goroutines, threads| {
        let permits = Arc::new(Semaphore::new(1));
        permits.acquire(1);
        let theirs = Arc::clone(&permits);
        let added = Arc::new(AtomicUsize::new(0));
        let adds = Arc::clone(&added);
        // The last member makes the capacity large enough for all requests.
        let all = goroutines + threads;
        cast(rt, goroutines, threads, move |_number| {
            if adds.fetch_add(1, SeqCst) + 1 == all {
                theirs.add_permits(2);
            }
            let two = theirs.acquire_guard(2).unwrap();
            assert_eq!(two.num_permits(), 2);
        });
        assert_eq!(permits.available_permits(), 2);
        let too_many = catch_unwind(AssertUnwindSafe(|| permits.add_permits(usize::MAX)));
        assert!(too_many.is_err());
        permits.release(1);
        assert!(permits.try_acquire(3) && !permits.try_acquire(1));
    });
}

/// Returns the least of three times in which a thread makes `requests` requests for more than the capacity, the largest first,
/// and raises the capacity to the size of each.
fn least_cost_of_raising(requests: usize) -> Duration {
    let raise = || {
        let permits = Semaphore::new(0);
        let mut futures: Vec<_> =
            (1..=requests).rev().map(|size| Box::pin(permits.acquire_async(size))).collect();
        for future in &mut futures {
            assert!(future.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending());
        }
        (0..requests).for_each(|_| permits.add_permits(1));
        while futures.pop().is_some() {}
    };
    (0..3).map(|_| cost(raise)).min().unwrap()
}

/// Fails when each `add_permits` looks at all requests for more than the capacity: four times as many then take sixteen times
/// as long.
#[test]
fn a_capacity_rises_past_many_requests() {
    let (few, many) = (least_cost_of_raising(2500), least_cost_of_raising(10_000));
    assert!(many < 9 * few + Duration::from_millis(20), "{few:?}, {many:?}");
}

/// Fails when requests of one size join before those of another size that came first.
#[test]
fn requests_for_more_than_the_capacity_join_in_their_order() {
    let permits = Semaphore::new(1);
    let poll = |future: &mut std::pin::Pin<Box<AcquirePermits<'_>>>| {
        let answer = future.as_mut().poll(&mut task::Context::from_waker(Waker::noop()));
        matches!(answer, task::Poll::Ready(Ok(_gives_back)))
    };
    let mut waiting = [3, 2, 2, 3].map(|size| Box::pin(permits.acquire_async(size)));
    assert!(waiting.iter_mut().all(|future| !poll(future)));
    let [first, gone, second, third] = waiting;
    drop(gone);
    permits.add_permits(2);
    let mut waiting = VecDeque::from([first, second, third]);
    while let Some(mut next) = waiting.pop_front() {
        assert!(waiting.iter_mut().all(|future| !poll(future)));
        assert!(poll(&mut next));
    }
}
