//! Channels: a message meets a receiver that is about to sleep, a close, a limit, a promise.
//!
//! *Modelled*: goroutines and threads at the two sides of one channel, with a buffer and without; a limit, a close, a drop of
//! the last end. *Left out*: selects over several channels (`models/select.rs`), tasks (`models/chan_task.rs`), and the other
//! ends of a promise (`models/promise.rs`). *The mutants* take out the one critical section of look and queue, the claim before
//! a hand-over, the wakes of a close, and the orderings of the counts of ends. *Failures*: a lost wake-up is a deadlock; a
//! message that is read early, or a channel that is freed early, is a causality violation.

use super::caught;
use crate::chan::{self, Receiver, Sender, TryRecvError};
use crate::model::{LONG, Model, Mutant, at_rest, done, pass};
use loom::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

/// A message: the receiver must see what the sender wrote.
struct Letter(Box<UnsafeCell<u32>>);

// SAFETY: the channel orders the accesses; loom checks that it does.
unsafe impl Send for Letter {}
// SAFETY: as for `Send`.
unsafe impl Sync for Letter {}

impl Letter {
    fn new(text: u32) -> Self {
        let letter = Letter(Box::new(UnsafeCell::new(0)));
        // SAFETY: this thread has just made it, and has not shared it yet.
        letter.0.with_mut(|it| unsafe { *it = text });
        letter
    }
    fn read(self) -> u32 {
        // SAFETY: the sender has sent the letter, and touches it no more.
        self.0.with_mut(|it| unsafe { *it })
    }
}

/// Fails by deadlock when the message and the receiver miss each other, by a causality violation when the message is
/// moved before the receiver sleeps.
fn a_letter_arrives(capacity: usize, name: &str) {
    Model::new().check(name, move || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(capacity);
        let receiver = runtime.go(move || r.recv().map(Letter::read));
        s.send(Letter::new(7)).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));
        done();
    });
}

#[test]
fn a_send_meets_a_goroutine_that_begins_to_receive() {
    a_letter_arrives(0, "chan_rendezvous");
}

#[test]
fn a_goroutine_that_begins_to_receive_sees_a_buffered_message() {
    a_letter_arrives(1, "chan_buffered");
}

/// As `a_letter_arrives`, with the thread as the receiver.
#[test]
fn a_receive_meets_a_goroutine_that_begins_to_send() {
    Model::new().check("chan_rendezvous_back", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let sender = runtime.go(move || s.send(Letter::new(7)).is_ok());
        assert_eq!(r.recv().map(Letter::read), Ok(7));
        assert!(sender.join().unwrap());
        done();
    });
}

/// Fails by deadlock when the second sender is not let in, by its assertion when the messages change places.
#[test]
fn a_receive_from_a_full_buffer_lets_a_waiting_sender_move_up() {
    Model::new().check("chan_full", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        s.send(1).unwrap();
        let sender = runtime.go(move || s.send(2).is_ok());
        assert_eq!([r.recv(), r.recv()], [Ok(1), Ok(2)]);
        assert!(sender.join().unwrap());
        done();
    });
}

/// The receiver has given its P away, and releases the channel's lock to come back to a P; the message, or the room, comes
/// then. Fails by deadlock when the receiver waits all the same.
#[test]
fn a_message_that_comes_while_its_receiver_gets_a_p_is_seen() {
    Model::new().check("chan_recv_without_p", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        let receiver = runtime.go(move || crate::blocking(|| r.recv().map(Letter::read)));
        s.send(Letter::new(7)).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));
        done();
    });
}

#[test]
fn room_that_comes_while_its_sender_gets_a_p_is_seen() {
    Model::new().check("chan_send_without_p", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        s.send(1).unwrap();
        let sender = runtime.go(move || crate::blocking(|| s.send(2).is_ok()));
        assert_eq!([r.recv(), r.recv()], [Ok(1), Ok(2)]);
        assert!(sender.join().unwrap());
        done();
    });
}

/// Fails by deadlock when the close does not wake the receiver.
#[test]
fn a_close_meets_a_goroutine_that_begins_to_receive() {
    Model::new().check("chan_close_receive", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded::<u32>(0);
        let receiver = runtime.go(move || r.recv().is_err());
        assert!(s.close());
        assert!(receiver.join().unwrap());
        done();
    });
}

