//! A promise of a select's send, and what ends it: the message, the end of the sender's runtime, a receiver that gives up.

use super::caught;
use crate::chan::{self, Receiver, Select, Sender};
use crate::context::{Context, ContextError};
use crate::model::{Flag, Model, Mutant, at_rest, done, runtime};
use crate::sync::Event;
use crate::{Runtime, select};
use std::time::Duration;

/// A goroutine of a runtime of its own promises a message that never comes; when this returns it is evaluated.
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

/// Ends a runtime and unwinds no goroutine.
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

/// Fails by deadlock when the close wakes those in the queue only, and not the receiver whose promise is withdrawn.
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
/// Fails by the assertion when the message goes with the receiver, is given back, or is there twice; by deadlock when
/// one of the two waits on.
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

/// As above, where the receiver was woken to look, and waits anew.
#[test]
fn a_context_that_ends_a_select_meets_its_message() {
    a_context_meets_the_message("promise_vs_cancel_select", |r| {
        select! { recv(r) -> got => got.ok(), recv(chan::never::<()>()) -> _ => None }
    });
}

/// A message is promised to the first of two receivers, whose limit ends while it comes. Fails by deadlock when the
/// sender still waits for the first, by the assertion when both, or none, have the message.
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

/// A select that receives was woken by one that sends, and comes to look while the message comes. Fails by deadlock when it
/// misses the message.
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

#[test]
fn mutants() {
    let cancels = "a_context_that_ends_a_receive_meets_its_message";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::StandingHooksForgotten, "a_receiver_is_told_that_its_sender_was_left_behind"),
            (Mutant::PromiseKeptWithoutClaim, cancels),
            (Mutant::PromiseNotSentOn, cancels),
        ],
    );
}
