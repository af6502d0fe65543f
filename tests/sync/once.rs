//! `Once`, `OnceLock`, `LazyLock`, `Barrier`.

use crate::support::{cast, rounds, with_every_cast};
use common::{everywhere, until};
use gmp::sync::{Barrier, LazyLock, Once, OnceLock};
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

/// Fails by a count when the closure runs twice, or a caller goes on before it has ended.
#[test]
fn all_go_on_after_one_closure_has_ended() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(500);
        let shared: Arc<Vec<_>> = Arc::new((0..rounds).map(|_| (Once::new(), AtomicUsize::new(0))).collect());
        let theirs = Arc::clone(&shared);
        cast(rt, goroutines, threads, move |_| {
            for (once, runs) in &*theirs {
                once.call_once(|| {
                    // The closure parks.
                    gmp::yield_now();
                    runs.fetch_add(1, SeqCst);
                });
                assert!(once.is_completed());
                assert_eq!(runs.load(SeqCst), 1);
            }
        });
    });
}

/// Fails by a hang, or when a panic is lost because the waiters are not told.
#[test]
fn a_panic_poisons_and_force_heals() {
    everywhere(|rt| {
        let (once, begun) = (Arc::new(Once::new()), Arc::new(AtomicBool::new(false)));
        let (theirs, begins) = (Arc::clone(&once), Arc::clone(&begun));
        let gate = Arc::new(AtomicBool::new(false));
        let opens = Arc::clone(&gate);
        let first = rt.go(move || {
            theirs.call_once(|| {
                begins.store(true, SeqCst);
                until(|| opens.load(SeqCst));
                resume_unwind(Box::new("on purpose"));
            });
        });
        until(|| begun.load(SeqCst));
        let theirs = Arc::clone(&once);
        let second = rt.go(move || theirs.call_once(|| unreachable!()));
        let theirs = Arc::clone(&once);
        let forces = rt.go(move || {
            theirs.wait_force();
            true
        });
        gate.store(true, SeqCst);
        assert!(first.join().is_err());
        assert!(second.join().is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| once.wait())).is_err());
        assert!(!once.is_completed());
        let mut told = false;
        once.call_once_force(|state| told = state.is_poisoned());
        assert!(told && once.is_completed());
        assert!(forces.join().unwrap());
        once.wait();
        once.call_once_force(|_| unreachable!());
    });
}

/// Fails by a value when two values were made, or when a value is seen before it was made.
#[test]
fn a_once_lock_has_one_value() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(500);
        let cells: Arc<Vec<_>> = Arc::new((0..rounds).map(|_| OnceLock::new()).collect());
        let theirs = Arc::clone(&cells);
        cast(rt, goroutines, threads, move |number| {
            for cell in &*theirs {
                let made = match number % 3 {
                    0 => cell.get_or_init(|| vec![number; 3]).clone(),
                    1 => match cell.set(vec![number; 3]) {
                        Ok(()) => vec![number; 3],
                        Err(mine) => {
                            assert_eq!(mine, [number; 3]);
                            cell.get().unwrap().clone()
                        }
                    },
                    _ => cell.wait().clone(),
                };
                assert_eq!(&made, cell.get().unwrap());
            }
        });
    });
}

#[test]
fn a_once_lock_is_what_stds_is() {
    let mut cell = OnceLock::new();
    assert_eq!((cell.get(), format!("{cell:?}")), (None, "OnceLock(<uninit>)".to_owned()));
    assert!(catch_unwind(AssertUnwindSafe(|| cell.get_or_init(|| resume_unwind(Box::new(1))))).is_err());
    assert_eq!(cell.get(), None);
    assert_eq!(cell.get_or_init(|| "a".to_owned()), "a");
    cell.get_mut().unwrap().push('b');
    assert_eq!(cell, OnceLock::from("ab".to_owned()));
    assert_eq!(cell.clone().into_inner().unwrap(), "ab");
    assert_eq!(format!("{cell:?}"), r#"OnceLock("ab")"#);
    assert_eq!((cell.take().unwrap(), cell.take()), ("ab".to_owned(), None));
    assert_eq!(cell.set("c".to_owned()), Ok(()));
    // The value is dropped once.
    let probe = Arc::new(());
    let cell = OnceLock::from(Arc::clone(&probe));
    assert_eq!(Arc::strong_count(&probe), 2);
    drop(cell);
    assert_eq!(Arc::strong_count(&probe), 1);
}

#[test]
fn a_lazy_value_is_made_once_and_poisoned_by_a_panic() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static LAZY: LazyLock<Vec<u8>> = LazyLock::new(|| {
        gmp::yield_now();
        MADE.fetch_add(1, SeqCst);
        vec![1, 2, 3]
    });
    assert_eq!(format!("{LAZY:?}"), "LazyLock(<uninit>)");
    everywhere(|rt| cast(&rt, 4, 2, |_| assert_eq!(LAZY.len(), 3)));
    assert_eq!(MADE.load(SeqCst), 1);
    assert_eq!(format!("{LAZY:?}"), "LazyLock([1, 2, 3])");
    let bad: LazyLock<i32, _> = LazyLock::new(|| resume_unwind(Box::new(1)));
    for _ in 0..2 {
        assert!(catch_unwind(AssertUnwindSafe(|| *LazyLock::force(&bad))).is_err());
    }
}

