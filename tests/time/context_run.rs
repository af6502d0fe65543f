//! Running under a context: blocking calls are unwound when the context is done, on goroutines and on plain threads; and when
//! they are not.
//!
//! The operations that block are in one table, [`operations`]; each property is checked for all of them.

mod catchers;

use common::bolt::bolted;
use common::dumps;
use common::within::within;
use common::{PROCS, effort, everywhere, runtime, until, watched};
use gmp::chan::{bounded, never};
use gmp::context::{Context, ContextError};
use gmp::sync::{Event, Semaphore, WaitGroup};
use gmp::{Runtime, go, select, time, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);
const CANCELED: Result<(), ContextError> = Err(ContextError::Canceled);

type Do = Box<dyn FnOnce() + Send>;

/// Returns how many goroutines wait for an event.
fn waiters(rt: &Runtime) -> usize {
    dumps::read(&rt.dump()).iter().filter(|g| g.1.starts_with("event")).count()
}

/// One call that blocks: its name, the dump's text for a goroutine in that call, and a function that makes the call, and
/// another call that ends it normally.
struct Operation {
    name: &'static str,
    dumped: &'static str,
    make: fn(&Runtime) -> (Do, Do),
}

fn operations() -> [Operation; 12] {
    let op = |name, dumped, make| Operation { name, dumped, make };
    [
        op("sleep", "[sleep", |_| {
            // No partner ends it.
            (Box::new(|| time::sleep(HOUR)), Box::new(|| ()))
        }),
        op("sleep_until", "[sleep", |_| {
            let at = Instant::now() + HOUR;
            (Box::new(move || time::sleep_until(at)), Box::new(|| ()))
        }),
        op("join", "[join", |rt| {
            let event = Arc::new(Event::new());
            let ends = Arc::clone(&event);
            let child = rt.go(move || event.wait());
            (Box::new(move || child.join().unwrap()), Box::new(move || ends.notify_one()))
        }),
        op("Event::wait", "[event", |_| {
            let event = Arc::new(Event::new());
            let ends = Arc::clone(&event);
            (Box::new(move || event.wait()), Box::new(move || ends.notify_one()))
        }),
        op("chan recv", "[chan receive", |_| {
            // Each side keeps the other half, so that only a message ends the wait.
            let (s, r) = bounded(1);
            let ends = s.clone();
            let block = move || assert_eq!((r.recv(), s.is_closed()), (Ok(7), false));
            (
                Box::new(block),
                Box::new(move || {
                    let _too_late = ends.send(7);
                }),
            )
        }),
        op("chan send", "[chan send", |_| {
            let (s, r) = bounded(1);
            s.send(0).unwrap();
            let ends = r.clone();
            let block = move || assert_eq!((s.send(7), r.is_closed()), (Ok(()), false));
            (
                Box::new(block),
                Box::new(move || {
                    let _too_late = ends.recv();
                }),
            )
        }),
        op("chan recv_timeout", "[chan receive", |_| {
            let (s, r) = bounded(1);
            let ends = s.clone();
            let block = move || assert_eq!((r.recv_timeout(HOUR), s.is_closed()), (Ok(7), false));
            (
                Box::new(block),
                Box::new(move || {
                    let _too_late = ends.send(7);
                }),
            )
        }),
        op("select!", "[select", |_| {
            let ((s, r), (other, others)) = (bounded(1), bounded::<u8>(0));
            let ends = s.clone();
            let block = move || {
                select! {
                    recv(r) -> got => assert_eq!(got, Ok(7)),
                    send(other, 1) -> _ => unreachable!(),
                }
                drop((s, others));
            };
            (
                Box::new(block),
                Box::new(move || {
                    let _too_late = ends.send(7);
                }),
            )
        }),
        op("sleep by a disabled channel", "[chan receive (never)", |_| {
            // No partner ends it.
            (Box::new(|| assert!(never::<u8>().recv_timeout(HOUR).is_err())), Box::new(|| ()))
        }),
        op("Semaphore::acquire", "[sem", |_| {
            let semaphore = Arc::new(Semaphore::new(1));
            semaphore.acquire(1);
            let ends = Arc::clone(&semaphore);
            (Box::new(move || semaphore.acquire(1)), Box::new(move || ends.release(1)))
        }),
        op("WaitGroup::wait", "[sync.WaitGroup", |_| {
            let group = WaitGroup::new();
            group.add(1);
            let ends = group.clone();
            (Box::new(move || group.wait()), Box::new(move || ends.done()))
        }),
        op("Context::done", "[", |_| {
            let (ctx, cancel) = Context::background().with_cancel();
            (Box::new(move || assert!(ctx.done().recv().is_err())), Box::new(move || cancel.cancel()))
        }),
    ]
}

