//! A goroutine that is about to block while others wait for its P goes on on an M without a P: each call is made, whatever the
//! other Ms do meanwhile, and at the limit of threads, too.

use super::caught;
use crate::model::{Flag, Model, Mutant, done, refuse_threads, runtime};

/// A goroutine blocks, where there may be a second thread until another goroutine has run that stands in the queue of the same
/// P. Fails by deadlock when the call is left to an M that does not come.
fn blocks_beside_another(max_threads: usize) {
    let runtime = runtime(1, max_threads);
    let blocks = runtime.go(move || {
        let ran = Flag::default();
        let raised = ran.clone();
        drop(crate::go(move || raised.raise()));
        loom::explore();
        crate::blocking(|| {
            if max_threads > 1 {
                ran.wait_on_thread()
            }
        });
        done();
    });
    blocks.join().unwrap();
}

#[test]
fn a_call_is_made_beside_the_goroutine_for_which_it_waits() {
    Model::new().preemptions(2).check("call_beside", || blocks_beside_another(3));
}

/// With one thread: the call blocks that thread, as ever.
#[test]
fn a_call_at_the_limit_of_threads_is_made() {
    Model::new().check("call_at_the_limit", || blocks_beside_another(1));
}

/// The thread for the caller is refused. The caller stands in the global queue then, and blocks the only M, which is why its
/// call does not wait here.
#[test]
fn a_call_for_which_the_thread_is_refused_is_made() {
    Model::new().preemptions(2).check("call_refused", || {
        let runtime = runtime(1, 3);
        let blocks = runtime.go(move || {
            drop(crate::go(|| ()));
            refuse_threads();
            loom::explore();
            crate::blocking(|| ());
            done();
        });
        blocks.join().unwrap();
    });
}

/// Two goroutines block, one until the other's call is made; one M was sent for both. Fails by deadlock when that M takes the
/// first and sends no other, or is counted on when it has looked.
#[test]
fn the_m_that_takes_a_caller_sends_one_for_the_next() {
    Model::new().preemptions(2).check("two_calls", || {
        let runtime = runtime(1, 4);
        let made = Flag::default();
        let spawner = runtime.go(move || {
            let raised = made.clone();
            // Stands behind the next one, which so has others beside it, too.
            drop(crate::go(|| ()));
            drop(crate::go(move || crate::blocking(|| raised.raise())));
            loom::explore();
            crate::blocking(|| made.wait_on_thread());
            done();
        });
        spawner.join().unwrap();
    });
}

#[test]
fn mutants() {
    const BESIDE: &str = "a_call_is_made_beside_the_goroutine_for_which_it_waits";
    const TWO: &str = "the_m_that_takes_a_caller_sends_one_for_the_next";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::CallerWakesNobody, BESIDE),
            (Mutant::CallerQueuedAtTheLimit, "a_call_at_the_limit_of_threads_is_made"),
            (Mutant::CallersStay, "a_call_for_which_the_thread_is_refused_is_made"),
            (Mutant::CallerLeavesTheRest, TWO),
            (Mutant::CallerCountedOnLate, TWO),
        ],
    );
}
