//! What does a goroutine cost, from `go` to the end of `join`?
//!
//! `one at a time` parks its parent for each; in batches of 100 the parent parks once. Stacks and Gs come from those that have
//! just ended. Wall time: with two Ps the second M may take a share of a batch, and pays for its way there.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::go;
use gmp_benches::on_goroutine;
use std::hint::black_box;

fn spawn(criterion: &mut Criterion) {
    for procs in [1, 2] {
        on_goroutine(criterion, "spawn and join: one at a time", procs, |n| {
            for i in 0..n {
                black_box(go(move || black_box(i)).join().unwrap());
            }
        });
        on_goroutine(criterion, "spawn and join: batches of 100", procs, |n| {
            let mut handles = Vec::with_capacity(100);
            for first in (0..n).step_by(100) {
                handles.extend((first..n.min(first + 100)).map(|i| go(move || black_box(i))));
                handles.drain(..).for_each(|handle| {
                    black_box(handle.join().unwrap());
                });
            }
        });
    }
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = spawn }
criterion_main!(all);
