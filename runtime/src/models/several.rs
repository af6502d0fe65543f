//! Broadcast and watch channels: a message or value that is sent beside the beginning of a wait, or of a bell, is seen.

use super::caught;
use super::task::{Foreign, poll, run};
use crate::chan::{broadcast, watch};
use crate::model::{Model, Mutant, at_rest, done};
use loom::thread;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

/// A change meets a close. Fails when a receiver is told of the end, and then of the change; or when a `send` succeeds, and no
/// receiver is told.
fn a_change_meets_a_close(name: &str, change: fn(&watch::Sender<u32>) -> bool, fails: bool) {
    Model::new().check(name, move || {
        let (sender, mut receiver) = watch::channel(0);
        let theirs = sender.clone();
        let changes = thread::spawn(move || change(&theirs));
        assert!(sender.close());
        let told = receiver.changed().is_ok();
        let changed = changes.join().unwrap();
        assert_eq!(receiver.changed(), Err(watch::RecvError));
        assert_eq!((changed, *receiver.borrow() == 7), (told || !fails, told || !fails));
    });
}

#[test]
fn a_send_meets_a_close() {
    a_change_meets_a_close("watch_close", |sender| sender.send(7).is_ok(), true);
}

#[test]
fn a_change_in_place_meets_a_close() {
    let change = |sender: &watch::Sender<u32>| {
        sender.send_if_modified(|value| {
            *value = 7;
            true
        })
    };
    a_change_meets_a_close("watch_modify_close", change, false);
}

/// Fails by deadlock when the value and the receiver miss each other.
#[test]
fn a_value_meets_a_goroutine_that_begins_to_wait() {
    Model::new().check("watch", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = watch::channel(0);
        let waits = runtime.go(move || {
            receiver.changed().unwrap();
            *receiver.borrow_and_update()
        });
        sender.send(7).unwrap();
        assert_eq!(waits.join().unwrap(), 7);
        done();
    });
}

/// Fails by deadlock when the message and the receiver miss each other.
#[test]
fn a_message_meets_a_goroutine_that_begins_to_wait() {
    Model::new().check("broadcast", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = broadcast::channel(1);
        let waits = runtime.go(move || receiver.recv());
        assert_eq!(sender.send(7), Ok(1));
        assert_eq!(waits.join().unwrap(), Ok(7));
        done();
    });
}

/// Fails by deadlock when the message rings no bell, and the receiver has not seen it.
#[test]
fn a_message_meets_a_bell_that_is_asked_for() {
    Model::new().check("broadcast_bell", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = broadcast::channel(1);
        let waits = runtime.go(move || {
            receiver.bell().recv().unwrap();
            receiver.try_recv()
        });
        assert_eq!(sender.send(7), Ok(1));
        assert_eq!(waits.join().unwrap(), Ok(7));
        done();
    });
}

/// Fails by deadlock when the end and the receiver miss each other.
#[test]
fn the_last_sender_meets_a_goroutine_that_begins_to_wait() {
    Model::new().check("broadcast_end", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = broadcast::channel::<u32>(1);
        let waits = runtime.go(move || receiver.recv());
        drop(sender);
        assert_eq!(waits.join().unwrap(), Err(broadcast::RecvError::Closed));
        done();
    });
}

/// A receiver stays. Fails by deadlock when the close and the sender miss each other.
#[test]
fn a_close_meets_a_sender_that_begins_to_wait() {
    Model::new().check("broadcast_close", || {
        let runtime = at_rest::<1>();
        let (sender, _receiver) = broadcast::channel::<u32>(1);
        let waiting = sender.clone();
        let waits = runtime.go(move || waiting.closed());
        assert!(sender.close());
        waits.join().unwrap();
        done();
    });
}

/// Fails by deadlock when the bell stays open.
#[test]
fn the_last_sender_meets_a_bell_that_is_asked_for() {
    Model::new().check("broadcast_end_bell", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = broadcast::channel::<u32>(1);
        let waits = runtime.go(move || receiver.bell().recv().is_err());
        drop(sender);
        assert!(waits.join().unwrap());
        done();
    });
}

/// Fails by deadlock when the message and the future miss each other.
#[test]
fn a_message_meets_a_future_that_begins_to_wait() {
    Model::new().check("broadcast_future", || {
        let (sender, mut receiver) = broadcast::channel(1);
        // The sender is kept: its end would wake the future as well.
        let sends = thread::spawn(move || (sender.send(7), sender));
        assert_eq!(run(pin!(receiver.recv_async()), &Foreign::new()), Ok(7));
        assert_eq!(sends.join().unwrap().0, Ok(1));
    });
}

