//! Goroutines that are made: each runs once and ends once, wherever it was made and whichever M took it.

use crate::support::{Random, everywhere, join_all, share};
use common::until;
use gmp::sync::Event;
use gmp::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::thread;

/// A joiner parks at the moment at which the goroutine ends on another P. Fails by a hang.
#[test]
fn an_end_and_its_join_do_not_miss_each_other() {
    everywhere(|rt| {
        rt.run(|| {
            join_all((0..8).map(|seed| {
                go(move || {
                    let mut random = Random::new(seed);
                    for round in 0..share(160_000, 8) {
                        let mut theirs = Random::new(round);
                        let child = go(move || {
                            theirs.pause(300);
                            round
                        });
                        random.pause(300);
                        assert_eq!(child.join().unwrap(), round);
                    }
                })
            }))
        });
    });
}

/// Fails by a lost or doubled goroutine.
#[test]
fn storms_of_spawns_from_threads_all_run() {
    everywhere(|rt| {
        let (ran, each) = (Arc::new(AtomicUsize::new(0)), share(600_000, 8));
        thread::scope(|s| {
            for seed in 0..4 {
                let ran = Arc::clone(&ran);
                s.spawn(move || {
                    let mut random = Random::new(seed);
                    for _ in 0..each {
                        let count = Arc::clone(&ran);
                        drop(rt.go(move || {
                            let again = Arc::clone(&count);
                            drop(go(move || again.fetch_add(1, SeqCst)));
                            count.fetch_add(1, SeqCst);
                        }));
                        if random.below(50) == 0 {
                            random.pause(2000);
                        }
                    }
                });
            }
        });
        until(|| ran.load(SeqCst) == 4 * each * 2 && rt.num_goroutines() == 0);
    });
}

/// A burst of goroutines, and what is left of it.
struct Burst {
    runs: Vec<AtomicU8>,
    left: AtomicUsize,
    over: Event,
}

/// Each maker fills its P's queue beyond its end, while the others take from it and do the same. Fails when a goroutine ran
/// twice, or by a hang when one never ran.
#[test]
fn bursts_larger_than_a_queue_run_once_each() {
    /// How many goroutines a P keeps for itself.
    const RING: usize = 256;
    everywhere(|rt| {
        let makers = rt.procs() + 1;
        let each = share(1_000_000, makers);
        let makers: Vec<_> = (0..makers)
            .map(|seed| {
                rt.go(move || {
                    let (mut random, mut made) = (Random::new(seed), 0);
                    while made < each {
                        let size = RING + 1 + random.below(3 * RING as u64) as usize;
                        made += size;
                        let burst = Arc::new(Burst {
                            runs: (0..size).map(|_| AtomicU8::new(0)).collect(),
                            left: AtomicUsize::new(size),
                            over: Event::new(),
                        });
                        for number in 0..size {
                            let burst = Arc::clone(&burst);
                            let yields = random.below(8) == 0;
                            drop(go(move || {
                                if yields {
                                    yield_now();
                                }
                                burst.runs[number].fetch_add(1, SeqCst);
                                if burst.left.fetch_sub(1, SeqCst) == 1 {
                                    burst.over.notify_one();
                                }
                            }));
                        }
                        burst.over.wait();
                        assert!(burst.runs.iter().all(|runs| runs.load(SeqCst) == 1));
                    }
                })
            })
            .collect();
        join_all(makers);
    });
}

/// Returns how many goroutines a tree has, the calling one included: `depth` levels, and two goroutines below each.
fn tree(depth: u32) -> usize {
    if depth == 1 {
        return 1;
    }
    let [left, right] = [(); 2].map(|()| go(move || tree(depth - 1)));
    // The younger one first: the older one has most likely been taken by another P.
    1 + right.join().unwrap() + left.join().unwrap()
}

/// Fails by a count, or by a hang when a goroutine is lost between the P that made it and the one that takes it.
#[test]
fn trees_of_goroutines_are_complete() {
    const DEPTH: u32 = 9;
    const SIZE: usize = (1 << DEPTH) - 1;
    everywhere(|rt| {
        let each = share(500_000, 3 * SIZE);
        let growing: Vec<_> =
            (0..3).map(|_| rt.go(move || (0..each).for_each(|_| assert_eq!(tree(DEPTH), SIZE)))).collect();
        join_all(growing);
    });
}
