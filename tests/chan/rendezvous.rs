//! Channels without a buffer: sender and receiver meet.

use crate::share;
use common::crew::{each, everyone, join_all};
use common::random::Random;
use gmp::chan::{TryRecvError, TrySendError, bounded};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Fails if a send returns before its message was taken.
#[test]
fn a_send_comes_back_after_its_message_was_taken() {
    everyone(|crew| {
        let rounds = share(30_000, 1);
        let (s, r) = bounded(0);
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let sender = crew.go(move || {
            for message in 0..rounds {
                s.send(message).unwrap();
                count.store(message + 1, SeqCst);
            }
        });
        let mut random = Random::new(1);
        for message in 0..rounds {
            random.pause(30);
            assert!(sent.load(SeqCst) <= message, "{message} has not been asked for");
            assert_eq!(r.recv(), Ok(message));
        }
        sender.join();
        assert_eq!(sent.load(SeqCst), rounds);
    });
}

/// Fails if a call that only tries waits, misses a partner that is there, or does not return the message.
#[test]
fn a_try_meets_only_a_partner_that_waits() {
    everyone(|crew| {
        for _ in 0..share(800, 2) {
            let (s, r) = bounded(0);
            assert_eq!(s.try_send(1), Err(TrySendError::Full(1)));
            assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
            let theirs = r.clone();
            let receiver = crew.go(move || theirs.recv());
            receiver.until_it_waits();
            assert_eq!(s.try_send(2), Ok(()));
            assert_eq!(s.try_send(3), Err(TrySendError::Full(3)));
            assert_eq!(receiver.join(), Ok(2));
            let theirs = s.clone();
            let sender = crew.go(move || theirs.send(4));
            sender.until_it_waits();
            assert_eq!(r.try_recv(), Ok(4));
            assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(sender.join(), Ok(()));
        }
    });
}

/// Fails if a message that waits to be sent is counted as buffered.
#[test]
fn it_is_empty_and_full_at_once() {
    everyone(|crew| {
        let (s, r) = bounded(0);
        let seen = |when| {
            assert_eq!(
                (s.len(), s.is_empty(), s.is_full(), s.capacity()),
                (0, true, true, Some(0)),
                "{when}"
            );
            assert_eq!(
                (r.len(), r.is_empty(), r.is_full(), r.capacity()),
                (0, true, true, Some(0)),
                "{when}"
            );
        };
        seen("new");
        let theirs = s.clone();
        let sender = crew.go(move || theirs.send(1));
        sender.until_it_waits();
        seen("with a sender");
        assert_eq!(r.recv(), Ok(1));
        assert_eq!(sender.join(), Ok(()));
        seen("afterwards");
    });
}

/// Fails when a message goes to two receivers, or to none; or by a hang when both sides wait for each other.
#[test]
fn many_meet_many() {
    everyone(|crew| {
        let rounds = share(100_000, 3);
        let (s, r) = bounded(0);
        let senders = each(crew, 3, move |me| {
            let mut random = Random::new(me);
            for message in 0..rounds {
                random.pause(50);
                s.send(3 * message + me).unwrap();
            }
        });
        let receivers = each(crew, 3, move |me| {
            let mut random = Random::new(10 + me);
            let got = (0..rounds).map(|_| {
                random.pause(50);
                r.recv().unwrap()
            });
            got.collect::<Vec<_>>()
        });
        join_all(senders);
        let mut got = join_all(receivers).concat();
        got.sort_unstable();
        assert!(got.into_iter().eq(0..3 * rounds));
    });
}
