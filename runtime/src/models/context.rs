//! The end of a context: the answers of `err`, `done` and `cancel` agree at every moment.
//!
//! *The mutants* take out the wait of `err` for the channel's close, the walk of a second canceller, the order of a call and
//! the walk, the wakes of tasks and receivers, the looks under the lock of a node, and the orderings of `done` and `swept`.

use super::caught;
use super::cover::leave;
use super::task::{Foreign, poll, run};
use crate::chan::TryRecvError;
use crate::context::{Context, ContextError};
use crate::model::{Flag, Model, Mutant, at_rest, done};
use crate::sync::{Event, Semaphore};
use loom::cell::UnsafeCell;
use loom::thread;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

fn is_closed(context: &Context) -> bool {
    context.done().try_recv() == Err(TryRecvError::Disconnected)
}

/// Fails by the assertion when a reader is told the error, and finds the channel open.
#[test]
fn an_error_is_told_when_the_channel_is_closed() {
    Model::new().unbounded().check("context_err_then_done", || {
        let (context, cancel) = Context::background().with_cancel();
        assert!(!is_closed(&context));
        let canceler = thread::spawn(move || cancel.cancel());
        while context.err().is_none() {
            thread::yield_now();
        }
        assert!(is_closed(&context), "there is an error, and the channel is open");
        canceler.join().unwrap();
    });
}

/// Fails by the assertion when the channel is closed, and there is no error.
#[test]
fn a_closed_channel_has_an_error() {
    Model::new().unbounded().check("context_done_then_err", || {
        let (context, cancel) = Context::background().with_cancel();
        assert!(!is_closed(&context));
        let canceler = thread::spawn(move || cancel.cancel());
        while !is_closed(&context) {
            thread::yield_now();
        }
        assert_eq!(context.err(), Some(ContextError::Canceled));
        canceler.join().unwrap();
    });
}

/// A value that is written before a cancel.
struct Reason(UnsafeCell<u32>);

// SAFETY: the context orders the accesses; loom checks that it does.
unsafe impl Send for Reason {}
// SAFETY: as for `Send`.
unsafe impl Sync for Reason {}

/// Fails by a causality violation when a caller that is told the error does not see what was done before the cancel.
#[test]
fn an_error_shows_what_was_done_before_the_cancel() {
    Model::new().check("context_err_shows", || {
        let (context, cancel) = Context::background().with_cancel();
        let reason = Arc::new(Reason(UnsafeCell::new(0)));
        let theirs = Arc::clone(&reason);
        let canceler = thread::spawn(move || {
            // SAFETY: written before the cancel, and read when the error is told.
            theirs.0.with_mut(|reason| unsafe { *reason = 1 });
            cancel.cancel();
        });
        while context.err().is_none() {
            thread::yield_now();
        }
        // SAFETY: there is an error, so the writer is done.
        assert_eq!(reason.0.with(|reason| unsafe { *reason }), 1);
        canceler.join().unwrap();
    });
}

/// A thread asks for the channel for the first time while another thread, which has canceled, does so too. Fails by the
/// assertion when one thread is shown a channel that the other has yet to close.
#[test]
fn a_channel_that_is_made_late_is_shown_closed() {
    Model::new().unbounded().check("context_late_channel", || {
        let (context, cancel) = Context::background().with_cancel();
        let theirs = context.clone();
        let asks = thread::spawn(move || {
            let _made = theirs.done();
        });
        cancel.cancel();
        assert!(is_closed(&context), "`cancel` has returned, and the channel is open");
        asks.join().unwrap();
    });
}

/// A thread waits on the channel while another thread asks for the channel, too, and cancels. Fails by deadlock when the
/// channel on which the first one waits is not closed, or when its receiver is not woken.
#[test]
fn a_receiver_from_before_the_end_hears_of_it() {
    Model::new().check("context_receiver", || {
        let (context, cancel) = Context::background().with_cancel();
        let theirs = context.clone();
        let waits = thread::spawn(move || assert!(theirs.done().recv().is_err()));
        let _made = context.done();
        cancel.cancel();
        waits.join().unwrap();
    });
}

/// A context is made below one that another thread cancels. Fails by the assertion when the end passes over the new one.
#[test]
fn one_that_is_made_beside_the_end_ends_with_it() {
    Model::new().check("context_made", || {
        let (context, cancel) = Context::background().with_cancel();
        let canceler = thread::spawn(move || cancel.cancel());
        let (below, _cancel) = context.with_cancel();
        canceler.join().unwrap();
        assert!(below.err().is_some(), "the context above has ended, and this one is open");
    });
}

