//! `sync::WaitGroup`: the last `done` wakes the waiters.

use super::caught;
use super::task::{Foreign, poll, run};
use crate::context::Context;
use crate::model::{Model, Mutant, at_rest, done};
use crate::sync::WaitGroup;
use loom::cell::UnsafeCell;
use loom::thread;
use std::pin::pin;
use std::sync::Arc;

struct Value(UnsafeCell<u32>);

// SAFETY: the group orders the accesses; loom checks that it does.
unsafe impl Send for Value {}
// SAFETY: as for `Send`.
unsafe impl Sync for Value {}

/// Fails by deadlock when the last `done` wakes no waiter, by a causality violation when a wait returns before the waiter
/// sees what was done.
#[test]
fn a_wait_sees_what_was_done() {
    Model::new().check("waitgroup", || {
        let tasks = WaitGroup::new();
        tasks.add(2);
        let values = [(); 2].map(|()| Arc::new(Value(UnsafeCell::new(0))));
        let others = values.clone().map(|value| {
            let tasks = tasks.clone();
            thread::spawn(move || {
                // SAFETY: written before `done`, and read after the wait.
                value.0.with_mut(|value| unsafe { *value = 1 });
                tasks.done();
            })
        });
        tasks.wait();
        // SAFETY: `wait` has returned, so each task wrote its value before its `done`.
        assert!(values.iter().all(|value| value.0.with(|value| unsafe { *value }) == 1));
        others.into_iter().for_each(|other| other.join().unwrap());
    });
}

/// Returns a group with one task.
fn of_one() -> WaitGroup {
    let tasks = WaitGroup::new();
    tasks.add(1);
    tasks
}

/// Another thread waits by `wait` beside the writer's `done`. Fails by a causality violation when that thread does not see what
/// was done.
fn a_zero_shows(tasks: &WaitGroup, wait: fn(&WaitGroup)) {
    let value = Arc::new(Value(UnsafeCell::new(0)));
    let (theirs, other_value) = (tasks.clone(), Arc::clone(&value));
    let other = thread::spawn(move || {
        wait(&theirs);
        // SAFETY: the wait is over, so the writer is done.
        assert_eq!(other_value.0.with(|value| unsafe { *value }), 1);
    });
    // SAFETY: written before `done`, and read after the wait.
    value.0.with_mut(|value| unsafe { *value = 1 });
    tasks.done();
    other.join().unwrap();
}

#[test]
fn a_zero_that_is_found_shows_what_was_done() {
    Model::new().preemptions(4).check("waitgroup_look", || a_zero_shows(&of_one(), WaitGroup::wait));
}

/// The group is used again beside a wait for its first zero. Fails by deadlock when the waiter is not woken.
#[test]
fn a_zero_counts_whatever_is_added_after_it() {
    Model::new().check("waitgroup_again", || {
        let runtime = at_rest::<1>();
        let tasks = WaitGroup::new();
        tasks.add(1);
        let theirs = tasks.clone();
        let waiter = runtime.go(move || theirs.wait());
        tasks.done();
        tasks.add(1);
        tasks.done();
        waiter.join().unwrap();
        done();
    });
}

/// A goroutine is interrupted while a thread waits as well. Fails by deadlock when the last `done` then does not wake the
/// thread.
#[test]
fn an_interrupted_waiter_leaves_the_others_to_be_woken() {
    Model::new().preemptions(1).check("waitgroup_interrupt", || {
        let runtime = at_rest::<1>();
        let (context, cancel) = Context::background().with_cancel();
        let tasks = WaitGroup::new();
        tasks.add(1);
        let theirs = tasks.clone();
        let interrupted = runtime.go(move || context.run(|| theirs.wait()).is_ok());
        let theirs = tasks.clone();
        let other = thread::spawn(move || theirs.wait());
        cancel.cancel();
        assert!(!interrupted.join().unwrap());
        tasks.done();
        other.join().unwrap();
        done();
    });
}

/// A task waits beside the last `done`, and another future that waited is dropped. Fails by deadlock when the task's wake is
/// lost with the dropped future, or when the task is not woken; by a causality violation when the task does not see what was
/// done.
#[test]
fn a_task_sees_what_was_done_when_another_is_dropped() {
    Model::new().check("waitgroup_task", || {
        let tasks = WaitGroup::new();
        tasks.add(1);
        let value = Arc::new(Value(UnsafeCell::new(0)));
        let (task, mut goes, mut stays) =
            (Foreign::new(), Box::pin(tasks.wait_async()), pin!(tasks.wait_async()));
        assert!(poll(goes.as_mut(), &task).is_pending() && poll(stays.as_mut(), &task).is_pending());
        let (theirs, writes) = (tasks.clone(), Arc::clone(&value));
        let other = thread::spawn(move || {
            // SAFETY: written before `done`, and read after the wait.
            writes.0.with_mut(|value| unsafe { *value = 1 });
            theirs.done();
        });
        drop(goes);
        run(stays, &task);
        // SAFETY: the task wrote its value before its `done`.
        assert_eq!(value.0.with(|value| unsafe { *value }), 1);
        other.join().unwrap();
    });
}

/// As `a_zero_shows`, with a task in the queue, so that the last `done` takes the lock of the queue.
#[test]
fn a_zero_that_others_wait_for_shows_what_was_done() {
    Model::new().check("waitgroup_waited", || {
        let tasks = of_one();
        let mut waits = pin!(tasks.wait_async());
        assert!(poll(waits.as_mut(), &Foreign::new()).is_pending());
        a_zero_shows(&tasks, WaitGroup::wait);
    });
}

/// As `a_zero_shows`, with a future that finds the zero at its first poll.
#[test]
fn a_future_that_finds_zero_shows_what_was_done() {
    Model::new().preemptions(3).check("waitgroup_polled", || {
        a_zero_shows(&of_one(), |tasks| run(pin!(tasks.wait_async()), &Foreign::new()));
    });
}

#[test]
fn mutants() {
    let model = "a_wait_sees_what_was_done";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::WaitGroupWakesNobody, model),
            (Mutant::WaitGroupNoRecheck, model),
            (Mutant::WaitGroupNoRecheck, "a_zero_counts_whatever_is_added_after_it"),
            (Mutant::WaitGroupDoneRelaxed, model),
            (Mutant::WaitGroupLeavesUnmarked, "a_task_sees_what_was_done_when_another_is_dropped"),
            (Mutant::WaitGroupLeavesUnmarked, "an_interrupted_waiter_leaves_the_others_to_be_woken"),
            (Mutant::WaitGroupReachedRelaxed, "a_zero_that_others_wait_for_shows_what_was_done"),
            (Mutant::WaitGroupReachedLooksRelaxed, model),
            (Mutant::WaitGroupRecheckRelaxed, "a_zero_that_is_found_shows_what_was_done"),
            (Mutant::WaitGroupPollRelaxed, "a_future_that_finds_zero_shows_what_was_done"),
            (Mutant::WaitGroupLookRelaxed, "a_zero_that_is_found_shows_what_was_done"),
        ],
    );
}
