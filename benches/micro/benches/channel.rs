//! What does a message cost through a channel?
//!
//! `uncontended` is one goroutine that sends to itself: the channel's lock and its buffer, twice. `rendezvous` parks for each
//! message; through a buffer of 128 the two sides take turns, so the parks are paid once for a hundred messages.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::chan::{Receiver, Sender, bounded, unbounded};
use gmp::go;
use gmp_benches::on_goroutine;
use std::hint::black_box;

/// `n` numbers from one goroutine to another.
fn pass((sender, receiver): (Sender<u64>, Receiver<u64>), n: u64) {
    let other = go(move || (0..n).for_each(|i| sender.send(i).unwrap()));
    assert_eq!(receiver.iter().count() as u64, n);
    other.join().unwrap();
}

fn channel(criterion: &mut Criterion) {
    on_goroutine(criterion, "channel: try_send and try_recv, uncontended", 1, |n| {
        let (sender, receiver) = bounded(1);
        for i in 0..n {
            sender.try_send(black_box(i)).unwrap();
            assert_eq!(receiver.try_recv(), Ok(i));
        }
    });
    for procs in [1, 2] {
        on_goroutine(criterion, "channel: rendezvous", procs, |n| pass(bounded(0), n));
        on_goroutine(criterion, "channel: buffer of 128", procs, |n| pass(bounded(128), n));
        on_goroutine(criterion, "channel: unbounded", procs, |n| pass(unbounded(), n));
    }
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = channel }
criterion_main!(all);
