//! The end of a runtime: each goroutine that parks is unwound, once, and the end comes.
//!
//! *Modelled*: the ender, Ms, threads that spawn or wake, and a dump, around goroutines that park, start others, or keep their
//! threads. *Left out*: Ms that go idle as the runtime ends (`models/submit_vs_idle.rs`), and bound goroutines
//! (`models/locked.rs`). *The mutants* take out the second look and the second snapshot, the claims of waits, the order in
//! which the ender reads Ms and goroutines, each place that the ender empties, and the orderings in between. *Failures*: a
//! missed goroutine is a deadlock, a wrong count of drops, or a report that is not clean; one that is unwound too early is a
//! causality violation.

use super::caught;
use super::cover::{Handle, Looker, Made, park_looking};
use crate::context::Context;
use crate::model::{Flag, LONG, Model, Mutant, at_rest, done, runtime};
use crate::sync::{Event, Mutex};
use crate::{Priority, Runtime, chan, scope};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// A value on a goroutine's stack; its drop writes to a cell that the model reads at the end.
struct Probe(Arc<UnsafeCell<u32>>);

// SAFETY: the drop comes before the end of the runtime; loom checks that it does.
unsafe impl Send for Probe {}
// SAFETY: a shared reference gives no access to the value.
unsafe impl Sync for Probe {}

impl Drop for Probe {
    fn drop(&mut self) {
        // SAFETY: the drop comes before the end of the runtime; loom checks that it does.
        self.0.with_mut(|drops| unsafe { *drops += 1 });
    }
}

/// Counts the drops of one value.
struct Drops(Arc<UnsafeCell<u32>>);

impl Drops {
    fn new() -> (Self, Probe) {
        let drops = Arc::new(UnsafeCell::new(0));
        (Drops(Arc::clone(&drops)), Probe(drops))
    }

    /// SAFETY: the runtime has ended.
    fn is_one(&self) -> bool {
        // SAFETY: by this function's contract.
        self.0.with(|drops| unsafe { *drops }) == 1
    }
}

#[track_caller]
fn ends_clean(runtime: Runtime) {
    let report = runtime.shutdown(SECOND);
    assert!(report.is_clean(), "{report:?}");
}

/// A goroutine parks before, while, or after the end begins. Fails by deadlock when a park is missed between the flag and
/// the sweeps.
#[test]
fn a_goroutine_that_parks_while_the_end_begins_is_unwound() {
    Model::new().preemptions(2).check("shutdown_vs_park", || {
        let runtime = at_rest::<1>();
        let (drops, probe) = Drops::new();
        let parks = runtime.go(move || {
            let _probe = probe;
            Event::new().wait();
        });
        ends_clean(runtime);
        assert!(drops.is_one());
        assert!(parks.join().unwrap_err().is_shutdown());
    });
}

/// A thread wakes the goroutine as the end begins. Fails by deadlock when both the notification and the interrupt are lost, or
/// by a second drop.
#[test]
fn a_goroutine_that_is_woken_while_the_end_begins_ends_once() {
    Model::new().preemptions(2).check("shutdown_vs_ready", || {
        let runtime = runtime(1, 1);
        let (drops, probe) = Drops::new();
        let (event, begins) = (std::sync::Arc::new(Event::new()), Flag::default());
        let waits = runtime.go({
            let (event, begins) = (std::sync::Arc::clone(&event), begins.clone());
            move || {
                let _probe = probe;
                begins.raise();
                event.wait();
            }
        });
        begins.wait_on_thread();
        loom::explore();
        let notifier = loom::thread::spawn({
            let event = std::sync::Arc::clone(&event);
            move || event.notify_one()
        });
        ends_clean(runtime);
        notifier.join().unwrap();
        assert!(drops.is_one());
        if waits.join().is_err() {
            // The notification is there for the next waiter.
            event.wait();
        }
    });
}

