//! A promise of a select's send, and its ends: the message, the end of the sender's runtime, a receiver that gives up.
//!
//! *The mutants* take out the claim of the receiver before its message is put there, the looks at receivers that have left or
//! come back, and the wakes and hand-overs when a promise ends.

use super::caught;
use super::cover::Handle;
use crate::chan::{self, Receiver, Select, SelectedOperation, Sender, TryRecvError};
use crate::context::{Context, ContextError};
use crate::model::{Flag, Model, Mutant, at_rest, done, runtime};
use crate::sync::Event;
use crate::{JoinHandle, Runtime, select};
use std::time::Duration;

/// Makes a goroutine, in a runtime of its own, promise a message that never comes. When `stuck` returns, the goroutine
/// evaluates the message.
fn stuck(s: &Sender<u32>) -> Runtime {
    let (rt, evaluates, s) = (runtime(1, 1), Flag::default(), s.clone());
    let tells = evaluates.clone();
    drop(rt.go(move || {
        let message = || {
            tells.raise();
            Event::new().wait();
            unreachable!("nobody notifies it")
        };
        select! { send(s, message()) -> _ => {}, recv(chan::never::<()>()) -> _ => {} }
    }));
    evaluates.wait_on_thread();
    rt
}

/// Ends a runtime, and unwinds no goroutine.
fn leave(rt: Runtime) {
    assert_eq!(rt.shutdown(Duration::ZERO).goroutines_left(), 1);
}

/// Fails by deadlock when the receiver is not told that the sender was left behind.
#[test]
fn a_receiver_is_told_that_its_sender_was_left_behind() {
    Model::new().preemptions(2).check("promise_left", || {
        let (s, r) = chan::bounded(0);
        let receiver = loom::thread::spawn(move || r.recv());
        let rt = stuck(&s);
        loom::explore();
        leave(rt);
        s.send(7).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(7));
        done();
    });
}

/// Fails by deadlock when the close wakes only the receivers in the queue, and not the receiver whose promise is
/// withdrawn.
#[test]
fn the_end_of_the_senders_runtime_meets_a_close() {
    Model::new().preemptions(2).check("promise_left_vs_close", || {
        let (s, r) = chan::bounded(0);
        let closes = r.clone();
        let receiver = loom::thread::spawn(move || r.recv().is_err());
        let rt = stuck(&s);
        loom::explore();
        let closer = loom::thread::spawn(move || assert!(closes.close()));
        leave(rt);
        closer.join().unwrap();
        assert!(receiver.join().unwrap());
        done();
    });
}

/// A message is promised to a goroutine that runs under a context. The context ends, and at the same time the message comes.
/// Fails by the assertion when the message is lost with the receiver, is given back, or is there twice; by deadlock when sender
/// or receiver goes on waiting.
fn a_context_meets_the_message(name: &str, receive: fn(&Receiver<u32>) -> Option<u32>) {
    Model::new().preemptions(1).check(name, move || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(0);
        let (ctx, cancel) = Context::background().with_cancel();
        let (theirs, promised, goes_on) = (r.clone(), Flag::default(), Flag::default());
        let receiver = rt.go(move || ctx.run(|| receive(&theirs)));
        let sender = loom::thread::spawn({
            let (promised, goes_on) = (promised.clone(), goes_on.clone());
            move || {
                let mut select = Select::new();
                select.send(&s);
                let promise = select.select();
                promised.raise();
                goes_on.wait_on_thread();
                promise.send(&s, 7).unwrap();
            }
        });
        promised.wait_on_thread();
        goes_on.raise();
        loom::explore();
        cancel.cancel();
        let got = receiver.join().unwrap();
        loom::stop_exploring();
        match got {
            Ok(got) => assert_eq!(got, Some(7)),
            Err(error) => assert_eq!((error, r.recv()), (ContextError::Canceled, Ok(7))),
        }
        sender.join().unwrap();
        assert!(r.recv().is_err());
        loom::explore();
        done();
    });
}

#[test]
fn a_context_that_ends_a_receive_meets_its_message() {
    a_context_meets_the_message("promise_vs_cancel", |r| r.recv().ok());
}

