//! Ms that are summoned, also in vain, and the limit of threads: no M is counted too often, and no goroutine is left.
//!
//! *The mutants* take out SummonedInVainFence, the order of the count and the lock, the critical sections in which an M stands
//! by, each take-over of a claim to spin, the look at the global queue before an M sleeps, the count of threads that are being
//! started, and the rules of the pause after a refused thread.

use super::caught;
use super::cover::{Handle, blocking_here};
use super::procs::{First, one_on, one_p};
use crate::Runtime;
use crate::model::{
    Body, Flag, Model, Mutant, Parts, done, grant_threads, pass, refuse_threads, runtime, together,
};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// Does what `runtime` does, with three threads; the third thread calls a function of the user, which waits for the flag.
pub(super) fn runtime_whose_third_thread_waits(procs: usize, flag: &Flag) -> Runtime {
    loom::stop_exploring();
    let (begun, flag) = (AtomicUsize::new(0), flag.clone());
    let builder = Runtime::builder().procs(procs).max_threads(3).on_thread_start(move || {
        if begun.fetch_add(1, Relaxed) == 2 {
            flag.wait_on_thread();
        }
    });
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { builder.build() }.expect("a model's runtime starts")
}

/// An M is summoned, and a goroutine that comes back from a blocking call takes the P first, runs the goroutine of the
/// summons, ends, and leaves the P idle. Fails by deadlock when the M that came in vain still counts as spinning then:
/// the next submitter believes that an M looks for work.
#[test]
fn an_m_that_was_summoned_in_vain_leaves_no_count() {
    Model::new().preemptions(2).check("called_in_vain", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let work = handle.make(done);
        let ran = Flag::default();
        let raised = ran.clone();
        let comes_back = runtime.go(move || {
            crate::blocking(|| {
                handle.await_poller();
                loom::explore();
                drop(crate::go(move || raised.raise()));
            });
        });
        let handle = Handle::of(&runtime);
        ran.wait_on_thread();
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
        comes_back.join().unwrap();
    });
}

/// As `an_m_that_was_summoned_in_vain_leaves_no_count`, and the goroutine that has the P goes to sleep while the M
/// that came in vain goes into the poller. Fails by deadlock when neither sees the other.
#[test]
fn an_m_that_was_summoned_in_vain_sees_a_timer() {
    Model::new().check("summoned_in_vain_vs_timer", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let sleeper = runtime.go(move || {
            crate::blocking(|| {
                handle.await_poller();
                loom::explore();
                // This goroutine is there only for the summons.
                drop(crate::go(|| ()));
            });
            crate::time::sleep(Duration::from_millis(1));
            done();
        });
        sleeper.join().unwrap();
    });
}

/// A goroutine comes back from a blocking call and finds no P, while the M that has the P gives that P away, at the limit
/// of threads. Fails by deadlock when the first goroutine's M, which the giver could not find, goes to sleep beside the
/// idle P.
#[test]
fn at_the_limit_an_m_without_a_p_sees_the_global_queue() {
    Model::new().check("limit_global", || {
        let runtime = runtime(1, 2);
        let (away, there, back) = (Flag::default(), Flag::default(), Flag::default());
        let _comes_back = runtime.go({
            let (away, there, back) = (away.clone(), there.clone(), back.clone());
            move || {
                crate::blocking(|| {
                    away.raise();
                    there.wait_on_thread();
                });
                crate::yield_now();
                back.raise();
            }
        });
        let gives = runtime.go(move || {
            away.wait_on_thread();
            loom::explore();
            there.raise();
            crate::blocking(|| back.wait_on_thread());
            done();
        });
        gives.join().unwrap();
    });
}

/// An M is summoned in vain, and the goroutine that has taken the P instead submits another one and gives the P away, at the
/// limit of threads. Fails by deadlock when the M that came in vain does not stand by for a moment, and then sleeps beside
/// the idle P.
#[test]
fn at_the_limit_an_m_that_was_summoned_in_vain_is_found() {
    Model::new().preemptions(1).check("summoned_in_vain_at_limit", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let comes_back = runtime.go(move || {
            crate::blocking(|| {
                handle.await_poller();
                loom::explore();
                // This goroutine is there only for the summons.
                drop(crate::go(|| ()));
            });
            let ran = Flag::default();
            let raised = ran.clone();
            drop(crate::go(move || raised.raise()));
            crate::blocking(|| ran.wait_on_thread());
            done();
        });
        comes_back.join().unwrap();
    });
}

