//! The hand-off word: at every moment exactly one M, or retaker, owns a P.
#![cfg(gmp_loom)]

mod loom_common;

use gmp::internals::Held;
use gmp::model::{Model, Mutant};

/// A goroutine enters and leaves the runtime while a retaker judges its M to be away. Whoever owns the P touches
/// its ghost: fails by a causality violation when two do and nothing orders them, by deadlock when the P is lost.
#[test]
fn a_p_has_one_owner_while_it_is_retaken() {
    Model::new().check("retake_vs_enter", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        let retaker = runtime.run(|| {
            let held = Held::current();
            let retaker = loom::thread::spawn(move || held.retake());
            // Each of these enters, and finds its P or comes back for one.
            gmp::internals::touch_window();
            gmp::internals::touch_window();
            retaker
        });
        retaker.join().unwrap();
        loom::stop_exploring();
    });
}

/// The retaker judges the P while nobody has it, and an M acquires it meanwhile: the request comes too late.
#[test]
fn a_p_judged_idle_is_not_taken_from_its_next_owner() {
    Model::new().preemptions(1).check("retake_vs_acquire", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        let mut held = runtime.run(Held::current);
        let retaker = loom::thread::spawn(move || {
            held.judge_again();
            held.retake()
        });
        runtime.run(|| {
            gmp::internals::touch_window();
            gmp::internals::touch_window();
        });
        retaker.join().unwrap();
        loom::stop_exploring();
    });
}

/// Fails by deadlock when a goroutine that comes back without a P is queued where nobody looks.
#[test]
fn a_goroutine_that_lost_its_p_is_run() {
    Model::new().preemptions(1).check("return_vs_idle", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        runtime.run(|| {
            let held = Held::current();
            // Work for the M that the P is handed to.
            drop(gmp::go(|| ()));
            // The goroutine waits for the retaker on its M, outside of the runtime.
            loom::thread::spawn(move || held.retake()).join().unwrap();
            gmp::internals::touch_window();
        });
        loom::stop_exploring();
    });
}

#[test]
fn mutants() {
    let model = "a_p_has_one_owner_while_it_is_retaken";
    loom_common::assert_caught(&[
        (Mutant::HandoffNoLightBarrier, model),
        (Mutant::HandoffNoHeavyBarrier, model),
        (Mutant::HandoffBlind, model),
        (Mutant::HandoffEnterBlind, model),
        (Mutant::HandoffSameGeneration, model),
        (Mutant::HandoffLeaveRelaxed, model),
        (Mutant::HandoffLookRelaxed, model),
    ]);
}
