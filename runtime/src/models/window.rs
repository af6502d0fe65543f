//! The hand-off word: at every moment exactly one M, or retaker, owns a P.

use super::caught;
use super::cover::{Handle, Held, switch_point};
use crate::model::{Flag, Model, Mutant, Parts, done, runtime, together};
use loom::sync::atomic::AtomicBool;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Waits on its thread until the M that was sent to the poller is there.
fn await_poller(handle: &Handle) {
    while !handle.somebody_polls() {
        loom::thread::yield_now();
    }
}

/// A goroutine enters and leaves the runtime while a retaker judges its M to be away. Whoever owns the P touches
/// its ghost: fails by a causality violation when two do and nothing orders them, by deadlock when the P is lost.
#[test]
fn a_p_has_one_owner_while_it_is_retaken() {
    Model::new().with_retaker().check("retake_vs_enter", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { crate::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        let retaker = runtime.run(|| {
            let held = Held::current();
            let retaker = loom::thread::spawn(move || held.retake());
            // Each of these enters, and finds its P or comes back for one.
            super::cover::touch_window();
            super::cover::touch_window();
            retaker
        });
        retaker.join().unwrap();
        done();
    });
}

/// The same where the kernel has no barrier for all threads: the retaker fences, and each entry does.
#[test]
fn a_p_has_one_owner_where_both_sides_fence() {
    Model::new().with_retaker_that_fences().check("retake_by_fences", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { crate::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        let retaker = runtime.run(|| {
            let held = Held::current();
            let retaker = loom::thread::spawn(move || held.retake());
            super::cover::touch_window();
            super::cover::touch_window();
            retaker
        });
        retaker.join().unwrap();
        done();
    });
}

/// Waits until `over`, where its thread may be switched out all the time, as it may be anywhere.
fn go_on_until(over: &AtomicBool) {
    while !over.load(Relaxed) {
        switch_point();
        loom::thread::yield_now();
    }
}

/// A retaker in a thread of its own, and whether it is done.
fn retake_aside(held: Held) -> (loom::thread::JoinHandle<()>, Arc<AtomicBool>) {
    let over = Arc::new(AtomicBool::new(false));
    let raised = Arc::clone(&over);
    let retaker = loom::thread::spawn(move || {
        held.retake();
        raised.store(true, Relaxed);
    });
    (retaker, over)
}

/// The same where the kernel refuses the barrier for all threads to the retaker, of an M that counts on it: the retaker
/// waits until that M's thread was switched out.
#[test]
fn a_p_has_one_owner_when_the_barrier_is_refused() {
    Model::new().with_retaker_that_is_refused().check("retake_refused", || {
        let runtime = runtime(1, 2);
        let retaker = runtime.run(|| {
            let held = Held::current();
            loom::explore();
            let (retaker, over) = retake_aside(held);
            super::cover::touch_window();
            super::cover::touch_window();
            go_on_until(&over);
            done();
            retaker
        });
        retaker.join().unwrap();
    });
}

/// And of an M that has acquired its P after that: both sides fence.
#[test]
fn a_p_has_one_owner_after_the_barrier_was_refused() {
    Model::new().with_retaker_that_is_refused().check("retake_after_refusal", || {
        let runtime = runtime(1, 2);
        let retaker = runtime.run(|| {
            let (retaker, over) = retake_aside(Held::current());
            go_on_until(&over);
            retaker.join().unwrap();
            // It comes back for a P.
            super::cover::touch_window();
            let held = Held::current();
            loom::explore();
            let retaker = loom::thread::spawn(move || held.retake());
            super::cover::touch_window();
            super::cover::touch_window();
            retaker
        });
        retaker.join().unwrap();
        done();
    });
}

/// The retaker judges the P while it changes hands, from a goroutine that gives it away and stays outside to the next.
/// Fails when it takes the lease of the second for that of the first, who is away.
#[test]
fn a_p_that_changes_hands_is_judged_with_its_holder() {
    Model::new().with_retaker().check("retake_vs_acquire", || {
        let runtime = runtime(1, 2);
        let first = runtime.go(|| {
            let (judging, judged) = (Flag::default(), Flag::default());
            let mut held = Held::current();
            let retaker = loom::thread::spawn({
                let judged = judged.clone();
                move || {
                    held.judge_again();
                    held.retake();
                    judged.raise();
                }
            });
            let raised = judging.clone();
            let _next = crate::go(move || {
                raised.raise();
                super::cover::touch_window();
                super::cover::touch_window();
                judged.wait_on_thread();
                done();
            });
            loom::explore();
            crate::blocking(|| {
                judging.wait_on_thread();
                retaker.join().unwrap();
            });
        });
        first.join().unwrap();
    });
}

