//! `sync::Event`: a notification meets the waiter, or leaves a permit.

use super::caught;
use super::cover::{Handle, keep_the_thread, leave};
use crate::Runtime;
use crate::context::Context;
use crate::model::{Model, Mutant, at_rest, done, runtime};
use crate::sync::Event;
use loom::thread;
use std::sync::Arc;
use std::time::Duration;

/// Fails by deadlock when a notification is lost between the waiter's look at the permit and its place in the queue.
#[test]
fn a_notification_while_a_goroutine_begins_to_wait_is_not_lost() {
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

/// A goroutine is notified while its runtime leaves it behind. Fails by deadlock when the one notification is lost with that
/// goroutine; a goroutine that runs passes it on itself.
#[test]
fn a_notification_for_a_waiter_that_is_left_goes_to_the_next() {
    Model::new().check("event_left", || {
        let runtime = at_rest::<1>();
        let event = Arc::new(Event::new());
        go_wait(&runtime, &event);
        notify_beside_the_end(runtime, &event);
    });
}

/// Starts a goroutine that passes on the notification for which it waits.
fn go_wait(runtime: &Runtime, event: &Arc<Event>) {
    let theirs = Arc::clone(event);
    drop(runtime.go(move || {
        theirs.wait();
        theirs.notify_one();
    }));
}

/// Another thread notifies while the runtime ends, and this thread waits for the notification that is passed on.
fn notify_beside_the_end(runtime: Runtime, event: &Arc<Event>) {
    let theirs = Arc::clone(event);
    let notifier = thread::spawn(move || theirs.notify_one());
    leave(runtime, Duration::from_secs(1));
    event.wait();
    notifier.join().unwrap();
    done();
}

/// As `a_notification_for_a_waiter_that_is_left_goes_to_the_next`, with two goroutines of that runtime: the notification of the
/// goroutine that is abandoned goes to the other. Fails by deadlock when the notification stays with one of them.
#[test]
fn a_notification_for_waiters_that_are_left_goes_through_all() {
    Model::new().preemptions(2).check("event_left_through", || {
        let runtime = runtime(1, 1);
        let event = Arc::new(Event::new());
        (0..2).for_each(|_| go_wait(&runtime, &event));
        Handle::of(&runtime).await_poller();
        loom::explore();
        notify_beside_the_end(runtime, &event);
    });
}

/// A goroutine that waits was nudged, and is queued behind one that keeps the thread. A thread notifies it while its runtime
/// leaves it behind. Fails by a causality violation when the end runs the abandon hook beside the notifier, or still uses the
/// goroutine's links; by deadlock when the notification is lost with the goroutine.
#[test]
fn a_notification_for_a_waiter_that_is_left_in_a_queue_goes_to_the_next() {
    Model::new().check("event_left_queued", || {
        let runtime = runtime(1, 1);
        let event = Arc::new(Event::new());
        let (ctx, cancel) = Context::background().with_cancel();
        let theirs = Arc::clone(&event);
        drop(runtime.go(move || ctx.run(|| theirs.wait()).is_ok()));
        Handle::of(&runtime).await_poller();
        let over = keep_the_thread(&runtime);
        cancel.cancel();
        loom::explore();
        let theirs = Arc::clone(&event);
        let notifier = thread::spawn(move || theirs.notify_one());
        let _report = leave(runtime, Duration::ZERO);
        event.wait();
        notifier.join().unwrap();
        done();
        over.raise();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::EventLeavesNoPermit, "a_notification_while_a_goroutine_begins_to_wait_is_not_lost"),
            (Mutant::EventLeavesNoPermit, "a_notification_for_waiters_that_are_left_goes_through_all"),
            (Mutant::EventStaysWithTheLeft, "a_notification_for_a_waiter_that_is_left_goes_to_the_next"),
            (
                Mutant::SeizeQueuedPassesTheWaker,
                "a_notification_for_a_waiter_that_is_left_in_a_queue_goes_to_the_next",
            ),
            (
                Mutant::SeizeQueuedStaysRunnable,
                "a_notification_for_a_waiter_that_is_left_in_a_queue_goes_to_the_next",
            ),
            (
                Mutant::SeizeQueuedWithoutAcquire,
                "a_notification_for_a_waiter_that_is_left_in_a_queue_goes_to_the_next",
            ),
            (
                Mutant::SeizeQueuedWithoutRelease,
                "a_notification_for_a_waiter_that_is_left_in_a_queue_goes_to_the_next",
            ),
        ],
    );
}
