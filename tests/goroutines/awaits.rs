//! The handle of a goroutine as a future: the task that has polled last is told of the end, and a dropped handle leaves nothing
//! behind.

use common::crew::everyone;
use common::foreign::{Task, run};
use common::futures::falls;
use common::{everywhere, runtime, watched};
use gmp::chan::bounded;
use gmp::time::{Sleep, timeout_async};
use gmp::{JoinHandle, block_on, go, scope};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Starts a goroutine of `rt` that ends with 7 when the sender is dropped.
fn until_dropped(rt: &gmp::Runtime) -> (gmp::chan::Sender<()>, JoinHandle<u32>) {
    let (ends, hears) = bounded::<()>(0);
    let handle = rt.go(move || {
        let _dropped = hears.recv();
        7
    });
    (ends, handle)
}

/// Fails by the outcome, or by a hang. The goroutine ends with a value, a panic, or a `goexit`, before the poll or after it.
#[test]
fn an_await_returns_what_a_join_does() {
    everyone(|crew| {
        crew.run(|| {
            let rt = runtime(2);
            for ended in [false, true] {
                let begin = |f: fn() -> u32| {
                    let (ends, hears) = bounded::<()>(0);
                    let handle = rt.go(move || {
                        let _dropped = hears.recv();
                        f()
                    });
                    if ended {
                        drop(ends);
                        common::until(|| handle.is_finished());
                        (None, handle)
                    } else {
                        (Some(ends), handle)
                    }
                };
                let outcome = |(ends, mut handle): (Option<_>, JoinHandle<u32>)| {
                    block_on(poll_fn(|cx| {
                        let polled = Pin::new(&mut handle).poll(cx);
                        assert_eq!(polled.is_pending(), ends.is_some());
                        Poll::Ready(if polled.is_ready() { Some(polled) } else { None })
                    }))
                    .map_or_else(
                        || {
                            drop(ends);
                            block_on(handle)
                        },
                        |polled| match polled {
                            Poll::Ready(outcome) => outcome,
                            Poll::Pending => unreachable!("it was ready"),
                        },
                    )
                };
                assert_eq!(outcome(begin(|| 7)).unwrap(), 7);
                let panics = begin(|| std::panic::resume_unwind(Box::new("no")));
                assert!(outcome(panics).unwrap_err().is_panic());
                assert!(outcome(begin(|| gmp::goexit())).unwrap_err().is_goexit());
            }
        });
    });
}

/// Fails by the wakes when the end wakes a task that polled earlier, or none, or one whose handle is gone; by a hang when the
/// handle is lost with the borrow of an await that was given up, or when a join after a poll is not told.
#[test]
fn a_handle_may_be_polled_by_many_and_joined_after_all() {
    everywhere(|rt| {
        let (ends, mut handle) = until_dropped(&rt);
        let (first, last) = (Task::new(), Task::new());
        for task in [&first, &last, &last] {
            assert!(task.poll(Pin::new(&mut handle)).is_pending());
        }
        assert!(!first.is_known(), "a waker that was replaced is kept");
        let closes = handle.done();
        drop(ends);
        assert_eq!(run(&mut handle).unwrap(), 7);
        assert_eq!(first.wakes(), 0);
        assert!(closes.recv().is_err());

        let (ends, mut handle) = until_dropped(&rt);
        let limit = Duration::from_millis(1);
        assert!(run(timeout_async(limit, &mut handle)).is_err());
        assert!(handle.join_timeout(limit).is_none());
        drop(ends);
        assert_eq!(handle.join().unwrap(), 7);

        // The end closes a channel of `done`, whichever tasks poll and go.
        let (ends, mut handle) = until_dropped(&rt);
        let (closes, task) = (handle.done(), Task::new());
        assert!(task.poll(Pin::new(&mut handle)).is_pending());
        drop(handle);
        assert!(!task.is_known(), "a handle that is gone leaves its waker");
        drop(ends);
        assert!(closes.recv().is_err());
        assert_eq!(task.wakes(), 0);
    });
}

