//! A submission against Ms that go idle: the goroutine is run, and run on a second M when there is a second P.
//!
//! A missing wake-up rarely loses work, only parallelism. So in most of these models a goroutine keeps its M, and with
//! it the P, until the submitted goroutine has run elsewhere: a lost wake-up is a deadlock.
//!
//! *Modelled*: submissions by goroutines and threads, and the end of the runtime, against Ms that spin, steal, give up, stand
//! by, or do not start. *Left out*: visits and sleepers (`models/visits.rs`), the limit of threads (`models/summons.rs`), and
//! changes of the number of Ps (`models/procs.rs`). *The mutants* take out SubmitFence, IdleFence, SpinnerFence and StopFence,
//! each re-check of the queues, the order of a count and the look after it, and each correction of the count of spinning Ms.

use super::caught;
use super::cover::{Handle, Made, blocking_here};
use crate::chan::bounded;
use crate::model::{
    Flag, Model, Mutant, Parts, at_rest, done, fall_asleep, refuse_threads, runtime, together,
    together_with_us,
};
use crate::{Runtime, go, yield_now};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Submits a goroutine, and keeps the P until that goroutine has run.
pub(super) fn go_and_stay() {
    let ran = Flag::default();
    let raised = ran.clone();
    drop(go(move || raised.raise()));
    ran.wait_on_thread();
}

/// One M gives up while a goroutine on the other M submits, `times` times, and keeps its P each time until the submitted
/// goroutine has run.
pub(super) fn submit_beside_an_m_that_gives_up(runtime: &Runtime, times: usize) {
    let submit = move || {
        (0..times).for_each(|_| go_and_stay());
        done();
    };
    let [submitter, _] = together(runtime, [Box::new(submit), Box::new(|| ())]);
    submitter.join().unwrap();
}

/// A goroutine queues another one by `queue`, and yields; the queued goroutine keeps its M until the first has run on. The
/// other M gives up.
pub(super) fn yield_before_a_goroutine_that_stays(
    runtime: &Runtime,
    queue: impl FnOnce(Box<dyn FnOnce() + Send>) + Send + 'static,
) {
    let yields = move || {
        let ran_on = Flag::default();
        let waits = ran_on.clone();
        queue(Box::new(move || waits.wait_on_thread()));
        yield_now();
        ran_on.raise();
        done();
    };
    let [yields, _] = together(runtime, [Box::new(yields), Box::new(|| ())]);
    yields.join().unwrap();
}

/// One M gives up while a goroutine on the other M submits twice: the counts that the first submission leaves must not lose the
/// second one.
#[test]
fn a_goroutine_submitted_while_the_last_spinner_gives_up_is_run() {
    Model::new().check("submit_vs_last_spinner", || {
        let runtime = runtime(2, 2);
        submit_beside_an_m_that_gives_up(&runtime, 2);
    });
}

/// As `a_goroutine_submitted_while_the_last_spinner_gives_up_is_run`, with a thief that leaves the goroutine to its
/// owner, which stays: the thief gives up, and its look after that sees the goroutine still there.
#[test]
fn a_goroutine_that_a_thief_has_left_to_its_owner_is_run() {
    Model::new().with_refusals(1).check("refused_thief_vs_owner", || {
        let runtime = runtime(2, 2);
        submit_beside_an_m_that_gives_up(&runtime, 1);
    });
}

/// As `a_goroutine_that_a_thief_has_left_to_its_owner_is_run`, in the ring instead of `runnext`: the second goroutine
/// displaces the first into the ring, and is not run before it.
#[test]
fn a_goroutine_in_the_ring_is_run_while_the_last_spinner_gives_up() {
    Model::new().check("ring_vs_last_spinner", || {
        let runtime = runtime(2, 2);
        let [submitter, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let (both, flags) = (Parts::of(2), [Flag::default(), Flag::default()]);
                    for flag in flags.clone() {
                        let both = both.clone();
                        drop(go(move || {
                            both.held();
                            flag.raise();
                        }));
                    }
                    flags.iter().for_each(Flag::wait_on_thread);
                }),
                Box::new(|| ()),
            ],
        );
        submitter.join().unwrap();
    });
}

