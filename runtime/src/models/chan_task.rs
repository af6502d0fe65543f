//! Futures that wait for a channel: beside a delivery, a drop, a close, a promise, and beside each other.

use super::caught;
use super::task::{Foreign, poll};
use crate::block_on;
use crate::chan::{self, Receiver, TryRecvError, bounded, unbounded};
use crate::model::{Model, Mutant, at_rest, done};
use loom::cell::UnsafeCell;
use loom::thread;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// A message: the receiver must see what the sender wrote, and one of them drops it.
struct Letter(Box<UnsafeCell<u32>>);

// SAFETY: the channel orders the accesses; loom checks that it does.
unsafe impl Send for Letter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Letter {}

impl Letter {
    fn new(text: u32) -> Self {
        Letter(Box::new(UnsafeCell::new(text)))
    }
    fn read(self) -> u32 {
        // SAFETY: the sender has sent the letter, and touches it no more.
        self.0.with_mut(|it| unsafe { *it })
    }
}

impl Drop for Letter {
    fn drop(&mut self) {
        // SAFETY: as in `read`; zero is no text.
        self.0.with_mut(|it| unsafe { assert_ne!(std::mem::take(&mut *it), 0, "dropped twice") });
    }
}

/// Drives a future on this thread.
fn drive<T>(future: impl Future<Output = T>) -> T {
    let (mut future, task) = (pin!(future), Foreign::new());
    loop {
        match poll(future.as_mut(), &task) {
            Poll::Ready(output) => return output,
            Poll::Pending => task.until_woken(),
        }
    }
}

/// Fails by deadlock when the message does not wake the task; by a causality violation when the message is moved while the
/// future looks.
#[test]
fn a_message_meets_a_future_that_begins_to_receive() {
    for capacity in [0, 1] {
        Model::new().check(&format!("chan_task_receive_{capacity}"), move || {
            let (s, r) = bounded(capacity);
            let sender = thread::spawn(move || s.send(Letter::new(7)).is_ok());
            assert_eq!(drive(r.recv_async()).map(Letter::read), Ok(7));
            assert!(sender.join().unwrap());
        });
    }
}

/// Fails by deadlock when each of the two futures only looks.
#[test]
fn two_futures_meet_without_a_buffer() {
    Model::new().check("chan_task_meet", || {
        let (s, r) = bounded(0);
        let sender = thread::spawn(move || drive(s.send_async(Letter::new(7))).is_ok());
        assert_eq!(drive(r.recv_async()).map(Letter::read), Ok(7));
        assert!(sender.join().unwrap());
    });
}

/// A future that waits is dropped beside the delivery. Fails by deadlock when the message is lost with the future; by a
/// causality violation when the record is freed while the sender uses it.
#[test]
fn a_receive_that_is_dropped_beside_a_delivery_leaves_the_message() {
    for capacity in [0, 1] {
        Model::new().check(&format!("chan_task_dropped_{capacity}"), move || {
            let (s, r) = bounded(capacity);
            let sender = {
                let mut receive = pin!(r.recv_async());
                assert!(poll(receive.as_mut(), &Foreign::new()).is_pending());
                thread::spawn(move || s.send(Letter::new(7)).is_ok())
            };
            assert_eq!(r.recv().map(Letter::read), Ok(7));
            assert!(sender.join().unwrap());
        });
    }
}

/// As `a_receive_that_is_dropped_beside_a_delivery_leaves_the_message`, with a goroutine that waits behind the future. Fails by
/// deadlock when the message that comes back does not wake the goroutine.
#[test]
fn a_message_that_comes_back_goes_to_a_waiter() {
    Model::new().preemptions(2).check("chan_task_passed_on", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(1);
        let behind;
        {
            let mut receive = pin!(r.recv_async());
            assert!(poll(receive.as_mut(), &Foreign::new()).is_pending());
            let theirs = r.clone();
            behind = runtime.go(move || theirs.recv().map(Letter::read));
            s.send(Letter::new(7)).unwrap();
        }
        assert_eq!(behind.join().unwrap(), Ok(7));
        done();
    });
}

/// As `a_message_that_comes_back_goes_to_a_waiter`, with a select that watches. Fails by deadlock when the select is not told.
#[test]
fn a_message_that_comes_back_wakes_a_watching_select() {
    Model::new().preemptions(2).check("chan_task_watched", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(1);
        let watches;
        {
            let mut receive = pin!(r.recv_async());
            assert!(poll(receive.as_mut(), &Foreign::new()).is_pending());
            s.send(7).unwrap();
            let theirs = r.clone();
            watches = runtime.go(move || {
                let mut select = chan::Select::new();
                select.recv(&theirs);
                select.ready();
                theirs.try_recv()
            });
        }
        assert_eq!(watches.join().unwrap(), Ok(7));
        done();
    });
}