/// The end begins while a goroutine's commit hook runs, and another M is there to run that goroutine. Fails when the
/// goroutine is unwound before the hook is over.
#[test]
fn a_goroutine_is_unwound_after_its_commit_hook() {
    Model::new().preemptions(1).check("shutdown_vs_hook", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (inside, go_on) = (Flag::default(), Flag::default());
        let [over, early] = [(); 2].map(|()| std::sync::Arc::new(AtomicBool::new(false)));
        let parks = runtime.go({
            let (inside, go_on) = (inside.clone(), go_on.clone());
            let (over, early) = (std::sync::Arc::clone(&over), std::sync::Arc::clone(&early));
            move || {
                let _looks = Looks(std::sync::Arc::clone(&over), early);
                // The hook owns all that it uses: in a mutant the goroutine is gone before the hook is over.
                let hook = move |_: Looker| {
                    inside.raise();
                    go_on.wait_on_thread();
                    over.store(true, SeqCst);
                };
                park_looking(hook, || false);
            }
        });
        inside.wait_on_thread();
        loom::explore();
        let opener = loom::thread::spawn(move || go_on.raise());
        ends_clean(runtime);
        opener.join().unwrap();
        assert!(over.load(SeqCst) && !early.load(SeqCst), "unwound while its hook runs");
        assert!(parks.join().unwrap_err().is_shutdown());
    });
}

/// The end begins while a goroutine is queued behind another one; the goroutine parks as the ender looks. Fails by a causality
/// violation when the ender interrupts the goroutine before its hook is over, because the ender read too early, or too little,
/// which goroutine the M has at hand.
#[test]
fn a_goroutine_that_parks_as_the_end_looks_has_run_its_hook() {
    Model::new().preemptions(2).weighing_single_writers().check("shutdown_vs_late_hook", || {
        let runtime = runtime(1, 1);
        let handle = Handle::of(&runtime);
        let (there, begins) = (Flag::default(), Flag::default());
        let parks = runtime.go({
            let (there, begins) = (there.clone(), begins.clone());
            move || {
                let before = handle.make(move || {
                    there.raise();
                    begins.wait_on_thread();
                });
                handle.queue_in_silence([before]);
                crate::yield_now();
                park_looking(drop, || false);
            }
        });
        there.wait_on_thread();
        loom::explore();
        begins.raise();
        ends_clean(runtime);
        assert!(parks.join().unwrap_err().is_shutdown());
    });
}

/// Notes, when it is dropped, whether the hook was over.
struct Looks(std::sync::Arc<AtomicBool>, std::sync::Arc<AtomicBool>);

impl Drop for Looks {
    fn drop(&mut self) {
        self.1.store(!self.0.load(SeqCst), SeqCst);
        done();
    }
}

/// One goroutine wakes another as the end begins. Fails by deadlock, or by a value that is not dropped.
#[test]
fn two_goroutines_that_wake_each_other_are_unwound() {
    Model::new().preemptions(1).check("shutdown_vs_two", || {
        let runtime = runtime(1, 1);
        let ((first, one), (second, two)) = (Drops::new(), Drops::new());
        let (tx, rx) = chan::bounded(0);
        let receives = runtime.go(move || {
            let _probe = one;
            while rx.recv().is_ok() {}
            Event::new().wait();
        });
        loom::explore();
        let sends = runtime.go(move || {
            let _probe = two;
            let _sent = tx.send(1);
            Event::new().wait();
        });
        ends_clean(runtime);
        assert!(first.is_one() && second.is_one());
        assert!(receives.join().unwrap_err().is_shutdown());
        assert!(sends.join().unwrap_err().is_shutdown());
    });
}

