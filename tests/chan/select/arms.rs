//! What a select may contain: one channel twice, both its halves, disabled ones, defaults.

use super::share;
use common::crew::{each, everyone, join_all};
use common::random::Random;
use common::until;
use gmp::chan::{Receiver, RecvError, SendError, Sender, after, bounded, never, never_sender, unbounded};
use gmp::select;
use std::time::{Duration, Instant};

const SHORT_LIMIT: Duration = Duration::from_millis(3);
/// No test waits for it to pass.
const LONG: Duration = Duration::from_secs(3600);

/// Fails if only one of the two is ever chosen, or a value is taken by both.
#[test]
fn the_same_channel_may_stand_twice() {
    everyone(|crew| {
        for (s, r) in [bounded(0), bounded(1), unbounded()] {
            let rounds = share(20_000, 3).max(100);
            let sender = crew.go(move || {
                let mut hits = [0; 2];
                for message in 0..rounds {
                    select! {
                        send(s, message) -> sent => (sent.unwrap(), hits[0] += 1).1,
                        send(s, message) -> sent => (sent.unwrap(), hits[1] += 1).1,
                    }
                }
                hits
            });
            let receiver = crew.go(move || {
                let mut hits = [0; 2];
                for message in 0..rounds {
                    select! {
                        recv(r) -> got => (assert_eq!(got, Ok(message)), hits[0] += 1).1,
                        recv(r) -> got => (assert_eq!(got, Ok(message)), hits[1] += 1).1,
                    }
                }
                assert_eq!(r.recv(), Err(RecvError));
                hits
            });
            for side in [sender, receiver] {
                let hits = side.join();
                assert_eq!(hits[0] + hits[1], rounds);
                // A waiter may be found in the first of its places each time, so one of the two counts may be zero.
            }
        }
    });
}

/// Fails if a select meets itself: a message would go from one of its arms to another.
#[test]
fn a_select_does_not_meet_itself() {
    everyone(|crew| {
        crew.run(|| {
            let (s, r) = bounded(0);
            for _ in 0..100 {
                select! {
                    send(s, 1) -> _ => unreachable!(),
                    recv(r) -> _ => unreachable!(),
                    default => {}
                }
            }
            let start = Instant::now();
            select! {
                send(s, 1) -> _ => unreachable!(),
                recv(r) -> _ => unreachable!(),
                default(SHORT_LIMIT) => assert!(start.elapsed() >= SHORT_LIMIT),
            }
        });
    });
}

/// Fails if a select over both halves of a buffer chooses the half that is not ready, or finds neither ready.
#[test]
fn both_halves_of_one_channel_may_stand_in_one_select() {
    everyone(|crew| {
        crew.run(|| {
            let (s, r) = bounded(1);
            for round in 0..200 {
                for received in [false, true] {
                    let chosen = select! {
                        send(s, round) -> sent => (sent.unwrap(), false).1,
                        recv(r) -> got => (assert_eq!(got, Ok(round)), true).1,
                    };
                    assert_eq!(chosen, received);
                }
            }
        });
    });
}

/// All members offer and receive at once on one channel. Fails by a hang, or when a message is lost.
#[test]
fn members_that_send_and_receive_at_once_meet_each_other() {
    everyone(|crew| {
        for cap in [0, 1] {
            let (s, r) = bounded(cap);
            let rounds = share(20_000, 4);
            let last = s.clone();
            let left = r.clone();
            let players = each(crew, 4, move |me| {
                let mut random = Random::new(me);
                let (mut sent, mut got) = (Vec::new(), Vec::new());
                for round in 0..rounds {
                    random.pause(30);
                    let message = 4 * round + me;
                    select! {
                        send(s, message) -> result => if result.is_ok() { sent.push(message) },
                        recv(r) -> message => got.extend(message),
                        // The last operation finds no partner.
                        default(SHORT_LIMIT) => {}
                    }
                }
                (sent, got)
            });
            let (sent, got): (Vec<_>, Vec<_>) = join_all(players).into_iter().unzip();
            assert!(last.close());
            let (mut sent, mut got) = (sent.concat(), got.concat());
            got.extend(left.iter());
            sent.sort_unstable();
            got.sort_unstable();
            assert_eq!(sent, got);
        }
    });
}

/// A message that must not be evaluated.
fn not_made() -> u8 {
    unreachable!()
}

/// Fails if a disabled arm is chosen, or keeps the others from it.
#[test]
fn disabled_arms_are_never_chosen() {
    everyone(|crew| {
        let (s, r) = bounded(0);
        let sender = crew.go(move || (0..100).for_each(|message| s.send(message).unwrap()));
        crew.run(move || {
            let (nothing, nobody): (Receiver<u8>, Sender<u8>) = (never(), never_sender());
            for expected in 0..100 {
                select! {
                    recv(nothing) -> _ => unreachable!(),
                    send(nobody, not_made()) -> _ => unreachable!(),
                    recv(r) -> got => assert_eq!(got, Ok(expected)),
                }
            }
            let start = Instant::now();
            select! {
                recv(nothing) -> _ => unreachable!(),
                send(nobody, 1) -> _ => unreachable!(),
                default(SHORT_LIMIT) => assert!(start.elapsed() >= SHORT_LIMIT),
            }
            let choose = |r: Option<&Receiver<i32>>| {
                select! {
                    recv(r.unwrap_or(&never())) -> _ => true,
                    default => false,
                }
            };
            assert!(!choose(None));
            // Ready as soon as the sender is gone.
            until(|| choose(Some(&r)));
        });
        sender.join();
    });
}

