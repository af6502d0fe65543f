//! What a wait for a future, and its wakes, cost the allocator: nothing, once the goroutine has its waker.

use super::ALLOCATIONS;
use common::child;
use common::futures::{Signal, turns};
use gmp::{Runtime, block_on};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Instant;

const TURNS: usize = 20_000;

/// Fails if a call, a clone of its waker, or a wake (by a goroutine, by a thread, or in the poll) allocates. The monitor
/// allocates now and then.
#[test]
fn a_wait_and_its_wakes_allocate_nothing() {
    if !child::is_child() {
        child::passes("a_wait_and_its_wakes_allocate_nothing", &[]);
        return;
    }
    for procs in common::PROCS {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { Runtime::builder().procs(procs).stack_size(64 << 10).build() }.unwrap();
        let signals = Arc::new([const { Signal::new() }; 4]);
        let play = |me: usize, other: usize| {
            let signals = Arc::clone(&signals);
            move || {
                for _ in 0..TURNS {
                    block_on(signals[me].take());
                    signals[other].give();
                }
            }
        };
        // Two goroutines wake each other. A third one and this thread, which is none of the runtime's and only gives, do so,
        // too.
        let goroutines = [(0, 1), (1, 0), (2, 3)].map(|(me, other)| rt.go(play(me, other)));
        let (before, begin) = {
            // Each goroutine waits for the first time.
            common::until(|| [0, 1, 2].iter().all(|&at| signals[at].is_awaited()));
            (ALLOCATIONS.load(Relaxed), Instant::now())
        };
        signals[0].give();
        for _ in 0..TURNS {
            signals[2].give();
            while !signals[3].try_take() {
                thread::yield_now();
            }
        }
        let [first, second, third] = goroutines;
        second.join().unwrap();
        third.join().unwrap();
        first.join().unwrap();
        rt.run(|| {
            for _ in 0..100 {
                block_on(turns(100));
            }
        });
        let allocated = ALLOCATIONS.load(Relaxed) - before;
        let allowed = 500 + 50 * begin.elapsed().as_secs() as usize;
        assert!(allocated < allowed, "{allocated} allocations at procs = {procs}");
        drop(rt);
    }
}
