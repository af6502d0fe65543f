//! Rows that had a goal before they had a program.

use crate::go;
use may::sync::{WaitGroup, mpsc};
use peer_common::Found;
use peer_common::shapes::{MS, median_micros};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// As its `select`.
pub fn select_128(n: u64) {
    crate::select(n);
}

pub fn rings(procs: usize, rounds: u64) -> f64 {
    const MEMBERS: usize = 8;
    let count = 4 * procs;
    let (through, ends) = mpsc::channel();
    let start = Instant::now();
    let ring = |_| {
        let (senders, receivers): (Vec<_>, Vec<_>) = (0..MEMBERS).map(|_| mpsc::channel::<u64>()).unzip();
        let first = senders[0].clone();
        for (member, receiver) in receivers.into_iter().enumerate() {
            let (next, through) = (senders[(member + 1) % MEMBERS].clone(), through.clone());
            go(move || {
                for round in 0..rounds {
                    assert_eq!(receiver.recv(), Ok(round));
                    match (member + 1 == MEMBERS, round + 1 == rounds) {
                        (false, _) => next.send(round).unwrap(),
                        (true, false) => next.send(round + 1).unwrap(),
                        (true, true) => through.send(start.elapsed()).unwrap(),
                    }
                }
            });
        }
        first
    };
    let firsts: Vec<_> = (0..count).map(ring).collect();
    let start_of_all = start.elapsed();
    firsts.iter().for_each(|first| first.send(0).unwrap());
    let mut took: Vec<Duration> = ends.iter().take(count).map(|end| end - start_of_all).collect();
    took.sort();
    took[count - 1].as_secs_f64() / took[0].as_secs_f64()
}

pub fn thread_submit(n: u64) -> Found {
    let (done, ended) = mpsc::channel();
    let submits = std::thread::spawn(move || {
        let slots: Arc<[AtomicU64]> = (0..n).map(|_| AtomicU64::new(0)).collect();
        for i in 0..n as usize {
            std::thread::sleep(2 * MS);
            let (slots, start) = (Arc::clone(&slots), Instant::now());
            go(move || slots[i].store(start.elapsed().as_nanos() as u64, SeqCst));
        }
        std::thread::sleep(20 * MS);
        let took = slots.iter().map(|slot| Duration::from_nanos(slot.load(SeqCst))).collect();
        done.send(took).unwrap();
    });
    let took: Vec<Duration> = ended.recv().unwrap();
    submits.join().unwrap();
    assert!(took.iter().all(|took| !took.is_zero()), "one did not start");
    median_micros(took)
}

/// In portions, as its `spawn_join`.
pub fn spawn_wait(n: u64) {
    const PORTION: u64 = 10_000;
    static SUM: AtomicU64 = AtomicU64::new(0);
    SUM.store(0, Relaxed);
    for first in (0..n).step_by(PORTION as usize) {
        let all = WaitGroup::new();
        for i in first..n.min(first + PORTION) {
            let all = all.clone();
            go(move || {
                SUM.fetch_add(i, Relaxed);
                drop(all);
            });
        }
        all.wait();
    }
    assert_eq!(SUM.load(Relaxed), peer_common::sum_below(n));
}
