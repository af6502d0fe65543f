//! `WaitGroup` and `ErrGroup`.

use crate::support::{cast, rounds, with_every_cast};
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::context::{Context, ContextError};
use gmp::sync::{ErrGroup, WaitGroup};
use gmp::{Builder, Priority, Runtime, yield_now};
use std::io::ErrorKind;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Fails by a count when a wait returns early, or by a hang when the last `done` wakes no waiter. The group is used again and
/// again.
#[test]
fn a_wait_returns_when_all_is_done() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(3_000);
        let (tasks, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
        let workers = goroutines + threads;
        for round in 1..=rounds / 100 {
            tasks.add(workers as isize);
            let (theirs, does) = (tasks.clone(), Arc::clone(&done));
            let waiter = rt.go({
                let (tasks, done) = (tasks.clone(), Arc::clone(&done));
                move || {
                    tasks.wait();
                    assert!(done.load(SeqCst) >= round * workers);
                }
            });
            cast(rt, goroutines, threads, move |_| {
                does.fetch_add(1, SeqCst);
                theirs.done();
            });
            tasks.wait();
            assert_eq!(done.load(SeqCst), round * workers);
            waiter.join().unwrap();
        }
    });
}

/// Fails by a hang when a waiter for one zero is not woken because another member adds at once; or by an early return when the
/// `done` of one zero wakes a waiter for the next.
#[test]
fn a_group_that_is_used_again_at_once_wakes_the_right_waiters() {
    everywhere(|rt| {
        let rounds = rounds(20_000);
        rt.run(move || {
            let (tasks, phase) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
            for round in 0..rounds {
                tasks.add(1);
                let (theirs, phase_too) = (tasks.clone(), Arc::clone(&phase));
                let waiter = gmp::go(move || {
                    let seen = phase_too.load(SeqCst);
                    theirs.wait();
                    assert!(phase_too.load(SeqCst) > seen || seen > round);
                });
                gmp::yield_now();
                phase.store(round + 1, SeqCst);
                tasks.done();
                tasks.add(1);
                gmp::yield_now();
                tasks.done();
                waiter.join().unwrap();
            }
        });
    });
}

/// Fails by a hang when a goroutine that panics does not count down.
#[test]
fn a_panic_counts_down() {
    everywhere(|rt| {
        rt.run(|| {
            let tasks = WaitGroup::new();
            for number in 0..10 {
                tasks.go(move || {
                    if number % 2 == 0 {
                        resume_unwind(Box::new("on purpose"));
                    }
                });
            }
            tasks.wait();
        });
    });
}

fn message(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    payload
        .downcast::<String>()
        .map_or_else(|payload| (*payload.downcast::<&str>().unwrap()).to_owned(), |text| *text)
}

#[test]
fn wrong_use_panics_and_changes_nothing() {
    let tasks = WaitGroup::new();
    assert!(message(|| tasks.done()).contains("below zero"));
    tasks.add(2);
    assert!(message(|| tasks.add(-3)).contains("below zero"));
    assert!(message(|| tasks.add(isize::MAX)).contains("does not fit"));
    assert!(message(|| tasks.go(|| ())).contains("not called on a goroutine"));
    assert_eq!(format!("{tasks:?}"), "WaitGroup { count: 2 }");
    tasks.add(-2);
    tasks.wait();
    let group = ErrGroup::<()>::new();
    assert!(message(|| group.go(|| Ok(()))).contains("ErrGroup::go: not called on a goroutine"));
    assert_eq!(group.wait(), Ok(()));
}

