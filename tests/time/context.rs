//! Contexts: how the end of one reaches all contexts that were derived from it and no others, what contexts carry, and that
//! nothing of them is left over.

use common::{child, everywhere, runtime, until, watched};
use gmp::chan::{TryRecvError, bounded};
use gmp::context::{Cancel, Context, ContextError, DropGuard};
use gmp::go;
use gmp::time::sleep;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

#[derive(Debug)]
struct Reason(u32);

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reason {}", self.0)
    }
}

impl Error for Reason {}

fn reason(n: u32) -> Arc<dyn Error + Send + Sync> {
    Arc::new(Reason(n))
}

fn number(ctx: &Context) -> Option<u32> {
    ctx.cause()?.downcast_ref::<Reason>().map(|reason| reason.0)
}

/// Fails by a type when the given value is wrapped; or to compile when it is not accepted.
#[test]
fn a_cause_is_a_text_an_error_or_the_cause_of_another_context() {
    let ended = |end: &dyn Fn(&Cancel)| {
        let (ctx, cancel) = Context::default().with_cancel();
        end(&cancel);
        ctx
    };
    let texts: [&dyn Fn(&Cancel); 2] =
        [&|it| it.cancel_with("why"), &|it| it.cancel_with(String::from("why"))];
    for by_text in texts {
        assert_eq!(ended(by_text).cause().unwrap().to_string(), "why");
    }
    let boxed: &dyn Fn(&Cancel) = &|it| it.cancel_with(Box::<dyn Error + Send + Sync>::from(Reason(7)));
    let first = ended(&|it| it.cancel_with(Reason(7)));
    let handed_on = ended(&|it| it.cancel_with(first.cause().unwrap()));
    for ctx in [&first, &ended(boxed), &handed_on] {
        assert_eq!(number(ctx), Some(7));
    }
    assert!(Arc::ptr_eq(&first.cause().unwrap(), &handed_on.cause().unwrap()));
    let late = Context::default().with_timeout_cause(Duration::ZERO, "too late").0;
    assert_eq!(late.cause().unwrap().to_string(), "too late");
    assert_eq!(late.err(), Some(ContextError::DeadlineExceeded));
}

/// Fails if a cancel stops short of a descendant, or reaches a parent, a sibling, or one without cancel.
#[test]
fn a_cancel_reaches_what_was_derived_and_nothing_else() {
    let root = Context::background();
    let (parent, _keep) = root.with_cancel();
    let (ctx, cancel) = parent.with_cancel();
    let (sibling, _keep) = parent.with_cancel();
    let child = ctx.with_value(1_u8).with_cancel().0;
    let late = child.with_timeout(LONG).0;
    let apart = child.without_cancel();
    cancel.cancel();
    for done in [&ctx, &child, &late] {
        assert_eq!(done.err(), Some(ContextError::Canceled));
        assert_eq!(done.cause().unwrap().to_string(), "context canceled");
    }
    for open in [&root, &parent, &sibling, &apart, &apart.with_cancel().0] {
        assert!(open.err().is_none() && open.cause().is_none());
    }
    assert_eq!(apart.value::<u8>(), Some(&1));
    // A context that is derived from a done one is done.
    assert_eq!(late.with_timeout(LONG).0.err(), Some(ContextError::Canceled));
}

/// Fails when a way out of a function does not end its context, when a disarmed guard ends it, or when a guard replaces the
/// error or the cause that the context has already.
#[test]
fn a_guard_ends_its_context_however_it_is_dropped() {
    let guarded = |leave: fn(DropGuard)| {
        let (context, cancel) = Context::background().with_cancel();
        let below = context.with_cancel().0;
        let left = catch_unwind(AssertUnwindSafe(|| leave(cancel.drop_guard())));
        assert_eq!(below.err(), context.err());
        (left.is_ok(), context.err())
    };
    let canceled = Some(ContextError::Canceled);
    assert_eq!(guarded(drop), (true, canceled));
    assert_eq!(guarded(|_guard| resume_unwind(Box::new("why"))), (false, canceled));
    assert_eq!(guarded(|guard| drop(guard.disarm())), (true, None));
    assert_eq!(guarded(|guard| guard.disarm().cancel()), (true, canceled));

    let (context, cancel) = Context::background().with_cancel();
    let guard = cancel.clone().drop_guard();
    cancel.cancel_with(reason(1));
    drop(guard);
    assert_eq!(number(&context), Some(1));
    let (late, cancel) = Context::background().with_deadline(Instant::now());
    drop(cancel.drop_guard());
    assert_eq!(late.err(), Some(ContextError::DeadlineExceeded));
}

