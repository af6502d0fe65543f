//! Ending a wait from outside: no cancel, no counterpart's ready and no nudge is lost.
//!
//! *Modelled*: waits of goroutines and threads, with the contexts that cover them, their wakers, their timers, and a dump.
//! *Left out*: the end of a runtime, which claims instead of nudging (`models/shutdown.rs`), and the answers of a context that
//! ends (`models/context.rs`). *The mutants* take out ParkFence and CancelFence, the looks of a parker, the marks of a nudge
//! that comes during a commit hook or a dump's hold, and the orderings of these words. *Failures*: a lost cancel or nudge is a
//! deadlock; a goroutine that is queued before its M is done with it is a causality violation.

use super::caught;
use super::cover::{Handle, Looker, park_looking};
use crate::Runtime;
use crate::context::{Context, ContextError};
use crate::model::{Flag, LONG, Model, Mutant, Parked, Waiter, at_rest, done, park, runtime};
use crate::sync::Event;
use crate::time;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicBool, Ordering::Relaxed};
use loom::sync::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

const CANCELED: Result<(), ContextError> = Err(ContextError::Canceled);

/// A place in which one thread or goroutine waits, and another finds it.
struct Place<W>(Arc<(Mutex<Option<W>>, Condvar)>);

impl<W> Clone for Place<W> {
    fn clone(&self) -> Self {
        Place(Arc::clone(&self.0))
    }
}

impl<W> Place<W> {
    fn new() -> Self {
        Place(Arc::new((Mutex::new(None), Condvar::new())))
    }

    fn put(&self, waiter: W) {
        *self.0.0.lock().unwrap() = Some(waiter);
        self.0.1.notify_all();
    }

    fn take(&self) -> W {
        let mut place = self.0.0.lock().unwrap();
        loop {
            match place.take() {
                Some(waiter) => return waiter,
                None => place = self.0.1.wait(place).unwrap(),
            }
        }
    }
}

/// A value that a waker hands over between its claim and its ready.
struct Given(UnsafeCell<u32>);

// SAFETY: claim and ready order the accesses; loom checks that they do.
unsafe impl Send for Given {}
// SAFETY: as for `Send`.
unsafe impl Sync for Given {}

/// Fails by deadlock when a cancel is lost between the look of a parker and its wait, or while its hook runs.
#[test]
fn a_cancel_while_a_goroutine_parks_unwinds_it() {
    Model::new().check("cancel_vs_park", || {
        let runtime = at_rest::<1>();
        let (ctx, cancel) = Context::background().with_cancel();
        let parker = runtime.go(move || ctx.run(|| Event::new().wait()));
        cancel.cancel();
        assert_eq!(parker.join().unwrap(), CANCELED);
        done();
    });
}

/// As `a_cancel_while_a_goroutine_parks_unwinds_it`, with a cancel two contexts above. Fails by deadlock when a context that is
/// made below is not told.
#[test]
fn a_cancel_above_unwinds_a_goroutine_below() {
    Model::new().check("cancel_above", || {
        let runtime = at_rest::<1>();
        let (above, cancel) = Context::background().with_cancel();
        let parker = runtime.go(move || above.with_cancel().0.with_cancel().0.run(|| Event::new().wait()));
        cancel.cancel();
        assert_eq!(parker.join().unwrap(), CANCELED);
        done();
    });
}

/// A goroutine waits for an event under a context; the caller cancels the context while a thread notifies the event.
pub(super) fn cancel_and_notify(runtime: &Runtime) {
    let (ctx, cancel) = Context::background().with_cancel();
    let (event, begins) = (Arc::new(Event::new()), Flag::default());
    let waiter = runtime.go({
        let (event, begins) = (Arc::clone(&event), begins.clone());
        move || {
            ctx.run(|| {
                begins.raise();
                event.wait();
            })
        }
    });
    begins.wait_on_thread();
    loom::explore();
    let notifier = loom::thread::spawn({
        let event = Arc::clone(&event);
        move || event.notify_one()
    });
    cancel.cancel();
    notifier.join().unwrap();
    if waiter.join().unwrap() == CANCELED {
        // The notification is there for the next waiter.
        event.wait();
    }
}

/// Fails by deadlock when a wait ends neither way, or when the notification is lost with the goroutine that is unwound.
#[test]
fn a_cancel_and_a_notification_end_a_wait_once() {
    Model::new().preemptions_by_default(1).check("cancel_vs_ready", || {
        let runtime = runtime(1, 1);
        cancel_and_notify(&runtime);
        done();
    });
}

