//! A submission against an M that is just going idle: the work is run, and on a second M when there is a second P.
#![cfg(gmp_loom)]

mod loom_common;

use gmp::model::{Model, Mutant};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;

fn runtime(procs: usize, threads: usize) -> gmp::Runtime {
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { gmp::Runtime::builder().procs(procs).max_threads(threads).build() }.unwrap()
}

/// Fails by deadlock when the submission and the M that goes idle miss each other.
#[test]
fn work_from_a_thread_is_run_while_the_only_m_goes_idle() {
    Model::new().check("submit_vs_idle", || {
        let runtime = runtime(1, 1);
        let first = runtime.go(|| 1);
        assert_eq!(first.join().unwrap(), 1);
        // The M is on its way to sleep, somewhere.
        assert_eq!(runtime.go(|| 2).join().unwrap(), 2);
        loom::stop_exploring();
    });
}

#[test]
fn work_from_two_threads_is_run() {
    Model::new().check("two_submitters", || {
        let runtime = Arc::new(runtime(1, 1));
        let other = loom::thread::spawn({
            let runtime = Arc::clone(&runtime);
            move || assert_eq!(runtime.go(|| 1).join().unwrap(), 1)
        });
        assert_eq!(runtime.go(|| 2).join().unwrap(), 2);
        other.join().unwrap();
        loom::stop_exploring();
    });
}

/// Says once that something has happened, and lets a thread, not a goroutine, wait for it.
#[derive(Default)]
struct Flag {
    set: Mutex<bool>,
    changed: Condvar,
}

impl Flag {
    fn raise(&self) {
        *self.set.lock().unwrap() = true;
        self.changed.notify_all();
    }
    fn wait_on_thread(&self) {
        let mut set = self.set.lock().unwrap();
        while !*set {
            set = self.changed.wait(set).unwrap();
        }
    }
}

/// A missing wake rarely loses work, only parallelism. So the submitter keeps its M and its P until the submitted
/// goroutine has run: fails by deadlock when no other M comes.
#[test]
fn a_submitted_goroutine_runs_while_its_submitter_keeps_its_p() {
    Model::new().check("submit_keeps_p", || {
        let runtime = runtime(2, 2);
        runtime.run(|| {
            let flag = Arc::new(Flag::default());
            let raised = Arc::clone(&flag);
            let other = gmp::go(move || raised.raise());
            flag.wait_on_thread();
            other.join().unwrap();
        });
        loom::stop_exploring();
    });
}

/// One submission of two goroutines wakes one M. The one that it takes first keeps its M until the other has run:
/// fails by deadlock when whoever takes the first wakes nobody for the second.
#[test]
fn whoever_takes_work_and_leaves_some_wakes_the_next() {
    Model::new().preemptions(1).check("taker_wakes", || {
        let runtime = runtime(2, 2);
        let flag = Arc::new(Flag::default());
        let waits = Arc::clone(&flag);
        gmp::internals::Handle::of(&runtime).submit_two(move || waits.wait_on_thread(), move || flag.raise());
        drop(runtime);
    });
}

/// Fails by deadlock when the end of a runtime and an M that goes idle miss each other.
#[test]
fn a_runtime_ends_while_its_m_goes_idle() {
    Model::new().check("shutdown_vs_idle", || {
        let runtime = runtime(1, 1);
        drop(runtime.go(|| ()));
        drop(runtime);
    });
}

/// Fails when shutdown waits for a parked goroutine, or its joiner is not told.
#[test]
fn a_runtime_ends_with_a_parked_goroutine_whose_joiner_is_told() {
    Model::new().check("shutdown_with_parked", || {
        let runtime = runtime(1, 1);
        let parked = runtime.go(gmp::internals::park_for_ever);
        let joiner = loom::thread::spawn(move || assert!(parked.join().unwrap_err().is_shutdown()));
        runtime.shutdown(std::time::Duration::from_secs(1));
        joiner.join().unwrap();
    });
}

#[test]
fn mutants() {
    loom_common::assert_caught(&[
        (Mutant::TakerWakesNobody, "whoever_takes_work_and_leaves_some_wakes_the_next"),
        (Mutant::SubmitNoWake, "work_from_a_thread_is_run_while_the_only_m_goes_idle"),
        (Mutant::SubmitWakeFirst, "work_from_a_thread_is_run_while_the_only_m_goes_idle"),
        (Mutant::IdleNoRecheck, "work_from_a_thread_is_run_while_the_only_m_goes_idle"),
        (Mutant::SubmitNoBreak, "work_from_a_thread_is_run_while_the_only_m_goes_idle"),
    ]);
}