/// Fails when a goroutine goes on waiting after the call that started it was itself unwound.
#[test]
fn a_guard_ends_the_goroutines_of_a_call_that_is_unwound() {
    everywhere(|rt| {
        rt.run(|| {
            let (outer, cancel) = Context::background().with_cancel();
            let (started, begun) = bounded(1);
            let call = outer.go(move || {
                let (inner, cancel) = Context::background().with_cancel();
                let _ends_with_the_call = cancel.drop_guard();
                started.send(inner.go(|| sleep(LONG))).unwrap();
                sleep(LONG);
            });
            let inner = begun.recv().unwrap();
            cancel.cancel();
            assert_eq!(call.join().unwrap(), Err(ContextError::Canceled));
            assert_eq!(inner.join().unwrap(), Err(ContextError::Canceled));
        });
    });
}

#[test]
fn the_first_end_counts_and_its_cause_goes_down() {
    let (ctx, cancel) = Context::background().with_cancel();
    let (child, of_child) = ctx.with_cancel();
    of_child.clone().cancel_with(reason(1));
    of_child.cancel_with(reason(2));
    of_child.cancel();
    assert_eq!((number(&child), number(&ctx)), (Some(1), None));
    cancel.cancel_with(reason(3));
    assert_eq!((number(&child), number(&ctx)), (Some(1), Some(3)));
    assert_eq!(number(&ctx.with_cancel().0), Some(3), "derived afterwards");
    let (late, cancel) = Context::background().with_timeout_cause(Duration::ZERO, reason(4));
    cancel.cancel_with(reason(5));
    assert_eq!((late.err(), number(&late)), (Some(ContextError::DeadlineExceeded), Some(4)));
    drop(cancel);
    let (open, cancel) = Context::background().with_cancel();
    drop(cancel);
    assert_eq!(open.err(), None, "dropping does not cancel");
}

#[test]
fn errors_say_what_they_are_and_become_io_errors() {
    assert_eq!(ContextError::Canceled.to_string(), "context canceled");
    assert_eq!(ContextError::DeadlineExceeded.to_string(), "context deadline exceeded");
    let kinds = [ContextError::Canceled, ContextError::DeadlineExceeded].map(|e| io::Error::from(e).kind());
    assert_eq!(kinds, [io::ErrorKind::Other, io::ErrorKind::TimedOut]);
    let inner = io::Error::from(ContextError::Canceled).into_inner().unwrap();
    assert_eq!(inner.downcast_ref(), Some(&ContextError::Canceled));
}

/// Counts its drop, which unwinds.
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
        resume_unwind(Box::new("dropped"));
    }
}

/// Fails by an abort when one drop runs in the unwinding of another; and by the count when what lies behind a drop that unwinds
/// is not dropped.
#[test]
fn a_drop_that_unwinds_leaves_none_of_its_chain_behind() {
    let (count, chain) = (Arc::new(AtomicUsize::new(0)), 3);
    let counted = || Counted(Arc::clone(&count));
    let drops = |all: Context| {
        // That of the newest goes on.
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(all)));
        assert_eq!(dropped.unwrap_err().downcast_ref(), Some(&"dropped"));
        assert_eq!(count.swap(0, SeqCst), chain);
    };
    drops((0..chain).fold(Context::background(), |ctx, _| ctx.with_value(counted())));
    drops((0..chain).fold(Context::background(), |ctx, _| {
        let ((ctx, _cancel), value) = (ctx.with_cancel(), counted());
        let _kept = ctx.after_func(move || drop(value));
        ctx
    }));
}

