//! Processes for the cases, and shared code.

use gmp::{Runtime, RuntimeBuilder};
use std::fmt::Debug;
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

pub const PROCS: [usize; 3] = [1, 2, 4];
pub const MS: Duration = Duration::from_millis(1);
pub const MINUTE: Duration = Duration::from_secs(60);
const CHILD: &str = "GMP_TOKIO_CHILD";

pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Returns the name of the test that contains the closure.
fn test_of<F>(_: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    let (_binary, name) = path.split_once("::").expect("the path of a closure");
    name.strip_suffix("::{{closure}}").expect("a closure of the test's own")
}

/// Runs this program in a process that runs the test alone.
fn child(test: &str, procs: usize, debug: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("the test binary has a path"));
    command.args([test, "--exact", "--nocapture"]).stdin(Stdio::null());
    command.env(CHILD, "1").env("GMPDEBUG", debug).env("GMPMAXPROCS", procs.to_string());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    ended(child)
}

/// Waits for the child. A child that hangs is made to dump its goroutines and die.
fn ended(child: Child) -> Output {
    let (pid, over) = (child.id() as libc::pid_t, Arc::new(AtomicBool::new(false)));
    let guard = thread::spawn({
        let over = Arc::clone(&over);
        move || {
            let start = Instant::now();
            while !over.load(SeqCst) {
                thread::park_timeout(MS * 100);
                if start.elapsed() > MINUTE {
                    // SAFETY: the process is our own child, and no call has reaped it yet.
                    unsafe { libc::kill(pid, libc::SIGQUIT) };
                    return;
                }
            }
        }
    });
    let output = child.wait_with_output().expect("it is our child");
    over.store(true, SeqCst);
    guard.thread().unpark();
    guard.join().unwrap();
    output
}

/// Runs `f` in a process for each number of Ps; each must pass.
#[track_caller]
pub fn alone(f: impl FnOnce()) {
    let test = test_of(&f);
    if is_child() {
        return f();
    }
    for procs in PROCS {
        let output = child(test, procs, "migrate=1");
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(
            output.status.success() && stdout.contains("1 passed"),
            "{test} with {procs} Ps: {}\n{stdout}\n{stderr}",
            output.status
        );
    }
}

/// As `alone`, in the first goroutine of a runtime with a reactor.
#[track_caller]
pub fn everywhere(f: impl FnOnce() + Send + 'static) {
    let test = test_of(&f);
    if is_child() {
        let rt = build(installed());
        rt.run(f);
        assert!(rt.shutdown(MINUTE).is_clean());
        return;
    }
    for procs in PROCS {
        let output = child(test, procs, "migrate=1");
        let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        assert!(
            output.status.success() && stdout.contains("1 passed"),
            "{test} with {procs} Ps: {}\n{stdout}\n{stderr}",
            output.status
        );
    }
}

/// Runs `f` in one process, and returns how that process has ended.
pub fn outcome(procs: usize, debug: &str, f: impl FnOnce()) -> Option<Output> {
    let test = test_of(&f);
    if is_child() {
        f();
        return None;
    }
    Some(child(test, procs, debug))
}

pub fn installed() -> RuntimeBuilder {
    gmp_tokio::install(Runtime::builder()).expect("a reactor starts")
}

pub fn build(builder: RuntimeBuilder) -> Runtime {
    // SAFETY: no goroutine keeps a value of its thread across a park, except in the test that shows the consequences.
    unsafe { builder.build() }.expect("a runtime starts")
}

/// Runs `f` in this many goroutines at once.
pub fn many<T: Debug + Send + 'static>(
    count: usize,
    f: impl Fn(usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let f = Arc::new(f);
    let all: Vec<_> = (0..count)
        .map(|n| {
            let f = Arc::clone(&f);
            gmp::go(move || f(n))
        })
        .collect();
    all.into_iter().map(|one| one.join().unwrap()).collect()
}

#[inline(never)]
pub fn tid() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

/// Polls for a condition of which no wake-up tells.
#[track_caller]
pub fn until(mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < MINUTE, "not within {MINUTE:?}");
        gmp::time::sleep(MS);
    }
}

/// Returns how many threads of this process have a name that begins so.
pub fn threads_called(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").expect("it is there").flatten();
    let names = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

/// Sets a flag when it is dropped.
pub struct Flag(pub Arc<AtomicBool>);

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}
