//! `Pool`.

use crate::support::{cast, rounds, with_every_cast};
use common::{PROCS, everywhere, runtime, watched};
use gmp::sync::Pool;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Fails by a count when one value is given to two callers, or is lost and made again without need.
#[test]
fn a_value_is_given_to_one_at_a_time() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(5_000);
        let made = Arc::new(AtomicUsize::new(0));
        let makes = Arc::clone(&made);
        let pool = Arc::new(Pool::new(move || {
            makes.fetch_add(1, SeqCst);
            Arc::new(AtomicUsize::new(0))
        }));
        cast(rt, goroutines, threads, move |_| {
            for round in 0..rounds {
                let value = pool.get();
                assert_eq!(value.fetch_add(1, SeqCst), 0, "two have it");
                if round % 16 == 0 {
                    gmp::yield_now();
                }
                value.fetch_sub(1, SeqCst);
                pool.put(value);
            }
        });
        let made = made.load(SeqCst);
        assert!(made <= 10 * (goroutines + threads), "{made} were made for {rounds} rounds");
    });
}

/// Fails when a P's own value is not found first, or when another P's value is not found at all.
#[test]
fn what_was_put_is_found_from_everywhere() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            let pool = Arc::new(Pool::new(|| 0));
            let theirs = Arc::clone(&pool);
            rt.run(move || {
                theirs.put(1);
                theirs.put(2);
                if procs == 1 {
                    assert_eq!((theirs.get(), theirs.get(), theirs.get()), (2, 1, 0));
                    theirs.put(1);
                    theirs.put(2);
                }
            });
            // A thread has no P.
            let mut both = [pool.get(), pool.get()];
            both.sort_unstable();
            assert_eq!((both, pool.get()), ([1, 2], 0));
        });
    }
}

/// Fails when a pool keeps all values that it is given.
#[test]
fn what_has_no_room_is_dropped() {
    everywhere(|rt| {
        let probe = Arc::new(());
        let pool = Pool::<Arc<()>>::default();
        let theirs = Arc::clone(&probe);
        let pool = rt.run(move || {
            for _ in 0..5_000 {
                pool.put(Arc::clone(&theirs));
            }
            pool
        });
        let kept = Arc::strong_count(&probe) - 1;
        assert!((32..=32 * 32).contains(&kept), "{kept} are kept");
        drop(pool);
        assert_eq!(Arc::strong_count(&probe), 1);
    });
}