#[test]
fn the_innermost_value_of_a_type_wins() {
    let ctx = Context::background().with_value(1_u32).with_value("text");
    let inner = ctx.with_cancel().0.with_value(2_u32);
    assert_eq!((ctx.value::<u32>(), inner.value::<u32>()), (Some(&1), Some(&2)));
    assert_eq!((inner.value::<&str>(), inner.value::<u64>()), (Some(&"text"), None));
}

/// Fails by an overflow of the small stack when an end, a look-up of a value, or a drop goes down the chain by recursion.
#[test]
fn a_chain_of_100_000_is_ended_and_dropped_on_a_small_stack() {
    const DEPTH: usize = 100_000;
    let rt = runtime(2);
    let chain = || {
        let (root, cancel) = Context::background().with_cancel();
        let mut ctx = root.with_value(1_u8);
        for _ in 0..DEPTH {
            ctx = ctx.with_cancel().0.with_value(2_u32);
        }
        (ctx, cancel)
    };
    watched(2, || {
        rt.run(|| {
            let (last, cancel) = chain();
            cancel.cancel();
            assert_eq!(last.err(), Some(ContextError::Canceled));
            assert_eq!(last.value::<u8>(), Some(&1));
            drop(cancel);
            drop(last);
            // An open chain: each context leaves the list of its parent.
            let (last, cancel) = chain();
            drop(last);
            cancel.cancel();
        });
    });
}

/// A value that counts its drops.
struct Tells(Arc<AtomicUsize>);