/// A second message comes, and a goroutine receives, while the first message is granted to a future that is then dropped. Fails
/// by the assertion when the second message passes the first.
#[test]
fn what_comes_back_is_where_it_was() {
    Model::new().preemptions(2).check("chan_task_order", || {
        let runtime = at_rest::<1>();
        let (s, r) = unbounded();
        let behind;
        {
            let mut receive = pin!(r.recv_async());
            assert!(poll(receive.as_mut(), &Foreign::new()).is_pending());
            s.send(1).unwrap();
            let theirs = r.clone();
            behind = runtime.go(move || [theirs.recv().unwrap(), theirs.recv().unwrap()]);
            s.send(2).unwrap();
        }
        assert_eq!(behind.join().unwrap(), [1, 2]);
        done();
    });
}

/// A message comes back to a channel without a buffer. Fails by deadlock when a select waits for a sender beside that message.
#[test]
fn what_comes_back_without_a_buffer_is_received() {
    Model::new().preemptions(2).check("chan_task_back_0", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(0);
        {
            let mut receive = pin!(r.recv_async());
            assert!(poll(receive.as_mut(), &Foreign::new()).is_pending());
            s.send(1).unwrap();
        }
        let receives = runtime.go(move || {
            let other = crate::chan::never::<u32>();
            crate::select! { recv(r) -> got => got, recv(other) -> _ => unreachable!() }
        });
        assert_eq!(receives.join().unwrap(), Ok(1));
        drop(s);
        done();
    });
}

/// As `what_comes_back_without_a_buffer_is_received`, with a sender that waits. Fails by the assertion when the two messages
/// are not received in order.
#[test]
fn what_comes_back_without_a_buffer_is_received_first() {
    Model::new().preemptions(2).check("chan_task_order_0", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(0);
        let later;
        {
            let mut receive = pin!(r.recv_async());
            assert!(poll(receive.as_mut(), &Foreign::new()).is_pending());
            s.send(1).unwrap();
            later = runtime.go(move || s.send(2).is_ok());
        }
        assert_eq!([r.recv(), r.recv()], [Ok(1), Ok(2)]);
        assert!(later.join().unwrap());
        done();
    });
}

/// The last message of a closed channel is granted to a future; a goroutine waits for the end. Fails by deadlock when the
/// goroutine is not told, by the assertion when it is told too early.
fn the_last_message(name: &str, takes: bool) {
    Model::new().preemptions(2).check(name, move || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(1);
        let (tells, told) = (r.clone(), r.clone());
        let behind;
        {
            let mut receive = pin!(r.recv_async());
            let task = Foreign::new();
            assert!(poll(receive.as_mut(), &task).is_pending());
            s.send(7).unwrap();
            drop(s);
            behind = runtime.go(move || {
                // If the message comes back, two goroutines wait: one gets the message, the other is told of the end.
                let other = (!takes).then(|| crate::go(move || tells.recv().ok()));
                [told.recv().ok(), other.and_then(|other| other.join().unwrap())]
            });
            if takes {
                assert_eq!(poll(receive.as_mut(), &task), Poll::Ready(Ok(7)));
            }
        }
        let mut got = behind.join().unwrap();
        got.sort_unstable();
        assert_eq!(got, [None, (!takes).then_some(7)]);
        done();
    });
}

#[test]
fn the_end_is_told_when_the_last_message_was_taken() {
    the_last_message("chan_task_drained", true);
}

#[test]
fn the_end_is_told_when_the_last_message_came_back() {
    the_last_message("chan_task_drained_back", false);
}

/// A future that sends is dropped beside a receive that looks. Fails by the assertion, or by a causality violation, when the
/// message is both sent and dropped.
#[test]
fn a_send_that_is_dropped_beside_a_receive_has_sent_or_not() {
    Model::new().check("chan_task_send_dropped", || {
        let (s, r) = bounded(0);
        let receiver = {
            let mut send = pin!(s.send_async(Letter::new(7)));
            assert!(poll(send.as_mut(), &Foreign::new()).is_pending());
            thread::spawn(move || {
                let got = r.try_recv().map(Letter::read);
                (got, r)
            })
        };
        let (got, r) = receiver.join().unwrap();
        assert!(matches!(got, Ok(7) | Err(TryRecvError::Empty)));
        assert!(r.try_recv().is_err());
    });
}

/// A goroutine sends by a select: the send claims the future, or the future claims the send. Fails by deadlock when one of the
/// two does not hear of the other.
#[test]
fn a_send_that_is_chosen_brings_its_message_to_a_future() {
    Model::new().preemptions(2).check("chan_task_promise", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(0);
        let sender = runtime.go(move || {
            crate::select! {
                send(s, Letter::new(7)) -> sent => assert!(sent.is_ok()),
                recv(chan::never::<()>()) -> _ => unreachable!(),
            }
        });
        assert_eq!(drive(r.recv_async()).map(Letter::read), Ok(7));
        sender.join().unwrap();
        done();
    });
}

