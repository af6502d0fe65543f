//! The end of a goroutine as an event: a join with a limit, a channel that hears of the end, and an end from outside.

use common::bolt::bolted;
use common::crew::everyone;
use common::probe::Probe;
use common::random::Random;
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::chan::{Select, TryRecvError, bounded, never};
use gmp::context::{Context, ContextError};
use gmp::sync::Event;
use gmp::{Builder, JoinHandle, go, go_abortable, select, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(2);
const LONG: Duration = Duration::from_secs(3600);
const CLOSED: Result<(), TryRecvError> = Err(TryRecvError::Disconnected);

/// Fails if the handle or the value is lost when a limit has passed, or if a value is dropped twice or not at all.
#[test]
fn a_join_with_a_limit_keeps_the_handle() {
    fn waits<T: Send + 'static>(
        make: impl Fn() -> T + Copy + Send + 'static,
    ) -> (JoinHandle<T>, impl FnOnce()) {
        let (go_on, hears) = bounded::<()>(0);
        let handle = go(move || {
            let _closed = hears.recv();
            make()
        });
        (handle, move || drop(go_on))
    }
    /// For a value that fits into the goroutine, for one that does not fit there, and for one without a drop.
    fn check<T: Send + 'static>(make: impl Fn() -> T + Copy + Send + 'static) {
        let (mut handle, go_on) = waits(make);
        let start = Instant::now();
        assert!(handle.join_timeout(SHORT).is_none());
        assert!(handle.join_deadline(Instant::now() + SHORT).is_none());
        assert!(start.elapsed() >= 2 * SHORT && !handle.is_finished());
        go_on();
        assert!(handle.join_timeout(LONG).unwrap().is_ok());
        // The outcome is gone, for each kind of join.
        assert!(catch_unwind(AssertUnwindSafe(|| handle.join_timeout(SHORT))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| handle.join())).is_err());
        // A join without a limit takes the value, or no join does.
        let (mut handle, go_on) = waits(make);
        assert!(handle.join_timeout(Duration::ZERO).is_none());
        go_on();
        assert!(handle.join().is_ok());
        let (mut handle, go_on) = waits(make);
        assert!(handle.join_timeout(Duration::ZERO).is_none());
        go_on();
        until(|| handle.is_finished());
        drop(handle);
    }
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct Counted;
    impl Drop for Counted {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
        }
    }
    everywhere(|rt| {
        DROPS.store(0, SeqCst);
        rt.run(|| {
            check(|| ());
            check(|| 7_u64);
            check(|| Counted);
            check(|| (Counted, [7_u64; 40]));
        });
        drop(rt);
        assert_eq!(DROPS.load(SeqCst), 6);
    });
}

/// A join with a limit returns a panic, and, as often as it is called, the end of the runtime. Fails when an error is lost.
#[test]
fn a_join_with_a_limit_tells_why_there_is_no_value() {
    everywhere(|rt| {
        let mut panics: JoinHandle<()> = rt.go(|| resume_unwind(Box::new("why")));
        let error = panics.join_timeout(LONG).unwrap().unwrap_err();
        assert_eq!(error.into_panic().downcast_ref(), Some(&"why"));
        let mut left = rt.go(|| bolted(|| Event::new().wait()));
        assert!(left.join_timeout(SHORT).is_none());
        rt.shutdown(Duration::ZERO);
        for _twice in 0..2 {
            assert!(left.join_timeout(LONG).unwrap().unwrap_err().is_shutdown());
        }
        assert_eq!(left.done().try_recv(), CLOSED);
        assert!(left.join().unwrap_err().is_shutdown());
    });
}