impl Drop for Tells {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Fails if a dropped child stays in its parent's list, with its values and its calls.
#[test]
fn nothing_stays_of_children_that_were_dropped() {
    let (parent, cancel) = Context::background().with_cancel();
    let drops = Arc::new(AtomicUsize::new(0));
    let ran = Arc::new(AtomicUsize::new(0));
    let mut kept: Vec<(Context, Cancel)> = Vec::new();
    for n in 0..1000 {
        let (child, of_child) = parent.with_value(Tells(Arc::clone(&drops))).with_cancel();
        let (tells, ran) = (Tells(Arc::clone(&drops)), Arc::clone(&ran));
        drop(child.after_func(move || {
            ran.fetch_add(1, SeqCst);
            drop(tells);
        }));
        match n % 3 {
            0 => drop((child, of_child)),
            1 => drop((of_child, child)),
            _ => kept.push((child, of_child)),
        }
    }
    assert_eq!((drops.load(SeqCst), kept.len()), (2 * 667, 333));
    cancel.cancel();
    assert!(kept.iter().all(|(child, _)| child.err().is_some()));
    watched(0, || until(|| ran.load(SeqCst) == 333 && drops.load(SeqCst) == 2 * 667 + 333));
    drop(kept);
    assert_eq!(drops.load(SeqCst), 2000);
}

/// Fails by a hang if the deadlines of contexts that were dropped keep a thread.
#[test]
fn a_deadline_goes_with_the_last_handle() {
    // Other tests have threads, too.
    if !child::is_child() {
        child::passes("a_deadline_goes_with_the_last_handle", &[]);
        return;
    }
    watched(0, || {
        let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
        let before = threads();
        let dropped: Vec<_> = (0..50).map(|_| Context::background().with_timeout(LONG)).collect();
        drop(dropped);
        let (kept, cancel) = Context::background().with_timeout(LONG);
        cancel.cancel();
        assert_eq!(kept.err(), Some(ContextError::Canceled));
        // The context that is kept has ended, so its deadline has gone, too.
        until(|| threads() == before);
    });
}

/// Fails when a context ends early, or never.
#[test]
fn a_deadline_ends_what_is_below_not_before_it_and_the_earlier_one_counts() {
    everywhere(|rt| {
        let property = || {
            let start = Instant::now();
            let (ctx, _keep) = Context::background().with_timeout(100 * MS);
            let child = ctx.with_deadline_cause(start + LONG, reason(1)).0;
            let sooner = ctx.with_deadline_cause(start + 2 * MS, reason(2)).0;
            assert_eq!(child.deadline(), ctx.deadline());
            assert!(sooner.deadline() < ctx.deadline());
            assert!(sooner.done().recv().is_err() && start.elapsed() >= 2 * MS);
            assert_eq!((sooner.err(), number(&sooner)), (Some(ContextError::DeadlineExceeded), Some(2)));
            assert!(child.done().recv().is_err() && start.elapsed() >= 100 * MS);
            assert_eq!((child.err(), number(&child)), (Some(ContextError::DeadlineExceeded), None));
            assert_eq!(ctx.err(), Some(ContextError::DeadlineExceeded));
            let (past, _keep) = Context::background().with_deadline(start);
            assert_eq!(past.err(), Some(ContextError::DeadlineExceeded), "at once");
        };
        rt.run(property);
        thread::scope(|s| s.spawn(property).join().unwrap());
    });
}

/// Fails by a hang of a waiter, in whichever way it waits.
#[test]
fn done_is_closed_for_all_its_waiters() {
    everywhere(|rt| {
        for round in 0..20 {
            let (ctx, cancel) = Context::background().with_cancel();
            let child = ctx.with_cancel().0;
            let waiters: Vec<_> = (0..8)
                .map(|n| {
                    let ctx = if n % 2 == 0 { ctx.clone() } else { child.clone() };
                    rt.go(move || {
                        assert!(ctx.done().recv().is_err());
                        ctx.err()
                    })
                })
                .collect();
            thread::scope(|s| {
                let waits = s.spawn(|| child.done().recv().is_err());
                if round % 2 == 0 {
                    until(|| rt.num_goroutines() == 8);
                }
                assert!(!ctx.done().close(), "it is the context's");
                cancel.cancel();
                assert!(waits.join().unwrap());
            });
            for waiter in waiters {
                assert_eq!(waiter.join().unwrap(), Some(ContextError::Canceled));
            }
            assert!(ctx.done().recv().is_err(), "made after the end, or before");
            assert!(std::ptr::eq(ctx.done(), ctx.clone().done()));
        }
    });
}

/// Fails if a call runs twice or never, not in a goroutine, or although `stop` has returned that it would not.
#[test]
fn a_call_runs_once_in_a_goroutine_of_its_own_unless_it_was_stopped() {
    everywhere(|rt| {
        rt.run(|| {
            let (ctx, cancel) = Context::background().with_cancel();
            let calls = Arc::new(AtomicUsize::new(0));
            let call = || {
                let calls = Arc::clone(&calls);
                move || {
                    assert!(gmp::current().is_some());
                    gmp::yield_now();
                    calls.fetch_add(1, SeqCst);
                }
            };
            let (runs, stopped) = (ctx.after_func(call()), ctx.after_func(call()));
            drop(ctx.after_func(call()));
            assert!(stopped.stop(), "it will never run");
            assert!(!stopped.stop(), "it was stopped before");
            cancel.cancel();
            cancel.cancel();
            until(|| calls.load(SeqCst) == 2);
            assert!(!runs.stop() && !stopped.stop());
            let late = ctx.after_func(call());
            assert!(!late.stop());
            until(|| calls.load(SeqCst) == 3);
        });
        // A call that a plain thread has registered runs in no goroutine.
        let (ctx, cancel) = Context::background().with_cancel();
        let ran = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&ran);
        let _call = ctx.after_func(move || tell.store(gmp::current().is_none(), SeqCst));
        cancel.cancel();
        until(|| ran.load(SeqCst));
    });
}

