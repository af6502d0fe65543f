//! What does it cost to wait, and to be woken by another goroutine?
//!
//! Two goroutines with an event each: an operation is a round trip, two parks and two wake-ups. What a channel costs beyond
//! that is its own. With two Ps they have nothing to do at the same time: the difference is what it costs to offer work
//! to others.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::go;
use gmp::sync::Event;
use gmp_benches::on_goroutine;
use std::sync::Arc;

fn round_trips(n: u64) {
    let (ping, pong) = (Arc::new(Event::new()), Arc::new(Event::new()));
    let (hears, answers) = (Arc::clone(&ping), Arc::clone(&pong));
    let other = go(move || {
        for _ in 0..n {
            hears.wait();
            answers.notify_one();
        }
    });
    for _ in 0..n {
        ping.notify_one();
        pong.wait();
    }
    other.join().unwrap();
}

fn park(criterion: &mut Criterion) {
    for procs in [1, 2] {
        on_goroutine(criterion, "park and ready: a round trip", procs, round_trips);
    }
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = park }
criterion_main!(all);
