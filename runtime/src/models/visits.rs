//! Visits, and sleepers and arrivals that go first: an M is woken for the goroutine that has to wait.

use super::caught;
use super::cover::{Handle, Socket};
use crate::model::{Flag, LONG, Model, Mutant, at_rest, done, pass};
use crate::time::{after_func, sleep};
use crate::{Priority, yield_now};
use gmp_netpoll::Readiness;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Makes the caller's M come from the poller, and the other M sleep on its note.
pub(super) fn have_no_m_poll(handle: &Handle) {
    handle.await_poller();
    // The M in the poller finds only this goroutine, and wakes no other M.
    sleep(Duration::from_millis(1));
    while handle.count_ps()[1] != 1 {
        loom::thread::yield_now();
    }
}

/// Does what `read_then` does, and then raises the flag.
fn read_then_raise(raises: &Flag) {
    read_then(|| raises.raise());
}

/// Reads by two system calls: after the first one the goroutine waits in the poller. Then calls `then`.
fn read_then(then: impl FnOnce()) {
    let mut calls = 0;
    let got = Socket::new().read(8, || {
        calls += 1;
        if calls == 1 { Err(std::io::ErrorKind::WouldBlock.into()) } else { Ok(1) }
    });
    assert_eq!(got.unwrap(), 1);
    then();
}

/// A timer's goroutine was to be run at once, and a visit puts another one before it, which blocks the M until the timer's
/// goroutine has run. If `queued`, the timer's goroutine is in the ring, alone; else the M has that goroutine in hand.
fn a_visit_puts_one_off(queued: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let called = ran.clone();
        let first = runtime.go(move || {
            handle.await_poller();
            let (calls, waits) = (called.clone(), called);
            let _timer = after_func(LONG, move || {
                done();
                calls.raise();
            });
            handle.await_poller();
            loom::explore();
            handle.have_a_visit_come();
            if queued {
                handle.have_no_sleeper_go_first();
            }
            pass(LONG);
            handle.queue_globally_in_silence([handle.make(move || waits.wait_on_thread())]);
        });
        ran.wait_on_thread();
        first.join().unwrap();
    }
}

/// Fails by deadlock when no M is woken.
#[test]
fn a_goroutine_that_a_visit_puts_off_is_run_by_another_m() {
    Model::new().preemptions(1).check("visit_before_found", a_visit_puts_one_off(true));
}

/// Fails by deadlock when no M is woken.
#[test]
fn a_sleeper_that_a_visit_puts_off_is_run_by_another_m() {
    Model::new().preemptions(1).check("visit_before_sleeper", a_visit_puts_one_off(false));
}

/// A goroutine yields while no other is ready; a sleeper goes before it, and blocks the M until that goroutine has run. No M
/// polls: the M at work has come from the poller, and the other one sleeps on its note. The yielder is of `class`: it stands in
/// the ring, or in the queue of its class.
fn a_sleeper_goes_before(class: Priority) -> impl Fn() + Send + Sync + 'static {
    move || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let raises = ran.clone();
        let sleeper = runtime.go(move || {
            have_no_m_poll(&handle);
            // This M finds the queued goroutine when this one sleeps, and so does not go to the poller.
            handle.queue_globally_in_silence([handle.make(move || {
                if class != Priority::Normal {
                    crate::set_priority(class);
                }
                loom::explore();
                pass(LONG);
                yield_now();
                done();
                raises.raise();
            })]);
            sleep(LONG);
            ran.wait_on_thread();
        });
        sleeper.join().unwrap();
    }
}

/// Fails by deadlock when the other M is not woken.
#[test]
fn a_goroutine_before_which_a_sleeper_goes_is_run_by_another_m() {
    Model::new().preemptions(1).check("sleeper_first", a_sleeper_goes_before(Priority::Normal));
}

/// Fails by deadlock when the other M is not woken.
#[test]
fn a_goroutine_of_a_class_before_which_a_sleeper_goes_is_run_by_another_m() {
    Model::new().preemptions(1).check("sleeper_before_class", a_sleeper_goes_before(Priority::Background));
}

