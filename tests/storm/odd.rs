//! What goroutines do beside waiting: they block their threads, compute, take a thread or a larger stack, and change the number
//! of Ps.

use crate::channels;
use crate::ledger::{Small, isolated};
use crate::worker::Worker;
use gmp::Runtime;
use std::thread;
use std::time::{Duration, Instant};

pub fn blocking(w: &mut Worker) {
    let pause = w.random.micros(100);
    gmp::blocking(|| thread::sleep(pause));
}

/// Blocks its thread in a way that the runtime has to notice.
pub fn unmarked(w: &mut Worker) {
    thread::sleep(w.random.micros(2000));
}

/// Computes for so long that it loses its P.
pub fn hog(_: &mut Worker) {
    let until = Instant::now() + Duration::from_millis(12);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}

/// Does some operations on one thread, however they end.
pub fn locked(w: &mut Worker) {
    if !w.is_goroutine() {
        return;
    }
    struct Unlocks;
    impl Drop for Unlocks {
        fn drop(&mut self) {
            gmp::unlock_os_thread();
        }
    }
    gmp::lock_os_thread();
    let _unlocks = Unlocks;
    let here = thread::current().id();
    for _ in 0..3 {
        isolated(|| channels::ended::<Small>(w));
        w.pause();
        assert_eq!(thread::current().id(), here, "a locked goroutine has moved");
    }
}

/// Starts a goroutine whose thread ends with it.
pub fn locked_for_good(w: &mut Worker) {
    let (probe, pause) = (w.world.book.probe(), w.random.micros(100));
    if w.is_goroutine() {
        drop(gmp::go(move || {
            gmp::lock_os_thread();
            gmp::time::sleep(pause);
            probe
        }));
    }
}

/// Waits as elsewhere, on a larger stack, and on another one within it.
pub fn with_stack(w: &mut Worker) {
    gmp::with_stack(256 << 10, || {
        w.pause();
        gmp::with_stack(256 << 10, || channels::ended::<Small>(w));
    });
}

pub fn procs(w: &mut Worker) {
    if w.is_goroutine() {
        gmp::set_procs(1 + w.random.below(w.world.procs as u64) as usize);
    }
}

pub fn dump(w: &mut Worker) {
    // The frames' names take milliseconds, in a debug build hundreds.
    if w.random.one_in(if cfg!(debug_assertions) { 50 } else { 10 }) {
        let text = gmp::dump();
        assert!(text.contains("goroutine"), "{text}");
    }
}

/// Runs another runtime, which ends while there is something to do.
pub fn runtime(w: &mut Worker) {
    let procs = 1 + w.random.below(2) as usize;
    // SAFETY: no goroutine of the storm keeps a thread-bound value across a blocking call.
    let Ok(other) = (unsafe { Runtime::builder().procs(procs).stack_size(256 << 10).build() }) else {
        return;
    };
    let probe = w.world.book.probe();
    for _ in 0..10 {
        let (probe, pause) = (w.world.book.probe(), w.random.micros(1000));
        drop(other.go(move || {
            gmp::time::sleep(pause);
            probe
        }));
    }
    let limit = w.random.micros(500);
    let inner = move || {
        let slept = gmp::time::timeout(limit, || gmp::time::sleep(Duration::from_secs(3600)));
        assert!(slept.is_err(), "an hour has passed");
        probe
    };
    if w.random.one_in(2) {
        // The caller's own runtime may end meanwhile, and waits for this call.
        drop(other.run(inner));
    } else {
        drop(other.go(inner).join());
    }
    let report = other.shutdown(Duration::from_secs(30));
    assert!(report.is_clean(), "{report:?}");
}

pub fn yields(w: &mut Worker) {
    if w.is_goroutine() { gmp::yield_now() } else { thread::yield_now() }
}
