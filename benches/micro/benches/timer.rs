//! What does a timer cost that does not fire?
//!
//! `created and stopped` is a time-out that was not needed: an allocation, two visits in the heap of a P under its lock, and a
//! look at the clock. `reset` moves the same one.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::time::after_func;
use gmp_benches::on_goroutine;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

fn timer(criterion: &mut Criterion) {
    on_goroutine(criterion, "timer: created and stopped", 1, |n| {
        (0..n).for_each(|_| assert!(after_func(HOUR, || ()).stop()));
    });
    on_goroutine(criterion, "timer: reset", 1, |n| {
        let timer = after_func(HOUR, || ());
        (0..n).for_each(|_| assert!(timer.reset(HOUR)));
        assert!(timer.stop());
    });
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = timer }
criterion_main!(all);
