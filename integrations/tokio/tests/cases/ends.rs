use crate::support::{Flag, MINUTE, MS, alone, build, everywhere, installed, many, until};
use gmp::context::{Context, ContextError};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use tokio::time::sleep;

/// Fails if the caller unwinds while the task still has its values: a destructor on the unwinding stack checks that.
#[test]
fn a_context_that_is_done_ends_run_when_the_tasks_future_is_dropped() {
    struct Looks(Arc<AtomicBool>, Arc<AtomicBool>);
    impl Drop for Looks {
        fn drop(&mut self) {
            self.1.store(self.0.load(SeqCst), SeqCst);
        }
    }
    everywhere(|| {
        many(20, |n| {
            let (dropped, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let (context, cancel) = Context::background().with_cancel();
            let (begun, begins) = tokio::sync::oneshot::channel();
            let runs = gmp::go({
                let (flag, looks) =
                    (Flag(Arc::clone(&dropped)), Looks(Arc::clone(&dropped), Arc::clone(&seen)));
                move || {
                    context.run(|| {
                        let _looks = looks;
                        gmp_tokio::run(async move {
                            let _flag = flag;
                            begun.send(()).unwrap();
                            if n % 2 == 0 {
                                pending::<()>().await;
                            }
                            // A busy task: the abort finds it queued, or being polled.
                            loop {
                                tokio::task::yield_now().await;
                            }
                        })
                    })
                }
            });
            gmp::block_on(begins).unwrap();
            cancel.cancel();
            assert_eq!(runs.join().unwrap(), Err(ContextError::Canceled));
            assert!(seen.load(SeqCst), "it unwound with the future still there");
        });
    });
}

/// Fails if a limit ends no wait, or ends it too early; or if the future runs although its limit has passed before.
#[test]
fn a_limit_ends_run_and_block_on() {
    everywhere(|| {
        many(10, |_| {
            assert!(gmp::time::timeout(MS, || gmp_tokio::run(pending::<()>())).is_err());
            assert!(gmp::time::timeout(MS, || gmp::block_on(sleep(MINUTE))).is_err());
            assert!(gmp::time::timeout(MINUTE, || gmp_tokio::run(sleep(MS))).is_ok());
        });
    });
}

/// Fails by an abort when a destructor panics during an unwind, or if the task that the destructor spawns does not run.
#[test]
fn a_destructor_that_spawns_while_a_context_unwinds_it_has_the_reactor() {
    struct Spawns(Arc<AtomicUsize>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let done = Arc::clone(&self.0);
            let task = tokio::spawn(async move {
                sleep(MS).await;
                done.fetch_add(1, SeqCst);
            });
            gmp::block_on(task).unwrap();
            gmp_tokio::run(sleep(MS));
        }
    }
    everywhere(|| {
        let done = Arc::new(AtomicUsize::new(0));
        let theirs = Arc::clone(&done);
        many(20, move |_| {
            // One value is on the stack, one in the future.
            let on_stack = || {
                let _spawns = Spawns(Arc::clone(&theirs));
                gmp::block_on(pending::<()>());
            };
            assert!(gmp::time::timeout(MS, on_stack).is_err());
            let spawns = Spawns(Arc::clone(&theirs));
            let in_future = move || {
                gmp::block_on(async move {
                    let _spawns = spawns;
                    pending::<()>().await;
                })
            };
            assert!(gmp::time::timeout(MS, in_future).is_err());
        });
        assert_eq!(done.load(SeqCst), 40);
    });
}

/// A connection of a pool, as several crates have it: its drop spawns a task that gives the connection back.
struct Pooled(Option<tokio::net::UnixStream>, tokio::sync::mpsc::UnboundedSender<tokio::net::UnixStream>);

impl Drop for Pooled {
    fn drop(&mut self) {
        let (stream, pool) = (self.0.take().unwrap(), self.1.clone());
        tokio::spawn(async move { pool.send(stream) });
    }
}

/// Fails by tokio's panic if the context exists only during a poll.
#[test]
fn a_pools_connection_is_given_back_after_block_on() {
    everywhere(|| {
        many(10, |_| {
            let (give_back, mut pool) = tokio::sync::mpsc::unbounded_channel();
            let (stream, _other) = tokio::net::UnixStream::pair().unwrap();
            let pooled = gmp::block_on(async {
                tokio::task::yield_now().await;
                Pooled(Some(stream), give_back)
            });
            gmp::yield_now();
            drop(pooled);
            assert!(gmp::block_on(pool.recv()).is_some());
        });
    });
}

/// Fails by tokio's panic if each poll enters the context: a nested call would leave the context of the outer one.
#[test]
fn block_on_nests_and_a_polled_future_parks() {
    everywhere(|| {
        many(20, |n| {
            let got = gmp::block_on(async move {
                sleep(MS / 4).await;
                let inner = gmp::block_on(async {
                    sleep(MS / 4).await;
                    gmp::time::sleep(MS / 4);
                    gmp_tokio::run(async move { n })
                });
                gmp::yield_now();
                // The context is still there.
                let spawned = tokio::spawn(async move { inner + 1 });
                sleep(MS / 4).await;
                spawned.await.unwrap()
            });
            assert_eq!(got, n + 1);
        });
    });
}

/// Fails if the end of the runtime waits for a future that is never ready, or does not drop a future.
#[test]
fn the_end_of_the_runtime_ends_run_and_block_on() {
    alone(|| {
        let rt = build(installed());
        let dropped: Vec<_> = (0..20).map(|_| Arc::new(AtomicBool::new(false))).collect();
        let begun = Arc::new(AtomicUsize::new(0));
        for (n, dropped) in dropped.iter().enumerate() {
            let (flag, begun) = (Flag(Arc::clone(dropped)), Arc::clone(&begun));
            let future = async move {
                let _flag = flag;
                begun.fetch_add(1, SeqCst);
                pending::<()>().await;
            };
            rt.go(move || if n % 2 == 0 { gmp_tokio::run(future) } else { gmp::block_on(future) });
        }
        until(|| begun.load(SeqCst) == 20);
        assert!(rt.shutdown(MINUTE).is_clean());
        assert!(dropped.iter().all(|one| one.load(SeqCst)));
    });
}

/// Fails if an abort does not reach a goroutine that waits for tokio.
#[test]
fn an_aborted_goroutine_ends_its_task() {
    everywhere(|| {
        let dropped = Arc::new(AtomicBool::new(false));
        let (flag, (begun, begins)) = (Flag(Arc::clone(&dropped)), tokio::sync::oneshot::channel());
        let (joined, abort) = gmp::go_abortable(move || {
            gmp_tokio::run(async move {
                let _flag = flag;
                begun.send(()).unwrap();
                pending::<()>().await;
            })
        });
        gmp::block_on(begins).unwrap();
        abort.abort();
        assert!(joined.join().unwrap_err().is_aborted());
        assert!(dropped.load(SeqCst));
    });
}