/// As `a_context_that_ends_a_receive_meets_its_message`, where the receiver was nudged, and waits anew.
#[test]
fn a_context_that_ends_a_select_meets_its_message() {
    a_context_meets_the_message("promise_vs_cancel_select", |r| {
        select! { recv(r) -> got => got.ok(), recv(chan::never::<()>()) -> _ => None }
    });
}

/// A receiver whose context is done claims a sender that waits in a select, which is told to stop at the same time. Fails by
/// deadlock when the sender is not readied, or is left with its send alone, for which no receiver waits.
#[test]
fn a_receiver_whose_context_is_done_lets_its_sender_go() {
    Model::new().preemptions(1).check("promise_let_go", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let ((s, r), (stop, stopped)) = (chan::bounded(0), chan::bounded::<()>(0));
        let (ctx, cancel) = Context::background().with_cancel();
        cancel.cancel();
        // Without this sender the receiver might find the channel closed.
        let keeps = s.clone();
        let sender = parked(&rt, move || {
            select! { send(s, 7) -> _ => unreachable!("no receiver waits"), recv(stopped) -> _ => {} }
        });
        loom::explore();
        let theirs = r.clone();
        let receiver = rt.go(move || ctx.run(|| theirs.recv()).is_err());
        drop(stop);
        assert!(receiver.join().unwrap());
        sender.join().unwrap();
        drop((r, keeps));
        done();
    });
}

/// A message is promised to the first of two receivers, whose limit ends while the message comes. Fails by deadlock
/// when the sender still waits for the first receiver, by the assertion when both, or none, have the message.
#[test]
fn of_two_receivers_the_one_that_stays_has_the_message() {
    Model::new().preemptions(1).check("promise_two_receivers", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(0);
        let theirs = r.clone();
        let short = rt.go(move || theirs.recv_timeout(Duration::from_millis(1)).ok());
        let mut select = Select::new();
        select.send(&s);
        let promise = select.select();
        loom::explore();
        let long = loom::thread::spawn(move || r.recv().ok());
        promise.send(&s, 7).unwrap();
        let got = short.join().unwrap();
        loom::stop_exploring();
        if got == Some(7) {
            s.send(8).unwrap();
            assert_eq!(long.join().unwrap(), Some(8));
        } else {
            assert_eq!((got, long.join().unwrap()), (None, Some(7)));
        }
        loom::explore();
        done();
    });
}

/// A select that receives was woken by one that sends, and looks while the message comes. Fails by deadlock when the receiving
/// select misses the message.
#[test]
fn a_select_that_comes_to_look_meets_its_message() {
    Model::new().preemptions(2).check("promise_coming", || {
        let rt = at_rest::<1>();
        let (s, r) = chan::bounded(0);
        let receiver = rt.go(move || {
            select! { recv(r) -> got => got.ok(), recv(chan::never::<()>()) -> _ => None }
        });
        select! { send(s, 7) -> sent => sent.unwrap(), recv(chan::never::<()>()) -> _ => unreachable!() }
        assert_eq!(receiver.join().unwrap(), Some(7));
        done();
    });
}

/// Returns the chosen send of a select.
fn promise(s: &Sender<u32>) -> SelectedOperation<'_> {
    let mut select = Select::new();
    select.send(s);
    select.select()
}

/// Starts a goroutine in a runtime with one P, and returns when it has parked.
fn parked<T: Send + 'static>(rt: &Runtime, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let handle = rt.go(f);
    // There is one M and one queue: once this goroutine has run, the other one has parked.
    rt.run(|| ());
    handle
}

/// A receiver was woken by the end of a promise, or to look for the message, and its runtime ends before the receiver
/// runs. Fails by deadlock when the message goes to that receiver.
fn a_message_goes_past_a_left_receiver(
    name: &str,
    receive: fn(&Receiver<u32>),
    send: fn(SelectedOperation<'_>, &Sender<u32>, &dyn Fn()),
) {
    Model::new().preemptions(1).check(name, move || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(0);
        let theirs = r.clone();
        drop(parked(&rt, move || receive(&theirs)));
        let promised = promise(&s);
        let ended = Flag::default();
        loom::explore();
        let ender = loom::thread::spawn({
            let ended = ended.clone();
            move || {
                let report = super::cover::leave(rt, Duration::from_secs(1));
                assert_eq!(report.threads_left(), 0);
                ended.raise();
            }
        });
        let other = loom::thread::spawn({
            let ended = ended.clone();
            move || {
                ended.wait_on_thread();
                r.recv()
            }
        });
        send(promised, &s, &|| ended.wait_on_thread());
        assert_eq!(other.join().unwrap(), Ok(7));
        ender.join().unwrap();
        done();
    });
}

