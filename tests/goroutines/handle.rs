//! A runtime by its handle: from plain threads, from other runtimes, and after its end.

use common::{everywhere, runtime, watched};
use gmp::{Builder, Handle, Runtime, chan};
use std::io::ErrorKind;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MS: Duration = Duration::from_millis(1);

fn named(name: &str) -> Runtime {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(2).thread_name(name).build() }.unwrap()
}

/// Returns which runtime the goroutine's thread belongs to.
fn here() -> String {
    let thread = std::thread::current();
    thread
        .name()
        .unwrap_or_default()
        .split_once('-')
        .map(|(runtime, _)| runtime.to_owned())
        .unwrap_or_default()
}

#[test]
fn a_plain_thread_starts_goroutines_and_waits_for_them() {
    everywhere(|rt| {
        let handle = rt.run(gmp::handle);
        let starts = |n: usize| {
            let handle = handle.clone();
            std::thread::spawn(move || {
                let started: Vec<_> = (0..100).map(|k| handle.go(move || n * k).unwrap()).collect();
                started.into_iter().map(|it| it.join().unwrap()).sum::<usize>()
            })
        };
        let threads = [1, 2, 3].map(starts);
        assert_eq!(threads.map(|thread| thread.join().unwrap()), [4950, 9900, 14850]);
        assert_eq!(handle.num_goroutines(), rt.num_goroutines());
    });
}

/// Fails when a goroutine or a callback runs in the caller's runtime, or a name or a size is lost.
#[test]
fn what_is_started_by_a_handle_runs_in_its_runtime() {
    watched(2, || {
        let (one, other) = (named("one-"), named("other-"));
        let handle = other.handle();
        let seen = one.run(move || {
            let (tell, hear) = chan::bounded(1);
            let spawned = handle.go(here).unwrap().join().unwrap();
            let builder = Builder::new().name("built").stack_size(128 << 10);
            let name = || gmp::current().and_then(|goroutine| goroutine.name().map(str::to_owned));
            let built = builder.go_in(&handle, move || (here(), name())).unwrap().join().unwrap();
            let abortable = handle.go_abortable(here).unwrap().0.join().unwrap();
            assert_eq!(abortable, "other");
            let timer = handle.after_func(MS, move || tell.send(here()).unwrap()).unwrap();
            let called = hear.recv().unwrap();
            assert!(!timer.stop());
            // Once more, set from this runtime.
            assert!(!timer.reset(MS));
            let again = hear.recv().unwrap();
            let stopped = handle.after_func(HOUR, || unreachable!()).unwrap();
            assert!(stopped.stop());
            assert_eq!(here(), "one");
            (spawned, built, called, again)
        });
        let other = || "other".to_owned();
        assert_eq!(seen, (other(), (other(), Some("built".to_owned())), other(), other()));
    });
}

/// A context of a plain thread ends a wait in the runtime, and the other way round; and so does an abort.
#[test]
fn contexts_reach_across() {
    everywhere(|rt| {
        let (context, cancel) = gmp::context::Context::background().with_cancel();
        let inside = context.clone();
        let sleeper = rt.handle().go(move || inside.run(|| gmp::time::sleep(HOUR))).unwrap();
        let outside = std::thread::spawn(move || context.run(|| gmp::time::sleep(HOUR)));
        rt.handle().go(move || cancel.cancel()).unwrap().join().unwrap();
        assert!(sleeper.join().unwrap().is_err());
        assert!(outside.join().unwrap().is_err());
        let (aborted, abort) = rt.handle().go_abortable(|| gmp::time::sleep(HOUR)).unwrap();
        abort.abort();
        assert!(aborted.join().unwrap_err().is_aborted());
    });
}

fn refuses(handle: &Handle) {
    assert!(handle.is_ended());
    assert_eq!(handle.num_goroutines(), 0);
    let held = Arc::new(());
    let (first, second, third, fourth) =
        (Arc::clone(&held), Arc::clone(&held), Arc::clone(&held), Arc::clone(&held));
    let refused = handle.go(move || drop(first)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotConnected);
    assert_eq!(refused.to_string(), "Handle::go: the runtime has ended");
    let refused = Builder::new().go_in(handle, move || drop(second)).unwrap_err();
    assert_eq!(refused.to_string(), "Builder::go_in: the runtime has ended");
    let refused = handle.after_func(MS, move || drop(Arc::clone(&third))).unwrap_err();
    assert_eq!(refused.to_string(), "Handle::after_func: the runtime has ended");
    let refused = handle.go_abortable(move || drop(fourth)).unwrap_err();
    assert_eq!(refused.to_string(), "Handle::go_abortable: the runtime has ended");
    assert_eq!(Arc::strong_count(&held), 1, "a closure was kept");
}

/// Fails by a hang, or by a closure that is kept.
#[test]
fn after_the_end_each_call_is_an_error() {
    everywhere(|rt| {
        let handle = rt.handle();
        let (tell, hear) = std::sync::mpsc::channel();
        // The callback is due after the end, and then runs on a thread of its own.
        let _call = handle.after_func(20 * MS, move || tell.send(gmp::current().is_some()).unwrap()).unwrap();
        assert!(rt.shutdown_timeout(HOUR));
        refuses(&handle);
        hear.recv().unwrap();
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        refuses(&unsafe { gmp::run(gmp::handle) });
        // The same from another runtime.
        runtime(1).run(move || refuses(&handle));
    });
}

/// Threads start goroutines while the runtime ends. Fails by a hang, when a goroutine that was accepted is neither run nor
/// dropped, or when the report counts a goroutine that its thread is about to drop.
#[test]
fn an_end_beside_threads_that_start_goroutines_leaves_nobody_waiting() {
    everywhere(|rt| {
        let (ran, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let thread = |_| {
            let (handle, ran, begun) = (rt.handle(), Arc::clone(&ran), Arc::clone(&begun));
            std::thread::spawn(move || {
                loop {
                    let count = Arc::clone(&ran);
                    match handle.go(move || count.fetch_add(1, SeqCst)) {
                        Ok(started) => match started.join() {
                            Ok(_) => begun.fetch_add(1, SeqCst),
                            Err(ended) => {
                                assert!(ended.is_shutdown(), "{ended}");
                                continue;
                            }
                        },
                        Err(refused) => break assert_eq!(refused.kind(), ErrorKind::NotConnected),
                    };
                }
            })
        };
        let threads = [0, 1, 2].map(thread);
        common::until(|| begun.load(SeqCst) >= 30);
        let report = rt.shutdown(HOUR);
        assert!(report.is_clean(), "{report:?}");
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(Arc::strong_count(&ran), 1, "a closure was kept");
    });
}

/// Fails to compile. A function that C calls must not unwind, so it catches what its calls throw; these types guard no data of
/// the program.
#[test]
fn handles_and_their_like_cross_a_catch() {
    fn crosses<T: UnwindSafe + RefUnwindSafe>() {}
    crosses::<Handle>();
    crosses::<Runtime>();
    crosses::<gmp::time::Timer>();
    crosses::<gmp::context::AfterFunc>();
    crosses::<gmp::fs::ReadDir>();
    crosses::<gmp::process::Child>();
    crosses::<gmp::io::StdinLock<'_>>();
    let rt = runtime(1);
    let handle = rt.handle();
    let sum = catch_unwind(|| handle.go(|| 20 + 22).unwrap().join().unwrap());
    assert_eq!(sum.unwrap(), 42);
}