/// Fails by deadlock when the hold swallows the nudge, by a causality violation when the dump reads a stack that is
/// in use.
#[test]
fn a_dump_holds_a_g_without_losing_its_cancel() {
    Model::new().preemptions(2).check("cancel_vs_dump", || {
        let runtime = runtime(1, 1);
        let (ctx, cancel) = Context::background().with_cancel();
        let place = Place::new();
        let parker = runtime.go({
            let place = place.clone();
            move || ctx.run(|| park_looking(|looker: Looker| place.put(looker), || false))
        });
        drop(place.take());
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || drop(handle.dump())
        });
        loom::explore();
        cancel.cancel();
        dumper.join().unwrap();
        loom::stop_exploring();
        assert_eq!(parker.join().unwrap(), Err(ContextError::Canceled));
        loom::explore();
        done();
    });
}

/// Fails by deadlock when a nudge is lost on an owner that is about to sleep again, or the owner does not see the reason for
/// the nudge.
#[test]
fn a_second_nudge_while_the_owner_looks_is_not_lost() {
    Model::new().check("nudge_vs_park_again", || {
        let runtime = runtime(1, 1);
        let (place, seen) = (Place::new(), Arc::new(AtomicBool::new(false)));
        let owner = runtime.go({
            let (place, seen) = (place.clone(), Arc::clone(&seen));
            move || park_looking(|looker: Looker| place.put(looker), || seen.load(Relaxed))
        });
        let looker = place.take();
        loom::explore();
        looker.nudge();
        seen.store(true, Relaxed);
        looker.nudge();
        assert!(owner.join().unwrap());
        done();
    });
}

/// Fails by deadlock when the owner and its waker each believe that the other ends the wait, by a causality violation
/// when the owner does not see what the waker wrote.
#[test]
fn an_owner_that_looks_meets_its_counterpart() {
    Model::new().check("nudge_vs_ready", || {
        let runtime = runtime(1, 1);
        let (place, given) = (Place::new(), Arc::new(Given(UnsafeCell::new(0))));
        let owner = runtime.go({
            let (place, given) = (place.clone(), Arc::clone(&given));
            move || {
                park(|waiter: Waiter| {
                    place.put(waiter);
                    true
                });
                // SAFETY: read after the ready.
                given.0.with(|given| unsafe { *given })
            }
        });
        let waiter = place.take();
        loom::explore();
        assert!(waiter.claim());
        // SAFETY: written before the ready.
        given.0.with_mut(|given| unsafe { *given = 1 });
        waiter.ready();
        assert_eq!(owner.join().unwrap(), 1);
        done();
    });
}

/// A dump reads an owner that sleeps again after a look. Fails by a causality violation when the owner was not saved.
#[test]
fn a_dump_reads_an_owner_that_sleeps_on_only_when_it_is_saved() {
    Model::new().check("dump_vs_park_again", || {
        let runtime = runtime(1, 1);
        let place = Place::new();
        let owner = runtime.go({
            let place = place.clone();
            move || park_looking(|looker: Looker| place.put(looker), || false)
        });
        let looker = place.take();
        loom::explore();
        looker.nudge();
        drop(Handle::of(&runtime).dump());
        loom::stop_exploring();
        assert!(looker.wake());
        assert!(!owner.join().unwrap());
        loom::explore();
        done();
    });
}

/// One nudge wakes the owner, on another M, while its commit hook is not over yet; the cancel comes then, while the owner
/// looks. Fails by deadlock when the cancel is lost.
#[test]
fn a_cancel_finds_an_owner_that_looks_before_its_hook_is_over() {
    Model::new().preemptions(1).check("cancel_vs_early_look", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (ctx, cancel) = Context::background().with_cancel();
        let (place, looked, cancelled) = (Place::new(), Flag::default(), Flag::default());
        let owner = runtime.go({
            let (place, looked, cancelled) = (place.clone(), looked.clone(), cancelled.clone());
            move || {
                let hook_goes_on = cancelled.clone();
                let publish = |looker: Looker| {
                    place.put(looker);
                    hook_goes_on.wait_on_thread();
                };
                let seen = || {
                    looked.raise();
                    cancelled.wait_on_thread();
                    false
                };
                let ended = ctx.run(|| park_looking(publish, seen));
                done();
                ended
            }
        });
        place.take().nudge();
        looked.wait_on_thread();
        cancel.cancel();
        loom::explore();
        cancelled.raise();
        assert_eq!(owner.join().unwrap(), Err(ContextError::Canceled));
    });
}