#[test]
fn a_message_goes_past_a_receiver_that_was_left_in_its_place() {
    a_message_goes_past_a_left_receiver(
        "promise_returned_left",
        |r| {
            let _nothing = r.recv();
        },
        |promised, s, await_the_end| {
            promised.withdraw();
            await_the_end();
            s.send(7).unwrap();
        },
    );
}

#[test]
fn a_message_goes_past_a_select_that_was_left_on_its_way_to_look() {
    a_message_goes_past_a_left_receiver(
        "promise_coming_left",
        |r| select! { recv(r) -> _ => {}, recv(chan::never::<()>()) -> _ => {} },
        |promised, s, await_the_end| {
            await_the_end();
            promised.send(s, 7).unwrap();
        },
    );
}

/// A goroutine is about to park, and has not seen the end of its runtime, and no thread waits for that end. Fails by deadlock
/// when a later message is handed to that goroutine, and lost with it.
#[test]
fn a_message_goes_past_a_receiver_that_parks_late() {
    Model::new().preemptions(1).check("promise_too_late", || {
        let rt = runtime(1, 1);
        let (handle, begins) = (Handle::of(&rt), Flag::default());
        let (s, r) = chan::bounded(0);
        drop(rt.go({
            let (r, begins) = (r.clone(), begins.clone());
            move || {
                begins.raise();
                loom::explore();
                let _never = r.recv();
            }
        }));
        begins.wait_on_thread();
        let _report = rt.shutdown(Duration::ZERO);
        while !handle.is_alone() {
            loom::thread::yield_now();
        }
        let other = loom::thread::spawn(move || r.recv());
        s.send(7).unwrap();
        assert_eq!(other.join().unwrap(), Ok(7));
        done();
    });
}

/// As `a_message_goes_past_a_receiver_that_parks_late`, with a message that was promised to the goroutine after its runtime had
/// ended.
#[test]
fn a_promised_message_goes_past_a_receiver_that_parks_late() {
    Model::new().preemptions(1).check("promise_partner_too_late", || {
        let (rt, begins) = (runtime(1, 1), Flag::default());
        let (s, r) = chan::bounded(0);
        drop(rt.go({
            let (r, begins) = (r.clone(), begins.clone());
            move || {
                begins.raise();
                loom::explore();
                let _never = r.recv();
            }
        }));
        begins.wait_on_thread();
        let _report = rt.shutdown(Duration::ZERO);
        let other = loom::thread::spawn(move || r.recv());
        promise(&s).send(&s, 7).unwrap();
        assert_eq!(other.join().unwrap(), Ok(7));
        done();
    });
}

/// A promise is withdrawn while a select waits to send; the select's message comes first. Fails when a later send goes to the
/// receiver.
#[test]
fn a_send_does_not_overtake_a_select_that_waits() {
    Model::new().preemptions(1).check("promise_overtaken", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(0);
        let receiver = parked(&rt, move || r.recv());
        let promised = promise(&s);
        let first = s.clone();
        let sender = parked(&rt, move || promise(&first).send(&first, 1));
        loom::explore();
        promised.withdraw();
        assert!(s.try_send(2).is_err());
        assert_eq!(receiver.join().unwrap(), Ok(1));
        sender.join().unwrap().unwrap();
        done();
    });
}

