//! Tasks that share something under a lock: std's, where no guard is held over an await.

use super::in_each;
use peer_common::shapes::{MS, Pick, work};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, RwLock};
use tokio::sync::{Barrier, OnceCell};
use tokio::task::yield_now;

pub async fn single_flight(n: u64) {
    let cache = Arc::new(Mutex::new(HashMap::<u64, Arc<OnceCell<u64>>>::new()));
    let loads = Arc::new(AtomicU64::new(0));
    in_each(64, |caller| {
        let (cache, loads) = (Arc::clone(&cache), Arc::clone(&loads));
        async move {
            let mut pick = Pick::of(caller);
            for _ in 0..n / 64 {
                let key = pick.below(1000);
                // What is loaded is read under the lock, without a count.
                let found = {
                    let mut cells = cache.lock().unwrap();
                    let cell = cells.entry(key).or_default();
                    cell.get().copied().ok_or_else(|| Arc::clone(cell))
                };
                let load = async || {
                    loads.fetch_add(1, Relaxed);
                    tokio::time::sleep(MS).await;
                    key + 7
                };
                let value = match found {
                    Ok(value) => value,
                    Err(cell) => *cell.get_or_init(load).await,
                };
                assert_eq!(value, key + 7);
            }
        }
    })
    .await;
    assert_eq!(loads.load(Relaxed), cache.lock().unwrap().len() as u64);
}

pub async fn lock_short(n: u64) {
    let count = Arc::new(Mutex::new(0));
    in_each(64, |_| {
        let count = Arc::clone(&count);
        async move {
            for i in 0..n / 64 {
                {
                    let mut count = count.lock().unwrap();
                    work(50, i);
                    *count += 1;
                }
                work(200, i);
            }
        }
    })
    .await;
    assert_eq!(*count.lock().unwrap(), n / 64 * 64);
}

pub async fn lock_convoy(n: u64) {
    let count = Arc::new(tokio::sync::Mutex::new(0));
    in_each(64, |_| {
        let count = Arc::clone(&count);
        async move {
            for _ in 0..n / 64 {
                let mut count = count.lock().await;
                let before = *count;
                yield_now().await;
                *count = before + 1;
            }
        }
    })
    .await;
    assert_eq!(*count.lock().await, n / 64 * 64);
}

pub async fn rw_mostly(n: u64) {
    let count = Arc::new(RwLock::new(0));
    in_each(32, |_| {
        let count = Arc::clone(&count);
        async move {
            for i in 0..n / 32 {
                if i % 100 == 99 {
                    *count.write().unwrap() += 1;
                } else {
                    let count = count.read().unwrap();
                    work(30, *count);
                }
            }
        }
    })
    .await;
    assert_eq!(*count.read().unwrap(), n / 32 / 100 * 32);
}

pub async fn barrier(n: u64) {
    let shared = Arc::new((Barrier::new(8), AtomicU64::new(0)));
    in_each(8, |_| {
        let shared = Arc::clone(&shared);
        async move {
            let (barrier, count) = &*shared;
            for phase in 0..n {
                work(500, phase);
                count.fetch_add(1, Relaxed);
                barrier.wait().await;
                assert!(count.load(Relaxed) >= 8 * (phase + 1));
            }
        }
    })
    .await;
}
