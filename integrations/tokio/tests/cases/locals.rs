use crate::support::{MS, PROCS, build, everywhere, installed, is_child, many, outcome, tid};
use std::cell::Cell;
use std::rc::Rc;
use tokio::runtime::Handle;
use tokio::task::LocalSet;
use tokio::time::sleep;

tokio::task_local! {
    static NUMBER: usize;
}

/// Fails if a goroutine sees the value of another goroutine, or its own value where that is out of scope.
#[test]
fn a_task_local_is_its_futures_own() {
    everywhere(|| {
        many(20, |n| {
            gmp::block_on(NUMBER.scope(n, async move {
                for _ in 0..10 {
                    sleep(MS / 4).await;
                    assert_eq!(NUMBER.get(), n);
                }
            }));
            assert!(NUMBER.try_with(|_| ()).is_err());
            // Set and unset again between two parks.
            NUMBER.sync_scope(n + 1, || assert_eq!(NUMBER.get(), n + 1));
            let seen = gmp_tokio::run(NUMBER.scope(n, async { NUMBER.get() }));
            assert_eq!(seen, n);
        });
    });
}

/// Fails if the tasks of a set, which are bound to a thread, do not run, or run on another thread.
#[test]
fn a_local_set_runs_on_a_locked_goroutine() {
    everywhere(|| {
        many(4, |_| {
            gmp::lock_os_thread();
            let (thread, set, count) = (tid(), LocalSet::new(), Rc::new(Cell::new(0)));
            gmp::block_on(set.run_until(async {
                let tasks: Vec<_> = (0..10)
                    .map(|_| {
                        let count = Rc::clone(&count);
                        tokio::task::spawn_local(async move {
                            sleep(MS).await;
                            assert_eq!(tid(), thread);
                            count.set(count.get() + 1);
                        })
                    })
                    .collect();
                for task in tasks {
                    task.await.unwrap();
                }
            }));
            assert_eq!(count.get(), 10);
            drop(set);
            gmp::unlock_os_thread();
        });
    });
}

/// Shows the breach that the documentation names. Fails if a guard that was kept across a park does no harm: then the
/// documentation is wrong.
#[test]
fn a_guard_kept_across_a_park_panics_where_it_is_dropped() {
    for procs in PROCS {
        let output = outcome(procs, "migrate=1", || {
            build(installed()).run(|| {
                let (handle, before) = (Handle::current(), tid());
                let guard = handle.enter();
                gmp::time::sleep(MS);
                assert_ne!(tid(), before, "it has wandered");
                drop(guard);
            });
        });
        if let Some(output) = output {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{stderr}");
            assert!(stderr.contains("`EnterGuard` values dropped out of order"), "{stderr}");
        }
        if is_child() {
            return;
        }
    }
}
