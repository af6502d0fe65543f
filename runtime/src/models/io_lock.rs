//! A socket's I/O lock: one holder at a time, in order, and no waiter is forgotten.
//!
//! *Modelled*: holders, waiters in the queue, a closer, and a holder that rests while it waits for an event. *Left out*: the
//! events (`models/polldesc.rs`, `models/socket.rs`). *The mutants* take out IoLockFence and SocketFence, the claim before a
//! hand-over, the hand-over at an abandon, and the orderings of the word. *Failures*: a forgotten waiter is a deadlock; two
//! holders, or a close during a system call, are a causality violation.

use super::caught;
use super::cover::{Handle, IoLock, blocking_here, keep_the_thread};
use crate::model::{Flag, Model, Mutant, at_rest, done, runtime};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;

struct Shared {
    io_lock: IoLock,
    count: UnsafeCell<u32>,
}

// SAFETY: the lock orders the accesses to `count`; loom checks that it does.
unsafe impl Send for Shared {}
// SAFETY: as for `Send`.
unsafe impl Sync for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Shared { io_lock: IoLock::new(), count: UnsafeCell::new(0) })
    }
    fn count(&self) {
        let _io_lock = self.io_lock.take();
        // SAFETY: under the lock.
        self.count.with_mut(|count| unsafe { *count += 1 });
    }
}

/// Fails by deadlock when a hand-over is lost, by a causality violation when both threads have the lock at once.
#[test]
fn threads_take_an_io_lock() {
    Model::new().preemptions(4).check("io_lock_threads", || {
        let shared = Shared::new();
        let other = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.count()
        });
        shared.count();
        other.join().unwrap();
        // SAFETY: the other thread was joined, so this thread alone counts.
        assert_eq!(shared.count.with(|count| unsafe { *count }), 2);
    });
}

