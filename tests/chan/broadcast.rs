//! `chan::broadcast`: each receiver sees each message from its subscription on, or is told how many it missed.

use crate::share;
use common::bolt::bolted;
use common::child;
use common::crew::{each, everyone, join_all, on_thread};
use common::probe::Probe;
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::chan::broadcast::{Receiver, RecvError, RecvTimeoutError, SendError, Sender, TryRecvError, channel};
use gmp::chan::{self, bounded, never};
use gmp::context::{Context, ContextError};
use std::cell::Cell;
use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Fails when the report of the panic names a place in the library instead of the call.
#[test]
fn no_capacity_is_the_callers_panic() {
    if child::is_child() {
        let made = catch_unwind(|| channel::<u8>(0)).is_ok() || catch_unwind(|| Sender::<u8>::new(0)).is_ok();
        assert!(!made, "without room");
        return;
    }
    let told = child::passes("no_capacity_is_the_callers_panic", &[]);
    assert_eq!(told.matches("the capacity is 0").count(), 2, "{told}");
    assert_eq!(told.matches(concat!("panicked at ", file!())).count(), 2, "{told}");
}

/// Fails when a message is missing, comes twice, or comes before an earlier one of its sender; or by a hang.
#[test]
fn each_receiver_sees_each_message_in_order() {
    everyone(|crew| {
        let (senders, each_sends) = (3, share(30_000, 9));
        let (sender, first) = channel(senders * each_sends);
        let receivers: Vec<Receiver<(usize, usize)>> = vec![first.clone(), first, sender.subscribe()];
        let readers: Vec<_> = receivers
            .into_iter()
            .map(|mut receiver| {
                crew.go(move || {
                    let mut next = [0; 3];
                    loop {
                        match receiver.recv() {
                            Ok((from, number)) => {
                                assert_eq!(number, next[from]);
                                next[from] += 1;
                            }
                            Err(error) => {
                                assert_eq!(error, RecvError::Closed);
                                return next;
                            }
                        }
                    }
                })
            })
            .collect();
        let writers = each(crew, senders, {
            let sender = sender.clone();
            move |from| {
                (0..each_sends).for_each(|number| assert_eq!(sender.send((from, number)), Ok(3)));
            }
        });
        join_all(writers);
        drop(sender);
        assert_eq!(join_all(readers), [[each_sends; 3]; 3]);
    });
}

/// Fails by the sum when the messages that a receiver got, and those that it was told it missed, are not all that were sent.
#[test]
fn what_is_missed_is_told() {
    everyone(|crew| {
        let sends = share(40_000, 4) as u64;
        let (sender, receiver) = channel(4);
        let readers: Vec<_> = (0..3_u32)
            .map(|number| {
                let mut receiver = receiver.clone();
                crew.go(move || {
                    let (mut got, mut missed, mut last) = (0, 0, None);
                    loop {
                        let limit = Duration::from_nanos((u64::from(number) * 777 + got) % 3000);
                        let next = match got % 3 {
                            0 => receiver.recv_timeout(limit),
                            1 => receiver.try_recv().map_err(|error| match error {
                                TryRecvError::Empty => RecvTimeoutError::Timeout,
                                TryRecvError::Closed => RecvTimeoutError::Closed,
                                TryRecvError::Lagged(n) => RecvTimeoutError::Lagged(n),
                            }),
                            _ => receiver.recv_deadline(Instant::now() + limit),
                        };
                        match next {
                            Ok(n) => {
                                assert_eq!(
                                    n,
                                    got + missed,
                                    "not the oldest one that is there, after {last:?}"
                                );
                                got += 1;
                                last = Some(n);
                            }
                            Err(RecvTimeoutError::Lagged(n)) => missed += n,
                            Err(RecvTimeoutError::Timeout) => gmp::yield_now(),
                            Err(RecvTimeoutError::Closed) => return got + missed,
                        }
                    }
                })
            })
            .collect();
        drop(receiver);
        let writer = crew.go(move || (0..sends).for_each(|n| assert_eq!(sender.send(n), Ok(3))));
        writer.join();
        assert_eq!(join_all(readers), [sends; 3]);
    });
}

