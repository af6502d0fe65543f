//! A `block_on` that is ended from outside: by a context, by `goexit`, by the end of the runtime. The future is dropped before
//! the unwinding, where its destructor may do what it likes.

use common::bolt::bolted;
use common::crew::everyone;
use common::futures::{Signal, own_waker, turns};
use common::{everywhere, until};
use gmp::chan::bounded;
use gmp::context::{Context, ContextError};
use gmp::sync::Event;
use gmp::{block_on, go, go_abortable, goexit, is_interrupt, time};
use std::future::{pending, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const FAR: Duration = Duration::from_secs(3600);
const LIMIT: Duration = Duration::from_secs(20);

/// Returns `true` if the calling thread panics. Asks std anew at each call.
#[inline(never)]
fn panicking() -> bool {
    thread::panicking()
}

/// A part of a future. Its drop calls the function, and counts.
struct Acts(Arc<AtomicUsize>, fn());

impl Drop for Acts {
    fn drop(&mut self) {
        let on = gmp::current().map(|current| current.id());
        assert!(!panicking(), "the future is dropped by the unwinding");
        (self.1)();
        assert!(!panicking());
        assert_eq!(gmp::current().map(|current| current.id()), on);
        self.0.fetch_add(1, SeqCst);
    }
}

/// A future that is never ready.
async fn never(acts: Acts) {
    let _acts = acts;
    pending::<()>().await;
}

/// What a destructor does: nothing, or a wait, in some cases for a goroutine or thread that it starts.
const ACTS: [fn(); 6] = [
    || (),
    || block_on(turns(5)),
    || time::sleep(MS / 10),
    || {
        let (sender, receiver) = bounded(0);
        match gmp::current() {
            Some(_) => drop(go(move || sender.send(1))),
            None => drop(thread::spawn(move || sender.send(1))),
        }
        assert_eq!(receiver.recv(), Ok(1));
    },
    || {
        // A foreign thread calls the waker.
        let signal = Arc::new(Signal::default());
        let theirs = Arc::clone(&signal);
        let gives = thread::spawn(move || {
            until(|| theirs.is_awaited());
            theirs.give();
        });
        block_on(signal.take());
        gives.join().unwrap();
    },
    || {
        // A context of the destructor's own ends its wait.
        let (context, _cancel) = Context::background().with_timeout(MS / 10);
        assert_eq!(context.run(|| block_on(pending::<()>())), Err(ContextError::DeadlineExceeded));
        let limited = time::timeout(MS / 10, || Event::new().wait());
        assert!(limited.is_err());
    },
];

/// Fails by a hang, by the outcome, or by an assertion in the destructor when it runs while the caller unwinds, on another
/// stack, or with its own waits ended.
#[test]
fn a_context_has_the_future_dropped_before_it_unwinds() {
    everyone(|crew| {
        for act in ACTS {
            let (context, cancel) = Context::background().with_cancel();
            let dropped = Arc::new(AtomicUsize::new(0));
            let counts = Arc::clone(&dropped);
            let owner = crew.go(move || {
                let ended = context.run(|| block_on(never(Acts(counts, act))));
                // The next wait is like any other.
                block_on(turns(2));
                let (other, _cancel) = Context::background().with_timeout(MS / 10);
                assert_eq!(other.run(|| block_on(pending::<()>())), Err(ContextError::DeadlineExceeded));
                ended
            });
            thread::yield_now();
            cancel.cancel();
            assert_eq!(owner.join(), Err(ContextError::Canceled));
            assert_eq!(dropped.load(SeqCst), 1);
        }
    });
}

/// Fails by a hang when a future that is woken in each poll, and so never waits, is never ended.
#[test]
fn a_context_ends_a_future_that_wakes_itself() {
    everyone(|crew| {
        let (context, cancel) = Context::background().with_cancel();
        let dropped = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&dropped);
        let owner = crew.go(move || {
            let acts = Acts(counts, || block_on(turns(2)));
            context.run(|| {
                block_on(async move {
                    let _acts = acts;
                    turns(usize::MAX).await;
                });
            })
        });
        thread::yield_now();
        cancel.cancel();
        assert_eq!(owner.join(), Err(ContextError::Canceled));
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

/// A context that is done already ends the first wait, but no call that has nothing to wait for. Fails by the outcome.
#[test]
fn a_context_that_is_done_ends_the_first_wait() {
    everyone(|crew| {
        crew.run(|| {
            let (context, cancel) = Context::background().with_cancel();
            cancel.cancel();
            assert_eq!(context.run(|| block_on(async { 7 })), Ok(7));
            let mut polls = 0;
            let ended = context.run(|| {
                block_on(poll_fn(|_| {
                    polls += 1;
                    Poll::<()>::Pending
                }));
            });
            assert_eq!((ended, polls), (Err(ContextError::Canceled), 1));
        });
    });
}

/// Fails by the outcome when the inner context's end ends the outer call, or the other way round.
#[test]
fn each_call_ends_with_its_own_context() {
    everyone(|crew| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&dropped);
        let (context, cancel) = Context::background().with_cancel();
        let (inner_over, hears) = bounded(1);
        let owner = crew.go(move || {
            let (outer_acts, inner_acts) =
                (Acts(Arc::clone(&counts), || ()), Acts(Arc::clone(&counts), || ()));
            context.run(|| {
                block_on(async {
                    let _acts = outer_acts;
                    turns(1).await;
                    let (inner, _cancel) = Context::background().with_timeout(MS / 10);
                    let ended = inner.run(|| block_on(never(inner_acts)));
                    assert_eq!(ended, Err(ContextError::DeadlineExceeded));
                    assert_eq!(counts.load(SeqCst), 1);
                    inner_over.send(()).unwrap();
                    pending::<()>().await;
                });
            })
        });
        hears.recv().unwrap();
        cancel.cancel();
        assert_eq!(owner.join(), Err(ContextError::Canceled));
        assert_eq!(dropped.load(SeqCst), 2);
    });
}

/// A wait inside a poll is ended like any other, and unwinds out of the poll; the unwinding then drops the future, as after a
/// panic. Fails by the outcome.
#[test]
fn a_wait_inside_a_poll_unwinds_out_of_it() {
    everyone(|crew| {
        let (context, cancel) = Context::background().with_cancel();
        let owner = crew.go(move || {
            let mut came_back = false;
            let ended = context.run(|| {
                block_on(async {
                    turns(1).await;
                    Event::new().wait();
                    came_back = true;
                });
            });
            (ended, came_back)
        });
        thread::yield_now();
        cancel.cancel();
        assert_eq!(owner.join(), (Err(ContextError::Canceled), false));
    });
}

/// The destructor panics before the throw, so its panic goes on in place of the throw. Fails by the outcome, or by an abort.
#[test]
fn a_panic_in_the_drop_goes_on_in_place_of_the_interrupt() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(!panicking());
            resume_unwind(Box::new(9_u32));
        }
    }
    everyone(|crew| {
        crew.run(|| {
            let (context, _cancel) = Context::background().with_timeout(MS / 10);
            let bomb = Bomb;
            let caught = catch_unwind(AssertUnwindSafe(|| {
                context.run(|| {
                    block_on(async move {
                        let _bomb = bomb;
                        pending::<()>().await;
                    });
                })
            }));
            assert_eq!(caught.unwrap_err().downcast_ref(), Some(&9_u32));
            // Later calls are as ever: the first one returns, and a limit ends the next one.
            block_on(turns(2));
            assert!(time::timeout(MS / 10, || block_on(pending::<()>())).is_err());
        });
    });
}

