//! Join: a joiner is told of the goroutine's end, and finds the goroutine's value.
//!
//! *Modelled*: one goroutine that ends, and its joiner, hook, task or dropped handle, also beside the end of the runtime. *Left
//! out*: how goroutine and joiner come to run. *The mutants* take out the re-check after the joiner has announced itself, the
//! wakes, the waits of one party for another that still reads, and the orderings of the outcome and of the G's word.
//! *Failures*: a lost end is a deadlock; an outcome or a G that two parties use at once is a causality violation.

use super::caught;
use super::task::{Foreign, poll, run};
use crate::JoinHandle;
use crate::context::{Context, ContextError};
use crate::model::{Flag, Model, Mutant, at_rest, done, fall_asleep, runtime, together_with_us};
use std::pin::Pin;
use std::sync::Arc;

/// Fails by deadlock when the end comes between the joiner's look and its store of itself as the joiner, and no M
/// tells the joiner.
#[test]
fn a_thread_hears_of_the_end() {
    Model::new().check("join_from_thread", || {
        let runtime = at_rest::<1>();
        let one = runtime.go(|| 1);
        assert_eq!(one.join().unwrap(), 1);
        done();
    });
}

#[test]
fn a_goroutine_hears_of_the_end() {
    // Two Ms, one of which has to be woken: two preemptions take 26,000 executions, one takes 137.
    Model::new().preemptions(1).check("join_from_goroutine", || {
        let runtime = runtime(2, 2);
        fall_asleep::<2>(&runtime);
        // How the outer goroutine begins, and how its own end is noticed, are other models' subjects.
        runtime.run(|| {
            loom::explore();
            assert_eq!(crate::go(|| 1).join().unwrap(), 1);
            done();
        });
    });
}

