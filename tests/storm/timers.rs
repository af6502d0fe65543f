//! Timers: each firing comes once, or is stopped, and never before its time.

use crate::worker::Worker;
use gmp::context::{Context, ContextError};
use gmp::time::{Ticker, Timer, after_func};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// How many callbacks are to come.
#[derive(Default)]
pub struct Timers {
    due: Arc<AtomicI64>,
}

impl Timers {
    /// Returns `true` if every timer that was set has fired, or was stopped.
    pub fn have_fired(&self) -> bool {
        self.due.load(SeqCst) == 0
    }
}

pub fn callback(w: &mut Worker) {
    let due = Arc::clone(&w.world.timers.due);
    due.fetch_add(1, SeqCst);
    let (start, limit) = (Instant::now(), w.random.micros(300));
    let timer = after_func(limit, {
        let due = Arc::clone(&due);
        move || {
            assert!(start.elapsed() >= limit, "a callback comes too early");
            due.fetch_sub(1, SeqCst);
        }
    });
    w.pause();
    match w.random.below(3) {
        0 => drop(timer),
        1 => {
            if timer.stop() {
                due.fetch_sub(1, SeqCst);
            }
        }
        // Sets the timer for another time; a firing that came before is one more.
        _ => {
            due.fetch_add(1, SeqCst);
            if timer.reset(limit) {
                due.fetch_sub(1, SeqCst);
            }
        }
    }
}

pub fn channel(w: &mut Worker) {
    let (start, limit) = (Instant::now(), w.random.micros(200));
    let timer = Timer::new(limit);
    match w.random.below(4) {
        0 => {
            let due = timer.receiver().recv().expect("it is open");
            assert!(due >= start + limit && Instant::now() >= due, "a timer comes too early");
        }
        1 => {
            w.pause();
            timer.stop();
            assert!(timer.receiver().try_recv().is_err(), "a value of before the stop");
        }
        2 => {
            let start = Instant::now();
            timer.reset(Duration::from_micros(50));
            let due = timer.receiver().recv().expect("it is open");
            assert!(due >= start + Duration::from_micros(50));
        }
        _ => {
            timer.reset(Duration::from_secs(3600));
            let came = w.ended(|_| timer.receiver().recv());
            assert!(came.is_none(), "an hour has passed");
        }
    }
}

pub fn ticker(w: &mut Worker) {
    let period = Duration::from_micros(20) + w.random.micros(100);
    let ticker = Ticker::new(period);
    for _ in 0..2 {
        ticker.receiver().recv().expect("it is open");
    }
    ticker.reset(2 * period);
    w.ended(|_| ticker.receiver().iter().take(3).for_each(drop));
    ticker.stop();
}

/// Makes a tree of contexts, and a function that is called when the parent ends. All contexts are told of the end.
pub fn context(w: &mut Worker) {
    let (parent, cancel) = Context::background().with_timeout(w.random.micros(300));
    let children: Vec<_> = (0..w.random.below(6)).map(|_| parent.with_cancel()).collect();
    // The probe is dropped whether the function is called or not: a context whose last handle has been dropped never ends.
    let probe = w.world.book.probe();
    let call = parent.after_func(move || drop(probe));
    match w.random.below(3) {
        0 => cancel.cancel(),
        1 => {
            let _either_way = call.stop();
        }
        _ => w.pause(),
    }
    for (child, _) in &children {
        assert!(child.done().recv().is_err());
        assert!(matches!(child.err(), Some(ContextError::Canceled | ContextError::DeadlineExceeded)));
    }
    assert!(parent.done().recv().is_err() && parent.err().is_some());
}

pub fn sleep(w: &mut Worker) {
    let (start, limit) = (Instant::now(), w.random.micros(200));
    match w.random.below(3) {
        0 => {
            gmp::time::sleep(limit);
            assert!(start.elapsed() >= limit, "a sleep ends too early");
        }
        1 => {
            let past = start.checked_sub(limit).unwrap_or(start);
            gmp::time::sleep_until(past);
        }
        _ => {
            let slept = w.ended(|_| gmp::time::sleep(Duration::from_secs(3600)));
            assert!(slept.is_none(), "an hour has passed");
        }
    }
}
