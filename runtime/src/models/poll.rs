//! The poller: new work and an earlier timer break its wait, a break that another M has swallowed is passed on, and timers are
//! served while no M waits in the poller.
//!
//! *Modelled*: an M that goes into, waits in, or leaves the poller, busy Ms that arm timers, submit, or make visits, and a look
//! of the monitor. *Left out*: the slots of descriptors (`models/polldesc.rs`, `models/socket.rs`), and callbacks that threads
//! set (`models/timer.rs`). *The mutants* take out IdleFence and TimerFence, the breaks of the wait, and each hand-over of a
//! break, a timer or a found goroutine. *Failures*: the model's clock moves only with the poller, so a wait that lasts beyond a
//! timer is a deadlock.

use super::caught;
use super::cover::{Handle, Socket};
use super::visits::have_no_m_poll;
use crate::go;
use crate::model::{Flag, LONG, Model, Mutant, Parts, done, fall_asleep, pass, runtime, together};
use crate::time::{after_func, sleep};
use gmp_netpoll::Readiness;
use std::time::Duration;

/// One M goes into the poller while a goroutine of the other M begins to sleep and leaves that M to a goroutine that
/// stays until the sleeper runs again. The clock moves only with the poller: fails by deadlock when the poller's wait
/// lasts beyond the timer.
#[test]
fn a_timer_is_seen_by_the_m_that_goes_into_the_poller() {
    Model::new().preemptions_by_default(1).check("timer_vs_poller", || {
        let runtime = runtime(2, 2);
        let [sleeper, _goes_idle] = together(
            &runtime,
            [
                Box::new(|| {
                    let awake = Flag::default();
                    let waits = awake.clone();
                    drop(go(move || waits.wait_on_thread()));
                    sleep(Duration::from_millis(1));
                    awake.raise();
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        sleeper.join().unwrap();
    });
}

/// As `a_timer_is_seen_by_the_m_that_goes_into_the_poller`, with no other goroutine to run: whichever of the two Ms
/// waits in the poller, its wait ends with the timer.
#[test]
fn a_timer_ends_the_wait_of_the_m_that_polls() {
    Model::new().preemptions(1).check("timer_vs_two_pollers", || {
        let runtime = runtime(2, 2);
        let [sleeper, _goes_idle] = together(
            &runtime,
            [
                Box::new(|| {
                    sleep(Duration::from_millis(1));
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        sleeper.join().unwrap();
    });
}

/// The only M at work has come back from the poller, the other M sleeps on its note, and a goroutine begins to sleep beside
/// one that keeps the M until the sleeper runs again. Fails by deadlock when no M is sent to the poller.
#[test]
fn a_goroutine_that_sleeps_beside_others_sends_an_m_to_the_poller() {
    Model::new().preemptions(1).check("sleep_beside_others", || {
        let runtime = runtime(2, 2);
        fall_asleep::<2>(&runtime);
        let handle = Handle::of(&runtime);
        let sleeper = runtime.go(move || {
            let awake = Flag::default();
            let waits = awake.clone();
            let other = handle.make(move || waits.wait_on_thread());
            have_no_m_poll(&handle);
            loom::explore();
            handle.queue_in_silence([other]);
            sleep(Duration::from_millis(1));
            awake.raise();
            done();
        });
        sleeper.join().unwrap();
    });
}

/// One M waits in the poller until a time far away when another goroutine begins a short sleep.
#[test]
fn an_earlier_timer_breaks_the_wait() {
    Model::new().check("earlier_timer", || {
        let runtime = runtime(2, 2);
        drop(runtime.go(|| sleep(4 * LONG)));
        fall_asleep::<2>(&runtime);
        runtime
            .go(|| {
                loom::explore();
                sleep(Duration::from_millis(1));
                done();
            })
            .join()
            .unwrap();
    });
}

/// A goroutine polls, as a busy M does now and then, while the other M blocks in the poller and a submission breaks
/// that wait. Fails by deadlock when the polling M keeps the break to itself: its goroutine stays until the submitted
/// one has run.
#[test]
fn a_swallowed_break_is_passed_on() {
    Model::new().check("swallowed_break", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let [looks, _goes_idle] = together(
            &runtime,
            [
                Box::new(move || {
                    let ran = Flag::default();
                    let raised = ran.clone();
                    drop(go(move || raised.raise()));
                    handle.poll_now();
                    ran.wait_on_thread();
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        looks.join().unwrap();
    });
}

/// A goroutine gives the only P away, an event comes for the M that then waits in the poller, and the first M takes the P back
/// before that M can. Fails by deadlock when the second M drops the goroutine that it has found.
#[test]
fn what_the_poller_found_is_kept_when_no_p_is_idle() {
    Model::new().check("poll_without_p", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let reader = runtime.go(|| {
            let mut calls = 0;
            let got = Socket::new().read(8, || {
                calls += 1;
                if calls == 1 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(1) }
            });
            assert_eq!(got.unwrap(), 1);
            done();
        });
        let poster = runtime.go(move || {
            loom::explore();
            crate::blocking(|| handle.post(Readiness::READABLE));
        });
        poster.join().unwrap();
        reader.join().unwrap();
    });
}

/// A submission breaks the wait of the only M, and summons it, while an event ends that wait. Fails by deadlock when the event
/// is lost, or when the M that comes back by the event does not hear of the summons: the next submitter believes that this M
/// looks for work.
#[test]
fn an_assignment_and_an_event_at_once_both_arrive() {
    Model::new().preemptions_by_default(1).check("assignment_vs_event", || {
        let runtime = runtime(1, 1);
        let handle = Handle::of(&runtime);
        let reader = runtime.go(|| {
            let mut calls = 0;
            let got = Socket::new().read(8, || {
                calls += 1;
                if calls == 1 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(1) }
            });
            assert_eq!(got.unwrap(), 1);
        });
        handle.await_poller();
        let work = handle.make(|| ());
        let poster = loom::thread::spawn({
            let handle = handle.clone();
            move || handle.post(Readiness::READABLE)
        });
        loom::explore();
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
        reader.join().unwrap();
        runtime.go(done).join().unwrap();
        poster.join().unwrap();
    });
}

/// Two goroutines, on an M each, go to sleep. The first to wake has a P, and goes on with `then`; no M waits in the poller
/// while the time of the second passes. Returns the handle of the second, which is late.
fn one_wakes_beside_a_late_one(
    runtime: &crate::Runtime,
    then: impl FnOnce(&Flag) + Send + 'static,
) -> crate::JoinHandle<()> {
    let awake = Flag::default();
    let raised = awake.clone();
    let [late, early] = together(
        runtime,
        [
            Box::new(move || {
                sleep(Duration::from_millis(5));
                raised.raise();
                done();
            }),
            Box::new(move || {
                sleep(Duration::from_millis(1));
                pass(Duration::from_millis(10));
                then(&awake);
            }),
        ],
    );
    drop(early);
    late
}

/// The only busy M makes its visits, and so no M is sent to the poller in its place. Fails when this M does not serve a
/// timer in the heap of an idle P.
#[test]
fn a_busy_m_serves_the_timers_of_idle_ps() {
    Model::new().preemptions(1).check("visit_serves_timers", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let late = one_wakes_beside_a_late_one(&runtime, move |awake| {
            handle.visit_global_queue();
            // A goroutine that the M found goes before this one, unless another M has it already.
            crate::yield_now();
            awake.wait_on_thread();
        });
        late.join().unwrap();
    });
}

/// The only busy M keeps to one goroutine, and the monitor looks once. Fails by deadlock when the monitor sends no M for a
/// timer in the heap of an idle P.
#[test]
fn the_monitor_sends_an_m_to_an_unattended_poller() {
    Model::new().preemptions(1).check("monitor_sends", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let keeps = Flag::default();
        let kept = keeps.clone();
        let late = one_wakes_beside_a_late_one(&runtime, move |awake| {
            kept.raise();
            awake.wait_on_thread();
        });
        keeps.wait_on_thread();
        handle.monitor_looks(Duration::from_millis(2));
        late.join().unwrap();
    });
}

/// Two callbacks become due while the M that holds their heap is at work, and each keeps an M until the other runs. Fails by
/// deadlock when that M, which finds both, runs one of them and wakes no M for the other.
#[test]
fn two_that_an_m_finds_due_run_at_once() {
    Model::new().preemptions(0).check("two_due", || {
        let runtime = runtime(2, 2);
        fall_asleep::<2>(&runtime);
        let (handle, parts) = (Handle::of(&runtime), Parts::of(2));
        let flags = [Flag::default(), Flag::default()];
        let at_work = runtime.go(move || {
            for own in [0, 1] {
                let (parts, flags) = (parts.clone(), flags.clone());
                drop(after_func(LONG, move || {
                    flags[own].raise();
                    flags[1 - own].wait_on_thread();
                    parts.held();
                }));
            }
            handle.await_poller();
            pass(LONG);
            loom::explore();
        });
        at_work.join().unwrap();
    });
}

/// The only M at work has come back from the poller, the other sleeps on its note, and a goroutine sets a callback and keeps
/// the M until the callback has run. Fails by deadlock when no M is sent to the poller.
#[test]
fn a_callback_that_is_set_beside_others_sends_an_m_to_the_poller() {
    Model::new().preemptions(1).check("call_beside_others", || {
        let runtime = runtime(2, 2);
        fall_asleep::<2>(&runtime);
        let handle = Handle::of(&runtime);
        let sets = runtime.go(move || {
            let called = Flag::default();
            let calls = called.clone();
            have_no_m_poll(&handle);
            loom::explore();
            let _timer = after_func(Duration::from_millis(1), move || calls.raise());
            called.wait_on_thread();
            done();
        });
        sets.join().unwrap();
    });
}

#[test]
fn mutants() {
    const SEEN: &str = "a_timer_is_seen_by_the_m_that_goes_into_the_poller";
    const ANYBODY: &str = "a_timer_ends_the_wait_of_the_m_that_polls";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::CallSendsNobody, "a_callback_that_is_set_beside_others_sends_an_m_to_the_poller"),
            (Mutant::TimerNoBreak, ANYBODY),
            (Mutant::TimerNoFence, ANYBODY),
            (Mutant::IdleNoFence, SEEN),
            (Mutant::PollerSkipsTimers, SEEN),
            (Mutant::PollerSaysNothing, ANYBODY),
            (Mutant::PollerSaysNothing, "an_earlier_timer_breaks_the_wait"),
            (Mutant::PollerRunsNoTimers, ANYBODY),
            (Mutant::ArmSendsNobody, "a_goroutine_that_sleeps_beside_others_sends_an_m_to_the_poller"),
            (Mutant::VisitLeavesTimers, "a_busy_m_serves_the_timers_of_idle_ps"),
            (Mutant::MonitorSendsNobody, "the_monitor_sends_an_m_to_an_unattended_poller"),
            (Mutant::SwallowedBreakKept, "a_swallowed_break_is_passed_on"),
            (Mutant::AssignmentOnlyByBreak, "an_assignment_and_an_event_at_once_both_arrive"),
            (Mutant::PollResultsDropped, "what_the_poller_found_is_kept_when_no_p_is_idle"),
            (Mutant::FoundWakesNobody, "two_that_an_m_finds_due_run_at_once"),
            (Mutant::AlarmNotedLate, "a_timer_is_seen_by_the_m_that_goes_into_the_poller"),
        ],
    );
}