/// Fails by the error when `wait` returns a later one, or by the sum when it returns before all have ended.
#[test]
fn the_first_error_counts() {
    everywhere(|rt| {
        rt.run(|| {
            let (group, context) = ErrGroup::with_context(&Context::background());
            let (ended, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
            for number in 0..8 {
                let (ended, gate) = (Arc::clone(&ended), Arc::clone(&gate));
                group.go(move || {
                    if number != 3 {
                        until(|| gate.load(SeqCst));
                    }
                    ended.fetch_add(1, SeqCst);
                    if number == 3 { Err(3) } else { Ok(()) }
                });
            }
            // The context ends when the group has the error.
            let _canceled = context.done().recv();
            assert_eq!(ended.load(SeqCst), 1);
            group.go(|| Err(4));
            gate.store(true, SeqCst);
            assert_eq!(group.wait(), Err(3));
            assert_eq!(ended.load(SeqCst), 8);
            // The first wait has taken the error; the group may be used again.
            assert_eq!(group.wait(), Ok(()));
        });
    });
}

/// Fails when a panic is swallowed, or when `wait` hangs.
#[test]
fn a_panic_of_a_task_is_passed_on_by_wait() {
    everywhere(|rt| {
        rt.run(|| {
            let group = ErrGroup::<()>::new();
            group.go(|| Err(()));
            group.go(|| resume_unwind(Box::new("on purpose")));
            let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), "on purpose");
        });
    });
}

/// Fails when the error is lost with a panic, or one of the two is told twice.
#[test]
fn a_panic_leaves_the_error_to_the_next_wait() {
    everywhere(|rt| {
        rt.run(|| {
            let group = ErrGroup::new();
            group.go(|| Err("an error"));
            group.go(|| resume_unwind(Box::new("on purpose")));
            let payload = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), "on purpose");
            assert_eq!(group.wait(), Err("an error"));
            assert_eq!(group.wait(), Ok(()));
        });
    });
}

/// A value whose drop panics.
#[derive(Debug)]
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        resume_unwind(Box::new("a drop"));
    }
}

/// Fails when a result that is not reported panics as it is dropped, and the group then reports its task as one without a
/// result.
#[test]
fn a_failure_that_is_not_reported_may_panic_as_it_is_dropped() {
    everywhere(|rt| {
        rt.run(|| {
            let group = ErrGroup::<Option<Bomb>>::with_limit(1);
            group.go(|| resume_unwind(Box::new("on purpose")));
            group.go(|| resume_unwind(Box::new(Bomb)));
            group.go(|| Err(None));
            group.go(|| Err(Some(Bomb)));
            let payload = catch_unwind(AssertUnwindSafe(|| group.wait().is_ok())).unwrap_err();
            assert_eq!(*payload.downcast::<&str>().unwrap(), "on purpose");
            assert!(matches!(group.wait(), Err(None)));
            assert!(matches!(group.wait(), Ok(())));
        });
    });
}

/// Fails when a task that called `goexit` counts as a success, hides the error of another, or leaves the context open.
#[test]
fn a_task_without_a_result_is_no_success() {
    everywhere(|rt| {
        rt.run(|| {
            let (group, context) = ErrGroup::with_context(&Context::background());
            group.go(|| Ok(()));
            group.go(|| gmp::goexit());
            let _cancelled = context.done().recv();
            let text = message(|| _ = group.wait());
            assert!(text.contains("ended without a result"), "{text}");
            assert_eq!(group.wait(), Ok(()));
            group.go(|| gmp::goexit());
            group.go(|| Err("an error"));
            assert_eq!(group.wait(), Err("an error"));
            assert!(message(|| _ = group.wait()).contains("ended without a result"));
            assert_eq!(group.wait(), Ok(()));
        });
    });
}

/// A plain thread waits for tasks whose runtime ends: one parks, one has not begun. Fails when they count as successes.
#[test]
fn tasks_that_end_with_their_runtime_are_no_successes() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let group = Arc::new(ErrGroup::<()>::new());
            let (theirs, began) = (Arc::clone(&group), Arc::new(AtomicBool::new(false)));
            let begins = Arc::clone(&began);
            rt.run(move || {
                theirs.go(move || {
                    begins.store(true, SeqCst);
                    gmp::sync::Event::new().wait();
                    Ok(())
                });
            });
            until(|| began.load(SeqCst));
            drop(rt);
            assert!(message(|| _ = group.wait()).contains("ended without a result"));
        });
    }
}

