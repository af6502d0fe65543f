//! What does it cost to leave a stack and to come back?
//!
//! `bare` is the assembly alone: to the other stack and back. `yield, goroutines 1` is that and the scheduler's round: the
//! goroutine goes to the end of its P's queue, the M finds it there. Between two goroutines the next one's context is
//! another; a thousand have contexts that no longer fit into the first cache. An operation is one yield.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::bench::Switch;
use gmp::{go, yield_now};
use gmp_benches::on_goroutine;

fn bare(criterion: &mut Criterion) {
    let mut switch = Switch::new();
    criterion.bench_function("switch: bare", |bencher| bencher.iter(|| switch.round_trip()));
}

fn yields(criterion: &mut Criterion) {
    for goroutines in [1, 2, 1000] {
        on_goroutine(criterion, &format!("switch: yield, goroutines {goroutines}"), 1, |n| {
            let each = |i| {
                let share = n / goroutines + u64::from(i < n % goroutines);
                go(move || (0..share).for_each(|_| yield_now()))
            };
            let handles: Vec<_> = (0..goroutines).map(each).collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        });
    }
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = bare, yields }
criterion_main!(all);
