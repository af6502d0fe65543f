//! Time for futures: a sleep ends, and not early, whichever task polls it, whatever its time is, and wherever its timer is.

use common::crew::everyone;
use common::foreign::{Task, run};
use common::{everywhere, until};
use gmp::block_on;
use gmp::context::ContextError;
use gmp::sync::Semaphore;
use gmp::time::{Sleep, Timer, after_func, sleep_async, timeout_async, timeout_until_async};
use std::future::{Future, pending, poll_fn, ready};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_secs(3600);

/// Fails by a hang, or when a sleep ends early.
#[test]
fn a_sleep_ends_at_its_time_and_not_before() {
    everyone(|crew| {
        crew.run(|| {
            for wait in [Duration::ZERO, MS / 10, 3 * MS] {
                let begin = Instant::now();
                block_on(sleep_async(wait));
                assert!(begin.elapsed() >= wait);
                let mut sleep = Sleep::until(begin + 2 * wait);
                assert_eq!(sleep.deadline(), begin + 2 * wait);
                block_on(&mut sleep);
                assert!(begin.elapsed() >= 2 * wait && sleep.is_elapsed());
                // An ended sleep is ready again.
                block_on(&mut sleep);
            }
        });
    });
}

/// A task of another executor sleeps. Fails by a hang when its foreign waker is not called, by the timer thread or by an M of a
/// runtime; or when a sleep ends early.
#[test]
fn a_task_of_another_executor_sleeps() {
    let begin = Instant::now();
    run(sleep_async(2 * MS));
    assert!(begin.elapsed() >= 2 * MS);
    everywhere(|rt| {
        let task = Task::new();
        let mut sleep = sleep_async(MS);
        // Without a runtime: the timer thread has this timer.
        let (first, mut sleep) = block_on(poll_fn(|_| {
            let first = task.poll(Pin::new(&mut sleep)).is_ready();
            Poll::Ready((first, std::mem::replace(&mut sleep, sleep_async(FAR))))
        }));
        assert!(!first || sleep.is_elapsed());
        let sleep_there = rt.go(|| {
            let begin = Instant::now();
            block_on(sleep_async(MS));
            begin.elapsed()
        });
        assert!(sleep_there.join().unwrap() >= MS);
        until(|| first || task.wakes() == 1);
        assert!(task.poll(Pin::new(&mut sleep)).is_ready());
    });
}

/// A goroutine polls a sleep for a foreign task, and goes on; an M finds the timer due. Fails by a hang when the foreign waker
/// is not called.
#[test]
fn a_timer_of_a_runtime_wakes_a_foreign_task() {
    everywhere(|rt| {
        let task = std::sync::Arc::new(Task::new());
        let theirs = std::sync::Arc::clone(&task);
        let mut sleep = rt.run(move || {
            let mut sleep = sleep_async(2 * MS);
            let polled = theirs.poll(Pin::new(&mut sleep));
            assert!(polled.is_pending() || sleep.is_elapsed());
            sleep
        });
        let woken = task.is_known();
        until(|| !woken || task.wakes() == 1);
        until(|| sleep.is_elapsed());
        assert!(task.poll(Pin::new(&mut sleep)).is_ready());
    });
}

/// Fails by a hang when a reset to an earlier time leaves the timer where it was, or the task with the old waker; by the clock
/// when a reset to a later time ends the sleep at the old one.
#[test]
fn a_reset_moves_the_end() {
    everyone(|crew| {
        crew.run(|| {
            for _ in 0..50 {
                let begin = Instant::now();
                let mut sleep = sleep_async(FAR);
                let pend = |sleep: &mut Sleep| {
                    block_on(poll_fn(|cx| Poll::Ready(Pin::new(&mut *sleep).poll(cx).is_pending())))
                };
                assert!(pend(&mut sleep));
                sleep.reset(begin + MS);
                block_on(&mut sleep);
                assert!(begin.elapsed() >= MS);
                // A reset after the end, and one beside the firing.
                let begin = Instant::now();
                sleep.reset(begin + MS / 10);
                pend(&mut sleep);
                sleep.reset(begin + MS);
                block_on(&mut sleep);
                assert!(begin.elapsed() >= MS, "it ended at the time of before");
            }
        });
    });
}

/// Fails by the wakes when the timer of a dropped sleep fires; or when the waker is kept.
#[test]
fn a_sleep_that_is_dropped_wakes_nobody() {
    everyone(|crew| {
        crew.run(|| {
            let task = Task::new();
            for wait in [FAR, Duration::from_micros(50)] {
                for _ in 0..200 {
                    let mut sleep = sleep_async(wait);
                    let _polled = task.poll(Pin::new(&mut sleep));
                    drop(sleep);
                }
            }
            until(|| !task.is_known());
            let woken = task.wakes();
            gmp::time::sleep(MS);
            assert_eq!(task.wakes(), woken);
        });
    });
}

/// A goroutine sets the timer, and its runtime ends. Fails by a hang when the timer is lost with the runtime.
#[test]
fn a_sleep_outlives_its_runtime() {
    everywhere(|rt| {
        let begin = Instant::now();
        let mut sleep = rt.run(move || {
            let mut sleep = Sleep::until(begin + 20 * MS);
            block_on(poll_fn(|cx| Poll::Ready(Pin::new(&mut sleep).poll(cx).is_ready())));
            sleep
        });
        let report = rt.shutdown(Duration::from_secs(30));
        assert!(report.is_clean(), "{report:?}");
        run(&mut sleep);
        assert!(begin.elapsed() >= 20 * MS);
    });
}

