//! A socket's turn: one at a time, in order, and nobody who stands in line is forgotten.

use super::caught;
use super::cover::Turn;
use crate::model::{Model, Mutant, at_rest, done};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
                super::cover::park_for_ever();
            }
        }));
        let other = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.count()
        });
        super::cover::leave(runtime, std::time::Duration::from_secs(1));
        other.join().unwrap();
        done();
    });
}

/// A turn, the mark of a close, and the descriptor that the close takes away.
struct Closing {
    turn: Turn,
    closed: AtomicBool,
    descriptor: UnsafeCell<()>,
}

// SAFETY: as `Shared`.
unsafe impl Send for Closing {}
// SAFETY: as above.
unsafe impl Sync for Closing {}

impl Closing {
    fn new() -> Arc<Self> {
        let closed = AtomicBool::new(false);
        Arc::new(Closing { turn: Turn::new(), closed, descriptor: UnsafeCell::new(()) })
    }
    fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
    /// A system call, after a look.
    fn call(&self) {
        if !self.is_closed() {
            self.descriptor.with(|_| ());
        }
    }
    fn close(&self) {
        self.closed.store(true, Relaxed);
        self.turn.have_all_look();
        self.turn.wait_idle();
        self.descriptor.with_mut(|_| ());
    }
}

/// Fails by two accesses that nothing orders: the close takes the descriptor away under a system call.
#[test]
fn a_close_comes_after_the_system_call_of_the_holder() {
    Model::new().preemptions(4).check("close_vs_call", || {
        let shared = Closing::new();
        let user = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                if let Some(_turn) = shared.turn.take_unless(|| shared.is_closed()) {
                    shared.call();
                }
            }
        });
        shared.close();
        user.join().unwrap();
    });
}

/// As above; and by deadlock, if the close waits for a holder that rests.
#[test]
fn a_close_does_not_wait_for_a_rest_and_is_seen_after_it() {
    Model::new().preemptions(4).check("close_vs_rest", || {
        let shared = Closing::new();
        let user = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let Some(turn) = shared.turn.take_unless(|| shared.is_closed()) else { return };
                shared.call();
                turn.rest();
                turn.go_on();
                shared.call();
            }
        });
        shared.close();
        user.join().unwrap();
    });
}

/// Fails by deadlock when one who stands in line does not hear of the close: the holder passes its turn on only when
/// the other has left.
#[test]
fn a_close_reaches_who_stands_in_line() {
    Model::new().check("close_vs_line", || {
        let shared = Closing::new();
        let held = shared.turn.take();
        let user = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.turn.take_unless(|| shared.is_closed()).is_some()
        });
        shared.closed.store(true, Relaxed);
        shared.turn.have_all_look();
        assert!(!user.join().unwrap());
        drop(held);
    });
}

/// Fails by deadlock, or by two accesses that nothing orders, when a turn is given to one whose time was over.
#[test]
fn a_turn_is_not_lost_to_one_who_gives_up() {
    Model::new().check("give_up_vs_hand_over", || {
        let runtime = at_rest::<1>();
        let shared = Shared::new();
        let held = shared.turn.take();
        let waiter = runtime.go({
            let shared = Arc::clone(&shared);
            move || drop(shared.turn.take_before(1000))
        });
        drop(held);
        shared.count();
        waiter.join().unwrap();
        done();
    });
}

/// One in line gives up while the turn is handed on, to the other. Fails by deadlock when that one is forgotten.
#[test]
fn one_who_leaves_the_line_forgets_nobody() {
    Model::new().check("leave_vs_line", || {
        let shared = Closing::new();
        let held = shared.turn.take();
        let leaves = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || drop(shared.turn.take_unless(|| shared.is_closed()))
        });
        let stays = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || drop(shared.turn.take())
        });
        shared.closed.store(true, Relaxed);
        shared.turn.have_all_look();
        drop(held);
        leaves.join().unwrap();
        stays.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::TurnNoHandOver, "threads_take_turns"),
            (Mutant::TurnForgetsTheRest, "two_in_line_both_get_their_turn"),
            (Mutant::TurnPassRelaxed, "threads_take_turns"),
            (Mutant::TurnTakeNoFence, "a_close_comes_after_the_system_call_of_the_holder"),
            (Mutant::SocketLookNoFence, "a_close_comes_after_the_system_call_of_the_holder"),
            (Mutant::TurnCloserDoesNotWait, "a_close_comes_after_the_system_call_of_the_holder"),
            (Mutant::TurnGoesOnNoFence, "a_close_does_not_wait_for_a_rest_and_is_seen_after_it"),
            (Mutant::TurnRestRelaxed, "a_close_does_not_wait_for_a_rest_and_is_seen_after_it"),
            (Mutant::TurnRestLooksRelaxed, "a_close_does_not_wait_for_a_rest_and_is_seen_after_it"),
            (Mutant::TurnLineIsDeaf, "a_close_reaches_who_stands_in_line"),
            (Mutant::WhyRelaxed, "one_who_leaves_the_line_forgets_nobody"),
            (Mutant::TurnHandedBlindly, "a_turn_is_not_lost_to_one_who_gives_up"),
            (Mutant::TurnLeftBehind, "a_turn_that_its_runtime_leaves_behind_is_given_up"),
        ],
    );
}