/// A sleeper of a class is due, and is queued in its class, and the same look finds a goroutine in the poller, which blocks its
/// M until the sleeper has run. The Ms are as in `a_sleeper_goes_before`. Fails by deadlock when no M is woken for the two.
#[test]
fn a_goroutine_that_a_look_finds_does_not_hold_a_sleeper_of_a_class_back() {
    Model::new().preemptions(1).check("found_beside_class", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, visits, ran) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let waits = ran.clone();
        let sleeper = runtime.go(move || {
            drop(crate::go(move || read_then(|| waits.wait_on_thread())));
            have_no_m_poll(&handle);
            handle.queue_globally_in_silence([handle.make(move || {
                loom::explore();
                pass(LONG);
                visits.post(Readiness::READABLE);
                visits.have_a_visit_come();
            })]);
            crate::set_priority(Priority::Low);
            sleep(LONG);
            done();
            ran.raise();
        });
        sleeper.join().unwrap();
    });
}

/// A sleeper is due alone, and a visit then finds a goroutine in the poller, which is alone in the ring: the sleeper goes
/// first, and blocks its M until the other has run. The Ms are as in `a_sleeper_goes_before`. Fails by deadlock when the M
/// looks at its ring before the visit only.
#[test]
fn a_goroutine_that_a_visit_finds_is_run_beside_a_sleeper() {
    Model::new().preemptions(1).check("visit_beside_sleeper", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, visits, ran) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let raises = ran.clone();
        let sleeper = runtime.go(move || {
            drop(crate::go(move || {
                read_then(|| {
                    done();
                    raises.raise();
                })
            }));
            have_no_m_poll(&handle);
            handle.queue_globally_in_silence([handle.make(move || {
                loom::explore();
                pass(LONG);
                visits.post(Readiness::READABLE);
                visits.have_a_visit_come();
            })]);
            sleep(LONG);
            ran.wait_on_thread();
        });
        sleeper.join().unwrap();
    });
}

/// A visit finds a goroutine in the poller and one in the global queue; the latter goes first and blocks its M until the other
/// has run. No M polls: the M at work has come from the poller, and the other one sleeps on its note. Fails by deadlock when
/// the other M is not woken.
#[test]
fn a_goroutine_that_a_visit_finds_is_run_beside_one_that_waited_longer() {
    Model::new().preemptions(1).check("visit_beside_globals", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let (raises, waits) = (ran.clone(), ran.clone());
        let visitor = runtime.go(move || {
            drop(crate::go(move || read_then_raise(&raises)));
            have_no_m_poll(&handle);
            let other = handle.make(move || waits.wait_on_thread());
            loom::explore();
            handle.post(Readiness::READABLE);
            handle.queue_globally_in_silence([other]);
            handle.have_a_visit_come();
        });
        ran.wait_on_thread();
        done();
        visitor.join().unwrap();
    });
}

/// A goroutine yields beside others in the global queue, and the end of its round brings these into the ring; one of them
/// blocks its M until the next has run. The other M sleeps, as if it had looked at the global queue before they came there, and
/// at the ring when they had left it. Fails by deadlock when no M is woken.
#[test]
fn goroutines_that_a_round_brings_are_run_by_another_m() {
    Model::new().preemptions(1).check("round_ends", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let (waits, raises) = (ran.clone(), ran.clone());
        let first = runtime.go(move || {
            have_no_m_poll(&handle);
            handle.queue_globally_in_silence([
                handle.make(move || waits.wait_on_thread()),
                handle.make(move || raises.raise()),
            ]);
            // The round of this yield ends after the next yield.
            yield_now();
            loom::explore();
            yield_now();
        });
        ran.wait_on_thread();
        done();
        first.join().unwrap();
    });
}

/// A goroutine yields while the ring is full: the ring's older half goes to the global queue, and the goroutine with it. The
/// last goroutine that stays in the ring keeps its M until the yielder has run on. The other M sleeps, as if it had looked at
/// the global queue before the half came there, and at the ring when that was empty. Fails by deadlock when no M is woken.
#[test]
fn goroutines_that_a_full_ring_sends_away_are_run_by_another_m() {
    Model::new().preemptions(1).check("yield_spills", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let handle = Handle::of(&runtime);
        let yields = runtime.go(move || {
            have_no_m_poll(&handle);
            let ran_on = Flag::default();
            let waits = ran_on.clone();
            let [a, b, c] = [(); 3].map(|()| handle.make(|| ()));
            handle.queue_in_silence([a, b, c, handle.make(move || waits.wait_on_thread())]);
            loom::explore();
            yield_now();
            ran_on.raise();
            done();
        });
        yields.join().unwrap();
    });
}

