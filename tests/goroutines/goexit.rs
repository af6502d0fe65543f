//! `goexit` ends its goroutine and nothing else, runs destructors, and is no panic.

use common::child;
use common::{everywhere, runtime, until, watched};
use gmp::sync::Event;
use gmp::{JoinError, go, goexit, yield_now};
use std::cell::RefCell;
use std::convert::Infallible;
use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// Counts its drops.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Calls `goexit`, and returns `true` if a `catch_unwind` stops the throw.
fn caught() -> bool {
    catch_unwind(|| goexit()).map(|never: Infallible| match never {}).is_err()
}

#[inline(never)]
fn down(left: u32, drops: &Arc<AtomicUsize>) {
    let _counted = Counted(Arc::clone(drops));
    if left == 0 {
        goexit();
    }
    down(left - 1, drops);
}

/// Fails if a destructor is left out, if the rest of the goroutine runs, or if its end is reported as another one.
#[test]
fn destructors_run_and_join_tells() {
    everywhere(|rt| {
        let drops = Arc::new(AtomicUsize::new(0));
        let many: Vec<_> = (0..100)
            .map(|_| {
                let drops = Arc::clone(&drops);
                rt.go(move || {
                    yield_now();
                    down(9, &drops);
                    drops.fetch_add(1000, SeqCst);
                })
            })
            .collect();
        for one in many {
            let error: JoinError = one.join().unwrap_err();
            assert!(error.is_goexit() && !error.is_panic() && !error.is_shutdown());
            assert_eq!(error.to_string(), "the goroutine called goexit");
            assert!(catch_unwind(AssertUnwindSafe(|| error.into_panic())).is_err());
        }
        assert_eq!((drops.load(SeqCst), rt.num_goroutines()), (1000, 0));
        // The Gs are used again, and nothing of an exit is left in them.
        let again: Vec<_> = (0..200).map(|n| rt.go(move || (yield_now(), n).1)).collect();
        assert!(again.into_iter().enumerate().all(|(n, one)| one.join().unwrap() == n));
    });
}

/// Fails if a goroutine that catches the throw goes on after its next park, or if its value is handed out, or is not dropped.
#[test]
fn a_catcher_ends_at_the_next_park_or_at_its_return() {
    everywhere(|rt| {
        let (drops, steps) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let never = Arc::new(Event::new());
        let parks = rt.go({
            let (steps, never, drops) = (Arc::clone(&steps), Arc::clone(&never), Arc::clone(&drops));
            move || {
                let _counted = Counted(drops);
                assert!(caught());
                steps.fetch_add(1, SeqCst);
                never.wait();
                steps.fetch_add(100, SeqCst);
            }
        });
        assert!(parks.join().unwrap_err().is_goexit());
        let returns = rt.go({
            let (steps, drops) = (Arc::clone(&steps), Arc::clone(&drops));
            move || {
                assert!(caught());
                steps.fetch_add(1, SeqCst);
                Counted(drops)
            }
        });
        assert!(returns.join().unwrap_err().is_goexit());
        assert_eq!((steps.load(SeqCst), drops.load(SeqCst)), (2, 2));
        // A goroutine that has caught the throw may panic after all.
        let panics = rt.go(move || {
            assert!(caught());
            std::panic::resume_unwind(Box::new(7_u8));
        });
        assert_eq!(panics.join().unwrap_err().into_panic().downcast_ref(), Some(&7_u8));
    });
}

/// Fails if `goexit` throws for ever at a goroutine that catches all throws, or does not throw three times.
#[test]
fn a_catcher_of_three_throws_may_park() {
    everywhere(|rt| {
        let (event, count) = (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)));
        let stubborn = rt.go({
            let (event, count) = (Arc::clone(&event), Arc::clone(&count));
            move || {
                let next = || if count.load(SeqCst) == 0 { goexit() } else { event.wait() };
                while catch_unwind(AssertUnwindSafe(next)).is_err() {
                    count.fetch_add(1, SeqCst);
                }
            }
        });
        // After three throws the goroutine sleeps in its park.
        until(|| count.load(SeqCst) == 3 && rt.dump().contains("[event"));
        event.notify_one();
        assert!(stubborn.join().unwrap_err().is_goexit());
        assert_eq!(count.load(SeqCst), 3);
    });
}

/// Waits when it is dropped.
#[derive(Debug)]
struct Waits(Arc<Event>, Arc<AtomicUsize>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.wait();
        self.1.fetch_add(1, SeqCst);
    }
}

gmp::local! {
    static LOCAL: RefCell<Option<Waits>> = const { RefCell::new(None) };
}

/// Fails if the drops that run while the goroutine ends are interrupted, too: of its value, which no joiner gets, and of its
/// local variables.
#[test]
fn destructors_of_its_last_values_may_park() {
    everywhere(|rt| {
        let (event, drops) = (Arc::new(Event::new()), Arc::new(AtomicUsize::new(0)));
        let ends = rt.go({
            let (event, drops) = (Arc::clone(&event), Arc::clone(&drops));
            move || {
                LOCAL.set(Some(Waits(Arc::clone(&event), Arc::clone(&drops))));
                assert!(caught());
                Waits(event, drops)
            }
        });
        for n in 1..=2 {
            event.notify_one();
            until(|| drops.load(SeqCst) == n);
        }
        assert!(ends.join().unwrap_err().is_goexit());
    });
}

#[test]
fn on_a_plain_thread_it_panics() {
    let caught = catch_unwind(|| goexit()).map(|never: Infallible| match never {});
    let text = caught.unwrap_err().downcast::<&str>().unwrap();
    assert_eq!(*text, "goexit: not called on a goroutine");
}

/// Fails if `run` returns, or if the other goroutines end with main.
#[test]
fn in_main_the_others_go_on_and_run_does_not_return() {
    watched(2, || {
        // The runtime is leaked, as `run` keeps it for good.
        let rt = Box::leak(Box::new(runtime(2)));
        let others = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&others);
        let rt: &'static gmp::Runtime = rt;
        let caller = thread::spawn(move || {
            rt.run(move || {
                for _ in 0..10 {
                    let others = Arc::clone(&count);
                    go(move || {
                        (0..10).for_each(|_| yield_now());
                        others.fetch_add(1, SeqCst);
                    });
                }
                goexit()
            })
        });
        until(|| others.load(SeqCst) == 10 && rt.num_goroutines() == 0);
        assert_eq!(rt.go(|| 3).join().unwrap(), 3);
        assert!(!caller.is_finished());
    });
}

/// Fails if the throw passes a frame that no panic may pass.
#[test]
fn below_a_function_of_c_it_ends_the_process() {
    extern "C" fn ends() {
        black_box(goexit as fn() -> !)()
    }
    if !child::is_child() {
        let output = child::run("below_a_function_of_c_it_ends_the_process", &[]);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
        return;
    }
    drop(runtime(1).go(|| black_box(ends as extern "C" fn())()).join());
}

/// Fails if a hook prints the exit like a panic.
#[test]
fn no_panic_hook_runs() {
    if !child::is_child() {
        let stderr = child::passes("no_panic_hook_runs", &[]);
        assert!(!stderr.contains("panicked"), "{stderr}");
        return;
    }
    assert!(runtime(1).go(|| goexit()).join().unwrap_err().is_goexit());
}