/// Fails by deadlock when the value and the future miss each other.
#[test]
fn a_value_meets_a_future_that_begins_to_wait() {
    Model::new().check("watch_future", || {
        let (sender, mut receiver) = watch::channel(0);
        let sends = thread::spawn(move || (sender.send(7).is_ok(), sender));
        let seen = run(pin!(receiver.wait_for_async(|value| *value == 7)), &Foreign::new());
        assert_eq!(seen.map(|value| *value), Ok(7));
        assert!(sends.join().unwrap().0);
    });
}

/// Fails by deadlock when the end and the future of the other side miss each other.
#[test]
fn the_last_receiver_meets_a_future_that_waits_for_its_end() {
    Model::new().check("broadcast_closed_future", || {
        let (sender, receiver) = broadcast::channel::<u32>(1);
        let goes = thread::spawn(move || drop(receiver));
        run(pin!(sender.closed_async()), &Foreign::new());
        goes.join().unwrap();
    });
}

/// One future is dropped beside the message. Fails by deadlock when the other one, which waits behind it, is not told; by the
/// assertion when the message goes with the future; by a causality violation when the sender still has the record.
#[test]
fn a_future_that_is_dropped_beside_a_message_takes_nothing_with_it() {
    Model::new().check("broadcast_future_dropped", || {
        let (sender, mut receiver) = broadcast::channel(1);
        let mut other = receiver.clone();
        let sends = {
            let mut goes = pin!(receiver.recv_async());
            assert!(poll(goes.as_mut(), &Foreign::new()).is_pending());
            let task = Foreign::new();
            let mut stays = pin!(other.recv_async());
            assert!(poll(stays.as_mut(), &task).is_pending());
            let sends = thread::spawn(move || (sender.send(7), sender));
            task.until_woken();
            assert_eq!(poll(stays.as_mut(), &task), Poll::Ready(Ok(7)));
            sends
        };
        assert_eq!(receiver.try_recv(), Ok(7));
        assert_eq!(sends.join().unwrap().0, Ok(2));
    });
}

/// As `a_future_that_is_dropped_beside_a_message_takes_nothing_with_it`, with a `watch` and its one receiver, whose next future
/// has to be told of the change. Fails in the same ways.
#[test]
fn a_future_that_is_dropped_while_a_message_comes_leaves_it() {
    Model::new().check("watch_future_dropped", || {
        let (sender, mut receiver) = watch::channel(0);
        let sends = {
            let mut goes = pin!(receiver.changed_async());
            assert!(poll(goes.as_mut(), &Foreign::new()).is_pending());
            thread::spawn(move || (sender.send(7).is_ok(), sender))
        };
        assert_eq!(run(pin!(receiver.changed_async()), &Foreign::new()), Ok(()));
        assert_eq!(*receiver.borrow(), 7);
        assert!(sends.join().unwrap().0);
    });
}

/// Two receivers clone one message. Fails by deadlock when the second receiver, which waits for its turn, is not told.
#[test]
fn two_futures_take_turns_with_a_message() {
    Model::new().preemptions(2).check("broadcast_future_turns", || {
        let (sender, mut receiver) = broadcast::channel(1);
        let mut other = receiver.clone();
        sender.send(7).unwrap();
        let takes = thread::spawn(move || run(pin!(other.recv_async()), &Foreign::new()));
        assert_eq!(run(pin!(receiver.recv_async()), &Foreign::new()), Ok(7));
        assert_eq!(takes.join().unwrap(), Ok(7));
        assert!(sender.is_empty());
    });
}

/// A receiver clones the message that a sender removes, and that another receiver never sees. Fails by the count when neither
/// drops the value.
#[test]
fn a_message_is_cloned_while_it_is_removed() {
    Model::new().check("broadcast_removed", || {
        let (sender, mut receiver) = broadcast::channel(1);
        let (_other, first) = (sender.subscribe(), Arc::new(()));
        sender.send(Arc::clone(&first)).unwrap();
        let takes = thread::spawn(move || {
            drop(receiver.try_recv());
            receiver
        });
        sender.send(Arc::new(())).unwrap();
        let _receiver = takes.join().unwrap();
        assert_eq!(Arc::strong_count(&first), 1, "the channel still has the message");
    });
}

/// A receiver that has seen the message before looks for the next one without the channel's lock. Fails by a causality
/// violation, or a panic, when the receiver sees that message before its value.
#[test]
fn a_message_meets_a_receiver_that_looks_without_the_lock() {
    Model::new().check("broadcast_looks", || {
        let (sender, mut receiver) = broadcast::channel(2);
        sender.send(6).unwrap();
        assert_eq!(receiver.try_recv(), Ok(6));
        let sends = thread::spawn(move || (sender.send(7), sender));
        let seen = receiver.try_recv();
        let (sent, _sender) = sends.join().unwrap();
        assert_eq!(sent, Ok(1));
        match seen {
            Ok(seen) => assert_eq!(seen, 7),
            Err(_) => assert_eq!(receiver.try_recv(), Ok(7)),
        }
    });
}