/// Fails when a new receiver gets an earlier message, or one too few; or when a count is wrong.
#[test]
fn a_receiver_begins_where_it_came() {
    let (sender, mut first) = channel(3);
    assert_eq!((sender.receiver_count(), sender.len(), first.is_empty()), (1, 0, true));
    sender.send(1).unwrap();
    let mut second = sender.subscribe();
    let mut twin = first.clone();
    sender.send(2).unwrap();
    let mut third = first.resubscribe();
    assert_eq!((first.len(), second.len(), third.len(), sender.len()), (2, 1, 0, 2));
    assert_eq!(third.try_recv(), Err(TryRecvError::Empty));
    assert_eq!((first.recv(), second.recv(), twin.recv()), (Ok(1), Ok(2), Ok(1)));
    // The first message has left, as all have seen it; the second has not.
    assert_eq!(sender.len(), 1);
    drop(twin);
    assert_eq!(first.recv(), Ok(2));
    assert!(sender.is_empty());
    for n in 3..=7 {
        assert_eq!(sender.send(n), Ok(3));
    }
    let mut late = first.clone();
    assert_eq!(late.len(), 5);
    assert_eq!(late.recv(), Err(RecvError::Lagged(2)));
    assert_eq!(first.try_recv(), Err(TryRecvError::Lagged(2)));
    assert_eq!(second.recv_timeout(MS), Err(RecvTimeoutError::Lagged(2)));
    assert_eq!(
        (first.recv(), second.recv(), late.recv(), third.recv()),
        (Ok(5), Ok(5), Ok(5), Err(RecvError::Lagged(2)))
    );
    drop((first, second, late));
    assert_eq!((sender.receiver_count(), sender.len()), (1, 3));
    assert!(sender.same_channel(&sender.clone()) && third.same_channel(&third.clone()));
    drop(third);
    assert_eq!((sender.len(), sender.send(8)), (0, Err(SendError(8))));
    let mut again = sender.subscribe();
    assert_eq!((sender.send(9), again.recv()), (Ok(1), Ok(9)));
    assert_eq!(again.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
    assert!(catch_unwind(|| Sender::<i32>::new(0)).is_err());
}

/// Fails by a hang, or when the close discards a message.
#[test]
fn a_close_leaves_what_was_sent() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(8);
        let mut other = receiver.clone();
        let waits = crew.go(move || (other.recv(), other.recv(), other.recv()));
        let closer = sender.clone();
        let sees = crew.go(move || closer.closed());
        sender.send(1).unwrap();
        assert!(!receiver.is_closed() && !sender.is_closed());
        assert!(sender.close() && !sender.close() && receiver.is_closed() && sender.is_closed());
        assert_eq!(sender.send(2), Err(SendError(2)));
        assert_eq!(waits.join(), (Ok(1), Err(RecvError::Closed), Err(RecvError::Closed)));
        sees.join();
        assert_eq!((receiver.recv(), receiver.try_recv()), (Ok(1), Err(TryRecvError::Closed)));
        assert_eq!(sender.subscribe().recv(), Err(RecvError::Closed));
    });
}

/// Fails when either half counts a handle that has gone, or does not count one that is there.
#[test]
fn both_halves_are_counted() {
    let (sender, receiver) = channel::<()>(1);
    let counts = |receiver: &Receiver<()>| {
        let count = (sender.sender_count(), sender.receiver_count());
        assert_eq!((receiver.sender_count(), receiver.receiver_count()), count);
        count
    };
    let (others, more) = ([(); 3].map(|()| sender.clone()), [sender.subscribe(), receiver.clone()]);
    assert_eq!(counts(&receiver), (4, 3));
    drop(others);
    assert_eq!(counts(&receiver), (1, 3));
    drop(more);
    assert_eq!(counts(&receiver), (1, 1));
    drop(receiver);
    assert_eq!((sender.receiver_count(), sender.is_closed()), (0, true));
    let comes = sender.subscribe();
    assert!(!sender.is_closed() && !comes.is_closed());
    drop(sender);
    assert_eq!((comes.sender_count(), comes.is_closed()), (0, true));
}

/// Fails by a hang when a sender is not told that the last receiver has gone.
#[test]
fn a_sender_waits_for_the_last_receiver() {
    everyone(|crew| {
        let (sender, receiver) = channel::<()>(1);
        let other = receiver.clone();
        let gone = Arc::new(AtomicBool::new(false));
        let goes = Arc::clone(&gone);
        let waits = crew.go(move || {
            sender.closed();
            assert!(gone.load(SeqCst), "there is one left");
        });
        drop(receiver);
        crew.run(|| (0..20).for_each(|_| gmp::yield_now()));
        goes.store(true, SeqCst);
        drop(other);
        waits.join();
    });
}