/// Two threads cancel a context at the same time. Fails by the assertions when `cancel` returns to the second canceller while a
/// context below is not done.
#[test]
fn a_cancel_returns_when_all_below_are_done() {
    Model::new().unbounded().check("context_second_cancel", || {
        let (context, cancel) = Context::background().with_cancel();
        let (below, _cancel) = context.with_cancel();
        let (again, seen) = (cancel.clone(), below.clone());
        let other = thread::spawn(move || {
            again.cancel();
            assert!(seen.err().is_some(), "`cancel` has returned, and one below is open");
        });
        cancel.cancel();
        assert!(below.err().is_some(), "`cancel` has returned, and one below is open");
        other.join().unwrap();
    });
}

/// As `a_cancel_returns_when_all_below_are_done`, with three threads: a second canceller finds all done, and says so to the
/// third. Fails by the assertion when the third one does not see what the first one has done.
#[test]
fn a_cancel_that_others_have_made_shows_its_end() {
    Model::new().check("context_third_cancel", || {
        let (context, cancel) = Context::background().with_cancel();
        let (below, _cancel) = context.with_cancel();
        let others = [(); 2].map(|()| {
            let (again, seen) = (cancel.clone(), below.clone());
            thread::spawn(move || {
                again.cancel();
                assert!(seen.err().is_some(), "`cancel` has returned, and one below is open");
            })
        });
        cancel.cancel();
        assert!(below.err().is_some(), "`cancel` has returned, and one below is open");
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// One thread cancels a context in the middle of a chain, another one the context at its top. Fails by the assertion when the
/// second canceller passes over the middle, and does not see what the first one has done below.
#[test]
fn a_cancel_shows_an_end_that_another_has_made_below() {
    Model::new().check("context_cancel_above", || {
        let (top, cancel) = Context::background().with_cancel();
        let (middle, cancel_middle) = top.with_cancel();
        let (below, _cancel) = middle.with_cancel();
        let other = thread::spawn(move || cancel_middle.cancel());
        cancel.cancel();
        assert!(below.err().is_some(), "`cancel` has returned, and one below is open");
        other.join().unwrap();
    });
}

/// Two threads cancel a context, for two reasons. Fails by the assertion when a context below ends for another reason than the
/// context above it.
#[test]
fn all_below_end_for_the_same_reason() {
    Model::new().unbounded().check("context_two_causes", || {
        let (context, cancel) = Context::background().with_cancel();
        let (below, _cancel) = context.with_cancel();
        let again = cancel.clone();
        let other = thread::spawn(move || again.cancel_with("another"));
        cancel.cancel_with("one");
        let causes = [&context, &below].map(|context| context.cause().expect("it is done").to_string());
        assert_eq!(causes[0], causes[1]);
        other.join().unwrap();
    });
}

/// A goroutine runs under a context that is cancelled while its runtime ends, and a thread waits for the goroutine. Fails by a
/// panic when the canceller does the rest of the runtime's end under the context's lock.
#[test]
fn a_cancel_meets_the_end_of_a_runtime() {
    Model::new().preemptions(1).check("context_vs_end", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let (context, cancel) = Context::background().with_cancel();
        let waits = runtime.go(move || context.run(|| Event::new().wait()).is_err());
        let joins = thread::spawn(move || drop(waits.join()));
        // There is one M and one queue: once this goroutine has run, the other goroutine waits, and so does the thread.
        runtime.run(|| ());
        loom::explore();
        let cuts = thread::spawn(move || cancel.cancel());
        let _report = leave(runtime, Duration::ZERO);
        cuts.join().unwrap();
        joins.join().unwrap();
        done();
    });
}

/// A call is asked for while another thread cancels. Fails by the assertion when the call starts while a context below is not
/// done.
#[test]
fn a_call_starts_when_all_below_are_done() {
    Model::new().unbounded().check("context_late_call", || {
        let (context, cancel) = Context::background().with_cancel();
        let (below, _cancel) = context.with_cancel();
        let canceler = thread::spawn(move || cancel.cancel());
        let _call = context.after_func(move || {
            assert!(below.err().is_some(), "the call has started, and a context below is open");
        });
        canceler.join().unwrap();
    });
}

/// A call is asked for while another thread cancels. Fails by deadlock when the call is not made: the end took all calls before
/// this one came.
#[test]
fn a_call_that_is_asked_for_beside_the_end_is_made() {
    Model::new().check("context_call_comes", || {
        let (context, cancel) = Context::background().with_cancel();
        let called = Flag::default();
        let canceler = thread::spawn(move || cancel.cancel());
        let calls = called.clone();
        let _call = context.after_func(move || calls.raise());
        called.wait_on_thread();
        canceler.join().unwrap();
    });
}

/// A call returns the context's error instead of unwinding. Fails by the assertion when the call returns the error before the
/// channel is closed.
#[test]
fn a_call_returns_the_error_when_the_channel_is_closed() {
    Model::new().check("context_returned_error", || {
        let (context, cancel) = Context::background().with_cancel();
        assert!(!is_closed(&context));
        let permits = Arc::new(Semaphore::new(0));
        let theirs = context.clone();
        let asks = thread::spawn(move || {
            assert_eq!(permits.acquire_ctx(&theirs, 1), Err(ContextError::Canceled));
            assert!(is_closed(&theirs), "the call was ended, and the channel is open");
        });
        cancel.cancel();
        asks.join().unwrap();
    });
}

/// A task waits for the end of a context, beside a cancel of the context above. Fails by deadlock when the task is not woken,
/// by the assertion when it is woken while the channel is open.
#[test]
fn a_task_hears_of_the_end_of_a_context() {
    Model::new().check("context_task", || {
        let (above, cancel) = Context::background().with_cancel();
        let (context, _cancel) = above.with_cancel();
        assert!(!is_closed(&context));
        let canceler = thread::spawn(move || cancel.cancel());
        assert_eq!(run(pin!(context.ended()), &Foreign::new()), ContextError::Canceled);
        assert!(is_closed(&context), "the task goes on, and the channel is open");
        canceler.join().unwrap();
    });
}

/// A future that waits for the end is dropped beside two cancels. Fails by a causality violation when a canceller reads the
/// future's place in the list after the future has gone.
#[test]
fn a_future_that_is_dropped_beside_the_end_is_not_read() {
    Model::new().preemptions(2).check("context_task_dropped", || {
        let (context, cancel) = Context::background().with_cancel();
        let mut ends = Box::pin(context.ended());
        assert!(poll(ends.as_mut(), &Foreign::new()).is_pending());
        let cancelers = [cancel.clone(), cancel].map(|cancel| thread::spawn(move || cancel.cancel()));
        drop(ends);
        cancelers.into_iter().for_each(|canceler| canceler.join().unwrap());
        assert_eq!(context.err(), Some(ContextError::Canceled));
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::ContextErrDoesNotWait, "an_error_is_told_when_the_channel_is_closed"),
            (Mutant::ContextErrDoesNotWait, "a_call_returns_the_error_when_the_channel_is_closed"),
            (Mutant::ContextErrRelaxed, "an_error_shows_what_was_done_before_the_cancel"),
            (Mutant::ContextSweptRelaxed, "a_cancel_that_others_have_made_shows_its_end"),
            (Mutant::ContextSweptLooksRelaxed, "a_cancel_returns_when_all_below_are_done"),
            (Mutant::ContextSweptPassesRelaxed, "a_cancel_shows_an_end_that_another_has_made_below"),
            (Mutant::ContextSweptEarly, "a_cancel_returns_when_all_below_are_done"),
            (Mutant::ContextAddsBlindly, "one_that_is_made_beside_the_end_ends_with_it"),
            (Mutant::ContextMakesTwoChannels, "a_receiver_from_before_the_end_hears_of_it"),
            (Mutant::ContextWakesNoReceiver, "a_receiver_from_before_the_end_hears_of_it"),
            (Mutant::ContextShowsItsChannelOpen, "a_channel_that_is_made_late_is_shown_closed"),
            (Mutant::ContextSecondEndLeaves, "a_cancel_returns_when_all_below_are_done"),
            (Mutant::ContextSecondEndTellsItsOwn, "all_below_end_for_the_same_reason"),
            (Mutant::ContextWakesNoTask, "a_task_hears_of_the_end_of_a_context"),
            (Mutant::ContextCallsInTheWalk, "a_call_starts_when_all_below_are_done"),
            (Mutant::ContextCallsAsksEarly, "a_call_that_is_asked_for_beside_the_end_is_made"),
        ],
    );
}