/// Fails by the time when the end waits for a parent whose context has ended, and whose child was left behind.
#[test]
fn a_parent_that_was_cancelled_is_left_with_its_child() {
    everywhere(|rt| {
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        drop(rt.go(move || {
            let (context, cancel) = Context::background().with_cancel();
            drop(go(move || cancel.cancel()));
            let _never = context.run(|| {
                gmp::scope(|scope| {
                    drop(scope.go(|| {
                        begins.store(true, SeqCst);
                        bolted(|| Event::new().wait());
                    }));
                });
            });
        }));
        until(|| begun.load(SeqCst) && rt.num_goroutines() == 2);
        let since = Instant::now();
        let report = rt.shutdown(LONG);
        assert_eq!(report.goroutines_left(), 2, "{report:?}");
        assert!(since.elapsed() < LONG / 2, "{:?}", since.elapsed());
    });
}

/// Fails by a hang when the end of a goroutine and its channel miss each other, at any moment, on goroutines and threads.
#[test]
fn a_channel_is_closed_by_the_end() {
    everyone(|crew| {
        let rt = Arc::new(runtime(2));
        let mut random = Random::new(1);
        let rounds = if cfg!(debug_assertions) { 100 } else { 1000 };
        for round in 0..rounds {
            let (theirs, pause) = (Arc::clone(&rt), random.below(3));
            crew.run(move || {
                let mut handle = theirs.go(move || {
                    (0..pause).for_each(|_| yield_now());
                    round
                });
                if round % 3 == 0 {
                    yield_now();
                }
                let (first, second) = (handle.done(), handle.done());
                match round % 4 {
                    // Hears of the end by the channels, and then takes the value, which is there.
                    0 => {
                        assert!(first.recv().is_err() && second.recv().is_err());
                        assert!(handle.is_finished());
                        assert_eq!(handle.join().unwrap(), round);
                    }
                    // Takes the value; then the channels are closed already, or at this moment.
                    1 => {
                        assert_eq!(handle.join().unwrap(), round);
                        assert!(second.recv().is_err() && first.recv().is_err());
                    }
                    // Drops the handle first.
                    2 => {
                        drop(handle);
                        assert!(second.recv().is_err() && first.recv().is_err());
                    }
                    // Joins with a limit.
                    _ => {
                        assert_eq!(handle.join_timeout(LONG).unwrap().unwrap(), round);
                        // A later call knows that the first channel is closed.
                        let late = handle.done();
                        assert_eq!((late.try_recv(), first.try_recv()), (CLOSED, CLOSED));
                    }
                }
            });
        }
    });
}

/// The end of one of several goroutines is an arm of a select. Fails by a hang, or when an arm is chosen too early.
#[test]
fn an_end_is_an_arm_of_a_select() {
    everywhere(|rt| {
        rt.run(|| {
            let (go_on, hears) = bounded::<()>(0);
            let mut slow = go(move || hears.recv().is_err());
            let mut fast = go(|| 7);
            let value = select! {
                recv(slow.done()) -> _ => unreachable!("it waits for the other"),
                recv(fast.done()) -> closed => {
                    assert!(closed.is_err());
                    fast.join().unwrap()
                }
            };
            assert_eq!(value, 7);
            select! {
                recv(slow.done()) -> _ => unreachable!("it waits for the other"),
                default => drop(go_on),
            }
            let ends: Vec<_> = [slow.done(), never()].into();
            let mut select = Select::new();
            ends.iter().for_each(|end| assert!(select.recv(end) < 2));
            assert_eq!(select.ready(), 0);
            assert!(slow.join().unwrap());
        });
    });
}

/// Fails by a hang when a goroutine that is left behind, with a handle or without, closes no channel.
#[test]
fn the_end_of_a_runtime_closes_the_channels_of_left_goroutines() {
    everywhere(|rt| {
        let waits = || bolted(|| Event::new().wait());
        let (mut kept, mut detached, mut late) = (rt.go(waits), rt.go(waits), rt.go(waits));
        let (first, second) = (kept.done(), detached.done());
        drop(detached);
        rt.run(|| (0..10).for_each(|_| yield_now()));
        assert_eq!(first.try_recv(), Err(TryRecvError::Empty));
        rt.shutdown(Duration::ZERO);
        assert!(first.recv().is_err() && second.recv().is_err());
        assert!(kept.join().unwrap_err().is_shutdown());
        assert_eq!(late.done().try_recv(), CLOSED);
    });
}

