//! `sync::ErrGroup`: a caller that has waited for the tasks finds their permits free, and hears how they have ended.

use super::caught;
use crate::goexit;
use crate::model::{Body, Flag, Model, Mutant, at_rest, done, runtime, together};
use crate::sync::ErrGroup;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A task ends beside a goroutine that waits for the task and then starts another one. Fails by the assertion when the task's
/// permit comes back after the wait.
#[test]
fn a_waiter_finds_the_permits_free_after_its_wait() {
    Model::new().preemptions(1).check("group_permits", || {
        let runtime = runtime(2, 2);
        let (group, begins) = (Arc::new(ErrGroup::<()>::with_limit(1)), Flag::default());
        let (theirs, raises) = (Arc::clone(&group), begins.clone());
        let starts: Body = Box::new(move || {
            theirs.go(move || {
                raises.raise();
                Ok(())
            });
        });
        let waits: Body = Box::new(move || {
            begins.wait_on_thread();
            assert_eq!(group.wait(), Ok(()));
            assert!(group.try_go(|| Ok(())), "all have ended, and the limit is reached");
            done();
        });
        together(&runtime, [waits, starts]).into_iter().for_each(|one| one.join().unwrap());
    });
}

/// A task ends by `end`, and a thread waits for it beside that end.
fn ends_beside_a_wait(end: fn() -> Result<(), u32>) -> Result<(), u32> {
    let runtime = at_rest::<1>();
    loom::stop_exploring();
    let (group, begins) = (Arc::new(ErrGroup::new()), Flag::default());
    let (theirs, raises) = (Arc::clone(&group), begins.clone());
    runtime.run(move || {
        theirs.go(move || {
            loom::explore();
            raises.raise();
            end()
        });
    });
    begins.wait_on_thread();
    let result = catch_unwind(AssertUnwindSafe(|| group.wait()));
    done();
    result.unwrap_or(Err(0))
}

/// Fails by the assertion when a task without a result counts as a success.
#[test]
fn a_waiter_hears_of_a_task_without_a_result() {
    Model::new().check("group_unfinished", || {
        assert_eq!(ends_beside_a_wait(|| goexit()), Err(0), "`wait` has not panicked");
    });
}

/// Fails by the assertion when the error comes after the wait.
#[test]
fn a_waiter_hears_of_an_error() {
    Model::new().check("group_error", || {
        assert_eq!(ends_beside_a_wait(|| Err(1)), Err(1));
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::ErrGroupCountsBeforeThePermit, "a_waiter_finds_the_permits_free_after_its_wait"),
            (Mutant::ErrGroupCountsBeforeItTells, "a_waiter_hears_of_a_task_without_a_result"),
            (Mutant::ErrGroupCountsBeforeTheError, "a_waiter_hears_of_an_error"),
        ],
    );
}