/// Fails if a default is taken although an arm is ready, if it waits, or if it comes before its time.
#[test]
fn defaults_are_for_when_nothing_is_ready() {
    everyone(|crew| {
        crew.run(|| {
            let (s, r) = bounded(1);
            for round in 0..100 {
                assert!(select! { recv(r) -> _ => false, default => true });
                assert!(select! { recv(r) -> _ => false, recv(r) -> _ => false, default() => true });
                assert!(select! { send(s, round) -> sent => sent.is_ok(), default => false });
                assert!(select! { send(s, round) -> _ => false, default => true });
                assert!(select! { send(s, round) -> _ => false, send(s, 2) -> _ => false, default => true });
                assert!(select! { recv(r) -> got => got == Ok(round), default(LONG) => false });
                assert!(select! { recv(r) -> _ => false, default(Duration::ZERO) => true });
            }
            assert_eq!(select! { default => 5 }, 5);
            let start = Instant::now();
            assert_eq!(select! { default(SHORT_LIMIT) => 6 }, 6);
            assert!(select! { recv(r) -> _ => false, default(SHORT_LIMIT) => true });
            assert!(start.elapsed() >= 2 * SHORT_LIMIT);
            assert!(select! { recv(after(SHORT_LIMIT)) -> due => due.is_ok(), recv(r) -> _ => false });
        });
    });
}

/// Fails if the value of a select with a limit is lost when the time is up just as the other side comes.
#[test]
fn a_limit_that_meets_a_value_loses_nothing() {
    everyone(|crew| {
        let (s, r) = bounded(0);
        let rounds = share(20_000, 1);
        let sender = crew.go(move || {
            let mut random = Random::new(1);
            let sent = (0..rounds).filter(|&round| {
                select! {
                    send(s, round) -> sent => sent.is_ok(),
                    default(Duration::from_nanos(random.below(80_000))) => false,
                }
            });
            sent.collect::<Vec<_>>()
        });
        let receiver = crew.go(move || {
            let mut random = Random::new(2);
            let mut got = Vec::new();
            let idle = never::<()>();
            loop {
                select! {
                    recv(r) -> message => match message {
                        Ok(message) => got.push(message),
                        Err(RecvError) => return got,
                    },
                    recv(idle) -> _ => unreachable!(),
                    default(Duration::from_nanos(random.below(80_000))) => {}
                }
            }
        });
        assert_eq!(sender.join(), receiver.join());
    });
}

/// Fails by a hang, when a message is lost, or when an error comes before the buffered messages.
#[test]
fn a_close_wakes_waiters_in_a_select() {
    everyone(|crew| {
        for _ in 0..share(1000, 2) {
            let ((full, rest), (s, r)) = (bounded(1), bounded::<u8>(0));
            full.send(1).unwrap();
            let (s_clone, full_clone, r_clone) = (s.clone(), full.clone(), r.clone());
            let receiver = crew.go(move || {
                let idle = never::<u8>();
                select! { recv(r_clone) -> got => got, recv(idle) -> _ => unreachable!() }
            });
            receiver.until_it_waits();
            let sender = crew.go(move || {
                let nobody = never_sender();
                select! { send(full_clone, 2) -> sent => sent, send(nobody, 3) -> _ => unreachable!() }
            });
            sender.until_it_waits();
            assert!(s_clone.close() && rest.close());
            assert_eq!((receiver.join(), sender.join()), (Err(RecvError), Err(SendError(2))));
            assert_eq!(
                select! { recv(rest) -> got => got, recv(never::<u8>()) -> _ => unreachable!() },
                Ok(1)
            );
            assert_eq!(select! { recv(rest) -> got => got, default => unreachable!() }, Err(RecvError));
            assert_eq!(
                select! { send(full, 4) -> sent => sent, default => unreachable!() },
                Err(SendError(4))
            );
        }
    });
}

/// A close comes while the select goes from one queue to the next. Fails by a hang, or by a wrong result.
#[test]
fn a_close_that_meets_a_select_on_its_way_ends_it() {
    everyone(|crew| {
        for round in 0..share(20_000, 1) {
            let [(s1, r1), (s2, r2)] = [bounded::<usize>(0), bounded(0)];
            let (closer, sender) = (s1.clone(), s2.clone());
            let waiter = crew.go(move || {
                Random::new(round).pause(80);
                select! {
                    recv(r1) -> got => got.is_err(),
                    send(s2, round) -> sent => sent == Err(SendError(round)),
                }
            });
            Random::new(round + 1).pause(80);
            assert!(if round % 2 == 0 { closer.close() } else { sender.close() });
            assert!(waiter.join());
            drop((s1, r2));
        }
    });
}
