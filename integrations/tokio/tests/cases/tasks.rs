use crate::support::{MS, everywhere, many};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Fails if a task does not run, or runs twice, or if its end does not wake the goroutine.
#[test]
fn spawned_tasks_run_once_and_are_joined() {
    everywhere(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&ran);
        many(20, move |n| {
            let tasks: Vec<_> = (0..20)
                .map(|task| {
                    let ran = Arc::clone(&theirs);
                    tokio::spawn(async move {
                        tokio::task::yield_now().await;
                        ran.fetch_add(1, SeqCst);
                        (n, task)
                    })
                })
                .collect();
            for (at, task) in tasks.into_iter().enumerate() {
                assert_eq!(gmp::block_on(task).unwrap(), (n, at));
            }
        });
        assert_eq!(ran.load(SeqCst), 400);
    });
}

/// Fails if a set loses a task between two `block_on`s, or if its drop leaves a task running.
#[test]
fn a_join_set_gives_each_task_once_and_ends_the_rest() {
    everywhere(|| {
        many(10, |_| {
            let mut set = JoinSet::new();
            for n in 0..10 {
                set.spawn(async move {
                    sleep(MS * (n % 3)).await;
                    n
                });
            }
            let mut seen = Vec::new();
            while let Some(one) = gmp::block_on(set.join_next()) {
                seen.push(one.unwrap());
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..10).collect::<Vec<_>>());

            let (held, mut dropped) = mpsc::channel::<()>(1);
            set.spawn(async move {
                let _held = held;
                std::future::pending::<u32>().await
            });
            drop(set);
            assert_eq!(gmp::block_on(dropped.recv()), None);
        });
    });
}

/// Fails if an arm that was not chosen has taken a message, or if no arm is ever chosen.
#[test]
fn a_select_loses_no_message() {
    everywhere(|| {
        many(10, |_| {
            let ((ones, mut one), (twos, mut two)) = (mpsc::channel(1), mpsc::channel(1));
            tokio::spawn(async move {
                for n in 0..50 {
                    ones.send(n).await.unwrap();
                }
            });
            tokio::spawn(async move {
                for n in 50..100 {
                    twos.send(n).await.unwrap();
                }
            });
            let mut seen = Vec::new();
            loop {
                let next = gmp::block_on(async {
                    tokio::select! {
                        Some(n) = one.recv() => Some(n),
                        Some(n) = two.recv() => Some(n),
                        else => None,
                    }
                });
                let Some(n) = next else { break };
                seen.push(n);
                gmp::yield_now();
            }
            seen.sort_unstable();
            assert_eq!(seen, (0..100).collect::<Vec<_>>());
        });
    });
}

/// Fails if a panic is lost, or arrives with another payload.
#[test]
fn a_panic_of_the_future_has_its_payload() {
    #[derive(Debug, PartialEq)]
    struct Payload(u32);
    everywhere(|| {
        // Resumed, so no hook prints the panic.
        let task = || gmp_tokio::run(async { std::panic::resume_unwind(Box::new(Payload(7))) });
        let payload = catch_unwind(AssertUnwindSafe(task)).expect_err("it panics");
        assert_eq!(payload.downcast_ref(), Some(&Payload(7)));
        let polled = || gmp::block_on(async { std::panic::resume_unwind(Box::new(Payload(8))) });
        let payload = catch_unwind(AssertUnwindSafe(polled)).expect_err("it panics");
        assert_eq!(payload.downcast_ref(), Some(&Payload(8)));
        // The reactor goes on.
        assert_eq!(gmp_tokio::run(async { 9 }), 9);
    });
}