/// A caller that catches the interrupt is interrupted again at its next wait, three times in all, each time with the future
/// dropped before. Fails by a hang or by the outcome.
#[test]
fn a_caller_that_catches_the_interrupt_is_interrupted_again() {
    everyone(|crew| {
        crew.run(|| {
            let (context, cancel) = Context::background().with_cancel();
            cancel.cancel();
            let dropped = Arc::new(AtomicUsize::new(0));
            let ended = context.run(|| {
                for round in 1..=3 {
                    let acts = Acts(Arc::clone(&dropped), || block_on(turns(1)));
                    let caught = catch_unwind(AssertUnwindSafe(|| block_on(never(acts))));
                    assert!(is_interrupt(&*caught.unwrap_err()));
                    assert_eq!(dropped.load(SeqCst), round);
                }
                // No throw comes any more: the call waits, and gets what it waits for.
                block_on(turns(3));
                own_waker()
            });
            assert!(ended.is_ok());
        });
    });
}

/// Fails by the outcome, or by a destructor that is not run.
#[test]
fn goexit_inside_a_poll_ends_the_goroutine() {
    struct Counts(Arc<AtomicUsize>);
    impl Drop for Counts {
        fn drop(&mut self) {
            block_on(turns(2));
            self.0.fetch_add(1, SeqCst);
        }
    }
    everywhere(|rt| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let held = Counts(Arc::clone(&dropped));
        let ends = rt.go(move || {
            block_on(async move {
                let _held = held;
                turns(2).await;
                goexit();
            })
        });
        assert!(ends.join().unwrap_err().is_goexit());
        assert_eq!(dropped.load(SeqCst), 1);

        // The poll catches the throw; then the wait is ended, with the future dropped first.
        let acts = Acts(Arc::clone(&dropped), || block_on(turns(2)));
        let ends = rt.go(move || {
            block_on(async {
                let _acts = acts;
                let caught = catch_unwind(|| goexit());
                assert!(is_interrupt(&*caught.unwrap_err()));
                pending::<()>().await;
            })
        });
        assert!(ends.join().unwrap_err().is_goexit());
        assert_eq!(dropped.load(SeqCst), 2);
    });
}

