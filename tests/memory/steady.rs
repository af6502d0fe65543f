//! What a goroutine costs the allocator once others have been there: nothing.

use super::ALLOCATIONS;
use common::child;
use gmp::{Runtime, go};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// Fails if a goroutine allocates: its G, its stack, its closure, its wait, or its place in a list. In each of these a million
/// goroutines would show; the monitor, which looks now and then, allocates some, and the lists of stacks shrink and grow with
/// the trim.
#[test]
fn a_million_goroutines_allocate_nothing() {
    const BATCH: usize = 100;
    if !child::is_child() {
        child::passes("a_million_goroutines_allocate_nothing", &[]);
        return;
    }
    // A goroutine takes ten times as long in a debug build.
    let count = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let rt = unsafe { Runtime::builder().procs(1).stack_size(64 << 10).build() }.unwrap();
    let (sum, allocated, seconds) = rt.run(|| {
        let mut batch = Vec::with_capacity(BATCH);
        let mut round = |rounds: usize| -> usize {
            let mut sum = 0;
            for _ in 0..rounds {
                batch.extend((0..BATCH).map(|number| go(move || number)));
                sum += batch.drain(..).map(|one| one.join().unwrap()).sum::<usize>();
            }
            sum
        };
        round(10);
        let (before, start) = (ALLOCATIONS.load(Relaxed), Instant::now());
        (round(count / BATCH), ALLOCATIONS.load(Relaxed) - before, start.elapsed().as_secs() as usize)
    });
    assert_eq!(sum, count / BATCH * (BATCH * (BATCH - 1) / 2));
    let allowed = count / 1000 + 50 * seconds;
    assert!(allocated < allowed, "{allocated} allocations for {count} goroutines in {seconds} s");
}
