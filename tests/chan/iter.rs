//! Iterators, clones, and the facts that a handle tells about its channel.

use crate::every_kind;
use common::crew::{each, everyone, join_all};
use gmp::chan::{
    IntoIter, Iter, Receiver, Sender, TryIter, after, bounded, never, never_sender, tick, unbounded,
};
use std::time::Duration;

/// Fails if an iterator ends early, or by a hang if it does not end.
#[test]
fn iter_ends_with_the_channel() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            let closes = s.clone();
            let sender = crew.go(move || {
                (0..100).for_each(|message| s.send(message).unwrap());
                closes.close()
            });
            let receiver = crew.go(move || {
                let mut iter: Iter<'_, i32> = r.iter();
                assert!((0..50).all(|message| iter.next() == Some(message)));
                for (expected, message) in (50..).zip(&r) {
                    assert_eq!(message, expected);
                }
                assert_eq!((iter.next(), iter.next()), (None, None));
            });
            assert!(sender.join());
            receiver.join();
        }
    });
}

/// Fails by a hang if the iterator keeps a sender.
#[test]
fn into_iter_ends_with_the_last_sender() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            let senders =
                each(crew, 3, move |me| (0..30).for_each(|message| s.send(3 * message + me).unwrap()));
            let iter: IntoIter<usize> = r.into_iter();
            let mut got = crew.run(move || iter.collect::<Vec<_>>());
            join_all(senders);
            got.sort_unstable();
            assert!(got.into_iter().eq(0..90));
        }
    });
}

/// Fails if the iterator waits, or leaves a message that is there.
#[test]
fn try_iter_takes_what_is_there() {
    everyone(|crew| {
        crew.run(|| {
            let (s, r) = unbounded();
            assert_eq!(r.try_iter().next(), None);
            for round in 0..3 {
                (0..round).for_each(|message| s.send(message).unwrap());
                let mut iter: TryIter<'_, i32> = r.try_iter();
                assert!((0..round).all(|message| iter.next() == Some(message)));
                assert_eq!(iter.next(), None);
                s.send(round).unwrap();
                assert_eq!((iter.next(), iter.next()), (Some(round), None));
            }
        });
    });
}

#[test]
fn handles_know_their_channel() {
    let ((s, r), (other_s, other_r)) = (bounded::<u8>(3), bounded::<u8>(3));
    assert!(s.same_channel(&s.clone()) && !s.same_channel(&other_s));
    assert!(r.same_channel(&r.clone()) && !r.same_channel(&other_r));
    const HOUR: Duration = Duration::from_secs(3600);
    let (alarm, clock) = (after(HOUR), tick(HOUR));
    assert!(alarm.same_channel(&alarm.clone()) && !alarm.same_channel(&after(HOUR)));
    assert!(clock.same_channel(&clock.clone()) && !clock.same_channel(&tick(HOUR)));
    assert!(!clock.same_channel(&alarm) && !alarm.same_channel(&never()));
    assert!(never::<u8>().same_channel(&never()) && never_sender::<u8>().same_channel(&never_sender()));
}

#[test]
fn handles_tell_capacity_and_length() {
    for (capacity, (s, r)) in [Some(0), Some(1), Some(2), Some(128), None].into_iter().zip(every_kind()) {
        assert_eq!((s.capacity(), r.capacity()), (capacity, capacity));
        for len in 0..capacity.unwrap_or(1000) {
            assert_eq!((s.len(), r.len(), s.is_empty(), r.is_empty()), (len, len, len == 0, len == 0));
            assert!(!s.is_full() && !r.is_full());
            s.send(len).unwrap();
        }
        assert_eq!((s.is_full(), r.is_full()), (capacity.is_some(), capacity.is_some()));
    }
    const NOTHING: Receiver<u8> = never();
    const NOBODY: Sender<u8> = never_sender();
    let (nothing, nobody) = (NOTHING, NOBODY);
    assert_eq!((nothing.len(), nothing.is_empty(), nothing.capacity()), (0, true, Some(0)));
    assert_eq!((nobody.len(), nobody.is_empty(), nobody.is_full()), (0, true, true));
}
