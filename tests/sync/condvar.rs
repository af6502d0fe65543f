//! `Condvar`.

use crate::support::{cast, rounds, with_every_cast};
use common::{everywhere, until};
use gmp::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Fails by a hang when a notification is lost between the check and the wait, or by a count.
#[test]
fn what_is_put_is_taken() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(10_000);
        let shared = Arc::new((Mutex::new(VecDeque::new()), Condvar::new(), Condvar::new()));
        let taken = Arc::new(AtomicUsize::new(0));
        let (theirs, takes) = (Arc::clone(&shared), Arc::clone(&taken));
        cast(rt, goroutines, threads, move |number| {
            let (queue, filled, emptied) = &*theirs;
            for round in 0..rounds {
                let mut queue = queue.lock();
                if number % 2 == 0 {
                    emptied.wait_while(&mut queue, |queue| queue.len() >= 4);
                    queue.push_back(round);
                    filled.notify_one();
                } else {
                    while queue.is_empty() {
                        if round % 2 == 0 {
                            filled.wait(&mut queue);
                        } else {
                            let _result = filled.wait_for(&mut queue, Duration::from_micros(20));
                        }
                    }
                    queue.pop_front().unwrap();
                    takes.fetch_add(1, SeqCst);
                    emptied.notify_one();
                }
            }
        });
        assert_eq!(taken.load(SeqCst), (goroutines + threads) / 2 * rounds);
    });
}

/// Each waiter is notified when the one before has gone on. Fails by the order when one overtakes another.
#[test]
fn waiters_are_woken_in_the_order_in_which_they_came() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new((0, Vec::new())), Condvar::new()));
        let mut waiters = Vec::new();
        for number in 0..6 {
            let theirs = Arc::clone(&shared);
            let waits = move || {
                let (state, changed) = &*theirs;
                let mut state = state.lock();
                state.0 += 1;
                changed.wait(&mut state);
                state.1.push(number);
            };
            waiters.push(if number % 2 == 0 { Ok(rt.go(waits)) } else { Err(std::thread::spawn(waits)) });
            // A waiter counts itself under the mutex, and holds the mutex until it waits.
            until(|| shared.0.lock().0 == number + 1);
        }
        for number in 0..6 {
            assert!(shared.1.notify_one());
            until(|| shared.0.lock().1.len() == number + 1);
        }
        assert!(!shared.1.notify_one());
        for waiter in waiters {
            match waiter {
                Ok(goroutine) => goroutine.join().unwrap(),
                Err(thread) => thread.join().unwrap(),
            }
        }
        assert_eq!(shared.0.lock().1, [0, 1, 2, 3, 4, 5]);
    });
}

/// Fails by a count when a waiter goes on without a notification, or a later one takes another's.
#[test]
fn as_many_go_on_as_were_notified() {
    everywhere(|rt| {
        const WAITERS: usize = 20;
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let woken = Arc::new(AtomicUsize::new(0));
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let (theirs, woken) = (Arc::clone(&shared), Arc::clone(&woken));
                rt.go(move || {
                    let mut count = theirs.0.lock();
                    *count += 1;
                    theirs.1.wait(&mut count);
                    woken.fetch_add(1, SeqCst);
                })
            })
            .collect();
        until(|| *shared.0.lock() == WAITERS);
        for number in 1..=7 {
            assert!(shared.1.notify_one());
            until(|| woken.load(SeqCst) == number);
        }
        for _ in 0..200 {
            gmp::yield_now();
        }
        assert_eq!(woken.load(SeqCst), 7);
        assert_eq!(shared.1.notify_all(), WAITERS - 7);
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(shared.1.notify_all(), 0);
    });
}

/// Fails when a wait tells a wrong result, or ends before its limit.
#[test]
fn a_limit_is_kept_and_told() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let tries = |shared: &(Mutex<i32>, Condvar)| {
            let (lock, changed) = shared;
            let start = Instant::now();
            let mut guard = lock.lock();
            assert!(changed.wait_for(&mut guard, 2 * MS).timed_out());
            assert!(changed.wait_until(&mut guard, start + 4 * MS).timed_out());
            assert!(start.elapsed() >= 4 * MS);
            assert!(changed.wait_while_for(&mut guard, |_| true, MS).timed_out());
            assert!(!changed.wait_while_for(&mut guard, |_| false, MS).timed_out());
            // There is no notifier: each wait ends by its limit, after which the condition decides.
            for still in [true, false] {
                let mut calls = 0;
                let condition = |_: &mut _| {
                    calls += 1;
                    calls == 1 || still
                };
                let result = changed.wait_while_for(&mut guard, condition, MS);
                assert_eq!(
                    (result.timed_out(), calls),
                    (still, 2),
                    "not asked once before the wait and once after its limit"
                );
            }
            assert!(changed.wait_while_until(&mut guard, |_| true, start).timed_out());
            assert!(lock.is_locked());
        };
        let theirs = Arc::clone(&shared);
        rt.go(move || tries(&theirs)).join().unwrap();
        tries(&shared);
        assert!(!shared.0.is_locked());
    });
}

/// Fails if the call does not panic, or leaves anything locked.
#[test]
fn a_second_mutex_is_refused() {
    everywhere(|rt| {
        let shared = Arc::new((Mutex::new(0), Condvar::new(), Mutex::new(0)));
        let theirs = Arc::clone(&shared);
        let first = rt.go(move || {
            let mut count = theirs.0.lock();
            *count += 1;
            theirs.1.wait(&mut count);
        });
        until(|| *shared.0.lock() == 1);
        let theirs = Arc::clone(&shared);
        let second = rt.go(move || theirs.1.wait(&mut theirs.2.lock()));
        assert!(second.join().unwrap_err().is_panic());
        assert!(shared.2.try_lock().is_some());
        assert!(shared.1.notify_one());
        first.join().unwrap();
        // No member waits, so another mutex may be used.
        assert!(shared.1.wait_for(&mut shared.2.lock(), MS).timed_out());
    });
}

/// Fails by the text, which is `parking_lot`'s.
#[test]
fn a_condition_shows_nothing_of_itself() {
    assert_eq!(
        format!("{:?}|{:22?}|", Condvar::new(), Condvar::new()),
        "Condvar { .. }|Condvar { .. }        |"
    );
}