/// A goroutine yields while no other is ready; an arrival goes before it, and blocks the M until that goroutine has run. The Ms
/// are as in `a_sleeper_goes_before`. If `beside_a_class`, a goroutine of `Background` waits, and the turn is one of `Normal`.
fn an_arrival_goes_before(beside_a_class: bool) -> impl Fn() + Send + Sync + 'static {
    move || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let first = runtime.go(move || {
            have_no_m_poll(&handle);
            let (waits, raises) = (ran.clone(), ran);
            if beside_a_class {
                handle.queue_of_class_in_silence(Priority::Background, [handle.make(|| ())]);
                handle.have_a_turn_of_normal_come();
            } else {
                handle.have_an_arrival_go_first();
            }
            handle.queue_arrival_in_silence(handle.make(move || waits.wait_on_thread()));
            loom::explore();
            yield_now();
            raises.raise();
            done();
        });
        first.join().unwrap();
    }
}

/// Fails by deadlock when the other M is not woken.
#[test]
fn a_goroutine_before_which_an_arrival_goes_is_run_by_another_m() {
    Model::new().with_helpers().preemptions(1).check("arrival_first", an_arrival_goes_before(false));
}

/// Fails by deadlock when the other M is not woken.
#[test]
fn a_goroutine_that_waits_for_an_arrivals_turn_is_run_by_another_m() {
    Model::new().preemptions(1).check("arrival_in_turn", an_arrival_goes_before(true));
}

/// A goroutine yields, a sleeper is due, and an arrival waits and may go first. Fails by an assertion when the sleeper is put
/// off to the ring's end.
#[test]
fn an_arrival_lets_a_sleeper_go_first() {
    Model::new().with_helpers().preemptions(1).check("arrival_beside_sleeper", || {
        // This is too short for a visit to be due.
        const MOMENT: Duration = Duration::from_micros(100);
        let runtime = at_rest::<1>();
        let (handle, order) = (Handle::of(&runtime), Arc::new(AtomicUsize::new(0)));
        let ended = Flag::default();
        let ends = ended.clone();
        let sleeper = runtime.go(move || {
            let (arrives, yields, inner) = (Arc::clone(&order), Arc::clone(&order), handle.clone());
            handle.queue_globally_in_silence([handle.make(move || {
                pass(MOMENT);
                inner.have_an_arrival_go_first();
                let arrival = inner.make(move || assert_eq!(arrives.fetch_add(1, Relaxed), 1));
                inner.queue_arrival_in_silence(arrival);
                yield_now();
                assert_eq!(yields.fetch_add(1, Relaxed), 2, "the ring comes last");
                ends.raise();
            })]);
            sleep(MOMENT);
            assert_eq!(order.fetch_add(1, Relaxed), 0, "the sleeper is the first");
        });
        ended.wait_on_thread();
        done();
        sleeper.join().unwrap();
    });
}

/// A sleeper is due, and goes behind the goroutine that stands alone in the ring, which keeps its M until the sleeper has run.
/// No M polls: the M at work has come from the poller, and the other one sleeps on its note. Fails by deadlock when the other M
/// is not woken.
#[test]
fn a_sleeper_that_is_queued_behind_another_is_run_by_another_m() {
    Model::new().preemptions(1).check("sleeper_behind", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, inner, ran) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let raises = ran.clone();
        let sleeper = runtime.go(move || {
            have_no_m_poll(&handle);
            handle.queue_globally_in_silence([handle.make(move || {
                inner.queue_in_silence([inner.make(move || ran.wait_on_thread())]);
                loom::explore();
                inner.have_no_sleeper_go_first();
                pass(LONG);
            })]);
            sleep(LONG);
            raises.raise();
            done();
        });
        sleeper.join().unwrap();
    });
}

/// A sleeper is due, and becomes an arrival, because time has passed since the last look at the timers, and a goroutine stands
/// in the ring. The goroutine in `runnext` goes first, and keeps its M until the sleeper has run. No M polls: the M at work has
/// come from the poller, and the other one sleeps on its note. Fails by deadlock when the other M is not woken.
#[test]
fn a_sleeper_that_arrives_within_a_slice_is_run_by_another_m() {
    Model::new().with_helpers().preemptions(1).check("sleeper_arrives", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, inner, ran) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let raises = ran.clone();
        let sleeper = runtime.go(move || {
            have_no_m_poll(&handle);
            handle.queue_globally_in_silence([handle.make(move || {
                inner.queue_in_silence([inner.make(|| ())]);
                // The looks before the next two goroutines find nothing due.
                yield_now();
                inner.queue_in_silence([inner.make(|| ())]);
                inner.queue_next_in_silence(inner.make(move || ran.wait_on_thread()));
                loom::explore();
                inner.have_no_sleeper_go_first();
                pass(LONG);
            })]);
            sleep(LONG);
            raises.raise();
            done();
        });
        sleeper.join().unwrap();
    });
}

