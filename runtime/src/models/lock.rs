//! The lock order: an acquisition against the order panics in a model, too, in the first schedule.

use crate::model::{Model, done};
use crate::prim::{Mutex, Rank};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Fails if a thread of a model may ask for an outer lock while it holds an inner one, or if a lock that another thread
/// holds counts.
#[test]
fn a_lock_that_is_taken_against_the_order() {
    Model::new().check("lock_order", || {
        let locks = Arc::new((Mutex::new(Rank::Channel, 0), Mutex::new(Rank::Central, 0)));
        let theirs = Arc::clone(&locks);
        let other = loom::thread::spawn(move || {
            let _outer = theirs.0.lock();
            *theirs.1.lock() += 1;
        });
        let inner = locks.1.lock();
        let outcome = catch_unwind(AssertUnwindSafe(|| *locks.0.lock() += 1));
        drop(inner);
        let payload = outcome.expect_err("it is against the order");
        let message = payload.downcast_ref::<String>().expect("the panic has a formatted message");
        assert!(message.contains("Channel") && message.contains("Central"), "{message}");
        other.join().unwrap();
        assert_eq!(*locks.0.lock(), 0);
        done();
    });
}

/// Fails if two locks of a rank are taken in an order that another thread may reverse.
#[test]
fn two_locks_of_a_rank_are_taken_as_they_were_made() {
    Model::new().check("lock_places", || {
        let (first, second) = (Mutex::new(Rank::Channel, ()), Mutex::new(Rank::Channel, ()));
        assert!(first.place() < second.place());
        drop([first.lock(), second.lock()]);
        let _held = second.lock();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(first.lock()))).is_err());
        done();
    });
}