/// Fails by a count when more tasks run at a time than the limit says.
#[test]
fn a_limit_holds() {
    everywhere(|rt| {
        rt.run(|| {
            let group = ErrGroup::<()>::with_limit(3);
            let counts = Arc::new((AtomicUsize::new(0), AtomicUsize::new(0)));
            for _ in 0..50 {
                let counts = Arc::clone(&counts);
                group.go(move || {
                    let now = counts.0.fetch_add(1, SeqCst) + 1;
                    assert!(now <= 3, "{now} at a time");
                    gmp::yield_now();
                    counts.1.fetch_add(1, SeqCst);
                    counts.0.fetch_sub(1, SeqCst);
                    Ok(())
                });
            }
            assert_eq!(group.wait(), Ok(()));
            assert_eq!(counts.1.load(SeqCst), 50);
            let gate = Arc::new(AtomicBool::new(false));
            for _ in 0..3 {
                let gate = Arc::clone(&gate);
                assert!(group.try_go(move || {
                    until(|| gate.load(SeqCst));
                    Ok(())
                }));
            }
            assert!(!group.try_go(|| unreachable!()));
            assert!(message(|| group.set_limit(1)).contains("while goroutines"));
            gate.store(true, SeqCst);
            assert_eq!(group.wait(), Ok(()));
            group.set_limit(0);
            assert!(!group.try_go(|| unreachable!()));
        });
    });
}

/// Fails by a hang when a caller that waits at a limit is not told of the next limit.
#[test]
fn a_caller_that_waits_at_a_limit_goes_by_the_next_one() {
    everywhere(|rt| {
        let group = Arc::new(ErrGroup::<()>::with_limit(0));
        let (theirs, ran) = (Arc::clone(&group), Arc::new(AtomicBool::new(false)));
        let runs = Arc::clone(&ran);
        let waits = rt.go(move || {
            theirs.go(move || {
                runs.store(true, SeqCst);
                Ok(())
            });
        });
        until(|| rt.dump().contains("[semacquire"));
        group.set_limit(0);
        assert!(!waits.is_finished());
        group.set_limit(1);
        waits.join().unwrap();
        assert_eq!(group.wait(), Ok(()));
        assert!(ran.load(SeqCst));
    });
}

/// Fails if the context of a group outlives the group's first failure, or its wait.
#[test]
fn the_context_of_a_group_ends_with_its_first_failure_or_its_wait() {
    everywhere(|rt| {
        rt.run(|| {
            let (group, context) = ErrGroup::with_context(&Context::background());
            for _ in 0..10 {
                let context = context.clone();
                group.go(move || {
                    context
                        .run(|| gmp::chan::never::<()>().recv())
                        .map_or(Ok(()), |_| Err("a value from nowhere"))
                });
            }
            assert_eq!(context.err(), None);
            group.go(|| Err("failed"));
            assert_eq!(group.wait(), Err("failed"));
            assert_eq!(context.err(), Some(ContextError::Canceled));

            let (group, context) = ErrGroup::<()>::with_context(&Context::background());
            group.go(|| Ok(()));
            assert_eq!((group.wait(), context.err()), (Ok(()), Some(ContextError::Canceled)));
        });
    });
}

/// Fails when the group does not count a task, or counts it after its end, and when a task lacks its builder's name.
#[test]
fn a_builder_starts_a_task_of_a_group() {
    everywhere(|rt| {
        rt.run(|| {
            let (tasks, done) = (WaitGroup::new(), Arc::new(AtomicUsize::new(0)));
            for n in 0..20 {
                let done = Arc::clone(&done);
                let task = move || {
                    yield_now();
                    assert_eq!(gmp::current().unwrap().name(), Some("a task"));
                    done.fetch_add(1, SeqCst);
                    if n % 2 == 0 {
                        // Past the panic hook, which would print.
                        resume_unwind(Box::new("a task's own"));
                    }
                };
                Builder::new().name("a task").go_counted(&tasks, task).unwrap();
            }
            tasks.wait();
            assert_eq!(done.load(SeqCst), 20);
        });
    });
}

