//! A message expression that unwinds: the claim is withdrawn, and the other side does not notice.

use super::share;
use common::crew::{Crew, everyone};
use common::random::Random;
use common::until;
use gmp::chan::{
    Receiver, RecvError, RecvTimeoutError, Sender, TryRecvError, TrySendError, bounded, never, never_sender,
    unbounded,
};
use gmp::select;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

const SHORT_LIMIT: Duration = Duration::from_millis(3);

/// Unwinds in place of a message, without a call of the panic hook.
fn nothing<T>() -> T {
    resume_unwind(Box::new("no message"))
}

/// Is chosen to send in a select, and sends nothing: the message unwinds.
fn fail_to_send(s: &Sender<usize>, message: impl FnOnce() -> usize) {
    let idle = never::<()>();
    let unwound = catch_unwind(AssertUnwindSafe(|| {
        select! { send(s, message()) -> _ => unreachable!(), recv(idle) -> _ => unreachable!() }
    }));
    assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"no message"));
}

type Way = fn(&Receiver<usize>) -> Result<usize, RecvError>;

/// The ways to wait for a message.
const WAYS: [Way; 4] = [
    |r| r.recv(),
    |r| r.recv_timeout(Duration::from_secs(3600)).map_err(|_| RecvError),
    |r| select! { recv(r) -> got => got, recv(never::<()>()) -> _ => unreachable!() },
    |r| select! { recv(r) -> got => got, recv(r) -> got => got, send(never_sender(), ()) -> _ => unreachable!() },
];

/// Fails if the receiver wakes with nothing, is forgotten, or goes to the end of the queue.
#[test]
fn a_waiting_receiver_keeps_its_place() {
    everyone(|crew| {
        for way in WAYS {
            for (s, r) in [bounded(0), bounded(1), unbounded()] {
                let receivers: Vec<_> = (0..2)
                    .map(|_| {
                        let r = r.clone();
                        let receiver = crew.go(move || way(&r));
                        receiver.until_it_waits();
                        receiver
                    })
                    .collect();
                let sender = s.clone();
                crew.run(move || (0..3).for_each(|_| fail_to_send(&sender, nothing)));
                assert!(r.is_empty());
                for message in 0..2 {
                    s.send(message).unwrap();
                }
                let got: Vec<_> = receivers.into_iter().map(|receiver| receiver.join()).collect();
                assert_eq!(got, [Ok(0), Ok(1)]);
                assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
            }
        }
    });
}

/// Fails if a receiver that found the sender waiting gets anything but the next message.
#[test]
fn a_receiver_that_meets_a_waiting_select_goes_on_waiting() {
    everyone(|crew| {
        for way in WAYS {
            let (s, r) = bounded(0);
            let sender = crew.go(move || {
                fail_to_send(&s, nothing);
                s.send(7)
            });
            sender.until_it_waits();
            assert_eq!(way(&r), Ok(7));
            assert_eq!((sender.join(), r.recv()), (Ok(()), Err(RecvError)));
        }
    });
}

/// A member that only tries meets members whose sends fail. Fails by a hang, or by a message that was never sent.
#[test]
fn tries_get_only_what_was_sent() {
    everyone(|crew| {
        for cap in [0, 1, 2] {
            let rounds = share(10_000, 2);
            let (s, r) = bounded(cap);
            let sender = crew.go(move || {
                let mut random = Random::new(1);
                for round in 0..rounds {
                    random.pause(40);
                    if round % 2 == 0 {
                        fail_to_send(&s, nothing);
                    } else {
                        s.send(round).unwrap();
                    }
                }
            });
            let receiver = crew.go(move || {
                let mut expected = 1;
                loop {
                    match r.try_recv() {
                        Ok(got) => {
                            assert_eq!(got, expected);
                            expected += 2;
                        }
                        Err(TryRecvError::Empty) => gmp::yield_now(),
                        Err(TryRecvError::Disconnected) => return expected / 2,
                    }
                    select! { recv(r) -> got => if let Ok(got) = got { assert_eq!(got, expected); expected += 2 }, default => {} }
                }
            });
            sender.join();
            assert_eq!(receiver.join(), rounds / 2);
        }
    });
}