/// Fails by deadlock when the second waiter is forgotten while the first is handed the lock.
#[test]
fn two_that_wait_both_get_the_io_lock() {
    Model::new().check("io_lock_three", || {
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
fn a_goroutine_and_a_thread_take_an_io_lock() {
    Model::new().check("io_lock_mixed", || {
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

/// A goroutine is left parked with the lock while a thread waits for it, or is about to. Fails by deadlock when the
/// abandoned goroutine keeps the lock.
#[test]
fn an_io_lock_whose_holder_is_left_behind_is_given_up() {
    Model::new().check("io_lock_left_behind", || {
        let runtime = at_rest::<1>();
        let shared = Shared::new();
        drop(runtime.go({
            let shared = Arc::clone(&shared);
            move || {
                let _io_lock = shared.io_lock.take();
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

/// A goroutine is left behind that has let the lock go. Fails by a causality violation when the abandon hook takes the lock
/// from the thread that holds it.
#[test]
fn an_io_lock_that_was_let_go_before_is_left_to_its_holder() {
    Model::new().preemptions(1).check("io_lock_let_go", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let shared = Shared::new();
        drop(runtime.go({
            let shared = Arc::clone(&shared);
            move || {
                shared.count();
                super::cover::park_for_ever();
            }
        }));
        // There is one M and one queue: once this goroutine has run, the other one is parked.
        runtime.run(|| ());
        loom::explore();
        let others = [(); 2].map(|()| {
            let shared = Arc::clone(&shared);
            loom::thread::spawn(move || shared.count())
        });
        super::cover::leave(runtime, std::time::Duration::from_secs(1));
        others.into_iter().for_each(|other| other.join().unwrap());
        done();
    });
}

/// As `an_io_lock_whose_holder_is_left_behind_is_given_up`, but the goroutine has held another lock meanwhile: the function
/// that an operation calls may use another descriptor.
#[test]
fn an_io_lock_is_given_up_by_a_goroutine_that_has_had_another() {
    Model::new().check("io_lock_rest_left", || {
        let runtime = at_rest::<1>();
        let (shared, another) = (Shared::new(), Shared::new());
        drop(runtime.go({
            let shared = Arc::clone(&shared);
            move || {
                let io_lock = shared.io_lock.take_unless(|| false).expect("it is open");
                another.count();
                io_lock.rest();
                super::cover::park_for_ever();
            }
        }));
        // There is one M and one queue: once this goroutine has run, the other one is parked.
        runtime.run(|| ());
        super::cover::leave(runtime, std::time::Duration::from_secs(1));
        shared.count();
        done();
    });
}

/// A thread hands the lock to a goroutine that waits for it, whose runtime ends at the same time. Fails by deadlock when the
/// goroutine is left behind with the lock.
#[test]
fn an_io_lock_that_is_handed_to_a_left_goroutine_is_given_up() {
    Model::new().check("io_lock_handed_left", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let shared = Shared::new();
        let held = shared.io_lock.take();
        drop(runtime.go({
            let shared = Arc::clone(&shared);
            move || shared.count()
        }));
        // There is one M and one queue: once this goroutine has run, the other one waits for the lock.
        runtime.run(|| ());
        loom::explore();
        let ender =
            loom::thread::spawn(move || super::cover::leave(runtime, std::time::Duration::from_secs(1)));
        drop(held);
        shared.count();
        ender.join().unwrap();
        done();
    });
}

/// As `an_io_lock_that_is_handed_to_a_left_goroutine_is_given_up`, with a goroutine that was nudged, and is queued behind one
/// that keeps the thread. Fails by deadlock when the abandon hook is run before the thread that hands the lock over has noted
/// that in the goroutine.
#[test]
fn an_io_lock_that_is_handed_to_a_queued_goroutine_is_given_up() {
    Model::new().check("io_lock_handed_queued", || {
        let runtime = runtime(1, 1);
        let shared = Shared::new();
        let held = shared.io_lock.take();
        drop(runtime.go({
            let shared = Arc::clone(&shared);
            move || shared.count()
        }));
        Handle::of(&runtime).await_poller();
        let over = keep_the_thread(&runtime);
        shared.io_lock.nudge_all();
        loom::explore();
        let ender = loom::thread::spawn(move || super::cover::leave(runtime, std::time::Duration::ZERO));
        drop(held);
        shared.count();
        ender.join().unwrap();
        done();
        over.raise();
    });
}

/// An I/O lock, the mark of a close, and the descriptor that the close takes away.
struct Closing {
    io_lock: IoLock,
    closed: AtomicBool,
    descriptor: UnsafeCell<()>,
}

// SAFETY: as `Shared`.
unsafe impl Send for Closing {}
// SAFETY: as for `Send`.
unsafe impl Sync for Closing {}

impl Closing {
    fn new() -> Arc<Self> {
        let closed = AtomicBool::new(false);
        Arc::new(Closing { io_lock: IoLock::new(), closed, descriptor: UnsafeCell::new(()) })
    }
    fn is_closed(&self) -> bool {
        self.closed.load(Relaxed)
    }
    /// Makes a system call, after a look at the mark.
    fn call(&self) {
        if !self.is_closed() {
            self.descriptor.with(|_| ());
        }
    }
    /// Takes the lock, unless a close came first, and makes a call.
    fn take_and_call(&self) {
        if let Some(_io_lock) = self.io_lock.take_unless(|| self.is_closed()) {
            self.call();
        }
    }
    fn close(&self) {
        self.closed.store(true, Relaxed);
        self.io_lock.nudge_all();
        self.io_lock.wait_idle();
        self.descriptor.with_mut(|_| ());
    }
}

/// Fails by a causality violation when the close takes the descriptor away during a system call.
#[test]
fn a_close_comes_after_the_system_call_of_the_holder() {
    Model::new().preemptions(4).check("close_vs_call", || {
        let shared = Closing::new();
        let user = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.take_and_call()
        });
        shared.close();
        user.join().unwrap();
    });
}

/// As `a_close_comes_after_the_system_call_of_the_holder`, with a holder that rests between two calls. Also fails by deadlock
/// when the closer waits for a holder that rests.
#[test]
fn a_close_does_not_wait_for_a_rest_and_is_seen_after_it() {
    Model::new().preemptions(4).check("close_vs_rest", || {
        let shared = Closing::new();
        let user = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let Some(io_lock) = shared.io_lock.take_unless(|| shared.is_closed()) else { return };
                shared.call();
                io_lock.rest();
                io_lock.go_on();
                shared.call();
            }
        });
        shared.close();
        user.join().unwrap();
    });
}

/// The only waiter gives up as the lock is handed on, and a thread that was not in the queue takes the lock. Fails by a
/// causality violation when that thread does not see what was done under the lock.
#[test]
fn a_thread_that_passes_a_waiter_comes_after_the_holder() {
    Model::new().check("past_a_waiter", || {
        let (shared, gives_up) = (Shared::new(), Arc::new(AtomicBool::new(false)));
        let held = shared.io_lock.take();
        let waiter = loom::thread::spawn({
            let (shared, gives_up) = (Arc::clone(&shared), Arc::clone(&gives_up));
            move || drop(shared.io_lock.take_unless(|| gives_up.load(Relaxed)))
        });
        let other = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.count()
        });
        gives_up.store(true, Relaxed);
        shared.io_lock.nudge_all();
        // SAFETY: under the lock.
        shared.count.with_mut(|count| unsafe { *count += 1 });
        drop(held);
        waiter.join().unwrap();
        other.join().unwrap();
    });
}

/// A close passes a holder that rests and a waiter behind that holder. Fails by an assertion when the word says that there
/// is no waiter.
#[test]
fn a_close_past_a_rest_leaves_the_line_as_it_is() {
    Model::new().check("close_vs_rest_and_line", || {
        let shared = Closing::new();
        let held = shared.io_lock.take_unless(|| false).expect("it is open");
        held.rest();
        let waiter = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.io_lock.take_unless(|| shared.is_closed()).is_some()
        });
        shared.close();
        assert!(!waiter.join().unwrap());
        drop(held);
    });
}

/// The only waiter gives up as the lock is handed on, and closes; the lock is free meanwhile, and the next holder is in a
/// system call. Fails by a causality violation when the closer takes that holder for one that rests.
#[test]
fn a_close_comes_after_the_call_of_a_holder_that_passed_a_waiter() {
    Model::new().preemptions(3).check("close_vs_past_a_waiter", || {
        let (shared, gives_up) = (Closing::new(), Arc::new(AtomicBool::new(false)));
        let held = shared.io_lock.take();
        let closer = loom::thread::spawn({
            let (shared, gives_up) = (Arc::clone(&shared), Arc::clone(&gives_up));
            move || {
                drop(shared.io_lock.take_unless(|| gives_up.load(Relaxed)));
                shared.close();
            }
        });
        gives_up.store(true, Relaxed);
        shared.io_lock.nudge_all();
        drop(held);
        shared.take_and_call();
        closer.join().unwrap();
    });
}

/// A goroutine is left behind at rest with the lock, and another thread takes the lock. Fails by a causality violation when a
/// closer takes that thread for one that rests.
#[test]
fn a_close_comes_after_the_call_of_a_holder_after_one_that_was_left() {
    Model::new().check("close_vs_left_at_rest", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let shared = Closing::new();
        drop(runtime.go({
            let shared = Arc::clone(&shared);
            move || {
                let io_lock = shared.io_lock.take_unless(|| false).expect("it is open");
                io_lock.rest();
                super::cover::park_for_ever();
            }
        }));
        // There is one M and one queue: once this goroutine has run, the other one is parked.
        runtime.run(|| ());
        super::cover::leave(runtime, std::time::Duration::from_secs(1));
        loom::explore();
        let user = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.take_and_call()
        });
        shared.close();
        user.join().unwrap();
        done();
    });
}