/// Fails by a causality violation when the parent's frame is unwound before the child is done with it.
#[test]
fn a_child_is_unwound_before_its_parent() {
    Model::new().preemptions(1).check("shutdown_vs_scope", || {
        let runtime = runtime(1, 1);
        let (drops, probe) = Drops::new();
        let begins = Flag::default();
        let parent = runtime.go({
            let begins = begins.clone();
            move || {
                let probe = probe;
                scope(|s| {
                    s.go(|| {
                        let _borrowed = &probe;
                        begins.raise();
                        Event::new().wait();
                    });
                });
            }
        });
        begins.wait_on_thread();
        loom::explore();
        ends_clean(runtime);
        assert!(drops.is_one());
        assert!(parent.join().unwrap_err().is_shutdown());
    });
}

/// Fails by deadlock when a dump's hold swallows the interrupt, by a causality violation when the dump reads a stack
/// that is in use.
#[test]
fn a_dump_holds_a_g_that_is_called_in() {
    Model::new().preemptions(2).check("shutdown_vs_dump", || {
        let runtime = runtime(1, 1);
        let (drops, probe) = Drops::new();
        let begins = Flag::default();
        let parks = runtime.go({
            let begins = begins.clone();
            move || {
                let _probe = probe;
                begins.raise();
                Event::new().wait();
            }
        });
        begins.wait_on_thread();
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || drop(handle.dump())
        });
        loom::explore();
        ends_clean(runtime);
        dumper.join().unwrap();
        assert!(drops.is_one());
        assert!(parks.join().unwrap_err().is_shutdown());
    });
}

/// A goroutine starts another as the end begins. Fails when the other's closure is dropped twice or not at all.
#[test]
fn what_is_started_while_the_end_begins_is_dropped_or_unwound() {
    Model::new().preemptions(1).check("shutdown_vs_go", || {
        let runtime = runtime(1, 1);
        let (drops, probe) = Drops::new();
        loom::explore();
        let starts = runtime.go(move || {
            let begun = crate::go(move || {
                let _probe = probe;
                Event::new().wait();
            });
            drop(begun);
        });
        ends_clean(runtime);
        assert!(drops.is_one());
        drop(starts.join());
    });
}

/// Parks once, in its drop, if the drop comes before the notification. Notes when the drop runs on no goroutine: a
/// panic would be lost there.
struct ParksWhenDropped {
    event: std::sync::Arc<Event>,
    astray: std::sync::Arc<AtomicBool>,
    _probe: Probe,
}

impl Drop for ParksWhenDropped {
    fn drop(&mut self) {
        if crate::current().is_none() {
            self.astray.store(true, SeqCst);
        }
        self.event.wait();
    }
}

/// Before it ends, a goroutine starts another one, which parks while its closure is dropped; a thread wakes the second one.
/// Fails when a goroutine is left behind although there was time, or when the ender drops a closure.
fn starts_one_more(name: &str, start: impl Fn(ParksWhenDropped) + Copy + Send + Sync + 'static) {
    Model::new().preemptions(1).check(name, move || {
        let runtime = runtime(1, 1);
        let (drops, probe) = Drops::new();
        let event = std::sync::Arc::new(Event::new());
        let astray = std::sync::Arc::new(AtomicBool::new(false));
        let begins = Flag::default();
        let starts = runtime.go({
            let (event, astray) = (std::sync::Arc::clone(&event), std::sync::Arc::clone(&astray));
            let begins = begins.clone();
            move || {
                let parks = ParksWhenDropped { event, astray, _probe: probe };
                loom::explore();
                begins.raise();
                start(parks);
            }
        });
        begins.wait_on_thread();
        let notifier = loom::thread::spawn(move || event.notify_one());
        ends_clean(runtime);
        notifier.join().unwrap();
        assert!(drops.is_one());
        assert!(!astray.load(SeqCst), "dropped on no goroutine");
        drop(starts.join());
    });
}

/// The parent ends before the ender has looked at it.
#[test]
fn a_child_of_a_goroutine_that_ends_is_waited_for() {
    starts_one_more("shutdown_vs_last_go", |parks| drop(crate::go(move || drop(parks))));
}

