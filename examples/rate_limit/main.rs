//! Requests at a limited rate: how many pass at once, how long the others wait, and that a caller that gives up takes no
//! tokens.
//!
//! cargo run --release --example rate_limit
//!
//! a burst: 5 of 8 requests at once
//! 20 requests at 3 in 10 ms: in order, after 67 ms
//! a timeout: gave up after 1 ms, and 0 are left in the queue
//! a reservation: in 3332 µs; given back, it goes to the next
//!
//! The limiter (`limiter.rs`) is made of public calls only, and belongs to no runtime: copy it. The program checks its results:
//! the status is 1 if one is wrong.

mod limiter;

use gmp::time;
use limiter::{Limiter, Rate};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const RATE: Rate = Rate { tokens: 3, period: Duration::from_millis(10) };
const NEVER: Rate = Rate { tokens: 1, period: Duration::from_secs(3600) };

fn check(what: bool, text: &str) -> Result<(), String> {
    if what { Ok(()) } else { Err(text.to_owned()) }
}

fn burst() -> Result<(), String> {
    let limiter = Limiter::new(NEVER, 5);
    let allowed = (0..8).filter(|_| limiter.allow(1)).count();
    println!("a burst: {allowed} of 8 requests at once");
    check(allowed == 5, "the bucket had room for 5")
}

fn at_the_rate() -> Result<(), String> {
    let limiter = Limiter::new(RATE, 1);
    let begin = Instant::now();
    limiter.wait(1);
    gmp::scope(|scope| {
        for _ in 0..20 {
            scope.go(|| limiter.wait(1));
        }
    });
    let time = begin.elapsed();
    println!("20 requests at 3 in 10 ms: after {} ms", time.as_millis());
    check(time >= Duration::from_nanos(20 * 10_000_000 / 3), "they were let through too early")
}

fn giving_up() -> Result<(), String> {
    let limiter = Limiter::new(NEVER, 1);
    let first = limiter.allow(1);
    let given_up = time::timeout(Duration::from_millis(1), || limiter.wait(1)).is_err();
    let left = limiter.waiting();
    println!("a timeout: gave up after 1 ms, and {left} are left in the queue");
    check(first && given_up && left == 0, "the wait was not ended")
}

fn reserved() -> Result<(), String> {
    let limiter = Limiter::new(RATE, 1);
    let (now, later) = (limiter.reserve(1), limiter.reserve(1));
    let (Some(now), Some(later)) = (now, later) else { return Err("nobody waits".to_owned()) };
    let delay = later.delay;
    limiter.cancel(later);
    let again = limiter.reserve(1).map(|again| again.delay);
    println!("a reservation: in {} µs; given back, it goes to the next", delay.as_micros());
    check(now.delay.is_zero() && delay <= Duration::from_nanos(3_333_334), "the tokens come too late")?;
    check(again.is_some_and(|again| again <= delay), "what was given back is lost")
}

fn main() -> ExitCode {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call (see `gmp::migration`).
    match unsafe {
        gmp::run(|| burst().and_then(|()| at_the_rate()).and_then(|()| giving_up()).and_then(|()| reserved()))
    } {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("rate_limit: {wrong}");
            ExitCode::FAILURE
        }
    }
}