/// Fails by a result when the handle is lost with an interrupt of the joiner, or the joined goroutine ends with its joiner.
#[test]
fn a_join_that_is_interrupted_keeps_the_handle() {
    everywhere(|rt| {
        rt.run(|| {
            let (go_on, hears) = bounded::<()>(0);
            let mut waits = go(move || hears.recv().is_err());
            let (ctx, _cancel) = Context::background().with_timeout(SHORT);
            assert_eq!(ctx.run(|| waits.join_timeout(LONG).is_none()), Err(ContextError::DeadlineExceeded));
            drop(go_on);
            assert!(waits.join_timeout(LONG).unwrap().unwrap());
        });
    });
}

/// Fails if an abort ends nothing, ends a goroutine that has begun no wait, or is taken for a panic.
#[test]
fn an_abort_ends_a_goroutine_where_it_waits() {
    for procs in PROCS {
        watched(procs, || {
            runtime(procs).run(|| {
                let drops = Arc::new(AtomicUsize::new(0));
                let probe = || Probe(Arc::clone(&drops));
                // A goroutine that waits.
                let (begun, begins) = bounded(0);
                let held = probe();
                let (waits, abort) = go_abortable(move || {
                    let _held = held;
                    begun.send(()).unwrap();
                    Event::new().wait();
                });
                begins.recv().unwrap();
                abort.abort();
                abort.clone().abort();
                let error = waits.join().unwrap_err();
                assert!(
                    error.is_aborted() && !error.is_panic() && !error.is_shutdown() && !error.is_goexit()
                );
                assert_eq!(error.to_string(), "the goroutine was aborted");
                assert_eq!(drops.load(SeqCst), 1);
                // A goroutine that returns before its next wait, and one that has returned.
                let ((begun, begins), (go_on, hears)) = (bounded(0), std::sync::mpsc::channel());
                let (computes, abort) = go_abortable(move || {
                    begun.send(()).unwrap();
                    gmp::blocking(|| hears.recv().unwrap())
                });
                begins.recv().unwrap();
                abort.abort();
                go_on.send(7).unwrap();
                assert_eq!(computes.join().unwrap(), 7);
                let (ended, abort) = go_abortable(|| 7);
                until(|| ended.is_finished());
                abort.abort();
                assert_eq!(ended.join().unwrap(), 7);
                // A panic stays a panic, and a goroutine that an abortable one has started runs on.
                let (panics, _abort) = go_abortable(|| -> u32 { resume_unwind(Box::new("why")) });
                assert!(panics.join().unwrap_err().is_panic());
                let (starts, abort) = go_abortable(|| {
                    let (go_on, hears) = bounded::<()>(0);
                    (go(move || hears.recv().is_err()), go_on)
                });
                let (started, go_on) = starts.join().unwrap();
                abort.abort();
                drop(go_on);
                assert!(started.join().unwrap());
            });
        });
    }
}

/// Fails by a count when a goroutine that was aborted before it began runs, or keeps its captures.
#[test]
fn an_abort_before_the_beginning_drops_the_closure() {
    runtime(1).run(|| {
        let (drops, runs) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (probe, counted) = (Probe(Arc::clone(&drops)), Arc::clone(&runs));
        let named = Builder::new().name("never").go_abortable(move || {
            let _probe = probe;
            counted.fetch_add(1, SeqCst);
        });
        let (mut never, abort) = named.unwrap();
        // With one P the goroutine has not begun.
        abort.abort();
        assert!(never.join_timeout(LONG).unwrap().unwrap_err().is_aborted());
        assert_eq!((drops.load(SeqCst), runs.load(SeqCst)), (1, 0));
    });
}
