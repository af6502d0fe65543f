//! `chan::watch`: each receiver sees the last value.

use crate::share;
use common::crew::{each, everyone, join_all};
use gmp::chan::watch::{RecvError, RecvTimeoutError, SendError, Sender, channel};
use gmp::chan::{bounded, never};
use gmp::context::{Context, ContextError};
use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{self, Poll, Waker};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Fails by a hang when a change is not told; when the last value is not seen; or when a value is half written, or older than
/// one before.
#[test]
fn the_last_value_is_seen() {
    everyone(|crew| {
        let sends = share(20_000, 4);
        let (sender, receiver) = channel((0, 0));
        let readers = each(crew, 3, move |number| {
            let (mut receiver, mut last) = (receiver.clone(), 0);
            loop {
                let changed = match number {
                    0 => receiver.changed().map_err(|RecvError| RecvTimeoutError::Closed),
                    1 => receiver.changed_timeout(Duration::from_micros(3)),
                    _ => receiver.changed_deadline(Instant::now() + MS),
                };
                match changed {
                    Ok(()) => {
                        let value = receiver.borrow_and_update();
                        assert_eq!(value.0, value.1, "half written");
                        assert!(value.0 >= last, "it is older than the one before");
                        last = value.0;
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Closed) => {
                        assert_eq!((last, *receiver.borrow()), (receiver.borrow().0, (last, last)));
                        return last;
                    }
                }
            }
        });
        let writer = crew.go(move || {
            for n in 1..=sends {
                match n % 4 {
                    0 => assert!(sender.send_replace((n, n)).0 < n),
                    1 => sender.send((n, n)).unwrap(),
                    2 => sender.send_modify(|value| *value = (n, n)),
                    _ => assert!(sender.send_if_modified(|value| {
                        value.0 = n;
                        value.1 = n;
                        true
                    })),
                }
                if n % 32 == 0 {
                    gmp::yield_now();
                }
            }
            sends
        });
        assert_eq!((writer.join(), join_all(readers)), (sends, vec![sends; 3]));
    });
}

/// Fails when a value that was seen counts as new, or a new one as seen.
#[test]
fn what_was_seen_is_not_told_again() {
    let (sender, mut receiver) = channel(1);
    let mut twin = receiver.clone();
    assert_eq!((receiver.has_changed(), receiver.borrow().has_changed()), (Ok(false), false));
    assert_eq!(receiver.changed_timeout(MS), Err(RecvTimeoutError::Timeout));
    assert!(!sender.send_if_modified(|value| {
        *value = 2;
        false
    }));
    assert_eq!((receiver.has_changed(), *receiver.borrow()), (Ok(false), 2));
    sender.send(3).unwrap();
    assert!(receiver.borrow().has_changed() && receiver.borrow().has_changed());
    assert_eq!(receiver.has_changed(), Ok(true));
    assert!(receiver.borrow_and_update().has_changed());
    assert!(!receiver.borrow_and_update().has_changed());
    assert_eq!(receiver.changed_deadline(Instant::now()), Err(RecvTimeoutError::Timeout));
    receiver.mark_changed();
    assert_eq!((receiver.changed(), receiver.has_changed()), (Ok(()), Ok(false)));
    assert_eq!(twin.has_changed(), Ok(true));
    twin.mark_unchanged();
    assert_eq!(twin.has_changed(), Ok(false));
    // A receiver that subscribes has seen the present value; a clone has seen what its original has seen.
    sender.send(4).unwrap();
    assert_eq!((sender.subscribe().has_changed(), twin.clone().has_changed()), (Ok(false), Ok(true)));
    assert_eq!(format!("{:?} {:?}", receiver.borrow(), *sender.borrow()), "4 4");
    assert_eq!((sender.receiver_count(), sender.sender_count(), sender.clone().sender_count()), (2, 1, 2));
    assert_eq!((twin.receiver_count(), twin.sender_count()), (2, 1));
    assert!(sender.same_channel(&sender.clone()) && twin.same_channel(&receiver));
    assert!(!twin.is_closed());
    drop(sender);
    assert_eq!((twin.sender_count(), twin.is_closed(), twin.receiver_count()), (0, true, 2));
}

