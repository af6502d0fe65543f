//! What does a P's own queue cost, without anything that runs?
//!
//! One thread is owner and thief, so no exchange fails and every line is in its cache: these are the floors. A push and its
//! pop are two steps of a yield, a `push_next` and its `pop_next` two of a wake-up. A steal of half takes 128 of 256;
//! it is paid once for 128 goroutines.

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use gmp::bench::{Gs, Runq};
use std::hint::black_box;

fn runq(criterion: &mut Criterion) {
    let gs = Gs::new(256);
    let queue = Runq::new();
    let g = gs.iter().next().expect("there are 256");
    criterion.bench_function("runq: push and pop", |bencher| {
        bencher.iter(|| {
            queue.push(black_box(g));
            queue.pop().expect("it was pushed")
        });
    });
    criterion.bench_function("runq: push_next and pop_next", |bencher| {
        bencher.iter(|| {
            queue.push_next(black_box(g));
            queue.pop_next().expect("it was pushed")
        });
    });
    let full = || {
        let queue = Runq::new();
        gs.iter().for_each(|g| queue.push(g));
        (queue, Runq::new())
    };
    criterion.bench_function("runq: steal 128 of 256", |bencher| {
        bencher.iter_batched_ref(
            full,
            |(victim, thief)| thief.steal_from(victim).expect("the ring is full"),
            BatchSize::NumIterations(64),
        );
    });
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = runq }
criterion_main!(all);
