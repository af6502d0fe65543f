//! A program whose goroutines are all asleep is reported, and no other program is. And `GMPDEBUG` as a program sees it:
//! `deadlock`, `schedtrace`, `scheddetail`, `panic`.
//!
//! The tests run without libtest: its threads are foreign ones, beside which nothing is reported. Each case is a child process,
//! whose main thread runs it; the parent looks at how it ends.
#![cfg_attr(gmp_loom, allow(dead_code, unused_imports))]

mod asleep;
mod awake;
mod knobs;
mod parent;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The name of a test, and what the parent does.
type Test = (&'static str, fn());

fn main() {
    // The models have none of this.
    if cfg!(gmp_loom) {
        return;
    }
    if let Some(name) = std::env::var_os(parent::CHILD) {
        let name = name.into_string().expect("the parent sends a name");
        let all = asleep::CHILDREN.iter().chain(awake::CHILDREN).chain(knobs::CHILDREN);
        let (_, body) = all.into_iter().find(|child| child.0 == name).expect("the parent knows its children");
        return body();
    }
    let mut args = std::env::args().skip(1);
    let (mut filters, mut skips, mut lists, mut exact) = (Vec::new(), Vec::new(), false, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--list" => lists = true,
            "--exact" => exact = true,
            "--skip" => skips.extend(args.next()),
            "--test-threads" | "--format" | "--color" => drop(args.next()),
            flag if flag.starts_with('-') => {}
            _ => filters.push(arg),
        }
    }
    let matches = |name: &str, filter: &String| if exact { name == filter } else { name.contains(filter) };
    let is_chosen = |name: &str| filters.is_empty() || filters.iter().any(|filter| matches(name, filter));
    let chosen = |name: &str| is_chosen(name) && !skips.iter().any(|skip| matches(name, skip));
    let tests: Vec<Test> = [asleep::TESTS, awake::TESTS, knobs::TESTS].concat();
    let tests: Vec<Test> = tests.into_iter().filter(|test| chosen(test.0)).collect();
    if lists {
        return tests.iter().for_each(|test| println!("{}: test", test.0));
    }
    println!("\nrunning {} tests", tests.len());
    let failed = run(&tests);
    let passed = tests.len() - failed;
    let result = if failed == 0 { "ok" } else { "FAILED" };
    println!("\ntest result: {result}. {passed} passed; {failed} failed\n");
    std::process::exit(i32::from(failed > 0));
}

/// Runs many tests at a time, as the children sleep most of the time. Returns how many have failed.
fn run(tests: &[Test]) -> usize {
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(0));
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                while let Some((name, body)) = tests.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let passed = std::panic::catch_unwind(body).is_ok();
                    println!("test {name} ... {}", if passed { "ok" } else { "FAILED" });
                    *failed.lock().unwrap() += usize::from(!passed);
                }
            });
        }
    });
    failed.into_inner().unwrap()
}