/// Fails when the first value is not the type's default, or when a receiver counts that was never made.
#[test]
fn a_sender_has_a_default() {
    let sender = Sender::<u32>::default();
    assert_eq!(
        (*sender.borrow(), sender.receiver_count(), sender.subscribe().has_changed()),
        (0, 0, Ok(false))
    );
}

/// Fails by the value when a close takes the last value away, or by a hang when the close is not told.
#[test]
fn a_close_leaves_the_last_value() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(1);
        let mut other = receiver.clone();
        let waits = crew.go(move || {
            let mut seen = 1;
            while other.changed().is_ok() {
                seen = *other.borrow();
            }
            (seen, other.has_changed(), other.changed())
        });
        sender.send(2).unwrap();
        assert!(sender.close() && !sender.close() && sender.is_closed());
        assert_eq!(waits.join(), (2, Err(RecvError), Err(RecvError)));
        // A change that was not seen comes before the close.
        assert!(receiver.borrow().has_changed());
        assert_eq!((receiver.has_changed(), receiver.changed()), (Err(RecvError), Ok(())));
        assert_eq!(
            (receiver.changed(), *receiver.borrow(), sender.send(3)),
            (Err(RecvError), 2, Err(SendError(3)))
        );
        assert_eq!(
            (receiver.wait_for(|n| *n == 2).map(|n| *n), receiver.wait_for(|n| *n == 3).is_err()),
            (Ok(2), true)
        );

        // The drop of the last sender closes the channel; a sender is told that the last receiver has gone.
        let (sender, receiver) = channel(1);
        let (others, mut last) = (sender.clone(), receiver.clone());
        let waits = crew.go(move || last.changed());
        drop(sender);
        assert!(!others.is_closed());
        drop(others);
        assert_eq!(waits.join(), Err(RecvError));
        drop(receiver);
        let sender = Sender::new(1);
        assert_eq!((sender.send(2), sender.send_replace(2), *sender.borrow()), (Err(SendError(2)), 1, 2));
        let (receiver, gone) = (sender.subscribe(), Arc::new(AtomicBool::new(false)));
        let goes = Arc::clone(&gone);
        let waits = crew.go(move || {
            sender.closed();
            assert!(gone.load(SeqCst), "there is one left");
        });
        crew.run(|| (0..20).for_each(|_| gmp::yield_now()));
        goes.store(true, SeqCst);
        drop(receiver);
        waits.join();
    });
}

/// Each sender waits for a reader, and the channel is closed meanwhile. Fails when a change is told after the end, or a `send`
/// then changes something.
#[test]
fn nothing_is_told_after_the_end() {
    /// Returns the value that was refused.
    type Changes = fn(&Sender<i32>) -> Option<i32>;
    let ways: [(Changes, i32); 4] = [
        (|sender| sender.send(1).err().map(|SendError(value)| value), 0),
        (|sender| Some(sender.send_replace(1)).filter(|before| *before != 0), 1),
        (
            |sender| {
                sender.send_modify(|value| *value = 1);
                None
            },
            1,
        ),
        (
            |sender| {
                let modify = |value: &mut i32| {
                    *value = 1;
                    true
                };
                Some(2).filter(|_| !sender.send_if_modified(modify))
            },
            1,
        ),
    ];
    everyone(|crew| {
        for (changes, after) in ways {
            let (sender, mut receiver) = channel(0);
            let (mut other, reader) = (sender.subscribe(), sender.subscribe());
            let value = reader.borrow();
            let theirs = sender.clone();
            let waits = crew.go(move || changes(&theirs));
            waits.until_it_waits();
            assert!(sender.close());
            let told = receiver.changed();
            drop(value);
            assert_eq!((told, waits.join()), (Err(RecvError), Some(1).filter(|_| after == 0)));
            assert_eq!(
                (receiver.changed(), other.changed_timeout(MS)),
                (Err(RecvError), Err(RecvTimeoutError::Closed))
            );
            // A receiver that borrows the value sees the change.
            assert_eq!((*receiver.borrow(), receiver.borrow().has_changed()), (after, false));
            assert_eq!(receiver.wait_for(|value| *value == after).map(|value| *value), Ok(after));
            // No receiver is told of another change either.
            _ = changes(&sender);
            assert_eq!((receiver.changed(), other.changed()), (Err(RecvError), Err(RecvError)));
        }
    });
}