/// Fails without the panic, when an outcome is taken a second time.
#[test]
#[should_panic(expected = "has taken the outcome")]
fn an_outcome_is_taken_once() {
    let rt = runtime(1);
    let mut handle = rt.go(|| 7);
    assert_eq!(block_on(&mut handle).unwrap(), 7);
    drop(block_on(handle));
}

/// A waker that itself polls the future for which it is to wake.
struct Polls {
    handle: std::sync::Mutex<Option<JoinHandle<u32>>>,
    ready: AtomicUsize,
}

impl Wake for Polls {
    fn wake(self: Arc<Self>) {
        let mut handle = self.handle.lock().unwrap();
        if let Some(it) = handle.as_mut()
            && Pin::new(it).poll(&mut Context::from_waker(Waker::noop())).is_ready()
        {
            *handle = None;
            self.ready.fetch_add(1, SeqCst);
        }
    }
}

/// Fails by a hang when the poll waits until the end is told, and the end waits for the waker.
#[test]
fn a_waker_may_poll_the_handle() {
    everywhere(|rt| {
        let (ends, mut handle) = until_dropped(&rt);
        let polls = Arc::new(Polls { handle: std::sync::Mutex::new(None), ready: AtomicUsize::new(0) });
        let waker = Waker::from(Arc::clone(&polls));
        assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
        *polls.handle.lock().unwrap() = Some(handle);
        drop(ends);
        common::until(|| polls.ready.load(SeqCst) == 1);
    });
}

/// The runtime ends, and unwinds the goroutines or leaves them behind; a task of another executor, and one of another runtime,
/// await them. Fails by a hang, or by the outcome.
#[test]
fn the_end_of_the_runtime_is_told_to_tasks_that_await() {
    for procs in common::PROCS {
        for limit in [Duration::from_secs(30), Duration::ZERO] {
            watched(procs, || {
                let (rt, other) = (runtime(procs), runtime(1));
                let handles: Vec<_> = (0..2)
                    .map(|_| {
                        let started = bounded::<()>(1);
                        let handle = rt.go(move || {
                            started.0.send(()).unwrap();
                            gmp::time::sleep(Duration::MAX);
                        });
                        started.1.recv().unwrap();
                        handle
                    })
                    .collect();
                let [here, there] = <[_; 2]>::try_from(handles).unwrap();
                let awaits = std::thread::spawn(|| run(here));
                let elsewhere = other.go(|| block_on(there).unwrap_err().is_shutdown());
                let _report = rt.shutdown(limit);
                assert!(awaits.join().unwrap().unwrap_err().is_shutdown());
                assert!(elsewhere.join().unwrap());
            });
        }
    }
}

/// Fails when the panic keeps the handle from going, or its goroutine's channel from being closed.
#[test]
fn a_waker_whose_drop_panics_harms_no_handle() {
    everywhere(|rt| {
        let polled = || {
            let (lives, mut handle) = until_dropped(&rt);
            let waker = falls();
            assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
            (lives, handle)
        };
        let (_lives, dropped) = polled();
        drop(dropped);
        let (lives, mut handle) = polled();
        let done = handle.done();
        assert!(Task::new().poll(Pin::new(&mut handle)).is_pending());
        drop(lives);
        assert!(done.recv().is_err());
        assert!(handle.join().is_ok());
    });
}

/// Fails by a panic of the scope when the scope takes an awaited panic for an unreported one; or by a hang.
#[test]
fn goroutines_of_a_scope_are_awaited() {
    everywhere(|rt| {
        rt.run(|| {
            let words = ["one".to_owned(), "three".to_owned()];
            let (lengths, panics) = scope(|scope| {
                let counts = words.each_ref().map(|word| scope.go(|| word.len()));
                let panics = scope.go(|| std::panic::resume_unwind(Box::new("no")));
                block_on(async {
                    let mut lengths = Vec::new();
                    for count in counts {
                        lengths.push(count.await.unwrap());
                    }
                    let failed: Result<(), _> = panics.await;
                    (lengths, failed.is_err())
                })
            });
            assert_eq!((lengths, panics), (vec![3, 5], true));
        });
    });
}