/// Fails by deadlock when the close does not wake the sender; the sender gets its message back.
#[test]
fn a_close_meets_a_goroutine_that_begins_to_send() {
    Model::new().check("chan_close_send", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let sender = runtime.go(move || s.send(7).unwrap_err().into_inner());
        assert!(r.close());
        assert_eq!(sender.join().unwrap(), 7);
        done();
    });
}

/// A limit and a message come at the same time. Fails when the message is lost, or is there twice.
#[test]
fn a_limit_that_meets_a_message_loses_none() {
    Model::new().check("chan_limit", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        let receiver = runtime.go({
            let r = r.clone();
            move || r.recv_timeout(Duration::from_millis(1)).ok()
        });
        s.send(7).unwrap();
        let got = receiver.join().unwrap();
        let left = r.try_recv();
        assert!(
            matches!((got, left), (Some(7), Err(TryRecvError::Empty)) | (None, Ok(7))),
            "{got:?} {left:?}"
        );
        done();
    });
}

/// Sends by a select, which evaluates the message only when the send is chosen.
fn send_chosen(s: &Sender<Letter>, message: impl FnOnce() -> Letter) {
    crate::select! {
        send(s, message()) -> sent => assert!(sent.is_ok()),
        recv(chan::never::<()>()) -> _ => unreachable!(),
    }
}

/// Fails by deadlock when the receiver that has claimed the send, or was claimed by it, does not hear of the message.
#[test]
fn a_send_that_is_chosen_brings_its_message() {
    Model::new().check("chan_promise", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let sender = runtime.go(move || send_chosen(&s, || Letter::new(7)));
        assert_eq!(r.recv().map(Letter::read), Ok(7));
        sender.join().unwrap();
        done();
    });
}

/// As `a_send_that_is_chosen_brings_its_message`, with a goroutine that receives. Fails when the sender answers a
/// receiver that does not sleep yet.
#[test]
fn a_goroutine_waits_for_the_message_of_a_send_that_it_has_claimed() {
    Model::new().check("chan_promise_back", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let receiver = runtime.go(move || r.recv().map(Letter::read));
        send_chosen(&s, || Letter::new(7));
        assert_eq!(receiver.join().unwrap(), Ok(7));
        done();
    });
}

/// Does what a select does whose message panics: the unwinding drops the chosen send.
fn fail_to_send(s: &Sender<u32>) {
    let mut select = chan::Select::new();
    let index = select.send(s);
    let operation = select.select();
    assert_eq!(operation.index(), index);
    operation.withdraw();
}

fn receive_all(r: &Receiver<u32>) -> Vec<u32> {
    r.iter().collect()
}

/// Fails by deadlock when a receiver waits for a message that will not come.
#[test]
fn a_promise_that_is_withdrawn_leaves_the_receiver_waiting() {
    Model::new().check("chan_withdrawn", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let receiver = runtime.go(move || receive_all(&r));
        fail_to_send(&s);
        s.send(7).unwrap();
        drop(s);
        assert_eq!(receiver.join().unwrap(), [7]);
        done();
    });
}

/// Fails by deadlock when the reserved place is offered to no sender.
#[test]
fn a_place_that_is_given_back_goes_to_the_next() {
    Model::new().check("chan_given_back", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        let first = s.clone();
        let mut select = chan::Select::new();
        select.send(&first);
        let promised = select.select();
        let sender = runtime.go(move || s.send(2).is_ok());
        promised.withdraw();
        assert_eq!(r.recv(), Ok(2));
        assert!(sender.join().unwrap());
        done();
    });
}

/// A promise is kept while a receiver and a sender wait: the message goes to the receiver, and the reserved place to the
/// sender. Fails by deadlock when no sender is told that the place is free.
#[test]
fn a_message_that_passes_the_buffer_frees_its_place() {
    Model::new().check("chan_place_free", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        let first = s.clone();
        let mut select = chan::Select::new();
        select.send(&first);
        let promised = select.select();
        let both = runtime.go(move || {
            // This sender waits for the promise, as the buffer is empty.
            let sender = crate::go(move || s.send(2).is_ok());
            crate::yield_now();
            let mut got = [r.recv().unwrap(), r.recv().unwrap()];
            assert!(sender.join().unwrap());
            got.sort_unstable();
            got
        });
        promised.send(&first, 1).unwrap();
        assert_eq!(both.join().unwrap(), [1, 2]);
        done();
    });
}

