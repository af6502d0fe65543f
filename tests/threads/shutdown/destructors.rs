//! Destructors that act while their goroutine is unwound.

use super::{Counts, HOUR, MS, SHUTDOWN_LIMIT, ends_clean};
use common::child;
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::chan;
use gmp::sync::{Event, Mutex};
use gmp::time::sleep;
use gmp::{JoinHandle, Runtime, yield_now};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Does something when it is dropped.
struct Does<F: FnMut()>(F);

impl<F: FnMut()> Drop for Does<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// There are more of these destructors than threads. Fails when a destructor is interrupted, or when the end does not wait for
/// it.
#[test]
fn destructors_that_park_come_to_their_end() {
    everywhere(|rt| {
        let (counts, after) = (Counts::default(), Counts::default());
        let lock = Arc::new(Mutex::new(0));
        let (tx, rx) = chan::bounded(1);
        for n in 0..20 {
            let (lock, tx, after) = (Arc::clone(&lock), tx.clone(), after.clone());
            let _parks = counts.go(&rt, move || {
                let _does = Does(move || {
                    let mut held = lock.lock();
                    *held += 1;
                    sleep(MS);
                    yield_now();
                    drop(held);
                    tx.send(n).unwrap();
                    drop(after.begin());
                });
                sleep(HOUR);
            });
        }
        counts.all_begun(&rt, 20);
        let receives = std::thread::spawn(move || rx.iter().take(20).sum::<i32>());
        ends_clean(rt);
        counts.all_unwound(20);
        after.all_unwound(20);
        assert_eq!(receives.join().unwrap(), 190);
    });
}

/// Goroutines that a destructor starts are dropped unrun. Fails when they keep their share of the limit of stacks, so that the
/// destructor gets no larger stack after them.
#[test]
fn what_is_started_in_vain_keeps_no_stack() {
    const STACK: usize = 64 << 10;
    for procs in PROCS {
        watched(procs, || {
            let builder = Runtime::builder().procs(procs).stack_size(STACK).max_stack_bytes(20 * STACK);
            // SAFETY: as in `common::runtime`.
            let rt = unsafe { builder.build() }.unwrap();
            let (counts, fits) = (Counts::default(), Arc::new(AtomicUsize::new(0)));
            let its = Arc::clone(&fits);
            drop(counts.go(&rt, move || {
                let _does = Does(move || {
                    for _ in 0..100 {
                        assert!(gmp::go(|| ()).join().unwrap_err().is_shutdown());
                    }
                    let larger = catch_unwind(|| gmp::with_stack(STACK, || 7));
                    its.store(larger.unwrap_or(1), SeqCst);
                });
                sleep(HOUR);
            }));
            counts.all_begun(&rt, 1);
            ends_clean(rt);
            assert_eq!(fits.load(SeqCst), 7);
        });
    }
}

/// Each destructor joins another goroutine, which is unwound as well, before it or after it. Fails by a hang.
#[test]
fn a_destructor_may_join_another_goroutine() {
    everywhere(|rt| {
        let counts = Counts::default();
        let mut last: Option<JoinHandle<()>> = None;
        for _ in 0..10 {
            let before = last.take();
            last = Some(counts.go(&rt, move || {
                let mut before = before;
                let _does = Does(move || {
                    if let Some(before) = before.take() {
                        assert!(before.join().unwrap_err().is_shutdown());
                    }
                });
                sleep(HOUR);
            }));
        }
        counts.all_begun(&rt, 10);
        ends_clean(rt);
        counts.all_unwound(10);
        assert!(last.unwrap().join().unwrap_err().is_shutdown());
    });
}

/// Fails by a hang.
#[test]
fn a_destructor_that_parks_for_ever_is_left_when_the_time_is_over() {
    watched(2, || {
        let rt = runtime(2);
        let (counts, unwound) = (Counts::default(), Counts::default());
        let stuck = counts.go(&rt, || {
            let _does = Does(|| Event::new().wait());
            sleep(HOUR);
        });
        let _goes = unwound.go(&rt, || sleep(HOUR));
        counts.all_begun(&rt, 1);
        unwound.all_begun(&rt, 1);
        let begun = Instant::now();
        let report = rt.shutdown(200 * MS);
        assert!(begun.elapsed() >= Duration::from_millis(100));
        assert_eq!(report.goroutines_left(), 1);
        assert!(stuck.join().unwrap_err().is_shutdown());
        assert_eq!(counts.dropped.load(SeqCst), 0);
        unwound.all_unwound(1);
    });
}