/// A receiver sees two messages while another one goes, which has seen none. Fails by the counts when a message stays in the
/// ring, or its value in the block that the first receiver keeps.
#[test]
fn a_receiver_goes_while_another_receives() {
    Model::new().check("broadcast_goes", || {
        let (sender, mut receiver) = broadcast::channel(2);
        let (other, message) = (receiver.clone(), Arc::new(()));
        assert_eq!((sender.send(Arc::clone(&message)), sender.send(Arc::clone(&message))), (Ok(2), Ok(2)));
        let goes = thread::spawn(move || drop(other));
        assert!((0..2).all(|_| receiver.try_recv().is_ok()));
        goes.join().unwrap();
        assert!(sender.is_empty(), "a message that all have seen is in the ring");
        assert_eq!(Arc::strong_count(&message), 1, "the channel still has a message");
    });
}

/// A receiver is cloned while a sender removes the message that both are to see next, and both receive. Fails by a panic when
/// the clone, which is not counted for that message, waits for its turn while the last receiver that counts clears the value.
#[test]
fn a_receiver_is_cloned_while_its_message_is_removed() {
    Model::new().check("broadcast_cloned", || {
        let (sender, mut receiver) = broadcast::channel(2);
        // The receiver has the block in which its next message is, and the ring is full.
        assert_eq!(sender.send(1), Ok(1));
        assert_eq!(receiver.try_recv(), Ok(1));
        assert_eq!((sender.send(2), sender.send(3)), (Ok(1), Ok(1)));
        let receives = thread::spawn(move || {
            let mut clone = receiver.clone();
            let takes = thread::spawn(move || clone.try_recv());
            let both = [receiver.try_recv(), takes.join().unwrap()];
            let lags = Err(broadcast::TryRecvError::Lagged(1));
            assert!(both.iter().all(|seen| [Ok(2), lags].contains(seen)), "{both:?}");
        });
        // Both receivers may be gone.
        let _sent = sender.send(4);
        receives.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SeveralLooksOnce, "a_value_meets_a_goroutine_that_begins_to_wait"),
            (Mutant::SeveralLooksOnce, "a_message_meets_a_goroutine_that_begins_to_wait"),
            (Mutant::SeveralTaskLooksOnce, "a_message_meets_a_future_that_begins_to_wait"),
            (Mutant::SeveralTaskLooksOnce, "a_value_meets_a_future_that_begins_to_wait"),
            (Mutant::SeveralTaskLooksOnce, "the_last_receiver_meets_a_future_that_waits_for_its_end"),
            (Mutant::SeveralTaskLooksOnce, "a_future_that_is_dropped_while_a_message_comes_leaves_it"),
            (Mutant::SeveralTellsOne, "a_future_that_is_dropped_beside_a_message_takes_nothing_with_it"),
            (Mutant::BroadcastSeenEarly, "a_message_is_cloned_while_it_is_removed"),
            (Mutant::BroadcastSeesNoRemoval, "a_message_is_cloned_while_it_is_removed"),
            (Mutant::BroadcastLeavesUntidy, "a_message_is_cloned_while_it_is_removed"),
            (Mutant::BroadcastLaggardKeepsItsBlock, "a_receiver_is_cloned_while_its_message_is_removed"),
            (Mutant::BroadcastCloneUncounted, "a_receiver_is_cloned_while_its_message_is_removed"),
            (Mutant::BroadcastPassesOne, "a_receiver_goes_while_another_receives"),
            (Mutant::BroadcastLastClearsNothing, "a_receiver_goes_while_another_receives"),
            (Mutant::SeveralEndTellsNoReceiver, "the_last_sender_meets_a_goroutine_that_begins_to_wait"),
            (Mutant::SeveralEndTellsNoSender, "a_close_meets_a_sender_that_begins_to_wait"),
            (Mutant::BellsOutliveTheEnd, "the_last_sender_meets_a_bell_that_is_asked_for"),
            (Mutant::WatchCountsLate, "a_value_meets_a_goroutine_that_begins_to_wait"),
            (Mutant::WatchCountsAfterTheEnd, "a_send_meets_a_close"),
            (Mutant::WatchCountsAfterTheEnd, "a_change_in_place_meets_a_close"),
            (Mutant::BellHangsLate, "a_message_meets_a_bell_that_is_asked_for"),
        ],
    );
}
