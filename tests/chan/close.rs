//! `close`, and the end of all senders or all receivers.

use crate::{every_kind, share};
use common::crew::{each, everyone, join_all};
use common::probe::Probe;
use common::random::Random;
use gmp::chan::{
    PollSender, Receiver, RecvError, RecvTimeoutError, SendError, SendTimeoutError, Sender, TryRecvError,
    TrySendError, after, at, bounded, never, never_sender, tick, unbounded,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// No test waits for it to pass.
const LONG: Duration = Duration::from_secs(3600);

/// Fails if two calls both return that they closed the channel, or none does.
#[test]
fn close_is_true_for_one_call() {
    everyone(|crew| {
        for round in 0..share(5000, 5) {
            for (s, r) in every_kind::<u8>() {
                assert!(!s.is_closed() && !r.is_closed());
                let (theirs, ours) = (s.clone(), r.clone());
                let closers = each(crew, 2, move |me| {
                    Random::new(2 * round + me).pause(200);
                    if me == 0 { theirs.close() } else { ours.close() }
                });
                assert_eq!(join_all(closers).into_iter().filter(|&closed| closed).count(), 1);
                assert!(s.is_closed() && r.is_closed());
                assert!(!s.close() && !r.close());
            }
        }
    });
}

/// Fails if a message that was sent before the close is lost, or one can be sent after it.
#[test]
fn what_is_buffered_is_received_and_then_comes_the_error() {
    everyone(|crew| {
        crew.run(|| {
            for by_sender in [true, false] {
                for (s, r) in every_kind() {
                    let left = s.capacity().unwrap_or(7).min(7);
                    (0..left).for_each(|message| s.send(message).unwrap());
                    assert!(if by_sender { s.close() } else { r.close() });
                    assert_eq!(s.send(8), Err(SendError(8)));
                    assert_eq!(s.try_send(8), Err(TrySendError::Disconnected(8)));
                    assert_eq!(s.send_timeout(8, LONG), Err(SendTimeoutError::Disconnected(8)));
                    assert_eq!((s.len(), r.len()), (left, left));
                    for message in 0..left {
                        assert_eq!(r.recv(), Ok(message));
                    }
                    assert_eq!(r.recv(), Err(RecvError));
                    assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
                    assert_eq!(r.recv_timeout(LONG), Err(RecvTimeoutError::Disconnected));
                    assert_eq!((r.iter().next(), r.try_iter().next()), (None, None));
                }
            }
        });
    });
}

/// Fails by a hang, or when the value is lost or received.
#[test]
fn blocked_senders_wake_with_their_value() {
    everyone(|crew| {
        for cap in [0, 1, 2] {
            for end in 0..3 {
                let (s, r) = bounded(cap);
                (0..cap).for_each(|_| s.send(100).unwrap());
                let senders: Vec<_> = (0..4)
                    .map(|message| {
                        let s = s.clone();
                        let sender = crew.go(move || match message % 2 {
                            0 => s.send(message).map_err(SendError::into_inner),
                            _ => s.send_timeout(message, LONG).map_err(SendTimeoutError::into_inner),
                        });
                        sender.until_it_waits();
                        sender
                    })
                    .collect();
                let left = match end {
                    0 => s.close().then_some(r),
                    1 => r.close().then_some(r),
                    _ => {
                        drop(r);
                        None
                    }
                };
                assert_eq!(left.is_some(), end < 2);
                assert_eq!(join_all(senders), [Err(0), Err(1), Err(2), Err(3)]);
                // The channel holds what it held, and nothing else.
                if let Some(r) = left {
                    assert_eq!(r.iter().collect::<Vec<_>>(), vec![100; cap]);
                }
            }
        }
    });
}

/// Fails by a hang when a waiter is not told.
#[test]
fn blocked_receivers_wake_with_an_error() {
    everyone(|crew| {
        for end in 0..3 {
            for (s, r) in every_kind::<u8>() {
                let receivers: Vec<_> = (0..3)
                    .map(|how| {
                        let r = r.clone();
                        let receiver = crew.go(move || match how {
                            0 => r.recv() == Err(RecvError),
                            1 => r.recv_timeout(LONG) == Err(RecvTimeoutError::Disconnected),
                            _ => r.iter().next().is_none(),
                        });
                        receiver.until_it_waits();
                        receiver
                    })
                    .collect();
                match end {
                    0 => assert!(s.close()),
                    1 => assert!(r.close()),
                    _ => drop(s),
                }
                assert_eq!(join_all(receivers), [true; 3]);
            }
        }
    });
}

/// Fails if the last handle but one ends the channel, or the last does not; or if a message is not received.
#[test]
fn the_last_handle_of_a_side_ends_the_channel() {
    everyone(|crew| {
        crew.run(|| {
            for (s, r) in every_kind() {
                let left = s.capacity().unwrap_or(3).min(3);
                let other = s.clone();
                (0..left).for_each(|message| s.send(message).unwrap());
                drop(s);
                let mut got = r.try_iter();
                assert!((0..left).all(|message| got.next() == Some(message)));
                assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
                drop(other);
                assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
                assert_eq!(r.recv(), Err(RecvError));
            }
            for (s, r) in every_kind() {
                let other = r.clone();
                drop(r);
                assert!(!matches!(s.try_send(1), Err(TrySendError::Disconnected(_))));
                drop(other);
                assert_eq!(s.try_send(2), Err(TrySendError::Disconnected(2)));
                assert_eq!(s.send(3), Err(SendError(3)));
            }
        });
    });
}

/// Fails when either half counts a handle that has gone, or does not count one that is there.
#[test]
fn the_halves_are_counted() {
    let (sender, receiver) = bounded::<u8>(1);
    let counts = |sender: &Sender<u8>, receiver: &Receiver<u8>| {
        let count = (sender.sender_count(), sender.receiver_count());
        assert_eq!((receiver.sender_count(), receiver.receiver_count()), count);
        count
    };
    let (others, more) = ([(); 3].map(|()| sender.clone()), receiver.clone());
    assert_eq!(counts(&sender, &receiver), (4, 2));
    drop(others);
    assert_eq!(counts(&sender, &receiver), (1, 2));
    let owns = more.into_iter();
    assert_eq!(counts(&sender, &receiver), (1, 2));
    drop(owns);
    let polls = PollSender::new(sender.clone());
    assert_eq!(counts(&sender, &receiver), (2, 1));
    drop(polls);
    assert_eq!(counts(&sender, &receiver), (1, 1));
    drop(receiver);
    assert_eq!((sender.sender_count(), sender.receiver_count()), (1, 0));
    let (ticks, nothing, nobody) = (tick(Duration::MAX), never::<u8>(), never_sender::<u8>());
    assert_eq!((ticks.sender_count(), ticks.clone().receiver_count()), (0, 2));
    assert_eq!((nothing.receiver_count(), nothing.sender_count(), nobody.sender_count()), (0, 0, 0));
}

/// Fails if a holder of one half can close a timer's channel, or a disabled channel, for all others.
#[test]
fn timers_and_disabled_channels_cannot_be_closed() {
    everyone(|crew| {
        crew.run(|| {
            let soon = Duration::from_millis(2);
            let start = Instant::now();
            for timer in [after(soon), at(start + soon), tick(soon)] {
                assert!(!timer.close() && !timer.is_closed());
                assert!(timer.recv().unwrap() >= start + soon);
                assert!(!timer.close() && !timer.is_closed());
            }
            let (nothing, nobody) = (never::<u8>(), never_sender::<u8>());
            assert!(!nothing.close() && !nothing.is_closed() && !nobody.close() && !nobody.is_closed());
            assert_eq!(nothing.try_recv(), Err(TryRecvError::Empty));
            assert_eq!(nothing.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
            assert_eq!(nobody.try_send(1), Err(TrySendError::Full(1)));
            assert_eq!(nobody.send_timeout(1, soon), Err(SendTimeoutError::Timeout(1)));
        });
    });
}

/// A close meets a send that is on its way. Fails when the value is in two places, or in none.
#[test]
fn a_close_among_senders_and_receivers_loses_nothing() {
    everyone(|crew| {
        for round in 0..share(10_000, 5) {
            for (s, r) in every_kind() {
                let drops = Arc::new(AtomicUsize::new(0));
                let (senders_drops, closer) = (Arc::clone(&drops), s.clone());
                let senders = each(crew, 2, move |me| {
                    let mut random = Random::new(4 * round + me);
                    let mut sent = 0;
                    loop {
                        random.pause(30);
                        match s.send(Probe(Arc::clone(&senders_drops))) {
                            Ok(()) => sent += 1,
                            // The error drops this message here.
                            Err(SendError(_)) => return (sent, 1),
                        }
                    }
                });
                let receivers = each(crew, 2, move |me| {
                    let mut random = Random::new(4 * round + 2 + me);
                    r.iter().inspect(|_| random.pause(30)).count()
                });
                Random::new(round).pause(2000);
                assert!(closer.close());
                let (sent, refused) = join_all(senders)
                    .into_iter()
                    .fold((0, 0), |sum, (sent, back)| (sum.0 + sent, sum.1 + back));
                assert_eq!(join_all(receivers).into_iter().sum::<usize>(), sent);
                assert_eq!(drops.load(SeqCst), sent + refused);
            }
        }
    });
}

/// The last sender goes while the receiver begins to wait. Fails by a hang.
#[test]
fn the_last_sender_goes_while_the_receiver_lies_down() {
    everyone(|crew| {
        for round in 0..share(20_000, 3) {
            for (s, r) in [bounded::<u8>(0), bounded(1), unbounded()] {
                let receiver = crew.go(move || {
                    Random::new(round).pause(100);
                    r.recv()
                });
                Random::new(round + 1).pause(100);
                drop(s);
                assert_eq!(receiver.join(), Err(RecvError));
            }
        }
    });
}
