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