/// An outcome that counts its drop.
struct Counted<'a>(&'a AtomicUsize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Handles of a scope are polled, and dropped before their goroutines end, and after. Fails when the scope does not wait, when
/// a waker stays or is called, when an outcome is lost or dropped twice, or when a panic is not reported.
#[test]
fn a_scoped_handle_that_is_dropped_after_a_poll_leaves_its_goroutine_to_the_scope() {
    everywhere(|rt| {
        rt.run(|| {
            for ended in [false, true] {
                let (task, drops, through) = (Task::new(), AtomicUsize::new(0), AtomicUsize::new(0));
                scope(|scope| {
                    let (ends, hears) = bounded::<()>(0);
                    let (drops, through) = (&drops, &through);
                    let mut handles: Vec<_> = (0..4)
                        .map(|_| {
                            let hears = hears.clone();
                            scope.go(move || {
                                let _dropped = hears.recv();
                                through.fetch_add(1, SeqCst);
                                Counted(drops)
                            })
                        })
                        .collect();
                    let mut polled = handles.iter_mut().map(|handle| task.poll(Pin::new(handle)));
                    assert!(polled.all(|polled| polled.is_pending()));
                    if ended {
                        drop(ends);
                        until_in_goroutine(|| task.wakes() == 4);
                        drop(handles);
                    } else {
                        drop(handles);
                        assert!(!task.is_known(), "a handle that is gone leaves its waker");
                        assert_eq!(through.load(SeqCst), 0);
                        drop(ends);
                    }
                });
                until_in_goroutine(|| !task.is_known());
                assert_eq!((through.load(SeqCst), drops.load(SeqCst)), (4, 4));
                assert_eq!(task.wakes(), if ended { 4 } else { 0 });

                let panicked = catch_unwind(AssertUnwindSafe(|| {
                    scope(|scope| {
                        let (ends, hears) = bounded::<()>(0);
                        let mut handle = scope.go(move || {
                            let _dropped = hears.recv();
                            std::panic::resume_unwind(Box::new("no"))
                        });
                        let polled: Poll<Result<(), _>> = task.poll(Pin::new(&mut handle));
                        assert!(polled.is_pending());
                        let kept = (!ended).then(|| ends.clone());
                        drop(ends);
                        until_in_goroutine(|| kept.is_some() || handle.is_finished());
                        drop(handle);
                    });
                }));
                let payload = panicked.unwrap_err();
                assert_eq!(payload.downcast_ref(), Some(&"a scoped goroutine panicked"));
            }
        });
    });
}

/// Waits until `reached` holds, and lets other goroutines run meanwhile.
fn until_in_goroutine(reached: impl Fn() -> bool) {
    while !reached() {
        gmp::time::sleep(Duration::from_micros(200));
    }
}

/// Many goroutines end while tasks await them, give up, and await them again. Fails by a hang, or by the count.
#[test]
fn ends_against_polls_and_drops() {
    const ROUNDS: usize = 300;
    everywhere(|rt| {
        let tasks: Vec<_> = (0..4)
            .map(|task| {
                let handles: Vec<_> = (0..ROUNDS)
                    .map(|round| rt.go(move || (0..round % 7).for_each(|_| gmp::yield_now())))
                    .collect();
                std::thread::spawn(move || {
                    let mut ended = 0;
                    for (round, mut handle) in handles.into_iter().enumerate() {
                        let soon = Duration::from_micros(((round + task) % 5) as u64);
                        match run(timeout_async(soon, &mut handle)) {
                            Ok(outcome) => outcome.unwrap(),
                            Err(_) if round % 3 == 0 => drop(handle),
                            Err(_) => run(handle).unwrap(),
                        }
                        ended += 1;
                    }
                    ended
                })
            })
            .collect();
        let ended: usize = tasks.into_iter().map(|task| task.join().unwrap()).sum();
        assert_eq!(ended, 4 * ROUNDS);
        // The same by goroutines of the runtime itself.
        rt.run(|| {
            for round in 0..ROUNDS {
                let mut handle = go(move || (0..round % 7).for_each(|_| gmp::yield_now()));
                let first = block_on(poll_fn(|cx| Poll::Ready(Pin::new(&mut handle).poll(cx).is_ready())));
                if !first {
                    block_on(handle).unwrap();
                }
            }
            block_on(Sleep::until(std::time::Instant::now()));
        });
    });
}
