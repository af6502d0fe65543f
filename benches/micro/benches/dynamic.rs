//! What does a `Select` cost, beside crossbeam-channel's?
//!
//! Both do the same by turns, some tenths of a millisecond each, so that a busy machine slows both, and interrupts few turns
//! of either; the table has the medians of the turns in nanoseconds an operation, and their quotient. An operation is a select
//! and its completion; where something is to be ready, also the send that makes it so, or the receive. `made`: the `Select` is
//! made for each operation.
//!
//! `cargo bench -p gmp-benches --bench dynamic`

use std::hint::black_box;
use std::time::Instant;

const TURNS: usize = 251;
const EACH: u32 = 1_000;

macro_rules! workloads {
    ($library:ident, $chan:path) => {
        mod $library {
            use super::EACH;
            use std::hint::black_box;
            use $chan::{Receiver, Select, Sender, bounded};

            fn channels(count: usize, capacity: usize) -> (Vec<Sender<u32>>, Vec<Receiver<u32>>) {
                (0..count).map(|_| bounded(capacity)).unzip()
            }

            fn all<'a>(receivers: &'a [Receiver<u32>]) -> Select<'a> {
                let mut select = Select::new();
                receivers
                    .iter()
                    .for_each(|receiver| assert!(black_box(select.recv(receiver)) < receivers.len()));
                select
            }

            fn take(select: &mut Select<'_>, receivers: &[Receiver<u32>]) {
                let chosen = select.select();
                let index = chosen.index();
                black_box(chosen.recv(&receivers[index]).unwrap());
            }

            pub fn one_ready(count: usize) {
                let (senders, receivers) = channels(count, 1);
                let mut select = all(&receivers);
                for n in 0..EACH {
                    senders[n as usize % count].send(n).unwrap();
                    take(&mut select, &receivers);
                }
            }

            pub fn all_ready(count: usize) {
                let (senders, receivers) = channels(count, 1);
                senders.iter().for_each(|sender| sender.send(0).unwrap());
                let mut select = all(&receivers);
                for n in 0..EACH {
                    let chosen = select.select();
                    let index = chosen.index();
                    black_box(chosen.recv(&receivers[index]).unwrap());
                    senders[index].send(n).unwrap();
                }
            }

            pub fn made(count: usize) {
                let (senders, receivers) = channels(count, 1);
                for n in 0..EACH {
                    senders[n as usize % count].send(n).unwrap();
                    take(&mut all(&receivers), &receivers);
                }
            }

            pub fn sends(count: usize) {
                let (senders, receivers) = channels(count, 1);
                let mut select = Select::new();
                senders.iter().for_each(|sender| assert!(black_box(select.send(sender)) < count));
                for n in 0..EACH {
                    let chosen = select.select();
                    let index = chosen.index();
                    chosen.send(&senders[index], n).unwrap();
                    black_box(receivers[index].recv().unwrap());
                }
            }

            pub fn try_nothing(count: usize) {
                let (_senders, receivers) = channels(count, 1);
                let mut select = all(&receivers);
                (0..EACH).for_each(|_| assert!(select.try_select().is_err()));
            }

            pub fn try_ready(count: usize) {
                let (senders, receivers) = channels(count, 1);
                let mut select = all(&receivers);
                for n in 0..EACH {
                    senders[n as usize % count].send(n).unwrap();
                    let chosen = select.try_select().unwrap();
                    let index = chosen.index();
                    black_box(chosen.recv(&receivers[index]).unwrap());
                }
            }
        }
    };
}

workloads!(ours, gmp::chan);
workloads!(theirs, crossbeam_channel);

/// Nanoseconds an operation.
fn turn(work: fn(usize), count: usize) -> f64 {
    let start = Instant::now();
    work(black_box(count));
    start.elapsed().as_nanos() as f64 / f64::from(EACH)
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    type Work = fn(usize);
    let workloads: [(&str, Work, Work); 6] = [
        ("1 is ready", ours::one_ready, theirs::one_ready),
        ("all are ready", ours::all_ready, theirs::all_ready),
        ("made, 1 is ready", ours::made, theirs::made),
        ("all sends are ready", ours::sends, theirs::sends),
        ("try, 1 is ready", ours::try_ready, theirs::try_ready),
        ("try, nothing is ready", ours::try_nothing, theirs::try_nothing),
    ];
    let runtime = gmp_benches::runtime(1);
    println!("{:24}{:>6}{:>10}{:>12}{:>8}", "", "arms", "gmp", "crossbeam", "ratio");
    for (name, ours, theirs) in workloads {
        for count in [2, 8, 32] {
            let turns = runtime.run(move || {
                (0..TURNS).map(|_| (turn(ours, count), turn(theirs, count))).collect::<Vec<_>>()
            });
            let (ours, theirs): (Vec<_>, Vec<_>) = turns.into_iter().unzip();
            let (ours, theirs) = (median(ours), median(theirs));
            println!("{name:24}{count:>6}{ours:>10.1}{theirs:>12.1}{:>8.2}", ours / theirs);
        }
    }
}