/// Fails by deadlock when the cancel is lost; by a causality violation when the canceller queues the goroutine before the M
/// that ran it after the nudge is done with it.
#[test]
fn a_cancel_right_after_a_nudge_is_not_lost() {
    Model::new().check("cancel_vs_park_again", || {
        let runtime = runtime(1, 1);
        let (ctx, cancel) = Context::background().with_cancel();
        let place = Place::new();
        let owner = runtime.go({
            let place = place.clone();
            move || ctx.run(|| park_looking(|looker: Looker| place.put(looker), || false))
        });
        let looker = place.take();
        loom::explore();
        looker.nudge();
        cancel.cancel();
        assert_eq!(owner.join().unwrap(), Err(ContextError::Canceled));
        done();
    });
}

/// Fails when a wait that was cancelled leaves its timer in the heap.
#[test]
fn a_cancelled_sleep_takes_its_timer_along() {
    Model::new().check("cancel_vs_timer", || {
        let runtime = at_rest::<1>();
        let (ctx, cancel) = Context::background().with_cancel();
        let sleeper = runtime.go(move || ctx.run(|| time::sleep(LONG)));
        cancel.cancel();
        assert_eq!(sleeper.join().unwrap(), CANCELED);
        assert!(!Handle::of(&runtime).has_timers(), "the timer is still there");
        done();
    });
}

/// Fails when a wait with a limit that a counterpart has ended leaves its timer in the heap.
#[test]
fn a_wait_that_a_counterpart_ends_takes_its_timer_along() {
    Model::new().check("counterpart_vs_timer", || {
        let runtime = at_rest::<1>();
        let (sender, receiver) = crate::chan::bounded::<u8>(0);
        let owner = runtime.go(move || receiver.recv_timeout(LONG));
        sender.send(7).unwrap();
        assert_eq!(owner.join().unwrap(), Ok(7));
        assert!(!Handle::of(&runtime).has_timers(), "the timer is still there");
        done();
    });
}

/// As `a_cancelled_sleep_takes_its_timer_along`, on two Ms. Fails by a causality violation when the owner, on the
/// second M, looks for its timer before the first M has noted the timer's place.
#[test]
fn a_cancelled_sleep_finds_its_timer_on_another_m() {
    Model::new().preemptions(1).check("cancel_vs_timer_elsewhere", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (ctx, cancel) = Context::background().with_cancel();
        let begins = Flag::default();
        let sleeper = runtime.go({
            let begins = begins.clone();
            move || {
                let ended = ctx.run(|| {
                    begins.raise();
                    loom::explore();
                    time::sleep(LONG);
                });
                done();
                ended
            }
        });
        begins.wait_on_thread();
        cancel.cancel();
        assert_eq!(sleeper.join().unwrap(), CANCELED);
    });
}

/// Fails by deadlock when an alarm is lost, or the thread wakes and does not see the cancel.
#[test]
fn a_cancel_while_a_thread_begins_to_wait_unwinds_it() {
    Model::new().unbounded().check("cancel_vs_doze", || {
        let (ctx, cancel) = Context::background().with_cancel();
        let thread = loom::thread::spawn(move || ctx.run(|| Event::new().wait()));
        cancel.cancel();
        assert_eq!(thread.join().unwrap(), CANCELED);
    });
}

/// Makes one thread park, and another one ready it, with a value to read. The parker calls `published` when its waiter can be
/// found; the waker calls `claimed` when it has claimed.
fn ready_a_thread(published: impl FnOnce() + Send + 'static, claimed: impl FnOnce()) {
    let (place, given) = (Place::new(), Arc::new(Given(UnsafeCell::new(0))));
    let thread = loom::thread::spawn({
        let (place, given) = (place.clone(), Arc::clone(&given));
        move || {
            let parked = park(|waiter: Waiter| {
                place.put(waiter);
                published();
                true
            });
            assert_eq!(parked, Parked::Readied);
            // SAFETY: read after the ready.
            given.0.with(|given| unsafe { *given })
        }
    });
    let waiter = place.take();
    assert!(waiter.claim());
    claimed();
    // SAFETY: written before the ready.
    given.0.with_mut(|given| unsafe { *given = 1 });
    waiter.ready();
    assert_eq!(thread.join().unwrap(), 1);
}