/// The parent waits for its child when the ender looks at the parent.
#[test]
fn a_child_of_a_goroutine_that_waits_for_it_is_waited_for() {
    starts_one_more("shutdown_vs_last_scope", |parks| {
        scope(|s| drop(s.go(move || drop(parks))));
    });
}

/// Notes when its drop runs on the ender's thread.
struct DropsBeside {
    ender: loom::thread::ThreadId,
    astray: std::sync::Arc<AtomicBool>,
}

impl Drop for DropsBeside {
    fn drop(&mut self) {
        if loom::thread::current().id() == self.ender {
            self.astray.store(true, SeqCst);
        }
    }
}

/// A plain thread starts a goroutine by a handle as the end begins. Fails when the ender drops the closure, which would escape
/// the time limit; by deadlock when the ender waits for a goroutine that is gone; or when the report counts a goroutine that
/// the thread drops.
#[test]
fn what_a_thread_starts_while_the_end_begins_is_not_dropped_by_the_ender() {
    Model::new().preemptions_by_default(1).check("shutdown_vs_handle", || {
        let runtime = runtime(1, 1);
        let (handle, ender) = (runtime.handle(), loom::thread::current().id());
        let astray = std::sync::Arc::new(AtomicBool::new(false));
        let drops = DropsBeside { ender, astray: std::sync::Arc::clone(&astray) };
        Handle::of(&runtime).await_poller();
        loom::explore();
        let starter = loom::thread::spawn(move || drop(handle.go(move || drop(drops))));
        let report = runtime.shutdown(SECOND);
        assert!(report.is_clean(), "{report:?}");
        starter.join().unwrap();
        assert!(!astray.load(SeqCst), "dropped by the ender");
    });
}

/// The child ends by itself as the end begins, and wakes its parent. Fails when the parent is left behind: the ender saw the
/// parent asleep with others, and then saw that the others had ended.
#[test]
fn a_parent_woken_late_is_waited_for() {
    Model::new().preemptions(2).check("shutdown_vs_last_child", || {
        let runtime = runtime(1, 1);
        let (drops, probe) = Drops::new();
        let (begins, go_on) = (Flag::default(), Flag::default());
        let parent = runtime.go({
            let (begins, go_on) = (begins.clone(), go_on.clone());
            move || {
                let probe = probe;
                scope(|s| {
                    s.go(|| {
                        let _borrowed = &probe;
                        begins.raise();
                        go_on.wait_on_thread();
                    });
                });
            }
        });
        begins.wait_on_thread();
        loom::explore();
        go_on.raise();
        ends_clean(runtime);
        assert!(drops.is_one());
        drop(parent.join());
    });
}

/// A goroutine that was unwound, and has caught the unwinding, starts another one, which is dropped at once. Fails by an
/// assertion of the word, or by a causality violation, when the new G goes back while a dump reads it.
#[test]
fn a_dump_holds_a_g_that_is_dropped_unrun() {
    Model::new().preemptions(2).check("shutdown_vs_dump_of_unrun", || {
        let runtime = runtime(1, 1);
        let begins = Flag::default();
        let starts = runtime.go({
            let begins = begins.clone();
            move || {
                begins.raise();
                let caught = catch_unwind(|| Event::new().wait());
                assert!(caught.is_err());
                drop(crate::go(|| ()));
            }
        });
        begins.wait_on_thread();
        let dumper = loom::thread::spawn({
            let handle = Handle::of(&runtime);
            move || drop(handle.dump())
        });
        loom::explore();
        ends_clean(runtime);
        dumper.join().unwrap();
        assert!(starts.join().is_ok());
    });
}