/// An M is summoned, and finds no P, as the runtime ends. Fails by deadlock when the M stands by after the ender has woken all
/// Ms that stood by.
#[test]
fn an_m_that_is_summoned_in_vain_at_the_end_leaves() {
    Model::new().preemptions(1).check("summoned_in_vain_at_the_end", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let (back, over) = (Flag::default(), Flag::default());
        let _comes_back = runtime.go({
            let (back, over) = (back.clone(), over.clone());
            move || {
                crate::blocking(|| {
                    handle.await_poller();
                    loom::explore();
                    // This goroutine is there only for the summons.
                    drop(crate::go(|| ()));
                });
                super::cover::touch_window();
                back.raise();
                over.wait_on_thread();
            }
        });
        back.wait_on_thread();
        let opener = loom::thread::spawn(move || over.raise());
        assert_eq!(super::cover::leave(runtime, Duration::from_secs(1)).threads_left(), 0);
        opener.join().unwrap();
        done();
    });
}

/// A third M is being started, and counts as spinning, while the two others go to sleep, and a thread submits. The user's
/// function waits for the submitted goroutine. Fails by deadlock when the submitter leaves that goroutine to the new M; by an
/// assertion when the new M, whose claim was taken over, gives the claim back all the same.
#[test]
fn an_m_that_is_being_started_keeps_no_m_asleep() {
    Model::new().preemptions(1).check("slow_start", || {
        let ran = Flag::default();
        let runtime = runtime_whose_third_thread_waits(3, &ran);
        let handle = Handle::of(&runtime);
        let work = handle.make(move || ran.raise());
        let there = Flag::default();
        let raises = there.clone();
        let waits = runtime.go(move || there.wait_on_thread());
        let raises = runtime.go(move || raises.raise());
        waits.join().unwrap();
        raises.join().unwrap();
        // Both Ms stand by.
        handle.await_poller();
        handle.await_m_on_note();
        loom::explore();
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
        done();
    });
}

/// Two goroutines give their Ps away at once, with work in the queues, and there may be one thread more. Fails by an assertion
/// when two threads are started.
#[test]
fn no_more_threads_are_started_than_there_may_be() {
    Model::new().preemptions(1).check("two_hand_offs_at_limit", || {
        let runtime = runtime(2, 3);
        let parts = Parts::of(2);
        let gives = || -> crate::model::Body {
            let parts = parts.clone();
            Box::new(move || {
                let ran = Flag::default();
                let raised = ran.clone();
                drop(crate::go(move || {
                    parts.held();
                    raised.raise();
                }));
                blocking_here(|| ran.wait_on_thread());
            })
        };
        for one in together(&runtime, [gives(), gives()]) {
            one.join().unwrap();
        }
    });
}

/// As `an_m_that_is_being_started_keeps_no_m_asleep`, where the second M keeps its P until `work` has run, and the first one is
/// in the poller.
#[test]
fn an_m_that_is_being_started_keeps_no_m_in_the_poller() {
    Model::new().preemptions(0).check("slow_start_beside_the_poller", || {
        let ran = Flag::default();
        let runtime = runtime_whose_third_thread_waits(3, &ran);
        let handle = Handle::of(&runtime);
        let raises = ran.clone();
        let work = handle.make(move || {
            done();
            raises.raise();
        });
        let there = Flag::default();
        let raises = there.clone();
        let keeps = runtime.go(move || {
            there.wait_on_thread();
            ran.wait_on_thread();
        });
        let ends = runtime.go(move || raises.raise());
        ends.join().unwrap();
        handle.await_poller();
        loom::explore();
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
        keeps.join().unwrap();
    });
}

