//! `sync::Condvar`: no notification is lost, and none is taken by a waiter that has given up.

use super::caught;
use crate::context::Context;
use crate::model::{Model, Mutant, at_rest, done};
use crate::sync::{Condvar, Mutex};
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

/// Shorter than any wait of a model.
const AT_ONCE: Duration = Duration::from_nanos(1);

type Shared = Arc<(Mutex<u32>, Condvar)>;

/// Fails by deadlock when a notification that comes between the waiter's unlock and its place in the queue is lost.
#[test]
fn a_change_while_a_goroutine_begins_to_wait_is_not_missed() {
    Model::new().check("condvar", || {
        let runtime = at_rest::<1>();
        let shared = Shared::default();
        let theirs = Arc::clone(&shared);
        let waiter = runtime.go(move || {
            let mut value = theirs.0.lock();
            theirs.1.wait_while(&mut value, |value| *value == 0);
            *value
        });
        *shared.0.lock() = 1;
        shared.1.notify_one();
        assert_eq!(waiter.join().unwrap(), 1);
        done();
    });
}

/// As `a_change_while_a_goroutine_begins_to_wait_is_not_missed`, with two plain threads. Fails by deadlock.
#[test]
fn threads_wait_for_each_other() {
    Model::new().preemptions(3).check("condvar_threads", || {
        let shared = Shared::default();
        let theirs = Arc::clone(&shared);
        let waiter = thread::spawn(move || {
            let mut value = theirs.0.lock();
            theirs.1.wait_while(&mut value, |value| *value == 0);
        });
        *shared.0.lock() = 1;
        assert!(shared.1.notify_all() <= 1);
        waiter.join().unwrap();
    });
}

/// A goroutine gives up while a notification comes, and a thread waits behind the goroutine. Fails by deadlock when
/// the goroutine takes the notification although it has given up, by the count when both get the notification.
fn one_gives_up(name: &str, wait: fn(&Context, &(Mutex<u32>, Condvar)) -> bool, cuts: bool) {
    Model::new().check(name, move || {
        let runtime = at_rest::<1>();
        let shared = Shared::default();
        let (context, cancel) = Context::background().with_cancel();
        let theirs = Arc::clone(&shared);
        let gives_up = runtime.go(move || wait(&context, &theirs));
        let theirs = Arc::clone(&shared);
        let waits = thread::spawn(move || {
            let mut value = theirs.0.lock();
            while *value == 0 {
                theirs.1.wait(&mut value);
            }
        });
        *shared.0.lock() = 1;
        let mut given = usize::from(shared.1.notify_one());
        if cuts {
            cancel.cancel();
        }
        let notified = gives_up.join().unwrap();
        if notified {
            assert_eq!(given, 1);
            given = usize::from(shared.1.notify_one());
        }
        waits.join().unwrap();
        assert!(given <= 1 && !shared.0.is_locked());
        done();
    });
}

#[test]
fn a_waiter_that_times_out_takes_no_notification() {
    let wait = |_: &Context, shared: &(Mutex<u32>, Condvar)| {
        let mut value = shared.0.lock();
        *value == 0 && !shared.1.wait_for(&mut value, AT_ONCE).timed_out()
    };
    one_gives_up("condvar_limit", wait, false);
}

#[test]
fn an_interrupted_waiter_takes_no_notification_and_unlocks() {
    let wait = |context: &Context, shared: &(Mutex<u32>, Condvar)| {
        // The guard is outside of the unwound frame: by then the wait has locked the mutex again, and the guard unlocks it as
        // always.
        let mut value = shared.0.lock();
        *value == 0 && context.run(|| shared.1.wait(&mut value)).is_ok()
    };
    one_gives_up("condvar_interrupt", wait, true);
}

#[test]
fn mutants() {
    let model = "a_change_while_a_goroutine_begins_to_wait_is_not_missed";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::CondvarUnlocksFirst, model),
            (Mutant::CondvarUnlocksFirst, "threads_wait_for_each_other"),
            (Mutant::MutexTellsRelaxed, "threads_wait_for_each_other"),
        ],
    );
}