/// Fails by a hang; or when a message is lost with the wait that a context has ended.
#[test]
fn a_context_ends_the_wait_and_takes_no_message() {
    everyone(|crew| {
        for round in 0..50 {
            let (sender, mut receiver) = channel(64);
            let (context, cancel) = Context::background().with_cancel();
            let reader = crew.go(move || {
                let mut got = 0;
                let ended = context.run(|| {
                    while let Ok(n) = receiver.recv() {
                        assert_eq!(n, got);
                        got += 1;
                    }
                });
                while let Ok(n) = receiver.recv() {
                    assert_eq!(n, got);
                    got += 1;
                }
                (got, ended)
            });
            (0..32).for_each(|n| _ = sender.send(n).unwrap());
            common::random::spin(round * 20);
            cancel.cancel();
            (32..64).for_each(|n| _ = sender.send(n).unwrap());
            if round % 2 == 0 {
                drop(sender);
                assert_eq!(reader.join().0, 64);
            } else {
                sender.close();
                assert_eq!(reader.join().0, 64);
            }
        }
        let (_sender, mut receiver) = channel::<()>(1);
        let reader = crew.go(move || gmp::time::timeout(MS, || receiver.recv()));
        assert_eq!(reader.join(), Err(ContextError::DeadlineExceeded));
    });
}

/// A message whose clone and drop panic when told to. They call `resume_unwind`, which prints nothing.
struct Bomb {
    number: u32,
    clones: Arc<AtomicBool>,
    drops: Arc<AtomicBool>,
    probe: Option<Probe>,
}

impl Clone for Bomb {
    fn clone(&self) -> Self {
        if self.clones.swap(false, SeqCst) {
            resume_unwind(Box::new("clone"));
        }
        let drops = Arc::default();
        Bomb { number: self.number, clones: Arc::clone(&self.clones), drops, probe: None }
    }
}

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.drops.swap(false, SeqCst) {
            resume_unwind(Box::new("drop"));
        }
        drop(self.probe.take());
    }
}