/// Fails by deadlock when a goroutine that comes back without a P is queued where nobody looks.
#[test]
fn a_goroutine_that_lost_its_p_is_run() {
    Model::new().with_retaker().preemptions(1).check("return_vs_idle", || {
        // SAFETY: the goroutines keep nothing of a thread.
        let runtime = unsafe { crate::Runtime::builder().procs(1).max_threads(2).build() }.unwrap();
        runtime.run(|| {
            let held = Held::current();
            // Work for the M that the P is handed to.
            drop(crate::go(|| ()));
            // The goroutine waits for the retaker on its M, outside of the runtime.
            loom::thread::spawn(move || held.retake()).join().unwrap();
            super::cover::touch_window();
        });
        done();
    });
}

/// A goroutine gives its P away for the second time; in the first an M took it, found nothing, and went into the
/// poller. So nobody has to be sent there, and the P goes idle if its queue is empty. Fails by deadlock when it does
/// although a goroutine stands there.
#[test]
fn the_queue_of_a_p_that_is_given_away_is_served() {
    Model::new().check("give_away", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let gives = runtime.go(move || {
            crate::blocking(|| {
                while !handle.somebody_polls() {
                    loom::thread::yield_now();
                }
            });
            let ran = Flag::default();
            let raised = ran.clone();
            drop(crate::go(move || raised.raise()));
            loom::explore();
            crate::blocking(|| ran.wait_on_thread());
            done();
        });
        gives.join().unwrap();
    });
}

/// A goroutine comes back from a blocking call while the M that has its P goes idle. It runs `first` before.
fn comes_back_beside_an_idle_p(first: fn()) {
    let runtime = runtime(1, 2);
    let (away, there, go_on) = (Flag::default(), Flag::default(), Flag::default());
    let comes_back = runtime.go({
        let (away, there, go_on) = (away.clone(), there.clone(), go_on.clone());
        move || {
            first();
            crate::blocking(|| {
                away.raise();
                there.wait_on_thread();
                loom::explore();
                go_on.raise();
            });
            done();
        }
    });
    let _last = runtime.go(move || {
        away.wait_on_thread();
        there.raise();
        go_on.wait_on_thread();
    });
    comes_back.join().unwrap();
}

/// Fails by deadlock when it is queued where nobody looks any more, or the P can be taken before it is counted as idle.
#[test]
fn a_goroutine_that_comes_back_is_run_while_its_p_goes_idle() {
    Model::new().check("come_back", || comes_back_beside_an_idle_p(|| ()));
}

/// The same with one that is bound: its M looks into no queue. Fails by deadlock when it goes into the global one after
/// the P was found to be taken, and in between that became idle.
#[test]
fn a_bound_goroutine_that_comes_back_is_run_while_its_p_goes_idle() {
    Model::new().check("come_back_bound", || comes_back_beside_an_idle_p(crate::lock_os_thread));
}

/// A goroutine without a P makes another one: it goes into the global queue, and is run.
#[test]
fn a_goroutine_without_a_p_submits_as_a_thread() {
    Model::new().check("submit_without_p", || {
        let runtime = runtime(1, 2);
        let gives = runtime.go(|| {
            loom::explore();
            crate::blocking(|| {
                let ran = Flag::default();
                let raised = ran.clone();
                drop(crate::go(move || raised.raise()));
                ran.wait_on_thread();
            });
            done();
        });
        gives.join().unwrap();
    });
}

