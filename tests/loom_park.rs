//! Park against ready: no ready is lost, no goroutine runs twice, none runs before it was saved.
#![cfg(gmp_loom)]

mod loom_common;

use gmp::internals::Handle;
use gmp::model::{Model, Mutant, Parked, Waiter, park};
use loom::sync::Mutex;
use std::sync::Arc;

type Slot = Mutex<Option<Waiter>>;

fn runtime() -> gmp::Runtime {
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { gmp::Runtime::builder().procs(1).max_threads(1).build() }.unwrap()
}

/// Parks in `slot`, as a channel would: queued under its lock, which the commit hook lets go.
fn wait_in(slot: &Slot) {
    let mut guard = slot.lock().unwrap();
    let parked = park(move |waiter| {
        *guard = Some(waiter);
        drop(guard);
        true
    });
    assert_eq!(parked, Parked::Readied);
}

/// What a waker does that finds the slot empty: try again later.
fn take_from(slot: &Slot) -> Waiter {
    loop {
        if let Some(waiter) = slot.lock().unwrap().take() {
            return waiter;
        }
        loom::thread::yield_now();
    }
}

/// Fails by deadlock when the ready is lost, by a causality violation when the goroutine runs before the save.
#[test]
fn a_ready_right_after_the_commit_is_not_lost() {
    Model::new().check("park_vs_ready", || {
        let runtime = runtime();
        let slot = Arc::new(Slot::new(None));
        let parker = runtime.go({
            let slot = Arc::clone(&slot);
            move || wait_in(&slot)
        });
        assert!(take_from(&slot).wake());
        parker.join().unwrap();
        loom::stop_exploring();
    });
}

/// Fails when both win, when the late one wakes the next wait, or by deadlock when neither does.
#[test]
fn of_two_readiers_one_wins_and_the_late_one_touches_no_later_wait() {
    Model::new().check("two_readiers", || {
        let runtime = runtime();
        let (slot, won) = (Arc::new(Slot::new(None)), Arc::new(loom::sync::atomic::AtomicU32::new(0)));
        let parker = runtime.go({
            let slot = Arc::clone(&slot);
            move || {
                wait_in(&slot);
                wait_in(&slot);
            }
        });
        let first = take_from(&slot);
        let rival = loom::thread::spawn({
            let (first, won) = (first.clone(), Arc::clone(&won));
            move || {
                if first.claim() {
                    won.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
                    first.ready();
                }
            }
        });
        if first.claim() {
            won.fetch_add(1, loom::sync::atomic::Ordering::Relaxed);
            first.ready();
        }
        // The second wait is claimed by nobody but us.
        assert!(take_from(&slot).wake(), "the second wait was claimed under the first one's number");
        rival.join().unwrap();
        assert_eq!(won.load(loom::sync::atomic::Ordering::Relaxed), 1);
        parker.join().unwrap();
        loom::stop_exploring();
    });
}

/// Fails by deadlock when a hold swallows a ready, by a causality violation when the holder reads a stack that is
/// not saved, or that is in use.
#[test]
fn a_dump_holds_a_g_without_losing_its_ready() {
    Model::new().check("dump_vs_ready", || {
        let runtime = runtime();
        let slot = Arc::new(Slot::new(None));
        let parker = runtime.go({
            let slot = Arc::clone(&slot);
            move || wait_in(&slot)
        });
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || drop(handle.dump())
        });
        assert!(take_from(&slot).wake());
        parker.join().unwrap();
        dumper.join().unwrap();
        loom::stop_exploring();
    });
}

/// Fails by a causality violation when a dump reads a goroutine that is still being made.
#[test]
fn a_dump_reads_no_half_made_g() {
    Model::new().check("dump_vs_spawn", || {
        let runtime = runtime();
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || drop(handle.dump())
        });
        let spawned = runtime.go(|| ());
        dumper.join().unwrap();
        spawned.join().unwrap();
        loom::stop_exploring();
    });
}

/// Fails by a causality violation when a G goes on, its park refused, while a dump reads its stack.
#[test]
fn a_refused_park_waits_for_a_dump() {
    Model::new().check("dump_vs_refusal", || {
        let runtime = runtime();
        let refused = runtime.go(|| park(|_| false));
        drop(Handle::of(&runtime).dump());
        assert_eq!(refused.join().unwrap(), Parked::Refused);
        loom::stop_exploring();
    });
}

/// Fails by a causality violation when a dump reads the stack of a goroutine that yields before it is saved.
#[test]
fn a_dump_reads_a_yielding_g_only_when_it_is_saved() {
    Model::new().check("dump_vs_yield", || {
        let runtime = runtime();
        let yields = runtime.go(gmp::yield_now);
        drop(Handle::of(&runtime).dump());
        yields.join().unwrap();
        loom::stop_exploring();
    });
}

/// Fails by an assertion when a refused park leaves its wait open, or does not return.
#[test]
fn a_refused_park_goes_on_at_once() {
    Model::new().check("refused_park", || {
        let runtime = runtime();
        assert_eq!(runtime.run(|| park(|_| false)), Parked::Refused);
        assert_eq!(park(|_| false), Parked::Refused);
        loom::stop_exploring();
    });
}

/// Fails by deadlock when a thread's ready is lost.
#[test]
fn a_plain_thread_parks_and_is_readied() {
    Model::new().unbounded().check("thread_park", || {
        let slot = Arc::new(Slot::new(None));
        let waker = loom::thread::spawn({
            let slot = Arc::clone(&slot);
            move || assert!(take_from(&slot).wake())
        });
        wait_in(&slot);
        waker.join().unwrap();
    });
}

#[test]
fn mutants() {
    loom_common::assert_caught(&[
        (Mutant::ParkStatusAfterCommit, "a_ready_right_after_the_commit_is_not_lost"),
        (Mutant::ParkStatusRelaxed, "a_dump_holds_a_g_without_losing_its_ready"),
        (Mutant::ClaimAnyWait, "of_two_readiers_one_wins_and_the_late_one_touches_no_later_wait"),
        (Mutant::SpawnRelaxed, "a_dump_reads_no_half_made_g"),
        (Mutant::CallOffIgnoresScan, "a_refused_park_waits_for_a_dump"),
        (Mutant::RequeueRelaxed, "a_dump_reads_a_yielding_g_only_when_it_is_saved"),
        (Mutant::RunHeldWithoutRelease, "a_dump_holds_a_g_without_losing_its_ready"),
        (Mutant::ReadyIgnoresScan, "a_dump_holds_a_g_without_losing_its_ready"),
    ]);
}
