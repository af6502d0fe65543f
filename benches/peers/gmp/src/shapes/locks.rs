//! Goroutines that share something under a lock.

use gmp::sync::{Barrier, Mutex, OnceLock, RwLock};
use gmp::{go, time, yield_now};
use peer_common::shapes::{MS, Pick, work};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Runs it in so many goroutines, and waits for them.
fn all(goroutines: u64, each: impl Fn(u64) + Clone + Send + 'static) {
    let start = |number| {
        let each = each.clone();
        go(move || each(number))
    };
    let handles: Vec<_> = (0..goroutines).map(start).collect();
    handles.into_iter().for_each(|handle| handle.join().unwrap());
}

pub fn single_flight(n: u64) {
    let cache = Arc::new(Mutex::new(HashMap::<u64, Arc<OnceLock<u64>>>::new()));
    let loads = Arc::new(AtomicU64::new(0));
    let (theirs, counted) = (Arc::clone(&cache), Arc::clone(&loads));
    all(64, move |caller| {
        let mut pick = Pick::of(caller);
        for _ in 0..n / 64 {
            let key = pick.below(1000);
            let mut cells = theirs.lock();
            let cell = cells.entry(key).or_default();
            let value = match cell.get() {
                // What is loaded is read under the lock, without a count.
                Some(value) => *value,
                None => {
                    let cell = Arc::clone(cell);
                    drop(cells);
                    *cell.get_or_init(|| {
                        counted.fetch_add(1, Relaxed);
                        time::sleep(MS);
                        key + 7
                    })
                }
            };
            assert_eq!(value, key + 7);
        }
    });
    assert_eq!(loads.load(Relaxed), cache.lock().len() as u64);
}

pub fn lock_short(n: u64) {
    let count = Arc::new(Mutex::new(0));
    let theirs = Arc::clone(&count);
    all(64, move |_| {
        for i in 0..n / 64 {
            let mut count = theirs.lock();
            work(50, i);
            *count += 1;
            drop(count);
            work(200, i);
        }
    });
    assert_eq!(*count.lock(), n / 64 * 64);
}

pub fn lock_convoy(n: u64) {
    let count = Arc::new(Mutex::new(0));
    let theirs = Arc::clone(&count);
    all(64, move |_| {
        for _ in 0..n / 64 {
            let mut count = theirs.lock();
            let before = *count;
            yield_now();
            *count = before + 1;
        }
    });
    assert_eq!(*count.lock(), n / 64 * 64);
}

pub fn rw_mostly(n: u64) {
    let count = Arc::new(RwLock::new(0));
    let theirs = Arc::clone(&count);
    all(32, move |_| {
        for i in 0..n / 32 {
            if i % 100 == 99 {
                *theirs.write() += 1;
            } else {
                let count = theirs.read();
                work(30, *count);
            }
        }
    });
    assert_eq!(*count.read(), n / 32 / 100 * 32);
}

pub fn barrier(n: u64) {
    let shared = Arc::new((Barrier::new(8), AtomicU64::new(0)));
    all(8, move |_| {
        let (barrier, count) = &*shared;
        for phase in 0..n {
            work(500, phase);
            count.fetch_add(1, Relaxed);
            barrier.wait();
            assert!(count.load(Relaxed) >= 8 * (phase + 1));
        }
    });
}