/// A closure that never ran is dropped, and its drop may park. Fails when a closure runs, or is not dropped.
#[test]
fn a_closure_that_never_ran_is_dropped_where_it_may_park() {
    watched(1, || {
        // The M is busy until the end has begun.
        let rt = runtime(1);
        let counts = Counts::default();
        let begun = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let _busy = rt.go({
            let begun = Arc::clone(&begun);
            move || {
                begun.store(true, SeqCst);
                let start = Instant::now();
                while start.elapsed() < 5 * MS {}
            }
        });
        until(|| begun.load(SeqCst));
        let never: Vec<_> = (0..5)
            .map(|_| {
                let own = counts.begin();
                let does = Does(|| sleep(MS));
                let ran = counts.clone();
                rt.go(move || {
                    let _both = (own, does);
                    // On a slow machine the goroutine may begin before the end; then it is unwound.
                    sleep(HOUR);
                    ran.went_on.fetch_add(1, SeqCst);
                })
            })
            .collect();
        ends_clean(rt);
        counts.all_unwound(5);
        assert!(never.into_iter().all(|never| never.join().unwrap_err().is_shutdown()));
    });
}

/// A value whose drop parks, and is over after some ms unless it is ended from outside.
struct Slow(Arc<AtomicUsize>);

impl Drop for Slow {
    fn drop(&mut self) {
        sleep(MS);
        yield_now();
        self.0.fetch_add(1, SeqCst);
    }
}

/// A closure that never ran, a value without a joiner, and `local!` variables are dropped: more values than there are throws.
/// Fails when a destructor is interrupted although nothing is unwound there, or when a goroutine is left behind.
#[test]
fn what_a_goroutine_drops_as_it_ends_is_not_interrupted() {
    gmp::local! {
        static ONE: Cell<Option<Slow>> = Cell::new(None);
        static TWO: Cell<Option<Slow>> = Cell::new(None);
        static THREE: Cell<Option<Slow>> = Cell::new(None);
        static FOUR: Cell<Option<Slow>> = Cell::new(None);
        static FIVE: Cell<Option<Slow>> = Cell::new(None);
    }
    everywhere(|rt| {
        let over = Arc::new(AtomicUsize::new(0));
        let (counts, slow) = (Counts::default(), || Slow(Arc::clone(&over)));
        let all = [slow(), slow(), slow(), slow(), slow()];
        let _keeps = counts.go(&rt, move || {
            for (local, slow) in [&ONE, &TWO, &THREE, &FOUR, &FIVE].into_iter().zip(all) {
                local.with(|local| local.set(Some(slow)));
            }
            sleep(HOUR);
        });
        let value = slow();
        drop(rt.go(move || {
            // The goroutine catches the throw, so it returns.
            let _caught = catch_unwind(|| sleep(HOUR));
            value
        }));
        counts.all_begun(&rt, 1);
        let closure = slow();
        let never = rt.go(move || {
            // The goroutine may begin before the end; then it is unwound, which interrupts no destructor either.
            sleep(HOUR);
            drop(closure);
        });
        ends_clean(rt);
        counts.all_unwound(1);
        assert_eq!(over.load(SeqCst), 7);
        assert!(never.join().unwrap_err().is_shutdown());
    });
}

/// As in any unwinding, a panic that is caught does no harm. Fails by an abort.
#[test]
fn a_panic_that_a_destructor_catches_does_no_harm() {
    everywhere(|rt| {
        let counts = Counts::default();
        let _panics = counts.go(&rt, || {
            let _does = Does(|| {
                let caught = catch_unwind(AssertUnwindSafe(|| std::panic::resume_unwind(Box::new("mine"))));
                assert!(caught.is_err());
            });
            sleep(HOUR);
        });
        counts.all_begun(&rt, 1);
        ends_clean(rt);
        counts.all_unwound(1);
    });
}

/// As in any unwinding, a panic that leaves a destructor ends the process. Fails when the docs no longer say so.
#[test]
fn a_panic_that_leaves_a_destructor_ends_the_process() {
    const TEST: &str = "a_panic_that_leaves_a_destructor_ends_the_process";
    if child::is_child() {
        let rt = runtime(1);
        let counts = Counts::default();
        let _panics = counts.go(&rt, || {
            let _does = Does(|| panic!("in a destructor"));
            sleep(HOUR);
        });
        counts.all_begun(&rt, 1);
        rt.shutdown(SHUTDOWN_LIMIT);
        return;
    }
    use std::os::unix::process::ExitStatusExt;
    let output = child::run(TEST, &[]);
    assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("in a destructor"));
}
