//! Changing the number of Ps: queued goroutines are run, on as many Ps as there are to be, whichever P retires or is added
//! meanwhile.
//!
//! A goroutine that blocks its thread until another has run keeps its P, so a lost wake-up is a deadlock. The scheduler
//! itself asserts that no M is assigned a surplus P.
//!
//! *Left out*: the monitor's look at the CPUs of the machine. *The mutants* take out the wake-ups after a change or a
//! retirement, the looks at whether a P is surplus, the one critical section of a change, and the corrections of the count of
//! spinning Ms.

use super::caught;
use super::cover::{Handle, blocking_here, p_number};
use crate::model::{
    Body, Flag, Model, Mutant, Parts, done, done_at_rest, fall_asleep, refuse_threads, runtime, together,
    together_with_us,
};
use crate::time::sleep;
use crate::{JoinHandle, Runtime, go, lock_os_thread, yield_now};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Which of two goroutines loom's search begins with.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum First {
    There,
    Elsewhere,
}

/// Starts two goroutines at once: one on the P with the number `number`, the other on another P. Before the search begins, the
/// goroutine that `first` names calls `before`.
pub(super) fn one_on(
    number: u32,
    runtime: &Runtime,
    (first, before): (First, fn()),
    bodies: [Body; 2],
) -> [JoinHandle<()>; 2] {
    let [there, elsewhere] = bodies;
    let bodies = Arc::new(Mutex::new((Some(there), Some(elsewhere))));
    let (one_is_there, begun) = (Flag::default(), Flag::default());
    [(); 2].map(|()| {
        let (bodies, one_is_there, begun) = (Arc::clone(&bodies), one_is_there.clone(), begun.clone());
        runtime.go(move || {
            let has_it = p_number() == number;
            let mut bodies = bodies.lock().unwrap();
            let body = if has_it { bodies.0.take() } else { bodies.1.take() };
            drop(bodies);
            if has_it == (first == First::There) {
                one_is_there.wait_on_thread();
                before();
                loom::explore();
                begun.raise();
            } else {
                one_is_there.raise();
                begun.wait_on_thread();
            }
            body.expect("one of them has that P")();
        })
    })
}

/// Starts a goroutine that ends the search and raises the flag.
fn end_and_raise(flag: &Flag) {
    let flag = flag.clone();
    drop(go(move || {
        done();
        flag.raise();
    }));
}

pub(super) fn one_p() {
    crate::set_procs(1);
}

/// A goroutine is queued on a surplus P, and the goroutine that runs there ends, while the M of the other P goes idle or
/// sleeps: that M may have looked at the surplus P's queue before, and at the global one.
#[test]
fn a_goroutine_queued_on_a_p_that_retires_is_run() {
    Model::new().preemptions(2).check("submit_vs_shrink", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let ran = Flag::default();
        let raised = ran.clone();
        let queued = handle.make(move || raised.raise());
        let queues = move || handle.queue_in_silence([queued]);
        let _both = one_on(1, &runtime, (First::Elsewhere, one_p), [Box::new(queues), Box::new(|| ())]);
        ran.wait_on_thread();
        done();
    });
}

/// As `a_goroutine_queued_on_a_p_that_retires_is_run`, and the goroutine that runs there submits as usual.
#[test]
fn a_goroutine_submitted_on_a_p_that_retires_is_run() {
    Model::new().preemptions(2).check("spawn_vs_shrink", || {
        let runtime = runtime(2, 2);
        let ran = Flag::default();
        let queued = ran.clone();
        let makes = move || drop(go(move || queued.raise()));
        let _both = one_on(1, &runtime, (First::Elsewhere, one_p), [Box::new(makes), Box::new(|| ())]);
        ran.wait_on_thread();
        done();
    });
}

