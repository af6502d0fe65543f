//! Selects over two channels, against closes, sends and other selects.
//!
//! *The mutants* take out the one critical section of look and queue, the second look after an arm was claimed elsewhere, and
//! each wake of a watcher.

use super::caught;
use super::task::{Foreign, run};
use crate::chan;
use crate::model::{Model, Mutant, at_rest, done};
use crate::{select, select_biased};
use std::pin::pin;

/// Fails by deadlock when the select misses the close between its look and its place in the queues.
#[test]
fn a_close_meets_a_select_over_two_channels() {
    Model::new().check("select_close", || {
        let runtime = at_rest::<1>();
        let (first, one) = chan::bounded::<u32>(0);
        let (_second, two) = chan::bounded::<u32>(0);
        let selects = runtime.go(move || {
            select! {
                recv(one) -> got => got.is_err(),
                recv(two) -> _ => unreachable!(),
            }
        });
        assert!(first.close());
        assert!(selects.join().unwrap());
        done();
    });
}

/// Both channels get a message at once, from two threads. Fails when the select takes both, or loses one.
#[test]
fn of_two_messages_a_select_takes_one_and_leaves_the_other() {
    Model::new().check("select_two", || {
        let runtime = at_rest::<1>();
        let (first, one) = chan::bounded(1);
        let (second, two) = chan::bounded(1);
        let selects = runtime.go({
            let (one, two) = (one.clone(), two.clone());
            move || {
                select! {
                    recv(one) -> got => got.unwrap(),
                    recv(two) -> got => got.unwrap(),
                }
            }
        });
        let other = loom::thread::spawn(move || second.send(2).unwrap());
        first.send(1).unwrap();
        other.join().unwrap();
        let got = selects.join().unwrap();
        let left: Vec<_> = one.try_iter().chain(two.try_iter()).collect();
        assert_eq!(left, [3 - got]);
        done();
    });
}

/// A goroutine offers on one channel and receives on the other; the thread does the reverse. Fails by deadlock when they miss
/// each other, by an assertion when both channels are used.
#[test]
fn two_selects_that_cross_each_other_meet() {
    Model::new().check("select_crossing", || {
        let runtime = at_rest::<1>();
        let (ping, pinged) = chan::bounded(0);
        let (pong, ponged) = chan::bounded(0);
        let other = runtime.go({
            let (ping, ponged) = (ping.clone(), ponged.clone());
            move || {
                select! {
                    send(ping, 1) -> sent => { sent.unwrap(); (1, 0) }
                    recv(ponged) -> got => (0, got.unwrap()),
                }
            }
        });
        let (sent, got) = select! {
            send(pong, 2) -> sent => { sent.unwrap(); (2, 0) }
            recv(pinged) -> got => (0, got.unwrap()),
        };
        assert_eq!(other.join().unwrap(), (got, sent));
        assert!(got + sent > 0);
        drop((ping, ponged));
        done();
    });
}

/// A select with a default looks once. Fails when it loses a message that it does not see.
#[test]
fn a_select_that_does_not_wait_loses_nothing() {
    Model::new().check("select_default", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let sender = runtime.go(move || s.send(7).is_ok());
        let early = select! {
            recv(r) -> got => got.ok(),
            default => None,
        };
        let got = early.or_else(|| r.recv().ok());
        assert_eq!(got, Some(7));
        assert!(sender.join().unwrap());
        done();
    });
}

/// A goroutine waits in `ready` for a message. Fails by deadlock when the sender that comes does not wake the goroutine.
fn a_ready_hears_of_a_sender(model: Model, name: &str, capacity: usize, send: fn(&chan::Sender<u32>)) {
    model.check(name, move || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(capacity);
        let watcher = runtime.go(move || {
            let mut select = chan::Select::new();
            select.recv(&r);
            assert_eq!(select.ready(), 0);
            r.recv().ok()
        });
        send(&s);
        assert_eq!(watcher.join().unwrap(), Some(7));
        done();
    });
}

#[test]
fn a_ready_hears_of_a_sender_that_comes() {
    a_ready_hears_of_a_sender(Model::new(), "select_ready", 0, |s| s.send(7).unwrap());
}