/// As `a_goroutine_in_the_ring_is_run_while_the_last_spinner_gives_up`, with two goroutines that one close readies at once.
#[test]
fn goroutines_that_one_close_readies_are_run_while_the_last_spinner_gives_up() {
    Model::new().check("readied_vs_last_spinner", || {
        let runtime = runtime(2, 2);
        let (end, ended) = bounded::<()>(0);
        let flags = [Flag::default(), Flag::default()];
        let raised = flags.clone();
        for flag in flags {
            let ended = ended.clone();
            drop(runtime.go(move || {
                assert!(ended.recv().is_err());
                flag.raise();
            }));
        }
        fall_asleep::<2>(&runtime);
        let close = move || {
            drop(end);
            raised.iter().for_each(Flag::wait_on_thread);
            done();
        };
        let [closer, _] = together(&runtime, [Box::new(close), Box::new(|| ())]);
        closer.join().unwrap();
    });
}

/// A thread that is no M submits, through the global queue.
#[test]
fn work_from_a_thread_is_run_while_the_only_m_goes_idle() {
    Model::new().check("global_vs_idle", || {
        let runtime = runtime(1, 1);
        let [first] = together_with_us(&runtime, [Box::new(|| ())]);
        // The M is at some step between its goroutine and its sleep.
        assert_eq!(runtime.go(|| 2).join().unwrap(), 2);
        done();
        first.join().unwrap();
    });
}

/// As `work_from_a_thread_is_run_while_the_only_m_goes_idle`, while another M sleeps already.
#[test]
fn work_from_a_thread_is_run_while_the_last_of_two_ms_goes_idle() {
    Model::new().preemptions(1).check("global_vs_last_idle", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        fall_asleep::<2>(&runtime);
        let work = handle.make(done);
        let [_last] = together_with_us(&runtime, [Box::new(|| ())]);
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
    });
}

#[test]
fn work_from_two_threads_is_run() {
    Model::new().preemptions_by_default(1).check("two_submitters", || {
        let runtime = Arc::new(runtime(1, 1));
        fall_asleep::<1>(&runtime);
        let both = Parts::of(2);
        loom::explore();
        let other = loom::thread::spawn({
            let (runtime, both) = (Arc::clone(&runtime), both.clone());
            move || runtime.go(move || both.held()).join().unwrap()
        });
        runtime.go(move || both.held()).join().unwrap();
        other.join().unwrap();
    });
}

/// Makes two goroutines; the one that is taken first keeps its M until the other has run. The search ends when both
/// have.
fn two_that_need_two_ms(handle: &Handle) -> [Made; 2] {
    let flag = Flag::default();
    let waits = flag.clone();
    let first = handle.make(move || {
        waits.wait_on_thread();
        done();
    });
    [first, handle.make(move || flag.raise())]
}

/// Two goroutines are injected while all Ms sleep: one M is woken for both, and wakes the next when it has found
/// work.
#[test]
fn an_m_that_finds_work_wakes_the_next() {
    Model::new().check("spinner_finds_work", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        fall_asleep::<2>(&runtime);
        let two = two_that_need_two_ms(&handle);
        loom::explore();
        for one in handle.inject(two) {
            one.join().unwrap();
        }
    });
}

/// A goroutine is injected while all Ms sleep, and another one while the M that was woken finds the first. Fails by deadlock
/// when that M looks for more work while it still counts as spinning: a submitter may leave the second goroutine to the M after
/// that look.
#[test]
fn what_is_left_to_a_spinner_that_finds_work_is_run() {
    Model::new().check("spinner_finds_work_vs_thread", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        fall_asleep::<2>(&runtime);
        let [first, second] = two_that_need_two_ms(&handle);
        loom::explore();
        let submitted = [handle.inject([first]), handle.inject([second])];
        for one in submitted.into_iter().flatten() {
            one.join().unwrap();
        }
    });
}

