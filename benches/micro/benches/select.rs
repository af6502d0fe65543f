//! What does a `select!` cost beyond a receive?
//!
//! `ready`: one of so many channels has a message, which the same goroutine has sent; an operation is the send and the select.
//! Compare with `channel: try_send and try_recv, uncontended`. `nothing` goes to its `default`. `waiting`: the
//! receiver is asleep in two queues when the message comes, which it has asked for over a third channel; an operation is the
//! question and the answer. Compare with two of `channel: rendezvous`.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::chan::{Receiver, Sender, bounded};
use gmp::go;
use gmp_benches::on_goroutine;
use std::hint::black_box;

fn ready(criterion: &mut Criterion) {
    on_goroutine(criterion, "select: 1 of 2 is ready", 1, |n| {
        let ((a, from_a), (_b, from_b)) = (bounded(1), bounded::<u64>(1));
        for i in 0..n {
            a.send(i).unwrap();
            gmp::select! {
                recv(from_a) -> got => assert_eq!(got, Ok(i)),
                recv(from_b) -> _ => unreachable!("nobody sends there"),
            }
        }
    });
    on_goroutine(criterion, "select: 1 of 8 is ready", 1, |n| {
        let (a, from_a) = bounded(1);
        let others: Vec<_> = (0..7).map(|_| bounded::<u64>(1)).collect();
        let from: Vec<_> = others.iter().map(|(_, receiver)| receiver.clone()).collect();
        for i in 0..n {
            a.send(i).unwrap();
            gmp::select! {
                recv(from_a) -> got => assert_eq!(got, Ok(i)),
                recv(from[0]) -> _ => unreachable!("nobody sends there"),
                recv(from[1]) -> _ => unreachable!("nobody sends there"),
                recv(from[2]) -> _ => unreachable!("nobody sends there"),
                recv(from[3]) -> _ => unreachable!("nobody sends there"),
                recv(from[4]) -> _ => unreachable!("nobody sends there"),
                recv(from[5]) -> _ => unreachable!("nobody sends there"),
                recv(from[6]) -> _ => unreachable!("nobody sends there"),
            }
        }
    });
}

fn nothing(criterion: &mut Criterion) {
    on_goroutine(criterion, "select: nothing of 2", 1, |n| {
        let ((_a, from_a), (_b, from_b)) = (bounded::<u64>(1), bounded::<u64>(1));
        for i in 0..n {
            gmp::select! {
                recv(from_a) -> _ => unreachable!("nobody sends there"),
                recv(from_b) -> _ => unreachable!("nobody sends there"),
                default => { black_box(i); }
            }
        }
    });
}

fn waiting(criterion: &mut Criterion) {
    on_goroutine(criterion, "select: waiting for 2", 1, |n| {
        let (ask, asked): (Sender<u64>, Receiver<u64>) = bounded(0);
        let ((a, from_a), (b, from_b)) = (bounded(0), bounded(0));
        let other = go(move || asked.iter().for_each(|i| [&a, &b][(i % 2) as usize].send(i).unwrap()));
        for i in 0..n {
            ask.send(i).unwrap();
            gmp::select! {
                recv(from_a) -> got => assert_eq!(got, Ok(i)),
                recv(from_b) -> got => assert_eq!(got, Ok(i)),
            }
        }
        drop(ask);
        other.join().unwrap();
    });
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = ready, nothing, waiting }
criterion_main!(all);
