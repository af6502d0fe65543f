//! How many threads a scheduling decision wakes.
//!
//! A thread that is woken has slept, and a thread that goes to sleep gives its core up by itself: the kernel counts that.

use crate::measure::{alone, median, sleeps};
use common::{effort, runtime, until, watched};
use gmp::sync::Event;
use gmp::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

/// Fails by a count when yields find an idle P and wake an M, which finds nothing. One goroutine that yields leaves a core to
/// the M that it wakes; two leave none on a small machine, but each P may take the other's goroutine.
#[test]
fn a_yield_alone_wakes_nobody() {
    // A wake-up for each yield, or for one in a hundred, is far beyond the bound in either build.
    let yields = effort() as usize * if cfg!(debug_assertions) { 40_000 } else { 200_000 };
    let _alone = alone();
    for (procs, yielding) in [(1, 1), (2, 1), (4, 1), (1, 2), (2, 2), (4, 2)] {
        let (slept, took) = watched(procs, || {
            runtime(procs).run(|| {
                let begun = Arc::new(AtomicUsize::new(0));
                let goroutines: Vec<_> = (0..yielding)
                    .map(|_| {
                        let begun = Arc::clone(&begun);
                        go(move || {
                            begun.fetch_add(1, SeqCst);
                            until(|| begun.load(SeqCst) > yielding);
                            (0..yields).for_each(|_| yield_now());
                        })
                    })
                    .collect();
                until(|| begun.load(SeqCst) == yielding);
                let (before, start) = (sleeps(), Instant::now());
                begun.fetch_add(1, SeqCst);
                goroutines.into_iter().for_each(|one| one.join().unwrap());
                (sleeps() - before, start.elapsed())
            })
        });
        println!("procs = {procs}: {slept} sleeps in {yielding} * {yields} yields");
        // The monitor sleeps once in 10 ms, and on a busy machine this takes seconds.
        let most = yields as i64 / 2000 + took.as_millis() as i64 / 5;
        assert!(slept <= most, "procs = {procs}, {yielding} yielding: {slept} sleeps in {took:?}");
    }
}

/// Fails by a count. Where each P has a core: when a thread goes to sleep, and is woken, for one in five of the readies,
/// although the threads that are awake would have got to them. Where there are more Ps than cores: only when several threads do
/// so for each ready.
#[test]
fn a_burst_of_readies_wakes_few_threads() {
    const BURST: usize = 1000;
    let _alone = alone();
    let cores = thread::available_parallelism().unwrap().get();
    for procs in [1, 2, 4] {
        let slept = watched(procs, || {
            runtime(procs).run(|| {
                let round = |_| {
                    let [parking, left] = [(); 2].map(|()| Arc::new(AtomicUsize::new(BURST)));
                    let over = Arc::new(Event::new());
                    let waiting = (0..BURST).map(|_| {
                        let (parking, left) = (Arc::clone(&parking), Arc::clone(&left));
                        let (over, call) = (Arc::clone(&over), Arc::new(Event::new()));
                        let called = Arc::clone(&call);
                        drop(go(move || {
                            parking.fetch_sub(1, SeqCst);
                            called.wait();
                            if left.fetch_sub(1, SeqCst) == 1 {
                                over.notify_one();
                            }
                        }));
                        call
                    });
                    let calls: Vec<_> = waiting.collect();
                    until(|| parking.load(SeqCst) == 0);
                    let before = sleeps();
                    calls.iter().for_each(|call| call.notify_one());
                    over.wait();
                    sleeps() - before
                };
                (0..15).map(round).collect::<Vec<_>>()
            })
        });
        println!("procs = {procs}: {slept:?} sleeps in a burst of {BURST}");
        // If the woken thread takes the waker's core, each ready finds a runtime that sleeps again.
        let most = if procs <= cores { BURST / 5 } else { BURST + BURST / 5 };
        assert!(median(&slept) <= most as i64, "procs = {procs}: {slept:?}");
    }
}