/// Fails by the result, or by the permit when the future's values are not dropped with it.
#[test]
fn a_timeout_drops_its_future_in_time() {
    everyone(|crew| {
        crew.run(|| {
            assert_eq!(block_on(timeout_async(FAR, ready(7))), Ok(7));
            assert_eq!(block_on(timeout_async(Duration::ZERO, ready(7))), Ok(7), "ready, and so in time");
            let begin = Instant::now();
            let late = block_on(timeout_async(MS, pending::<()>()));
            assert_eq!(late, Err(ContextError::DeadlineExceeded));
            assert!(begin.elapsed() >= MS);
            let permits = Semaphore::new(1);
            block_on(async {
                let holds = async {
                    let _held = permits.acquire_async(1).await;
                    pending::<()>().await;
                };
                assert!(timeout_async(MS, holds).await.is_err());
                assert_eq!(permits.available_permits(), 1, "the future is still there");
            });
        });
    });
}

/// Fails by the result, or when a future ends before the limit or never.
#[test]
fn futures_share_a_limit() {
    everyone(|crew| {
        crew.run(|| {
            let limit = Instant::now() + MS;
            for _ in 0..3 {
                let late = block_on(timeout_until_async(limit, pending::<()>()));
                assert_eq!(late, Err(ContextError::DeadlineExceeded));
                assert!(Instant::now() >= limit);
            }
            assert_eq!(block_on(timeout_until_async(limit, ready(7))), Ok(7), "ready, and so in time");
            assert_eq!(block_on(timeout_until_async(Instant::now() + FAR, ready(8))), Ok(8));
        });
    });
}

/// The future becomes ready during its first poll, which lasts until the time has passed. Fails when the future is dropped
/// without another poll.
#[test]
fn a_future_that_was_ready_in_time_is_in_time() {
    everyone(|crew| {
        crew.run(|| {
            let (limit, mut is_ready) = (2 * MS, false);
            let begin = Instant::now();
            let lags = poll_fn(|_| {
                if is_ready {
                    return Poll::Ready(7);
                }
                is_ready = true;
                thread::sleep(limit.saturating_sub(begin.elapsed()) + MS);
                Poll::Pending
            });
            assert_eq!(block_on(timeout_async(limit, lags)), Ok(7));
        });
    });
}

/// Fails when the timer keeps the waker for an hour, for a task that no longer waits.
#[test]
fn a_timeout_that_was_in_time_keeps_no_timer() {
    everyone(|crew| {
        crew.run(|| {
            let (task, permits) = (Task::new(), Semaphore::new(1));
            permits.acquire(1);
            let mut limited = Box::pin(timeout_async(FAR, permits.acquire_async(1)));
            assert!(task.poll(limited.as_mut()).is_pending());
            assert!(task.is_known());
            permits.release(1);
            let Poll::Ready(Ok(_permit)) = task.poll(limited.as_mut()) else { panic!("in time") };
            assert!(!task.is_known());
        });
    });
}

/// Many tasks sleep at once, on goroutines and on foreign threads. Fails by a hang, or when a sleep ends early.
#[test]
fn many_sleep_at_once() {
    everywhere(|rt| {
        let sleeps = |seed: u64| {
            (0..50).for_each(|round: u64| {
                let begin = Instant::now();
                let wait = Duration::from_micros((seed * 37 + round * 61) % 300);
                if seed.is_multiple_of(2) {
                    block_on(sleep_async(wait))
                } else {
                    run(sleep_async(wait))
                }
                assert!(begin.elapsed() >= wait);
            });
        };
        let goroutines: Vec<_> = (0..20).map(|one| rt.go(move || sleeps(2 * one))).collect();
        let threads: Vec<_> = (0..4).map(|one| thread::spawn(move || sleeps(one))).collect();
        goroutines.into_iter().for_each(|one| one.join().unwrap());
        threads.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Its wake waits for the callback of a timer.
struct WaitsToo(AtomicBool);

impl Wake for WaitsToo {
    fn wake(self: Arc<Self>) {
        let (calls, called) = mpsc::channel();
        let _timer = after_func(MS, move || _ = calls.send(()));
        called.recv().unwrap();
        self.0.store(true, SeqCst);
    }
}

/// Outside of runtimes, one thread waits for all timers. Fails by a hang when that thread calls the waker, which waits for
/// another timer.
#[test]
fn a_waker_may_wait_for_another_timer() {
    // Returns `false` if the task is ready in its first poll, and so calls no waker.
    let is_woken = |task: Pin<&mut dyn Future<Output = ()>>, is_due: &dyn Fn()| {
        let waits = Arc::new(WaitsToo(AtomicBool::new(false)));
        let waker = Waker::from(Arc::clone(&waits));
        if task.poll(&mut Context::from_waker(&waker)).is_ready() {
            return false;
        }
        is_due();
        until(|| waits.0.load(SeqCst));
        true
    };
    // A timer that is reset would call the waker here. On a slow machine the time might pass before the poll.
    let receives = |timer: Timer| async move { _ = timer.receiver().recv_async().await };
    while !is_woken(pin!(receives(Timer::new(20 * MS))), &|| ()) {}
    let (sleep, at) = (std::cell::RefCell::new(sleep_async(FAR)), Instant::now());
    let sleeps = poll_fn(|cx| Pin::new(&mut *sleep.borrow_mut()).poll(cx));
    assert!(is_woken(pin!(sleeps), &|| sleep.borrow_mut().reset(at)));
}
