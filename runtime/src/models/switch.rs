//! Functions around the switches: a goroutine that publishes its wait and sleeps later loses no ready, no cancel, no timer.

use super::caught;
use super::cover::refuse_beside_the_timer;
use super::interrupt::cancel_and_notify;
use super::park::Place;
use crate::context::{Context, ContextError};
use crate::model::{Flag, Model, Mutant, at_rest, done, runtime};
use crate::sync::Event;
use crate::time;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

const CANCELED: Result<(), ContextError> = Err(ContextError::Canceled);

/// How often the functions of this execution were called.
#[derive(Clone, Default)]
struct Calls(Arc<[AtomicU32; 2]>);

fn count(calls: &AtomicU32) {
    calls.fetch_add(1, SeqCst);
}

impl Calls {
    fn register() -> Self {
        let calls = Calls::default();
        let [suspend, resume] = [calls.clone(), calls.clone()];
        crate::hooks::register(move || count(&suspend.0[0]), move || count(&resume.0[1]));
        calls
    }

    fn seen(&self) -> (u32, u32) {
        (self.0[0].load(SeqCst), self.0[1].load(SeqCst))
    }
}

/// Fails by deadlock when a ready is lost that comes between the publishing and the switch, by a causality violation when the
/// goroutine runs before the save; and when one of the functions is called without the other.
#[test]
fn a_ready_before_the_switch_is_not_lost() {
    Model::new().check("hooks_vs_ready", || {
        let calls = Calls::register();
        let runtime = at_rest::<1>();
        let place = Place::new();
        let parker = runtime.go({
            let place = place.clone();
            move || place.wait()
        });
        assert!(place.waiter().wake());
        parker.join().unwrap();
        assert_eq!(calls.seen(), (1, 1));
        done();
    });
}

/// As `a_ready_before_the_switch_is_not_lost`, with two waits, and a claim of the first that comes late.
#[test]
fn a_late_claim_touches_no_later_wait() {
    Model::new().preemptions(1).check("hooks_two_readiers", || {
        let calls = Calls::register();
        let runtime = runtime(1, 1);
        let waits = [Place::new(), Place::new()];
        let parker = runtime.go({
            let waits = waits.clone();
            move || waits.iter().for_each(Place::wait)
        });
        let first = waits[0].waiter();
        let rival = loom::thread::spawn({
            let first = first.clone();
            move || first.wake()
        });
        loom::explore();
        let mine = first.wake();
        assert!(waits[1].waiter().wake(), "the second wait was claimed under the first one's number");
        assert_ne!(rival.join().unwrap(), mine);
        parker.join().unwrap();
        assert_eq!(calls.seen(), (2, 2));
        done();
    });
}

/// Fails by deadlock when a cancel is lost between the publishing of a wait and the switch.
#[test]
fn a_cancel_before_the_switch_unwinds() {
    Model::new().check("hooks_vs_cancel", || {
        let calls = Calls::register();
        let runtime = at_rest::<1>();
        let (ctx, cancel) = Context::background().with_cancel();
        let parker = runtime.go(move || ctx.run(|| Event::new().wait()));
        cancel.cancel();
        assert_eq!(parker.join().unwrap(), CANCELED);
        assert_eq!(calls.seen(), (1, 1));
        done();
    });
}

/// Fails by deadlock when a wait ends neither way, or when the goroutine that is unwound takes the notification with it.
#[test]
fn a_cancel_and_a_notification_end_a_wait_once() {
    Model::new().preemptions_by_default(1).check("hooks_vs_cancel_and_ready", || {
        let calls = Calls::register();
        let runtime = runtime(1, 1);
        cancel_and_notify(&runtime);
        let (suspended, resumed) = calls.seen();
        assert_eq!(suspended, resumed);
        done();
    });
}

/// Fails by deadlock when a timer that fires before the switch is lost, or a cancelled sleep leaves its timer.
#[test]
fn a_sleep_ends_by_its_timer_or_by_a_cancel() {
    Model::new().preemptions(1).check("hooks_vs_timer", || {
        let calls = Calls::register();
        let runtime = at_rest::<1>();
        let (ctx, cancel) = Context::background().with_cancel();
        let sleeper = runtime.go(move || ctx.run(|| time::sleep(Duration::from_nanos(1))));
        cancel.cancel();
        // Either of the two may come first.
        let _ended = sleeper.join().unwrap();
        let (suspended, resumed) = calls.seen();
        assert_eq!(suspended, resumed);
        done();
    });
}

/// Fails by deadlock when the end of the runtime misses a goroutine that is about to switch.
#[test]
fn the_end_of_the_runtime_finds_a_goroutine_before_its_switch() {
    Model::new().preemptions(2).check("hooks_vs_shutdown", || {
        let _calls = Calls::register();
        let runtime = runtime(1, 1);
        let begins = Flag::default();
        let parker = runtime.go({
            let begins = begins.clone();
            move || {
                begins.raise();
                Event::new().wait();
            }
        });
        begins.wait_on_thread();
        loom::explore();
        assert!(runtime.shutdown_timeout(crate::model::LONG));
        assert!(parker.join().is_err());
    });
}

/// As the model of the same name in `models/timer.rs`: here the goroutine calls its commit hook itself, with the timer armed.
#[test]
fn a_wait_that_was_refused_meets_its_timer() {
    Model::new().preemptions(2).check("hooks_vs_refusal", || {
        let calls = Calls::register();
        let _runtime = refuse_beside_the_timer();
        let (suspended, resumed) = calls.seen();
        assert_eq!(suspended, resumed);
        done();
    });
}

#[test]
fn mutants() {
    let cancel = "a_cancel_before_the_switch_unwinds";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::AnnounceUnsaved, cancel),
            (Mutant::AnnounceForgetsInterrupts, cancel),
            (Mutant::CommitClosesBlindly, "a_wait_that_was_refused_meets_its_timer"),
            (Mutant::ParkAgainBlind, "a_ready_before_the_switch_is_not_lost"),
        ],
    );
}
