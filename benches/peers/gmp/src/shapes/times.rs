//! Goroutines that wait for a time.

use gmp::sync::{Semaphore, WaitGroup};
use gmp::{go, time};
use peer_common::Found;
use peer_common::shapes::{MS, median_micros, work};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub fn rate_limit(n: u64) {
    const ROOM: usize = 400;
    let bucket = Arc::new(Semaphore::new(ROOM));
    bucket.acquire(ROOM);
    let call = |_| {
        let bucket = Arc::clone(&bucket);
        go(move || {
            for i in 0..n / 100 {
                bucket.acquire(1);
                work(50, i);
            }
        })
    };
    let callers: Vec<_> = (0..100).map(call).collect();
    let (mut left, mut next) = (n as usize / 100 * 100, Instant::now());
    while left > 0 {
        next += MS;
        time::sleep_until(next);
        let given = left.min(200).min(ROOM - bucket.available_permits());
        bucket.release(given);
        left -= given;
    }
    callers.into_iter().for_each(|caller| caller.join().unwrap());
    assert_eq!(bucket.available_permits(), 0);
}

const LIMIT: Duration = Duration::from_secs(30);

pub fn timers_moved(n: u64) {
    let fired = Arc::new(AtomicU64::new(0));
    let of_connections = |_| {
        let fired = Arc::clone(&fired);
        go(move || {
            let arm = |_| {
                let fired = Arc::clone(&fired);
                time::after_func(LIMIT, move || {
                    fired.fetch_add(1, Relaxed);
                })
            };
            let timers: Vec<_> = (0..2500).map(arm).collect();
            for i in 0..n / 4 {
                let limit = LIMIT + MS * (i % 100) as u32;
                assert!(timers[i as usize % timers.len()].reset(limit));
            }
            assert!(timers.iter().all(|timer| timer.stop()));
        })
    };
    let handles: Vec<_> = (0..4).map(of_connections).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    assert_eq!(fired.load(Relaxed), 0);
}

pub fn heartbeats(n: u64) {
    let count = Arc::new(AtomicU64::new(0));
    let beat = |_| {
        let count = Arc::clone(&count);
        go(move || {
            let ticker = time::Ticker::new(10 * MS);
            for _ in 0..n / 1000 {
                ticker.receiver().recv().unwrap();
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
        time::sleep(2 * MS);
        SUM.store(0, Relaxed);
        let (start, all) = (Instant::now(), WaitGroup::new());
        for i in 0..500 {
            all.go(move || {
                work(1000, i);
                SUM.fetch_add(i, Relaxed);
            });
        }
        all.wait();
        assert_eq!(SUM.load(Relaxed), peer_common::sum_below(500));
        start.elapsed()
    };
    median_micros((0..n + n / 10).map(burst).skip(n as usize / 10).collect())
}