/// Fails when a message is lost because its own code panics, or when a message is dropped twice or never.
#[test]
fn a_panic_of_a_message_loses_nothing() {
    everyone(|crew| {
        crew.run(|| {
            let dropped = Arc::new(AtomicUsize::new(0));
            let (clones, drops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let bomb = |number| Bomb {
                number,
                clones: Arc::clone(&clones),
                drops: Arc::clone(&drops),
                probe: Some(Probe(Arc::clone(&dropped))),
            };
            let said = |payload: Box<dyn std::any::Any + Send>| *payload.downcast::<&str>().unwrap();
            let (sender, mut receiver) = channel(2);
            let mut other = receiver.clone();
            (1..=2).for_each(|n| _ = sender.send(bomb(n)).unwrap_or_else(|_| unreachable!()));
            let number = |receiver: &mut Receiver<Bomb>| {
                catch_unwind(AssertUnwindSafe(|| receiver.recv().map(|bomb| bomb.number))).map_err(said)
            };
            // The clone panics: the message is still there.
            clones.store(true, SeqCst);
            assert_eq!(number(&mut receiver), Err("clone"));
            assert_eq!(number(&mut receiver), Ok(Ok(1)));
            // The message's drop panics in the receive of the last receiver that sees it: the message is not lost.
            drops.store(true, SeqCst);
            assert_eq!(number(&mut other), Err("drop"));
            // A clone of the receiver does not lose the message either, although the message's own clone panics first.
            let mut copy = other.clone();
            clones.store(true, SeqCst);
            assert_eq!((copy.len(), number(&mut copy)), (2, Err("clone")));
            assert_eq!((number(&mut copy), number(&mut copy)), (Ok(Ok(1)), Ok(Ok(2))));
            drop(copy);
            assert_eq!((number(&mut other), number(&mut other)), (Ok(Ok(1)), Ok(Ok(2))));
            // A full ring drops its oldest message, whose drop panics in `send`; the new message was sent.
            (3..=3).for_each(|n| _ = sender.send(bomb(n)).unwrap_or_else(|_| unreachable!()));
            drops.store(true, SeqCst);
            let sent = catch_unwind(AssertUnwindSafe(|| sender.send(bomb(4)).is_ok())).map_err(said);
            assert_eq!(sent, Err("drop"));
            assert_eq!((number(&mut other), number(&mut other)), (Ok(Ok(3)), Ok(Ok(4))));
            assert_eq!(number(&mut receiver), Ok(Err(RecvError::Lagged(1))));
            // The last receiver drops the two messages that are left; the first drop panics.
            drops.store(true, SeqCst);
            let goes = catch_unwind(AssertUnwindSafe(|| drop(receiver))).map_err(said);
            assert_eq!(goes, Err("drop"));
            assert!(sender.is_empty() && sender.receiver_count() == 1);
            drop((sender, other));
            // A bomb that went off drops its probe, too, as any value drops its fields.
            assert_eq!(dropped.load(SeqCst), 4);
            assert_eq!((Arc::strong_count(&dropped), Arc::strong_count(&clones)), (1, 1));
        });
    });
}

/// Fails by a count when a message that no receiver has seen is not dropped with its channel, or is dropped twice.
#[test]
fn what_nobody_sees_is_dropped_once() {
    everyone(|crew| {
        for round in 0..share(4000, 8) {
            let dropped = Arc::new(AtomicUsize::new(0));
            let (sender, receiver) = channel(1 + round % 7);
            let others = [receiver.clone(), receiver.clone()];
            let readers = others.map(|mut receiver| {
                crew.go(move || {
                    for _ in 0..round % 5 {
                        let _message = receiver.try_recv();
                    }
                })
            });
            let theirs = Arc::clone(&dropped);
            let writer = crew.go(move || {
                (0..10).filter(|_| sender.send(Arc::new(Probe(Arc::clone(&theirs)))).is_ok()).count()
            });
            drop(receiver);
            readers.into_iter().for_each(|reader| reader.join());
            let _sent = writer.join();
            assert_eq!(dropped.load(SeqCst), 10);
        }
    });
}

/// Fails by a hang when the bell does not ring for a message that came before, during or after a look; or by a missing message.
#[test]
fn a_select_hears_of_each_message() {
    everyone(|crew| {
        let sends = share(20_000, 4);
        let (sender, receiver) = channel(sends.max(1));
        let (stop, stopped) = bounded::<()>(0);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                let (mut receiver, stopped) = (receiver.clone(), stopped.clone());
                crew.go(move || {
                    let (bell, nothing, mut got) = (receiver.bell(), never::<()>(), 0);
                    loop {
                        gmp::select! {
                            recv(nothing) -> _ => unreachable!(),
                            recv(stopped) -> _ => unreachable!("it is not closed before the channel is"),
                            // Receives one message for each ring.
                            recv(bell) -> _ => match receiver.try_recv() {
                                Ok(n) => {
                                    assert_eq!(n, got);
                                    got += 1;
                                }
                                Err(TryRecvError::Empty) => {}
                                Err(error) => {
                                    assert_eq!(error, TryRecvError::Closed);
                                    return got;
                                }
                            },
                        }
                    }
                })
            })
            .collect();
        drop(receiver);
        let writer = crew.go(move || (0..sends).for_each(|n| assert_eq!(sender.send(n), Ok(2))));
        writer.join();
        assert_eq!(join_all(readers), [sends; 2]);
        drop(stop);
    });
}

