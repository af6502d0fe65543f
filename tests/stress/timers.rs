//! Timers against the poller, sockets and submissions: none is lost, none is early.

use crate::support::{Random, everywhere, join_all, pair, rounds, share};
use gmp::time::sleep;
use gmp::yield_now;
use gmp::{Runtime, go};
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Fails by a hang when the poller sleeps past a timer that came while the M was on its way into it, or when a break is lost
/// between an M that looks and one that waits.
#[test]
fn timers_events_and_submissions_do_not_hide_each_other() {
    everywhere(|rt| {
        let (mut near, mut far) = pair();
        let pings = rounds(600);
        let server = rt.go(move || {
            let mut byte = [0];
            while near.read(&mut byte).unwrap() == 1 {
                near.write_all(&byte).unwrap();
            }
        });
        let client = rt.go(move || {
            let mut random = Random::new(1);
            for _ in 0..pings {
                far.write_all(&[1]).unwrap();
                far.read_exact(&mut [0]).unwrap();
                sleep(Duration::from_nanos(random.below(150_000)));
            }
        });
        let sleepers: Vec<_> = (2..8)
            .map(|seed| {
                rt.go(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..rounds(600) {
                        sleep(Duration::from_nanos(random.below(300_000)));
                        random.pause(500);
                    }
                })
            })
            .collect();
        let mut random = Random::new(9);
        for round in 0..rounds(1000) {
            assert_eq!(rt.go(move || (yield_now(), round).1).join().unwrap(), round);
            random.pause(5000);
        }
        join_all(sleepers);
        client.join().unwrap();
        server.join().unwrap();
    });
}

/// The only timer is due while the M that would wait for it is elsewhere. Fails by a hang.
#[test]
fn a_single_sleeper_is_never_forgotten() {
    everywhere(|rt| {
        let mut random = Random::new(3);
        for _ in 0..share(60_000, 1) {
            let short = Duration::from_nanos(random.below(20_000));
            let sleeper = rt.go(move || sleep(short));
            random.pause(2000);
            sleeper.join().unwrap();
        }
    });
}

/// Timers come and go on all Ps, beside sockets that become ready and submissions from inside and outside, each of which may
/// end the wait on which the next timer relies. Fails by a hang, and when a sleep ends early.
fn sleeps_beside_polls(rt: &Runtime, total: usize, sleepers: usize) {
    let each = share(total, sleepers);
    let over = Arc::new(AtomicBool::new(false));
    let pings: Vec<_> = (0..2)
        .map(|_| {
            let ((mut near, mut far), over) = (pair(), Arc::clone(&over));
            let answers = rt.go(move || {
                let (mut byte, mut heard) = ([0], 0);
                while near.read(&mut byte).unwrap() == 1 {
                    near.write_all(&byte).unwrap();
                    heard += 1;
                }
                heard
            });
            let asks = rt.go(move || {
                let mut asked = 0;
                while !over.load(SeqCst) {
                    far.write_all(&[1]).unwrap();
                    far.read_exact(&mut [0]).unwrap();
                    asked += 1;
                    sleep(Duration::from_micros(asked % 50));
                }
                asked
            });
            (asks, answers)
        })
        .collect();
    let sleeping: Vec<_> = (0..sleepers)
        .map(|seed| {
            rt.go(move || {
                let mut random = Random::new(seed);
                for _ in 0..each {
                    let short = Duration::from_nanos(random.below(20_000));
                    let start = Instant::now();
                    sleep(short);
                    let slept = start.elapsed();
                    assert!(slept >= short, "slept {slept:?} instead of {short:?}");
                    if random.below(8) == 0 {
                        drop(go(|| ()));
                    }
                    random.pause(50);
                }
            })
        })
        .collect();
    let ran = Arc::new(AtomicUsize::new(0));
    thread::scope(|s| {
        s.spawn(|| {
            let (mut random, mut submitted) = (Random::new(77), 0);
            while !over.load(SeqCst) {
                let count = Arc::clone(&ran);
                rt.go(move || count.fetch_add(1, SeqCst)).join().unwrap();
                submitted += 1;
                assert_eq!(ran.load(SeqCst), submitted);
                random.pause(3000);
            }
        });
        let ended: Vec<_> = sleeping.into_iter().map(|sleeper| sleeper.join()).collect();
        // The other goroutines and the thread end in any case.
        over.store(true, SeqCst);
        ended.into_iter().for_each(|sleeper| sleeper.unwrap());
    });
    for (asks, answers) in pings {
        assert_eq!(asks.join().unwrap(), answers.join().unwrap());
    }
}

/// So few sleepers that the M in the poller waits in between.
#[test]
fn a_few_short_sleeps_meet_sockets_and_submissions() {
    everywhere(|rt| sleeps_beside_polls(rt, 300_000, 6));
}

/// So many sleepers that some are always due.
#[test]
fn many_short_sleeps_meet_sockets_and_submissions() {
    everywhere(|rt| sleeps_beside_polls(rt, 700_000, 150));
}
