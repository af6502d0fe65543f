use crate::support::{MINUTE, MS, alone, build, installed, outcome, threads_called, until};
use gmp::Runtime;
use gmp_tokio::Reactor;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::time::sleep;

fn threads() -> usize {
    threads_called("gmp-reactor")
}

/// Fails if the reactor outlives its runtime, or ends before it.
#[test]
fn the_reactor_ends_with_its_runtime() {
    alone(|| {
        let builder = installed();
        // Each thread sets its name when it begins.
        until(|| threads() > 0);
        let rt = build(builder);
        rt.run(|| gmp_tokio::run(sleep(MS)));
        assert!(threads() > 0);
        assert!(rt.shutdown(MINUTE).is_clean());
        until(|| threads() == 0);

        drop(installed());
        until(|| threads() == 0);
    });
}

/// Fails if `end` does not wait for the runtimes and the threads, or does not drop a task.
#[test]
fn end_waits_for_the_runtimes_and_for_the_threads() {
    alone(|| {
        let alive = Arc::new(AtomicUsize::new(0));
        let (begins, stops) = (Arc::clone(&alive), Arc::clone(&alive));
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .on_thread_start(move || _ = begins.fetch_add(1, SeqCst))
            .on_thread_stop(move || _ = stops.fetch_sub(1, SeqCst))
            .build();
        let reactor = Reactor::new(tokio.unwrap());
        let runtimes = [(); 2].map(|()| build(reactor.install(Runtime::builder())));
        for rt in &runtimes {
            let own = rt.run(|| Handle::current().id());
            assert_eq!(own, reactor.handle().id());
        }
        let (told, tells) = mpsc::channel();
        reactor.handle().spawn(async move {
            let _told: mpsc::Sender<()> = told;
            std::future::pending::<()>().await
        });
        // The runtimes end while `end` waits.
        let ends = thread::spawn(move || {
            let clean = runtimes.map(|rt| rt.shutdown(MINUTE).is_clean());
            assert_eq!(clean, [true; 2]);
        });
        assert!(reactor.end(MINUTE));
        assert_eq!(alive.load(SeqCst), 0);
        assert!(tells.recv().is_err(), "the task is dropped");
        ends.join().unwrap();
    });
}

/// Fails if `end` waits longer than its limit, or claims that the reactor has ended although it has not.
#[test]
fn end_says_when_it_was_not_seen_in_time() {
    alone(|| {
        let reactor = Reactor::start().unwrap();
        let rt = build(reactor.install(Runtime::builder()));
        let start = Instant::now();
        assert!(!reactor.end(MS * 20), "a runtime has it");
        assert!(start.elapsed() >= MS * 20);
        rt.run(|| gmp_tokio::run(sleep(MS)));
        drop(rt);
        until(|| threads() == 0);

        let reactor = Reactor::start().unwrap();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (begun, begins) = mpsc::channel();
        reactor.handle().spawn_blocking(move || {
            begun.send(()).unwrap();
            goes_on.recv()
        });
        begins.recv().unwrap();
        assert!(!reactor.end(MS * 20), "a thread of it is at work");
        drop(go_on);
        until(|| threads() == 0);
    });
}

/// Fails if a goroutine that is left behind in a blocking call loses the reactor, or if the reactor stays after the goroutine
/// has ended.
#[test]
fn a_goroutine_left_behind_in_a_blocking_call_keeps_the_reactor() {
    alone(|| {
        let rt = build(installed().shutdown_timeout(MS));
        let (go_on, goes_on) = mpsc::channel::<()>();
        let (told, tells) = mpsc::channel();
        let (begun, begins) = mpsc::channel();
        rt.go(move || {
            begun.send(()).unwrap();
            let _disconnected = goes_on.recv();
            // The runtime no longer waits for this goroutine, which still has its reactor.
            let done = Handle::current().block_on(async { tokio::spawn(async { 3 }).await });
            told.send(done.unwrap()).unwrap();
        });
        begins.recv().unwrap();
        assert!(!rt.shutdown_timeout(MS * 20), "it is left behind");
        assert!(threads() > 0);
        drop(go_on);
        assert_eq!(tells.recv_timeout(MINUTE), Ok(3));
        until(|| threads() == 0);
    });
}

/// Fails if a wake after the end of gmp's runtime accesses freed memory: the task has the waker of a goroutine that has ended.
#[test]
fn a_wake_after_the_end_reaches_nobody() {
    alone(|| {
        let reactor = Reactor::start().unwrap();
        let rt = build(reactor.install(Runtime::builder()));
        let waker = rt.run(|| {
            let mut waker = None;
            gmp::block_on(std::future::poll_fn(|cx| {
                waker = Some(cx.waker().clone());
                std::task::Poll::Ready(())
            }));
            waker.unwrap()
        });
        assert!(rt.shutdown(MINUTE).is_clean());
        let wakes = reactor.handle().spawn(async move {
            for _ in 0..100 {
                sleep(MS / 10).await;
                waker.wake_by_ref();
            }
        });
        reactor.handle().block_on(wakes).unwrap();
        assert!(reactor.end(MINUTE));
    });
}