/// Fails if a call is lost because the runtime in which it was registered has ended.
#[test]
fn a_call_outlives_the_runtime_in_which_it_was_asked_for() {
    let (ctx, cancel) = Context::background().with_cancel();
    let ran = Arc::new(AtomicBool::new(false));
    let rt = runtime(1);
    let tell = Arc::clone(&ran);
    let call = rt.run(|| ctx.after_func(move || tell.store(true, SeqCst)));
    drop(rt);
    cancel.cancel();
    watched(1, || until(|| ran.load(SeqCst)));
    assert!(!call.stop());
}

/// A cause whose drop calls a function.
struct OnDrop<F: Fn()>(F);

impl<F: Fn()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        self.0();
    }
}

impl<F: Fn()> fmt::Debug for OnDrop<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cause")
    }
}

impl<F: Fn()> fmt::Display for OnDrop<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a cause")
    }
}

impl<F: Fn()> Error for OnDrop<F> {}

/// Derives three contexts from one, each with a deadline and a cause whose drop calls `dropped`. A goroutine runs under the
/// last of them, and a function waits for the end. Another goroutine cancels the parent while it runs under the parent; all
/// three must be done when the first cause is dropped.
fn ends_in_spite_of(rt: &gmp::Runtime, dropped: impl Fn() + Clone + Send + Sync + 'static) {
    let (context, cancel) = Context::background().with_cancel();
    let below: Arc<std::sync::OnceLock<[Context; 3]>> = Arc::default();
    let (all_done, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let derive = || {
        let (dropped, below, all, count) =
            (dropped.clone(), Arc::clone(&below), Arc::clone(&all_done), Arc::clone(&count));
        let cause = OnDrop(move || {
            let done = below.get().is_some_and(|below| below.iter().all(|it| it.err().is_some()));
            all.fetch_add(usize::from(done), SeqCst);
            count.fetch_add(1, SeqCst);
            dropped();
        });
        context.with_timeout_cause(LONG, cause)
    };
    let ([first, second, third], _cancels): ([_; 3], Vec<_>) = {
        let (contexts, cancels): (Vec<_>, Vec<_>) = (0..3).map(|_| derive()).unzip();
        (contexts.try_into().expect("three"), cancels)
    };
    let called = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&called);
    let _call = context.after_func(move || tell.store(true, SeqCst));
    let under = third.clone();
    let runs = rt.go(move || under.run(|| gmp::time::sleep(LONG)));
    below.set([first, second, third]).expect("set once");
    let canceler = rt.go(move || {
        let mut returned = false;
        let ended = context.run(|| {
            cancel.cancel();
            returned = true;
        });
        (returned, ended)
    });
    assert_eq!(canceler.join().expect("no panic of a drop comes through"), (true, Ok(())));
    assert!(below.get().expect("set").iter().all(|it| it.err() == Some(ContextError::Canceled)));
    assert_eq!((all_done.load(SeqCst), count.load(SeqCst)), (3, 3));
    assert_eq!(runs.join().unwrap(), Err(ContextError::Canceled));
    until(|| called.load(SeqCst));
}

/// Fails by the panic, when a context stays open, or by a hang when the end of a tree stops at the drop of a cause.
#[test]
fn an_end_comes_to_all_where_a_cause_panics_as_it_is_dropped() {
    everywhere(|rt| {
        ends_in_spite_of(&rt, || std::panic::resume_unwind(Box::new("the panic of a cause's drop")));
    });
}

/// As above, but the drop of a cause waits.
#[test]
fn an_end_comes_to_all_where_a_cause_waits_as_it_is_dropped() {
    everywhere(|rt| {
        let (s, r) = gmp::chan::bounded(0);
        let gives = rt.go(move || (0..3).for_each(|_| s.send(()).expect("a cause takes it")));
        ends_in_spite_of(&rt, move || r.recv().expect("it is given"));
        gives.join().unwrap();
    });
}

