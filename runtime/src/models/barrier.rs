//! `sync::Barrier`: a waiter that is counted goes on, and a waiter that does not go on is not counted.

use super::caught;
use super::task::{Foreign, poll, run};
use crate::context::Context;
use crate::model::{Model, Mutant, at_rest, done};
use crate::sync::Barrier;
use loom::thread;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A waiter is interrupted while the second waiter arrives. Fails by deadlock when the round opens with a waiter that is
/// unwound: the waiter that comes in its place then finds no second one.
#[test]
fn an_interrupted_waiter_goes_on_or_does_not_count() {
    Model::new().check("barrier_interrupt", || {
        let runtime = at_rest::<1>();
        let barrier = Arc::new(Barrier::new(2));
        let (context, cancel) = Context::background().with_cancel();
        let theirs = Arc::clone(&barrier);
        let waiter = runtime.go(move || context.run(|| theirs.wait().is_leader()));
        let theirs = Arc::clone(&barrier);
        let second = thread::spawn(move || theirs.wait().is_leader());
        cancel.cancel();
        let first = match waiter.join().unwrap() {
            Ok(leads) => leads,
            Err(_unwound) => barrier.wait().is_leader(),
        };
        assert_ne!(first, second.join().unwrap(), "a round has one leader");
        done();
    });
}

/// Fails by deadlock when a waiter that its runtime left behind still counts, in the place of a waiter that arrives.
#[test]
fn a_waiter_that_is_left_does_not_count() {
    Model::new().check("barrier_left", || {
        let runtime = at_rest::<1>();
        let barrier = Arc::new(Barrier::new(2));
        let theirs = Arc::clone(&barrier);
        drop(runtime.go(move || theirs.wait()));
        super::cover::leave(runtime, Duration::from_secs(1));
        let theirs = Arc::clone(&barrier);
        let second = thread::spawn(move || theirs.wait().is_leader());
        assert_ne!(barrier.wait().is_leader(), second.join().unwrap(), "a round has one leader");
        done();
    });
}

/// A task has arrived, and is dropped; a thread and another task arrive after that. Fails by deadlock when the dropped task
/// still counts, in the place of the thread or of the other task.
#[test]
fn a_future_that_is_dropped_does_not_count() {
    Model::new().check("barrier_task_dropped", || {
        let barrier = Arc::new(Barrier::new(2));
        let mut arrives = Box::pin(barrier.wait_async());
        assert!(poll(arrives.as_mut(), &Foreign::new()).is_pending());
        drop(arrives);
        let theirs = Arc::clone(&barrier);
        let second = thread::spawn(move || theirs.wait().is_leader());
        let leads = run(pin!(barrier.wait_async()), &Foreign::new()).is_leader();
        assert_ne!(leads, second.join().unwrap(), "a round has one leader");
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::BarrierUnwindsTheCounted, "an_interrupted_waiter_goes_on_or_does_not_count"),
            (Mutant::BarrierDropsTheCounted, "a_future_that_is_dropped_does_not_count"),
            (Mutant::BarrierCountsTheLeft, "a_waiter_that_is_left_does_not_count"),
        ],
    );
}