/// The destructor of a future that a context has ended calls `goexit`. Fails by the outcome.
#[test]
fn goexit_inside_the_drop_ends_the_goroutine() {
    struct Exits;
    impl Drop for Exits {
        fn drop(&mut self) {
            goexit();
        }
    }
    everywhere(|rt| {
        let exits = Exits;
        let ends = rt.go(move || {
            let (context, _cancel) = Context::background().with_timeout(MS / 10);
            let _no_error = context.run(|| {
                block_on(async move {
                    let _exits = exits;
                    pending::<()>().await;
                });
            });
            unreachable!("it has called goexit");
        });
        assert!(ends.join().unwrap_err().is_goexit());
    });
}

/// Fails by a hang, or by the outcome.
#[test]
fn an_abort_ends_the_wait() {
    everywhere(|rt| {
        let dropped = rt.run(|| {
            let dropped = Arc::new(AtomicUsize::new(0));
            let acts = Acts(Arc::clone(&dropped), || block_on(turns(2)));
            let (begins, begun) = bounded(1);
            let (handle, abort) = go_abortable(move || {
                begins.send(()).unwrap();
                block_on(never(acts));
            });
            begun.recv().unwrap();
            abort.abort();
            assert!(handle.join().unwrap_err().is_aborted());
            dropped.load(SeqCst)
        });
        assert_eq!(dropped, 1);
    });
}

/// Fails by the report, by a hang, or by an assertion in the destructor, which waits, in some cases for another thread, while
/// the runtime ends.
#[test]
fn the_end_of_the_runtime_has_the_future_dropped() {
    const WAITS: [fn(); 4] =
        [|| (), || block_on(turns(20)), || time::sleep(MS), || Event::new().wait_for_nobody()];
    everywhere(|rt| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..20)
            .map(|at| {
                let acts = Acts(Arc::clone(&dropped), WAITS[at % WAITS.len()]);
                let begun = Arc::new(Signal::default());
                let begins = Arc::clone(&begun);
                let handle = rt.go(move || {
                    block_on(async {
                        let _acts = acts;
                        block_on(turns(2));
                        begins.give();
                        match at % 2 {
                            0 => pending::<()>().await,
                            _ => turns(usize::MAX).await,
                        }
                    })
                });
                until(|| begun.is_given());
                handle
            })
            .collect();
        let report = rt.shutdown(LIMIT);
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(dropped.load(SeqCst), 20);
        for handle in handles {
            assert!(handle.join().unwrap_err().is_shutdown());
        }
    });
}

