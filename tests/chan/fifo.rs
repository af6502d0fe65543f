//! Order: of the messages, of the senders that wait, and of the receivers that wait.

use crate::{every_kind, share};
use common::crew::{each, everyone, join_all};
use common::random::Random;
use gmp::chan::{TryRecvError, TrySendError, bounded, unbounded};

/// Fails when a message overtakes another, comes twice, or is lost.
#[test]
fn messages_come_in_the_order_in_which_they_were_sent() {
    everyone(|crew| {
        for (kind, (s, r)) in every_kind().into_iter().enumerate() {
            let messages = share(200_000, 5);
            let sender = crew.go(move || {
                let mut random = Random::new(kind);
                for message in 0..messages {
                    s.send(message).unwrap();
                    random.pause(20);
                }
            });
            let receiver = crew.go(move || {
                let mut random = Random::new(10 + kind);
                for message in 0..messages {
                    assert_eq!(r.recv(), Ok(message));
                    random.pause(20);
                }
                assert!(r.recv().is_err());
            });
            sender.join();
            receiver.join();
        }
    });
}

/// Fails if a receiver sees two messages of one sender in the wrong order, or if two receivers see one message.
#[test]
fn each_senders_messages_keep_their_order_among_many() {
    const SENDERS: usize = 3;
    everyone(|crew| {
        for (s, r) in every_kind() {
            let messages = share(100_000, 5 * SENDERS);
            let senders = each(crew, SENDERS, move |me| {
                let mut random = Random::new(me);
                for message in 0..messages {
                    s.send((me, message)).unwrap();
                    random.pause(30);
                }
            });
            let receivers = each(crew, 2, move |me| {
                let mut random = Random::new(10 + me);
                let mut next = [0; SENDERS];
                let mut count = 0;
                while let Ok((sender, message)) = r.recv() {
                    assert!(message >= next[sender], "{message} of sender {sender} after {}", next[sender]);
                    next[sender] = message + 1;
                    count += 1;
                    random.pause(30);
                }
                count
            });
            join_all(senders);
            assert_eq!(join_all(receivers).iter().sum::<usize>(), SENDERS * messages);
        }
    });
}

/// Fails if a receiver that came later is served first.
#[test]
fn waiting_receivers_are_served_in_the_order_in_which_they_came() {
    everyone(|crew| {
        for (s, r) in every_kind() {
            let receivers: Vec<_> = (0..4)
                .map(|_| {
                    let r = r.clone();
                    let receiver = crew.go(move || r.recv());
                    receiver.until_it_waits();
                    receiver
                })
                .collect();
            for message in 0..4 {
                s.send(message).unwrap();
            }
            assert_eq!(join_all(receivers), (0..4).map(Ok).collect::<Vec<_>>());
        }
    });
}

/// Fails if a sender that came later gets the slot, or the receiver, first.
#[test]
fn waiting_senders_are_taken_in_the_order_in_which_they_came() {
    everyone(|crew| {
        for cap in [0, 1, 2] {
            let (s, r) = bounded(cap);
            (0..cap).for_each(|message| s.send(message).unwrap());
            let senders: Vec<_> = (cap..cap + 4)
                .map(|message| {
                    let s = s.clone();
                    let sender = crew.go(move || s.send(message));
                    sender.until_it_waits();
                    sender
                })
                .collect();
            for message in 0..cap + 4 {
                assert_eq!(r.recv(), Ok(message));
            }
            assert_eq!(join_all(senders), [Ok(()); 4]);
            assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
        }
    });
}

/// Fails if the value lies in the buffer for a moment, where another receiver may take it: then the waiter is woken in vain.
#[test]
fn a_waiting_receiver_gets_the_value_without_passing_the_buffer() {
    everyone(|crew| {
        for _ in 0..share(800, 2) {
            for (s, r) in [bounded(0), bounded(1), bounded(2), unbounded()] {
                let theirs = r.clone();
                let receiver = crew.go(move || theirs.recv());
                receiver.until_it_waits();
                assert_eq!(s.try_send(1), Ok(()));
                assert_eq!((s.len(), r.len(), r.is_empty()), (0, 0, true));
                assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
                assert_eq!(receiver.join(), Ok(1));
            }
        }
    });
}

/// Fails if a sender that tries at the right moment gets the slot for which another waits.
#[test]
fn nobody_overtakes_a_sender_that_waits_for_a_slot() {
    everyone(|crew| {
        for _ in 0..share(800, 2) {
            let (s, r) = bounded(1);
            s.send(0).unwrap();
            let theirs = s.clone();
            let sender = crew.go(move || theirs.send(1));
            sender.until_it_waits();
            assert_eq!(r.recv(), Ok(0));
            assert_eq!(s.try_send(2), Err(TrySendError::Full(2)));
            assert_eq!((r.len(), r.is_full()), (1, true));
            assert_eq!(r.recv(), Ok(1));
            assert_eq!(sender.join(), Ok(()));
        }
    });
}

/// Fails if the buffer holds more than it may, or a slot is lost: the last send of a round waits for ever.
#[test]
fn a_buffer_holds_as_much_as_its_capacity() {
    everyone(|crew| {
        crew.run(|| {
            for cap in [1, 2, 3, 7, 8, 100] {
                let (s, r) = bounded(cap);
                for round in 0..50 {
                    for message in 0..cap {
                        assert_eq!((s.len(), s.is_full(), r.is_full()), (message, false, false));
                        s.send(message).unwrap();
                    }
                    assert_eq!((s.is_full(), r.is_full(), r.len()), (true, true, cap));
                    assert_eq!(s.try_send(0), Err(TrySendError::Full(0)));
                    // The slots in use move on by one in the ring in each round.
                    for message in 0..cap - round % 2 {
                        assert_eq!(r.recv(), Ok(message));
                    }
                    if round % 2 == 1 {
                        assert_eq!(r.recv(), Ok(cap - 1));
                        s.send(9).unwrap();
                        assert_eq!(r.recv(), Ok(9));
                    }
                    assert_eq!((s.is_empty(), r.is_empty()), (true, true));
                }
            }
        });
    });
}