/// A message is sent when a runtime has left its receivers. Fails by deadlock when the message is handed to one of
/// them.
#[test]
fn a_message_after_the_end_goes_to_no_left_receiver() {
    Model::new().preemptions(1).check("left_receiver", || {
        let runtime = runtime(1, 1);
        let (tx, rx) = chan::bounded(1);
        let left = runtime.go({
            let rx = rx.clone();
            move || rx.recv().is_ok()
        });
        let handle = Handle::of(&runtime);
        handle.await_poller();
        loom::explore();
        assert_eq!(super::cover::leave(runtime, SECOND).goroutines_left(), 1);
        tx.send(1).unwrap();
        assert_eq!(rx.recv().unwrap(), 1);
        assert!(left.join().unwrap_err().is_shutdown());
        done();
    });
}

/// As `a_message_after_the_end_goes_to_no_left_receiver`, with a receiver that was nudged, and is queued in the
/// middle of its wait.
#[test]
fn a_message_after_the_end_goes_to_no_queued_receiver() {
    Model::new().preemptions(1).check("left_in_the_queue", || {
        let runtime = runtime(1, 1);
        let (tx, rx) = chan::bounded(1);
        let (ctx, cancel) = Context::background().with_cancel();
        let left = runtime.go({
            let rx = rx.clone();
            move || ctx.run(|| rx.recv()).is_ok()
        });
        let handle = Handle::of(&runtime);
        handle.await_poller();
        let (at_work, over) = (Flag::default(), Flag::default());
        let _busy = runtime.go({
            let (at_work, over) = (at_work.clone(), over.clone());
            move || {
                at_work.raise();
                over.wait_on_thread();
            }
        });
        at_work.wait_on_thread();
        cancel.cancel();
        let ender = loom::thread::spawn(move || super::cover::leave(runtime, SECOND));
        assert!(left.join().unwrap_err().is_shutdown());
        loom::explore();
        tx.send(1).unwrap();
        assert_eq!(rx.recv().unwrap(), 1);
        done();
        over.raise();
        ender.join().unwrap();
    });
}

/// A goroutine gives its P away, with another goroutine in the P's queue, as the runtime ends. Fails by an assertion
/// when the P is idle and keeps its queue, or when the joiner is not told.
#[test]
fn what_stands_in_a_p_that_is_given_away_at_the_end_is_left() {
    Model::new().preemptions(1).check("hand_off_at_the_end", || {
        let runtime = runtime(1, 1);
        let (queued, go_on) = (Flag::default(), Flag::default());
        let gives = runtime.go({
            let (queued, go_on) = (queued.clone(), go_on.clone());
            move || {
                let _other = crate::go(|| ());
                queued.raise();
                go_on.wait_on_thread();
                crate::blocking(|| ());
                crate::yield_now();
            }
        });
        queued.wait_on_thread();
        loom::explore();
        go_on.raise();
        assert_eq!(super::cover::leave(runtime, SECOND).threads_left(), 0);
        drop(gives.join());
        done();
    });
}

/// A goroutine starts another as its runtime leaves its goroutines behind, and then keeps its thread. Fails by deadlock when
/// the joiner is not told: the other stands in a queue at which no thread looks again.
#[test]
fn what_is_started_as_the_runtime_is_left_is_told_to_its_joiner() {
    Model::new().preemptions(1).check("left_while_started", || {
        let runtime = runtime(1, 1);
        let [begins, go_on, started, over] = [(); 4].map(|()| Flag::default());
        let (tx, rx) = std::sync::mpsc::channel();
        let starts = runtime.go({
            let [begins, go_on, started, over] = [&begins, &go_on, &started, &over].map(Flag::clone);
            move || {
                begins.raise();
                go_on.wait_on_thread();
                tx.send(crate::go(|| ())).unwrap();
                started.raise();
                over.wait_on_thread();
            }
        });
        begins.wait_on_thread();
        loom::explore();
        go_on.raise();
        assert_eq!(super::cover::leave(runtime, Duration::ZERO).threads_left(), 1);
        started.wait_on_thread();
        assert!(rx.try_recv().unwrap().join().unwrap_err().is_shutdown());
        done();
        over.raise();
        drop(starts);
    });
}