#[test]
fn a_ready_hears_of_a_message_in_the_buffer() {
    a_ready_hears_of_a_sender(Model::new(), "select_ready_buffered", 1, |s| s.send(7).unwrap());
}

#[test]
fn a_ready_hears_of_a_select_that_sends() {
    a_ready_hears_of_a_sender(Model::new().preemptions(1), "select_ready_select", 0, |s| {
        select! { send(s, 7) -> sent => sent.unwrap(), recv(chan::never::<()>()) -> _ => unreachable!() }
    });
}

#[test]
fn a_ready_hears_of_a_future_that_sends() {
    a_ready_hears_of_a_sender(Model::new().preemptions(1), "select_ready_future_sends", 0, |s| {
        run(pin!(s.send_async(7)), &Foreign::new()).unwrap();
    });
}

/// A select sees a message without the lock, which another receiver takes first. Fails by an error when the select takes that
/// arm nevertheless, by deadlock when it does not look at its other arm.
#[test]
fn a_select_whose_message_went_elsewhere_looks_again() {
    Model::new().check("select_glance", || {
        let runtime = at_rest::<1>();
        let (first, one) = chan::bounded(1);
        let (second, two) = chan::bounded(1);
        first.send(1).unwrap();
        let other = runtime.go({
            let (one, second) = (one.clone(), second.clone());
            move || {
                let taken = one.try_recv();
                second.send(2).unwrap();
                taken.is_ok()
            }
        });
        let got = select! {
            recv(one) -> got => got.unwrap(),
            recv(two) -> got => got.unwrap(),
        };
        assert_eq!(got, if other.join().unwrap() { 2 } else { 1 });
        drop((first, second));
        done();
    });
}

/// A sender waits in two channels. A select sees it in the first one, and then the sender is claimed through the second one.
/// Fails by deadlock when that select then waits, although its other arm is ready.
#[test]
fn a_select_whose_counterpart_goes_elsewhere_takes_its_other_arm() {
    Model::new().check("select_elsewhere", || {
        let runtime = at_rest::<1>();
        let (first, one) = chan::bounded(0);
        let (second, two) = chan::bounded(0);
        let (third, three) = chan::bounded(1);
        third.send(3).unwrap();
        let offers = runtime.go({
            let (first, second) = (first.clone(), second.clone());
            move || {
                select! {
                    send(first, 1) -> sent => sent.unwrap(),
                    send(second, 2) -> sent => sent.unwrap(),
                }
            }
        });
        let other = loom::thread::spawn(move || two.recv().unwrap());
        let got = select_biased! {
            recv(one) -> got => got.unwrap(),
            recv(three) -> got => got.unwrap(),
        };
        if got == 1 {
            second.send(2).unwrap();
        }
        assert_eq!(other.join().unwrap(), 2);
        offers.join().unwrap();
        drop((first, third));
        done();
    });
}

/// A select keeps its place in one channel after a promise that was withdrawn, and takes a message of the other channel.
/// Fails by an assertion when its record stays in that place.
#[test]
fn a_select_that_kept_a_place_leaves_it_when_it_takes_another_arm() {
    Model::new().preemptions(1).check("select_kept", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let (first, one) = chan::bounded::<u32>(0);
        let (second, two) = chan::bounded(1);
        let selects = runtime.go(move || {
            select! {
                recv(one) -> _ => unreachable!(),
                recv(two) -> got => got.unwrap(),
            }
        });
        // Once this goroutine has run, the select waits; after the promise, it waits for the promised message.
        runtime.run(|| ());
        let mut select = chan::Select::new();
        select.send(&first);
        let promised = select.select();
        runtime.run(|| ());
        second.send(2).unwrap();
        loom::explore();
        promised.withdraw();
        assert_eq!(selects.join().unwrap(), 2);
        done();
    });
}

/// A goroutine waits in `ready` for a receiver, on a channel without a buffer. Fails by deadlock when the receiver that comes
/// does not wake the goroutine.
fn a_ready_hears_of_a_receiver(name: &str, receive: fn(&chan::Receiver<u32>) -> Option<u32>) {
    Model::new().preemptions(1).check(name, move || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let watcher = runtime.go(move || {
            let mut select = chan::Select::new();
            select.send(&s);
            assert_eq!(select.ready(), 0);
            s.send(7).is_ok()
        });
        assert_eq!(receive(&r), Some(7));
        assert!(watcher.join().unwrap());
        done();
    });
}