/// The slice ends before the second of two goroutines from `runnext`, beside a full ring: the ring's older half goes to the
/// global queue, and the second goroutine with it. The last goroutine that stays in the ring keeps its M until the second has
/// run. The Ms are as in `goroutines_that_a_full_ring_sends_away_are_run_by_another_m`. Fails by deadlock when no M is woken.
#[test]
fn a_goroutine_whose_slice_ends_beside_a_full_ring_is_run_by_another_m() {
    Model::new().preemptions(1).check("slice_spills", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, inner, ran) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let (waits, raises) = (ran.clone(), ran.clone());
        let first = runtime.go(move || {
            have_no_m_poll(&handle);
            let [a, b, c] = [(); 3].map(|()| handle.make(|| ()));
            handle.queue_in_silence([a, b, c, handle.make(move || waits.wait_on_thread())]);
            handle.queue_next_in_silence(handle.make(move || {
                inner.queue_next_in_silence(inner.make(move || raises.raise()));
                loom::explore();
            }));
        });
        ran.wait_on_thread();
        done();
        first.join().unwrap();
    });
}

/// The slice ends before the second of two goroutines from `runnext`, beside one goroutine in the ring; the look before that
/// takes a goroutine from the global queue, which keeps its M until the second has run. The other M sleeps. Fails by deadlock
/// when that M is not woken.
#[test]
fn a_goroutine_whose_slice_ends_at_a_visit_is_run_by_another_m() {
    Model::new().preemptions(1).check("slice_ends_at_a_visit", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, inner, ran) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let (waits, raises) = (ran.clone(), ran.clone());
        let first = runtime.go(move || {
            have_no_m_poll(&handle);
            handle.queue_in_silence([handle.make(|| ())]);
            handle.queue_next_in_silence(handle.make(move || {
                inner.queue_next_in_silence(inner.make(move || raises.raise()));
                inner.queue_globally_in_silence([inner.make(move || waits.wait_on_thread())]);
                inner.have_a_visit_come();
                loom::explore();
            }));
        });
        ran.wait_on_thread();
        done();
        first.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::TurnWakesNobody, "a_goroutine_that_a_visit_puts_off_is_run_by_another_m"),
            (Mutant::SleeperQueuedInSilence, "a_sleeper_that_a_visit_puts_off_is_run_by_another_m"),
            (
                Mutant::FoundBesideTheRingInSilence,
                "a_sleeper_that_is_queued_behind_another_is_run_by_another_m",
            ),
            (Mutant::SleeperArrivesInSilence, "a_sleeper_that_arrives_within_a_slice_is_run_by_another_m"),
            (Mutant::SleeperWakesNobody, "a_goroutine_before_which_a_sleeper_goes_is_run_by_another_m"),
            (Mutant::SleeperWakesNobody, "a_goroutine_that_a_visit_finds_is_run_beside_a_sleeper"),
            (
                Mutant::SleeperWakesNobody,
                "a_goroutine_of_a_class_before_which_a_sleeper_goes_is_run_by_another_m",
            ),
            (
                Mutant::OthersOfClassesUnseen,
                "a_goroutine_of_a_class_before_which_a_sleeper_goes_is_run_by_another_m",
            ),
            (
                Mutant::FoundBesideAClassInSilence,
                "a_goroutine_that_a_look_finds_does_not_hold_a_sleeper_of_a_class_back",
            ),
            (Mutant::ArrivalPutsOffTheSleeper, "an_arrival_lets_a_sleeper_go_first"),
            (
                Mutant::ArrivalInTurnWakesNobody,
                "a_goroutine_that_waits_for_an_arrivals_turn_is_run_by_another_m",
            ),
            (Mutant::ArrivalWakesNobody, "a_goroutine_before_which_an_arrival_goes_is_run_by_another_m"),
            (Mutant::RoundWakesNobody, "goroutines_that_a_round_brings_are_run_by_another_m"),
            (Mutant::SpillWakesNobody, "goroutines_that_a_full_ring_sends_away_are_run_by_another_m"),
            (Mutant::SpillWakesNobody, "a_goroutine_whose_slice_ends_beside_a_full_ring_is_run_by_another_m"),
            (Mutant::TurnWakesNobody, "a_goroutine_whose_slice_ends_at_a_visit_is_run_by_another_m"),
            (
                Mutant::VisitQueuesInSilence,
                "a_goroutine_that_a_visit_finds_is_run_beside_one_that_waited_longer",
            ),
        ],
    );
}
