//! Dumps: `Runtime::dump`, `gmp::dump`, and how long each goroutine has waited.
#![cfg(not(gmp_loom))]

mod common;

use common::{everywhere, until};
use gmp::sync::Event;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The age that the dump gives to the goroutine that waits for an event.
fn age(dump: &str) -> Duration {
    let text = dump.split("[event, ").nth(1).unwrap_or_else(|| panic!("nobody waits: {dump}"));
    let (number, rest) = text.split_once(' ').expect("a number and a unit");
    let number = number.parse().expect("a number");
    if rest.starts_with("ms") { Duration::from_millis(number) } else { Duration::from_secs(number) }
}

/// Fails when a park notes a time of long ago, from before its M fell asleep, or when a wait that goes on begins anew.
#[test]
fn a_wait_is_as_old_as_it_is() {
    everywhere(|rt| {
        let (event, back) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let waiter = rt.go({
            let (event, back) = (Arc::clone(&event), Arc::clone(&back));
            move || {
                event.wait();
                back.notify_one();
                event.wait();
            }
        });
        until(|| rt.dump().contains("[event, "));
        let begun = Instant::now();
        // The runtime falls asleep, its monitor too.
        thread::sleep(Duration::from_millis(300));
        let dumped = age(&rt.dump());
        assert!(dumped >= Duration::from_millis(280), "{dumped:?} after {:?}", begun.elapsed());
        // It parks again.
        let again = Instant::now();
        event.notify_one();
        back.wait();
        until(|| rt.dump().contains("[event, "));
        let dumped = age(&rt.dump());
        let most = again.elapsed() + Duration::from_millis(100);
        assert!(dumped <= most, "{dumped:?} instead of at most {most:?}");
        event.notify_one();
        waiter.join().unwrap();
    });
}

/// Fails when nobody brings the rough time up to date while a goroutine works on and on.
#[test]
fn a_wait_that_begins_in_the_middle_of_work_is_young() {
    everywhere(|rt| {
        let begin = Instant::now();
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let seen = &rt;
        let (waiter, dumped, most) = rt.run(move || {
            while begin.elapsed() < Duration::from_millis(200) {
                gmp::yield_now();
            }
            let parked = Instant::now();
            let waiter = gmp::go(move || waits.wait());
            until(|| seen.dump().contains("[event, "));
            (waiter, age(&seen.dump()), parked.elapsed() + Duration::from_millis(100))
        });
        assert!(dumped <= most, "{dumped:?} instead of at most {most:?}");
        event.notify_one();
        waiter.join().unwrap();
    });
}

#[test]
fn one_goroutine_is_no_goroutines() {
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { gmp::Runtime::builder().procs(1).build() }.unwrap();
    let text = rt.run({
        let rt = &rt;
        move || rt.dump()
    });
    assert!(text.starts_with("1 goroutine, running\n"), "{text}");
    let event = Arc::new(Event::new());
    let waits = Arc::clone(&event);
    let waiter = rt.go(move || waits.wait());
    until(|| rt.dump().starts_with("1 goroutine, not running\n\ngoroutine "));
    event.notify_one();
    waiter.join().unwrap();
}

/// Fails when a runtime is missing in the dump of all.
#[test]
fn a_dump_of_all_names_each_runtime() {
    // SAFETY: nothing here is bound to a thread.
    let start = || unsafe { gmp::Runtime::builder().procs(2).build() }.unwrap();
    let (first, second) = (start(), start());
    let named = |rt: &gmp::Runtime, name: &'static str| {
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let waiter = rt.run(move || gmp::Builder::new().name(name).go(move || waits.wait())).unwrap();
        (event, waiter)
    };
    let waiters = [named(&first, "of the first"), named(&second, "of the second")];
    until(|| {
        let text = gmp::dump();
        text.contains("'of the first' [event, ") && text.contains("'of the second' [event, ")
    });
    // Other tests of this process have runtimes of their own.
    assert!(gmp::dump().starts_with("runtime 1 of "));
    for (event, waiter) in waiters {
        event.notify_one();
        waiter.join().unwrap();
    }
    drop(first);
    assert!(!gmp::dump().contains("of the first"));
}
