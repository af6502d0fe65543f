//! Selects that meet selects.

use super::share;
use common::crew::{each, everyone, join_all};
use common::random::Random;
use gmp::chan::{Select, bounded, never};
use gmp::select;

/// Both sides wait in several queues, in opposite order, and each may be claimed while it claims. Fails by a deadlock, or when
/// a message is lost.
#[test]
fn selects_that_cross_each_other_meet() {
    everyone(|crew| {
        let rounds = share(60_000, 1);
        let [(s1, r1), (s2, r2)] = [bounded(0), bounded(0)];
        let here = crew.go(move || {
            let mut random = Random::new(1);
            for round in 0..rounds {
                random.pause(40);
                select! {
                    send(s1, round) -> sent => sent.unwrap(),
                    recv(r2) -> got => assert_eq!(got, Ok(round)),
                }
            }
        });
        let there = crew.go(move || {
            let mut random = Random::new(2);
            for round in 0..rounds {
                random.pause(40);
                select! {
                    send(s2, round) -> sent => sent.unwrap(),
                    recv(r1) -> got => assert_eq!(got, Ok(round)),
                }
            }
        });
        here.join();
        there.join();
    });
}

/// Fails by a deadlock, or when two members believe that they met the same third.
#[test]
fn a_ring_of_selects_passes_everything_on() {
    const RING: usize = 4;
    everyone(|crew| {
        let rounds = share(20_000, RING);
        let channels: Vec<_> = (0..RING).map(|_| bounded::<usize>(0)).collect();
        let members = each(crew, RING, move |me| {
            let (next, mine) = (channels[(me + 1) % RING].0.clone(), channels[me].1.clone());
            let mut random = Random::new(me);
            let (mut sent, mut got) = (0, 0);
            while sent < rounds || got < rounds {
                random.pause(40);
                let mut select = Select::new();
                let send = if sent < rounds { select.send(&next) } else { usize::MAX };
                if got < rounds {
                    select.recv(&mine);
                }
                let chosen = select.select();
                if chosen.index() == send {
                    chosen.send(&next, sent).unwrap();
                    sent += 1;
                } else {
                    assert_eq!(chosen.recv(&mine), Ok(got));
                    got += 1;
                }
            }
        });
        join_all(members);
    });
}

/// Many members claim the same waits at once. Fails when a message comes twice, or not at all.
#[test]
fn many_selects_over_the_same_channels_lose_nothing() {
    everyone(|crew| {
        for cap in [0, 1] {
            let rounds = share(30_000, 4);
            let channels = [bounded(cap), bounded(cap), bounded(cap)];
            let senders = channels.each_ref().map(|(s, _)| s.clone());
            let receivers = channels.each_ref().map(|(_, r)| r.clone());
            drop(channels);
            let senders = each(crew, 2, move |me| {
                let mut random = Random::new(me);
                for round in 0..rounds {
                    random.pause(40);
                    let [a, b, c] = &senders;
                    let message = 2 * round + me;
                    select! {
                        send(a, message) -> sent => sent.unwrap(),
                        send(b, message) -> sent => sent.unwrap(),
                        send(c, message) -> sent => sent.unwrap(),
                    }
                }
            });
            let receivers = each(crew, 2, move |me| {
                let mut random = Random::new(10 + me);
                let mut open = receivers.clone();
                let mut all = Vec::new();
                let mut ended = 0;
                while ended < 3 {
                    random.pause(40);
                    let [a, b, c] = &open;
                    let (at, got) = select! {
                        recv(a) -> got => (0, got),
                        recv(b) -> got => (1, got),
                        recv(c) -> got => (2, got),
                    };
                    match got {
                        Ok(message) => all.push(message),
                        Err(_) => {
                            open[at] = never();
                            ended += 1;
                        }
                    }
                }
                all
            });
            join_all(senders);
            let mut got = join_all(receivers).concat();
            got.sort_unstable();
            assert!(got.into_iter().eq(0..2 * rounds));
        }
    });
}

/// Fails by a hang when a call that only tries finds the other side on its way into its queues, and does not wake it.
#[test]
fn a_try_that_meets_a_select_on_its_way_is_seen() {
    everyone(|crew| {
        let rounds = share(40_000, 1);
        let [(s, r), (idle, quiet)] = [bounded(0), bounded(0)];
        let sender = crew.go(move || {
            let mut random = Random::new(1);
            for round in 0..rounds {
                random.pause(60);
                select! {
                    send(s, round) -> sent => sent.unwrap(),
                    recv(quiet) -> _ => unreachable!("{:?}", quiet.try_recv()),
                }
            }
        });
        let receiver = crew.go(move || {
            for round in 0..rounds {
                let got = loop {
                    match r.try_recv() {
                        Ok(got) => break got,
                        Err(_) => gmp::yield_now(),
                    }
                };
                assert_eq!(got, round);
            }
            idle.send(0)
        });
        sender.join();
        assert!(receiver.join().is_err());
    });
}