/// Fails when a change that began before the end is told after it.
#[test]
fn a_change_that_a_close_has_overtaken_is_not_told() {
    everyone(|crew| {
        let ((sender, mut receiver), (changes, changing), (goes_on, go_on)) =
            (channel(0), bounded(0), bounded(0));
        let theirs = sender.clone();
        let modifies = crew.go(move || {
            theirs.send_modify(|value| {
                changes.send(()).unwrap();
                go_on.recv().unwrap();
                *value = 1;
            });
        });
        changing.recv().unwrap();
        assert!(sender.close());
        let told = receiver.changed();
        goes_on.send(()).unwrap();
        modifies.join();
        assert_eq!((told, receiver.changed(), *receiver.borrow()), (Err(RecvError), Err(RecvError), 1));
        // The receiver asks to be told.
        receiver.mark_changed();
        assert_eq!((receiver.changed(), receiver.changed()), (Ok(()), Err(RecvError)));
    });
}

/// A `send` waits for a reader, and the last receiver goes meanwhile. Fails when the `send` succeeds without a receiver.
#[test]
fn a_send_that_waits_is_refused_when_the_last_receiver_goes() {
    everyone(|crew| {
        let (sender, receiver) = channel(0);
        let value = sender.borrow();
        let theirs = sender.clone();
        let waits = crew.go(move || theirs.send(1));
        waits.until_it_waits();
        drop(receiver);
        drop(value);
        assert_eq!((waits.join(), *sender.borrow()), (Err(SendError(1)), 0));
        assert_eq!((sender.subscribe().has_changed(), sender.send_replace(2)), (Ok(false), 0));
    });
}

/// Fails by a hang when a value that is right is not seen; or when a value that is not right is returned.
#[test]
fn a_wait_for_a_value_returns_that_value() {
    everyone(|crew| {
        let (sender, receiver) = channel(0_usize);
        let readers = each(crew, 4, move |number| {
            let mut receiver = receiver.clone();
            let least = number * 100;
            let value = *receiver.wait_for(|n| *n >= least).unwrap();
            assert!(value >= least);
        });
        let writer = crew.go(move || {
            (0..=300).for_each(|n| {
                sender.send_replace(n);
                if n % 10 == 0 {
                    gmp::yield_now();
                }
            });
            sender
        });
        join_all(readers);
        assert_eq!(*writer.join().borrow(), 300);
    });
}

/// Fails by a hang when a limit does not end the wait, or hides a value that is right; when a wait ends before its limit; or
/// when a value that the condition has refused counts as new.
#[test]
fn a_wait_for_a_value_lasts_until_the_limit() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(0);
        sender.send(1).unwrap();
        let reader = crew.go(move || {
            let (begin, late) = (Instant::now(), Err(RecvTimeoutError::Timeout));
            assert_eq!(receiver.wait_for_timeout(|n| *n == 2, MS).map(|n| *n), late);
            assert_eq!(receiver.wait_for_deadline(|n| *n == 2, begin + 2 * MS).map(|n| *n), late);
            assert!(begin.elapsed() >= 2 * MS);
            assert!(!receiver.has_changed().unwrap(), "what was asked about is seen");
            // The condition is asked about the present value even when the limit has passed.
            assert_eq!(receiver.wait_for_deadline(|n| *n == 1, begin).map(|n| *n), Ok(1));
            assert_eq!(receiver.wait_for_timeout(|n| *n == 1, Duration::ZERO).map(|n| *n), Ok(1));
            receiver
        });
        let mut receiver = reader.join();
        let reader = crew.go(move || {
            let found = receiver.wait_for_timeout(|n| *n == 2, 600_000 * MS).map(|n| *n);
            let then = receiver.wait_for_deadline(|n| *n == 3, Instant::now() + 600_000 * MS).map(|n| *n);
            (found, then)
        });
        reader.until_it_waits();
        sender.send(2).unwrap();
        drop(sender);
        assert_eq!(reader.join(), (Ok(2), Err(RecvTimeoutError::Closed)));
    });
}

