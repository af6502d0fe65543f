//! The rate limiter: its arithmetic at times that the test sets, its queue, and the program as its user sees it.

#[path = "../../examples/rate_limit/limiter.rs"]
mod limiter;

use common::example::{example, output};
use common::{everywhere, until};
use gmp::context::{Context, ContextError};
use limiter::{Bucket, Limiter, Rate};
use std::sync::Arc;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);
const NEVER: Rate = Rate { tokens: 1, period: HOUR };

/// Fails by a nanosecond when the rate drifts, whether waiters come in time or late, or when a token comes before its time.
#[test]
fn each_token_comes_at_its_nanosecond() {
    for (tokens, nanos) in [(3, 1_000_000_000), (7, 1_000_001), (1, 1), (1_000_003, 999_999_937)] {
        for late in [0, nanos / u64::from(tokens) / 2] {
            let begin = Instant::now();
            let rate = Rate { tokens, period: Duration::from_nanos(nanos) };
            let (mut bucket, mut now) = (Bucket::new(rate, 1, begin), begin);
            assert_eq!(bucket.take(now, 1), Ok(()));
            for number in 1..=50_000_u64 {
                let due = begin + Duration::from_nanos((number * nanos).div_ceil(u64::from(tokens)));
                let told = bucket.take(now, 1);
                let delay = bucket.reserve(now, 1).delay;
                assert_eq!((told, now + delay), (Err(delay), due), "token {number} at {rate:?}");
                now += delay + Duration::from_nanos(late);
            }
        }
    }
}

/// Fails by more tokens than there is room for, however long no caller came; when a part of them is lost; or by an overflow.
#[test]
fn a_bucket_holds_its_burst_and_no_more() {
    let begin = Instant::now();
    let rate = Rate { tokens: 3, period: Duration::from_secs(1) };
    let mut bucket = Bucket::new(rate, 5, begin);
    let later = begin + 1000 * HOUR;
    assert_eq!((bucket.take(later, 4), bucket.take(later, 1)), (Ok(()), Ok(())));
    assert_eq!(bucket.take(later, 3), Err(Duration::from_secs(1)));
    assert_eq!(bucket.take(later, 0), Ok(()));
    assert_eq!(bucket.take(later + Duration::from_secs(1), 3), Ok(()));
    // This caller read its clock before another caller did.
    assert_eq!(bucket.take(begin, 1), Err(later + Duration::from_nanos(1_333_333_334) - begin));

    let slow = Rate { tokens: 1, period: Duration::MAX };
    let mut bucket = Bucket::new(slow, u32::MAX, begin);
    assert_eq!(bucket.take(begin, u32::MAX), Ok(()));
    assert_eq!(bucket.take(later, 1), Err(Duration::MAX - 1000 * HOUR));
    for _ in 0..9 {
        assert_eq!(bucket.reserve(later, u32::MAX).delay.as_secs(), u64::MAX);
    }
}

/// Fails when tokens are lost with a reservation behind which no caller waits, or when two callers have the same tokens.
#[test]
fn what_was_reserved_last_can_be_given_back() {
    let now = Instant::now();
    let mut bucket = Bucket::new(NEVER, 2, now);
    let [first, second, third] = [(); 3].map(|()| bucket.reserve(now, 1));
    assert_eq!([&first, &second, &third].map(|it| it.delay), [Duration::ZERO, Duration::ZERO, HOUR]);
    bucket.cancel(third);
    let third = bucket.reserve(now, 1);
    assert_eq!(third.delay, HOUR);
    // Other reservations stand behind the first one.
    bucket.cancel(first);
    assert_eq!(bucket.reserve(now, 1).delay, 2 * HOUR);
}

/// Fails when a caller passes the waiters; when a waiter that was ended stays in the queue; or when a token is lost with it.
#[test]
fn no_caller_passes_the_waiters_and_an_ended_waiter_takes_nothing() {
    everywhere(|rt| {
        rt.run(|| {
            let limiter = Arc::new(Limiter::new(NEVER, 2));
            assert!(limiter.allow(1) && limiter.allow(0));
            let waiters: Vec<_> = (1..=3)
                .map(|number| {
                    let (context, cancel) = Context::background().with_cancel();
                    let its = Arc::clone(&limiter);
                    let waits = context.go(move || its.wait(2));
                    until(|| limiter.waiting() == number);
                    (waits, cancel)
                })
                .collect();
            // One token is there.
            assert!(!limiter.allow(1) && !limiter.allow(0) && limiter.reserve(1).is_none());
            // The loop ends the last waiter first: a waiter that is not at the head of the queue is ended, too.
            for (left, (waits, cancel)) in (0..3).rev().zip(waiters.into_iter().rev()) {
                cancel.cancel();
                assert_eq!(waits.join().unwrap(), Err(ContextError::Canceled));
                assert_eq!(limiter.waiting(), left);
            }
            assert!(limiter.allow(1) && !limiter.allow(1));
            assert!(limiter.reserve(1).is_some_and(|it| it.delay <= HOUR));
        });
    });
}

/// Fails by a request that is let through too early, by a wait that is not ended, or by a lost token.
#[test]
fn the_program_finds_what_it_expects() {
    for procs in ["1", "2", "4"] {
        let (status, stdout, stderr) = output(example("rate_limit").env("GMPMAXPROCS", procs));
        assert_eq!((status, stderr.as_str(), stdout.lines().count()), (Some(0), "", 4), "{stdout}");
    }
}