/// As `what_is_left_to_a_spinner_that_finds_work_is_run`, but a goroutine that keeps its M submits the second one, which stands
/// in that M's ring. Fails by deadlock when the M that finds the first reads the ring before others see that it no longer
/// spins.
#[test]
fn what_is_left_in_a_ring_to_a_spinner_that_finds_work_is_run() {
    Model::new().preemptions(1).check("spinner_finds_work_vs_ring", || {
        let runtime = runtime(3, 3);
        let handle = Handle::of(&runtime);
        fall_asleep::<3>(&runtime);
        let ran = Flag::default();
        let (stays, raised) = (ran.clone(), ran.clone());
        let first = handle.make(move || stays.wait_on_thread());
        let submitter = runtime.go(move || {
            loom::explore();
            let _first = handle.inject([first]);
            drop(go(move || {
                done();
                raised.raise();
            }));
            ran.wait_on_thread();
        });
        submitter.join().unwrap();
    });
}

/// Two goroutines are injected while one M sleeps and the other gives up. The sleeper is woken, takes both, and finds no idle P
/// for the second goroutine; meanwhile the other M has seen it spin, and so has not begun to spin itself. The other M has to
/// look again all the same, and to spin then: else it finds that an M spins already, gives up, sees the work, and so on.
#[test]
fn an_m_that_did_not_spin_looks_again() {
    Model::new().preemptions(1).check("no_spinner_gives_up", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        fall_asleep::<2>(&runtime);
        let two = two_that_need_two_ms(&handle);
        let [_gives_up] = together_with_us(&runtime, [Box::new(|| ())]);
        for one in handle.inject(two) {
            one.join().unwrap();
        }
    });
}

/// A goroutine that yields is queued, and no M is woken for it; the goroutine that takes its place keeps the M until
/// the first has run on.
#[test]
fn a_goroutine_that_yields_is_run_elsewhere() {
    Model::new().check("gosched", || {
        let runtime = runtime(2, 2);
        let [yields, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let ran_on = Flag::default();
                    let waits = ran_on.clone();
                    drop(go(move || waits.wait_on_thread()));
                    crate::yield_now();
                    ran_on.raise();
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        yields.join().unwrap();
    });
}

/// An M gives up while a goroutine of another comes back from a blocking call, takes the idle P, and submits: it finds the
/// first M spinning and leaves the submitted goroutine to that M. Fails by deadlock when the first M passes the P over, because
/// the P was idle a moment before.
#[test]
fn work_of_a_p_that_was_idle_is_seen() {
    Model::new().check("idle_p_snapshot", || {
        let runtime = runtime(2, 3);
        let handle = Handle::of(&runtime);
        let (away, back) = (Flag::default(), Flag::default());
        let _gives_up = runtime.go({
            let (away, back) = (away.clone(), back.clone());
            move || {
                away.wait_on_thread();
                loom::explore();
                back.raise();
            }
        });
        let submitter = runtime.go(move || {
            crate::blocking(|| {
                // A third M is sent to the poller, as no other waits there.
                handle.await_poller();
                away.raise();
                back.wait_on_thread();
            });
            go_and_stay();
            done();
        });
        submitter.join().unwrap();
    });
}

/// A submitter has seen an idle P and counts the M that it is about to wake as spinning; a goroutine that comes back from a
/// blocking call takes that P, ends, and leaves the P idle. Fails by deadlock when the count stays, or stays too long: the next
/// submitter, a thread, believes that an M looks for work.
#[test]
fn a_submission_that_finds_no_p_after_all_leaves_no_count() {
    Model::new().preemptions(2).check("claim_in_vain", || {
        let runtime = runtime(2, 3);
        let handle = Handle::of(&runtime);
        let (there, go_on) = (Flag::default(), Flag::default());
        let (ran, ended) = (Flag::default(), Flag::default());
        let submitter = runtime.go({
            let (there, go_on, raised) = (there.clone(), go_on.clone(), ran.clone());
            let ended = ended.clone();
            move || {
                there.raise();
                go_on.wait_on_thread();
                drop(go(move || raised.raise()));
                ended.wait_on_thread();
            }
        });
        let comes_back = runtime.go({
            let handle = handle.clone();
            move || {
                crate::blocking(|| {
                    // A third M is sent to the poller, as no other waits there.
                    handle.await_poller();
                    there.wait_on_thread();
                    loom::explore();
                    go_on.raise();
                });
            }
        });
        let work = handle.make(done);
        ran.wait_on_thread();
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
        ended.raise();
        comes_back.join().unwrap();
        submitter.join().unwrap();
    });
}

/// There are more Ps than Ms: one P is always idle, so each submitter looks for an M for that P, also beside an M that has just
/// stood by and sees work after all. Fails by deadlock when that M takes another P than it was given, or when the P for which
/// no M was found is neither held nor idle.
#[test]
fn a_p_without_an_m_changes_nothing() {
    Model::new().preemptions(1).check("spare_p", || {
        let runtime = runtime(3, 2);
        submit_beside_an_m_that_gives_up(&runtime, 2);
    });
}

/// Two Ms give up at the same moment, and a thread submits. Fails by deadlock when each leaves the goroutine, or the
/// poller, to the other.
#[test]
fn work_from_a_thread_is_run_while_two_ms_go_idle() {
    Model::new().preemptions(1).check("global_vs_two_idle", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let work = handle.make(done);
        let _both = together_with_us(&runtime, [Box::new(|| ()), Box::new(|| ())]);
        for one in handle.inject([work]) {
            one.join().unwrap();
        }
    });
}

