//! `sync::Once` and the types that are built on it: one closure runs, and every caller comes after that closure.

use super::caught;
use super::task::{Foreign, poll, run};
use crate::model::{Model, Mutant};
use crate::sync::{Once, OnceLock};
use loom::cell::UnsafeCell;
use loom::thread;
use std::pin::pin;
use std::sync::Arc;

/// Fails by deadlock when a waiter is forgotten, by a causality violation when a caller sees the value too early.
#[test]
fn all_see_the_one_value() {
    Model::new().preemptions(4).check("once", || {
        let cell = Arc::new(OnceLock::new());
        let theirs = Arc::clone(&cell);
        let other = thread::spawn(move || *theirs.get_or_init(|| 1));
        let mine = *cell.get_or_init(|| 2);
        assert_eq!(other.join().unwrap(), mine);
        assert_eq!(cell.get(), Some(&mine));
    });
}

/// Two threads call a `Once`, and both find it done. Fails by a causality violation when one of them does not see what the
/// closure has done.
#[test]
fn a_caller_that_comes_late_sees_the_closures_work() {
    Model::new().preemptions(3).check("once_call", || {
        let shared = Arc::new((Once::new(), Left(UnsafeCell::new(0))));
        let calls = |(once, left): &(Once, Left)| {
            // SAFETY: one closure runs.
            once.call_once(|| left.0.with_mut(|left| unsafe { *left += 1 }));
            // SAFETY: nothing writes after the closure.
            assert_eq!(left.0.with(|left| unsafe { *left }), 1);
        };
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || calls(&theirs));
        calls(&shared);
        other.join().unwrap();
    });
}

/// Fails as `all_see_the_one_value` does.
#[test]
fn a_waiter_for_a_value_gets_it() {
    Model::new().preemptions(4).check("once_wait", || {
        let cell = Arc::new(OnceLock::new());
        let theirs = Arc::clone(&cell);
        let other = thread::spawn(move || *theirs.wait());
        assert_eq!(cell.set(1), Ok(()));
        assert_eq!(other.join().unwrap(), 1);
    });
}

/// A task waits beside the `set`, and another future that waited is dropped. Fails by deadlock when the task is not woken, by a
/// causality violation when it sees the value too early.
#[test]
fn a_task_that_waits_for_a_value_gets_it() {
    Model::new().preemptions(3).check("once_task", || {
        let cell = Arc::new(OnceLock::new());
        let (task, mut goes) = (Foreign::new(), Box::pin(cell.wait_async()));
        assert!(poll(goes.as_mut(), &task).is_pending());
        let theirs = Arc::clone(&cell);
        let other = thread::spawn(move || theirs.set(1));
        assert_eq!(*run(pin!(cell.wait_async()), &task), 1);
        drop(goes);
        assert_eq!(other.join().unwrap(), Ok(()));
    });
}

/// What a closure leaves that fails.
struct Left(UnsafeCell<u32>);

// SAFETY: the `OnceLock` orders the accesses; loom checks that it does.
unsafe impl Send for Left {}
// SAFETY: as for `Send`.
unsafe impl Sync for Left {}

/// Two threads try beside each other, and fail, after a first failure. Fails by a causality violation when a closure does not
/// see what the one before it has done.
#[test]
fn a_closure_sees_what_the_last_one_has_left() {
    Model::new().preemptions(3).check("once_fails", || {
        let shared = Arc::new((OnceLock::<u32>::new(), Left(UnsafeCell::new(0))));
        let fails = |(cell, left): &(OnceLock<u32>, Left)| {
            let fails = || {
                // SAFETY: one closure at a time runs.
                left.0.with_mut(|left| unsafe { *left += 1 });
                Err(())
            };
            assert_eq!(cell.get_or_try_init(fails), Err(()));
        };
        fails(&shared);
        let theirs = Arc::clone(&shared);
        let other = thread::spawn(move || fails(&theirs));
        fails(&shared);
        other.join().unwrap();
        // SAFETY: the other thread was joined.
        assert_eq!(shared.1.0.with(|left| unsafe { *left }), 3);
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::OnceDoneRelaxed, "all_see_the_one_value"),
            (Mutant::OnceLookRelaxed, "all_see_the_one_value"),
            (Mutant::OnceCallLooksRelaxed, "a_caller_that_comes_late_sees_the_closures_work"),
            (Mutant::OnceBeginsRelaxed, "a_closure_sees_what_the_last_one_has_left"),
            (Mutant::OnceWakesNobody, "a_waiter_for_a_value_gets_it"),
            (Mutant::OnceNoRecheck, "a_waiter_for_a_value_gets_it"),
            (Mutant::OncePollNoRecheck, "a_task_that_waits_for_a_value_gets_it"),
        ],
    );
}
