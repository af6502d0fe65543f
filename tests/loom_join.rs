//! Join: whoever waits for a goroutine's end hears of it, and finds its value.
#![cfg(gmp_loom)]

mod loom_common;

use gmp::model::{Model, Mutant, at_rest, done, runtime, together_with_us};

/// Fails by deadlock when the end comes between the joiner's look and its place as the joiner.
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
    // Two Ms, of which one has to be woken: more preemptions take a minute.
    Model::new().preemptions(1).check("join_from_goroutine", || {
        let runtime = at_rest::<2>();
        assert_eq!(runtime.run(|| gmp::go(|| 1).join().unwrap()), 1);
        done();
    });
}

/// The handle goes while the goroutine ends: the value is dropped once, by one of the two, and the G goes back.
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

/// A handle goes while its goroutine ends, and the next goroutine of the same M makes a third one, which may get the
/// G. Only the bits of its life order what the handle's owner did against that. Fails by a causality violation.
#[test]
fn a_handle_that_goes_at_the_end_leaves_the_g_alone() {
    Model::new().check("drop_vs_reuse", || {
        let runtime = runtime(1, 1);
        let next = runtime.go(|| {
            // The other one first.
            gmp::yield_now();
            drop(gmp::go(|| ()));
            done();
        });
        let [first] = together_with_us(&runtime, [Box::new(|| ())]);
        drop(first);
        next.join().unwrap();
    });
}

/// The other way round: the handle's owner is the one who makes the next.
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

#[test]
fn mutants() {
    loom_common::assert_caught(&[
        (Mutant::JoinNoWake, "a_thread_hears_of_the_end"),
        (Mutant::JoinNoRecheck, "a_thread_hears_of_the_end"),
        (Mutant::OutcomeRelaxed, "a_handle_that_goes_at_the_end_leaves_the_g_alone"),
        (Mutant::HandleRelaxed, "a_handle_that_goes_at_the_end_leaves_the_g_alone"),
        (Mutant::HandleGoesFirst, "a_handle_that_goes_at_the_end_leaves_the_g_alone"),
        (Mutant::HandleLooksRelaxed, "a_handle_that_goes_at_the_end_leaves_the_g_alone"),
        (Mutant::LiveRelaxed, "a_handle_that_goes_at_the_end_leaves_the_g_alone"),
    ]);
}