/// An M is to be started for a P with work, and the start is refused. Meanwhile another M's goroutine comes back from a
/// blocking call, finds no P, and stands in the global queue. Fails by deadlock when no M is woken for it then.
#[test]
fn what_came_while_a_p_waited_for_an_m_that_did_not_start_is_run() {
    Model::new().preemptions(1).check("refused_start_with_p", || {
        let runtime = runtime(1, 3);
        let [away, there, back]: [Flag; 3] = Default::default();
        let _comes_back = runtime.go({
            let [away, there, back] = [&away, &there, &back].map(Flag::clone);
            move || {
                blocking_here(|| {
                    away.raise();
                    there.wait_on_thread();
                });
                back.raise();
            }
        });
        let gives = runtime.go(move || {
            away.wait_on_thread();
            refuse_threads();
            drop(go(|| ()));
            loom::explore();
            there.raise();
            blocking_here(|| back.wait_on_thread());
            done();
        });
        gives.join().unwrap();
    });
}

/// An M is to be started for a new P, and counts as spinning. Meanwhile the other M goes idle, and a thread submits; the start
/// is refused. Fails by deadlock when no M is woken then; by an assertion when the claim to spin that the idle M has taken over
/// is given back once more.
#[test]
fn what_was_left_to_an_m_that_did_not_start_is_run() {
    Model::new().preemptions(1).check("refused_start", || {
        let runtime = runtime(2, 3);
        let handle = Handle::of(&runtime);
        let (there, go_on) = (Flag::default(), Flag::default());
        let (ended, ran) = (Flag::default(), Flag::default());
        let _goes_idle = runtime.go({
            let (there, go_on, ended) = (there.clone(), go_on.clone(), ended.clone());
            move || {
                there.raise();
                go_on.wait_on_thread();
                ended.raise();
            }
        });
        let raised = ran.clone();
        let work = handle.make(move || {
            done();
            raised.raise();
        });
        let stays = runtime.go(move || {
            there.wait_on_thread();
            refuse_threads();
            loom::explore();
            go_on.raise();
            crate::set_procs(3);
            ran.wait_on_thread();
        });
        ended.wait_on_thread();
        let _submitted = handle.inject([work]);
        stays.join().unwrap();
    });
}

/// Fails by deadlock when the end of a runtime and an M that goes idle miss each other.
#[test]
fn a_runtime_ends_while_its_m_goes_idle() {
    Model::new().check("shutdown_vs_idle", || {
        let runtime = runtime(1, 1);
        loom::explore();
        drop(runtime.go(|| ()));
        drop(runtime);
    });
}

