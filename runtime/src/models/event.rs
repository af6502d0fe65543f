//! `sync::Event`: a notification meets the waiter, or leaves a permit.

use super::caught;
use crate::model::{Model, Mutant, at_rest, done};
use crate::sync::Event;
use std::sync::Arc;

/// Fails by deadlock when a notification is lost between the waiter's look at the permit and its place in the queue.
#[test]
fn a_notification_while_somebody_begins_to_wait_is_not_lost() {
    Model::new().check("event", || {
        let runtime = at_rest::<1>();
        let (there, back) = (Arc::new(Event::new()), Arc::new(Event::new()));
        let waiter = runtime.go({
            let (there, back) = (Arc::clone(&there), Arc::clone(&back));
            move || {
                there.wait();
                back.notify_one();
            }
        });
        there.notify_one();
        back.wait();
        waiter.join().unwrap();
        done();
    });
}

#[test]
fn mutants() {
    let model = "a_notification_while_somebody_begins_to_wait_is_not_lost";
    caught::assert_caught(module_path!(), &[(Mutant::EventLeavesNoPermit, model)]);
}