/// Fails by a hang when a panic keeps the value locked; by a panic when it poisons; or when a change is told.
#[test]
fn a_panic_of_a_change_locks_and_poisons_nothing() {
    struct Bomb(u32, bool);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.1 {
                resume_unwind(Box::new("drop"));
            }
        }
    }
    everyone(|crew| {
        crew.run(|| {
            let (sender, mut receiver) = channel(Bomb(0, false));
            let panics = catch_unwind(AssertUnwindSafe(|| {
                sender.send_modify(|value| {
                    value.0 = 1;
                    resume_unwind(Box::new("modify"));
                });
            }));
            assert!(panics.is_err());
            assert_eq!((receiver.has_changed(), receiver.borrow().0), (Ok(false), 1));
            let panics = catch_unwind(AssertUnwindSafe(|| {
                receiver.wait_for(|_| resume_unwind(Box::new("asks"))).is_ok()
            }));
            assert!(panics.is_err());
            // The drop of the old value panics after the new one is in place.
            sender.send_replace(Bomb(2, true));
            let panics = catch_unwind(AssertUnwindSafe(|| sender.send(Bomb(3, false)).is_ok()));
            assert!(panics.is_err());
            assert_eq!(
                (receiver.changed(), receiver.borrow().0, receiver.has_changed()),
                (Ok(()), 3, Ok(false))
            );
            sender.send_modify(|value| value.0 += 1);
            assert_eq!((receiver.changed(), receiver.borrow().0), (Ok(()), 4));
        });
    });
}

/// Fails by a hang, or by a wrong result; or when a change is lost with the wait that a context has ended.
#[test]
fn a_context_ends_the_waits() {
    everyone(|crew| {
        let (sender, receiver) = channel(0);
        let (context, cancel) = Context::background().with_cancel();
        let waits: [_; 3] = [0, 1, 2].map(|what| {
            let (mut receiver, sender, context) = (receiver.clone(), sender.clone(), context.clone());
            crew.go(move || {
                let ended = context.run(|| match what {
                    0 => receiver.changed().is_ok(),
                    1 => receiver.wait_for(|n| *n > 1).is_ok(),
                    _ => {
                        sender.closed();
                        true
                    }
                });
                (ended, receiver)
            })
        });
        crew.run(|| (0..20).for_each(|_| gmp::yield_now()));
        cancel.cancel();
        for wait in waits {
            let (ended, mut receiver) = wait.join();
            assert_eq!(ended, Err(ContextError::Canceled));
            sender.send_modify(|n| *n += 1);
            assert_eq!(receiver.changed(), Ok(()));
        }
    });
}

/// Fails by a hang when the bell does not ring for a change before, during or after a look.
#[test]
fn a_select_hears_of_the_last_value() {
    everyone(|crew| {
        let sends = share(20_000, 4);
        let (sender, mut receiver) = channel(0);
        sender.send(1).unwrap();
        let reader = crew.go(move || {
            let (bell, nothing, mut last) = (receiver.bell(), never::<()>(), 0);
            loop {
                gmp::select! {
                    recv(nothing) -> _ => unreachable!(),
                    recv(bell) -> rung => {
                        let value = receiver.borrow_and_update();
                        if value.has_changed() {
                            last = *value;
                        } else if rung.is_err() {
                            return last;
                        }
                    },
                }
            }
        });
        let writer = crew.go(move || (2..=sends + 1).for_each(|n| sender.send(n).unwrap()));
        writer.join();
        assert_eq!(reader.join(), sends + 1);
    });
}

