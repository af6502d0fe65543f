//! The hand-off word: at every moment exactly one M, or retaker, owns a P.
//!
//! *Modelled*: owners of a P that enter and leave the runtime, or block outside it, and a retaker, on a kernel with the barrier
//! on all threads, without it, and with one that is refused. *Left out*: which Ps the monitor chooses
//! (`sched/threads/retake.rs`). *The mutants* take out EntryBarrier, EntryFence and RetakeBarrier, the looks of both sides at
//! the word, the generation of a lease, and the orderings of the word. *Failures*: two owners are a causality violation at the
//! P's ghost; a lost P is a deadlock.

use super::caught;
use super::cover::{Held, switch_point};
use crate::model::{Flag, Model, Mutant, Parts, done, runtime};
use loom::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

fn enters_beside_a_retaker(retake: fn(Held) -> bool) {
    let runtime = runtime(1, 2);
    let retaker = runtime.run(|| {
        let held = Held::current();
        loom::explore();
        let retaker = loom::thread::spawn(move || retake(held));
        // Each of these calls enters, and finds its P or comes back for one.
        super::cover::touch_window();
        super::cover::touch_window();
        retaker
    });
    retaker.join().unwrap();
    done();
}

/// A goroutine enters and leaves the runtime while a retaker takes its M to be away. The owner of the P touches the P's ghost:
/// fails by a causality violation when two threads touch it and nothing orders them, by deadlock when the P is lost.
#[test]
fn a_p_has_one_owner_while_it_is_retaken() {
    Model::new().with_retaker().check("retake_vs_enter", || enters_beside_a_retaker(Held::retake));
}

/// As `a_p_has_one_owner_while_it_is_retaken`, on a kernel without a barrier on all threads: the retaker fences, and so does
/// each entry.
#[test]
fn a_p_has_one_owner_where_both_sides_fence() {
    let scene = || enters_beside_a_retaker(Held::retake);
    Model::new().with_retaker_that_fences().check("retake_by_fences", scene);
}

/// As `a_p_has_one_owner_while_it_is_retaken`, with a goroutine that has run for too long: it cedes the P if it enters
/// meanwhile.
#[test]
fn a_p_has_one_owner_while_it_is_demanded() {
    Model::new().with_retaker().check("demand_vs_enter", || enters_beside_a_retaker(Held::demand));
}

/// As `a_p_has_one_owner_while_it_is_demanded`, where both sides fence.
#[test]
fn a_p_has_one_owner_where_it_is_demanded_by_fences() {
    let scene = || enters_beside_a_retaker(Held::demand);
    Model::new().with_retaker_that_fences().check("demand_by_fences", scene);
}

/// A goroutine that has run for too long enters the runtime each time when the retaker is about to look. Fails by an assertion
/// when the goroutine keeps the P: it could do so each time, and the others would wait for ever.
#[test]
fn a_goroutine_that_enters_again_and_again_loses_its_p() {
    Model::new().with_retaker().preemptions(1).check("demand_vs_entries", || {
        let runtime = runtime(1, 2);
        let retaker = runtime.run(|| {
            let (held, asked, ran) = (Held::current(), Flag::default(), Arc::new(AtomicBool::new(false)));
            let (at_once, runs) = (asked.clone(), Arc::clone(&ran));
            // This goroutine waits for the P.
            drop(crate::go(move || runs.store(true, Relaxed)));
            loom::explore();
            let retaker = loom::thread::spawn(move || {
                assert!(held.demand_beside_an_entry(|| asked.raise()), "it keeps its P")
            });
            at_once.wait_on_thread();
            // The caller comes back behind the goroutine that waits.
            super::cover::touch_window();
            assert!(ran.load(Relaxed), "the one that waits has not run");
            retaker
        });
        retaker.join().unwrap();
        done();
    });
}

/// Waits until `over`. The kernel may switch the caller's thread out at every step, as it may anywhere in a real program.
fn go_on_until(over: &AtomicBool) {
    while !over.load(Relaxed) {
        switch_point();
        loom::thread::yield_now();
    }
}

/// Starts a thread that plays the retaker; the flag says when it is done.
fn retake_aside(held: Held) -> (loom::thread::JoinHandle<()>, Arc<AtomicBool>) {
    let over = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&over);
    let retaker = loom::thread::spawn(move || {
        held.retake();
        raised.store(true, Relaxed);
    });
    (retaker, over)
}

/// As `a_p_has_one_owner_while_it_is_retaken`, but the kernel refuses the retaker the barrier on all threads, and the M counts
/// on that barrier: the retaker waits until the M's thread was switched out.
#[test]
fn a_p_has_one_owner_when_the_barrier_is_refused() {
    Model::new().with_retaker_that_is_refused().check("retake_refused", || {
        let runtime = runtime(1, 2);
        let retaker = runtime.run(|| {
            let held = Held::current();
            loom::explore();
            let (retaker, over) = retake_aside(held);
            super::cover::touch_window();
            super::cover::touch_window();
            go_on_until(&over);
            done();
            retaker
        });
        retaker.join().unwrap();
    });
}

/// A goroutine that has run for too long enters the runtime while the retaker, which is refused the barrier, waits for the
/// goroutine's thread. Fails by an assertion when the goroutine cedes the P, which no M can use until that wait is over.
#[test]
fn a_p_is_not_ceded_while_the_retaker_waits() {
    Model::new().with_retaker_that_is_refused().preemptions(1).check("demand_refused", || {
        let runtime = runtime(1, 2);
        let retaker = runtime.run(|| {
            let (held, asked) = (Held::current(), Arc::new(AtomicBool::new(false)));
            let tells = Arc::clone(&asked);
            loom::explore();
            let retaker = loom::thread::spawn(move || {
                let taken = held.demand_beside_an_entry(|| tells.store(true, Relaxed));
                assert!(!taken, "it has ceded its P");
            });
            go_on_until(&asked);
            super::cover::touch_window();
            retaker
        });
        retaker.join().unwrap();
        done();
    });
}