/// A goroutine gives the only P away, for which there is no work, while another one comes back and takes it. Fails by an
/// assertion of the census when the P may be taken before it is counted as idle.
#[test]
fn a_p_that_is_given_away_is_counted_before_it_is_taken() {
    Model::new().preemptions(2).check("give_away_vs_come_back", || {
        let runtime = runtime(1, 3);
        let handle = Handle::of(&runtime);
        let (away, back) = (Flag::default(), Flag::default());
        let comes_back = runtime.go({
            let (away, back) = (away.clone(), back.clone());
            move || {
                crate::blocking(|| {
                    away.raise();
                    back.wait_on_thread();
                });
            }
        });
        let gives = runtime.go(move || {
            crate::blocking(|| {
                away.wait_on_thread();
                while !handle.somebody_polls() {
                    loom::thread::yield_now();
                }
            });
            loom::explore();
            back.raise();
            crate::blocking(|| ());
        });
        comes_back.join().unwrap();
        gives.join().unwrap();
        done();
    });
}

/// A goroutine gives its P away, for which there is no work, while one on the other P submits and finds no P idle.
/// Fails by deadlock when the giver does not look once more after the P has become idle.
#[test]
fn a_p_that_is_given_away_is_offered_to_what_was_submitted_meanwhile() {
    Model::new().preemptions(2).check("give_away_vs_submit", || {
        let runtime = runtime(2, 3);
        let handle = Handle::of(&runtime);
        let (there, go_on, ran) = (Flag::default(), Flag::default(), Flag::default());
        let submits = runtime.go({
            let (there, go_on, ran) = (there.clone(), go_on.clone(), ran.clone());
            move || {
                there.raise();
                go_on.wait_on_thread();
                let raised = ran.clone();
                drop(crate::go(move || raised.raise()));
                ran.wait_on_thread();
                done();
            }
        });
        let _gives = runtime.go(move || {
            crate::blocking(|| {
                // A third M is sent there, as nobody else is.
                while !handle.somebody_polls() {
                    loom::thread::yield_now();
                }
                there.wait_on_thread();
            });
            loom::explore();
            go_on.raise();
            crate::blocking(|| ran.wait_on_thread());
        });
        submits.join().unwrap();
    });
}

/// A goroutine gives the only P away while another one stands in the global queue, of which nobody was told as no P was
/// idle. Fails by deadlock when the P is idle and no M is summoned for it.
#[test]
fn the_global_queue_is_served_when_a_p_is_given_away() {
    Model::new().check("give_away_globally", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let gives = runtime.go(move || {
            crate::blocking(|| await_poller(&handle));
            let ran = Flag::default();
            let raised = ran.clone();
            let _waits = handle.inject([handle.make(move || raised.raise())]);
            loom::explore();
            crate::blocking(|| ran.wait_on_thread());
            done();
        });
        gives.join().unwrap();
    });
}

/// A goroutine comes back from a blocking call before the M that was summoned for one in the global queue. It keeps its P
/// until that one has run: fails by deadlock when it overtakes it.
#[test]
fn a_goroutine_that_comes_back_overtakes_nobody() {
    Model::new().check("come_back_vs_call", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let comes_back = runtime.go(move || {
            let ran = Flag::default();
            let raised = ran.clone();
            crate::blocking(|| {
                await_poller(&handle);
                loom::explore();
                drop(crate::go(move || raised.raise()));
            });
            ran.wait_on_thread();
            done();
        });
        comes_back.join().unwrap();
    });
}

/// An M is called, and a goroutine that comes back from a blocking call takes the P before that one can, runs what it was
/// summoned for, ends, and leaves the P idle. Fails by deadlock when the one that came in vain still counts as spinning
/// then: the next submission believes that somebody looks for work.
#[test]
fn an_m_that_was_summoned_in_vain_leaves_no_count() {
    Model::new().preemptions(2).check("called_in_vain", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let work = handle.make(|| ());
        let ran = Flag::default();
        let raised = ran.clone();
        let comes_back = runtime.go(move || {
            crate::blocking(|| {
                await_poller(&handle);
                loom::explore();
                drop(crate::go(move || raised.raise()));
            });
        });
        let handle = Handle::of(&runtime);
        ran.wait_on_thread();
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
        done();
        comes_back.join().unwrap();
    });
}

/// The same, and what runs instead goes to sleep while the one that came in vain goes into the poller. Fails by deadlock when
/// neither sees the other.
#[test]
fn an_m_that_was_summoned_in_vain_sees_a_timer() {
    Model::new().check("summoned_in_vain_vs_timer", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let sleeper = runtime.go(move || {
            crate::blocking(|| {
                await_poller(&handle);
                loom::explore();
                // Only for the call.
                drop(crate::go(|| ()));
            });
            crate::time::sleep(Duration::from_millis(1));
            done();
        });
        sleeper.join().unwrap();
    });
}

