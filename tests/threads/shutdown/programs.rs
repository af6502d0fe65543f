//! Whole programs end.

use super::{Counts, HOUR, ends_clean};
use common::child;
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::context::Context;
use gmp::sync::ErrGroup;
use gmp::time::sleep;
use gmp::{Runtime, chan, go};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::time::{Duration, Instant};

/// Fails when a drop is missing after `run` has returned.
#[test]
fn what_main_leaves_is_unwound_when_run_returns() {
    for _ in 0..20 {
        watched(0, || {
            let counts = Counts::default();
            let inside = counts.clone();
            // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
            unsafe {
                gmp::run(move || {
                    let (tx, rx) = chan::unbounded::<u32>();
                    for _ in 0..100 {
                        let (counts, rx) = (inside.clone(), rx.clone());
                        drop(go(move || {
                            let _own = counts.begin();
                            // The only sender is forgotten, so the channel never closes, and only the unwinding ends this wait.
                            rx.recv().is_ok()
                        }));
                    }
                    until(|| inside.begun.load(SeqCst) == 100);
                    std::mem::forget(tx);
                })
            }
            counts.all_unwound(100);
        });
    }
}

/// A worker unwraps the messages that it receives. Fails by its panic when the goroutine that holds the sender is unwound
/// first.
#[test]
fn a_worker_does_not_see_the_unwinding_of_its_partner() {
    everywhere(|rt| {
        let counts = Counts::default();
        let mut workers = Vec::new();
        for _ in 0..20 {
            let (tx, rx) = chan::unbounded::<u32>();
            let holds = counts.go(&rt, move || {
                sleep(HOUR);
                drop(tx);
            });
            workers.push(counts.go(&rt, move || rx.recv().unwrap()));
            workers.push(counts.go(&rt, move || holds.join().unwrap()));
        }
        counts.all_begun(&rt, 60);
        ends_clean(rt);
        counts.all_unwound(60);
        assert!(workers.into_iter().all(|worker| worker.join().unwrap_err().is_shutdown()));
    });
}

/// Starts a goroutine of a group, which parks for good.
fn task(counts: &Counts, group: &ErrGroup<()>) {
    let counts = counts.clone();
    group.go(move || {
        let _probe = counts.begin();
        sleep(HOUR);
        Ok(())
    });
}

/// The goroutine that waits for a group is awake while the goroutine of the group is unwound. Fails by the panic of the wait.
#[test]
fn a_group_that_ends_with_the_runtime_of_its_waiter_is_no_panic() {
    everywhere(|rt| {
        let counts = Counts::default();
        let waits = counts.go(&rt, {
            let counts = counts.clone();
            move || {
                let group = ErrGroup::new();
                task(&counts, &group);
                gmp::blocking(|| until(|| gmp::num_goroutines() == 1));
                group.wait()
            }
        });
        until(|| counts.begun.load(SeqCst) == 2);
        ends_clean(rt);
        counts.all_unwound(2);
        assert!(waits.join().unwrap_err().is_shutdown());
    });
}

/// The same in a destructor. Fails by the end of the process.
#[test]
fn a_destructor_may_wait_for_a_group_that_ends_too() {
    struct Waits(ErrGroup<()>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(self.0.wait().is_ok());
        }
    }
    everywhere(|rt| {
        let counts = Counts::default();
        let _waits = counts.go(&rt, {
            let counts = counts.clone();
            move || {
                let waits = Waits(ErrGroup::new());
                task(&counts, &waits.0);
                sleep(HOUR);
            }
        });
        counts.all_begun(&rt, 2);
        ends_clean(rt);
        counts.all_unwound(2);
    });
}

/// A goroutine runs main of another runtime, which returns when this runtime has begun to end. Fails when that goroutine is
/// left behind at once.
#[test]
fn main_of_another_runtime_is_waited_for() {
    everywhere(|rt| {
        let (counts, other) = (Counts::default(), runtime(rt.procs()));
        let (opens, gate) = chan::bounded::<()>(0);
        let returned = Arc::new(AtomicBool::new(false));
        let _unwound = counts.go(&rt, move || {
            sleep(HOUR);
            drop(opens);
        });
        let (theirs, returns) = (counts.clone(), Arc::clone(&returned));
        let runs = rt.go(move || {
            let _probe = theirs.begin();
            other.run(|| {
                assert!(gate.recv().is_err());
                // Long enough for a sweep that finds no other goroutine.
                sleep(Duration::from_millis(20));
            });
            returns.store(true, SeqCst);
        });
        counts.all_begun(&rt, 2);
        ends_clean(rt);
        assert!(returned.load(SeqCst));
        counts.all_unwound(2);
        drop(runs);
    });
}

/// Fails when a goroutine is left behind, with its stack.
#[test]
fn many_are_unwound_and_their_stacks_come_back() {
    watched(2, || {
        for _ in 0..3 {
            let rt = runtime(2);
            let counts = Counts::default();
            let (tx, rx) = chan::unbounded::<u32>();
            for _ in 0..5_000 {
                let rx = rx.clone();
                let _waits = counts.go(&rt, move || rx.recv());
            }
            until(|| counts.begun.load(SeqCst) == 5_000);
            ends_clean(rt);
            drop(tx);
            counts.all_unwound(5_000);
        }
    });
}