/// A goroutine starts another as its runtime leaves its goroutines behind, or when the ender has gone, and then keeps its
/// thread. Fails by the count when the other's closure is not dropped: no other thread drops it.
#[test]
fn what_is_started_when_the_ender_has_gone_is_dropped() {
    Model::new().preemptions(1).check("started_late", || {
        let runtime = runtime(1, 1);
        let [begins, go_on, started, over] = [(); 4].map(|()| Flag::default());
        let value = std::sync::Arc::new(());
        let held = std::sync::Arc::clone(&value);
        let starts = runtime.go({
            let [begins, go_on, started, over] = [&begins, &go_on, &started, &over].map(Flag::clone);
            move || {
                begins.raise();
                go_on.wait_on_thread();
                drop(crate::go(move || drop(held)));
                started.raise();
                over.wait_on_thread();
            }
        });
        begins.wait_on_thread();
        loom::explore();
        go_on.raise();
        assert_eq!(super::cover::leave(runtime, Duration::ZERO).threads_left(), 1);
        started.wait_on_thread();
        assert_eq!(std::sync::Arc::strong_count(&value), 1, "the closure was not dropped");
        done();
        over.raise();
        drop(starts);
    });
}

/// A goroutine queues another by `queue`, and keeps its thread, as the runtime is left. Fails by the count when the closure of
/// the other is not dropped.
fn is_dropped_by_the_end(name: &str, queue: fn(&Handle, Made)) {
    Model::new().preemptions(1).check(name, move || {
        let runtime = runtime(1, 1);
        let handle = Handle::of(&runtime);
        let (queued, over) = (Flag::default(), Flag::default());
        let value = std::sync::Arc::new(());
        let held = std::sync::Arc::clone(&value);
        let queues = runtime.go({
            let (queued, over) = (queued.clone(), over.clone());
            move || {
                queue(&handle, handle.make(move || drop(held)));
                queued.raise();
                over.wait_on_thread();
            }
        });
        queued.wait_on_thread();
        loom::explore();
        super::cover::leave(runtime, Duration::ZERO);
        assert_eq!(std::sync::Arc::strong_count(&value), 1, "the closure was not dropped");
        done();
        over.raise();
        drop(queues);
    });
}

#[test]
fn a_goroutine_of_a_class_is_dropped_by_the_end() {
    let queue = |handle: &Handle, made| handle.queue_of_class_in_silence(Priority::Low, [made]);
    is_dropped_by_the_end("class_queue_vs_end", queue);
}

#[test]
fn a_goroutine_in_a_batch_is_dropped_by_the_end() {
    let queue = |handle: &Handle, made| handle.fill_batch_in_silence(Priority::Low, [made]);
    is_dropped_by_the_end("batch_vs_end", queue);
}

#[test]
fn a_goroutine_in_a_mailbox_is_dropped_by_the_end() {
    is_dropped_by_the_end("mail_vs_end", |handle, made| drop(handle.mail(0, made)));
}