/// Fails when a bell is silent although there is a message: after a call that unwinds, or that returns what such a call has
/// kept.
#[test]
fn a_bell_rings_on_for_what_is_left_behind() {
    everyone(|crew| {
        crew.run(|| {
            let (clones, drops) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (sender, mut receiver) = channel(4);
            let bell = receiver.bell();
            let rings = || bell.try_recv().is_ok();
            let send = |numbers: RangeInclusive<u32>| {
                for number in numbers {
                    let (clones, drops) = (Arc::clone(&clones), Arc::clone(&drops));
                    let sent = sender.send(Bomb { number, clones, drops, probe: None });
                    assert_eq!(sent.map_err(drop), Ok(1));
                }
            };
            let number = |receiver: &mut Receiver<Bomb>| {
                let call = || receiver.try_recv().map(|bomb| bomb.number);
                catch_unwind(AssertUnwindSafe(call)).map_err(|payload| *payload.downcast::<&str>().unwrap())
            };
            send(1..=1);
            assert!(rings() && !rings());
            clones.store(true, SeqCst);
            assert_eq!((number(&mut receiver), rings()), (Err("clone"), true));
            drops.store(true, SeqCst);
            assert_eq!((number(&mut receiver), rings()), (Err("drop"), true));
            assert_eq!((number(&mut receiver), rings()), (Ok(Ok(1)), false));
            // Two messages, one behind the one that the receiver has kept.
            send(2..=3);
            assert!(rings() && !rings());
            drops.store(true, SeqCst);
            assert_eq!((number(&mut receiver), rings()), (Err("drop"), true));
            assert_eq!((number(&mut receiver), rings()), (Ok(Ok(2)), true));
            // A receiver that asks for the bell again hears of the message, too.
            receiver.bell();
            assert!(rings() && !rings());
            assert_eq!((number(&mut receiver), rings()), (Ok(Ok(3)), false));
            receiver.bell();
            assert!(!rings());
        });
    });
}

/// One ring stands for several messages, and each call takes one. Fails when the bell is then silent although there is a
/// message.
#[test]
fn a_bell_rings_again_for_each_message_that_is_left() {
    everyone(|crew| {
        crew.run(|| {
            let (sender, mut receiver) = channel(4);
            let bell = receiver.bell();
            let rings = || bell.try_recv().is_ok();
            let send = |messages: RangeInclusive<u32>| {
                messages.for_each(|number| assert_eq!(sender.send(number), Ok(1)))
            };
            send(1..=4);
            assert!(rings() && !rings());
            assert_eq!((receiver.try_recv(), rings(), rings()), (Ok(1), true, false));
            assert_eq!((receiver.recv(), rings(), rings()), (Ok(2), true, false));
            assert_eq!((gmp::block_on(receiver.recv_async()), rings(), rings()), (Ok(3), true, false));
            assert_eq!((receiver.recv(), rings()), (Ok(4), false));
        });
    });
}

/// Fails when a bell is silent although there is a message: the call after the ring tells only of lost messages.
#[test]
fn a_bell_rings_on_for_what_is_there_after_others_were_missed() {
    everyone(|crew| {
        crew.run(|| {
            let (sender, mut receiver) = channel(1);
            let bell = receiver.bell();
            let rings = || bell.try_recv().is_ok();
            let lags = |receive: &dyn Fn(&mut Receiver<u32>), receiver: &mut Receiver<u32>| {
                assert_eq!((sender.send(1), sender.send(2)), (Ok(1), Ok(1)));
                assert!(rings() && !rings());
                receive(receiver);
                assert!(rings() && !rings());
                assert_eq!((receiver.try_recv(), rings()), (Ok(2), false));
            };
            lags(&|receiver| assert_eq!(receiver.try_recv(), Err(TryRecvError::Lagged(1))), &mut receiver);
            lags(&|receiver| assert_eq!(receiver.recv(), Err(RecvError::Lagged(1))), &mut receiver);
            lags(
                &|receiver| assert_eq!(gmp::block_on(receiver.recv_async()), Err(RecvError::Lagged(1))),
                &mut receiver,
            );
        });
    });
}

/// A message whose clone says that it has begun, and goes on when it is told to.
struct Slow(Option<(chan::Sender<()>, chan::Receiver<()>)>);

impl Clone for Slow {
    fn clone(&self) -> Self {
        if let Some((clones, goes_on)) = &self.0 {
            let _may_be_alone = clones.send(());
            let _closed = goes_on.recv();
        }
        Slow(None)
    }
}

/// Fails by a hang when a receiver waits beyond its limit for another receiver's clone; or when it then loses the message.
#[test]
fn a_limit_ends_the_wait_for_another_receivers_clone() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(1);
        let mut other = receiver.clone();
        let (clones, cloned) = bounded(0);
        let (go_on, goes_on) = bounded(0);
        sender.send(Slow(Some((clones, goes_on)))).map_err(drop).unwrap();
        let slow = crew.go(move || other.recv().is_ok());
        let reader = crew.go(move || {
            cloned.recv().unwrap();
            assert_eq!(receiver.recv_timeout(MS).err(), Some(RecvTimeoutError::Timeout));
            assert_eq!(receiver.recv_deadline(Instant::now()).err(), Some(RecvTimeoutError::Timeout));
            drop((go_on, cloned));
            (receiver.recv().is_ok(), receiver.len())
        });
        assert_eq!(reader.join(), (true, 0));
        assert!(slow.join());
    });
}