/// Fails when the end of the runtime waits for a parked goroutine, or the goroutine's joiner is not told.
#[test]
fn a_runtime_ends_with_a_parked_goroutine_whose_joiner_is_told() {
    Model::new().check("shutdown_with_parked", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let parked = runtime.go(super::cover::park_for_ever);
        let joiner = loom::thread::spawn(move || assert!(parked.join().unwrap_err().is_shutdown()));
        loom::explore();
        super::cover::leave(runtime, std::time::Duration::from_secs(1));
        joiner.join().unwrap();
    });
}

/// A goroutine spawns another one while a thread ends the runtime without waiting, and keeps its M until that thread has heard
/// of the other one's end. Fails by deadlock when neither the submitter sees that the runtime ends, nor the ender sees the
/// submitted goroutine.
#[test]
fn a_goroutine_made_while_the_runtime_ends_is_not_forgotten() {
    Model::new().check("spawn_vs_end", || {
        let runtime = runtime(1, 1);
        let made = Arc::new(Mutex::new(None));
        let (there, told) = (Flag::default(), Flag::default());
        let [_maker] = together_with_us(
            &runtime,
            [{
                let (made, there, told) = (Arc::clone(&made), there.clone(), told.clone());
                Box::new(move || {
                    let handle = go(|| ());
                    *made.lock().unwrap() = Some(handle);
                    there.raise();
                    told.wait_on_thread();
                })
            }],
        );
        runtime.shutdown(Duration::ZERO);
        there.wait_on_thread();
        let handle = made.lock().unwrap().take().unwrap();
        assert!(handle.join().unwrap_err().is_shutdown());
        done();
        told.raise();
    });
}