/// A goroutine comes back from a blocking call and finds no P, while the one that has it gives it away, at the limit of
/// threads. Fails by deadlock when the M of the first, which that one could not find, goes to sleep beside the idle P.
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
/// limit of threads. Fails by deadlock when the M that came in vain stands nowhere for a moment, and sleeps beside the idle
/// P then.
#[test]
fn at_the_limit_an_m_that_was_summoned_in_vain_is_found() {
    Model::new().preemptions(1).check("summoned_in_vain_at_limit", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let comes_back = runtime.go(move || {
            crate::blocking(|| {
                await_poller(&handle);
                loom::explore();
                // Only for the call.
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

/// An M is called, and finds no P, as the runtime ends. Fails by deadlock when it stands by after all who did were woken.
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
                    await_poller(&handle);
                    loom::explore();
                    // Only for the call.
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

/// Two goroutines give their Ps away at once, with work in the queues, and there may be one thread more. Fails by an assertion
/// when two are started.
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
                drop(crate::go(move || raised.raise()));
                crate::blocking(|| ran.wait_on_thread());
                parts.held();
            })
        };
        for one in together(&runtime, [gives(), gives()]) {
            one.join().unwrap();
        }
    });
}

#[test]
fn mutants() {
    let model = "a_p_has_one_owner_while_it_is_retaken";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::StopmSkipsGlobal, "at_the_limit_an_m_without_a_p_sees_the_global_queue"),
            (Mutant::HandoffpSkipsQueue, "the_queue_of_a_p_that_is_given_away_is_served"),
            (Mutant::HandoffpSkipsGlobal, "the_global_queue_is_served_when_a_p_is_given_away"),
            (Mutant::ExitOvertakes, "a_goroutine_that_comes_back_overtakes_nobody"),
            (Mutant::SummonedInVainEndsLate, "an_m_that_was_summoned_in_vain_leaves_no_count"),
            (Mutant::SummonedInVainNoFence, "an_m_that_was_summoned_in_vain_sees_a_timer"),
            (Mutant::HandoffpCountsLate, "a_p_that_is_given_away_is_counted_before_it_is_taken"),
            (Mutant::HandoffpNoFence, "a_p_that_is_given_away_is_offered_to_what_was_submitted_meanwhile"),
            (Mutant::HandoffpNoRecheck, "a_p_that_is_given_away_is_offered_to_what_was_submitted_meanwhile"),
            (Mutant::ExitInTwoSections, "a_bound_goroutine_that_comes_back_is_run_while_its_p_goes_idle"),
            (Mutant::CensusAfterTheLock, "a_goroutine_that_comes_back_is_run_while_its_p_goes_idle"),
            (Mutant::WindowNoEntryFence, "a_p_has_one_owner_where_both_sides_fence"),
            (Mutant::RetakeTakesAllForFenced, "a_p_has_one_owner_when_the_barrier_is_refused"),
            (Mutant::WindowStaysQuick, "a_p_has_one_owner_after_the_barrier_was_refused"),
            (Mutant::JudgeRelaxed, "a_p_that_changes_hands_is_judged_with_its_holder"),
            (Mutant::RetakeKeepsP, "a_goroutine_that_lost_its_p_is_run"),
            (Mutant::WindowNoEntryBarrier, model),
            (Mutant::WindowNoRetakeBarrier, model),
            (Mutant::WindowBlind, model),
            (Mutant::WindowEnterBlind, model),
            (Mutant::WindowSameGeneration, model),
            (Mutant::WindowLeaveRelaxed, model),
            (Mutant::WindowLookRelaxed, model),
            (Mutant::SummonedInVainStandsByLate, "at_the_limit_an_m_that_was_summoned_in_vain_is_found"),
            (Mutant::SummonedInVainIgnoresTheEnd, "an_m_that_is_summoned_in_vain_at_the_end_leaves"),
            (Mutant::LimitForgetsTheAsked, "no_more_threads_are_started_than_there_may_be"),
        ],
    );
}