trait WaitForNobody {
    fn wait_for_nobody(&self);
}

impl WaitForNobody for Event {
    /// Waits until another thread ends the wait.
    fn wait_for_nobody(&self) {
        thread::scope(|scope| {
            scope.spawn(|| self.notify_one());
        });
        self.wait();
    }
}

/// A goroutine that can't be unwound is left with its future, which is not dropped. Fails by a drop, by a hang, or by a crash
/// when its waker is called afterwards.
#[test]
fn a_goroutine_that_is_left_keeps_its_future() {
    everywhere(|rt| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let signal = Arc::new(Signal::default());
        let (acts, theirs) = (Acts(Arc::clone(&dropped), || ()), Arc::clone(&signal));
        let left = rt.go(move || {
            let wait = std::cell::RefCell::new(Some((acts, theirs)));
            bolted(|| {
                let (acts, theirs) = wait.take().unwrap();
                block_on(async move {
                    let _acts = acts;
                    theirs.take().await;
                });
            });
        });
        until(|| signal.is_awaited());
        let report = rt.shutdown(LIMIT);
        assert_eq!(report.goroutines_left(), 1, "{report:?}");
        assert!(left.join().unwrap_err().is_shutdown());
        signal.give();
        thread::spawn(move || signal.give()).join().unwrap();
        assert_eq!(dropped.load(SeqCst), 0);
    });
}

/// A wait through whose frames no throw may pass goes on, and gets what it waits for. Fails by the outcome, or by a hang.
#[test]
fn a_wait_that_may_not_be_unwound_goes_on() {
    everyone(|crew| {
        let (signal, dropped) = (Arc::new(Signal::default()), Arc::new(AtomicBool::new(false)));
        let (takes, drops) = (Arc::clone(&signal), Arc::clone(&dropped));
        let (context, cancel) = Context::background().with_cancel();
        struct Flags(Arc<AtomicBool>);
        impl Drop for Flags {
            fn drop(&mut self) {
                self.0.store(true, SeqCst);
            }
        }
        let owner = crew.go(move || {
            let flags = std::cell::RefCell::new(Some(Flags(drops)));
            context.run(|| {
                bolted(|| {
                    let flags = flags.take().unwrap();
                    block_on(async {
                        let _flags = flags;
                        turns(30).await;
                        takes.take().await;
                        turns(30).await;
                    });
                });
            })
        });
        cancel.cancel();
        until(|| signal.is_awaited());
        thread::yield_now();
        assert!(!dropped.load(SeqCst));
        signal.give();
        assert_eq!(owner.join(), Ok(()));
        assert!(dropped.load(SeqCst));
    });
}

/// A limit ends the wait, and does not disturb a wait that is over before. Wakes that come meanwhile, from elsewhere or from
/// the future itself, don't put the end off. Fails by a hang or by the time.
#[test]
fn a_limit_ends_the_wait() {
    everyone(|crew| {
        let (waker, over) = (Arc::new(Mutex::new(None::<Waker>)), Arc::new(AtomicBool::new(false)));
        let (wakes, is_over) = (Arc::clone(&waker), Arc::clone(&over));
        let wakes = crew.go(move || {
            until(|| {
                wakes.lock().unwrap().iter().for_each(Waker::wake_by_ref);
                is_over.load(SeqCst)
            });
        });
        crew.run(move || {
            // A wait in which no wake came shows nothing.
            until(|| {
                let mut polls = 0;
                let waits = poll_fn(|cx| {
                    polls += 1;
                    *waker.lock().unwrap() = Some(cx.waker().clone());
                    Poll::<()>::Pending
                });
                assert!(time::timeout(MS, || block_on(waits)).is_err());
                polls > 2
            });
            over.store(true, SeqCst);
            assert!(time::timeout(MS, || block_on(turns(usize::MAX))).is_err());
        });
        wakes.join();
        crew.run(|| {
            assert!(time::timeout(MS, || block_on(pending::<()>())).is_err());
            assert_eq!(
                time::timeout(FAR, || block_on(async {
                    turns(3).await;
                    5
                })),
                Ok(5)
            );
        });
    });
}
