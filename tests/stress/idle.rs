//! Submissions from outside against a runtime that is on its way to sleep.

use crate::support::{Random, everywhere, pair, share, spin};
use common::until;
use gmp::Runtime;
use gmp::sync::Event;
use gmp::time::sleep;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// A goroutine is submitted from outside when the last M goes idle, or is on its way into the poller, or out of it. Fails by a
/// hang.
#[test]
fn a_submission_meets_a_runtime_that_is_just_going_idle() {
    everywhere(|rt| {
        let each = share(300_000, 2);
        thread::scope(|s| {
            for seed in 0..2 {
                s.spawn(move || {
                    let mut random = Random::new(seed);
                    for round in 0..each {
                        let submitted = rt.go(move || round);
                        random.pause(1000);
                        assert_eq!(submitted.join().unwrap(), round);
                        random.pause(1000);
                    }
                });
            }
        });
    });
}

/// The work of a goroutine after it was seen to run. So the next submission can come before its M looks for work, and at each
/// later step of going to sleep.
const TAIL: u64 = 120;

/// Submits from one thread, with no other that could repair a lost wake-up. Fails by a hang.
fn submits_one_by_one(rt: &Runtime, total: usize, most: u64) {
    let (mut random, ran) = (Random::new(5), Arc::new(AtomicUsize::new(0)));
    for round in 1..=share(total, 1) {
        let (count, tail) = (Arc::clone(&ran), random.below(TAIL));
        drop(rt.go(move || {
            count.fetch_add(1, SeqCst);
            spin(tail);
        }));
        until(|| ran.load(SeqCst) == round);
        // In every other round little more than the tail comes before the next submission.
        random.pause(if round % 2 == 0 { most } else { 10 });
    }
}

/// The runtime's Ms sleep on their notes and in the poller, without a limit of time.
#[test]
fn a_single_submission_is_never_forgotten() {
    everywhere(|rt| {
        submits_one_by_one(rt, 200_000, 1000);
        // The runtime has come to rest in most of these rounds.
        submits_one_by_one(rt, 40_000, 20_000);
    });
}

/// The M in the poller waits until a time, and for a socket.
#[test]
fn a_single_submission_is_not_hidden_by_a_timer_and_a_socket() {
    everywhere(|rt| {
        drop(rt.go(|| sleep(Duration::from_secs(3600))));
        let (mut near, far) = pair();
        let reader = rt.go(move || near.read(&mut [0]));
        submits_one_by_one(rt, 200_000, 1000);
        drop(far);
        assert_eq!(reader.join().unwrap().unwrap(), 0);
    });
}

/// The last goroutine parks, and its M goes to sleep, while a thread readies the goroutine. Fails by a hang.
#[test]
fn the_last_goroutine_to_park_is_woken_from_outside() {
    everywhere(|rt| {
        let each = share(300_000, 1);
        let (wake, woken) = (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)));
        let sleeper = rt.go({
            let (wake, woken) = (Arc::clone(&wake), Arc::clone(&woken));
            move || {
                let mut random = Random::new(7);
                for _ in 0..each {
                    wake.wait();
                    woken.fetch_add(1, SeqCst);
                    spin(random.below(TAIL));
                }
            }
        });
        let mut random = Random::new(6);
        for round in 1..=each {
            wake.notify_one();
            until(|| woken.load(SeqCst) >= round);
            assert_eq!(woken.load(SeqCst), round, "one notification has ended two waits");
            random.pause(if round % 2 == 0 { 1000 } else { 10 });
        }
        sleeper.join().unwrap();
    });
}