/// Fails by deadlock when a waiter does not hear of the close: the holder passes the lock on only when that waiter
/// has left.
#[test]
fn a_close_reaches_a_waiter_in_the_queue() {
    Model::new().check("close_vs_line", || {
        let shared = Closing::new();
        let held = shared.io_lock.take();
        let user = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.io_lock.take_unless(|| shared.is_closed()).is_some()
        });
        shared.closed.store(true, Relaxed);
        shared.io_lock.nudge_all();
        assert!(!user.join().unwrap());
        drop(held);
    });
}

/// Fails by deadlock, or by a causality violation, when the lock is handed to a waiter whose limit has passed.
#[test]
fn an_io_lock_is_not_lost_to_a_waiter_that_gives_up() {
    Model::new().check("give_up_vs_hand_over", || {
        let runtime = at_rest::<1>();
        let shared = Shared::new();
        let held = shared.io_lock.take();
        let waiter = runtime.go({
            let shared = Arc::clone(&shared);
            move || drop(shared.io_lock.take_before(1000))
        });
        drop(held);
        shared.count();
        waiter.join().unwrap();
        done();
    });
}

/// One waiter gives up while the lock is handed on to the other. Fails by deadlock when the other is forgotten.
#[test]
fn a_waiter_that_leaves_the_queue_keeps_no_other_waiting() {
    Model::new().check("leave_vs_line", || {
        let shared = Closing::new();
        let held = shared.io_lock.take();
        let leaves = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || drop(shared.io_lock.take_unless(|| shared.is_closed()))
        });
        let stays = loom::thread::spawn({
            let shared = Arc::clone(&shared);
            move || drop(shared.io_lock.take())
        });
        shared.closed.store(true, Relaxed);
        shared.io_lock.nudge_all();
        drop(held);
        leaves.join().unwrap();
        stays.join().unwrap();
    });
}

