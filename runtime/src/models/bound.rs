//! The CPUs of a thread: the thread has the CPUs of its P while it has a P, and its own CPUs while it runs the user's code
//! without a P.

use super::caught;
use super::cover::{Held, cpus, touch_window};
use crate::model::{Model, Mutant, done};

/// Makes a runtime whose Ps are bound to CPU 7, and whose threads begin without CPUs.
fn bound_with(procs: usize) -> crate::Runtime {
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { crate::Runtime::builder().cpu_sets([[7]]).procs(procs).max_threads(2).build() }.unwrap()
}

fn bound() -> crate::Runtime {
    bound_with(1)
}

/// The goroutine comes back, and takes another P, while the retaker is about to give the thread its own CPUs. Fails when a
/// thread has a P and not the P's CPUs.
#[test]
fn a_thread_that_has_a_p_has_its_cpus() {
    Model::new().with_retaker().check("retake_vs_bind", || {
        loom::stop_exploring();
        bound_with(2).run(|| {
            assert_eq!(cpus(), "7");
            let held = Held::current();
            loom::explore();
            let retaker = loom::thread::spawn(move || held.retake());
            // The goroutine finds its P, or comes back for a P.
            touch_window();
            retaker.join().unwrap();
            // No other retake follows.
            touch_window();
            assert_eq!(cpus(), "7");
            done();
        });
    });
}

/// Fails when a thread that has lost its P runs the user's code on the P's CPUs.
#[test]
fn a_thread_that_has_lost_its_p_has_its_own_cpus() {
    Model::new().with_retaker().preemptions(1).check("retake_vs_unbind", || {
        bound().run(|| {
            let held = Held::current();
            let taken = loom::thread::spawn(move || held.retake()).join().unwrap();
            assert_eq!(cpus(), if taken { "" } else { "7" });
            touch_window();
            assert_eq!(cpus(), "7");
            done();
        });
    });
}

/// Fails when a thread blocks, or comes back from the blocking call, on the wrong CPUs.
#[test]
fn a_thread_that_gives_its_p_away_has_its_own_cpus() {
    Model::new().preemptions(1).check("blocking_vs_bind", || {
        bound().run(|| {
            crate::blocking(|| assert_eq!(cpus(), ""));
            assert_eq!(cpus(), "7");
            done();
        });
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::UnbindLooksAtNoLease, "a_thread_that_has_a_p_has_its_cpus"),
            (Mutant::RetakeKeepsTheCpus, "a_thread_that_has_lost_its_p_has_its_own_cpus"),
            (Mutant::BlockingKeepsTheCpus, "a_thread_that_gives_its_p_away_has_its_own_cpus"),
        ],
    );
}