/// A goroutine spawns more than a ring holds, and keeps its M until all have run: half of the ring goes into the global queue.
/// Fails when no M finds these goroutines there.
#[test]
fn what_a_ring_can_not_hold_is_run() {
    Model::new().preemptions(0).check("overflow", || {
        let runtime = runtime(2, 2);
        let [maker, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let flags: [Flag; 6] = std::array::from_fn(|_| Flag::default());
                    for flag in &flags {
                        let raised = flag.clone();
                        drop(go(move || raised.raise()));
                    }
                    flags.iter().for_each(Flag::wait_on_thread);
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        maker.join().unwrap();
    });
}

/// The scene of the next model, and of one of `help`: one M has three goroutines in its ring, and another M takes two of them
/// once its own goroutine has ended, or in `takes`.
pub(super) fn two_of_three_are_taken(takes: impl FnOnce() + Send + 'static) {
    let runtime = runtime(2, 2);
    let [there, queued, go_on, second]: [Flag; 4] = Default::default();
    let ran = second.clone();
    let owner = runtime.go({
        let (there, queued, go_on) = (there.clone(), queued.clone(), go_on.clone());
        move || {
            there.wait_on_thread();
            let raises = second.clone();
            drop(go(move || second.wait_on_thread()));
            drop(go(move || {
                done();
                raises.raise();
            }));
            drop(go(|| ()));
            // This goroutine displaces the last one from `runnext` into the ring.
            drop(go(|| ()));
            queued.raise();
            go_on.wait_on_thread();
        }
    });
    let busy = runtime.go(move || {
        there.raise();
        queued.wait_on_thread();
        // The search begins with the theft.
        loom::explore();
        go_on.raise();
        takes();
    });
    ran.wait_on_thread();
    owner.join().unwrap();
    busy.join().unwrap();
}

/// A thief takes two goroutines of three and runs the first, which keeps its M until the second has run. Meanwhile the owner
/// runs the third, finds no other goroutine, as the thief has the second in hand, and gives up. Fails by deadlock when the
/// thief, which no submitter has summoned, wakes no M for the goroutine that it has put into its own queue.
#[test]
fn what_a_thief_queues_is_run_by_an_m_that_gave_up() {
    Model::new().preemptions(1).check("thief_vs_idle", || two_of_three_are_taken(|| ()));
}

#[test]
fn mutants() {
    const SPINNER: &str = "a_goroutine_submitted_while_the_last_spinner_gives_up_is_run";
    const RING: &str = "a_goroutine_in_the_ring_is_run_while_the_last_spinner_gives_up";
    const EACH: &str = "goroutines_that_one_close_readies_are_run_while_the_last_spinner_gives_up";
    const ONE: &str = "work_from_a_thread_is_run_while_the_only_m_goes_idle";
    const FOUND: &str = "an_m_that_finds_work_wakes_the_next";
    const LEFT: &str = "what_is_left_to_a_spinner_that_finds_work_is_run";
    const UNSPUN: &str = "an_m_that_did_not_spin_looks_again";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SubmitNoFence, SPINNER),
            (Mutant::SubmitEachNoFence, EACH),
            (Mutant::SubmitEachWakesFirst, EACH),
            (Mutant::IdleNoFence, SPINNER),
            (Mutant::DisplacedAfterFence, RING),
            (Mutant::IdleNoFence, RING),
            (Mutant::IdleNoRecheck, SPINNER),
            (Mutant::IdleNoRecheck, "a_goroutine_that_a_thief_has_left_to_its_owner_is_run"),
            (Mutant::IdleLooksFirst, SPINNER),
            (Mutant::SubmitNoWake, SPINNER),
            (Mutant::SubmitWakeFirst, SPINNER),
            (Mutant::SubmitNoBreak, SPINNER),
            (Mutant::WakepLeaksSpinning, "a_submission_that_finds_no_p_after_all_leaves_no_count"),
            (Mutant::WakepUndoesLate, "a_submission_that_finds_no_p_after_all_leaves_no_count"),
            (Mutant::RecheckTakesAnyP, "a_p_without_an_m_changes_nothing"),
            (Mutant::TakeBackLeaksSpinning, "a_p_without_an_m_changes_nothing"),
            (
                Mutant::RefusedStartWakesNobody,
                "what_came_while_a_p_waited_for_an_m_that_did_not_start_is_run",
            ),
            (Mutant::TakeBackTakesTwice, "what_was_left_to_an_m_that_did_not_start_is_run"),
            (Mutant::IdleKeepsTheSurplus, "a_runtime_ends_while_its_m_goes_idle"),
            (Mutant::StartForgetsSpinning, SPINNER),
            (Mutant::RunnextNeverStolen, SPINNER),
            (Mutant::EmptyIgnoresRunnext, SPINNER),
            (Mutant::SpawnOutsideWakesNobody, ONE),
            (Mutant::WakepWakesNobody, ONE),
            (Mutant::WakepWakesNobody, "work_from_a_thread_is_run_while_the_last_of_two_ms_goes_idle"),
            (Mutant::IdleSkipsGlobal, ONE),
            (Mutant::ArrivalsUnseen, LEFT),
            (Mutant::InjectWakesNobody, FOUND),
            (Mutant::SpinnerWakesNobody, FOUND),
            (Mutant::SpinnerSkipsGlobal, LEFT),
            (Mutant::SpinnerLooksFirst, LEFT),
            (Mutant::SpinnerNoFence, "what_is_left_in_a_ring_to_a_spinner_that_finds_work_is_run"),
            (Mutant::ThiefDoesNotSpin, "what_a_thief_queues_is_run_by_an_m_that_gave_up"),
            (Mutant::IdleOnlySpinnersLook, UNSPUN),
            (Mutant::RecheckDoesNotSpin, UNSPUN),
            (Mutant::StopNoFence, "a_goroutine_made_while_the_runtime_ends_is_not_forgotten"),
            (Mutant::SubmitNoFence, "a_goroutine_made_while_the_runtime_ends_is_not_forgotten"),
            (Mutant::MaskReadEarly, "work_of_a_p_that_was_idle_is_seen"),
            (Mutant::SpillKeepsTheLength, "what_a_ring_can_not_hold_is_run"),
        ],
    );
}