/// Fails when a bell is silent although its receiver has not seen the value: a future that waited for the value is dropped
/// after the ring was heard.
#[test]
fn a_bell_rings_on_when_a_future_is_dropped() {
    let (sender, mut receiver) = channel(0);
    let bell = receiver.bell();
    let rings = || bell.try_recv().is_ok();
    let mut waits = Box::pin(receiver.wait_for_async(|n| *n == 2));
    assert!(waits.as_mut().poll(&mut task::Context::from_waker(Waker::noop())).is_pending());
    sender.send(1).unwrap();
    assert!(rings() && !rings());
    drop(waits);
    assert!(rings() && !rings());
}

/// Fails when a future that is polled again after an error, or after a panic of its condition, does not begin again.
#[test]
fn a_future_that_was_refused_begins_again() {
    let (sender, mut receiver) = channel(1);
    drop(sender);
    let (right, asked) = (Cell::new(false), Cell::new(0));
    let mut waits = Box::pin(receiver.wait_for_async(|value| {
        asked.set(asked.get() + 1);
        if asked.get() == 2 {
            resume_unwind(Box::new("asks"));
        }
        right.get() && *value == 1
    }));
    let mut poll = || {
        let polled = waits.as_mut().poll(&mut task::Context::from_waker(Waker::noop()));
        polled.map(|value| value.map(|value| *value))
    };
    assert_eq!((poll(), asked.get()), (Poll::Ready(Err(RecvError)), 1));
    assert!(catch_unwind(AssertUnwindSafe(&mut poll)).is_err());
    assert_eq!((poll(), asked.get()), (Poll::Ready(Err(RecvError)), 3));
    right.set(true);
    assert_eq!((poll(), poll(), asked.get()), (Poll::Ready(Ok(1)), Poll::Ready(Ok(1)), 5));
}

/// Fails when a bell is silent although its receiver has not seen the value: after a context has ended the wait for that value,
/// or after the receiver has marked the value as changed.
#[test]
fn a_bell_rings_on_for_what_was_not_seen() {
    everyone(|crew| {
        let (sender, mut receiver) = channel(0);
        let bell = receiver.bell();
        let rings = {
            let bell = bell.clone();
            move || bell.try_recv().is_ok()
        };
        assert!(!rings());
        receiver.mark_changed();
        assert!(rings() && !rings());
        receiver.bell();
        assert!(rings() && !rings());
        assert_eq!(*receiver.borrow_and_update(), 0);
        receiver.bell();
        assert!(!rings());
        let (changes, changed) = bounded(0);
        let (go_on, goes_on) = bounded::<()>(0);
        sender.send(1).unwrap();
        let writer = crew.go(move || {
            sender.send_modify(|n| {
                changes.send(()).unwrap();
                assert!(goes_on.recv().is_err());
                *n += 1;
            });
        });
        let reader = crew.go(move || {
            changed.recv().unwrap();
            assert!(rings() && !rings());
            let late = receiver.wait_for_timeout(|_| true, MS).map(|n| *n);
            assert_eq!((late, rings(), rings()), (Err(RecvTimeoutError::Timeout), true, false));
            let ended = gmp::time::timeout(MS, || *receiver.borrow_and_update());
            assert_eq!((ended, rings(), rings()), (Err(ContextError::DeadlineExceeded), true, false));
            let ended = gmp::time::timeout(MS, || receiver.wait_for(|_| true).is_ok());
            assert_eq!((ended, rings(), rings()), (Err(ContextError::DeadlineExceeded), true, false));
            drop(go_on);
            *receiver.borrow_and_update()
        });
        assert_eq!(reader.join(), 2);
        writer.join();
    });
}