/// Fails by the error when a builder's task reports no result, or reports it to no waiter; by the most tasks that run at a
/// time; or when a name or a class is not the builder's.
#[test]
fn a_builder_starts_a_task_of_an_error_group() {
    everywhere(|rt| {
        rt.run(|| {
            let (group, most) =
                (ErrGroup::with_limit(2), Arc::new((AtomicUsize::new(0), AtomicUsize::new(0))));
            for n in 0..20 {
                let most = Arc::clone(&most);
                let task = move || {
                    most.1.fetch_max(most.0.fetch_add(1, SeqCst) + 1, SeqCst);
                    yield_now();
                    assert_eq!(gmp::current().unwrap().name(), Some("a task"));
                    most.0.fetch_sub(1, SeqCst);
                    if n == 7 { Err(n) } else { Ok(()) }
                };
                Builder::new().name("a task").priority(Priority::High).go_grouped(&group, task).unwrap();
            }
            assert_eq!((group.wait(), group.wait()), (Err(7), Ok(())));
            assert!(most.1.load(SeqCst) <= 2);
            group.set_limit(0);
            let odd = Builder::new().stack_size(1).go_grouped(&group, || Ok(())).unwrap_err();
            assert_eq!(odd.kind(), ErrorKind::InvalidInput, "without a wait for the limit");
        });
        let group = ErrGroup::<()>::new();
        let from_a_thread = || _ = Builder::new().go_grouped(&group, || Ok(()));
        assert!(message(from_a_thread).contains("Builder::go_grouped: not called on a goroutine"));
    });
}

/// Fails by a count when a wait ends before tasks that tasks have started; or by the error of the last of these tasks.
#[test]
fn a_task_starts_others_in_its_group() {
    fn split(group: &ErrGroup<u32>, depth: u32, begun: &Arc<AtomicUsize>) -> Result<(), u32> {
        begun.fetch_add(1, SeqCst);
        yield_now();
        for _ in 0..2 {
            if depth == 0 {
                return if begun.load(SeqCst) == 127 { Err(depth) } else { Ok(()) };
            }
            let (theirs, begun) = (group.clone(), Arc::clone(begun));
            group.go(move || split(&theirs, depth - 1, &begun));
        }
        Ok(())
    }
    everywhere(|rt| {
        rt.run(|| {
            let (group, begun) = (ErrGroup::new(), Arc::default());
            let (theirs, begins) = (group.clone(), Arc::clone(&begun));
            group.go(move || split(&theirs, 6, &begins));
            assert_eq!((group.clone().wait(), begun.load(SeqCst)), (Err(0), 127));
            assert_eq!(group.wait(), Ok(()), "told once");
        });
    });
}

/// Fails if a call that gets no stack leaves its task, its permit or its closure behind, or reports a task without a result.
#[test]
fn a_task_that_gets_no_stack_leaves_its_group_as_it_was() {
    const STACK: usize = 64 << 10;
    // The second text is the `generator` backend's.
    let says_so = |text: &String| {
        ["go: a stack of 64 KiB", "go: a stack of 65536 bytes"].iter().any(|begin| text.starts_with(begin))
    };
    for procs in PROCS {
        watched(procs, || {
            // The main goroutine has the only stack.
            let builder = Runtime::builder().procs(procs).stack_size(STACK).max_stack_bytes(STACK);
            // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
            let rt = unsafe { builder.build() }.unwrap();
            rt.run(|| {
                let (group, context) = ErrGroup::<()>::with_context(&Context::background());
                group.set_limit(1);
                let held = Arc::new(());
                let task = || {
                    let held = Arc::clone(&held);
                    move || {
                        drop(held);
                        Ok(())
                    }
                };
                for _ in 0..3 {
                    let refusals = [message(|| group.go(task())), message(|| _ = group.try_go(task()))];
                    assert!(refusals.iter().all(says_so), "{refusals:?}");
                }
                let refused = Builder::new().go_grouped(&group, task()).unwrap_err();
                assert!(says_so(&format!("go: {refused}")), "{refused}");
                assert_eq!((Arc::strong_count(&held), context.err()), (1, None));
                assert_eq!(group.wait(), Ok(()));
                let group = WaitGroup::new();
                message(|| group.go(|| ()));
                group.wait();
                let (held, task) = (Arc::clone(&held), task());
                let refused = Builder::new().go_counted(&group, move || _ = task()).unwrap_err();
                assert!(says_so(&format!("go: {refused}")), "{refused}");
                let odd = Builder::new().stack_size(1).go_counted(&group, || ()).unwrap_err();
                assert_eq!(odd.kind(), ErrorKind::InvalidInput);
                group.wait();
                assert_eq!(Arc::strong_count(&held), 2, "here, and outside");
            });
        });
    }
}