/// Fails by a hang when a receiver that lags waits for another receiver's clone of the message that was removed.
#[test]
fn a_receiver_that_lags_waits_for_no_clone() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(2);
        let mut other = receiver.clone();
        let (clones, cloned) = bounded(0);
        let (go_on, goes_on) = bounded(0);
        let sends = |message| assert_eq!(sender.send(message).map_err(drop), Ok(2));
        sends(Slow(None));
        assert!(receiver.recv().is_ok() && other.recv().is_ok());
        sends(Slow(Some((clones, goes_on))));
        let slow = crew.go(move || other.recv().is_ok());
        let reader = crew.go(move || {
            cloned.recv().unwrap();
            (0..2).for_each(|_| assert_eq!(sender.send(Slow(None)).map_err(drop), Ok(2)));
            let lagged = (receiver.try_recv().err(), receiver.recv().is_ok(), receiver.recv().is_ok());
            drop((go_on, cloned));
            lagged
        });
        assert_eq!(reader.join(), (Some(TryRecvError::Lagged(1)), true, true));
        assert!(slow.join());
    });
}

/// Counts the drop, and then unwinds with its number.
#[derive(Clone)]
struct Unwinds(usize, Arc<AtomicUsize>);

impl Drop for Unwinds {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
        std::panic::resume_unwind(Box::new(self.0));
    }
}

/// Fails by an abort when the second of several drops unwinds; or by a count when one of the messages stays.
#[test]
fn of_several_drops_that_unwind_with_a_receiver_the_first_goes_on() {
    everyone(|crew| {
        crew.run(|| {
            let drops = Arc::new(AtomicUsize::new(0));
            let send = |sender: &Sender<Unwinds>| {
                (0..3).for_each(|number| assert!(sender.send(Unwinds(number, Arc::clone(&drops))).is_ok()));
            };
            let (sender, receiver) = channel(3);
            send(&sender);
            let unwound = catch_unwind(AssertUnwindSafe(|| drop(receiver)));
            assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&0_usize));
            assert_eq!((drops.load(SeqCst), sender.is_empty()), (3, true));
            // While a panic unwinds, the drops' are swallowed.
            let receiver = sender.subscribe();
            send(&sender);
            let unwound = catch_unwind(AssertUnwindSafe(move || {
                let _receiver = receiver;
                std::panic::resume_unwind(Box::new("the first"))
            }));
            let Err(payload) = unwound.map(|never: std::convert::Infallible| never);
            assert_eq!(payload.downcast_ref(), Some(&"the first"));
            assert_eq!(drops.load(SeqCst), 6);
        });
    });
}

/// Fails by a hang when a send waits for a clone of the message that it removes; or by a count when that message is dropped
/// beside its clone, or never.
#[test]
fn a_message_that_is_removed_beside_its_clone_is_dropped_afterwards() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(1);
        let (clones, cloned) = bounded(0);
        let (go_on, goes_on) = bounded(0);
        let dropped = Arc::new(AtomicUsize::new(0));
        let probe = Arc::new(Probe(Arc::clone(&dropped)));
        sender.send((Slow(Some((clones, goes_on))), Some(probe))).map_err(drop).unwrap();
        let slow = crew.go(move || {
            let first = receiver.recv().map(|(_, probe)| probe.is_some());
            (first, receiver.recv().map(|(_, probe)| probe.is_some()))
        });
        let writer = crew.go(move || {
            cloned.recv().unwrap();
            assert_eq!(sender.send((Slow(None), None)).ok(), Some(1));
            let before = dropped.load(SeqCst);
            drop((go_on, cloned));
            (before, dropped)
        });
        let (before, dropped) = writer.join();
        assert_eq!((before, slow.join()), (0, (Ok(true), Ok(false))));
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