/// A receiver comes back to its place when another promise passes it, to the receiver behind. Fails by deadlock when that
/// promise takes the place away.
#[test]
fn a_receiver_that_comes_back_is_promised_nothing() {
    Model::new().preemptions(1).check("promise_to_returned", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(0);
        let receivers = [r.clone(), r].map(|r| parked(&rt, move || r.recv().unwrap()));
        let promised = promise(&s);
        loom::explore();
        promised.withdraw();
        promise(&s).send(&s, 1).unwrap();
        rt.run(|| ());
        s.send(7).unwrap();
        let mut got = receivers.map(|receiver| receiver.join().unwrap());
        got.sort_unstable();
        assert_eq!(got, [1, 7]);
        done();
    });
}

/// A receiver that keeps its place waits for the message of a select, which withdraws. Fails when a later send finds no
/// receiver in that place.
#[test]
fn a_receiver_that_kept_its_place_is_served_there() {
    Model::new().preemptions(1).check("promise_held", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(0);
        let receiver = parked(&rt, move || r.recv());
        let promised = promise(&s);
        let second = s.clone();
        let sender = parked(&rt, move || {
            promise(&second).withdraw();
            second.try_send(7)
        });
        loom::explore();
        promised.withdraw();
        assert_eq!(sender.join().unwrap(), Ok(()));
        assert_eq!(receiver.join().unwrap(), Ok(7));
        done();
    });
}

/// A receiver that keeps its place waits for the message of a select, which comes. Fails when another send finds the receiver
/// in that place meanwhile: one of the two messages is lost.
#[test]
fn a_receiver_that_waits_for_a_promise_is_not_served_in_its_place() {
    Model::new().preemptions(1).check("promise_held_kept", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(0);
        let receiver = parked(&rt, move || r.recv());
        let promised = promise(&s);
        let second = s.clone();
        let sender = parked(&rt, move || {
            let promised = promise(&second);
            let served = second.try_send(8).is_ok();
            promised.send(&second, 7).unwrap();
            served
        });
        loom::explore();
        promised.withdraw();
        assert_eq!(receiver.join().unwrap(), Ok(7));
        assert!(!sender.join().unwrap(), "two messages for one receiver");
        done();
    });
}

/// A place in the buffer is promised, and a receiver waits for its message. Fails when another message comes first.
#[test]
fn a_send_does_not_pass_a_promise() {
    Model::new().preemptions(1).check("promise_passed", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(1);
        let promised = promise(&s);
        let receiver = rt.go(move || r.recv());
        loom::explore();
        assert!(s.try_send(2).is_err());
        promised.send(&s, 1).unwrap();
        assert_eq!(receiver.join().unwrap(), Ok(1));
        done();
    });
}

/// Two places are promised, and a sender waits. Fails when the sender's message comes into the second place while the
/// first promise is kept.
#[test]
fn a_reserved_slot_takes_no_other_message() {
    Model::new().preemptions(1).check("promise_two_places", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(2);
        let (first, second) = (promise(&s), promise(&s));
        let third = s.clone();
        let sender = rt.go(move || third.send(3));
        loom::explore();
        first.send(&s, 1).unwrap();
        second.send(&s, 2).unwrap();
        assert_eq!([r.recv(), r.recv(), r.recv()], [Ok(1), Ok(2), Ok(3)]);
        sender.join().unwrap().unwrap();
        done();
    });
}

/// Fails by deadlock when the watcher is not told of the message that was promised.
#[test]
fn a_watcher_hears_of_a_promise_that_is_kept() {
    Model::new().preemptions(1).check("promise_watched", || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(1);
        let promised = promise(&s);
        let watcher = rt.go(move || {
            let mut select = Select::new();
            select.recv(&r);
            assert_eq!(select.ready(), 0);
            r.try_recv()
        });
        loom::explore();
        promised.send(&s, 7).unwrap();
        assert_eq!(watcher.join().unwrap(), Ok(7));
        done();
    });
}