/// A goroutine parks with a limit as its runtime is left, beside one in its P's queue that was notified. Fails by the check of
/// the lock order when that one is set aside under the lock of the mutex's queue: its hook takes the lock of the event's queue.
#[test]
fn a_park_with_a_limit_sets_no_goroutine_aside() {
    Model::new().preemptions(2).check("left_beside_a_limit", || {
        let runtime = runtime(1, 1);
        let queued = Flag::default();
        let (lock, event) = (std::sync::Arc::new(Mutex::new(())), std::sync::Arc::new(Event::new()));
        let _held = lock.lock();
        let (theirs, notified) = (std::sync::Arc::clone(&lock), std::sync::Arc::clone(&event));
        drop(runtime.go(move || notified.wait()));
        drop(runtime.go({
            let queued = queued.clone();
            move || {
                event.notify_one();
                loom::explore();
                queued.raise();
                drop(theirs.try_lock_for(LONG));
            }
        }));
        queued.wait_on_thread();
        assert_eq!(super::cover::leave(runtime, SECOND).threads_left(), 0);
        done();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::LiveLooksRelaxed, "a_parent_woken_late_is_waited_for"),
            (Mutant::ShutdownTrustsOneLook, "a_parent_woken_late_is_waited_for"),
            (Mutant::ShutdownTrustsOneSnapshot, "a_child_of_a_goroutine_that_ends_is_waited_for"),
            (Mutant::ShutdownTrustsOneSnapshot, "a_child_of_a_goroutine_that_waits_for_it_is_waited_for"),
            (Mutant::SpawnLooksOnce, "what_a_thread_starts_while_the_end_begins_is_not_dropped_by_the_ender"),
            (Mutant::UnrunIsCounted, "what_a_thread_starts_while_the_end_begins_is_not_dropped_by_the_ender"),
            (Mutant::UnrunNotTold, "what_a_thread_starts_while_the_end_begins_is_not_dropped_by_the_ender"),
            (Mutant::SubmitLeavesTheEnd, "what_is_started_as_the_runtime_is_left_is_told_to_its_joiner"),
            (Mutant::DiscardIgnoresScan, "a_dump_holds_a_g_that_is_dropped_unrun"),
            (Mutant::DiscardWithoutAcquire, "a_dump_holds_a_g_that_is_dropped_unrun"),
            (Mutant::ShutdownNotTold, "a_goroutine_that_parks_while_the_end_begins_is_unwound"),
            (Mutant::ShutdownNotTold, "two_goroutines_that_wake_each_other_are_unwound"),
            (Mutant::ShutdownNotTold, "a_child_is_unwound_before_its_parent"),
            (Mutant::ShutdownNotTold, "a_dump_holds_a_g_that_is_called_in"),
            (Mutant::ShutdownNotTold, "what_is_started_while_the_end_begins_is_dropped_or_unwound"),
            (Mutant::ShutdownReadsHandsFirst, "a_goroutine_that_parks_as_the_end_looks_has_run_its_hook"),
            (Mutant::PeekAfterRelaxed, "a_goroutine_that_parks_as_the_end_looks_has_run_its_hook"),
            (Mutant::SetAfterRelaxed, "a_goroutine_that_parks_as_the_end_looks_has_run_its_hook"),
            (Mutant::ShutdownCallsEarly, "a_goroutine_is_unwound_after_its_commit_hook"),
            (Mutant::ShutdownCallsBlindly, "a_goroutine_that_is_woken_while_the_end_begins_ends_once"),
            (Mutant::SleeperMarksIgnored, "a_goroutine_that_is_woken_while_the_end_begins_ends_once"),
            (Mutant::SeizeLeavesOpen, "a_message_after_the_end_goes_to_no_left_receiver"),
            (Mutant::SeizeQueuedLeavesOpen, "a_message_after_the_end_goes_to_no_queued_receiver"),
            (
                Mutant::HandoffpAtTheEndKeepsTheQueue,
                "what_stands_in_a_p_that_is_given_away_at_the_end_is_left",
            ),
            (Mutant::DoingRelaxed, "a_child_of_a_goroutine_that_waits_for_it_is_waited_for"),
            (Mutant::ArmSetsAside, "a_park_with_a_limit_sets_no_goroutine_aside"),
            (Mutant::StopForgetsTheMail, "a_goroutine_in_a_mailbox_is_dropped_by_the_end"),
            (Mutant::StopForgetsTheClasses, "a_goroutine_of_a_class_is_dropped_by_the_end"),
            (Mutant::StopForgetsTheBatches, "a_goroutine_in_a_batch_is_dropped_by_the_end"),
            (Mutant::LateSpawnKeepsItsClosure, "what_is_started_when_the_ender_has_gone_is_dropped"),
        ],
    );
}
