//! An example of a user's model: a mailbox for one value, built on [`gmp::model::park`], and how loom finds the wake-up that
//! a wrong version of the mailbox loses.
//!
//! The parts of such a file:
//!
//! 1. the code to check, built of loom's types and of `park` ([`Mailbox`]);
//! 2. a model for each property: a small runtime, few goroutines, `done()` when the property has held;
//! 3. for each line that the property rests on, a switch that takes the line away, and a test that the model then fails. A
//!    model that was never seen to fail may be blind.
//!
//! `gmp::model` says what a model may use and what it can't see.
#![cfg(gmp_loom)]

use gmp::model::{Model, Parked, Waiter, at_rest, done, park};
use loom::sync::{Mutex, MutexGuard};
use std::process::Command;
use std::sync::Arc;

/// If this is in the environment, `take` looks and queues itself in two critical sections.
const BUG: &str = "MAILBOX_LOOKS_TOO_EARLY";

/// Holds a value until a taker takes it. Goroutines and threads may take, one at a time.
struct Mailbox<T>(Mutex<Inside<T>>);

struct Inside<T> {
    value: Option<T>,
    taker: Option<Waiter>,
}

impl<T> Mailbox<T> {
    fn new() -> Self {
        Mailbox(Mutex::new(Inside { value: None, taker: None }))
    }

    fn lock(&self) -> MutexGuard<'_, Inside<T>> {
        self.0.lock().expect("no panic under this lock")
    }

    /// Leaves a value, and wakes the taker that waits for it.
    fn put(&self, value: T) {
        let mut inside = self.lock();
        inside.value = Some(value);
        let taker = inside.taker.take();
        drop(inside);
        if let Some(taker) = taker {
            // `wake` claims the wait first. The claim can't fail here, since no other waker knows of the wait.
            assert!(taker.wake());
        }
    }

    /// Waits for a value.
    fn take(&self) -> T {
        loop {
            let mut inside = self.lock();
            if let Some(value) = inside.value.take() {
                return value;
            }
            if std::env::var_os(BUG).is_some() {
                drop(inside);
                // Here `put` finds no taker to wake.
                inside = self.lock();
            }
            // The closure runs on the caller's M, when the caller counts as asleep. The closure publishes the wait as it lets
            // the lock go: a thread that finds the waiter may wake it at once.
            let parked = park(move |waiter| {
                inside.taker = Some(waiter);
                drop(inside);
                true
            });
            assert_eq!(parked, Parked::Readied);
        }
    }
}

/// A goroutine takes the value that a thread puts. Fails by deadlock when the put comes between the look and the wait.
#[test]
fn a_value_put_while_a_goroutine_begins_to_wait_is_taken() {
    Model::new().check("mailbox", || {
        let runtime = at_rest::<1>();
        let mailbox = Arc::new(Mailbox::new());
        let taker = runtime.go({
            let mailbox = Arc::clone(&mailbox);
            move || mailbox.take()
        });
        mailbox.put(1);
        assert_eq!(taker.join().unwrap(), 1);
        // The end of the runtime is another model's subject.
        done();
    });
}

/// As `a_value_put_while_a_goroutine_begins_to_wait_is_taken`, between two goroutines, there and back, while a thread waits for
/// both.
#[test]
fn two_goroutines_answer_each_other() {
    Model::new().check("mailbox_there_and_back", || {
        let runtime = at_rest::<1>();
        let answer = runtime.run(|| {
            let (there, back) = (Arc::new(Mailbox::new()), Arc::new(Mailbox::new()));
            let other = gmp::go({
                let (there, back) = (Arc::clone(&there), Arc::clone(&back));
                move || back.put(there.take() + 1)
            });
            there.put(1);
            let answer = back.take();
            other.join().unwrap();
            answer
        });
        assert_eq!(answer, 2);
        done();
    });
}

/// Runs the first model with the bug, with which the model fails. It runs in a process of its own, since loom's failures may
/// end the process.
#[test]
fn loom_finds_the_lost_wake_up() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_value_put_while_a_goroutine_begins_to_wait_is_taken", "--nocapture"])
        .env(BUG, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(!child.status.success(), "the model passes without the line that it is there for");
    assert!(said.contains("deadlock"), "{said}");
    // The output lists the steps that led to the deadlock, of the goroutine and the thread, in order.
    assert!(said.contains("the schedule of execution"), "{said}");
}