/// A channel is closed while a place is promised, for which receivers wait. Fails by deadlock when the receivers for which no
/// message is left are not woken once the promise is kept, or withdrawn.
fn a_close_waits_for_a_promise(
    name: &str,
    end: fn(SelectedOperation<'_>, &Sender<u32>),
    expected: [Option<u32>; 2],
) {
    Model::new().preemptions(1).check(name, move || {
        let rt = at_rest::<1>();
        loom::stop_exploring();
        let (s, r) = chan::bounded(1);
        let promised = promise(&s);
        let receivers = [r.clone(), r.clone()].map(|r| parked(&rt, move || r.recv().ok()));
        loom::explore();
        assert!(r.close());
        end(promised, &s);
        assert_eq!(receivers.map(|receiver| receiver.join().unwrap()), expected);
        done();
    });
}

#[test]
fn receivers_hear_of_the_end_when_the_last_promise_is_kept() {
    a_close_waits_for_a_promise(
        "promise_closed_kept",
        |promised, s| promised.send(s, 7).unwrap(),
        [Some(7), None],
    );
}

#[test]
fn receivers_hear_of_the_end_when_the_last_promise_is_withdrawn() {
    a_close_waits_for_a_promise("promise_closed_withdrawn", |promised, _| promised.withdraw(), [None, None]);
}

/// A place is promised, and the last receiver goes while the message comes, with the only sender of a reply. Fails by the
/// assertion when the message stays in the channel, and the receiver of the reply is not told that none will come.
#[test]
fn a_message_meets_the_end_of_the_last_receiver() {
    Model::new().check("promise_deserted", || {
        let (s, r) = chan::bounded(1);
        let (reply, answer) = chan::bounded::<()>(1);
        let mut select = Select::new();
        select.send(&s);
        let promised = select.select();
        let goes = loom::thread::spawn(move || drop(r));
        drop(promised.send(&s, reply));
        goes.join().unwrap();
        assert_eq!(answer.try_recv(), Err(TryRecvError::Disconnected));
        assert!(s.is_empty());
    });
}

#[test]
fn mutants() {
    let cancels = "a_context_that_ends_a_receive_meets_its_message";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::StandingHooksForgotten, "a_receiver_is_told_that_its_sender_was_left_behind"),
            (Mutant::StandingHooksForgotten, "the_end_of_the_senders_runtime_meets_a_close"),
            (Mutant::PromiseKeptWithoutClaim, cancels),
            (Mutant::PromiseNotSentOn, cancels),
            (Mutant::LateParksOpen, "a_message_goes_past_a_receiver_that_parks_late"),
            (Mutant::PromiseAskedForNobody, "a_receiver_whose_context_is_done_lets_its_sender_go"),
            (Mutant::PromiseLetGoSilently, "a_receiver_whose_context_is_done_lets_its_sender_go"),
            (Mutant::PromiseLeavesItsPartner, "a_context_that_ends_a_select_meets_its_message"),
            (Mutant::PromiseLeavesItsPartner, "of_two_receivers_the_one_that_stays_has_the_message"),
            (Mutant::ReturnedServedWhenLeft, "a_message_goes_past_a_receiver_that_was_left_in_its_place"),
            (Mutant::PromiseKeptToTheLeft, "a_message_goes_past_a_select_that_was_left_on_its_way_to_look"),
            (Mutant::PromiseKeptToTheLate, "a_promised_message_goes_past_a_receiver_that_parks_late"),
            (Mutant::ChanSendOvertakes, "a_send_does_not_overtake_a_select_that_waits"),
            (Mutant::PromiseToOneAwake, "a_receiver_that_comes_back_is_promised_nothing"),
            (Mutant::ReturnedNotHeld, "a_receiver_that_waits_for_a_promise_is_not_served_in_its_place"),
            (Mutant::PromiseHoldsOn, "a_receiver_that_kept_its_place_is_served_there"),
            (Mutant::ChanSendPassesAPromise, "a_send_does_not_pass_a_promise"),
            (Mutant::ChanFillsReservedPlaces, "a_reserved_slot_takes_no_other_message"),
            (Mutant::ChanLateMessageTellsNobody, "a_watcher_hears_of_a_promise_that_is_kept"),
            (Mutant::ChanFilledForNobody, "a_message_meets_the_end_of_the_last_receiver"),
            (Mutant::LastReceiverMarksLate, "a_message_meets_the_end_of_the_last_receiver"),
            (Mutant::ChanFilledEndsNobody, "receivers_hear_of_the_end_when_the_last_promise_is_kept"),
            (Mutant::ChanGivenBackEndsNobody, "receivers_hear_of_the_end_when_the_last_promise_is_withdrawn"),
        ],
    );
}