/// As `an_m_that_is_being_started_keeps_no_m_asleep`, where the second M keeps its P until `work` has run, and the first one,
/// whose P has retired, is on its note. There are as many Ps as before when `work` is submitted.
#[test]
fn an_m_that_is_being_started_keeps_no_m_on_its_note() {
    Model::new().preemptions(0).check("slow_start_beside_a_note", || {
        let ran = Flag::default();
        let runtime = runtime_whose_third_thread_waits(3, &ran);
        let handle = Handle::of(&runtime);
        let raises = ran.clone();
        let work = handle.make(move || {
            done();
            raises.raise();
        });
        let bodies: [Body; 2] = [Box::new(|| ()), Box::new(move || ran.wait_on_thread())];
        let both = one_on(1, &runtime, (First::Elsewhere, one_p), bodies);
        handle.await_m_on_note();
        runtime.set_procs(3);
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// Adds a second P, for which a thread is refused. After that a thread could be had again, and the pause has begun.
fn refuse_a_thread() {
    refuse_threads();
    crate::set_procs(2);
    drop(crate::go(|| ()));
    grant_threads();
    assert_eq!(crate::handle().refused().threads(), 1);
}

/// A goroutine is submitted in the pause after a refused thread, and the monitor looks when the pause is over. Fails by an
/// assertion when the submission asks for a thread all the same; by deadlock when the monitor does not.
#[test]
fn what_a_pause_has_kept_waiting_is_run_when_it_is_over() {
    Model::new().preemptions(1).check("refused_thread_pause", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let [waits, ran] = <[Flag; 2]>::default();
        let keeps = runtime.go({
            let [waits, raised] = [&waits, &ran].map(Flag::clone);
            move || {
                refuse_a_thread();
                refuse_threads();
                drop(crate::go(move || raised.raise()));
                assert_eq!(crate::handle().refused().threads(), 1, "no thread is asked for in the pause");
                grant_threads();
                loom::explore();
                waits.raise();
                ran.wait_on_thread();
                done();
            }
        });
        waits.wait_on_thread();
        // This is longer than the pause.
        pass(Duration::from_secs(1));
        handle.monitor_looks(Duration::ZERO);
        keeps.join().unwrap();
    });
}

/// A thread is refused, and the only M's goroutine ends with its thread, in the pause, beside another goroutine. Fails by
/// deadlock when no thread is asked for then.
#[test]
fn where_no_m_lives_there_is_no_pause() {
    Model::new().preemptions(1).check("refused_thread_without_an_m", || {
        let runtime = runtime(1, 2);
        let left = runtime.go(|| {
            crate::lock_os_thread();
            refuse_a_thread();
            loom::explore();
            crate::go(done)
        });
        left.join().unwrap().join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::StopmSkipsGlobal, "at_the_limit_an_m_without_a_p_sees_the_global_queue"),
            (Mutant::SummonedInVainEndsLate, "an_m_that_was_summoned_in_vain_leaves_no_count"),
            (Mutant::SummonedInVainNoFence, "an_m_that_was_summoned_in_vain_sees_a_timer"),
            (Mutant::SummonedInVainStandsByLate, "at_the_limit_an_m_that_was_summoned_in_vain_is_found"),
            (Mutant::SummonedInVainIgnoresTheEnd, "an_m_that_is_summoned_in_vain_at_the_end_leaves"),
            (Mutant::StartKeepsItsClaim, "an_m_that_is_being_started_keeps_no_m_asleep"),
            (Mutant::PollerLeavesTheClaim, "an_m_that_is_being_started_keeps_no_m_in_the_poller"),
            (Mutant::NoteLeavesTheClaim, "an_m_that_is_being_started_keeps_no_m_on_its_note"),
            (Mutant::RelievedStartCountsNot, "an_m_that_is_being_started_keeps_no_m_asleep"),
            (Mutant::LimitForgetsTheAsked, "no_more_threads_are_started_than_there_may_be"),
            (Mutant::RefusedThreadIsAskedForAgain, "what_a_pause_has_kept_waiting_is_run_when_it_is_over"),
            (Mutant::PauseStrandsItsWork, "what_a_pause_has_kept_waiting_is_run_when_it_is_over"),
            (Mutant::PauseWithoutAnM, "where_no_m_lives_there_is_no_pause"),
        ],
    );
}