/// As `a_goroutine_submitted_on_a_p_that_retires_is_run`, and the goroutine that runs there makes a blocking call: it
/// gives the surplus P away.
#[test]
fn a_goroutine_queued_on_a_p_that_retires_is_run_while_its_maker_blocks() {
    Model::new().preemptions_by_default(1).check("submit_vs_shrink_vs_blocking", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let ran = Flag::default();
        let raised = ran.clone();
        let queued = handle.make(move || {
            done();
            raised.raise();
        });
        let queues = move || {
            handle.queue_in_silence([queued]);
            crate::blocking(|| ran.wait_on_thread());
        };
        let both = one_on(1, &runtime, (First::Elsewhere, one_p), [Box::new(queues), Box::new(|| ())]);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// A P is given away with a goroutine in its queue, and retires while a thread is to be started for it; the start is refused.
/// Fails by an assertion when the P is idle then.
#[test]
fn a_p_that_was_meant_for_a_refused_thread_retires() {
    Model::new().preemptions_by_default(1).check("refused_start_vs_shrink", || {
        let runtime = runtime(2, 3);
        let handle = Handle::of(&runtime);
        let ran = Flag::default();
        let raised = ran.clone();
        let queued = handle.make(move || {
            done();
            raised.raise();
        });
        let gives_away = move || {
            handle.queue_in_silence([queued]);
            blocking_here(|| ran.wait_on_thread());
        };
        let bodies: [Body; 2] = [Box::new(gives_away), Box::new(one_p)];
        let both = one_on(1, &runtime, (First::There, refuse_threads), bodies);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// A bound goroutine yields on a surplus P, alone. Fails by an assertion when the goroutine goes on there: its M does not
/// look for work, and so would never give the P up.
#[test]
fn a_bound_goroutine_that_yields_leaves_a_surplus_p() {
    Model::new().preemptions(1).check("bound_yield_vs_shrink", || {
        let runtime = runtime(2, 2);
        let yields = || {
            lock_os_thread();
            yield_now();
            assert_eq!(p_number(), 0, "the other P is surplus");
            done();
        };
        let both = one_on(1, &runtime, (First::There, one_p), [Box::new(yields), Box::new(|| ())]);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Keeps the caller's P until the other one of two has no M.
fn keep_until_the_other_is_left(handle: &Handle) {
    while handle.count_ps()[0] > 1 {
        loom::thread::yield_now();
    }
}

fn two_ps() {
    crate::set_procs(2);
}

/// Two goroutines that need an M each are queued on a P that retires, and two Ps are left. Fails by deadlock when the M that
/// has found the first goroutine wakes no other M.
#[test]
fn two_goroutines_queued_on_a_p_that_retires_are_run_on_two() {
    Model::new().preemptions(1).check("two_submitted_vs_shrink", || {
        let runtime = runtime(1, 2);
        // The P that is added last is taken first.
        runtime.set_procs(3);
        let handle = Handle::of(&runtime);
        let (other, ran) = (Flag::default(), Flag::default());
        let (waits, both) = (other.clone(), ran.clone());
        let first = handle.make(move || {
            waits.wait_on_thread();
            done();
            both.raise();
        });
        let two = [first, handle.make(move || other.raise())];
        let queues = move || handle.queue_in_silence(two);
        let _both = one_on(2, &runtime, (First::Elsewhere, two_ps), [Box::new(queues), Box::new(|| ())]);
        ran.wait_on_thread();
    });
}

fn assert_runs_with_one_p(runtime: &Runtime) {
    runtime.go(|| ()).join().unwrap();
    let [_, idle, retired] = Handle::of(runtime).count_ps();
    assert!(idle <= 1 && retired <= 1);
}

/// An M that spins finds its P surplus, and all other Ps held. Fails by deadlock when this M still counts as spinning: no M is
/// woken then for the goroutine that a thread submits.
#[test]
fn work_is_run_after_an_m_has_left_a_surplus_p() {
    Model::new().preemptions(2).check("shrink_vs_idle", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let shrinks = move || {
            one_p();
            keep_until_the_other_is_left(&handle);
            done();
        };
        let both = one_on(1, &runtime, (First::There, || ()), [Box::new(|| ()), Box::new(shrinks)]);
        both.into_iter().for_each(|one| one.join().unwrap());
        assert_runs_with_one_p(&runtime);
    });
}

/// As `work_is_run_after_an_m_has_left_a_surplus_p`, and the M of the other P goes idle meanwhile. The work comes when both Ms
/// sleep.
#[test]
fn work_is_run_after_one_m_has_left_a_surplus_p_and_one_has_gone_idle() {
    Model::new().preemptions(2).check("shrink_vs_two_idle", || {
        let runtime = runtime(2, 2);
        let asleep = done_at_rest(2);
        let _both = one_on(1, &runtime, (First::There, || ()), [Box::new(|| ()), Box::new(one_p)]);
        asleep.wait_on_thread();
        assert_runs_with_one_p(&runtime);
    });
}

/// As `work_is_run_after_one_m_has_left_a_surplus_p_and_one_has_gone_idle`, but the work comes as soon as both goroutines have
/// ended. Fails by deadlock when an M leaves its surplus P and sleeps although another P is idle.
#[test]
fn work_is_run_while_one_m_leaves_a_surplus_p_and_one_goes_idle() {
    Model::new().preemptions(1).check("shrink_vs_two_ends", || {
        let runtime = runtime(2, 2);
        let both = one_on(1, &runtime, (First::There, || ()), [Box::new(|| ()), Box::new(one_p)]);
        both.into_iter().for_each(|one| one.join().unwrap());
        done();
        assert_runs_with_one_p(&runtime);
    });
}

/// A thread submits two goroutines while idle Ps retire. Fails by an assertion when a P that retires is taken for one of the
/// goroutines, by deadlock when no P runs the goroutine.
#[test]
fn work_from_a_thread_is_run_while_idle_ps_retire() {
    Model::new().preemptions(1).check("submit_vs_idle_shrink", || {
        let runtime = Arc::new(runtime(2, 2));
        let handle = Handle::of(&runtime);
        fall_asleep::<2>(&runtime);
        let both = Parts::of(2);
        let two = [both.clone(), both].map(|part| handle.make(move || part.held()));
        loom::explore();
        let shrinks = loom::thread::spawn({
            let runtime = Arc::clone(&runtime);
            move || assert_eq!(runtime.set_procs(1), 2)
        });
        for one in handle.inject(two) {
            one.join().unwrap();
        }
        shrinks.join().unwrap();
    });
}

/// A goroutine keeps the only P until another has run, while a second P is made.
#[test]
fn work_that_waits_gets_the_new_p() {
    Model::new().preemptions(1).check("grow_vs_waiting", || {
        let runtime = runtime(1, 2);
        let ran = Flag::default();
        let queued = ran.clone();
        let keeps = move || {
            end_and_raise(&queued);
            queued.wait_on_thread();
        };
        let _keeps = together_with_us(&runtime, [Box::new(keeps)]);
        runtime.set_procs(2);
        ran.wait_on_thread();
    });
}

/// As `work_that_waits_gets_the_new_p`, with a P that had retired, or whose M has not left it yet.
#[test]
fn work_that_waits_gets_a_p_that_had_retired() {
    Model::new().preemptions(2).check("shrink_and_grow_vs_waiting", || {
        let runtime = runtime(2, 2);
        let ran = Flag::default();
        let keeps = move || {
            crate::set_procs(1);
            end_and_raise(&ran);
            crate::set_procs(2);
            ran.wait_on_thread();
        };
        let both = one_on(1, &runtime, (First::There, || ()), [Box::new(|| ()), Box::new(keeps)]);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Fails by a count when an M that has seen its P surplus gives the P up although the P is no longer surplus.
#[test]
fn no_p_retires_after_growing() {
    Model::new().preemptions(2).check("leave_vs_grow", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let grows = move || {
            two_ps();
            keep_until_the_other_is_left(&handle);
            assert_eq!(handle.count_ps()[2], 0);
            done();
        };
        let both = one_on(1, &runtime, (First::There, one_p), [Box::new(|| ()), Box::new(grows)]);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// As `no_p_retires_after_growing`, and the M of the other P goes idle meanwhile.
#[test]
fn no_p_retires_after_growing_beside_an_m_that_goes_idle() {
    Model::new().preemptions(2).check("leave_vs_grow_and_idle", || {
        let runtime = runtime(2, 2);
        let asleep = done_at_rest(2);
        let _both = one_on(1, &runtime, (First::There, one_p), [Box::new(|| ()), Box::new(two_ps)]);
        asleep.wait_on_thread();
        assert_eq!(Handle::of(&runtime).count_ps()[2], 0);
    });
}

/// As `no_p_retires_after_growing_beside_an_m_that_goes_idle`, but a thread counts the Ps, and ends the runtime, as soon as
/// both goroutines have ended.
#[test]
fn no_p_retires_after_growing_beside_the_ends_of_goroutines() {
    Model::new().preemptions(1).check("leave_vs_grow_and_ends", || {
        let runtime = runtime(2, 2);
        let both = one_on(1, &runtime, (First::There, one_p), [Box::new(|| ()), Box::new(two_ps)]);
        both.into_iter().for_each(|one| one.join().unwrap());
        assert_eq!(Handle::of(&runtime).count_ps()[2], 0);
        done();
    });
}

/// Two goroutines change the number at once. Fails by a count, or by an assertion.
#[test]
fn of_two_changes_at_once_one_is_the_last() {
    Model::new().preemptions(1).check("two_set_procs", || {
        let runtime = runtime(2, 2);
        let before = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        let change = |at: usize, to: usize| {
            let before = Arc::clone(&before);
            move || before[at].store(crate::set_procs(to), SeqCst)
        };
        let both = together(&runtime, [Box::new(change(0, 1)), Box::new(change(1, 3))]);
        both.into_iter().for_each(|one| one.join().unwrap());
        done();
        let last = runtime.procs();
        let before = [0, 1].map(|at| before[at].load(SeqCst));
        // Each call returns what the other one has set, or the number from before both.
        assert!((before, last) == ([2, 1], 3) || (before, last) == ([3, 2], 1), "{before:?}, {last}");
        let [_, idle, retired] = Handle::of(&runtime).count_ps();
        assert!(idle <= last && (last == 1 || retired == 0));
    });
}

/// A goroutine begins to sleep on a P that becomes surplus. Fails by deadlock when the M in the poller does not see
/// the goroutine's timer.
#[test]
fn a_timer_of_a_p_that_retires_fires() {
    Model::new().preemptions(1).check("timer_vs_shrink", || {
        let runtime = runtime(2, 2);
        let shrinks = || one_p();
        let sleeps = || {
            sleep(Duration::from_millis(1));
            done();
        };
        let both = one_on(1, &runtime, (First::There, || ()), [Box::new(sleeps), Box::new(shrinks)]);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Fails by deadlock, or by an assertion, when the end of a runtime and a change of its Ps meet.
#[test]
fn a_runtime_ends_while_its_ps_change() {
    Model::new().preemptions(2).check("shutdown_vs_procs", || {
        let runtime = runtime(2, 1);
        let changes = || {
            crate::set_procs(1);
            crate::set_procs(3);
        };
        let _changes = together_with_us(&runtime, [Box::new(changes)]);
        drop(runtime);
        done();
    });
}

/// A goroutine sets the number of Ps as its runtime ends. Fails by the report when an M stays, because a P is wanted again.
#[test]
fn the_number_of_ps_stays_when_the_runtime_has_ended() {
    Model::new().preemptions(2).check("procs_vs_end", || {
        let runtime = runtime(1, 2);
        let [begins, go_on]: [Flag; 2] = Default::default();
        let sets = runtime.go({
            let [begins, go_on] = [&begins, &go_on].map(Flag::clone);
            move || {
                begins.raise();
                go_on.wait_on_thread();
                crate::set_procs(2)
            }
        });
        begins.wait_on_thread();
        loom::explore();
        go_on.raise();
        assert_eq!(super::cover::leave(runtime, Duration::from_secs(1)).threads_left(), 0);
        done();
        drop(sets.join());
    });
}

#[test]
fn mutants() {
    const QUEUED: &str = "a_goroutine_queued_on_a_p_that_retires_is_run";
    const GIVEN: &str = "a_goroutine_queued_on_a_p_that_retires_is_run_while_its_maker_blocks";
    const IDLE: &str = "work_is_run_after_an_m_has_left_a_surplus_p";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::ProcsSetAfterTheEnd, "the_number_of_ps_stays_when_the_runtime_has_ended"),
            (Mutant::IdleKeepsTheSurplus, IDLE),
            (Mutant::IdleKeepsTheSurplus, "a_goroutine_submitted_on_a_p_that_retires_is_run"),
            (Mutant::IdleKeepsTheSurplus, "work_that_waits_gets_a_p_that_had_retired"),
            (Mutant::IdleKeepsTheSurplus, "of_two_changes_at_once_one_is_the_last"),
            (Mutant::IdleKeepsTheSurplus, "a_timer_of_a_p_that_retires_fires"),
            (Mutant::IdleKeepsTheSurplus, "a_runtime_ends_while_its_ps_change"),
            (Mutant::RetireKeepsTheQueue, QUEUED),
            (Mutant::TakeBackKeepsTheSurplus, "a_p_that_was_meant_for_a_refused_thread_retires"),
            (Mutant::YieldKeepsTheSurplus, "a_bound_goroutine_that_yields_leaves_a_surplus_p"),
            (Mutant::LeaveSurplusAsksForNone, QUEUED),
            (Mutant::HandoffpRetiresQuietly, GIVEN),
            (Mutant::LeaveSurplusDoesNotSpin, "two_goroutines_queued_on_a_p_that_retires_are_run_on_two"),
            (Mutant::LeaveSurplusLeaksSpinning, IDLE),
            (
                Mutant::LeaveSurplusLeaksSpinning,
                "work_is_run_after_one_m_has_left_a_surplus_p_and_one_has_gone_idle",
            ),
            (Mutant::LeaveSurplusAsksForNone, "work_is_run_while_one_m_leaves_a_surplus_p_and_one_goes_idle"),
            (Mutant::IdleKeepsTheSurplus, "no_p_retires_after_growing_beside_the_ends_of_goroutines"),
            (Mutant::ShrinkKeepsTheIdle, IDLE),
            (Mutant::ProcsInTwoSections, "work_from_a_thread_is_run_while_idle_ps_retire"),
            (Mutant::LeaveSurplusBlindly, "no_p_retires_after_growing"),
            (Mutant::LeaveSurplusBlindly, "no_p_retires_after_growing_beside_an_m_that_goes_idle"),
            (Mutant::GrowWakesNobody, "work_that_waits_gets_the_new_p"),
        ],
    );
}
