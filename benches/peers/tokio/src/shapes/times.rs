//! Tasks that wait for a time.

use super::in_each;
use peer_common::Found;
use peer_common::shapes::{MS, median_micros, work};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, Sleep, interval_at, sleep, sleep_until};

pub async fn rate_limit(n: u64) {
    const ROOM: usize = 400;
    let bucket = Arc::new(Semaphore::new(0));
    let call = |_| {
        let bucket = Arc::clone(&bucket);
        tokio::spawn(async move {
            for i in 0..n / 100 {
                bucket.acquire().await.unwrap().forget();
                work(50, i);
            }
        })
    };
    let callers: Vec<_> = (0..100).map(call).collect();
    let (mut left, mut next) = (n as usize / 100 * 100, Instant::now());
    while left > 0 {
        next += MS;
        sleep_until(next).await;
        let given = left.min(200).min(ROOM - bucket.available_permits());
        bucket.add_permits(given);
        left -= given;
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(bucket.available_permits(), 0);
}

const LIMIT: Duration = Duration::from_secs(30);

/// A sleep is armed by its first poll.
pub async fn timers_moved(n: u64) {
    in_each(4, |_| async move {
        let mut timers: Vec<Pin<Box<Sleep>>> = (0..2500).map(|_| Box::pin(sleep(LIMIT))).collect();
        let armed = std::future::poll_fn(|cx| {
            let pending = timers.iter_mut().all(|timer| timer.as_mut().poll(cx).is_pending());
            std::task::Poll::Ready(pending)
        });
        assert!(armed.await);
        for i in 0..n / 4 {
            let at = i as usize % timers.len();
            timers[at].as_mut().reset(Instant::now() + LIMIT + MS * (i % 100) as u32);
        }
        assert!(timers.iter().all(|timer| !timer.is_elapsed()));
    })
    .await;
}

pub async fn heartbeats(n: u64) {
    let count = Arc::new(AtomicU64::new(0));
    in_each(1000, |_| {
        let count = Arc::clone(&count);
        async move {
            let mut interval = interval_at(Instant::now() + 10 * MS, 10 * MS);
            for _ in 0..n / 1000 {
                interval.tick().await;
                count.fetch_add(1, Relaxed);
            }
        }
    })
    .await;
    assert_eq!(count.load(Relaxed), n / 1000 * 1000);
}

pub async fn bursts(n: u64) -> Found {
    static SUM: AtomicU64 = AtomicU64::new(0);
    let mut took = Vec::new();
    for _ in 0..n + n / 10 {
        sleep(2 * MS).await;
        SUM.store(0, Relaxed);
        let start = Instant::now();
        in_each(500, |i| async move {
            work(1000, i);
            SUM.fetch_add(i, Relaxed);
        })
        .await;
        assert_eq!(SUM.load(Relaxed), peer_common::sum_below(500));
        took.push(start.elapsed());
    }
    median_micros(took.split_off(n as usize / 10))
}
