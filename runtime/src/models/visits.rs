//! Visits: an M is woken for the goroutine that a visit puts off.

use super::caught;
use super::cover::Handle;
use crate::model::{Flag, LONG, Model, Mutant, at_rest, done, pass};
use crate::time::after_func;

/// A timer's goroutine, alone in the ring, was to be run at once, and a visit brings another before it, which waits for it
/// on its M. Fails by deadlock when no M is woken.
#[test]
fn one_that_a_visit_puts_off_is_run_by_another_m() {
    Model::new().preemptions(1).check("visit_before_found", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let called = ran.clone();
        let first = runtime.go(move || {
            handle.await_poller();
            let (calls, waits) = (called.clone(), called);
            let _timer = after_func(LONG, move || calls.raise());
            handle.await_poller();
            loom::explore();
            handle.have_a_visit_come();
            pass(LONG);
            handle.queue_globally_in_silence([handle.make(move || waits.wait_on_thread())]);
        });
        ran.wait_on_thread();
        done();
        first.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[(Mutant::TurnWakesNobody, "one_that_a_visit_puts_off_is_run_by_another_m")],
    );
}