/// Fails if the slot that was kept for the message is lost, or is not offered to the next waiter.
#[test]
fn a_slot_goes_to_the_next_one() {
    everyone(|crew| {
        let (s, r) = bounded(1);
        // A slot that is free.
        fail_to_send(&s, nothing);
        assert_eq!((s.try_send(1), s.try_send(2)), (Ok(()), Err(TrySendError::Full(2))));
        // A slot that becomes free while two senders wait for it.
        let (first, second) = (s.clone(), s.clone());
        let fails = crew.go(move || fail_to_send(&first, nothing));
        fails.until_it_waits();
        let waits = crew.go(move || second.send(3));
        waits.until_it_waits();
        assert_eq!(r.recv(), Ok(1));
        assert_eq!((r.recv(), waits.join()), (Ok(3), Ok(())));
        fails.join();
        assert_eq!((s.try_send(4), s.try_send(5), r.recv()), (Ok(()), Err(TrySendError::Full(5)), Ok(4)));
        assert_eq!(r.try_recv(), Err(TryRecvError::Empty));
    });
}

/// Starts a member that waits in this way, and a sender that claims the wait, keeps it until `meanwhile` is over, and then
/// fails.
fn kept_in_suspense<T: Send + 'static>(
    crew: &Crew<'_>,
    cap: usize,
    wait: impl FnOnce(&Receiver<usize>) -> T + Send + 'static,
    meanwhile: impl FnOnce(&Sender<usize>) + Send + 'static,
) -> T {
    let (s, r) = bounded(cap);
    let waiter = crew.go(move || wait(&r));
    waiter.until_it_waits();
    let sender = crew.go(move || {
        fail_to_send(&s, || {
            meanwhile(&s);
            nothing()
        });
        // Keeps the channel open until the waiter has returned.
        s
    });
    let seen = waiter.join();
    drop(sender.join());
    seen
}

/// Fails by a hang when a limit, or a close, that came during the claim is not seen after it.
#[test]
fn what_came_during_the_claim_is_seen_after_it() {
    everyone(|crew| {
        for cap in [0, 1] {
            let start = Instant::now();
            let limit = move |r: &Receiver<usize>| r.recv_timeout(10 * SHORT_LIMIT);
            let passes = move |_: &Sender<usize>| until(|| start.elapsed() > 15 * SHORT_LIMIT);
            assert_eq!(kept_in_suspense(crew, cap, limit, passes), Err(RecvTimeoutError::Timeout));
            let start = Instant::now();
            let limit = |r: &Receiver<usize>| {
                select! { recv(r) -> got => got.is_ok(), recv(never::<()>()) -> _ => true, default(10 * SHORT_LIMIT) => false }
            };
            let passes = move |_: &Sender<usize>| until(|| start.elapsed() > 15 * SHORT_LIMIT);
            assert!(!kept_in_suspense(crew, cap, limit, passes));
            for way in WAYS {
                let closes = |s: &Sender<usize>| assert!(s.close());
                assert_eq!(kept_in_suspense(crew, cap, way, closes), Err(RecvError));
            }
        }
    });
}

/// Fails by a hang when another arm became ready during the claim, and the select is not told of its message.
#[test]
fn another_arm_that_became_ready_during_the_claim_is_chosen_after_it() {
    everyone(|crew| {
        for cap in [0, 1] {
            let (other, others) = unbounded();
            let both = move |r: &Receiver<usize>| {
                select! { recv(r) -> _ => 0, recv(others) -> got => got.unwrap() }
            };
            let sends = move |_: &Sender<usize>| other.send(5).unwrap();
            assert_eq!(kept_in_suspense(crew, cap, both, sends), 5);
        }
    });
}

/// Claims are withdrawn while other members wait, and as the channel ends. Fails by a hang, or by a lost or doubled message.
#[test]
fn failures_among_many_lose_nothing() {
    everyone(|crew| {
        for cap in [0, 1, 2] {
            let rounds = share(10_000, 2);
            let (s, r) = bounded(cap);
            let senders = [0, 1].map(|me| {
                let s = s.clone();
                crew.go(move || {
                    let mut random = Random::new(me);
                    let mut sent = Vec::new();
                    for message in (me..2 * rounds).step_by(2) {
                        random.pause(40);
                        let way = random.below(3);
                        match way {
                            0 => fail_to_send(&s, nothing),
                            1 => s.send(message).unwrap(),
                            _ => select! { send(s, message) -> sent => sent.unwrap() },
                        }
                        sent.extend((way > 0).then_some(message));
                    }
                    sent
                })
            });
            drop(s);
            let receivers = WAYS.map(|way| {
                let r = r.clone();
                crew.go(move || std::iter::from_fn(|| way(&r).ok()).collect::<Vec<_>>())
            });
            let mut sent = senders.map(|sender| sender.join()).concat();
            let mut got = receivers.map(|receiver| receiver.join()).concat();
            got.sort_unstable();
            sent.sort_unstable();
            assert_eq!(got, sent);
        }
    });
}
