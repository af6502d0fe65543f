//! How long does it take from a send of a plain thread to the goroutine that waits for it, in a runtime that is idle?
//!
//! The goroutine reads the clock when it has the message, and the thread waits for what it says. After `1 ms` without a
//! message the M sleeps in the kernel: the figure is the kernel's wake-up, some tens of microseconds, and what we add is
//! small beside it. `at once` the M may still be looking for work, or be on its way to sleep, or asleep. Both are noisy,
//! the latter most (from 18 to 90 µs in three runs): the kernel, and whoever else uses the cores, decide. Look at the lower
//! bound, and compare runs that were made in turns.

use criterion::{Criterion, criterion_group, criterion_main};
use gmp::chan::{Receiver, Sender, bounded};
use gmp_benches::runtime;
use std::thread;
use std::time::{Duration, Instant};

fn wakeup(criterion: &mut Criterion) {
    let runtime = runtime(2);
    for (name, pause) in [("at once", None), ("after 1 ms", Some(Duration::from_millis(1)))] {
        let (sender, receiver): (Sender<Instant>, Receiver<Instant>) = bounded(0);
        let (tell, told) = bounded(0);
        let goroutine =
            runtime.go(move || receiver.iter().for_each(|sent| tell.send(sent.elapsed()).unwrap()));
        criterion.bench_function(&format!("wake-up: a plain thread's send, {name}"), |bencher| {
            bencher.iter_custom(|n| {
                let once = |_| {
                    if let Some(pause) = pause {
                        thread::sleep(pause);
                    }
                    sender.send(Instant::now()).unwrap();
                    told.recv().unwrap()
                };
                (0..n).map(once).sum()
            });
        });
        drop(sender);
        goroutine.join().unwrap();
    }
}

criterion_group! { name = all; config = gmp_benches::criterion(); targets = wakeup }
criterion_main!(all);
