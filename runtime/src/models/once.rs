//! `sync::Once` and the types that are built on it: one closure runs, and every caller comes after that closure.

use super::caught;
use super::task::{Foreign, poll, run};
use crate::model::{Model, Mutant};
use crate::sync::OnceLock;
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

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::OnceDoneRelaxed, "all_see_the_one_value"),
            (Mutant::OnceLookRelaxed, "all_see_the_one_value"),
            (Mutant::OnceNoRecheck, "a_waiter_for_a_value_gets_it"),
            (Mutant::OncePollNoRecheck, "a_task_that_waits_for_a_value_gets_it"),
        ],
    );
}
