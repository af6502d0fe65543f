//! Every ready arm is equally likely, and all are looked at in one snapshot.

use super::share;
use common::crew::{Crew, everyone};
use common::random::{Random, rounds};
use common::{PROCS, runtime, until, watched};
use gmp::chan::{Receiver, Select, Sender, bounded, never, never_sender, tick, unbounded};
use gmp::context::Context;
use gmp::{select, select_biased};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

/// The sum over the arms of (seen - expected)^2 / expected. With up to four degrees of freedom a fair choice exceeds
/// this once in 10^9 times.
const BOUND: f64 = 50.0;

#[track_caller]
fn is_uniform(hits: &[usize], what: &str) {
    let expected = hits.iter().sum::<usize>() as f64 / hits.len() as f64;
    let chi2: f64 = hits.iter().map(|&hits| (hits as f64 - expected).powi(2) / expected).sum();
    assert!(chi2 < BOUND, "{what}: {hits:?}, chi-square {chi2:.1}");
}

fn draws() -> usize {
    rounds(2000)
}

/// An arm that is always ready: one to receive from, or one to send to.
enum Arm {
    Recv(Receiver<usize>, Sender<usize>),
    Send(Sender<usize>, Receiver<usize>),
}

impl Arm {
    fn new(send: bool) -> Self {
        let (s, r) = unbounded();
        match send {
            true => Arm::Send(s, r),
            false => {
                s.send(0).unwrap();
                Arm::Recv(r, s)
            }
        }
    }
}

/// Returns how often each of these arms is chosen, when all are ready.
fn hits(arms: &[Arm]) -> Vec<usize> {
    let mut select = Select::new();
    for arm in arms {
        match arm {
            Arm::Recv(r, _) => select.recv(r),
            Arm::Send(s, _) => select.send(s),
        };
    }
    let mut hits = vec![0; arms.len()];
    for _ in 0..draws() {
        let chosen = select.select();
        let index = chosen.index();
        hits[index] += 1;
        match &arms[index] {
            Arm::Recv(r, s) => {
                chosen.recv(r).unwrap();
                s.send(0).unwrap();
            }
            Arm::Send(s, r) => {
                chosen.send(s, 0).unwrap();
                r.recv().unwrap();
            }
        }
    }
    hits
}

/// Fails if the place of an arm, or its kind, makes it more likely.
#[test]
fn every_ready_arm_is_equally_likely() {
    everyone(|crew| {
        crew.run(|| {
            for count in 2..=5 {
                for (kinds, sends) in
                    [("recv", [false; 5]), ("send", [true; 5]), ("mixed", [true, false, false, true, false])]
                {
                    let arms: Vec<_> = sends[..count].iter().map(|&send| Arm::new(send)).collect();
                    is_uniform(&hits(&arms), kinds);
                }
            }
        });
    });
}

/// Fails if an operation is more likely, or never chosen, after another one was removed, or after a call that found nothing and
/// has locked all channels in their order.
#[test]
fn what_a_select_did_before_favours_no_operation() {
    everyone(|crew| {
        crew.run(|| {
            let channels: Vec<_> = (0..5).map(|_| unbounded()).collect();
            for removes in [None, Some(1), Some(4)] {
                let mut select = Select::new();
                // Not in the order in which the channels were made.
                let numbers = [3, 4, 0, 2, 1].map(|at| (select.recv(&channels[at].1), at));
                assert!(select.try_select().is_err());
                removes.into_iter().for_each(|number| select.remove(number));
                let mut hits = vec![0; 5];
                channels.iter().for_each(|(s, _)| s.send(()).unwrap());
                for _ in 0..draws() {
                    let chosen = select.select();
                    let (number, at) = numbers[chosen.index()];
                    chosen.recv(&channels[at].1).unwrap();
                    channels[at].0.send(()).unwrap();
                    hits[number] += 1;
                }
                removes.into_iter().for_each(|number| assert_eq!(hits.remove(number), 0));
                is_uniform(&hits, "all that are left");
                channels.iter().for_each(|(_, r)| r.recv().unwrap());
            }
        });
    });
}

/// Fails if the macro chooses otherwise, or if arms that are not ready pass their share to a neighbour.
#[test]
fn arms_that_are_not_ready_favour_no_neighbour() {
    everyone(|crew| {
        crew.run(|| {
            let ((s1, r1), (s2, r2), (s3, r3)) = (unbounded(), unbounded(), unbounded());
            let (nothing, nobody) = (never::<usize>(), never_sender::<usize>());
            s1.send(1).unwrap();
            s2.send(2).unwrap();
            let mut hits = [0; 3];
            for _ in 0..draws() {
                select! {
                    recv(nothing) -> _ => unreachable!(),
                    recv(r1) -> value => (s1.send(value.unwrap()).unwrap(), hits[0] += 1).1,
                    send(nobody, 1) -> _ => unreachable!(),
                    recv(nothing) -> _ => unreachable!(),
                    recv(r2) -> value => (s2.send(value.unwrap()).unwrap(), hits[1] += 1).1,
                    send(s3, 3) -> _ => (r3.recv().unwrap(), hits[2] += 1).1,
                }
            }
            is_uniform(&hits, "three of six");
        });
    });
}

