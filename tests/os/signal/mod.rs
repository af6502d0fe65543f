//! Signals. Each test runs in a process of its own: an action belongs to the whole process.

mod actions;
mod beside;
mod context;
mod quit;
mod receivers;
mod refused;
mod storm;

use common::child;
use gmp::signal::Signal;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Runs `f` in a process of its own, which ignores only the signals that Rust programs ignore.
#[track_caller]
fn alone(test: &str, f: impl FnOnce()) {
    if child::is_child() {
        // A background job of a shell ignores SIGINT, and a program that nohup has started ignores SIGHUP; the test would
        // inherit that.
        for signal in [libc::SIGINT, libc::SIGHUP] {
            set(signal, libc::SIG_DFL);
        }
        f();
    } else {
        child::passes(test, &[]);
    }
}

/// As `alone`, but the process must die by `signal`, and must report no failure before.
#[track_caller]
fn dies_by(signal: Signal, test: &str, f: impl FnOnce()) {
    if child::is_child() {
        set(libc::SIGINT, libc::SIG_DFL);
        // A signal that is being delivered ends the process a moment later. If no signal comes, the process ends all the same.
        let _ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).map(|()| {
            std::thread::sleep(Duration::from_secs(10));
        });
        std::process::exit(99);
    }
    let output = child::run(test, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.signal(), Some(signal.as_raw()), "{}, {said}", output.status);
    assert!(!said.contains("panicked"), "{said}");
}

fn raise(signal: Signal) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::kill(libc::getpid(), signal.as_raw()) }, 0);
}

/// Sets the action, and returns the one before.
fn set(signal: libc::c_int, action: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: the default action, to ignore, or a handler that does only what a handler may do.
    unsafe { libc::signal(signal, action) }
}

fn action(signal: Signal) -> libc::sigaction {
    // SAFETY: a struct of integers, which the call fills.
    unsafe {
        let mut now = std::mem::zeroed();
        assert_eq!(libc::sigaction(signal.as_raw(), std::ptr::null(), &raw mut now), 0);
        now
    }
}

fn handler(signal: Signal) -> libc::sighandler_t {
    action(signal).sa_sigaction
}

/// Returns the names of this process's threads.
fn threads() -> Vec<String> {
    let tasks = fs::read_dir("/proc/self/task").expect("it is there");
    tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok()).collect()
}

fn serves() -> bool {
    threads().iter().any(|name| name.trim() == "gmp-signals")
}

/// Longer than any signal takes: a test that waits so long fails.
const LIMIT: Duration = Duration::from_secs(30);

fn limit() -> Instant {
    Instant::now() + LIMIT
}

/// How often the handlers of these tests were called.
static CALLS: AtomicUsize = AtomicUsize::new(0);
static BELOW: AtomicUsize = AtomicUsize::new(0);

/// A handler like that of a library that is installed later, and calls the handler that it found.
extern "C" fn passes_on(number: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    CALLS.fetch_add(1, SeqCst);
    type Full = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    // SAFETY: the handler that was found has the flag SA_SIGINFO.
    let below: Full = unsafe { std::mem::transmute(BELOW.load(SeqCst)) };
    below(number, info, context);
}

fn install_over(signal: Signal) {
    let mut over = action(signal);
    assert!(over.sa_flags & libc::SA_SIGINFO != 0);
    BELOW.store(over.sa_sigaction, SeqCst);
    over.sa_sigaction = passes_on as *const () as usize;
    // SAFETY: a handler that does only what a handler may do.
    assert_eq!(unsafe { libc::sigaction(signal.as_raw(), &raw const over, std::ptr::null_mut()) }, 0);
}