/// A holder comes back from a blocking call when its runtime has been left, and another goroutine keeps the only P. Fails by
/// deadlock when the holder is left in the global queue with the lock.
#[test]
fn an_io_lock_is_given_up_by_a_holder_that_comes_back_too_late() {
    Model::new().preemptions(1).check("io_lock_late_return", || {
        let runtime = runtime(1, 2);
        let shared = Shared::new();
        let (away, go_on) = (Flag::default(), Flag::default());
        drop(runtime.go({
            let (away, go_on, shared) = (away.clone(), go_on.clone(), Arc::clone(&shared));
            move || {
                let _held = shared.io_lock.take();
                blocking_here(|| {
                    away.raise();
                    go_on.wait_on_thread();
                });
                super::cover::park_for_ever();
            }
        }));
        away.wait_on_thread();
        let over = keep_the_thread(&runtime);
        assert_eq!(super::cover::leave(runtime, std::time::Duration::ZERO).threads_left(), 2);
        loom::explore();
        go_on.raise();
        shared.count();
        done();
        over.raise();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::IoLockNoHandOver, "threads_take_an_io_lock"),
            (Mutant::IoLockNoHandOver, "a_goroutine_and_a_thread_take_an_io_lock"),
            (Mutant::IoLockForgetsTheRest, "two_that_wait_both_get_the_io_lock"),
            (Mutant::IoLockPassRelaxed, "threads_take_an_io_lock"),
            (Mutant::IoLockCloserLooksRelaxed, "a_close_comes_after_the_system_call_of_the_holder"),
            (Mutant::IoLockTakeNoFence, "a_close_comes_after_the_system_call_of_the_holder"),
            (Mutant::SocketNoFence, "a_close_comes_after_the_system_call_of_the_holder"),
            (Mutant::IoLockCloserDoesNotWait, "a_close_comes_after_the_system_call_of_the_holder"),
            (Mutant::IoLockGoesOnNoFence, "a_close_does_not_wait_for_a_rest_and_is_seen_after_it"),
            (Mutant::IoLockRestRelaxed, "a_close_does_not_wait_for_a_rest_and_is_seen_after_it"),
            (Mutant::IoLockRestLooksRelaxed, "a_close_does_not_wait_for_a_rest_and_is_seen_after_it"),
            (Mutant::IoLockWaitersMasked, "a_close_reaches_a_waiter_in_the_queue"),
            (Mutant::WhyRelaxed, "a_waiter_that_leaves_the_queue_keeps_no_other_waiting"),
            (Mutant::IoLockHandedBlindly, "an_io_lock_is_not_lost_to_a_waiter_that_gives_up"),
            (Mutant::IoLockLeftBehind, "an_io_lock_whose_holder_is_left_behind_is_given_up"),
            (Mutant::IoLockKeepsItsHook, "an_io_lock_that_was_let_go_before_is_left_to_its_holder"),
            (Mutant::IoLockRestsUnnoted, "an_io_lock_is_given_up_by_a_goroutine_that_has_had_another"),
            (Mutant::IoLockHandOverRelaxed, "a_thread_that_passes_a_waiter_comes_after_the_holder"),
            (Mutant::IoLockCloserForgetsTheLine, "a_close_past_a_rest_leaves_the_line_as_it_is"),
            (Mutant::IoLockHandedUnnoted, "an_io_lock_that_is_handed_to_a_left_goroutine_is_given_up"),
            (
                Mutant::SeizeQueuedPassesTheWaker,
                "an_io_lock_that_is_handed_to_a_queued_goroutine_is_given_up",
            ),
            (Mutant::LateQueuedStays, "an_io_lock_is_given_up_by_a_holder_that_comes_back_too_late"),
            (Mutant::IoLockLeftAtRest, "a_close_comes_after_the_call_of_a_holder_after_one_that_was_left"),
            (Mutant::IoLockFreeAtRest, "a_close_comes_after_the_call_of_a_holder_that_passed_a_waiter"),
        ],
    );
}
