//! Join: whoever waits for a goroutine's end hears of it, and finds its value.
#![cfg(gmp_loom)]

mod loom_common;

use gmp::model::{Model, Mutant};

/// Fails by deadlock when the end comes between the joiner's look and its place as the joiner.
#[test]
fn a_thread_hears_of_the_end() {
    Model::new().check("join_from_thread", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(1).max_threads(1).build() }.unwrap();
        let one = runtime.go(|| 1);
        assert_eq!(one.join().unwrap(), 1);
        loom::stop_exploring();
    });
}

#[test]
fn a_goroutine_hears_of_the_end() {
    Model::new().check("join_from_goroutine", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(2).max_threads(2).build() }.unwrap();
        assert_eq!(runtime.run(|| gmp::go(|| 1).join().unwrap()), 1);
        loom::stop_exploring();
    });
}

/// The handle goes while the goroutine ends: the value is dropped once, by one of the two, and the G goes back.
#[test]
fn a_handle_dropped_at_the_end_leaves_the_value_to_one_party() {
    use loom::sync::Arc;
    Model::new().check("detach_vs_end", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(1).max_threads(1).build() }.unwrap();
        let value = Arc::new(());
        let inside = Arc::clone(&value);
        drop(runtime.go(move || inside));
        assert!(runtime.shutdown_timeout(std::time::Duration::from_secs(1)));
        assert_eq!(Arc::strong_count(&value), 1);
    });
}

/// The handle goes on one thread while the goroutine ends, and the G may at once be another goroutine's, made by a
/// second thread. Only the bits of its life order the three. Fails by a causality violation.
#[test]
fn a_handle_that_goes_at_the_end_leaves_the_g_alone() {
    Model::new().check("drop_vs_reuse", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { gmp::Runtime::builder().procs(1).max_threads(1).build() }.unwrap();
        let first = runtime.go(|| 1);
        let other = loom::thread::spawn(move || drop(first));
        // One M and one queue: the first has ended when this one has, and the next may get its G.
        runtime.run(|| ());
        assert_eq!(runtime.go(|| 2).join().unwrap(), 2);
        other.join().unwrap();
        loom::stop_exploring();
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
        (Mutant::LiveRelaxed, "a_handle_that_goes_at_the_end_leaves_the_g_alone"),
    ]);
}
