//! What the whole-system tests share: a fresh runtime for each number of Ps, and an end for what hangs.

use gmp::Runtime;
use std::io::Write;
use std::panic::Location;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// The numbers of Ps at which each property is to hold.
pub const PROCS: [usize; 4] = [1, 2, 4, 8];

/// No property takes a tenth of it, on a machine that others use too.
const LIMIT: Duration = Duration::from_secs(60);

/// How many times as long as usual the tests of races are to run, from the environment's `GMP_STRESS`.
pub fn effort() -> u32 {
    std::env::var("GMP_STRESS").map_or(1, |text| text.parse().expect("GMP_STRESS is a number"))
}

/// A runtime with `procs` Ps.
pub fn runtime(procs: usize) -> Runtime {
    // SAFETY: no goroutine of these tests keeps a thread-bound value across a blocking call.
    unsafe { Runtime::builder().procs(procs).build() }.expect("a runtime starts")
}

/// The property holds in a fresh runtime of each size.
#[track_caller]
pub fn everywhere(property: impl Fn(Runtime)) {
    for procs in PROCS {
        watched(procs, || property(runtime(procs)));
    }
}

/// Runs `f`; ends the process with a message when it does not come back.
#[track_caller]
pub fn watched<T>(procs: usize, f: impl FnOnce() -> T) -> T {
    let at = Location::caller();
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let limit = LIMIT * effort().max(1);
    let text = format!("\n{name} at {at}, procs = {procs}: no end after {limit:?}\n");
    let (alive, ended) = channel::<()>();
    let watchdog = thread::spawn(move || {
        if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            // Past the capture of the test's output, which dies with the process.
            let _written = std::io::stderr().write_all(text.as_bytes());
            std::process::abort();
        }
    });
    // Dropped by an unwind as well.
    let alive = alive;
    let value = f();
    drop(alive);
    watchdog.join().expect("the watchdog does not panic");
    value
}

/// Waits for what others do, and gives them the core meanwhile. On goroutines and threads.
pub fn until(mut reached: impl FnMut() -> bool) {
    while !reached() {
        gmp::yield_now();
    }
}
