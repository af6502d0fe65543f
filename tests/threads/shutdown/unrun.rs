//! Goroutines of a scope that never run: their parent stays until all of their values that borrow from it have been dropped.

use super::{MS, ends_clean};
use common::gate::Gate;
use common::{runtime, watched};
use gmp::scope;
use gmp::time::sleep;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

/// Opens the gate when it is dropped.
struct Goes(Gate);

impl Drop for Goes {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A value of a child that borrows. Its drop waits, and then counts itself as late if the parent has gone meanwhile.
struct Borrows {
    gone: Gate,
    drops: Arc<AtomicUsize>,
    late: Arc<AtomicUsize>,
}

impl Drop for Borrows {
    fn drop(&mut self) {
        sleep(5 * MS);
        self.late.fetch_add(usize::from(self.gone.is_open()), SeqCst);
        self.drops.fetch_add(1, SeqCst);
    }
}

/// Fails when the parent goes on while the closure of a child, which borrows from the parent's frame, is still to be dropped.
#[test]
fn children_that_never_ran_are_dropped_before_their_parent_goes() {
    watched(1, || {
        let rt = runtime(1);
        let (gone, begun, ends) = (Gate::default(), Gate::default(), rt.handle());
        let (drops, late): (Arc<AtomicUsize>, Arc<AtomicUsize>) = Default::default();
        let [all_drops, all_late] = [&drops, &late].map(Arc::clone);
        let (goes, begins) = (gone.clone(), begun.clone());
        drop(rt.go(move || {
            let frame = Goes(goes);
            scope(|s| {
                for _ in 0..3 {
                    let own =
                        Borrows { gone: gone.clone(), drops: Arc::clone(&drops), late: Arc::clone(&late) };
                    let frame = &frame;
                    s.go(move || {
                        let _both = (own, frame);
                        // On a slow machine the goroutine may begin before the end; then it is unwound.
                        sleep(super::HOUR);
                    });
                }
                begins.open();
                // The parent keeps the only P until the end has begun.
                while !ends.is_ended() {
                    thread::yield_now();
                }
            });
        }));
        begun.pass();
        ends_clean(rt);
        assert_eq!((all_drops.load(SeqCst), all_late.load(SeqCst)), (3, 0));
    });
}
