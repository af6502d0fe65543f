//! The library calls functions of the program. If there is neither a stack nor a thread for such a call, the call waits until a
//! thread can be had; no thread of the library makes the call on its own stack.

use common::child;
use common::seccomp::refuse_while;
use common::{runtime, until, watched};
use gmp::net::UnixStream;
use gmp::{Builder, JoinHandle, Runtime, blocking, chan, time, yield_now};
use std::hint::spin_loop;
use std::iter::from_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);
const STACK: usize = 256 << 10;
const TOLD: &str = "gmp: a function of the program waits for a thread that calls it";

/// What the called functions do, by name.
const CALLS: [(&str, fn()); 5] = [
    ("sleeps", || time::sleep(MS)),
    ("yields", yield_now),
    ("blocks", || blocking(|| thread::sleep(MS))),
    ("receives", || assert!(chan::after(MS).recv().is_ok())),
    ("panics", || std::panic::resume_unwind(Box::new("on purpose"))),
];

/// Refuses threads while the flag is set, on this thread and those that it starts.
fn refusable() -> Arc<AtomicBool> {
    let flag = Arc::new(AtomicBool::new(false));
    let refuses = Arc::clone(&flag);
    refuse_while([libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, move || refuses.load(SeqCst));
    flag
}

fn with_few_stacks() -> Runtime {
    let builder = Runtime::builder().procs(1).stack_size(STACK).max_stack_bytes(5 * STACK);
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    unsafe { builder.build() }.unwrap()
}

/// Goroutines that hold all stacks that the runtime had left.
struct Taken(chan::Sender<()>, Vec<JoinHandle<()>>);

impl Taken {
    fn take_all() -> Self {
        let (keeps, waits) = chan::bounded::<()>(0);
        let take_one = || {
            let waits = waits.clone();
            Builder::new().go(move || assert!(waits.recv().is_err())).ok()
        };
        Taken(keeps, from_fn(take_one).collect())
    }

    fn give_back(self) {
        drop(self.0);
        self.1.into_iter().for_each(|one| one.join().unwrap());
    }
}

/// A function to call. When the call is over, even by a panic, it sends the name of its thread.
struct Calls(fn(), Sender<String>);

impl Calls {
    /// Returns the call with the action that the test's process was given, and where the name of its thread arrives.
    fn begin() -> (Self, Receiver<String>) {
        let what = std::env::var("WHAT").unwrap();
        let f = CALLS.iter().find(|(name, _)| *name == what).unwrap().1;
        let (tell, told) = channel();
        (Calls(f, tell), told)
    }

    fn call(&self) {
        let _over = TellsItsThread(self.1.clone());
        self.0();
    }
}

struct TellsItsThread(Sender<String>);

impl Drop for TellsItsThread {
    fn drop(&mut self) {
        self.0.send(thread::current().name().unwrap_or_default().to_owned()).unwrap();
    }
}

impl Wake for Calls {
    fn wake(self: Arc<Self>) {
        self.call();
    }
}

/// Runs the test in a process of its own for each of `CALLS`.
fn for_each_call(test: &str) {
    for (what, _) in CALLS {
        let said = child::passes(test, &[("WHAT", what)]);
        assert_eq!(said.matches(TOLD).count(), 1, "{what}: {said}");
    }
}

/// Runs on a goroutine. Waits, while threads are refused, until the library has asked for a thread again, and asserts that it
/// has called nothing meanwhile. Then grants threads, and returns the name of the thread that makes the call.
fn is_kept(refuses: &AtomicBool, told: &Receiver<String>, mut between: impl FnMut()) -> String {
    let asked = || gmp::handle().refused().calls() > 1;
    while !asked() {
        assert!(told.try_recv().is_err(), "called, where no thread can be had");
        between();
    }
    refuses.store(false, SeqCst);
    told.recv().unwrap()
}

/// Fails by an assertion, or SIGSEGV, when the callback parks on the stack of the M that has found it due; or when the operator
/// is not told.
#[test]
fn a_callback_that_an_m_has_found_due_waits_for_a_thread() {
    const TEST: &str = "a_callback_that_an_m_has_found_due_waits_for_a_thread";
    if !child::is_child() {
        return for_each_call(TEST);
    }
    watched(1, || {
        let (refuses, rt) = (refusable(), with_few_stacks());
        let on = rt.run(|| {
            let (calls, told) = Calls::begin();
            let taken = Taken::take_all();
            refuses.store(true, SeqCst);
            let _timer = time::after_func(MS, move || calls.call());
            let on = is_kept(&refuses, &told, || time::sleep(MS));
            taken.give_back();
            on
        });
        assert_eq!(on, "gmp-callback");
        assert!(rt.shutdown(SHUTDOWN_LIMIT).is_clean());
    });
}

/// Fails by the thread's name when the monitor makes the call itself, and so does nothing else meanwhile.
#[test]
fn a_callback_that_the_monitor_has_found_due_waits_for_a_thread() {
    const TEST: &str = "a_callback_that_the_monitor_has_found_due_waits_for_a_thread";
    if !child::is_child() {
        return for_each_call(TEST);
    }
    watched(1, || {
        let (refuses, rt) = (refusable(), with_few_stacks());
        let on = rt.run(|| {
            let (calls, told) = Calls::begin();
            let taken = Taken::take_all();
            // Meanwhile the goroutines begin to wait.
            time::sleep(MS);
            refuses.store(true, SeqCst);
            let _timer = time::after_func(MS, move || calls.call());
            // The only P is busy.
            let on = is_kept(&refuses, &told, spin_loop);
            taken.give_back();
            on
        });
        assert_eq!(on, "gmp-callback");
        assert!(rt.shutdown(SHUTDOWN_LIMIT).is_clean());
    });
}

/// Fails by an assertion, or SIGSEGV, when the waker parks on the stack of the M that wakes the task; or when the operator is
/// not told.
#[test]
fn the_waker_of_a_task_waits_for_a_thread() {
    const TEST: &str = "the_waker_of_a_task_waits_for_a_thread";
    if !child::is_child() {
        return for_each_call(TEST);
    }
    watched(1, || {
        let (refuses, rt) = (refusable(), with_few_stacks());
        let on = rt.run(|| {
            let (calls, told) = Calls::begin();
            let waker = Waker::from(Arc::new(calls));
            let taken = Taken::take_all();
            refuses.store(true, SeqCst);
            let mut sleep = Box::pin(time::sleep_async(MS));
            assert!(Pin::new(&mut sleep).poll(&mut Context::from_waker(&waker)).is_pending());
            let on = is_kept(&refuses, &told, || time::sleep(MS));
            taken.give_back();
            on
        });
        assert_eq!(on, "gmp-aside");
        assert!(rt.shutdown(SHUTDOWN_LIMIT).is_clean());
    });
}

/// Fails by the thread's name when the thread that ends the runtime calls the waker, which may wait for a lock of that thread;
/// or by a hang when the call is lost with the runtime.
#[test]
fn the_end_of_a_runtime_leaves_the_call_to_another() {
    const TEST: &str = "the_end_of_a_runtime_leaves_the_call_to_another";
    if !child::is_child() {
        return for_each_call(TEST);
    }
    watched(1, || {
        let (refuses, rt) = (refusable(), runtime(1));
        let (calls, told) = Calls::begin();
        let waker = Waker::from(Arc::new(calls));
        let (near, _far) = UnixStream::pair().unwrap();
        let pends = rt.run(|| near.poll_read(&mut Context::from_waker(&waker), &mut [0]));
        assert!(matches!(pends, Poll::Pending));
        refuses.store(true, SeqCst);
        let report = rt.shutdown(SHUTDOWN_LIMIT);
        assert!(told.try_recv().is_err(), "called, where no thread can be had");
        assert!(report.is_clean() && report.refused().calls() > 0, "{report:?}");
        refuses.store(false, SeqCst);
        let other = runtime(1);
        let mut on = None;
        until(|| {
            on = told.try_recv().ok();
            on.is_some()
        });
        assert_eq!(on.as_deref(), Some("gmp-aside"));
        assert!(other.shutdown(SHUTDOWN_LIMIT).is_clean());
    });
}
