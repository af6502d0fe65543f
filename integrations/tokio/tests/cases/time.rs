use crate::support::{MINUTE, MS, everywhere, many, tid};
use std::future::pending;
use std::time::Instant;
use tokio::time::{MissedTickBehavior, interval, sleep, sleep_until, timeout};

/// Fails if the context exists only during a poll, since a timer needs it when it is made; if a timer is lost when its
/// goroutine goes on on another thread; or if no goroutine here migrates.
#[test]
fn a_sleep_is_made_before_the_first_poll_and_its_goroutine_wanders() {
    everywhere(|| {
        let wandered = many(20, |n| {
            let (start, before) = (Instant::now(), tid());
            gmp::block_on(sleep(MS * n as u32));
            gmp::block_on(sleep_until(tokio::time::Instant::now() + MS));
            gmp_tokio::run(sleep(MS));
            assert!(start.elapsed() >= MS * (n as u32 + 2));
            before != tid()
        });
        assert!(wandered.contains(&true));
    });
}

/// Fails if a limit does not end a wait, or ends one whose future is ready.
#[test]
fn a_timeout_ends_what_never_comes_and_no_other() {
    everywhere(|| {
        many(20, |n| {
            assert!(gmp::block_on(timeout(MS, pending::<()>())).is_err());
            assert_eq!(gmp::block_on(timeout(MINUTE, async { n })), Ok(n));
            let slept = gmp::block_on(timeout(MINUTE, sleep(MS)));
            assert_eq!(slept, Ok(()));
            assert!(gmp_tokio::run(timeout(MS, pending::<()>())).is_err());
        });
    });
}

/// Fails if a tick is early, or is lost between two `block_on`s on different threads.
#[test]
fn an_interval_ticks_from_one_block_on_to_the_next() {
    everywhere(|| {
        many(10, |_| {
            let mut ticks = interval(MS * 2);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            let start = Instant::now();
            for n in 0..5 {
                gmp::block_on(ticks.tick());
                assert!(start.elapsed() >= MS * 2 * n);
                gmp::yield_now();
            }
        });
    });
}
