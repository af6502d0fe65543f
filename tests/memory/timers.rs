//! What timers cost in memory: one allocation each, and nothing stays of those that are gone.

use super::{ALLOCATIONS, BYTES};
use common::{PROCS, child, runtime, until, watched};
use gmp::time::{Timer, after_func};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);
const MANY: usize = 100_000;
/// What the other threads of the process, and a heap that grows to the size of its first block, may need.
const SLACK: usize = 200;
const SLACK_BYTES: isize = 64 << 10;

/// Returns how many allocations `f` makes. Fails when `f` leaves memory behind.
#[track_caller]
fn allocations(f: impl Fn()) -> usize {
    // After this the memory that is kept for the next time is there.
    f();
    let (allocations, bytes) = (ALLOCATIONS.load(SeqCst), BYTES.load(SeqCst));
    f();
    let grown = BYTES.load(SeqCst) - bytes;
    assert!(grown < SLACK_BYTES, "{grown} bytes are left");
    ALLOCATIONS.load(SeqCst) - allocations
}

/// Fails by a second allocation for a timer, by one for a stop or a reset, or by entries and closures that stay.
#[test]
fn a_timer_is_one_allocation_and_leaves_nothing() {
    if !child::is_child() {
        child::passes("a_timer_is_one_allocation_and_leaves_nothing", &[]);
        return;
    }
    let work = |place: &str| {
        let payload = Arc::new(());
        let held = || {
            let held = Arc::clone(&payload);
            move || drop(Arc::clone(&held))
        };
        let one_by_one = allocations(|| {
            for _ in 0..MANY {
                assert!(after_func(HOUR, held()).stop());
            }
        });
        assert!(one_by_one <= MANY + SLACK, "{place}: {one_by_one} allocations for {MANY} timers");
        let at_once = allocations(|| {
            let timers: Vec<_> = (0..MANY).map(|_| after_func(HOUR, held())).collect();
            assert!(timers.iter().all(Timer::stop));
        });
        // Beside the timers there are the heap's blocks of 64, and its array.
        assert!(at_once <= MANY + MANY / 32, "{place}: {at_once} allocations for {MANY} timers at once");
        let timer = after_func(HOUR, held());
        let set_again = allocations(|| {
            for _ in 0..MANY {
                assert!(timer.reset(HOUR) && timer.stop() && !timer.reset(HOUR));
            }
        });
        assert!(set_again <= SLACK, "{place}: {set_again} allocations to set a timer again");
        drop((timer.stop(), timer));
        assert_eq!(Arc::strong_count(&payload), 1, "{place}: a closure is left");
    };
    for procs in PROCS {
        watched(procs, || runtime(procs).run(|| work(&format!("procs = {procs}"))));
    }
    watched(0, || work("a plain thread"));
    // Timers that fire: their goroutines are used again.
    watched(2, || {
        runtime(2).run(|| {
            let fired = Arc::new(AtomicUsize::new(0));
            let rounds = allocations(|| {
                fired.store(0, SeqCst);
                for n in 1..=10_000 {
                    let fires = Arc::clone(&fired);
                    drop(after_func(Duration::ZERO, move || {
                        fires.fetch_add(1, SeqCst);
                    }));
                    until(|| fired.load(SeqCst) == n);
                }
            });
            assert!(rounds <= 10_000 + SLACK, "{rounds} allocations for 10000 firings");
        });
    });
}