/// Fails if a closed channel is chosen more often, or less often, than one that has a value.
#[test]
fn closed_arms_are_as_likely_as_others() {
    everyone(|crew| {
        crew.run(|| {
            let ((s1, r1), (s2, r2), (s3, r3)) = (unbounded(), bounded::<usize>(0), bounded::<usize>(0));
            s1.send(1).unwrap();
            assert!(s2.close() && r3.close());
            let mut hits = [0; 3];
            for _ in 0..draws() {
                select! {
                    recv(r1) -> value => (s1.send(value.unwrap()).unwrap(), hits[0] += 1).1,
                    recv(r2) -> value => (value.unwrap_err(), hits[1] += 1).1,
                    send(s3, 3) -> sent => (assert_eq!(sent.unwrap_err().0, 3), hits[2] += 1).1,
                    default => unreachable!(),
                }
            }
            is_uniform(&hits, "one of them has a value");
        });
    });
}

/// Receives by a `select!` of receives alone: one has a message in a buffer, one has nothing, and `other` is always ready.
fn beside_a_message<T>(other: &Receiver<T>, what: &str) {
    let ((s, r), (_empty, empty)) = (bounded(2), bounded::<usize>(2));
    s.send(1).unwrap();
    let mut hits = [0; 2];
    for _ in 0..draws() {
        select! {
            recv(empty) -> _ => unreachable!(),
            recv(r) -> value => (s.send(value.unwrap()).unwrap(), hits[0] += 1).1,
            recv(other) -> _ => hits[1] += 1,
        }
    }
    is_uniform(&hits, what);
}

/// Fails if a select that looks at its channels without their locks misses an arm that is ready without a message in a buffer.
#[test]
fn what_is_ready_without_a_message_is_as_likely() {
    everyone(|crew| {
        crew.run(|| {
            let (closed, drained) = bounded::<usize>(2);
            closed.send(1).unwrap();
            assert!(closed.close());
            assert_eq!(drained.recv(), Ok(1));
            beside_a_message(&drained, "a closed channel with a buffer");
            let (closed, drained) = bounded::<usize>(0);
            assert!(closed.close());
            beside_a_message(&drained, "a closed channel without a buffer");
            beside_a_message(&tick(Duration::ZERO), "a tick");
            let (context, cancel) = Context::background().with_cancel();
            cancel.cancel();
            beside_a_message(context.done(), "a context that has ended");
        });
    });
}

/// Fails if the order of the arms does not decide.
#[test]
fn a_biased_select_takes_the_first_that_is_ready() {
    everyone(|crew| {
        crew.run(|| {
            let ((s1, r1), (s2, r2), (s3, r3)) = (unbounded(), unbounded(), bounded(1));
            for round in 0..100 {
                s1.send(1).unwrap();
                s2.send(2).unwrap();
                for expected in [1, 2, 3, 4] {
                    let chosen = select_biased! {
                        recv(r1) -> value => value.unwrap(),
                        recv(r2) -> value => value.unwrap(),
                        send(s3, round) -> sent => { sent.unwrap(); 3 }
                        default => 4,
                    };
                    assert_eq!(chosen, expected);
                }
                assert_eq!(r3.recv(), Ok(round));
                s2.send(5).unwrap();
                let mut select = Select::new_biased();
                let indices = [select.recv(&r1), select.recv(&r2), select.send(&s3)];
                let chosen = select.select();
                assert_eq!(chosen.index(), indices[1]);
                assert_eq!(chosen.recv(&r2), Ok(5));
            }
        });
    });
}

/// Moves a value to and fro, so that at each moment one of two channels or both hold it, while `look` looks at both once.
fn moved_meanwhile(crew: &Crew<'_>, look: fn([&Receiver<usize>; 2]) -> bool) {
    let rounds = share(1300, 1);
    let turn = Arc::new(AtomicUsize::new(0));
    let (mover_turn, looker_turn) = (Arc::clone(&turn), turn);
    let channels = [unbounded(), unbounded()];
    let looked = [channels[0].1.clone(), channels[1].1.clone()];
    let mover = crew.go(move || {
        for round in 0..rounds {
            channels.iter().for_each(|(_, r)| r.try_iter().for_each(drop));
            channels[0].0.send(round).unwrap();
            mover_turn.store(2 * round + 1, SeqCst);
            until(|| {
                for (from, to) in [(0, 1), (1, 0), (0, 1), (1, 0)] {
                    channels[to].0.send(round).unwrap();
                    // This takes nothing if the looker has taken the value.
                    let _taken = channels[from].1.try_recv();
                }
                mover_turn.load(SeqCst) == 2 * round + 2
            });
        }
    });
    let looker = crew.go(move || {
        let mut random = Random::new(2);
        for round in 0..rounds {
            until(|| looker_turn.load(SeqCst) == 2 * round + 1);
            random.pause(60);
            assert!(look([&looked[0], &looked[1]]), "round {round}: one of the two is never empty");
            looker_turn.store(2 * round + 2, SeqCst);
        }
    });
    mover.join();
    looker.join();
}

