//! A busy P helps another: a goroutine that is queued behind one that keeps its M is run, and no goroutine is lost on the way.
//!
//! In these models an M looks at other Ps before each goroutine, and helps whatever the ages of their queues: the tests beside
//! the code check how ages are computed.

use super::caught;
use super::submit_vs_idle::two_of_three_are_taken;
use crate::model::{Flag, Model, Mutant, done, runtime, together};
use crate::{go, yield_now};

/// One goroutine keeps its M until another, which is queued on its P, has run; the other M always has work of its own.
/// Fails by deadlock when that M looks at other Ps only once it has no work.
#[test]
fn a_goroutine_behind_one_that_does_not_yield_is_run() {
    Model::new().with_helpers().check("help_behind_a_hog", || {
        let runtime = runtime(2, 2);
        let (queued, ran) = (Flag::default(), Flag::default());
        let (there, waits, raises) = (queued.clone(), ran.clone(), ran.clone());
        let [hog, busy] = together(
            &runtime,
            [
                Box::new(move || {
                    drop(go(move || raises.raise()));
                    queued.raise();
                    waits.wait_on_thread();
                }),
                Box::new(move || {
                    there.wait_on_thread();
                    // This goroutine is the other M's own work. It comes back once that M has had its chance to look.
                    yield_now();
                    ran.wait_on_thread();
                    done();
                }),
            ],
        );
        busy.join().unwrap();
        hog.join().unwrap();
    });
}

/// A helper takes two goroutines of three and runs the first, which keeps its M until the second has run. Meanwhile the owner
/// runs the third, finds no other goroutine, as the helper has the second in hand, and gives up. Fails by deadlock when the
/// helper wakes no M for the goroutine that it has put into its own queue; and by a status that is not Runnable when owner and
/// helper take the same goroutine.
#[test]
fn what_a_helper_queues_is_run_by_an_m_that_gave_up() {
    let check = || two_of_three_are_taken(yield_now);
    Model::new().with_helpers().preemptions(1).check("help_vs_idle", check);
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::HelpsNobody, "a_goroutine_behind_one_that_does_not_yield_is_run"),
            (Mutant::HelpWakesNobody, "what_a_helper_queues_is_run_by_an_m_that_gave_up"),
        ],
    );
}
