//! Broadcast and watch channels: what is sent beside the beginning of a wait, or of a bell, is seen.

use super::caught;
use crate::chan::{broadcast, watch};
use crate::model::{Model, Mutant, at_rest, done};

/// Fails by deadlock when the value and the receiver miss each other.
#[test]
fn a_value_meets_a_goroutine_that_begins_to_wait() {
    Model::new().check("watch", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = watch::channel(0);
        let waits = runtime.go(move || {
            receiver.changed().unwrap();
            *receiver.borrow_and_update()
        });
        sender.send(7).unwrap();
        assert_eq!(waits.join().unwrap(), 7);
        done();
    });
}

/// Fails by deadlock when the message and the receiver miss each other.
#[test]
fn a_message_meets_a_goroutine_that_begins_to_wait() {
    Model::new().check("broadcast", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = broadcast::channel(1);
        let waits = runtime.go(move || receiver.recv());
        assert_eq!(sender.send(7), Ok(1));
        assert_eq!(waits.join().unwrap(), Ok(7));
        done();
    });
}

/// Fails by deadlock when the message rings no bell, and the receiver has not seen it.
#[test]
fn a_message_meets_a_bell_that_is_asked_for() {
    Model::new().check("broadcast_bell", || {
        let runtime = at_rest::<1>();
        let (sender, mut receiver) = broadcast::channel(1);
        let waits = runtime.go(move || {
            receiver.bell().recv().unwrap();
            receiver.try_recv()
        });
        assert_eq!(sender.send(7), Ok(1));
        assert_eq!(waits.join().unwrap(), Ok(7));
        done();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SeveralLooksOnce, "a_value_meets_a_goroutine_that_begins_to_wait"),
            (Mutant::SeveralLooksOnce, "a_message_meets_a_goroutine_that_begins_to_wait"),
            (Mutant::WatchCountsLate, "a_value_meets_a_goroutine_that_begins_to_wait"),
            (Mutant::BellHangsLate, "a_message_meets_a_bell_that_is_asked_for"),
        ],
    );
}
