//! Coroutines that wait for a time.

use crate::go;
use may::coroutine;
use may::sync::{Semphore, WaitGroup};
use peer_common::Found;
use peer_common::shapes::{MS, median_micros, work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

pub fn rate_limit(n: u64) {
    const ROOM: usize = 400;
    let bucket = Arc::new(Semphore::new(0));
    let call = |_| {
        let bucket = Arc::clone(&bucket);
        go(move || {
            for i in 0..n / 100 {
                bucket.wait();
                work(50, i);
            }
        })
    };
    let callers: Vec<_> = (0..100).map(call).collect();
    let (mut left, mut next) = (n as usize / 100 * 100, Instant::now());
    while left > 0 {
        next += MS;
        coroutine::sleep(next.saturating_duration_since(Instant::now()));
        let given = left.min(200).min(ROOM - bucket.get_value());
        (0..given).for_each(|_| bucket.post());
        left -= given;
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(bucket.get_value(), 0);
}

pub fn heartbeats(n: u64) {
    let count = Arc::new(AtomicU64::new(0));
    let beat = |_| {
        let count = Arc::clone(&count);
        go(move || {
            let mut next = Instant::now();
            for _ in 0..n / 1000 {
                next += 10 * MS;
                coroutine::sleep(next.saturating_duration_since(Instant::now()));
                count.fetch_add(1, Relaxed);
            }
        })
    };
    let handles: Vec<_> = (0..1000).map(beat).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(count.load(Relaxed), n / 1000 * 1000);
}

pub fn bursts(n: u64) -> Found {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let burst = |_| {
        coroutine::sleep(2 * MS);
        SUM.store(0, Relaxed);
        let (start, all) = (Instant::now(), WaitGroup::new());
        for i in 0..500 {
            let all = all.clone();
            go(move || {
                work(1000, i);
                SUM.fetch_add(i, Relaxed);
                drop(all);
            });
        }
        all.wait();
        assert_eq!(SUM.load(Relaxed), peer_common::sum_below(500));
        start.elapsed()
    };
    median_micros((0..n + n / 10).map(burst).skip(n as usize / 10).collect())
}