/// The drop of a cause waits for a message of a call, and for one of a task; the call and the task wait for the same end. Fails
/// by a hang when the drop comes before these two.
#[test]
fn the_drop_of_a_cause_may_wait_for_calls_and_tasks_of_the_same_end() {
    everywhere(|rt| {
        let (s, r) = gmp::chan::bounded(0);
        let receives = OnDrop(move || (0..2).for_each(|_| r.recv().expect("a call and a task send it")));
        let (context, cancel) = Context::background().with_timeout_cause(LONG, receives);
        let sends = s.clone();
        let _call = context.after_func(move || sends.send(()).expect("the cause receives it"));
        let ends = context.clone();
        let task = rt.go(move || {
            let error = gmp::block_on(ends.ended());
            s.send(()).expect("the cause receives it");
            error
        });
        until(|| rt.dump().contains("[future"));
        cancel.cancel();
        assert_eq!(task.join().unwrap(), ContextError::Canceled);
    });
}

/// Children come, go and are looked at while their parent ends. Fails by a deadlock, by a crash, or when a context is open
/// below one that is done.
#[test]
fn an_end_races_with_children_that_come_and_go() {
    everywhere(|rt| {
        for _ in 0..common::effort() * 200 {
            let (ctx, cancel) = Context::background().with_cancel();
            let workers: Vec<_> = (0..4)
                .map(|n| {
                    let (ctx, cancel) = (ctx.clone(), cancel.clone());
                    rt.go(move || {
                        let kept = ctx.with_cancel();
                        let mut weak: Weak<()> = Weak::new();
                        for turn in 0..10 {
                            let value = Arc::new(());
                            weak = Arc::downgrade(&value);
                            let (child, of_child) = ctx.with_value(value).with_timeout_cause(LONG, reason(1));
                            if turn == n {
                                cancel.cancel_with(reason(9));
                                assert_eq!(number(&ctx), Some(9));
                            }
                            of_child.cancel();
                            assert!(child.err().is_some());
                        }
                        assert!(weak.upgrade().is_none(), "a child stays");
                        assert!(kept.0.done().recv().is_err());
                        number(&kept.0)
                    })
                })
                .collect();
            for worker in workers {
                assert_eq!(worker.join().unwrap(), Some(9));
            }
        }
    });
}

/// Fails to compile, or by a panic, when a context can't be sent, shared or unwound past.
#[test]
fn contexts_go_everywhere() {
    fn is<T: Send + Sync + Clone + fmt::Debug + std::panic::UnwindSafe + std::panic::RefUnwindSafe>(_: &T) {}
    let (ctx, cancel) = Context::background().with_timeout(LONG);
    is(&ctx);
    is(&cancel);
    assert!(format!("{ctx:?} {cancel:?}").contains("Context"));
    let rt = runtime(1);
    let answer = rt.run(|| go(move || ctx.err()).join().unwrap());
    assert_eq!(answer, None);
}

/// Fails if a call is lost whose goroutine was made, and did not run before its runtime ended.
#[test]
fn a_call_that_was_started_runs_though_its_runtime_ends() {
    let called = Arc::new(AtomicBool::new(false));
    let calls = Arc::clone(&called);
    let rt = runtime(1);
    rt.run(move || {
        let (ctx, cancel) = Context::background().with_cancel();
        let call = ctx.after_func(move || calls.store(true, SeqCst));
        cancel.cancel();
        assert!(!call.stop());
        // These goroutines run first.
        for _ in 0..50 {
            drop(go(|| thread::sleep(2 * MS)));
        }
    });
    drop(rt);
    let start = Instant::now();
    while !called.load(SeqCst) {
        assert!(start.elapsed() < Duration::from_secs(10), "the call was lost");
        thread::sleep(MS);
    }
}

/// Fails if both of two simultaneous stops, or neither, are told that they have taken back the call.
#[test]
fn of_two_stops_at_once_one_takes_the_call_back() {
    for _ in 0..if cfg!(debug_assertions) { 5_000 } else { 50_000 } {
        let (ctx, _cancel) = Context::background().with_cancel();
        let call = ctx.after_func(|| unreachable!("it was stopped"));
        let begin = AtomicBool::new(false);
        thread::scope(|s| {
            let other = s.spawn(|| {
                while !begin.load(SeqCst) {
                    std::hint::spin_loop();
                }
                call.stop()
            });
            begin.store(true, SeqCst);
            assert!(call.stop() != other.join().unwrap());
        });
    }
}