/// Fails if the select checks the arms one after the other: `default` is taken though the channels were never both empty.
#[test]
fn a_select_sees_all_its_channels_at_one_moment() {
    everyone(|crew| {
        moved_meanwhile(crew, |[a, b]| {
            select! {
                recv(a) -> value => value.is_ok(),
                recv(b) -> value => value.is_ok(),
                default => false,
            }
        });
    });
}

/// As above, for `try_ready`, which takes nothing.
#[test]
fn try_ready_sees_all_its_channels_at_one_moment() {
    everyone(|crew| {
        moved_meanwhile(crew, |[a, b]| {
            let mut select = Select::new();
            select.recv(a);
            select.recv(b);
            select.try_ready().is_ok()
        });
    });
}

/// Receives from one channel by three arms, and counts which is chosen; the select waits for the sender each time.
fn hits_of_receives<const WORDS: usize>() -> [usize; 3] {
    let (s, r) = bounded::<[usize; WORDS]>(0);
    let sender = gmp::go(move || {
        for number in 0..draws() {
            gmp::yield_now();
            s.send([number; WORDS]).unwrap();
        }
    });
    let mut hits = [0; 3];
    for number in 0..draws() {
        let (arm, got) = select! {
            recv(r) -> got => (0, got),
            recv(r) -> got => (1, got),
            recv(r) -> got => (2, got),
        };
        assert_eq!(got, Ok([number; WORDS]));
        hits[arm] += 1;
    }
    sender.join().unwrap();
    hits
}

/// Sends to one channel by three arms, each with a message of its own, and counts what arrives.
fn hits_of_sends() -> [usize; 3] {
    let (s, r) = bounded(0);
    let receiver = gmp::go(move || {
        let mut hits = [0; 3];
        for arm in r {
            hits[arm] += 1_usize;
            gmp::yield_now();
        }
        hits
    });
    for _ in 0..draws() {
        let (arm, sent) = select! {
            send(s, 0) -> sent => (0, sent),
            send(s, 1) -> sent => (1, sent),
            send(s, 2) -> sent => (2, sent),
        };
        assert_eq!(sent, Ok(()), "arm {arm}");
    }
    drop(s);
    receiver.join().unwrap()
}

/// As `hits_of_receives`, but only asks which arm is ready.
fn hits_of_watches() -> [usize; 3] {
    let (s, r) = bounded(0);
    let sender = gmp::go(move || {
        for number in 0..draws() {
            gmp::yield_now();
            s.send(number).unwrap();
        }
    });
    let mut hits = [0; 3];
    for number in 0..draws() {
        let mut watch = Select::new();
        for _ in 0..3 {
            watch.recv(&r);
        }
        hits[watch.ready()] += 1;
        assert_eq!(r.recv(), Ok(number));
    }
    sender.join().unwrap();
    hits
}

/// Fails if the first of the arms gets all messages that come while the select waits, or if the message is not that of the
/// chosen arm.
#[test]
fn of_several_arms_on_one_channel_a_select_that_waits_takes_any() {
    for procs in PROCS {
        watched(procs, || {
            runtime(procs).run(|| {
                is_uniform(&hits_of_receives::<1>(), "receives");
                is_uniform(&hits_of_receives::<20>(), "receives of large messages");
                is_uniform(&hits_of_sends(), "sends");
                is_uniform(&hits_of_watches(), "watches");
            });
        });
    }
}

/// Fails if the first ready arm is not chosen after the select has waited.
#[test]
fn of_several_arms_on_one_channel_a_biased_select_takes_the_first() {
    watched(1, || {
        runtime(1).run(|| {
            let (s, r) = bounded(0);
            let sender = gmp::go(move || {
                (0..100).for_each(|_| {
                    gmp::yield_now();
                    s.send(()).unwrap();
                });
            });
            for _ in 0..100 {
                select_biased! {
                    recv(r) -> got => assert_eq!(got, Ok(())),
                    recv(r) -> _ => unreachable!("the second arm"),
                }
            }
            sender.join().unwrap();
        });
    });
}