/// The handle is dropped while the goroutine ends: one of the two parties drops the value, once, and the G goes back
/// to the pool.
#[test]
fn a_handle_dropped_at_the_end_leaves_the_value_to_one_party() {
    use loom::sync::Arc;
    Model::new().check("detach_vs_end", || {
        let runtime = at_rest::<1>();
        let value = Arc::new(());
        let inside = Arc::clone(&value);
        drop(runtime.go(move || inside));
        assert!(runtime.shutdown_timeout(std::time::Duration::from_secs(1)));
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// A value that is to be dropped once, and tells loom of its drop.
struct Value(loom::cell::UnsafeCell<u32>);

// SAFETY: the handle orders the drop after the making of the value; loom checks that.
unsafe impl Send for Value {}

impl Drop for Value {
    fn drop(&mut self) {
        // SAFETY: the party that drops the value is alone with it.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

/// A handle is dropped while its goroutine ends, and the next goroutine of the same M spawns a third one, which may get the G.
/// Only the life bits of the G's word order that use of the G after the handle owner's. Fails by a causality violation.
#[test]
fn a_handle_that_goes_at_the_end_leaves_the_g_alone() {
    Model::new().check("drop_vs_reuse", || {
        let runtime = runtime(1, 1);
        let next = runtime.go(|| {
            // The joined goroutine runs first.
            crate::yield_now();
            drop(crate::go(|| ()));
            done();
        });
        let (begins, begun) = (Flag::default(), Flag::default());
        let first = runtime.go({
            let (begins, begun) = (begins.clone(), begun.clone());
            move || {
                begins.raise();
                begun.wait_on_thread();
                Value(loom::cell::UnsafeCell::new(0))
            }
        });
        begins.wait_on_thread();
        loom::explore();
        begun.raise();
        drop(first);
        next.join().unwrap();
    });
}

/// As `a_handle_that_goes_at_the_end_leaves_the_g_alone`, but the handle's owner spawns the goroutine that may get the G.
#[test]
fn a_goroutine_that_ends_as_its_handle_goes_leaves_the_g_alone() {
    Model::new().check("end_vs_reuse", || {
        let runtime = runtime(1, 1);
        let [first] = together_with_us(&runtime, [Box::new(|| ())]);
        drop(first);
        let next = runtime.go(|| ());
        done();
        next.join().unwrap();
    });
}

/// A joiner that was told of the end lets the G go before the M that has told it does, and that M makes the next goroutine.
/// Fails by a causality violation.
#[test]
fn a_joiner_that_was_told_leaves_the_g_to_the_m() {
    Model::new().check("told_vs_reuse", || {
        let runtime = runtime(1, 1);
        let next = runtime.go(|| {
            // The joined goroutine runs first.
            crate::yield_now();
            drop(crate::go(|| ()));
            done();
        });
        let [first] = together_with_us(&runtime, [Box::new(|| ())]);
        first.join().unwrap();
        next.join().unwrap();
    });
}

/// As `a_joiner_that_was_told_leaves_the_g_to_the_m`, but the joiner is the last party, makes the next goroutine, and joins it.
#[test]
fn an_m_that_has_told_leaves_the_g_to_the_joiner() {
    Model::new().check("tell_vs_reuse", || {
        let runtime = runtime(1, 1);
        let [first] = together_with_us(&runtime, [Box::new(|| ())]);
        first.join().unwrap();
        // The next goroutine is not part of the property.
        done();
        runtime.go(|| ()).join().unwrap();
    });
}

/// A joiner is interrupted as its goroutine ends. Fails by a causality violation when the joiner leaves while the M looks at
/// its record.
#[test]
fn an_interrupted_joiner_waits_for_the_m_that_reads_its_record() {
    Model::new().check("join_vs_interrupt", || {
        let runtime = runtime(1, 1);
        let (ctx, cancel) = Context::background().with_cancel();
        let [ends] = together_with_us(&runtime, [Box::new(|| ())]);
        let joined = ctx.run(|| {
            // The joiner itself cancels, and no other thread: loom's threads share one count of panics, at which loom's locks
            // look.
            cancel.cancel();
            ends.join()
        });
        match joined {
            Ok(joined) => joined.unwrap(),
            Err(error) => assert_eq!(error, ContextError::Canceled),
        }
        done();
    });
}

/// The end of the runtime leaves a goroutine that has begun, and tells its joiner. The joiner calls `before` first, and lets
/// the goroutine end after all.
pub(super) fn told_by_the_end(before: fn(&JoinHandle<()>)) {
    let runtime = runtime(1, 1);
    let (begins, joins, ends) = (Flag::default(), Flag::default(), Flag::default());
    let first = runtime.go({
        let (begins, ends) = (begins.clone(), ends.clone());
        move || {
            begins.raise();
            ends.wait_on_thread();
        }
    });
    begins.wait_on_thread();
    let joiner = loom::thread::spawn({
        let joins = joins.clone();
        move || {
            joins.raise();
            before(&first);
            assert!(first.join().unwrap_err().is_shutdown());
            ends.raise();
        }
    });
    joins.wait_on_thread();
    loom::explore();
    runtime.shutdown(std::time::Duration::ZERO);
    joiner.join().unwrap();
}

/// The end of the runtime tells a joiner; the joiner drops its handle, and then the goroutine ends after all. Fails by an
/// assertion when the M gives the G back before the ender that has told the joiner is done with it.
#[test]
fn a_joiner_that_was_told_by_the_end_leaves_the_g_to_the_ender() {
    Model::new().check("left_vs_end", || {
        told_by_the_end(|_| ());
    });
}

/// A hook in place of a joiner. Fails by deadlock when the end comes between the look and the store of the hook, and neither
/// side calls the hook.
#[test]
fn a_channel_hears_of_the_end() {
    Model::new().check("hook_vs_end", || {
        let runtime = at_rest::<1>();
        let mut one = runtime.go(|| 1);
        assert!(one.done().recv().is_err());
        assert!(one.is_finished());
        assert_eq!(one.join().unwrap(), 1);
        done();
    });
}

/// A hook is taken back as the goroutine ends, and its handle is dropped. Fails by deadlock, or by a causality violation,
/// when the owner takes back a hook that the M calls.
#[test]
fn a_hook_that_is_taken_back_at_the_end_is_called_once() {
    Model::new().check("hook_back_vs_end", || {
        let runtime = at_rest::<1>();
        let mut one = runtime.go(|| ());
        let first = one.done();
        let second = one.done();
        drop(one);
        assert!(first.recv().is_err());
        assert!(second.recv().is_err());
        done();
    });
}

/// The owner leaves a hook when the end has begun, and the end calls an earlier hook. Fails by the assertion of `wait_for_end`
/// when the owner writes where that end reads.
#[test]
fn a_hook_that_comes_as_an_earlier_one_is_called_is_left_nowhere() {
    Model::new().check("hook_vs_hook", || {
        told_by_the_end(|ends| {
            let first = ends.announce();
            while !ends.is_finished() {
                loom::thread::yield_now();
            }
            let second = ends.announce();
            [second, first]
                .into_iter()
                .for_each(|done| assert!(done.try_recv().is_err_and(|why| why.is_disconnected())));
        });
    });
}

/// A task of another executor awaits the end. Fails by deadlock when it is not woken, or by a causality violation.
#[test]
fn a_task_hears_of_the_end() {
    Model::new().check("join_task", || {
        let runtime = at_rest::<1>();
        let mut one = runtime.go(|| 1);
        assert_eq!(run(Pin::new(&mut one), &Foreign::new()).unwrap(), 1);
        done();
    });
}

/// A goroutine awaits the end by `block_on`.
#[test]
fn a_goroutine_that_polls_hears_of_the_end() {
    Model::new().preemptions(1).check("join_block_on", || {
        let runtime = runtime(2, 2);
        fall_asleep::<2>(&runtime);
        runtime.run(|| {
            loom::explore();
            assert_eq!(crate::block_on(crate::go(|| 1)).unwrap(), 1);
            done();
        });
    });
}

/// Two tasks poll, one after the other, beside the end. Fails by deadlock when only the first is woken.
#[test]
fn the_task_that_has_polled_last_hears_of_the_end() {
    Model::new().check("join_task_moved", || {
        let runtime = runtime(1, 1);
        let [mut ends] = together_with_us(&runtime, [Box::new(|| ())]);
        if poll(Pin::new(&mut ends), &Foreign::new()).is_pending() {
            run(Pin::new(&mut ends), &Foreign::new()).unwrap();
        }
        done();
    });
}

/// A handle that a task has polled is dropped beside the goroutine's end, and a receiver waits for that end. Fails by deadlock
/// when the channel stays open.
#[test]
fn a_handle_that_was_polled_is_dropped_beside_the_end() {
    Model::new().check("join_task_dropped", || {
        let runtime = runtime(1, 1);
        let [mut ends] = together_with_us(&runtime, [Box::new(|| ())]);
        let closes = ends.done();
        let _maybe = poll(Pin::new(&mut ends), &Foreign::new());
        drop(ends);
        assert!(closes.recv().is_err());
        done();
    });
}

/// A task polls a handle, which is dropped while its goroutine runs. Fails by the count when the waker stays with the
/// goroutine.
#[test]
fn a_handle_that_was_polled_and_is_dropped_leaves_no_waker() {
    Model::new().check("join_task_forgotten", || {
        let (runtime, ends) = (runtime(1, 1), Flag::default());
        let theirs = ends.clone();
        let mut runs = runtime.go(move || theirs.wait_on_thread());
        let task = Foreign::new();
        assert!(poll(Pin::new(&mut runs), &task).is_pending());
        loom::explore();
        drop(runs);
        assert_eq!(Arc::strong_count(&task), 1, "the waker is still there");
        ends.raise();
        done();
    });
}

/// The handle of a goroutine that never ran is dropped while the end of the runtime drops the closure. Fails by a causality
/// violation when the handle's owner drops an outcome that is not whole.
#[test]
fn a_handle_dropped_as_the_end_drops_the_closure_finds_the_outcome_whole() {
    Model::new().preemptions(2).check("detach_vs_unrun", || {
        let runtime = runtime(1, 1);
        let (kept, over) = (Flag::default(), Flag::default());
        let keeps = runtime.go({
            let (kept, over) = (kept.clone(), over.clone());
            move || {
                kept.raise();
                over.wait_on_thread();
            }
        });
        kept.wait_on_thread();
        let unrun = runtime.go(|| ());
        loom::explore();
        let dropper = loom::thread::spawn(move || drop(unrun));
        super::cover::leave(runtime, std::time::Duration::ZERO);
        dropper.join().unwrap();
        done();
        over.raise();
        drop(keeps);
    });
}

/// A thread starts a goroutine. Fails by the count when the goroutine runs before it is counted.
#[test]
fn a_goroutine_that_a_thread_starts_is_counted() {
    Model::new().preemptions(1).check("count_outside", || {
        let runtime = at_rest::<1>();
        let counts = runtime.go(crate::num_goroutines);
        assert_eq!(counts.join().unwrap(), 1);
        done();
    });
}

/// A goroutine starts another, and stays until the other has run. Fails by the count when the other runs before it is counted.
#[test]
fn a_goroutine_that_a_goroutine_starts_is_counted() {
    Model::new().preemptions(1).check("count_inside", || {
        let runtime = at_rest::<2>();
        let starts = runtime.go(|| {
            let ran = Flag::default();
            let raises = ran.clone();
            drop(crate::go(move || {
                assert_eq!(crate::num_goroutines(), 2);
                done();
                raises.raise();
            }));
            ran.wait_on_thread();
        });
        starts.join().unwrap();
    });
}

#[test]
fn mutants() {
    let hears = "a_thread_hears_of_the_end";
    let drops = "a_handle_that_goes_at_the_end_leaves_the_g_alone";
    let interrupted = "an_interrupted_joiner_waits_for_the_m_that_reads_its_record";
    let left = "a_joiner_that_was_told_by_the_end_leaves_the_g_to_the_ender";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SpawnedOutsideCountsLate, "a_goroutine_that_a_thread_starts_is_counted"),
            (Mutant::SpawnedCountsLate, "a_goroutine_that_a_goroutine_starts_is_counted"),
            (Mutant::JoinNoWake, hears),
            (Mutant::JoinNoWake, "a_goroutine_hears_of_the_end"),
            (Mutant::JoinNoWake, "a_handle_dropped_at_the_end_leaves_the_value_to_one_party"),
            (Mutant::JoinNoWake, "a_goroutine_that_ends_as_its_handle_goes_leaves_the_g_alone"),
            (Mutant::JoinNoWake, "a_hook_that_is_taken_back_at_the_end_is_called_once"),
            (Mutant::JoinNoWake, "a_goroutine_that_polls_hears_of_the_end"),
            (Mutant::JoinNoWake, "a_handle_that_was_polled_is_dropped_beside_the_end"),
            (Mutant::JoinNoRecheck, hears),
            (Mutant::JoinRelaxed, hears),
            (Mutant::JoinLooksRelaxed, hears),
            (Mutant::EndRelaxed, hears),
            (Mutant::HookWrittenAtTheEnd, "a_hook_that_comes_as_an_earlier_one_is_called_is_left_nowhere"),
            (Mutant::EndHookForgotten, "a_channel_hears_of_the_end"),
            (Mutant::EndTakesAnOldHook, "the_task_that_has_polled_last_hears_of_the_end"),
            (Mutant::EndHookWakesNoTask, "a_task_hears_of_the_end"),
            (Mutant::EndHookKeepsTheOldWaker, "the_task_that_has_polled_last_hears_of_the_end"),
            (Mutant::EndHookKeepsItsWaker, "a_handle_that_was_polled_and_is_dropped_leaves_no_waker"),
            (Mutant::JoinEndsEarly, interrupted),
            (Mutant::JoinEndsRelaxed, interrupted),
            (Mutant::EndForgetsTheTeller, left),
            (Mutant::LeftWithoutAcquire, left),
            (Mutant::ToldWithoutAcquire, "a_joiner_that_was_told_leaves_the_g_to_the_m"),
            (Mutant::ToldWithoutRelease, "an_m_that_has_told_leaves_the_g_to_the_joiner"),
            (Mutant::OutcomeRelaxed, drops),
            (
                Mutant::UnrunOutcomeRelaxed,
                "a_handle_dropped_as_the_end_drops_the_closure_finds_the_outcome_whole",
            ),
            (Mutant::HandleRelaxed, drops),
            (Mutant::HandleGoesFirst, drops),
            (
                Mutant::HandleLooksRelaxed,
                "a_handle_dropped_as_the_end_drops_the_closure_finds_the_outcome_whole",
            ),
            (Mutant::HandleLooksAgainRelaxed, drops),
            (Mutant::HandleLooksAgainRelaxed, "a_goroutine_that_ends_as_its_handle_goes_leaves_the_g_alone"),
            (Mutant::LiveRelaxed, drops),
        ],
    );
}
