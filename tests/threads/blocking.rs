//! `gmp::blocking`: while a goroutine blocks its thread, other goroutines run; after the call the goroutine takes a P again.

use common::{PROCS, everywhere, until, watched};
use gmp::sync::Event;
use gmp::time::sleep;
use gmp::{Runtime, blocking, go, lock_os_thread, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// Each call blocks until another goroutine has run. Fails by a hang when that goroutine gets no P.
#[test]
fn others_run_while_every_p_would_be_blocked() {
    everywhere(|rt| {
        let procs = rt.procs();
        rt.run(|| {
            let (told, tells): (Vec<_>, Vec<_>) = (0..procs).map(|_| channel()).unzip();
            let blocked: Vec<_> =
                tells.into_iter().map(|end| go(move || blocking(|| end.recv().unwrap()))).collect();
            yield_now();
            let teller = go(move || told.iter().enumerate().for_each(|(n, end)| end.send(n).unwrap()));
            let got: Vec<_> = blocked.into_iter().map(|goroutine| goroutine.join().unwrap()).collect();
            teller.join().unwrap();
            assert_eq!(got, Vec::from_iter(0..procs));
        });
    });
}

/// Fails by time when a sleeping thread keeps its P, so that the sleeps come one after the other.
#[test]
fn a_hundred_blocking_sleeps_take_little_longer_than_one() {
    for procs in PROCS {
        watched(procs, || {
            let start = Instant::now();
            common::runtime(procs).run(|| {
                let sleepers: Vec<_> =
                    (0..100).map(|_| go(|| blocking(|| std::thread::sleep(50 * MS)))).collect();
                sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
            });
            let took = start.elapsed();
            assert!(took < 2500 * MS, "one after the other they take 5 s; these took {took:?}");
        });
    }
}

/// Without a P, calls that never park work as on a plain thread: they start goroutines and wake waiters.
#[test]
fn calls_that_do_not_park_need_no_p() {
    everywhere(|rt| {
        rt.run(|| {
            let (event, count) = (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)));
            let waiter = go({
                let event = Arc::clone(&event);
                move || event.wait()
            });
            yield_now();
            let made = blocking(|| {
                event.notify_one();
                let made: Vec<_> = (0..300)
                    .map(|_| {
                        let count = Arc::clone(&count);
                        go(move || count.fetch_add(1, SeqCst))
                    })
                    .collect();
                // The goroutines run although this thread is still in the call.
                until(|| count.load(SeqCst) == 300);
                made
            });
            waiter.join().unwrap();
            assert_eq!(made.into_iter().map(|goroutine| goroutine.join().unwrap()).max(), Some(299));
        });
    });
}

/// A call that parks inside the closure takes a P first, and the rest of the closure keeps that P.
#[test]
fn a_blocking_call_may_park() {
    everywhere(|rt| {
        let sum = rt.run(|| {
            let adders: Vec<_> = (1..=50_u32)
                .map(|n| {
                    go(move || {
                        blocking(|| {
                            sleep(MS);
                            let half = go(move || n).join().unwrap();
                            yield_now();
                            half + blocking(|| n)
                        })
                    })
                })
                .collect();
            adders.into_iter().map(|adder| adder.join().unwrap()).sum::<u32>()
        });
        assert_eq!(sum, 2 * 1275);
    });
}

#[test]
fn on_a_plain_thread_it_calls_the_closure() {
    assert_eq!(blocking(|| blocking(|| 7)), 7);
}

/// Fails by a hang, or a wrong payload, when the goroutine stays without a P after a panic.
#[test]
fn a_panic_inside_is_the_goroutines() {
    everywhere(|rt| {
        rt.run(|| {
            let caught =
                catch_unwind(AssertUnwindSafe(|| blocking(|| std::panic::resume_unwind(Box::new("inside")))));
            assert_eq!(caught.unwrap_err().downcast_ref(), Some(&"inside"));
            yield_now();
            let uncaught = go(|| blocking(|| -> () { std::panic::resume_unwind(Box::new("uncaught")) }));
            assert_eq!(uncaught.join().unwrap_err().into_panic().downcast_ref(), Some(&"uncaught"));
        });
    });
}