#[test]
fn a_ready_hears_of_a_receive_that_comes() {
    a_ready_hears_of_a_receiver("select_ready_receive", |r| r.recv().ok());
}

#[test]
fn a_ready_hears_of_a_select_that_receives() {
    a_ready_hears_of_a_receiver("select_ready_asks", |r| {
        select! { recv(r) -> got => got.ok(), recv(chan::never::<()>()) -> _ => None }
    });
}

#[test]
fn a_ready_hears_of_a_future_that_receives() {
    a_ready_hears_of_a_receiver("select_ready_future", |r| run(pin!(r.recv_async()), &Foreign::new()).ok());
}

/// A goroutine waits in `ready` for room while a receive makes some. Fails by deadlock when the receive does not wake the
/// goroutine.
#[test]
fn a_ready_hears_of_room_in_the_buffer() {
    Model::new().check("select_ready_room", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        s.send(1).unwrap();
        let watcher = runtime.go(move || {
            let mut select = chan::Select::new();
            select.send(&s);
            assert_eq!(select.ready(), 0);
            s.try_send(2).is_ok()
        });
        assert_eq!(r.recv(), Ok(1));
        assert!(watcher.join().unwrap());
        done();
    });
}

/// A goroutine waits in `ready` for room while the last receiver goes. Fails by deadlock when the goroutine is not woken.
#[test]
fn a_ready_hears_of_the_last_receiver() {
    Model::new().check("select_ready_deserted", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded(1);
        s.send(1).unwrap();
        let watcher = runtime.go(move || {
            let mut select = chan::Select::new();
            select.send(&s);
            assert_eq!(select.ready(), 0);
            s.try_send(2).is_err()
        });
        drop(r);
        assert!(watcher.join().unwrap());
        done();
    });
}

/// A goroutine waits in `ready` for a message while the last sender goes. Fails by deadlock when the goroutine is not woken.
#[test]
fn a_ready_hears_of_the_last_sender() {
    Model::new().check("select_ready_drained", || {
        let runtime = at_rest::<1>();
        let (s, r) = chan::bounded::<u32>(1);
        let watcher = runtime.go(move || {
            let mut select = chan::Select::new();
            select.recv(&r);
            assert_eq!(select.ready(), 0);
            r.recv().is_err()
        });
        drop(s);
        assert!(watcher.join().unwrap());
        done();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SelectQueuesLate, "a_close_meets_a_select_over_two_channels"),
            (Mutant::SelectQueuesLate, "two_selects_that_cross_each_other_meet"),
            (Mutant::SelectKeepsItsPlace, "a_select_that_kept_a_place_leaves_it_when_it_takes_another_arm"),
            (Mutant::ChanRoomPassesWatchers, "a_ready_hears_of_a_message_in_the_buffer"),
            (Mutant::SendComesInSilence, "a_ready_hears_of_a_sender_that_comes"),
            (Mutant::ReceiveComesInSilence, "a_ready_hears_of_a_receive_that_comes"),
            (Mutant::SelectAsksInSilence, "a_ready_hears_of_a_select_that_receives"),
            (Mutant::TaskReceivesInSilence, "a_ready_hears_of_a_future_that_receives"),
            (Mutant::TaskSendsInSilence, "a_ready_hears_of_a_future_that_sends"),
            (Mutant::SelectOffersInSilence, "a_ready_hears_of_a_select_that_sends"),
            (Mutant::ChanRoomTellsNobody, "a_ready_hears_of_room_in_the_buffer"),
            (Mutant::ChanEndTellsNoSendWatcher, "a_ready_hears_of_the_last_receiver"),
            (Mutant::ChanEndTellsNoReceiveWatcher, "a_ready_hears_of_the_last_sender"),
            (Mutant::SelectTrustsItsGlance, "a_select_whose_message_went_elsewhere_looks_again"),
            (Mutant::SelectLooksOnce, "a_select_whose_counterpart_goes_elsewhere_takes_its_other_arm"),
        ],
    );
}
