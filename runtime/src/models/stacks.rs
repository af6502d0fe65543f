//! Goroutines that wait for a stack, when the host has fewer stacks than there are goroutines (`sched/stacks.rs`).

use super::caught;
use super::cover::Handle;
use crate::host::model::reserved_stacks;
use crate::model::{Flag, Model, Mutant, Parts, at_rest, done, fall_asleep, limit_stacks, runtime};
use crate::{Runtime, chan};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Runs two goroutines, which share one stack, to their ends.
fn two_for_one_stack(runtime: &Runtime) {
    let both = Parts::of(2);
    let [first, second] = [both.clone(), both].map(|part| runtime.go(move || part.held()));
    first.join().unwrap();
    second.join().unwrap();
}

/// As `two_for_one_stack`; loom's search begins when the first goroutine has the stack, and ends when the second one has it.
fn second_after_the_first(runtime: &Runtime) {
    let (begun, second_runs) = (Arc::new(AtomicUsize::new(0)), Flag::default());
    let both = [(); 2].map(|()| {
        let (begun, second_runs) = (Arc::clone(&begun), second_runs.clone());
        runtime.go(move || {
            if begun.fetch_add(1, Relaxed) == 0 {
                loom::explore();
            } else {
                done();
                second_runs.raise();
            }
        })
    });
    second_runs.wait_on_thread();
    both.into_iter().for_each(|one| one.join().unwrap());
}

/// Ends a runtime whose goroutines have all ended, and asserts that none has a stack reserved.
fn end(runtime: Runtime) {
    let sched = runtime.sched();
    super::cover::leave(runtime, Duration::from_secs(1));
    assert_eq!(reserved_stacks(&sched), 0, "reservations were not given back");
}

/// Two goroutines on two Ms share one stack. Fails when no M sees the stack that comes back: it is in the cache of a P that was
/// busy when the other M asked.
#[test]
fn a_stack_that_comes_back_goes_to_a_waiter() {
    Model::new().preemptions(1).check("one_stack_for_two", || {
        let runtime = at_rest::<2>();
        limit_stacks(&runtime, 1, true);
        two_for_one_stack(&runtime);
        end(runtime);
    });
}

/// As `a_stack_that_comes_back_goes_to_a_waiter`, while a third goroutine sleeps on a stack of its own, so
/// that a stack may always come back; and with a host without caches. Fails when neither the M that asks nor the M that
/// gives back sees the other; and when a goroutine's reservation is given back twice, which the host counts.
#[test]
fn a_stack_that_comes_back_to_the_host_goes_to_a_waiter() {
    Model::new().preemptions(2).check("one_stack_for_two_beside_a_sleeper", || {
        let runtime = runtime(2, 2);
        let (wakes, sleeps) = chan::bounded::<()>(0);
        let sleeper = runtime.go(move || sleeps.recv());
        fall_asleep::<2>(&runtime);
        limit_stacks(&runtime, 1, false);
        second_after_the_first(&runtime);
        drop(wakes);
        sleeper.join().unwrap().unwrap_err();
        end(runtime);
    });
}

/// No goroutine has a stack, and the host has one again: a look of the monitor makes the goroutine that waits ask again, while
/// its M goes idle. Fails by deadlock when no M runs that goroutine, when the process is ended instead, and when the judge of
/// deadlocks takes that goroutine for asleep.
#[test]
fn a_stack_that_is_there_again_is_had_after_a_look() {
    Model::new().preemptions(1).check("a_look_for_stacks", || {
        let runtime = runtime(2, 2);
        fall_asleep::<2>(&runtime);
        limit_stacks(&runtime, 0, false);
        let waits = runtime.go(|| ());
        let handle = Handle::of(&runtime);
        while !handle.wants_stacks() {
            loom::thread::yield_now();
        }
        loom::explore();
        assert!(!handle.is_asleep(|| true), "said to be asleep, and waits for a stack");
        limit_stacks(&runtime, 1, false);
        handle.monitor_looks_for_stacks();
        waits.join().unwrap();
        loom::stop_exploring();
        drop(handle);
        end(runtime);
    });
}

/// The end of a runtime comes to a goroutine that waits for a stack. Fails by the count when its closure is not dropped.
#[test]
fn a_goroutine_that_waits_for_a_stack_is_dropped_at_the_end() {
    Model::new().preemptions(1).check("no_stack_at_the_end", || {
        let runtime = at_rest::<1>();
        limit_stacks(&runtime, 0, false);
        let value = Arc::new(());
        let held = Arc::clone(&value);
        let waits = runtime.go(move || drop(held));
        super::cover::leave(runtime, Duration::from_secs(1));
        assert!(waits.join().unwrap_err().is_shutdown());
        assert_eq!(Arc::strong_count(&value), 1, "the closure is still there");
        done();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::StopForgetsTheStackless, "a_goroutine_that_waits_for_a_stack_is_dropped_at_the_end"),
            (Mutant::IdlePKeepsStacks, "a_stack_that_comes_back_goes_to_a_waiter"),
            (Mutant::StackWantedLate, "a_stack_that_comes_back_to_the_host_goes_to_a_waiter"),
            (Mutant::AskedForIsRetired, "a_stack_that_comes_back_to_the_host_goes_to_a_waiter"),
            (Mutant::MonitorLeavesStackless, "a_stack_that_is_there_again_is_had_after_a_look"),
            (Mutant::DeadlockIgnoresGs, "a_stack_that_is_there_again_is_had_after_a_look"),
        ],
    );
}