/// A goroutine waits with a limit that the model's clock never reaches: only the message ends the wait.
#[test]
fn a_far_limit_does_not_keep_a_message_away() {
    Model::new().check("chan_far_limit", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let receiver = runtime.go(move || r.recv_timeout(LONG * 2).map(Letter::read));
        s.send(Letter::new(7)).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));
        done();
    });
}

/// Two threads drop their ends, and the last drop closes the channel. `told` finds the channel closed, and sees what the
/// other thread did before its drop. Fails by a causality violation.
fn a_close_comes_after_all_drops<E: Clone + Send + 'static, O: Send + 'static>(
    name: &str,
    ends: impl Fn() -> (E, O) + Send + Sync + 'static,
    told: impl Fn(O) + Send + Sync + 'static,
) {
    Model::new().unbounded().check(name, move || {
        let (end, other) = ends();
        let letter = Arc::new(Letter(Box::new(UnsafeCell::new(0))));
        let dropper = loom::thread::spawn({
            let (end, letter) = (end.clone(), Arc::clone(&letter));
            move || {
                // SAFETY: no other thread touches the letter before all ends are dropped.
                letter.0.with_mut(|it| unsafe { *it = 7 });
                drop(end);
            }
        });
        drop(end);
        told(other);
        // SAFETY: all ends are dropped.
        assert_eq!(letter.0.with(|it| unsafe { *it }), 7);
        dropper.join().unwrap();
    });
}

#[test]
fn a_receiver_that_is_told_of_the_end_sees_what_the_senders_did() {
    let told = |r: Receiver<u32>| assert!(r.recv().is_err());
    a_close_comes_after_all_drops("chan_senders_gone", || chan::bounded::<u32>(0), told);
}

#[test]
fn a_sender_that_is_told_of_the_end_sees_what_the_receivers_did() {
    let told = |s: Sender<u32>| assert!(s.send(1).is_err());
    let ends = || {
        let (s, r) = chan::bounded::<u32>(0);
        (r, s)
    };
    a_close_comes_after_all_drops("chan_receivers_gone", ends, told);
}

/// As `a_receiver_that_is_told_of_the_end_sees_what_the_senders_did`, but the last of two other threads tells the waiter,
/// between that thread's close and its end.
#[test]
fn a_receiver_sees_what_the_senders_did_before_the_last_one() {
    Model::new().check("chan_senders_before", || {
        let (s, r) = chan::bounded::<u32>(0);
        let letter = Arc::new(Letter(Box::new(UnsafeCell::new(0))));
        let first = loom::thread::spawn({
            let (s, letter) = (s.clone(), Arc::clone(&letter));
            move || {
                // SAFETY: no other thread touches the letter before all senders are dropped.
                letter.0.with_mut(|it| unsafe { *it = 7 });
                drop(s);
            }
        });
        let last = loom::thread::spawn(move || drop(s));
        assert!(r.recv().is_err());
        // SAFETY: all senders are dropped.
        assert_eq!(letter.0.with(|it| unsafe { *it }), 7);
        first.join().unwrap();
        last.join().unwrap();
    });
}

/// Fails by a causality violation when the channel is freed while its other end closes it, or when a message is dropped twice
/// or never.
#[test]
fn the_last_ends_of_both_kinds_go_at_the_same_time() {
    Model::new().unbounded().check("chan_both_gone", || {
        let (s, r) = chan::bounded(1);
        let message = Arc::new(());
        s.send(Arc::clone(&message)).unwrap();
        let other = loom::thread::spawn(move || drop(s));
        drop(r);
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&message), 1);
    });
}

/// Each of two threads has a sender, and one of them the receiver. Fails by a causality violation when the receiver frees the
/// channel, without the lock, under the other thread's sender.
#[test]
fn a_receiver_that_is_alone_sees_what_all_others_did() {
    Model::new().unbounded().check("chan_alone", || {
        let (s, r) = chan::bounded(1);
        let message = Arc::new(());
        s.send(Arc::clone(&message)).unwrap();
        let theirs = s.clone();
        let other = loom::thread::spawn(move || drop(theirs));
        drop(s);
        drop(r);
        other.join().unwrap();
        assert_eq!(Arc::strong_count(&message), 1);
    });
}

