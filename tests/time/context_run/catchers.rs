//! Catchers on the way of an interrupt: `run` itself, and catchers of the user's own; and what each is told.

use super::*;

/// Fails if a panic is taken for the end of a context, or the end for a panic.
#[test]
fn a_panic_goes_through() {
    everywhere(|rt| {
        let results = on_both(&rt, || {
            let (ctx, cancel) = Context::background().with_cancel();
            cancel.cancel();
            let f = move || {
                let caught = catch_unwind(AssertUnwindSafe(|| ctx.run(|| resume_unwind(Box::new(3_u8)))));
                *caught.map(|result: Result<(), _>| result).unwrap_err().downcast::<u8>().unwrap()
            };
            (Box::new(f), Box::new(|| ()))
        });
        assert_eq!(results, [3; 2]);
        let ended = rt.go(|| Context::background().run(|| -> () { gmp::goexit() })).join();
        assert!(ended.is_err_and(|error: gmp::JoinError| error.is_goexit()));
    });
}

/// Fails if the end of one context unwinds another's `run`, or if a `run` is left with its frame in place.
#[test]
fn each_run_catches_its_own_the_innermost_first() {
    everywhere(|rt| {
        let results = on_both(&rt, || {
            let (outer, end_outer) = Context::background().with_cancel();
            let (inner, end_inner) = outer.with_cancel();
            let f = move || {
                let never = Event::new();
                // The inner context alone is done.
                let first = outer.run(|| {
                    end_inner.cancel();
                    let inside = inner.run(|| never.wait());
                    // Not under the inner context any more.
                    time::sleep(MS / 10);
                    inside
                });
                assert_eq!(first, Ok(CANCELED));
                // The outer context is done, and the wait is under an inner context that is open.
                let apart = outer.without_cancel();
                let second = outer.run(|| {
                    end_outer.cancel();
                    apart.run(|| never.wait())
                });
                assert_eq!(second, Err(ContextError::Canceled));
                // The same context twice: both are done.
                let mut seen = None;
                let third = outer.run(|| {
                    seen = Some(outer.run(|| never.wait()));
                    never.wait();
                });
                assert_eq!((seen, third), (Some(CANCELED), CANCELED));
                // Out of all contexts.
                time::sleep(MS / 10);
            };
            (Box::new(f), Box::new(|| ()))
        });
        assert_eq!(results, [(); 2]);
    });
}

/// Fails if a goroutine that catches every throw is not thrown at exactly three times, or loses its place in the queue.
#[test]
fn a_catcher_of_three_throws_may_wait_and_keeps_its_place() {
    everywhere(|rt| {
        let event = Arc::new(Event::new());
        let (ctx, cancel) = Context::background().with_cancel();
        let (threw, waits) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        let stubborn = rt.go({
            let (ctx, event, threw) = (ctx.clone(), Arc::clone(&event), Arc::clone(&threw));
            move || {
                ctx.run(|| {
                    while catch_unwind(AssertUnwindSafe(|| event.wait())).is_err() {
                        threw.fetch_add(1, SeqCst);
                    }
                })
            }
        });
        cancel.cancel();
        until(|| threw.load(SeqCst) == 3 && rt.dump().contains("[event"));
        // The goroutine stands first in the queue, although it was nudged where it can't be unwound.
        let second = rt.go({
            let (event, waits) = (Arc::clone(&event), Arc::clone(&waits));
            move || {
                event.wait();
                waits.store(true, SeqCst);
            }
        });
        until(|| waiters(&rt) == 2);
        event.notify_one();
        assert_eq!(stubborn.join().unwrap(), Ok(()));
        assert_eq!((threw.load(SeqCst), waits.load(SeqCst)), (3, false));
        event.notify_one();
        second.join().unwrap();
    });
}

/// Waits when it is dropped, and notes that the wait has ended.
struct WaitsInDrop(Arc<Event>, Arc<AtomicBool>);

impl Drop for WaitsInDrop {
    fn drop(&mut self) {
        self.0.wait();
        self.1.store(true, SeqCst);
    }
}

/// On a plain thread, which stays one. Fails by an abort when a wait in a destructor is interrupted while the thread panics.
#[test]
fn a_wait_while_panicking_is_left_alone() {
    for cancel_first in [true, false] {
        watched(0, || {
            let (event, waited) = (Arc::new(Event::new()), Arc::new(AtomicBool::new(false)));
            let (ctx, cancel) = Context::background().with_cancel();
            let (theirs, noted) = (Arc::clone(&event), Arc::clone(&waited));
            if cancel_first {
                cancel.cancel();
            }
            let thread = thread::spawn(move || {
                catch_unwind(AssertUnwindSafe(|| {
                    ctx.run(|| {
                        let _waits = WaitsInDrop(theirs, noted);
                        resume_unwind(Box::new(1_u8));
                    })
                }))
                .is_err()
            });
            within(5 * MS, 100).for_each(|_| thread::yield_now());
            cancel.cancel();
            within(5 * MS, 100).for_each(|_| thread::yield_now());
            assert!(!waited.load(SeqCst));
            event.notify_one();
            assert!(thread.join().unwrap());
            assert!(waited.load(SeqCst));
        });
    }
}

/// Catches the payload that unwinds `f`, asks what it is, and passes it on.
fn ask(f: impl FnOnce()) -> Result<(), bool> {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { return Ok(()) };
    Err(gmp::is_interrupt(&*payload))
}

/// Fails if a catcher takes an interrupt for a panic, or a panic for an interrupt.
#[test]
fn a_catcher_can_tell_an_interrupt_from_a_panic() {
    for procs in PROCS {
        watched(procs, || {
            let waits = || Event::new().wait();
            let done = || {
                let (ctx, cancel) = Context::background().with_cancel();
                cancel.cancel();
                ctx
            };
            let by_context = move || done().run(|| assert_eq!(ask(waits), Err(true)));
            assert_eq!(by_context(), Ok(()), "on a thread");
            let rt = runtime(procs);
            rt.run(|| {
                assert_eq!(go(by_context).join().unwrap(), Ok(()));
                assert!(go(|| assert_eq!(ask(|| gmp::goexit()), Err(true))).join().unwrap_err().is_goexit());
                assert_eq!(ask(|| resume_unwind(Box::new("a panic"))), Err(false));
            });
            let (told, hear) = std::sync::mpsc::channel();
            let left = rt.go(move || told.send(ask(waits)).unwrap());
            until(|| waiters(&rt) == 1);
            assert!(rt.shutdown(Duration::from_secs(20)).is_clean());
            assert_eq!(hear.recv(), Ok(Err(true)), "the end of a runtime");
            drop(left);
        });
    }
}

/// A worker that isolates panics. Fails by the number of steps, when it goes on after an interrupt as after a panic.
#[test]
fn a_loop_that_asks_ends_with_its_context_and_not_with_a_panic() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let (ctx, cancel) = Context::background().with_cancel();
            let steps = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&steps);
            let worker = rt.go(move || {
                ctx.run(|| {
                    loop {
                        let step = || match counted.fetch_add(1, SeqCst) {
                            0 => resume_unwind(Box::new("a panic")),
                            _ => Event::new().wait(),
                        };
                        match catch_unwind(AssertUnwindSafe(step)) {
                            Err(payload) if gmp::is_interrupt(&*payload) => resume_unwind(payload),
                            _either_way => {}
                        }
                    }
                })
            });
            until(|| waiters(&rt) == 1);
            cancel.cancel();
            assert_eq!(worker.join().unwrap(), Err::<(), _>(ContextError::Canceled));
            assert_eq!(steps.load(SeqCst), 2);
        });
    }
}