/// Checks that the property holds for each operation, in a runtime of each size.
fn of_each_operation(property: impl Fn(&Runtime, &Operation)) {
    for procs in PROCS {
        for operation in operations() {
            let rt = runtime(procs);
            println!("{}, procs = {procs}", operation.name);
            watched(procs, || property(&rt, &operation));
        }
    }
}

/// Runs `f` on a goroutine and, after that, on a plain thread, each time beside `beside`.
fn on_both<T: Send + 'static>(
    rt: &Runtime,
    make: impl Fn() -> (Box<dyn FnOnce() -> T + Send>, Do),
) -> [T; 2] {
    let (f, beside) = make();
    let goroutine = rt.go(f);
    beside();
    let first = goroutine.join().unwrap();
    let (f, beside) = make();
    let second = thread::scope(|s| {
        let thread = s.spawn(f);
        beside();
        thread.join().unwrap()
    });
    [first, second]
}

/// Notes that it was dropped.
struct Dropped(Arc<AtomicUsize>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Fails by a hang when an operation is not told of the cancel, whether that comes before, at the beginning, or later.
#[test]
fn a_cancel_unwinds_goroutines_that_block_in_any_operation() {
    of_each_operation(|rt, operation| {
        for round in 0..12 {
            let drops = Arc::new(AtomicUsize::new(0));
            let results = on_both(rt, || {
                let (ctx, cancel) = Context::background().with_cancel();
                // A cancel of the parent is a cancel here.
                let ctx = if round % 2 == 0 { ctx } else { ctx.with_cancel().0.with_value(1_u8) };
                let (block, _never) = (operation.make)(rt);
                let (dropped, begun) = (Dropped(Arc::clone(&drops)), Arc::new(AtomicBool::new(false)));
                let begins = Arc::clone(&begun);
                if round < 2 {
                    cancel.cancel();
                }
                let f = move || {
                    let result = ctx.run(|| {
                        let _dropped = dropped;
                        begins.store(true, SeqCst);
                        block();
                    });
                    (result, ctx.err())
                };
                let turns = round * 40;
                let beside = move || {
                    until(|| begun.load(SeqCst));
                    within(5 * MS, turns).for_each(|_| yield_now());
                    cancel.cancel();
                };
                (Box::new(f), Box::new(beside))
            });
            for result in results {
                assert_eq!(result, (CANCELED, Some(ContextError::Canceled)), "{}", operation.name);
            }
            assert_eq!(drops.load(SeqCst), 2);
        }
        // The goroutine is surely asleep.
        let (ctx, cancel) = Context::background().with_cancel();
        let (block, _never) = (operation.make)(rt);
        let asleep = rt.go(move || ctx.run(block));
        until(|| rt.dump().contains(operation.dumped));
        cancel.cancel();
        assert_eq!(asleep.join().unwrap(), CANCELED);
    });
}

/// Fails if a deadline does not end a wait, or ends it as a cancel.
#[test]
fn a_deadline_unwinds_as_a_cancel_does() {
    of_each_operation(|rt, operation| {
        let results = on_both(rt, || {
            let (block, _never) = (operation.make)(rt);
            let f = move || {
                let (ctx, _keep) = Context::background().with_timeout(2 * MS);
                ctx.run(block)
            };
            (Box::new(f), Box::new(|| ()))
        });
        assert_eq!(results, [Err(ContextError::DeadlineExceeded); 2], "{}", operation.name);
    });
}

/// Fails if a call ends before the limit or never, or if a limit that has passed ends what does not have to wait.
#[test]
fn calls_share_a_limit() {
    watched(4, || {
        let calls = || {
            let limit = Instant::now() + 2 * MS;
            for _ in 0..3 {
                assert_eq!(
                    time::timeout_until(limit, || time::sleep(HOUR)),
                    Err(ContextError::DeadlineExceeded)
                );
                assert!(Instant::now() >= limit);
                assert_eq!(time::timeout_until(limit, || 7), Ok(7));
            }
            assert_eq!(time::timeout_until(Instant::now() + HOUR, || time::sleep(MS)), Ok(()));
        };
        runtime(4).run(calls);
        calls();
    });
}

/// Fails if the normal end of an operation, which came before the cancel, does not count.
#[test]
fn what_has_come_before_the_cancel_counts() {
    of_each_operation(|rt, operation| {
        if operation.name.starts_with("sleep") {
            return;
        }
        let results = on_both(rt, || {
            let (ctx, cancel) = Context::background().with_cancel();
            let (block, release) = (operation.make)(rt);
            release();
            if operation.name == "join" {
                until(|| rt.num_goroutines() == 0);
            }
            cancel.cancel();
            (Box::new(move || ctx.run(|| (block(), 5).1)), Box::new(|| ()))
        });
        assert_eq!(results, [Ok(5); 2], "{}", operation.name);
    });
}

/// The cancel and the partner come at once. Fails by a hang, or if a wait ends neither way.
#[test]
fn a_cancel_and_a_counterpart_at_once_end_a_wait_once() {
    of_each_operation(|rt, operation| {
        if operation.name.starts_with("sleep") {
            return;
        }
        for round in 0..effort() * 60 {
            let results = on_both(rt, || {
                let (ctx, cancel) = Context::background().with_cancel();
                let (block, release) = (operation.make)(rt);
                let beside: Do = match round % 3 {
                    0 => Box::new(move || (release(), cancel.cancel()).0),
                    1 => Box::new(move || (cancel.cancel(), release()).0),
                    _ => Box::new(move || {
                        let other = thread::spawn(release);
                        cancel.cancel();
                        other.join().unwrap();
                    }),
                };
                (Box::new(move || ctx.run(block)), beside)
            });
            assert!(results.iter().all(|result| [Ok(()), CANCELED].contains(result)));
        }
    });
}

/// Fails if an interrupted waiter swallows a notification: those behind it wait for ever.
#[test]
fn a_notification_is_not_lost_with_a_waiter_that_is_unwound() {
    everywhere(|rt| {
        for round in 0..effort() * 40 {
            let event = Arc::new(Event::new());
            let (ctx, cancel) = Context::background().with_cancel();
            let under_it = Vec::from_iter((0..4).map(|_| {
                let (ctx, event) = (ctx.clone(), Arc::clone(&event));
                rt.go(move || ctx.run(|| event.wait()))
            }));
            until(|| waiters(&rt) == 4);
            let theirs = Arc::clone(&event);
            let last = rt.go(move || theirs.wait());
            until(|| waiters(&rt) == 5);
            let theirs = Arc::clone(&event);
            let both = move || match round % 4 {
                0 | 1 => (theirs.notify_one(), cancel.cancel()).0,
                _ => (cancel.cancel(), theirs.notify_one()).1,
            };
            // With one P no waiter runs between the two calls of a goroutine.
            if round % 2 == 0 {
                rt.run(both)
            } else {
                both()
            }
            let results = under_it.into_iter().map(|one| one.join().unwrap());
            let taken = results.filter(Result::is_ok).count();
            assert!(taken <= 1);
            if taken == 1 {
                event.notify_one();
            }
            // The last waiter gets the permit, or the notification itself.
            last.join().unwrap();
        }
    });
}

/// Fails if a context that is done ends a call that does not wait, or the value of `f` is lost.
#[test]
fn what_does_not_wait_goes_on_under_a_context_that_is_done() {
    everywhere(|rt| {
        let results = on_both(&rt, || {
            let (ctx, cancel) = Context::background().with_cancel();
            cancel.cancel();
            let f = move || {
                ctx.run(|| {
                    let event = Event::new();
                    event.notify_one();
                    event.wait();
                    time::sleep(Duration::ZERO);
                    7
                })
            };
            (Box::new(f), Box::new(|| ()))
        });
        assert_eq!(results, [Ok(7); 2]);
    });
}

/// Fails if goroutines that `f` starts run under the context.
#[test]
fn what_was_started_inside_is_not_interrupted() {
    everywhere(|rt| {
        rt.run(|| {
            let (ctx, cancel) = Context::background().with_cancel();
            let event = Arc::new(Event::new());
            let theirs = Arc::clone(&event);
            let child = ctx.run(|| go(move || theirs.wait())).unwrap();
            cancel.cancel();
            (0..10).for_each(|_| yield_now());
            assert!(!child.is_finished());
            event.notify_one();
            child.join().unwrap();
        });
    });
}

/// Fails if a scope, or `run`, returns while goroutines for which it waits run; or if the interrupt is lost with it.
#[test]
fn a_scope_and_a_runtimes_run_wait_to_the_end() {
    everywhere(|rt| {
        rt.run(|| {
            let (ctx, cancel) = Context::background().with_cancel();
            let (event, ended) = (Event::new(), AtomicBool::new(false));
            let result = ctx.run(|| {
                gmp::scope(|s| {
                    s.go(|| {
                        event.wait();
                        ended.store(true, SeqCst);
                    });
                    s.go(|| {
                        cancel.cancel();
                        (0..20).for_each(|_| yield_now());
                        assert!(!ended.load(SeqCst));
                        event.notify_one();
                    });
                });
                // The scope was not interrupted; the next wait is.
                assert!(ended.load(SeqCst));
                Event::new().wait();
            });
            assert_eq!(result, CANCELED);
        });
        let (ctx, cancel) = Context::background().with_cancel();
        let result = ctx.run(|| {
            rt.run(|| {
                cancel.cancel();
                time::sleep(MS);
                4
            })
        });
        assert_eq!(result, Ok(4));
    });
}

/// The body of a scope is unwound while its goroutines borrow from above the scope. Fails by a use of freed memory, or a hang.
#[test]
fn a_scope_inside_is_unwound_after_its_goroutines() {
    everywhere(|rt| {
        rt.run(|| {
            let (ctx, cancel) = Context::background().with_cancel();
            let steps = AtomicUsize::new(0);
            let result = ctx.run(|| {
                let numbers = vec![1, 2, 3];
                gmp::scope(|s| {
                    for number in &numbers {
                        let (ctx, cancel, steps) = (&ctx, &cancel, &steps);
                        s.go(move || {
                            // The goroutine itself chooses to run under the context.
                            let inside = ctx.run(|| {
                                cancel.cancel();
                                Event::new().wait();
                            });
                            assert_eq!(inside, CANCELED);
                            (0..5).for_each(|_| yield_now());
                            steps.fetch_add(*number, SeqCst);
                        });
                    }
                    Event::new().wait();
                });
            });
            assert_eq!((result, steps.load(SeqCst)), (CANCELED, 6));
        });
    });
}

/// A goroutine that its runtime leaves behind is under a context that ends later. Fails by a crash.
#[test]
fn a_context_may_outlive_goroutines_that_were_left_under_it() {
    everywhere(|rt| {
        let (ctx, cancel) = Context::background().with_cancel();
        let left: Vec<_> = (0..10)
            .map(|_| {
                let ctx = ctx.clone();
                rt.go(move || ctx.run(|| bolted(|| Event::new().wait())))
            })
            .collect();
        until(|| waiters(&rt) == 10);
        drop(rt);
        cancel.cancel();
        drop((ctx, cancel));
        assert!(left.into_iter().all(|one| one.join().unwrap_err().is_shutdown()));
    });
}

/// Many goroutines run under one context, and come and go while it ends. Fails by a lost cancel, a crash or a hang.
#[test]
fn a_cancel_races_with_goroutines_that_come_and_go() {
    everywhere(|rt| {
        for _ in 0..effort() * 40 {
            let (ctx, cancel) = Context::background().with_cancel();
            let event = Arc::new(Event::new());
            let work = |ctx: Context, event: Arc<Event>| {
                move || {
                    let mut turns = 0;
                    // A goroutine that always finds its own permit would go on for ever.
                    while ctx.err().is_none() && ctx.run(|| event.wait()).is_ok() {
                        turns += 1;
                        event.notify_one();
                        yield_now();
                    }
                    turns
                }
            };
            let goroutines: Vec<_> = (0..6).map(|_| rt.go(work(ctx.clone(), Arc::clone(&event)))).collect();
            thread::scope(|s| {
                let thread = s.spawn(work(ctx.clone(), Arc::clone(&event)));
                event.notify_one();
                within(5 * MS, 50).for_each(|_| yield_now());
                cancel.cancel();
                thread.join().unwrap();
            });
            for one in goroutines {
                one.join().unwrap();
            }
        }
    });
}

/// Fails by a hang when a goroutine of a context does not run under it; and by a result when a goroutine that this one starts
/// does.
#[test]
fn a_goroutine_of_a_context_ends_with_it() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let (ctx, cancel) = Context::background().with_cancel();
            let apart = rt.run({
                let ctx = ctx.clone();
                move || {
                    let waits = ctx.go(|| Event::new().wait());
                    let starts = ctx.go(|| go(|| Event::new().wait()));
                    let apart = starts.join().unwrap().unwrap();
                    assert_eq!(ctx.go(|| 1).join().unwrap(), Ok(1));
                    assert!(ctx.go(|| resume_unwind(Box::new("a panic"))).join().unwrap_err().is_panic());
                    cancel.cancel();
                    assert_eq!(waits.join().unwrap(), CANCELED);
                    // A goroutine that begins afterwards runs up to its first wait.
                    let steps = Arc::new(AtomicUsize::new(0));
                    let theirs = Arc::clone(&steps);
                    let late = ctx.go(move || {
                        theirs.fetch_add(1, SeqCst);
                        Event::new().wait();
                        theirs.fetch_add(1, SeqCst);
                    });
                    assert_eq!((late.join().unwrap(), steps.load(SeqCst)), (CANCELED, 1));
                    apart
                }
            });
            assert!(!apart.is_finished(), "it was started by `go`, and runs under no context");
            assert!(rt.shutdown(Duration::from_secs(20)).is_clean());
        });
    }
}
