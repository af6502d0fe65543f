//! pollDesc: a goroutine that waits for an event misses neither the event nor a close.
//!
//! *Left out*: system calls (`models/socket.rs`) and tasks (`models/polltask.rs`); the poller is a thread that unblocks the
//! slot. *The mutants* take out the look of the commit at the slot, the exchange of an unblocker, the gate between a limit and
//! a commit, and the orderings of the slot.

use super::caught;
use super::cover::{Handle, PollDesc};
use crate::model::{Model, Mutant, Parts, at_rest, done, note};
use gmp_netpoll::Readiness;
use std::sync::Arc;

/// Fails by deadlock when the event is lost between the look at the slot and the park.
#[test]
fn an_event_ends_the_wait_whenever_it_comes() {
    Model::new().check("event_vs_wait", || {
        let runtime = at_rest::<1>();
        let desc = Arc::new(PollDesc::new());
        let reader = runtime.go({
            let desc = Arc::clone(&desc);
            move || assert!(desc.wait())
        });
        desc.event(&Handle::of(&runtime), Readiness::READABLE);
        reader.join().unwrap();
        done();
    });
}

/// A goroutine waits on a slot, and then another one, so that the second ticket comes where the first one was.
#[test]
fn each_of_two_events_ends_one_wait() {
    Model::new().check("two_events", || {
        let runtime = at_rest::<1>();
        let (desc, handle) = (Arc::new(PollDesc::new()), Handle::of(&runtime));
        let reader = runtime.go({
            let desc = Arc::clone(&desc);
            move || assert!(desc.wait())
        });
        desc.event(&handle, Readiness::READABLE);
        reader.join().unwrap();
        let next = runtime.go({
            let desc = Arc::clone(&desc);
            move || {
                assert!(desc.wait());
                done();
            }
        });
        desc.event(&handle, Readiness::READABLE);
        next.join().unwrap();
    });
}

/// Two pollers, such as the M in the poller and a busy M, bring one event each: the owner is woken once, and a Ready stays.
#[test]
fn two_events_at_once_wake_the_owner_once() {
    Model::new().check("two_pollers", || {
        let runtime = at_rest::<1>();
        let (desc, handle) = (Arc::new(PollDesc::new()), Handle::of(&runtime));
        let parts = Parts::of(3);
        let reader = runtime.go({
            let (desc, parts) = (Arc::clone(&desc), parts.clone());
            move || {
                assert!(desc.wait());
                parts.held();
            }
        });
        let other = loom::thread::spawn({
            let (desc, handle, parts) = (Arc::clone(&desc), handle.clone(), parts.clone());
            move || {
                desc.event(&handle, Readiness::READABLE);
                parts.held();
            }
        });
        desc.event(&handle, Readiness::READABLE);
        parts.held();
        other.join().unwrap();
        reader.join().unwrap();
    });
}

/// A closer marks, then looks; the owner announces itself, then reads the mark. Fails by deadlock when the owner
/// sleeps through the close.
#[test]
fn a_close_wakes_the_owner_or_is_seen_before_it_parks() {
    use loom::sync::atomic::{AtomicBool, Ordering};
    Model::new().check("close_vs_wait", || {
        let runtime = at_rest::<1>();
        let (desc, handle) = (Arc::new(PollDesc::new()), Handle::of(&runtime));
        let closed = Arc::new(AtomicBool::new(false));
        let reader = runtime.go({
            let (desc, closed) = (Arc::clone(&desc), Arc::clone(&closed));
            move || {
                while !closed.load(Ordering::Relaxed) {
                    // No event comes: each end of the wait is a nudge.
                    assert!(!desc.wait_unless(|| closed.load(Ordering::Relaxed)));
                }
            }
        });
        closed.store(true, Ordering::Relaxed);
        desc.look(&handle);
        reader.join().unwrap();
        done();
    });
}

/// The time limit or the event comes first, or both come at once. Fails by deadlock when an event that came for a wait that was
/// given up is lost: each event is reported once.
#[test]
fn an_event_that_comes_as_its_wait_is_given_up_stays() {
    Model::new().check("event_vs_limit", || {
        let runtime = at_rest::<1>();
        let desc = Arc::new(PollDesc::new());
        let reader = runtime.go({
            let desc = Arc::clone(&desc);
            move || {
                let came = desc.give_up_at(1000);
                note(if came { "came in time" } else { "gave up" });
                assert!(desc.wait());
            }
        });
        desc.event(&Handle::of(&runtime), Readiness::READABLE);
        reader.join().unwrap();
        done();
    });
}

/// The limit fires, on another M, before the wait is committed. Fails by a causality violation when the owner goes on
/// meanwhile: the ticket of an ended wait would come into the slot after all.
#[test]
fn a_limit_that_fires_before_the_commit_leaves_no_ticket() {
    Model::new().preemptions(1).check("limit_vs_commit", || {
        let runtime = at_rest::<2>();
        let desc = Arc::new(PollDesc::new());
        // How the reader comes to run is the subject of other models.
        loom::stop_exploring();
        let reader = runtime.go({
            let desc = Arc::clone(&desc);
            move || {
                loom::explore();
                assert!(!desc.give_up_at(0));
                done();
            }
        });
        reader.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::PollCommitIgnored, "an_event_ends_the_wait_whenever_it_comes"),
            (Mutant::PollCommitIgnored, "each_of_two_events_ends_one_wait"),
            (Mutant::PollCommitRelaxed, "an_event_ends_the_wait_whenever_it_comes"),
            (Mutant::PollExchangeRelaxed, "a_close_wakes_the_owner_or_is_seen_before_it_parks"),
            (Mutant::PollExchangeLooksRelaxed, "a_close_wakes_the_owner_or_is_seen_before_it_parks"),
            (Mutant::PollRetryRelaxed, "a_close_wakes_the_owner_or_is_seen_before_it_parks"),
            (Mutant::PollUnblockRelaxed, "two_events_at_once_wake_the_owner_once"),
            (Mutant::PollNoGate, "a_limit_that_fires_before_the_commit_leaves_no_ticket"),
            (Mutant::PollLeaveForgetsTheEvent, "an_event_that_comes_as_its_wait_is_given_up_stays"),
            (Mutant::PollLeavesItsTicket, "an_event_that_comes_as_its_wait_is_given_up_stays"),
            (Mutant::PollLookSparesTheExchange, "a_close_wakes_the_owner_or_is_seen_before_it_parks"),
        ],
    );
}
