//! The poller: a wait in it is broken by new work and by an earlier timer, and a break that another has swallowed
//! is passed on.
#![cfg(gmp_loom)]

mod loom_common;

use gmp::internals::{Handle, Socket};
use gmp::model::{LONG, Model, Mutant};
use gmp::time::sleep;
use gmp_netpoll::Readiness;
use loom::sync::Mutex;
use std::sync::Arc;
use std::time::Duration;

fn runtime(procs: usize, threads: usize) -> gmp::Runtime {
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { gmp::Runtime::builder().procs(procs).max_threads(threads).build() }.unwrap()
}

/// One M waits in the poller until a time far away when another goroutine begins a short sleep. The clock moves
/// only with the poller, so fails by deadlock when the poller sleeps past it.
#[test]
fn an_earlier_timer_breaks_the_wait() {
    Model::new().check("timer_vs_poll", || {
        let runtime = runtime(2, 2);
        drop(runtime.go(|| sleep(4 * LONG)));
        runtime.go(|| sleep(Duration::from_millis(1))).join().unwrap();
        loom::stop_exploring();
    });
}

/// A goroutine's M looks at the poller, as a busy M does now and then, while the other M blocks in it and a
/// submission breaks its wait. Fails by deadlock when the look keeps the break to itself: the submitter's M is
/// occupied until the submitted goroutine has run.
#[test]
fn a_swallowed_break_is_passed_on() {
    Model::new().check("swallowed_break", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        runtime.run(move || {
            let done = Arc::new((Mutex::new(false), loom::sync::Condvar::new()));
            let raised = Arc::clone(&done);
            let other = gmp::go(move || {
                *raised.0.lock().unwrap() = true;
                raised.1.notify_all();
            });
            handle.look_at_poller();
            let mut set = done.0.lock().unwrap();
            while !*set {
                set = done.1.wait(set).unwrap();
            }
            drop(set);
            other.join().unwrap();
        });
        loom::stop_exploring();
    });
}

/// An event comes while the poller's M has no P to come back to: every P is taken by then. Fails by deadlock when
/// what it found is dropped.
#[test]
fn what_the_poller_found_is_kept_when_no_p_is_idle() {
    Model::new().check("poll_without_p", || {
        let runtime = runtime(1, 2);
        let reader = runtime.go(|| {
            let mut calls = 0;
            let got = Socket::new().read(8, || {
                calls += 1;
                if calls == 1 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(1) }
            });
            assert_eq!(got.unwrap(), 1);
        });
        Handle::of(&runtime).post(Readiness::READABLE);
        let busy = runtime.go(gmp::yield_now);
        reader.join().unwrap();
        busy.join().unwrap();
        loom::stop_exploring();
    });
}

#[test]
fn mutants() {
    loom_common::assert_caught(&[
        (Mutant::TimerNoBreak, "an_earlier_timer_breaks_the_wait"),
        (Mutant::SwallowedBreakKept, "a_swallowed_break_is_passed_on"),
        (Mutant::PollResultsDropped, "what_the_poller_found_is_kept_when_no_p_is_idle"),
    ]);
}