fn receive_two(r: &Receiver<u32>) -> [Option<u32>; 2] {
    [drive(r.recv_async()).ok(), drive(r.recv_async()).ok()]
}

/// Fails by deadlock when the future waits for a message that will not come.
#[test]
fn a_promise_that_is_withdrawn_leaves_the_future_waiting() {
    Model::new().preemptions(2).check("chan_task_withdrawn", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(0);
        let sender = runtime.go(move || {
            let mut select = chan::Select::new();
            select.send(&s);
            select.select().withdraw();
            s.send(7).unwrap();
        });
        assert_eq!(receive_two(&r), [Some(7), None]);
        sender.join().unwrap();
        done();
    });
}

/// A promise is kept on a channel that was closed meanwhile, and the future is dropped. Fails when a message comes after the
/// end.
#[test]
fn no_message_comes_behind_the_end() {
    Model::new().preemptions(2).check("chan_task_behind_the_end", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(0);
        let sender;
        {
            let mut receive = pin!(r.recv_async());
            assert!(poll(receive.as_mut(), &Foreign::new()).is_pending());
            sender = runtime.go(move || {
                let mut select = chan::Select::new();
                select.send(&s);
                let chosen = select.select();
                s.close();
                chosen.send(&s, 7).is_err()
            });
            while !r.is_closed() {
                loom::thread::yield_now();
            }
            assert!(r.recv().is_err());
        }
        assert!(sender.join().unwrap());
        assert_eq!(r.try_recv(), Err(TryRecvError::Disconnected));
        done();
    });
}

/// Two goroutines drive a future each. Fails by deadlock when a wake is lost on the way through both kinds of waits.
#[test]
fn goroutines_that_poll_meet() {
    Model::new().preemptions(2).check("chan_task_goroutines", || {
        let runtime = at_rest::<1>();
        let (s, r) = bounded(0);
        let receiver = runtime.go(move || block_on(r.recv_async()).map(Letter::read));
        block_on(s.send_async(Letter::new(7))).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));
        done();
    });
}

/// A close wakes two futures while this thread drops them. Fails by a causality violation, or by deadlock.
#[test]
fn a_close_beside_the_drops_of_futures() {
    Model::new().preemptions(2).check("chan_task_close", || {
        let (s, r) = bounded::<u32>(0);
        let r = Arc::new(r);
        let mut first = Box::pin({
            let r = Arc::clone(&r);
            async move { r.recv_async().await }
        });
        let mut second = pin!(r.recv_async());
        assert!(poll(first.as_mut(), &Foreign::new()).is_pending());
        assert!(poll(second.as_mut(), &Foreign::new()).is_pending());
        let closer = thread::spawn(move || s.close());
        drop(first);
        closer.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::TaskSendKeepsItsMessage, "two_futures_meet_without_a_buffer"),
            (Mutant::TaskSendKeepsItsMessage, "goroutines_that_poll_meet"),
            (Mutant::TaskKeepsItsGrant, "a_receive_that_is_dropped_beside_a_delivery_leaves_the_message"),
            (Mutant::TaskKeepsItsGrant, "what_comes_back_without_a_buffer_is_received_first"),
            (
                Mutant::TaskLeavesBesideTheReady,
                "a_receive_that_is_dropped_beside_a_delivery_leaves_the_message",
            ),
            (Mutant::TaskLeavesBesideTheReady, "a_close_beside_the_drops_of_futures"),
            (Mutant::TaskKeepsWhatWasSent, "a_send_that_is_dropped_beside_a_receive_has_sent_or_not"),
            (Mutant::GivenBackToNobody, "a_message_that_comes_back_goes_to_a_waiter"),
            (Mutant::GivenBackInSilence, "a_message_that_comes_back_wakes_a_watching_select"),
            (Mutant::GivenBackEndsNobody, "the_end_is_told_when_the_last_message_came_back"),
            (Mutant::GivenBackIsPassed, "what_comes_back_without_a_buffer_is_received"),
            (Mutant::GrantEndsNobody, "the_end_is_told_when_the_last_message_was_taken"),
            (Mutant::GrantedIsDrained, "the_end_is_told_when_the_last_message_came_back"),
            (Mutant::GrantedBehindTheEnd, "no_message_comes_behind_the_end"),
            (Mutant::ChanHandsPastTheGranted, "what_comes_back_is_where_it_was"),
            (Mutant::PromiseWithdrawnSilently, "a_promise_that_is_withdrawn_leaves_the_future_waiting"),
        ],
    );
}