/// Fails by deadlock when the thread is woken and does not see the ready, by a causality violation when the thread does not
/// see the value.
#[test]
fn a_thread_that_begins_to_sleep_is_woken() {
    Model::new().unbounded().check("ready_vs_doze", || ready_a_thread(|| (), || ()));
}

/// Fails by a causality violation when a thread that was readied before it fell asleep does not see the value.
#[test]
fn a_thread_that_never_slept_sees_what_it_was_woken_with() {
    Model::new().unbounded().check("ready_before_doze", || {
        // The waker begins when the parker goes on, so that the parker is the first.
        let claimed = Flag::default();
        let waits = claimed.clone();
        ready_a_thread(move || waits.wait_on_thread(), || claimed.raise());
    });
}

/// An owner that looks has lost its P, and comes back without one, still in its wait, while a waker ends that wait. Fails
/// by an assertion of the word, or by deadlock, when the owner overwrites the claim.
#[test]
fn an_owner_that_comes_back_without_a_p_keeps_a_claim() {
    Model::new().preemptions(2).check("claim_vs_requeue", || {
        let runtime = runtime(1, 2);
        let (place, away) = (Place::new(), Flag::default());
        let (held, go_on) = (Flag::default(), Flag::default());
        let owner = runtime.go({
            let (place, away) = (place.clone(), away.clone());
            let (held, go_on) = (held.clone(), go_on.clone());
            move || {
                let mut looks = 0;
                let seen = || {
                    looks += 1;
                    if looks == 1 {
                        crate::blocking(|| {
                            away.raise();
                            held.wait_on_thread();
                            loom::explore();
                            go_on.raise();
                        });
                    }
                    false
                };
                assert!(!park_looking(|looker: Looker| place.put(looker), seen));
                done();
            }
        });
        let looker = place.take();
        looker.nudge();
        away.wait_on_thread();
        let _holder = runtime.go({
            let held = held.clone();
            move || {
                held.raise();
                go_on.wait_on_thread();
            }
        });
        held.wait_on_thread();
        assert!(looker.wake());
        owner.join().unwrap();
    });
}

/// As `a_cancelled_sleep_finds_its_timer_on_another_m`, with an earlier timer in that heap, so no fence comes with the new one,
/// and the canceller itself wakes the second M. Fails by a causality violation when the canceller does not see that the commit
/// hook is over.
#[test]
fn a_cancelled_sleep_behind_another_finds_its_timer() {
    Model::new().preemptions(1).check("cancel_vs_second_timer", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (ctx, cancel) = Context::background().with_cancel();
        let (handle, begins) = (Handle::of(&runtime), Flag::default());
        let raises = begins.clone();
        let sleeper = runtime.go(move || {
            handle.await_poller();
            // The M in the poller finds only this goroutine, and wakes no other M: no M polls from here on.
            time::sleep(Duration::from_millis(1));
            while handle.count_ps()[1] != 1 {
                loom::thread::yield_now();
            }
            let earlier = time::after_func(LONG, || ());
            let ended = ctx.run(|| {
                raises.raise();
                loom::explore();
                time::sleep(2 * LONG);
            });
            done();
            earlier.stop();
            ended
        });
        begins.wait_on_thread();
        cancel.cancel();
        assert_eq!(sleeper.join().unwrap(), CANCELED);
    });
}

/// Reads the value when the goroutine unwinds.
struct ReadsAtItsEnd(Arc<Given>);

impl Drop for ReadsAtItsEnd {
    fn drop(&mut self) {
        // SAFETY: read after the cancel.
        assert_eq!(self.0.0.with(|given| unsafe { *given }), 1);
    }
}