/// Without a second thread the other goroutines wait until the call is over. No goroutine hangs or is lost.
#[test]
fn with_one_thread_the_others_wait() {
    watched(1, || {
        // SAFETY: the goroutines keep nothing of a thread.
        let rt = unsafe { Runtime::builder().procs(1).max_threads(1).build() }.unwrap();
        rt.run(|| {
            let ran = Arc::new(AtomicBool::new(false));
            let sets = Arc::clone(&ran);
            let other = go(move || sets.store(true, SeqCst));
            assert!(!blocking(|| ran.load(SeqCst)), "there is only one thread");
            other.join().unwrap();
            assert!(ran.load(SeqCst));
        });
    });
}

/// Fails by a hang, or by a thread that is left.
#[test]
fn a_runtime_ends_while_calls_block() {
    for procs in PROCS {
        watched(procs, || {
            let rt = common::runtime(procs);
            let blocked: Vec<_> =
                (0..4).map(|_| rt.go(|| blocking(|| std::thread::sleep(30 * MS)))).collect();
            rt.run(yield_now);
            let report = rt.shutdown(Duration::from_secs(20));
            assert_eq!(report.threads_left(), 0);
            // Each goroutine has ended, has never begun, or was left on its way back from the call.
            blocked
                .into_iter()
                .for_each(|goroutine| assert!(goroutine.join().map_or_else(|e| e.is_shutdown(), |()| true)));
        });
    }
}

/// Goroutines give Ps away and take Ps back on every core at once, beside goroutines that park and ready each other.
#[test]
fn giving_a_p_away_and_coming_back_loses_no_goroutine() {
    everywhere(|rt| {
        let rounds = if cfg!(debug_assertions) { 200 } else { 2000 };
        rt.run(move || {
            let workers: Vec<_> = (0..16)
                .map(|n| {
                    go(move || {
                        for round in 0..rounds {
                            match (n + round) % 3 {
                                0 => blocking(std::thread::yield_now),
                                1 => yield_now(),
                                _ => go(|| ()).join().unwrap(),
                            }
                        }
                        rounds
                    })
                })
                .collect();
            let sum: i32 = workers.into_iter().map(|worker| worker.join().unwrap()).sum();
            assert_eq!(sum, 16 * rounds);
        });
    });
}

#[inline(never)]
fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// Returns the thread before a call and the thread inside it, while another goroutine waits for the only P.
fn threads_of_a_call_beside_another() -> (i32, i32) {
    let (before, other) = (tid(), go(|| ()));
    let inside = blocking(tid);
    other.join().unwrap();
    (before, inside)
}

/// Fails when the P moves to another thread instead of the call.
#[test]
fn beside_others_the_thread_goes_on_with_them() {
    watched(1, || {
        common::runtime(1).run(|| {
            // Sometimes the monitor is first, and takes the P.
            assert!((0..100).any(|_| {
                let (before, inside) = threads_of_a_call_beside_another();
                before != inside
            }));
        });
    });
}

/// Fails when a call moves to another thread although no goroutine waits for the P, or although its goroutine is locked.
#[test]
fn alone_or_locked_the_call_stays_on_its_thread() {
    watched(1, || {
        common::runtime(1).run(|| {
            let (before, inside) = (tid(), blocking(tid));
            assert_eq!(before, inside);
            lock_os_thread();
            for _ in 0..100 {
                let (before, inside) = threads_of_a_call_beside_another();
                assert_eq!(before, inside);
            }
        });
    });
}

/// Fails by a hang when a call waits for a thread behind another call that waits for this one.
#[test]
fn calls_that_wait_for_each_other_are_all_under_way() {
    everywhere(|rt| {
        rt.run(|| {
            for _ in 0..5 {
                let all = Arc::new(Barrier::new(40));
                let calls: Vec<_> = (0..40)
                    .map(|_| {
                        let all = Arc::clone(&all);
                        go(move || {
                            blocking(|| all.wait());
                        })
                    })
                    .collect();
                calls.into_iter().for_each(|call| call.join().unwrap());
            }
        });
    });
}
