//! The judge of a deadlock never says that a runtime is asleep while work is under way in it.
//!
//! The plain threads of these models are foreign ones, and the judge counts them as the kernel does: a thread that
//! has handed something to the runtime and ended does not count any more.

use super::caught;
use super::cover::{Handle, Socket};
use crate::context::Context;
use crate::go;
use crate::model::{LONG, Model, Mutant, done, fall_asleep, pass, runtime};
use crate::sync::Event;
use crate::time::after_func;
use gmp_netpoll::Readiness;
use loom::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::task::{self, Wake, Waker};
use std::time::Duration;

/// Says when the foreign thread no longer counts (`gone`), and when its work is done (`ended`): only then may the judge say
/// that the runtime is asleep.
#[derive(Clone)]
struct Witness {
    gone: Arc<AtomicBool>,
    ended: Arc<AtomicBool>,
}

impl Witness {
    fn new() -> Self {
        Witness { gone: Arc::new(AtomicBool::new(false)), ended: Arc::new(AtomicBool::new(false)) }
    }

    /// Starts a foreign thread, which does `work` and ends.
    fn foreign(&self, work: impl FnOnce() + 'static) -> loom::thread::JoinHandle<()> {
        let gone = Arc::clone(&self.gone);
        loom::thread::spawn(move || {
            work();
            gone.store(true, Release);
        })
    }

    /// Makes the judge look once. The search ends with that look.
    fn judge(&self, handle: &Handle) {
        if handle.is_asleep(|| self.gone.load(Acquire)) {
            assert!(self.ended.load(Acquire), "said to be asleep, with work to do");
        }
        done();
    }
}

/// A foreign thread submits a goroutine and ends. Fails when the judge overlooks the goroutine in the queue, the M that was
/// woken for the goroutine, or the goroutine while it runs.
#[test]
fn what_was_submitted_is_awake() {
    Model::new().check("submitted", || {
        let runtime = runtime(1, 1);
        fall_asleep::<1>(&runtime);
        let (handle, witness) = (Handle::of(&runtime), Witness::new());
        let ended = Arc::clone(&witness.ended);
        let work = handle.make(move || ended.store(true, Release));
        loom::explore();
        let submitter = witness.foreign({
            let handle = handle.clone();
            move || drop(handle.inject([work]))
        });
        witness.judge(&handle);
        submitter.join().unwrap();
    });
}

/// A foreign thread notifies a goroutine that another one joins. Fails when the judge looks at the joiner before the
/// goroutine's end, and at the goroutine after its end, and so sees neither of them awake.
#[test]
fn a_goroutine_that_ends_and_its_joiner_are_seen_together() {
    Model::new().check("joined", || {
        let runtime = runtime(1, 1);
        let (handle, witness) = (Handle::of(&runtime), Witness::new());
        let event = Arc::new(Event::new());
        let joiner = runtime.go({
            let (event, ended) = (Arc::clone(&event), Arc::clone(&witness.ended));
            move || {
                go(move || event.wait()).join().unwrap();
                ended.store(true, Release);
            }
        });
        while !handle.is_asleep(|| true) {
            loom::thread::yield_now();
        }
        loom::explore();
        let notifier = witness.foreign(move || event.notify_one());
        witness.judge(&handle);
        notifier.join().unwrap();
        joiner.join().unwrap();
    });
}

/// An event ends the poller's wait. Fails when the judge overlooks the goroutine that the M in the poller carries, which is in
/// no queue yet, or believes that a goroutine that waits for a descriptor will never be woken.
#[test]
fn what_the_poller_has_found_is_awake() {
    Model::new().check("found", || {
        let runtime = runtime(1, 1);
        let (handle, witness) = (Handle::of(&runtime), Witness::new());
        let reader = runtime.go({
            let ended = Arc::clone(&witness.ended);
            move || {
                let mut calls = 0;
                let got = Socket::new().read(8, || {
                    calls += 1;
                    if calls == 1 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(1) }
                });
                assert_eq!(got.unwrap(), 1);
                ended.store(true, Release);
            }
        });
        handle.await_poller();
        loom::explore();
        let kernel = witness.foreign({
            let handle = handle.clone();
            move || handle.post(Readiness::READABLE)
        });
        witness.judge(&handle);
        kernel.join().unwrap();
        reader.join().unwrap();
    });
}

/// A waker that readies a goroutine.
struct Rings(Arc<Event>);

impl Wake for Rings {
    fn wake(self: Arc<Self>) {
        self.0.notify_one();
    }
}

/// A goroutine polls a socket as a task does, and waits for the event that its waker notifies; the kernel ends the poller's
/// wait. Fails when the judge overlooks the waker at the descriptor, or the waker that an M has taken out there and for which
/// the M makes a goroutine that calls it.
#[test]
fn what_the_waker_of_a_task_is_to_wake_is_awake() {
    Model::new().check("found_task", || {
        let runtime = runtime(1, 1);
        let (handle, witness) = (Handle::of(&runtime), Witness::new());
        let reader = runtime.go({
            let ended = Arc::clone(&witness.ended);
            move || {
                let (socket, event, mut calls) = (Socket::new(), Arc::new(Event::new()), 0);
                let waker = Waker::from(Arc::new(Rings(Arc::clone(&event))));
                let mut poll = || {
                    socket.poll_read(&mut task::Context::from_waker(&waker), 8, || {
                        calls += 1;
                        if calls == 1 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(1) }
                    })
                };
                while poll().is_pending() {
                    event.wait();
                }
                ended.store(true, Release);
            }
        });
        handle.await_poller();
        loom::explore();
        let kernel = witness.foreign({
            let handle = handle.clone();
            move || handle.post(Readiness::READABLE)
        });
        witness.judge(&handle);
        kernel.join().unwrap();
        reader.join().unwrap();
    });
}

