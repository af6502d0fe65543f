//! A runtime with a given number of Ps, and an end for tests that hang.

use crate::cpu::process_time;
use gmp::Runtime;
use std::io::Write;
use std::panic::Location;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The numbers of Ps at which each property is to hold.
pub const PROCS: [usize; 4] = [1, 2, 4, 8];

/// The limit. No property takes a tenth of it, on a machine that others use, too.
const LIMIT: Duration = Duration::from_secs(60);
/// The number of limits that may pass while the process gets some of the cores.
const PATIENCE: u32 = 10;
/// The CPU time that a process uses at most in the whole limit when all of it waits.
const ASLEEP: Duration = Duration::from_millis(100);
/// A test that hangs may keep the lock that the thread that reports it needs.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Returns how many times as long as usual the tests of races are to run, from the environment's `GMP_STRESS`.
pub fn effort() -> u32 {
    std::env::var("GMP_STRESS").map_or(1, |text| text.parse().expect("GMP_STRESS is a number"))
}

/// Starts a runtime with `procs` Ps, and stacks of a release build's size.
pub fn runtime(procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).build() }.expect("a runtime starts")
}

/// Runs `f`; ends the process with a message if `f` does not return.
#[track_caller]
pub fn watched<T>(procs: usize, f: impl FnOnce() -> T) -> T {
    watched_telling(procs, String::new, f)
}

/// As `watched`, and the message ends with what `tell` says then, if it can still say something.
#[track_caller]
pub fn watched_telling<T>(
    procs: usize,
    tell: impl FnOnce() -> String + Send + 'static,
    f: impl FnOnce() -> T,
) -> T {
    let watchdog = Watchdog::start(procs, Box::new(tell));
    let value = f();
    watchdog.end();
    value
}

/// A thread that ends the process if the test has not ended within the limit. Not generic: copies of this code, one for each
/// test, would be a quarter of what there is to compile.
struct Watchdog {
    /// Dropped by an unwind as well.
    alive: Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    #[track_caller]
    fn start(procs: usize, tell: Box<dyn FnOnce() -> String + Send>) -> Self {
        let at = Location::caller();
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let limit = LIMIT * effort().max(1);
        let text =
            format!("\n{name} at {at}, procs = {procs}: no end after {limit:?} of sleep, or of work\n");
        let (alive, ended) = channel::<()>();
        let thread = thread::spawn(move || {
            if !ends_within(limit, &ended) {
                // Writes past the capture of the test's output, which dies with the process.
                let say = |text: &str| std::io::stderr().write_all(text.as_bytes());
                let _written = say(&text);
                let (told, hear) = channel();
                thread::spawn(move || told.send(tell()));
                let _written =
                    say(&hear.recv_timeout(LAST_WORDS).unwrap_or_else(|_| "it does not say why".into()));
                std::process::abort();
            }
        });
        Watchdog { alive, thread }
    }

    fn end(self) {
        drop(self.alive);
        self.thread.join().expect("the watchdog does not panic");
    }
}

/// Waits for the end. A process that gets little of the cores may take longer than `limit`, by the clock. A process that sleeps
/// through `limit`, or that has used it up, hangs.
fn ends_within(limit: Duration, ended: &Receiver<()>) -> bool {
    let begun = process_time();
    for _ in 0..PATIENCE {
        let before = process_time();
        if ended.recv_timeout(limit) != Err(RecvTimeoutError::Timeout) {
            return true;
        }
        let now = process_time();
        if now - before < ASLEEP || now - begun > limit {
            return false;
        }
    }
    false
}

/// Tells what the calling test leaves out here, past the capture of its output: `./test` shows that line.
pub fn skipped(why: impl std::fmt::Display) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    std::io::stderr()
        .write_all(format!("\nskipped: {why}\n  by {name}\n").as_bytes())
        .expect("stderr takes it");
}

/// Waits until `reached` holds, and gives the core to others meanwhile. On goroutines and threads.
pub fn until(mut reached: impl FnMut() -> bool) {
    while !reached() {
        gmp::yield_now();
    }
}
