//! As `main.rs`, for goroutines of other verbs and classes than `go`: a program of its own, as the compiler inlines less of a
//! spawn where a program spawns in several ways.

mod common;

use common::{join, sum_below};
use gmp::policy::{Policy, WorkStealing};
use gmp::sync::Event;
use gmp::{Affinity, Builder, Priority, go, go_lifo, yield_now, yield_to};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let [_, workload, n] = &args[..] else { panic!("gmp-counts-placed WORKLOAD N") };
    let n: u64 = n.parse().expect("a number of operations");
    let work: fn(u64) = match workload.as_str() {
        "fair_join" => |n| placed_join(n, Builder::new().fair()),
        "mailed_join" => |n| placed_join(n, Builder::new().affinity(Affinity::of_current())),
        "low_join" => |n| placed_join(n, Builder::new().priority(Priority::Low)),
        "background_join" => |n| placed_join(n, Builder::new().priority(Priority::Background)),
        "lifo_join" => lifo_join,
        "hinted_ready" => hinted_ready,
        "yield_low" => yields_of_low,
        "yield_to" => yields_to,
        "yield_fifo" | "yield_random" => yields,
        "class_load" => class_load,
        _ => panic!("there is no workload {workload:?}"),
    };
    let policy = match workload.as_str() {
        "yield_fifo" => Policy::GlobalFifo,
        "yield_random" => Policy::Random(1),
        _ => WorkStealing::new().into(),
    };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(1).policy(policy).build() }.expect("a runtime");
    common::run(&runtime, work, n)
}

/// As `spawn_join` of the other program, by this builder.
fn placed_join(n: u64, builder: Builder) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let mut handles = Vec::with_capacity(100);
    for batch in 0..n / 100 {
        let each = |i| {
            let add = move || {
                SUM.fetch_add(batch * 100 + i, Relaxed);
            };
            builder.clone().go(add).unwrap()
        };
        handles.extend((0..100).map(each));
        join(handles.drain(..));
    }
    assert_eq!(SUM.load(Relaxed), sum_below(n));
}

/// As `spawn_join` of the other program, by `go_lifo`.
fn lifo_join(n: u64) {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let mut handles = Vec::with_capacity(100);
    for batch in 0..n / 100 {
        let each = |i| {
            go_lifo(move || {
                SUM.fetch_add(batch * 100 + i, Relaxed);
            })
        };
        handles.extend((0..100).map(each));
        join(handles.drain(..));
    }
    assert_eq!(SUM.load(Relaxed), sum_below(n));
}

/// As `park_ready` of the other program, and one of the two has a hint, which names the P where both are.
fn hinted_ready(n: u64) {
    let (ping, pong) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (hears, answers) = (Arc::clone(&ping), Arc::clone(&pong));
    let other = go(move || {
        for _ in 0..n {
            hears.wait();
            answers.notify_one();
        }
    });
    assert!(other.set_affinity(Affinity::of_current()));
    for _ in 0..n {
        ping.notify_one();
        pong.wait();
    }
    join([other]);
}

/// Two of class Low.
fn yields_of_low(n: u64) {
    let each =
        |_| Builder::new().priority(Priority::Low).go(move || (0..n / 2).for_each(|_| yield_now())).unwrap();
    join((0..2).map(each).collect::<Vec<_>>());
}

/// As `yield_2` of the other program.
fn yields(n: u64) {
    let each = |_| go(move || (0..n / 2).for_each(|_| yield_now()));
    join((0..2).map(each).collect::<Vec<_>>());
}

/// A turn that is given to another one, which yields it back.
fn yields_to(n: u64) {
    let other = go(move || (0..n).for_each(|_| yield_now()));
    (0..n).for_each(|_| yield_to(&other));
    join([other]);
}

/// A look at how many of class Low wait: one.
fn class_load(n: u64) {
    let low = Builder::new().priority(Priority::Low).go(|| ()).unwrap();
    let handle = gmp::handle();
    let waiting: usize = (0..n).map(|_| handle.class_load(Priority::Low).waiting).sum();
    assert_eq!(waiting as u64, n);
    join([low]);
}