/// Fails if a deadline comes back as another time: one that lies before the process first asked for the time, or beyond
/// the clock's range.
#[test]
fn a_deadline_is_given_back_as_it_was_given() {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    let now = Instant::now();
    let past =
        [MS, 1000 * MS, 3_000_000 * MS, 99 * YEAR, 280 * YEAR].map(|ago| now.checked_sub(ago).unwrap());
    for deadline in past {
        let (context, _cancel) = Context::background().with_deadline(deadline);
        assert_eq!(context.deadline(), Some(deadline));
        assert_eq!(context.err(), Some(ContextError::DeadlineExceeded));
        assert!(is_closed(&context));
    }
    for ahead in [YEAR, 450 * YEAR, 1000 * YEAR] {
        let deadline = now.checked_add(ahead).unwrap();
        let (context, _cancel) = Context::background().with_deadline(deadline);
        assert_eq!((context.deadline(), context.err()), (Some(deadline), None));
        // The earlier deadline of the two counts.
        let earlier = deadline.checked_sub(MS).unwrap();
        let (below, _cancel) = context.with_deadline(earlier);
        assert_eq!(below.deadline(), Some(earlier));
        let (below, _cancel) = below.with_deadline(deadline);
        assert_eq!(below.deadline(), Some(earlier));
    }
}

fn is_closed(context: &Context) -> bool {
    context.done().try_recv() == Err(TryRecvError::Disconnected)
}

/// Ends a context while others look, and looks again when the end has returned. Fails when an error is told while `done` is
/// open, or when a context is still open below one whose `cancel` has returned to either of two callers, or whose call runs.
#[test]
fn what_is_told_of_an_end_fits_together() {
    let rounds = if cfg!(debug_assertions) { 4000 } else { 20_000 } * common::effort();
    everywhere(move |rt| {
        rt.run(move || {
            for round in 0..rounds {
                let (context, cancel) = match round % 4 {
                    0 => Context::background().with_timeout(Duration::from_micros(20)),
                    _ => Context::background().with_cancel(),
                };
                let below = context.with_value(round).with_cancel().0;
                if round % 3 == 0 {
                    let _made_before = (context.done(), below.done());
                }
                let (misfits, called) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
                let all_done = |contexts: &[Context], misfits: &AtomicUsize| {
                    let open = contexts.iter().filter(|it| it.err().is_none() || !is_closed(it)).count();
                    misfits.fetch_add(open, SeqCst);
                };
                let both = [context.clone(), below.clone()];
                let (seen, misses, calls) = (both.clone(), Arc::clone(&misfits), Arc::clone(&called));
                drop(context.after_func(move || {
                    all_done(&seen, &misses);
                    calls.fetch_add(1, SeqCst);
                }));
                let looks = [context, below].map(|context| {
                    let (misfits, looks) = (Arc::clone(&misfits), AtomicUsize::new(0));
                    go(move || {
                        // Without a pause, so that the look comes in the middle of the end.
                        while context.err().is_none() {
                            if looks.fetch_add(1, SeqCst) % 1000 == 999 {
                                gmp::yield_now();
                            }
                        }
                        misfits.fetch_add(usize::from(!is_closed(&context)), SeqCst);
                    })
                });
                let (seen, again, misses) = (both.clone(), cancel.clone(), Arc::clone(&misfits));
                let second = go(move || {
                    again.cancel();
                    all_done(&seen, &misses);
                });
                gmp::yield_now();
                cancel.cancel();
                all_done(&both, &misfits);
                second.join().unwrap();
                looks.into_iter().for_each(|look| look.join().unwrap());
                until(|| called.load(SeqCst) == 1);
                assert_eq!(misfits.load(SeqCst), 0, "round {round}");
            }
        });
    });
}
