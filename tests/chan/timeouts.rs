//! Limits on a wait, and the channels that are timers.

use crate::{every_kind, share};
use common::crew::{each, everyone, join_all};
use common::probe::Probe;
use common::random::Random;
use gmp::chan::{
    RecvTimeoutError, SendTimeoutError, TryRecvError, after, at, bounded, never, tick, unbounded,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SHORT_LIMIT: Duration = Duration::from_millis(3);
/// Much later than any machine is late.
const LATE: Duration = Duration::from_secs(20);

/// A channel for a time that has passed tells that time. Fails when it tells another one, because the time lies before the
/// process first read the clock.
#[test]
fn a_time_of_the_past_is_told_as_it_is() {
    everyone(|crew| {
        crew.run(|| {
            let now = Instant::now();
            for ago in [1, 60, 1_000_000, 3_000_000_000] {
                let when = now.checked_sub(Duration::from_secs(ago)).unwrap();
                assert_eq!(at(when).recv(), Ok(when));
                assert_eq!(at(when).try_recv(), Ok(when));
            }
        });
    });
}

#[track_caller]
fn in_time(start: Instant, least: Duration) {
    let took = start.elapsed();
    assert!((least..LATE).contains(&took), "{took:?}");
}

/// Fails if a wait ends before its limit, or if a send that times out does not return its value.
#[test]
fn a_limit_is_kept_and_the_value_comes_back() {
    everyone(|crew| {
        crew.run(|| {
            for (s, r) in every_kind::<u8>() {
                let start = Instant::now();
                assert_eq!(r.recv_timeout(SHORT_LIMIT), Err(RecvTimeoutError::Timeout));
                in_time(start, SHORT_LIMIT);
                let start = Instant::now();
                assert_eq!(r.recv_deadline(start + SHORT_LIMIT), Err(RecvTimeoutError::Timeout));
                in_time(start, SHORT_LIMIT);
                let Some(capacity) = s.capacity() else { continue };
                (0..capacity).for_each(|_| s.send(0).unwrap());
                let start = Instant::now();
                assert_eq!(s.send_timeout(7, SHORT_LIMIT), Err(SendTimeoutError::Timeout(7)));
                in_time(start, SHORT_LIMIT);
                let start = Instant::now();
                assert_eq!(s.send_deadline(7, start + SHORT_LIMIT), Err(SendTimeoutError::Timeout(7)));
                in_time(start, SHORT_LIMIT);
                assert_eq!(r.try_iter().count(), capacity);
            }
        });
    });
}

/// Fails if a limit that has passed hides a message that is there, or the furthest limit overflows.
#[test]
fn a_limit_of_nothing_and_one_of_everything() {
    everyone(|crew| {
        crew.run(|| {
            let past = Instant::now();
            for (s, r) in [bounded(1), bounded(9), unbounded()] {
                assert_eq!(s.send_timeout(1, Duration::ZERO), Ok(()));
                assert_eq!(r.recv_timeout(Duration::ZERO), Ok(1));
                assert_eq!(s.send_deadline(2, past), Ok(()));
                assert_eq!(r.recv_deadline(past), Ok(2));
                assert_eq!(r.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Timeout));
                assert_eq!(r.recv_deadline(past), Err(RecvTimeoutError::Timeout));
            }
        });
        for (s, r) in every_kind() {
            let receiver = crew.go(move || r.recv_timeout(Duration::MAX));
            assert_eq!(crew.run(move || s.send_timeout(1, Duration::MAX)), Ok(()));
            assert_eq!(receiver.join(), Ok(1));
        }
    });
}

/// The time is up just when the other side comes. Fails when both sides have the value, or neither.
#[test]
fn a_value_that_meets_its_limit_is_on_one_side() {
    everyone(|crew| {
        for (kind, (s, r)) in every_kind().into_iter().enumerate() {
            let rounds = share(10_000, 4);
            let drops = Arc::new(AtomicUsize::new(0));
            let theirs = Arc::clone(&drops);
            let senders = each(crew, 2, move |me| {
                let mut random = Random::new(2 * kind + me);
                let sends = (0..rounds).filter(|_| {
                    random.pause(100);
                    let limit = Duration::from_nanos(random.below(60_000));
                    s.send_timeout(Probe(Arc::clone(&theirs)), limit).is_ok()
                });
                sends.count()
            });
            let receivers = each(crew, 2, move |me| {
                let mut random = Random::new(20 + 2 * kind + me);
                let mut received = 0;
                loop {
                    random.pause(100);
                    match r.recv_timeout(Duration::from_nanos(random.below(60_000))) {
                        Ok(_) => received += 1,
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return received,
                    }
                }
            });
            let sent: usize = join_all(senders).into_iter().sum();
            assert_eq!(join_all(receivers).into_iter().sum::<usize>(), sent);
            assert_eq!(drops.load(SeqCst), 2 * rounds);
        }
    });
}

/// Fails if an alarm comes early, twice, or with another time than the one that was set.
#[test]
fn an_alarm_comes_once() {
    everyone(|crew| {
        crew.run(|| {
            let start = Instant::now();
            let early = after(LATE);
            assert_eq!((early.try_recv(), early.len()), (Err(TryRecvError::Empty), 0));
            let alarm = after(SHORT_LIMIT);
            let twin = alarm.clone();
            let due = alarm.recv().unwrap();
            in_time(start, SHORT_LIMIT);
            assert!((start + SHORT_LIMIT..=Instant::now()).contains(&due));
            // A clone shares the one message.
            assert_eq!(twin.recv_timeout(SHORT_LIMIT), Err(RecvTimeoutError::Timeout));
            let due = Instant::now() + SHORT_LIMIT;
            let alarm = at(due);
            assert_eq!(alarm.recv_timeout(LATE), Ok(due));
            assert_eq!(alarm.try_recv(), Err(TryRecvError::Empty));
            let past = at(start);
            assert_eq!((past.len(), past.try_recv(), past.len()), (1, Ok(start), 0));
            assert!(after(Duration::ZERO).recv().is_ok());
            assert_eq!(after(Duration::MAX).recv_timeout(SHORT_LIMIT), Err(RecvTimeoutError::Timeout));
            assert_eq!(never::<u8>().recv_deadline(start + SHORT_LIMIT), Err(RecvTimeoutError::Timeout));
        });
    });
}

/// Fails if two waiters for one alarm get it, or none does.
#[test]
fn an_alarm_is_for_one_of_the_waiters() {
    everyone(|crew| {
        for _ in 0..share(400, 1) {
            let alarm = after(Duration::from_micros(300));
            let waiters = each(crew, 3, move |_| alarm.recv_timeout(20 * SHORT_LIMIT).is_ok());
            assert_eq!(join_all(waiters).into_iter().filter(|&got| got).count(), 1);
        }
    });
}

/// Fails if ticks pile up while no member receives, or come before their time.
#[test]
fn ticks_keep_their_distance_and_do_not_pile_up() {
    everyone(|crew| {
        crew.run(|| {
            let start = Instant::now();
            let ticks = tick(SHORT_LIMIT);
            let mut last = start;
            for number in 1..5 {
                let due = ticks.recv().unwrap();
                assert!(due >= last + SHORT_LIMIT || number == 1 && due >= start + SHORT_LIMIT);
                in_time(start, number * SHORT_LIMIT);
                last = due;
            }
            gmp::time::sleep(4 * SHORT_LIMIT);
            assert_eq!(ticks.len(), 1);
            assert!(ticks.try_recv().is_ok());
        });
    });
}
