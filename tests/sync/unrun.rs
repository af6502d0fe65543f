//! Tasks of groups that never run: they count until all that they hold is dropped.

use common::{PROCS, watched};
use gmp::sync::{ErrGroup, WaitGroup};
use gmp::{Builder, Runtime};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

/// A value that a task holds. Its drop notes the state of its group.
struct Notes<G: Debug> {
    group: G,
    seen: Arc<Mutex<Vec<String>>>,
}

impl<G: Debug> Drop for Notes<G> {
    fn drop(&mut self) {
        self.seen.lock().unwrap().push(format!("{:?}", self.group));
    }
}

/// Fails by the count when a task is counted off, or gives back its permit, before the values that it holds are dropped.
#[test]
fn a_task_that_is_refused_counts_until_it_is_dropped() {
    const STACK: usize = 64 << 10;
    for procs in PROCS {
        watched(procs, || {
            // The main goroutine has the only stack.
            let builder = Runtime::builder().procs(procs).stack_size(STACK).max_stack_bytes(STACK);
            // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
            let rt = unsafe { builder.build() }.unwrap();
            let counted = "WaitGroup { count: 1 }".to_owned();
            rt.run(|| {
                let seen = Arc::default();
                let tasks = WaitGroup::new();
                let notes = || Notes { group: tasks.clone(), seen: Arc::clone(&seen) };
                let (first, second) = (notes(), notes());
                assert!(catch_unwind(AssertUnwindSafe(|| tasks.go(move || drop(first)))).is_err());
                assert!(Builder::new().go_counted(&tasks, move || drop(second)).is_err());
                assert_eq!(*seen.lock().unwrap(), vec![counted.clone(); 2]);
                tasks.wait();
            });
            rt.run(|| {
                let seen = Arc::default();
                let group = Arc::new(ErrGroup::<()>::with_limit(1));
                let notes = || Notes { group: Arc::clone(&group), seen: Arc::clone(&seen) };
                let (first, second, third) = (notes(), notes(), notes());
                let starts = || {
                    group.go(move || {
                        drop(first);
                        Ok(())
                    });
                };
                assert!(catch_unwind(AssertUnwindSafe(starts)).is_err());
                let tries = || {
                    _ = group.try_go(move || {
                        drop(second);
                        Ok(())
                    });
                };
                assert!(catch_unwind(AssertUnwindSafe(tries)).is_err());
                let built = move || {
                    drop(third);
                    Ok(())
                };
                assert!(Builder::new().go_grouped(&group, built).is_err());
                let seen = std::mem::take(&mut *seen.lock().unwrap());
                assert!(seen.len() == 3 && seen.iter().all(|seen| seen.contains(&counted)), "{seen:?}");
                assert_eq!(group.wait(), Ok(()));
            });
        });
    }
}