/// As `a_p_has_one_owner_when_the_barrier_is_refused`, for an M that has acquired its P after the refusal: both sides fence.
#[test]
fn a_p_has_one_owner_after_the_barrier_was_refused() {
    Model::new().with_retaker_that_is_refused().check("retake_after_refusal", || {
        let runtime = runtime(1, 2);
        let retaker = runtime.run(|| {
            let (retaker, over) = retake_aside(Held::current());
            go_on_until(&over);
            retaker.join().unwrap();
            // The goroutine comes back for a P.
            super::cover::touch_window();
            let held = Held::current();
            loom::explore();
            let retaker = loom::thread::spawn(move || held.retake());
            super::cover::touch_window();
            super::cover::touch_window();
            retaker
        });
        retaker.join().unwrap();
        done();
    });
}

/// The retaker judges the P while it changes hands, from a goroutine that gives it away and stays outside to the next
/// one. Fails when the retaker takes the lease of the second M for that of the first, which is away.
#[test]
fn a_p_that_changes_hands_is_judged_with_its_holder() {
    Model::new().with_retaker().check("retake_vs_acquire", || {
        let runtime = runtime(1, 2);
        let first = runtime.go(|| {
            let (judging, judged, both) = (Flag::default(), Flag::default(), Parts::of(2));
            let mut held = Held::current();
            let retaker = loom::thread::spawn({
                let (judged, both) = (judged.clone(), both.clone());
                move || {
                    held.judge_again();
                    held.retake();
                    both.held();
                    judged.raise();
                }
            });
            let raised = judging.clone();
            let _next = crate::go(move || {
                raised.raise();
                super::cover::touch_window();
                super::cover::touch_window();
                both.held();
                judged.wait_on_thread();
            });
            loom::explore();
            super::cover::blocking_here(|| {
                judging.wait_on_thread();
                retaker.join().unwrap();
            });
        });
        first.join().unwrap();
    });
}

/// Fails by deadlock when a goroutine that comes back without a P is queued where no M looks.
#[test]
fn a_goroutine_that_lost_its_p_is_run() {
    Model::new().with_retaker().preemptions(1).check("return_vs_idle", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { crate::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        runtime.run(|| {
            let held = Held::current();
            // This goroutine is work for the M to which the P is handed.
            drop(crate::go(|| ()));
            // The goroutine blocks its M until the retaker is done, outside of the runtime.
            loom::thread::spawn(move || held.retake()).join().unwrap();
            super::cover::touch_window();
        });
        done();
    });
}

/// The M to which the P is handed runs a goroutine that calls the runtime. Fails by deadlock when that M loses the P to the
/// retaker, which took the P from another.
#[test]
fn a_p_that_was_retaken_is_the_next_holders() {
    Model::new().with_retaker().preemptions(1).check("retake_then_enter", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { crate::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        runtime.run(|| {
            let held = Held::current();
            let (retaken, ran) = (Flag::default(), Flag::default());
            let (over, raises) = (retaken.clone(), ran.clone());
            drop(crate::go(move || {
                over.wait_on_thread();
                super::cover::touch_window();
                raises.raise();
            }));
            let retaker = loom::thread::spawn(move || {
                held.retake();
                retaken.raise();
            });
            ran.wait_on_thread();
            retaker.join().unwrap();
            done();
        });
    });
}

#[test]
fn mutants() {
    let model = "a_p_has_one_owner_while_it_is_retaken";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::WindowNoEntryFence, "a_p_has_one_owner_where_both_sides_fence"),
            (Mutant::RetakeTakesAllForFenced, "a_p_has_one_owner_when_the_barrier_is_refused"),
            (Mutant::VisitDemands, "a_p_is_not_ceded_while_the_retaker_waits"),
            (Mutant::WindowStaysQuick, "a_p_has_one_owner_after_the_barrier_was_refused"),
            (Mutant::JudgeRelaxed, "a_p_that_changes_hands_is_judged_with_its_holder"),
            (Mutant::GiveUpRelaxed, "a_p_that_changes_hands_is_judged_with_its_holder"),
            (Mutant::RetakeGivesUpLate, "a_p_that_was_retaken_is_the_next_holders"),
            (Mutant::RetakeKeepsP, "a_goroutine_that_lost_its_p_is_run"),
            (Mutant::WindowNeverCedes, "a_goroutine_that_enters_again_and_again_loses_its_p"),
            (Mutant::RetakeForgetsTheCeded, "a_goroutine_that_enters_again_and_again_loses_its_p"),
            (Mutant::CededUnseen, "a_p_has_one_owner_while_it_is_demanded"),
            (Mutant::WindowNoEntryBarrier, model),
            (Mutant::WindowNoRetakeBarrier, model),
            (Mutant::WindowBlind, model),
            (Mutant::WindowBlind, "a_p_has_one_owner_where_it_is_demanded_by_fences"),
            (Mutant::WindowEnterBlind, model),
            (Mutant::WindowSameGeneration, model),
            (Mutant::WindowLeaveRelaxed, model),
            (Mutant::WindowLookRelaxed, model),
        ],
    );
}
