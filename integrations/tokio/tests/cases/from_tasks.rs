use crate::support::{MS, everywhere, many};
use gmp::chan;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Poll;
use tokio::task::{block_in_place, spawn_blocking};

/// Fails if a task can't start a goroutine and wait for it.
#[test]
fn a_task_starts_goroutines_by_a_handle() {
    everywhere(|| {
        let handle = gmp::handle();
        let sum = gmp_tokio::run(async move {
            let goroutines: Vec<_> = (0..20)
                .map(|n| {
                    handle
                        .go(move || {
                            gmp::time::sleep(MS);
                            // This goroutine has the reactor, as any other.
                            gmp::block_on(tokio::time::sleep(MS));
                            n
                        })
                        .unwrap()
                })
                .collect();
            block_in_place(|| goroutines.into_iter().map(|one| one.join().unwrap()).sum::<u32>())
        });
        assert_eq!(sum, 190);
    });
}

/// Fails if `go` starts a goroutine in some runtime, or if the panic's text does not say what to do instead.
#[test]
fn go_in_a_task_says_that_there_is_no_runtime() {
    everywhere(|| {
        let refused = gmp::block_on(tokio::spawn(async {
            let _never = gmp::go(|| ());
        }));
        let payload = refused.unwrap_err().into_panic();
        let text =
            payload.downcast_ref::<String>().map(String::as_str).or(payload.downcast_ref::<&str>().copied());
        assert!(text.is_some_and(|text| text.contains("Handle")), "{text:?}");
    });
}

/// Fails by a hang when the thread waits for a task that it would have to run itself.
#[test]
fn run_is_refused_where_the_thread_runs_the_tasks_itself() {
    let current = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| current.block_on(async { gmp_tokio::run(async {}) })));
    let text = *refused.unwrap_err().downcast::<&str>().unwrap();
    assert!(text.contains("of the current thread"), "{text}");

    let several = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let local = tokio::task::LocalSet::new();
    let refused = catch_unwind(AssertUnwindSafe(|| {
        local.block_on(&several, async { gmp_tokio::run(async {}) });
    }));
    assert!(refused.is_err(), "a set of local tasks lets nobody block");
    several.shutdown_background();
}

/// Fails by a lost message; or by a hang when a task that blocks its thread in place holds up the other tasks.
#[test]
fn channels_of_gmp_pass_messages_to_and_from_tasks() {
    everywhere(|| {
        many(10, |_| {
            let ((ask, asked), (answer, answers)) = (chan::bounded(0), chan::unbounded());
            let task = tokio::spawn(async move {
                while let Ok(n) = block_in_place(|| asked.recv()) {
                    // This send does not block.
                    answer.send(n * 2).unwrap();
                    tokio::task::yield_now().await;
                }
            });
            for n in 0..50 {
                ask.send(n).unwrap();
                assert_eq!(answers.recv(), Ok(n * 2));
            }
            drop(ask);
            gmp::block_on(task).unwrap();
        });
    });
}

/// Fails when a message or a value is lost with the arm of a `select!` that did not win; or by a hang.
#[test]
fn tasks_await_broadcast_and_watch() {
    everywhere(|| {
        let (news, level) = (chan::broadcast::Sender::new(64), chan::watch::Sender::new(0));
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (mut reader, mut seen) = (news.subscribe(), level.subscribe());
                tokio::spawn(async move {
                    let (mut sum, mut last) = (0, 0);
                    loop {
                        tokio::select! {
                            message = reader.recv_async() => match message {
                                Ok(n) => sum += n,
                                Err(error) => break assert_eq!(error, chan::broadcast::RecvError::Closed),
                            },
                            Ok(()) = seen.changed_async() => last = *seen.borrow(),
                        }
                    }
                    let value = seen.wait_for_async(|value| *value == 50).await.map(|value| *value);
                    (sum, value, last)
                })
            })
            .collect();
        for n in 1..=50 {
            news.send(n).unwrap();
            level.send(n).unwrap();
            if n % 10 == 0 {
                gmp::yield_now();
            }
        }
        drop(news);
        for task in tasks {
            let (sum, value, last) = gmp::block_on(task).unwrap();
            assert_eq!((sum, value), (1275, Ok(50)));
            assert!(last <= 50);
        }
        // The tasks have dropped their halves.
        gmp::block_on(level.closed_async());
    });
}

/// Fails if `block_on` and `run` in a task wait for work that only the blocked thread could do.
#[test]
fn block_on_and_run_in_a_task_let_the_other_tasks_go_on() {
    everywhere(|| {
        many(10, |n| {
            let got = gmp_tokio::run(async move {
                // The new task is in this worker's own slot, from which no other worker takes tasks while this worker runs.
                let ran = gmp_tokio::run(async move { n + 1 });
                let spawned = tokio::spawn(async move { ran + 1 });
                let blocked = block_in_place(|| gmp::block_on(spawned)).unwrap();
                let apart = spawn_blocking(move || gmp_tokio::run(async move { blocked + 1 }));
                apart.await.unwrap()
            });
            assert_eq!(got, n + 3);
        });
    });
}

/// Fails if the wake of a goroutine's waker by a task is lost.
#[test]
fn a_task_wakes_a_future_on_a_goroutine() {
    everywhere(|| {
        many(20, |_| {
            let mut woken = None;
            gmp::block_on(poll_fn(|cx| match &woken {
                None => {
                    let waker = cx.waker().clone();
                    woken = Some(tokio::spawn(async move { waker.wake() }));
                    Poll::Pending
                }
                Some(_) => Poll::Ready(()),
            }));
            gmp::block_on(woken.unwrap()).unwrap();
        });
    });
}