/// A thread nudges an owner, whose busy M takes it without a fence, so that the owner may or may not see that its context is
/// done; the canceller nudges the owner after that. Fails by a causality violation when the owner sees the cancel, and not what
/// came before the cancel; or when the owner sleeps again, and the canceller queues it before the nudging thread is done with
/// it.
#[test]
fn an_owner_that_was_nudged_looks_while_its_context_ends() {
    Model::new().preemptions(2).check("cancel_vs_look", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let (ctx, cancel) = Context::background().with_cancel();
        let (place, given) = (Place::new(), Arc::new(Given(UnsafeCell::new(0))));
        let owner = runtime.go({
            let (place, given) = (place.clone(), Arc::clone(&given));
            move || {
                let ended = ctx.run(|| {
                    let _reads = ReadsAtItsEnd(given);
                    park_looking(|looker: Looker| place.put(looker), || false)
                });
                done();
                ended
            }
        });
        let looker = place.take();
        // This goroutine keeps the M until the owner is in the global queue. Relaxed: the flag hands nothing else on.
        let (busy, nudged) = (Flag::default(), Arc::new(AtomicBool::new(false)));
        let keeper = runtime.go({
            let (busy, nudged) = (busy.clone(), Arc::clone(&nudged));
            move || {
                busy.raise();
                while !nudged.load(Relaxed) {
                    loom::thread::yield_now();
                }
            }
        });
        busy.wait_on_thread();
        let nudger = loom::thread::spawn(move || {
            looker.nudge();
            nudged.store(true, Relaxed);
        });
        loom::explore();
        // SAFETY: written before the cancel.
        given.0.with_mut(|given| unsafe { *given = 1 });
        cancel.cancel();
        nudger.join().unwrap();
        keeper.join().unwrap();
        assert_eq!(owner.join().unwrap(), Err(ContextError::Canceled));
    });
}

/// A goroutine waits under two contexts, and the outer one ends. Fails by deadlock when the owner asks only the inner one.
#[test]
fn the_end_of_an_outer_context_is_seen() {
    Model::new().preemptions(1).check("cancel_outer", || {
        let runtime = at_rest::<1>();
        let (outer, cancel) = Context::background().with_cancel();
        let (inner, _stays) = Context::background().with_cancel();
        let waits = runtime.go(move || outer.run(|| inner.run(|| crate::sync::Event::new().wait())).is_err());
        cancel.cancel();
        assert!(waits.join().unwrap());
        done();
    });
}

#[test]
fn mutants() {
    let parks = "a_cancel_while_a_goroutine_parks_unwinds_it";
    let dozes = "a_cancel_while_a_thread_begins_to_wait_unwinds_it";
    let nudges = "a_second_nudge_while_the_owner_looks_is_not_lost";
    let timer = "a_cancelled_sleep_takes_its_timer_along";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::OuterFramesIgnored, "the_end_of_an_outer_context_is_seen"),
            (Mutant::InterruptNotSeen, parks),
            (Mutant::InterruptNotSeen, "a_cancel_above_unwinds_a_goroutine_below"),
            (Mutant::InterruptNotSeen, "a_cancelled_sleep_finds_its_timer_on_another_m"),
            (Mutant::ParkNoFence, parks),
            (Mutant::CancelNoFence, parks),
            (Mutant::CancelNoFence, "a_cancel_right_after_a_nudge_is_not_lost"),
            (Mutant::EarlyNudgeLost, parks),
            (Mutant::EarlyNudgeToSleepersOnly, "a_cancel_finds_an_owner_that_looks_before_its_hook_is_over"),
            (Mutant::NudgeWithoutAcquire, nudges),
            (Mutant::ReadyWithoutAcquire, "a_cancel_and_a_notification_end_a_wait_once"),
            (Mutant::AlarmStaysArmed, timer),
            (Mutant::ClaimLooksTimed, "a_wait_that_a_counterpart_ends_takes_its_timer_along"),
            (Mutant::NudgeIgnoresScan, "a_dump_holds_a_g_without_losing_its_cancel"),
            (Mutant::ParkAgainBlind, nudges),
            (Mutant::NudgeRelaxed, nudges),
            (Mutant::LookRelaxed, nudges),
            (Mutant::ParkAgainRelaxed, "a_dump_reads_an_owner_that_sleeps_on_only_when_it_is_saved"),
            (Mutant::WhyRelaxed, "a_thread_that_never_slept_sees_what_it_was_woken_with"),
            (Mutant::AlarmRelaxed, "a_thread_that_begins_to_sleep_is_woken"),
            (Mutant::AlarmRelaxed, "an_owner_that_looks_meets_its_counterpart"),
            (Mutant::DozeRelaxed, dozes),
            (Mutant::KnownRelaxed, "a_cancelled_sleep_behind_another_finds_its_timer"),
            (Mutant::NudgeAnyRelaxed, "an_owner_that_was_nudged_looks_while_its_context_ends"),
            (Mutant::DoneRelaxed, "an_owner_that_was_nudged_looks_while_its_context_ends"),
            (Mutant::ContextEndsRelaxed, "an_owner_that_was_nudged_looks_while_its_context_ends"),
            (Mutant::RequeueStores, "an_owner_that_comes_back_without_a_p_keeps_a_claim"),
        ],
    );
}