/// Fails by a count when a member goes on before all have come, or a round has two leaders, or none.
#[test]
fn a_barrier_lets_all_go_together() {
    with_every_cast(|rt, goroutines, threads| {
        let (rounds, size) = (rounds(2_000), goroutines + threads);
        let shared = Arc::new((Barrier::new(size), AtomicUsize::new(0), AtomicUsize::new(0)));
        let theirs = Arc::clone(&shared);
        cast(rt, goroutines, threads, move |_| {
            let (barrier, came, leaders) = &*theirs;
            for round in 1..=rounds {
                came.fetch_add(1, SeqCst);
                if barrier.wait().is_leader() {
                    leaders.fetch_add(1, SeqCst);
                }
                assert!(came.load(SeqCst) >= round * size);
            }
        });
        assert_eq!(shared.2.load(SeqCst), rounds);
        assert!(Barrier::new(0).wait().is_leader() && Barrier::new(1).wait().is_leader());
    });
}

/// Fails when a closure that has failed leaves a value; by a hang when the waiters are not told of its end; or by a count when
/// no closure, or a second one, makes the value.
#[test]
fn a_closure_that_fails_leaves_the_value_to_the_next_one() {
    with_every_cast(|rt, goroutines, threads| {
        let rounds = rounds(500);
        let shared: Arc<Vec<_>> =
            Arc::new((0..rounds).map(|_| (OnceLock::<usize>::new(), AtomicUsize::new(0))).collect());
        let theirs = Arc::clone(&shared);
        let workers = goroutines + threads;
        cast(rt, goroutines, threads, move |_| {
            for (cell, runs) in &*theirs {
                let made = cell.get_or_try_init(|| {
                    gmp::yield_now();
                    // The last of all callers makes the value.
                    let run = runs.fetch_add(1, SeqCst);
                    if run + 1 < workers { Err(run) } else { Ok(run) }
                });
                assert!(made.is_err() || made == cell.get().ok_or(0), "{made:?}");
            }
        });
        for (cell, runs) in &*shared {
            assert_eq!((runs.load(SeqCst), cell.get()), (workers, Some(&(workers - 1))));
            assert_eq!(cell.get_or_try_init(|| Err("not called")), Ok(&(workers - 1)));
        }
    });
}

/// Fails when a value is not the closure's, or when a change is lost.
#[test]
fn the_sole_owner_of_a_value_changes_it() {
    let mut cell = OnceLock::new();
    assert_eq!(cell.get_mut_or_try_init(|| Err("no")), Err("no"));
    *cell.get_mut_or_init(|| 1) += 1;
    *cell.get_mut_or_try_init(|| Err("not called")).unwrap() += 1;
    assert_eq!(cell.get(), Some(&3));
    assert_eq!(cell.get_mut_or_init(|| unreachable!("there is a value")), &mut 3);

    let mut lazy = LazyLock::new(|| vec![1]);
    assert_eq!(LazyLock::get(&lazy), None);
    assert_eq!(LazyLock::get_mut(&mut lazy), None);
    LazyLock::force_mut(&mut lazy).push(2);
    lazy.push(3);
    LazyLock::get_mut(&mut lazy).unwrap().push(4);
    assert_eq!((LazyLock::get(&lazy), &*lazy), (Some(&vec![1, 2, 3, 4]), &vec![1, 2, 3, 4]));
}

/// Fails by a value of a closure that has unwound, or by a second run of that closure.
#[test]
fn a_poisoned_lazy_value_stays_so_for_its_sole_owner() {
    let mut lazy = LazyLock::<u32, _>::new(|| resume_unwind(Box::new("on purpose")));
    let first = catch_unwind(AssertUnwindSafe(|| *LazyLock::force_mut(&mut lazy))).unwrap_err();
    assert_eq!(first.downcast_ref(), Some(&"on purpose"));
    let then = catch_unwind(AssertUnwindSafe(|| *lazy += 1)).unwrap_err();
    let text = then.downcast_ref().map(String::as_str);
    assert_eq!(text, Some("LazyLock instance has previously been poisoned"));
    assert_eq!(LazyLock::get(&lazy), None);
    assert_eq!(LazyLock::get_mut(&mut lazy), None);
}

/// Compiles if a closure for `catch_unwind` can use the types, as with std's.
#[test]
fn lazy_values_are_unwind_safe() {
    fn is_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_safe::<LazyLock<u32>>();
    is_safe::<OnceLock<u32>>();
    static LEVEL: LazyLock<AtomicUsize> = LazyLock::new(|| AtomicUsize::new(3));
    assert_eq!(catch_unwind(|| LEVEL.load(SeqCst)).unwrap(), 3);
    // With a closure that is not `RefUnwindSafe`, because it owns a `Cell`.
    let n = std::cell::Cell::new(1);
    let lazy = LazyLock::new(move || n.get());
    assert_eq!(catch_unwind(|| *lazy).unwrap(), 1);
}
