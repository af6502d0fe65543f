//! Timers that outlive their runtime: all are called, on a few threads, in their order; and the thread that ends the runtime
//! starts none of these.

use crate::timers::{HOUR, MS, alone, threads_called};
use common::seccomp::{refuse_here, refuse_while};
use common::{PROCS, child, runtime, until, watched};
use gmp::Runtime;
use gmp::chan::bounded;
use gmp::context::{Context, ContextError};
use gmp::sync::Semaphore;
use gmp::time::{Timer, after_func, timeout};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

/// The most callback threads at a time.
const MOST: usize = 32;

/// Makes each thread of the runtime compute until the flag is set.
fn compute(rt: &Runtime, procs: usize) -> Arc<AtomicBool> {
    let (begun, over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    for _ in 0..procs {
        let (begins, is_over) = (Arc::clone(&begun), Arc::clone(&over));
        rt.go(move || {
            begins.fetch_add(1, SeqCst);
            while !is_over.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
    }
    until(|| begun.load(SeqCst) == procs);
    over
}

/// The thread that ends the runtime may start no thread here. Fails when that thread asks for one, is refused it, and makes
/// the calls itself: it would go beyond its limit by the start of a thread for each call.
#[test]
fn the_ender_starts_no_thread_for_what_did_not_run() {
    const CALLS: usize = 100;
    let _alone = alone();
    for procs in PROCS {
        watched(procs, || {
            // Keeps the timer thread.
            let keeps = after_func(HOUR, || ());
            let callers = Arc::new(Mutex::new(Vec::new()));
            let calls = || {
                let callers = Arc::clone(&callers);
                move || callers.lock().unwrap().push(thread::current().id())
            };
            // SAFETY: no goroutine of this test keeps a thread-bound value across a blocking call.
            let rt = unsafe { Runtime::builder().procs(procs).max_threads(procs).build() }.unwrap();
            let (context, cancel) = Context::background().with_cancel();
            let _call = rt.run(|| context.after_func(calls()));
            let over = compute(&rt, procs);
            // From here on each call gets a goroutine that does not run.
            for _ in 0..CALLS {
                rt.handle().after_func(MS, calls()).unwrap();
            }
            cancel.cancel();
            until(|| rt.num_goroutines() == procs + CALLS + 1);
            let ender: ThreadId = thread::scope(|scope| {
                let ends = scope.spawn(move || {
                    refuse_here(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
                    assert_eq!(rt.shutdown(20 * MS).goroutines_left(), procs);
                    thread::current().id()
                });
                ends.join().unwrap()
            });
            over.store(true, SeqCst);
            until(|| callers.lock().unwrap().len() == CALLS + 1);
            assert!(!callers.lock().unwrap().contains(&ender), "called by the thread that ended the runtime");
            assert!(keeps.stop());
        });
    }
}

/// Fails when each refusal is reported, when none is after a thread was started in between, or when a call is lost.
#[test]
fn refused_callback_threads_are_told_once() {
    const NAME: &str = "refused_callback_threads_are_told_once";
    const CALLS: usize = 50;
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(said.matches("cannot start a thread for a timer's callback").count(), 2, "{said}");
        return;
    }
    let refuses = Arc::new(AtomicBool::new(false));
    let is_refused = Arc::clone(&refuses);
    refuse_while([libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, move || is_refused.load(SeqCst));
    watched(0, || {
        // Keeps the timer thread.
        let keeps = after_func(HOUR, || ());
        let called = Arc::new(AtomicUsize::new(0));
        let call = |count| {
            called.store(0, SeqCst);
            for _ in 0..count {
                let called = Arc::clone(&called);
                drop(after_func(MS, move || {
                    called.fetch_add(1, SeqCst);
                }));
            }
            until(|| called.load(SeqCst) == count && threads_called("gmp-callback") == 0);
        };
        for _ in 0..2 {
            refuses.store(true, SeqCst);
            call(CALLS);
            refuses.store(false, SeqCst);
            call(1);
        }
        assert!(keeps.stop());
    });
}

/// Fails when there are more threads than allowed, when a call is lost, or when a call comes before an earlier one.
#[test]
fn a_few_threads_call_what_outlives_a_runtime_in_its_order() {
    const CALLS: usize = 3 * MOST;
    let _alone = alone();
    for procs in PROCS {
        watched(procs, || {
            let (goes_on, begun) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
            let rt = runtime(procs);
            let call = |n| {
                let (waits, begins) = (Arc::clone(&goes_on), Arc::clone(&begun));
                let call = move || {
                    begins.lock().unwrap().push(n);
                    waits.acquire(1);
                };
                // All timers stand in one heap.
                rt.handle().after_func(HOUR, call).unwrap()
            };
            let timers: Vec<Timer> = (0..CALLS).map(call).collect();
            drop(rt);
            for (n, timer) in (0..).zip(&timers) {
                assert!(timer.reset(MS + n * MS / 20));
            }
            for ended in 0..=CALLS - MOST {
                until(|| begun.lock().unwrap().len() >= MOST + ended);
                assert_eq!(begun.lock().unwrap().len(), MOST + ended, "more threads than there may be");
                goes_on.add_permits(1);
            }
            goes_on.add_permits(MOST);
            // The first callbacks began side by side.
            let begun = begun.lock().unwrap();
            assert!(begun[MOST..].is_sorted(), "{begun:?}");
            until(|| threads_called("gmp-callback") == 0);
        });
    }
}

/// All callback threads wait, each under a limit. Fails by a hang when the ends of the limits wait for these threads.
#[test]
fn a_limit_ends_the_wait_of_each_callback_thread() {
    let _alone = alone();
    let (ended, (sender, receiver)) = (Arc::new(AtomicUsize::new(0)), bounded::<()>(0));
    let waits = |_| {
        let (ended, receiver) = (Arc::clone(&ended), receiver.clone());
        after_func(MS, move || {
            assert_eq!(timeout(20 * MS, || receiver.recv()), Err(ContextError::DeadlineExceeded));
            ended.fetch_add(1, SeqCst);
        })
    };
    let _timers: Vec<_> = (0..2 * MOST).map(waits).collect();
    until(|| ended.load(SeqCst) == 2 * MOST);
    drop(sender);
}

/// No thread sets another timer. Fails by a hang when a deadline that was set while the system refused the timer thread waits
/// for the next timer.
#[test]
fn a_timer_whose_thread_was_refused_is_served_once_there_may_be_one() {
    const NAME: &str = "a_timer_whose_thread_was_refused_is_served_once_there_may_be_one";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(said.matches("cannot start the timers' thread").count(), 1, "{said}");
        return;
    }
    let refuses = Arc::new(AtomicBool::new(false));
    let is_refused = Arc::clone(&refuses);
    refuse_while([libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, move || is_refused.load(SeqCst));
    watched(1, || {
        let rt = runtime(1);
        rt.run(|| ());
        refuses.store(true, SeqCst);
        let (context, _cancel) = Context::background().with_timeout(MS);
        refuses.store(false, SeqCst);
        assert!(context.done().recv().is_err());
        assert_eq!(context.err(), Some(ContextError::DeadlineExceeded));
    });
}
