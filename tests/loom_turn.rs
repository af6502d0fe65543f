//! A socket's turn: one at a time, in order, and nobody who stands in line is forgotten.
#![cfg(gmp_loom)]

mod loom_common;

use gmp::internals::Turn;
use gmp::model::{Model, Mutant, at_rest, done};
use loom::cell::UnsafeCell;
use std::sync::Arc;

struct Shared {
    turn: Turn,
    count: UnsafeCell<u32>,
}

// SAFETY: the turn orders the accesses to `count`; loom checks that it does.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared { turn: Turn::new(), count: UnsafeCell::new(0) })
    }
    fn count(&self) {
        let _turn = self.turn.take();
        // SAFETY: in the turn.
        self.count.with_mut(|count| unsafe { *count += 1 });
    }
}

/// Fails by deadlock when a hand-over is lost, by a causality violation when two have the turn at once.
#[test]
fn threads_take_turns() {
    Model::new().preemptions(4).check("turn_threads", || {
        let shared = Shared::new();
        let other = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.count()
        });
        shared.count();
        other.join().unwrap();
        // SAFETY: everybody has ended.
        assert_eq!(shared.count.with(|count| unsafe { *count }), 2);
    });
}

/// Fails by deadlock when the second in line is forgotten while the first is handed the turn.
#[test]
fn two_in_line_both_get_their_turn() {
    Model::new().check("turn_three", || {
        let shared = Shared::new();
        let others = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.count())
        });
        shared.count();
        for other in others {
            other.join().unwrap();
        }
    });
}

#[test]
fn a_goroutine_and_a_thread_take_turns() {
    Model::new().check("turn_mixed", || {
        let runtime = at_rest::<1>();
        let shared = Shared::new();
        let goroutine = runtime.go({
            let shared = Arc::clone(&shared);
            move || shared.count()
        });
        shared.count();
        goroutine.join().unwrap();
        done();
    });
}

/// A goroutine is left parked in its turn while a thread stands in line, or is about to. Fails by deadlock when the
/// turn goes with it.
#[test]
fn a_turn_that_its_runtime_leaves_behind_is_given_up() {
    Model::new().check("turn_left_behind", || {
        let runtime = at_rest::<1>();
        let shared = Shared::new();
        drop(runtime.go({
            let shared = Arc::clone(&shared);
            move || {
                let _turn = shared.turn.take();
                gmp::internals::park_for_ever();
            }
        }));
        let other = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.count()
        });
        runtime.shutdown(std::time::Duration::from_secs(1));
        other.join().unwrap();
        done();
    });
}

#[test]
fn mutants() {
    loom_common::assert_caught(&[
        (Mutant::TurnNoHandOver, "threads_take_turns"),
        (Mutant::TurnForgetsTheRest, "two_in_line_both_get_their_turn"),
        (Mutant::TurnPassRelaxed, "threads_take_turns"),
        (Mutant::TurnLateTakeRelaxed, "threads_take_turns"),
        (Mutant::TurnTakeRelaxed, "threads_take_turns"),
        (Mutant::TurnLeftBehind, "a_turn_that_its_runtime_leaves_behind_is_given_up"),
    ]);
}
