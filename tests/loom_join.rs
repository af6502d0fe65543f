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

#[test]
fn mutants() {
    loom_common::assert_caught(&[
        (Mutant::JoinNoWake, "a_thread_hears_of_the_end"),
        (Mutant::JoinNoRecheck, "a_thread_hears_of_the_end"),
    ]);
}