/// A goroutine ends its own runtime. Fails by a deadlock, or when a goroutine is not unwound.
#[test]
fn a_runtime_ended_from_inside_is_unwound() {
    for procs in PROCS {
        watched(procs, || {
            let rt = Arc::new(runtime(procs));
            let counts = Counts::default();
            let sleeps = counts.go(&rt, || sleep(HOUR));
            counts.all_begun(&rt, 1);
            let own = Arc::clone(&rt);
            let ends = counts.go(&rt, {
                let counts = counts.clone();
                move || {
                    until(|| Arc::strong_count(&own) == 1);
                    drop(own);
                    let _late = counts.begin();
                    sleep(HOUR);
                }
            });
            drop(rt);
            assert!(sleeps.join().unwrap_err().is_shutdown());
            assert!(ends.join().unwrap_err().is_shutdown());
            counts.all_unwound(3);
        });
    }
}

/// Fails when a shutdown waits for the goroutine on which it was called, or a report leaves that goroutine out.
#[test]
fn a_shutdown_from_inside_waits_for_none_and_reports_what_there_is() {
    for procs in PROCS {
        watched(procs, || {
            let (rt, counts) = (runtime(procs), Counts::default());
            let (gives, takes) = chan::bounded::<Runtime>(1);
            let (reports, reported) = mpsc::channel();
            let sleeps = counts.go(&rt, || sleep(HOUR));
            let ends = counts.go(&rt, move || {
                reports.send(takes.recv().unwrap().shutdown(HOUR)).unwrap();
                sleep(HOUR);
            });
            counts.all_begun(&rt, 2);
            gives.send(rt).unwrap();
            let report = reported.recv().unwrap();
            assert!(report.goroutines_left() >= 1 && report.threads_left() >= 1, "{report:?}");
            assert!(sleeps.join().unwrap_err().is_shutdown());
            assert!(ends.join().unwrap_err().is_shutdown());
            counts.all_unwound(2);
        });
    }
}

/// The goroutines of two runtimes wait for each other. Fails by a hang, in either order of the ends.
#[test]
fn two_runtimes_whose_goroutines_wait_for_each_other_end() {
    for first in 0..2 {
        everywhere(|rt| {
            let other = runtime(rt.procs());
            let counts = Counts::default();
            let (tx, rx) = chan::bounded::<u32>(0);
            let (back, from_back) = chan::bounded::<u32>(0);
            let _one = counts.go(&rt, move || {
                let _got = rx.recv();
                back.send(1)
            });
            let two = counts.go(&other, move || {
                let _got = from_back.recv();
                tx.send(1)
            });
            counts.all_begun(&rt, 2);
            counts.all_begun(&other, 2);
            let joins = counts.go(&rt, move || two.join());
            counts.all_begun(&rt, 3);
            let mut both = [rt, other];
            both.rotate_left(first);
            both.into_iter().for_each(ends_clean);
            drop(joins);
            // A goroutine that hears of the other's end may have gone on.
            assert_eq!(counts.dropped.load(SeqCst), 3);
        });
    }
}

/// Fails when a goroutine is unwound by neither, or goes on after both.
#[test]
fn a_context_and_the_end_of_the_runtime_come_together() {
    everywhere(|rt| {
        let counts = Counts::default();
        let (ctx, cancel) = Context::background().with_cancel();
        for _ in 0..10 {
            let ctx = ctx.clone();
            let _runs = counts.go(&rt, move || {
                let _cancelled = ctx.run(|| sleep(HOUR));
                sleep(HOUR);
            });
        }
        counts.all_begun(&rt, 10);
        let cancels = std::thread::spawn(move || cancel.cancel());
        ends_clean(rt);
        cancels.join().unwrap();
        counts.all_unwound(10);
    });
}

/// Each park resumes on another thread. Fails by anything that breaks.
#[test]
fn goroutines_that_wander_are_unwound() {
    const TEST: &str = "goroutines_that_wander_are_unwound";
    if !child::is_child() {
        child::passes(TEST, &[("GMPDEBUG", "migrate=1")]);
        return;
    }
    everywhere(|rt| {
        let counts = Counts::default();
        for n in 0..50 {
            let _waits = counts.go(&rt, move || {
                sleep(Duration::from_micros(n));
                sleep(HOUR)
            });
        }
        counts.all_begun(&rt, 50);
        let begun = Instant::now();
        ends_clean(rt);
        assert!(begun.elapsed() < super::SHUTDOWN_LIMIT);
        counts.all_unwound(50);
    });
}

/// By a key of the C library, C code keeps data of a thread. The destructor of a key runs after those of thread-locals. Fails
/// by SIGABRT when the end asks for something that the thread no longer has.
#[test]
fn a_runtime_may_end_when_the_thread_locals_are_gone() {
    static RUNTIME: Mutex<Option<Runtime>> = Mutex::new(None);
    static KEY: OnceLock<libc::pthread_key_t> = OnceLock::new();
    /// The value for the second round of destructors: std's own key has had its turn by then.
    const SECOND: usize = 2;
    fn set(value: usize) {
        let key = *KEY.get().unwrap();
        // SAFETY: the key is there, and the value is no pointer.
        let refused = unsafe { libc::pthread_setspecific(key, ptr::without_provenance(value)) };
        assert_eq!(refused, 0);
    }
    extern "C" fn end(value: *mut libc::c_void) {
        if value.addr() < SECOND {
            return set(SECOND);
        }
        let runtime = RUNTIME.lock().unwrap().take().unwrap();
        assert!(runtime.shutdown(Duration::from_secs(20)).is_clean());
    }
    const NAME: &str = "a_runtime_may_end_when_the_thread_locals_are_gone";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    let rt = runtime(2);
    rt.go(|| sleep(HOUR));
    *RUNTIME.lock().unwrap() = Some(rt);
    let thread = std::thread::spawn(|| {
        let _this = std::thread::current();
        let mut key = 0;
        // SAFETY: room for the key.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(end)) }, 0);
        KEY.set(key).unwrap();
        set(1);
    });
    thread.join().unwrap();
    assert!(RUNTIME.lock().unwrap().is_none(), "it has ended");
}
