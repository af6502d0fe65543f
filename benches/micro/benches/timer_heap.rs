//! What does a timer cost in a heap of so many others, without clock and lock?
//!
//! In pairs that leave the heap as large as it was, since a stop leaves work for later, and only the whole of it is a price:
//! `insert and remove` is a deadline that was not needed, `insert and pop` one that fired, `reset` one that was moved. Due
//! times are spread evenly. 10,000 timers do not fit into the first cache.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp_timers::{Heap, Nanos};
use std::hint::black_box;

/// Due times without a pattern, from `now` on: Marsaglia's xorshift.
struct Dues(u64);

impl Dues {
    fn after(&mut self, now: u64) -> Nanos {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Nanos::from_nanos(now + self.0 % SPREAD)
    }
}

/// So far from now at most, in nanoseconds.
const SPREAD: u64 = 1_000_000_000;

fn timer_heap(criterion: &mut Criterion) {
    for size in [1, 100, 10_000] {
        let mut dues = Dues(0x9e37_79b9_7f4a_7c15);
        let filled = |dues: &mut Dues| {
            let mut heap = Heap::new();
            let handles: Vec<_> = (0..size).map(|i| heap.insert(dues.after(0), i)).collect();
            (heap, handles)
        };

        let (mut heap, _) = filled(&mut dues);
        criterion.bench_function(&format!("timer heap of {size}: insert and remove"), |bencher| {
            bencher.iter(|| {
                let handle = heap.insert(black_box(dues.after(0)), 0);
                heap.remove(black_box(handle)).expect("it was inserted")
            });
        });

        let (mut heap, _) = filled(&mut dues);
        let mut now = 0;
        criterion.bench_function(&format!("timer heap of {size}: insert and pop"), |bencher| {
            bencher.iter(|| {
                heap.insert(black_box(dues.after(now)), 0);
                let (due, value) = heap.pop_due(Nanos::from_nanos(u64::MAX)).expect("it is not empty");
                now = due.saturating_since(Nanos::ZERO).as_nanos() as u64;
                value
            });
        });

        let (mut heap, handles) = filled(&mut dues);
        let mut next = handles.iter().cycle();
        criterion.bench_function(&format!("timer heap of {size}: reset"), |bencher| {
            bencher.iter(|| {
                let handle = *next.next().expect("a cycle");
                assert!(heap.reset(black_box(handle), dues.after(0)), "it is in the heap");
            });
        });
    }
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = timer_heap }
criterion_main!(all);