/// Fails if the last holder, a task of the reactor itself, waits for itself, or panics.
#[test]
fn a_task_of_the_reactor_may_be_the_last_that_keeps_it() {
    alone(|| {
        let reactor = Reactor::start().unwrap();
        let handle = reactor.handle().clone();
        let dropped = handle.spawn(async move { drop(reactor) });
        // The join may report the task as cancelled, as the task ends its own runtime.
        let _ended = thread::spawn(move || handle.block_on(dropped)).join().unwrap();
        until(|| threads() == 0);
    });
}

/// Fails if the thread of `run_locked` stays in the reactor, or was not in it.
#[test]
fn the_thread_of_run_locked_leaves_when_the_call_returns() {
    alone(|| {
        let rt = build(installed());
        assert!(Handle::try_current().is_err());
        // SAFETY: no goroutine keeps a value of its thread.
        let three = unsafe {
            rt.run_locked(|| {
                gmp::block_on(sleep(MS));
                gmp_tokio::run(async { 3 })
            })
        };
        assert_eq!(three, 3);
        assert!(Handle::try_current().is_err());
        assert!(rt.shutdown(MINUTE).is_clean());
    });
}

/// Fails if the panic's text does not say what to add, or if the panic names another place than the caller's.
#[test]
fn without_a_reactor_run_says_what_to_add() {
    alone(|| {
        // SAFETY: no goroutine keeps a value of its thread.
        let rt = unsafe { Runtime::builder().build() }.unwrap();
        let refused = rt.run(|| catch_unwind(|| gmp_tokio::run(async {})).expect_err("there is none"));
        let text = refused.downcast_ref::<&str>().expect("a text");
        assert!(
            text.contains("gmp_tokio::install(builder)") && text.contains("gmp_tokio::reactor()"),
            "{text}"
        );
        let refused = catch_unwind(|| gmp_tokio::run(async {})).expect_err("nor on a plain thread");
        assert!(refused.downcast_ref::<&str>().is_some_and(|text| text.contains("install")));
        // The panic of tokio's own functions.
        let refused =
            rt.run(|| catch_unwind(AssertUnwindSafe(|| drop(tokio::spawn(async {})))).expect_err("none"));
        let text = refused.downcast_ref::<String>().expect("a text");
        let theirs = "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
        assert!(text.contains(theirs), "{text}");
    });
}

/// Fails if `run` hangs on a plain thread in the context of a reactor, or in that of a reactor that has ended.
#[test]
fn on_a_plain_thread_run_blocks_and_says_when_its_runtime_has_ended() {
    alone(|| {
        let reactor = Reactor::start().unwrap();
        let handle = reactor.handle().clone();
        let _in = handle.enter();
        assert_eq!(gmp_tokio::run(async { 4 }), 4);
        assert!(reactor.end(MINUTE));
        let refused = catch_unwind(|| gmp_tokio::run(async {})).expect_err("it has ended");
        assert!(refused.downcast_ref::<&str>().is_some_and(|text| text.contains("has ended before")));
    });
}

/// Fails if a runtime that no thread would drive is accepted: each `run` would hang.
#[test]
fn a_runtime_of_the_current_thread_is_refused() {
    let current = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let refused = catch_unwind(AssertUnwindSafe(|| Reactor::new(current))).expect_err("refused");
    assert!(refused.downcast_ref::<&str>().is_some_and(|text| text.contains("new_multi_thread")));
}

/// Fails if the attributes don't enter the reactor.
#[gmp::test(unsafe, procs = 2, on_thread_start = gmp_tokio::reactor())]
fn an_attribute_has_the_reactor() {
    gmp::block_on(sleep(MS));
    assert_eq!(gmp::block_on(tokio::spawn(async { 4 })).unwrap(), 4);
}

/// Fails if a reactor that the kernel refuses panics, or if the error does not say what was attempted.
#[test]
fn what_the_kernel_refuses_is_an_error_that_names_the_reactor() {
    let output = outcome(1, "", || {
        let none = libc::rlimit { rlim_cur: 3, rlim_max: 3 };
        // SAFETY: a valid limit.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &none) }, 0);
        let refused = gmp_tokio::install(Runtime::builder()).expect_err("no descriptor is left");
        assert!(refused.to_string().contains("cannot start the reactor"), "{refused}");
        assert_eq!(refused.kind(), std::io::Error::from_raw_os_error(libc::EMFILE).kind());
    });
    if let Some(output) = output {
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{stderr}");
    }
}

/// Fails if the end of a locked goroutine's thread, or of an idle thread, disturbs the context of other threads.
#[test]
fn threads_that_end_leave_the_reactor_one_by_one() {
    alone(|| {
        let rt = build(installed().thread_keep_alive(Duration::ZERO));
        rt.run(|| {
            for _ in 0..20 {
                let locked = gmp::go(|| {
                    gmp::lock_os_thread();
                    gmp::block_on(sleep(MS));
                    gmp_tokio::run(async { 1 })
                });
                assert_eq!(locked.join().unwrap(), 1);
                gmp::blocking(|| thread::sleep(MS));
            }
        });
        assert!(rt.shutdown(MINUTE).is_clean());
        until(|| threads() == 0);
    });
}