/// A callback is due, and the M takes it, or a monitor, which is no foreign thread. Fails when the judge overlooks the callback
/// while it is neither in its heap nor a goroutine, or while its goroutine is in no queue.
#[test]
fn what_the_monitor_serves_is_awake() {
    Model::new().preemptions(3).check("served", || {
        let runtime = runtime(1, 1);
        fall_asleep::<1>(&runtime);
        let (handle, witness) = (Handle::of(&runtime), Witness::new());
        witness.gone.store(true, Release);
        let ended = Arc::clone(&witness.ended);
        loom::explore();
        let waiter = runtime.go(move || {
            let event = Arc::new(Event::new());
            let rings = Arc::clone(&event);
            let _timer = after_func(Duration::ZERO, move || rings.notify_one());
            event.wait();
            ended.store(true, Release);
        });
        let monitor = loom::thread::spawn({
            let handle = handle.clone();
            move || handle.serve_timers()
        });
        witness.judge(&handle);
        monitor.join().unwrap();
        waiter.join().unwrap();
    });
}

/// The M waits for a callback that has become due, and the monitor makes a goroutine of it. Fails when the judge sees that the
/// monitor has served the timers, and does not see the goroutine, which is in no queue yet.
#[test]
fn what_the_monitor_has_made_of_a_callback_is_awake() {
    Model::new().check("made_by_monitor", || {
        let runtime = runtime(1, 1);
        fall_asleep::<1>(&runtime);
        let (handle, witness) = (Handle::of(&runtime), Witness::new());
        witness.gone.store(true, Release);
        let ended = Arc::clone(&witness.ended);
        let waiter = runtime.go(move || {
            let event = Arc::new(Event::new());
            let rings = Arc::clone(&event);
            let _timer = after_func(LONG, move || rings.notify_one());
            event.wait();
            ended.store(true, Release);
        });
        while !(handle.has_timers() && handle.is_poller_occupied()) {
            loom::thread::yield_now();
        }
        pass(LONG);
        let judge = loom::thread::spawn({
            let handle = handle.clone();
            move || witness.judge(&handle)
        });
        loom::explore();
        handle.serve_timers();
        judge.join().unwrap();
        waiter.join().unwrap();
    });
}

/// Fails when the judge never calls the runtime asleep: the other models could then not fail.
#[test]
fn a_runtime_at_rest_is_asleep() {
    Model::new().preemptions(1).check("rest", || {
        let runtime = runtime(1, 1);
        fall_asleep::<1>(&runtime);
        loom::explore();
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let waiter = runtime.go(move || waits.wait());
        let handle = Handle::of(&runtime);
        while !handle.is_asleep(|| true) {
            loom::thread::yield_now();
        }
        event.notify_one();
        waiter.join().unwrap();
        done();
    });
}

/// A context is cancelled while a goroutine under it waits for its scope: nothing but the scope ends that wait. Fails when the
/// judge takes the goroutine for awake from then on.
#[test]
fn a_nudged_goroutine_that_does_not_listen_is_asleep() {
    Model::new().preemptions(1).check("nudged", || {
        let runtime = runtime(1, 1);
        fall_asleep::<1>(&runtime);
        let (context, cancel) = Context::background().with_cancel();
        let event = Arc::new(Event::new());
        let waits = Arc::clone(&event);
        let parent = runtime.go(move || {
            let _ended = context.run(|| crate::scope(|scope| drop(scope.go(|| waits.wait()))));
        });
        let handle = Handle::of(&runtime);
        while !handle.is_asleep(|| true) {
            loom::thread::yield_now();
        }
        loom::explore();
        cancel.cancel();
        assert!(handle.is_asleep(|| true), "said to be awake, and nobody will run");
        event.notify_one();
        parent.join().unwrap();
        done();
    });
}

/// One goroutine sleeps until a time far away, and there is no other. Fails when the judge does not look at the
/// timers.
#[test]
fn a_goroutine_that_sleeps_until_a_time_is_awake() {
    Model::new().preemptions(1).check("sleeps", || {
        let runtime = runtime(1, 1);
        let _sleeper = runtime.go(|| crate::time::sleep(LONG));
        let handle = Handle::of(&runtime);
        while !(handle.is_poller_occupied() && handle.has_timers()) {
            loom::thread::yield_now();
        }
        loom::explore();
        assert!(!handle.is_asleep(|| true), "said to be asleep, with a timer armed");
        done();
    });
}

#[test]
fn mutants() {
    const JOINED: &str = "a_goroutine_that_ends_and_its_joiner_are_seen_together";
    const SERVED: &str = "what_the_monitor_serves_is_awake";
    const TASK: &str = "what_the_waker_of_a_task_is_to_wake_is_awake";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::DeadlockIgnoresThreads, JOINED),
            (Mutant::DeadlockUnlocksBetween, JOINED),
            (Mutant::DeadlockIgnoresGs, SERVED),
            (Mutant::DeadlockIgnoresTasks, TASK),
            (Mutant::CarriedTasksUnseen, TASK),
            (Mutant::DeadlockIgnoresServing, SERVED),
            (Mutant::ServingEndsRelaxed, "what_the_monitor_has_made_of_a_callback_is_awake"),
            (Mutant::ServingLooksRelaxed, "what_the_monitor_has_made_of_a_callback_is_awake"),
            (Mutant::NudgedSleepersAwake, "a_nudged_goroutine_that_does_not_listen_is_asleep"),
            (Mutant::DeadlockIgnoresTimers, "a_goroutine_that_sleeps_until_a_time_is_awake"),
        ],
    );
}