/// Fails by a number when a receiver loses its place in a ring of several blocks, or when a message stays there that all have
/// seen.
#[test]
fn receivers_are_in_different_blocks() {
    everyone(|crew| {
        crew.run(|| {
            let (sender, mut quick) = channel(100);
            let mut slow = quick.clone();
            for n in 0..1000 {
                assert_eq!(sender.send(n), Ok(2));
                assert_eq!(quick.recv(), Ok(n));
            }
            assert_eq!((sender.len(), slow.len(), quick.len()), (100, 1000, 0));
            assert_eq!(slow.recv(), Err(RecvError::Lagged(900)));
            (900..950).for_each(|n| assert_eq!(slow.recv(), Ok(n)));
            let mut third = slow.clone();
            (950..1000).for_each(|n| assert_eq!(slow.recv(), Ok(n)));
            assert_eq!(sender.len(), 50);
            (950..960).for_each(|n| assert_eq!(third.recv(), Ok(n)));
            assert_eq!(sender.len(), 40);
            drop(third);
            assert!(sender.is_empty());
        });
    });
}

/// Fails when a bell is silent although there is a message, after a context has ended the wait for the message's lock.
#[test]
fn a_bell_rings_on_after_a_wait_that_a_context_ends() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(1);
        let mut other = receiver.clone();
        let (clones, cloned) = bounded(0);
        let (go_on, goes_on) = bounded(0);
        let bell = receiver.bell();
        sender.send(Slow(Some((clones, goes_on)))).map_err(drop).unwrap();
        let slow = crew.go(move || other.recv().is_ok());
        let reader = crew.go(move || {
            cloned.recv().unwrap();
            assert_eq!((bell.try_recv(), bell.is_empty()), (Ok(()), true));
            let ended = gmp::time::timeout(MS, || receiver.try_recv().is_ok());
            assert_eq!((ended, bell.try_recv()), (Err(ContextError::DeadlineExceeded), Ok(())));
            drop((go_on, cloned));
            (receiver.recv().is_ok(), bell.is_empty())
        });
        assert_eq!(reader.join(), (true, true));
        assert!(slow.join());
    });
}

/// Fails to compile when a message must be `Sync`; or by the number when two receivers clone one message at once.
#[test]
fn a_message_need_not_be_sync() {
    #[derive(Default)]
    struct Counts(Cell<u32>, Cell<bool>);
    impl Clone for Counts {
        fn clone(&self) -> Self {
            assert!(!self.1.replace(true), "another clones it");
            self.0.set(self.0.get() + 1);
            gmp::yield_now();
            self.1.set(false);
            Counts(self.0.clone(), Cell::new(false))
        }
    }
    fn shares<T: Sync>() {}
    shares::<Receiver<Counts>>();
    everyone(|crew| {
        let (sender, receiver) = channel(1);
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let mut receiver = receiver.clone();
                crew.go(move || receiver.recv().map(|counts: Counts| counts.0.get()))
            })
            .collect();
        drop(receiver);
        sender.send(Counts::default()).map_err(drop).unwrap();
        let mut numbers: Vec<_> = join_all(readers).into_iter().map(Result::unwrap).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [1, 2, 3, 4]);
    });
}

/// Fails by a hang when a receiver that its runtime leaves behind holds up a sender or another receiver.
#[test]
fn a_receiver_that_is_left_behind_holds_nobody_up() {
    for procs in PROCS {
        watched(procs, || {
            let first = runtime(procs);
            let (sender, mut receiver) = channel(2);
            let (mut theirs, came) = (receiver.clone(), Arc::new(AtomicBool::new(false)));
            let comes = Arc::clone(&came);
            drop(first.go(move || {
                comes.store(true, SeqCst);
                bolted(move || theirs.recv().map(drop)).unwrap();
            }));
            until(|| came.load(SeqCst));
            first.run(|| (0..50).for_each(|_| gmp::yield_now()));
            first.shutdown(Duration::from_secs(5));
            for n in 0..6 {
                sender.send(n).unwrap();
                assert_eq!(receiver.recv(), Ok(n));
            }
        });
    }
}

/// Fails by a hang when goroutines of two runtimes and a thread do not hear of each other.
#[test]
fn runtimes_and_threads_share_a_channel() {
    everywhere(|rt| {
        let other = runtime(1);
        let (sender, mut receiver) = channel(4);
        let mut second = receiver.clone();
        let third = on_thread(move || second.recv());
        let fourth = other.go(move || receiver.recv());
        rt.go(move || sender.send(5).unwrap()).join().unwrap();
        assert_eq!((third.join(), fourth.join().unwrap()), (Ok(5), Ok(5)));
    });
}