/// The limit of a plain thread passes as the message comes. Fails by a causality violation, or by a lost message, when the
/// thread does not wait for the sender that has claimed its wait.
#[test]
fn a_thread_whose_limit_passes_waits_for_a_faster_sender() {
    Model::new().check("chan_thread_limit", || {
        let (s, r) = chan::bounded(0);
        let sender = loom::thread::spawn(move || {
            pass(LONG);
            s.try_send(Letter::new(7)).is_ok()
        });
        let got = r.recv_timeout(Duration::from_millis(1)).map(Letter::read).ok();
        assert_eq!(sender.join().unwrap(), got == Some(7));
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::ThreadLimitLeavesEarly, "a_thread_whose_limit_passes_waits_for_a_faster_sender"),
            (Mutant::EndGoesRelaxed, "a_receiver_that_is_told_of_the_end_sees_what_the_senders_did"),
            (Mutant::LastEndLooksRelaxed, "a_receiver_sees_what_the_senders_did_before_the_last_one"),
            (Mutant::EndGoesRelaxed, "a_receiver_that_is_alone_sees_what_all_others_did"),
            (Mutant::EndGoesRelaxed, "a_sender_that_is_told_of_the_end_sees_what_the_receivers_did"),
            (Mutant::LastEndLooksRelaxed, "a_receiver_that_is_alone_sees_what_all_others_did"),
            (Mutant::LastPartyGoesRelaxed, "a_receiver_that_is_alone_sees_what_all_others_did"),
            (Mutant::LastPartyGoesRelaxed, "the_last_ends_of_both_kinds_go_at_the_same_time"),
            (Mutant::LastPartyFreesRelaxed, "the_last_ends_of_both_kinds_go_at_the_same_time"),
            (Mutant::ChanRecvQueuesLate, "a_goroutine_that_begins_to_receive_sees_a_buffered_message"),
            (Mutant::ChanRecvQueuesLate, "a_send_meets_a_goroutine_that_begins_to_receive"),
            (Mutant::ChanRecvQueuesLate, "a_receive_meets_a_goroutine_that_begins_to_send"),
            (Mutant::ChanRecvQueuesLate, "a_send_that_is_chosen_brings_its_message"),
            (Mutant::ChanRecvQueuesLate, "a_far_limit_does_not_keep_a_message_away"),
            (Mutant::ChanSendQueuesLate, "a_receive_from_a_full_buffer_lets_a_waiting_sender_move_up"),
            (Mutant::ChanCloseForgetsReceivers, "a_close_meets_a_goroutine_that_begins_to_receive"),
            (Mutant::ChanCloseForgetsSenders, "a_close_meets_a_goroutine_that_begins_to_send"),
            (Mutant::ChanRecvOpensBlindly, "a_message_that_comes_while_its_receiver_gets_a_p_is_seen"),
            (Mutant::ChanSendOpensBlindly, "room_that_comes_while_its_sender_gets_a_p_is_seen"),
            (Mutant::ChanNobodyMovesUp, "a_receive_from_a_full_buffer_lets_a_waiting_sender_move_up"),
            (Mutant::ChanNobodyMovesUp, "a_message_that_passes_the_buffer_frees_its_place"),
            (Mutant::ChanServesWithoutClaim, "a_limit_that_meets_a_message_loses_none"),
            (Mutant::PromiseAskedTooEarly, "a_goroutine_waits_for_the_message_of_a_send_that_it_has_claimed"),
            (Mutant::PromiseWithdrawnSilently, "a_promise_that_is_withdrawn_leaves_the_receiver_waiting"),
            (Mutant::ChanReservedNotOffered, "a_place_that_is_given_back_goes_to_the_next"),
            (Mutant::ChanFilledNotOffered, "a_message_that_passes_the_buffer_frees_its_place"),
            (Mutant::ReturnedIgnoresItsSlot, "a_promise_that_is_withdrawn_leaves_the_receiver_waiting"),
        ],
    );
}
