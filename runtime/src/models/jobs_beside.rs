//! Jobs beside the other work of a scheduler: visits, Ps that retire or are taken, classes, the end of the runtime.

use super::caught;
use super::cover::{Handle, Held};
use super::procs::{First, one_on, one_p};
use super::visits::have_no_m_poll;
use crate::model::{Body, Flag, Model, Mutant, at_rest, done, runtime, together};
use crate::sync::Event;
use crate::{Builder, Priority, blocking, go, join, set_priority, yield_now};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A visit queues a job behind a goroutine that keeps the M until the job has run. The other M sleeps, as if it had looked at
/// the ring before the visit, and at the jobs after it. Fails by deadlock when no M is woken.
#[test]
fn a_job_that_a_visit_has_queued_is_run_by_another_m() {
    Model::new().preemptions(1).check("visit_queues_job", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let handle = Handle::of(&runtime);
        let keeps = runtime.go(move || {
            have_no_m_poll(&handle);
            let ran = Flag::default();
            let raises = ran.clone();
            handle.put_job_in_silence(handle.make(move || raises.raise()));
            handle.have_a_visit_come();
            loom::explore();
            yield_now();
            ran.wait_on_thread();
            done();
        });
        keeps.join().unwrap();
    });
}

/// A job is put in on a surplus P, whose M leaves, while the M of the other P goes idle, or sleeps: it may have looked at that
/// P before. Fails by deadlock when no M looks at the jobs of a P that has retired.
#[test]
fn a_job_of_a_p_that_retires_is_run() {
    Model::new().preemptions_by_default(1).check("job_vs_shrink", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let ran = Flag::default();
        let raised = ran.clone();
        let queued = handle.make(move || raised.raise());
        let puts_in = move || handle.put_job_in_silence(queued);
        let bodies: [Body; 2] = [Box::new(puts_in), Box::new(|| ())];
        let _both = one_on(1, &runtime, (First::Elsewhere, one_p), bodies);
        ran.wait_on_thread();
        done();
    });
}

/// A forker parks in its own branch, and its P, which is surplus by then, retires with the record. Fails by deadlock when the
/// other branch, for which the forker waits, is not begun.
#[test]
fn a_forker_whose_p_retires_has_its_branch_begun() {
    Model::new().preemptions(1).check("fork_vs_shrink", || {
        let runtime = runtime(2, 2);
        let forks = || {
            let event = Event::new();
            join(|| event.wait(), || event.notify_one());
            done();
        };
        let bodies: [Body; 2] = [Box::new(forks), Box::new(|| ())];
        let both = one_on(1, &runtime, (First::There, one_p), bodies);
        both.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// The P of a forker that runs on in its own branch is taken, and no other goroutine is queued; an M waits in the poller. The
/// forker's branch ends when the other one has run. Fails by deadlock when the P becomes idle with the record, and no M looks
/// at the record.
#[test]
fn a_job_is_begun_when_its_forkers_p_is_taken() {
    Model::new().with_retaker().check("retake_in_a", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let forker = runtime.go(move || {
            blocking(|| handle.await_poller());
            let (held, ran) = (Held::current(), Flag::default());
            let own = || {
                loom::explore();
                let retaker = loom::thread::spawn(move || assert!(held.retake(), "the forker is away"));
                ran.wait_on_thread();
                retaker.join().unwrap();
            };
            join(own, || ran.raise());
            done();
        });
        forker.join().unwrap();
    });
}

fn forks_beside_a_retaker(retake: fn(Held) -> bool) {
    let runtime = runtime(1, 2);
    let counts = Arc::new([const { AtomicUsize::new(0) }; 3]);
    let forker = runtime.go({
        let counts = Arc::clone(&counts);
        move || {
            let count = |at: usize| {
                let counts = Arc::clone(&counts);
                move || {
                    counts[at].fetch_add(1, Relaxed);
                }
            };
            let (held, others) = (Held::current(), count(2));
            let next = go(move || {
                join(|| (), others);
            });
            loom::explore();
            let retaker = loom::thread::spawn(move || retake(held));
            // At most one of these forks finds the P lost.
            join(|| (), count(0));
            join(|| (), count(1));
            retaker.join().unwrap();
            next.join().unwrap();
        }
    });
    forker.join().unwrap();
    done();
    assert_eq!(counts.each_ref().map(|count| count.load(Relaxed)), [1; 3]);
}

/// A forker puts its record in, and comes back to it, while its P is taken: the next owner runs a goroutine that forks there,
/// too. Fails by an assertion, or in `put_in`, when a branch is run twice, or not at all, or one record is put over the other;
/// and by a causality violation when the forker puts its record into a P that is another M's.
#[test]
fn a_forker_whose_p_is_taken_comes_to_its_own_record() {
    let scene = || forks_beside_a_retaker(Held::retake);
    Model::new().with_retaker().preemptions(1).check("retake_vs_fork", scene);
}

/// As `a_forker_whose_p_is_taken_comes_to_its_own_record`, with a forker that has run for too long, and cedes the P if it forks
/// meanwhile.
#[test]
fn a_forker_that_cedes_its_p_comes_to_its_own_record() {
    let scene = || forks_beside_a_retaker(Held::demand);
    Model::new().with_retaker().preemptions(1).check("demand_vs_fork", scene);
}

/// A forker of a class keeps its P until its branch has run, while the other M gives up. Fails by deadlock when that M does not
/// come, or moves the branch to where no M looks; and by an assertion when the branch has another class.
#[test]
fn the_branch_of_a_forker_of_a_class_is_run_in_that_class() {
    for class in [Priority::High, Priority::Background] {
        Model::new().preemptions(1).check(&format!("class_{class}_forks"), move || {
            let runtime = runtime(2, 2);
            Handle::of(&runtime).use_classes();
            let [forker, _] = together(
                &runtime,
                [
                    Box::new(move || {
                        set_priority(class);
                        let ran = Flag::default();
                        let raises = ran.clone();
                        let both = join(
                            || ran.wait_on_thread(),
                            || {
                                raises.raise();
                                crate::priority()
                            },
                        );
                        assert_eq!(both.1, class);
                        done();
                    }),
                    Box::new(|| ()),
                ],
            );
            forker.join().unwrap();
        });
    }
}

/// A `Background` forker is parked in its own branch, and a `Low` goroutine is queued. Fails by the assertion of the order when
/// the branch, which is `Background`, too, goes first; and by deadlock when the branch is not run at all.
#[test]
fn a_branch_in_the_background_waits_for_low_goroutines() {
    Model::new().check("background_forks", || {
        let runtime = at_rest::<1>();
        let forker = runtime.go(|| {
            set_priority(Priority::Background);
            let order = Arc::new(Mutex::new(Vec::new()));
            let (first, event) = (Arc::clone(&order), Event::new());
            join(
                || {
                    let low = Builder::new().priority(Priority::Low);
                    drop(low.go(move || first.lock().unwrap().push("low")).unwrap());
                    event.wait();
                },
                || {
                    order.lock().unwrap().push("branch");
                    event.notify_one();
                },
            );
            assert_eq!(*order.lock().unwrap(), ["low", "branch"]);
            done();
        });
        forker.join().unwrap();
    });
}

/// A `High` forker yields in its own branch, again and again, and so runs before its record, which counts as `Normal` work.
/// Fails by an assertion when no visit brings the record in.
#[test]
fn a_visit_queues_the_job_of_a_forker_of_a_class() {
    Model::new().check("visit_takes_job_of_class", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        let forker = runtime.go(move || {
            set_priority(Priority::High);
            let ran = AtomicBool::new(false);
            join(
                || {
                    for _ in 0..3 {
                        handle.have_a_visit_come();
                        yield_now();
                    }
                    assert!(ran.load(Relaxed), "no visit has brought the job in");
                },
                || ran.store(true, Relaxed),
            );
            done();
        });
        forker.join().unwrap();
    });
}

/// A forker blocks its M in its own branch, at the limit of threads, and its P goes without an M. The goroutine of the other
/// P is always ready, and that P has a job of its own at each visit. Fails by an assertion when no visit of that P brings the
/// record in.
#[test]
fn a_visit_queues_the_job_of_a_p_that_has_no_m() {
    Model::new().check("left_job", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        let (ran, branch, assured) = (Flag::default(), Arc::new(AtomicBool::new(false)), Flag::default());
        let seen = Arc::clone(&branch);
        let (raises, ends) = (assured.clone(), ran.clone());
        let forks = move || {
            let own = || blocking(|| assured.wait_on_thread());
            join(own, || branch.store(true, Relaxed));
            ends.raise();
        };
        let stays = move || {
            while handle.count_ps()[1] == 0 {
                loom::thread::yield_now();
            }
            for _ in 0..3 {
                handle.put_job_in_silence(handle.make(|| ()));
                handle.have_a_visit_come();
                yield_now();
            }
            assert!(seen.load(Relaxed), "no visit has brought the job in");
            done();
            raises.raise();
        };
        let _both = together(&runtime, [Box::new(forks), Box::new(stays)]);
        ran.wait_on_thread();
    });
}

/// The end comes while a forker waits for a branch that another thread has taken, and of which that thread makes a goroutine.
/// Fails by a report that is not clean when the ender finds the forker alone, and leaves it.
#[test]
fn the_end_waits_for_a_job_that_is_starting() {
    Model::new().preemptions(2).check("starting_vs_end", || {
        let runtime = at_rest::<1>();
        loom::stop_exploring();
        let handle = Handle::of(&runtime);
        let (forked, taken, go_on) = (Flag::default(), Flag::default(), Flag::default());
        let _forker = runtime.go({
            let (forked, taken) = (forked.clone(), taken.clone());
            move || {
                let own = || {
                    forked.raise();
                    taken.wait_on_thread();
                };
                join(own, || ());
            }
        });
        let taker = loom::thread::spawn({
            let (handle, go_on) = (handle.clone(), go_on.clone());
            move || {
                forked.wait_on_thread();
                handle.take_a_job(|| {
                    taken.raise();
                    go_on.wait_on_thread();
                });
            }
        });
        while !handle.has_all_asleep() {
            loom::thread::yield_now();
        }
        loom::explore();
        go_on.raise();
        let report = runtime.shutdown(Duration::from_secs(1));
        done();
        assert!(report.is_clean(), "{report:?}");
        taker.join().unwrap();
    });
}

/// A goroutine leaves two jobs to its P, and blocks its M, at the limit of threads: the P goes without an M. The goroutine of
/// the other P is always ready. Fails by an assertion when no visit of that P brings the second job in.
#[test]
fn visits_queue_each_job_of_a_p_that_has_no_m() {
    Model::new().preemptions(1).check("left_jobs", || {
        let runtime = runtime(2, 2);
        let (handle, inner, ended) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let (ran, assured) = (Arc::new(AtomicUsize::new(0)), Flag::default());
        let (count, raises, ends) = (Arc::clone(&ran), assured.clone(), ended.clone());
        let leaves = move || {
            for _ in 0..2 {
                let count = Arc::clone(&count);
                inner.put_job_in_silence(inner.make(move || {
                    count.fetch_add(1, Relaxed);
                }));
            }
            blocking(|| assured.wait_on_thread());
            ends.raise();
        };
        let stays = move || {
            while handle.count_ps()[1] == 0 {
                loom::thread::yield_now();
            }
            for _ in 0..5 {
                handle.put_job_in_silence(handle.make(|| ()));
                handle.have_a_visit_come();
                yield_now();
            }
            assert_eq!(ran.load(Relaxed), 2, "no visit has brought the jobs in");
            done();
            raises.raise();
        };
        let _both = together(&runtime, [Box::new(leaves), Box::new(stays)]);
        ended.wait_on_thread();
    });
}

/// A P with a job is left without an M while the owner of the other P makes a visit. Fails by an assertion when neither that
/// visit nor a later one brings the job in.
#[test]
fn a_visit_beside_the_giving_away_leaves_no_job() {
    Model::new().preemptions(2).check("left_job_vs_visit", || {
        let runtime = runtime(2, 2);
        let (handle, inner, ended) = (Handle::of(&runtime), Handle::of(&runtime), Flag::default());
        let [there, gives, assured] = [(); 3].map(|()| Flag::default());
        let ran = Arc::new(AtomicBool::new(false));
        let _leaves = runtime.go({
            let [there, gives, assured, ended] = [&there, &gives, &assured, &ended].map(Flag::clone);
            let ran = Arc::clone(&ran);
            move || {
                inner.put_job_in_silence(inner.make(move || ran.store(true, Relaxed)));
                there.raise();
                gives.wait_on_thread();
                blocking(|| assured.wait_on_thread());
                ended.raise();
            }
        });
        let _visitor = runtime.go(move || {
            there.wait_on_thread();
            handle.have_a_visit_come();
            loom::explore();
            gives.raise();
            yield_now();
            while handle.count_ps()[1] == 0 && !ran.load(Relaxed) {
                loom::thread::yield_now();
            }
            for _ in 0..3 {
                handle.put_job_in_silence(handle.make(|| ()));
                handle.have_a_visit_come();
                yield_now();
            }
            assert!(ran.load(Relaxed), "no visit has brought the job in");
            done();
            assured.raise();
        });
        ended.wait_on_thread();
    });
}

/// A forker blocks its M in its own branch, at the limit of threads, and its P goes without an M. A visit of the other P takes
/// the job, and the forker, which comes back, waits for the goroutine that the visit is to make of it, as the end comes. Fails
/// by a report that is not clean when the ender finds the forker alone, and leaves it.
#[test]
fn the_end_waits_for_a_job_that_a_visit_brings() {
    Model::new().preemptions(0).check("visit_vs_end", || {
        let runtime = runtime(2, 2);
        let (handle, [there, taken]) = (Handle::of(&runtime), [(); 2].map(|()| Flag::default()));
        let _forker = runtime.go({
            let (there, taken) = (there.clone(), taken.clone());
            move || {
                there.wait_on_thread();
                join(|| blocking(|| taken.wait_on_thread()), || ());
            }
        });
        let visits = Flag::default();
        let _visitor = runtime.go({
            let visits = visits.clone();
            move || {
                there.raise();
                while handle.count_ps()[1] == 0 {
                    loom::thread::yield_now();
                }
                handle.have_a_visit_come();
                loom::explore();
                visits.raise();
            }
        });
        visits.wait_on_thread();
        taken.raise();
        let report = runtime.shutdown(Duration::from_secs(1));
        done();
        assert!(report.is_clean(), "{report:?}");
    });
}

#[test]
fn mutants() {
    const STARTING: &str = "the_end_waits_for_a_job_that_is_starting";
    const TAKEN: &str = "a_job_is_begun_when_its_forkers_p_is_taken";
    const LEFT: &str = "a_visit_beside_the_giving_away_leaves_no_job";
    const OF_CLASS: &str = "the_branch_of_a_forker_of_a_class_is_run_in_that_class";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::QueuedJobWakesNobody, "a_job_that_a_visit_has_queued_is_run_by_another_m"),
            (Mutant::JobsOfTheRetiredLeft, "a_job_of_a_p_that_retires_is_run"),
            (Mutant::JobsOfTheRetiredUnseen, "a_forker_whose_p_retires_has_its_branch_begun"),
            (Mutant::LeaveSurplusAsksForNone, "a_job_of_a_p_that_retires_is_run"),
            (Mutant::JobsOfTheIdleUnseen, TAKEN),
            (Mutant::HandoffpNoRecheck, TAKEN),
            (Mutant::WindowBlind, "a_forker_whose_p_is_taken_comes_to_its_own_record"),
            (Mutant::JobForgetsTheClass, OF_CLASS),
            (Mutant::JobsUnseenAtTheLastLook, OF_CLASS),
            (Mutant::JobsOfTheLowerGoFirst, "a_branch_in_the_background_waits_for_low_goroutines"),
            (Mutant::VisitLeavesJobs, "a_visit_queues_the_job_of_a_forker_of_a_class"),
            (Mutant::LeftJobsUnnoted, "a_visit_queues_the_job_of_a_p_that_has_no_m"),
            (Mutant::LeftJobsComeLast, "a_visit_queues_the_job_of_a_p_that_has_no_m"),
            (Mutant::LeftJobsNotedFirst, LEFT),
            (Mutant::LeftJobsNotedRelaxed, LEFT),
            (Mutant::LeftJobsTakenRelaxed, LEFT),
            (Mutant::LeftJobsOnlyOne, "visits_queue_each_job_of_a_p_that_has_no_m"),
            (Mutant::EndOverlooksStarting, STARTING),
            (Mutant::StolenJobStartsUnseen, STARTING),
            (Mutant::QueuedJobStartsUnseen, "the_end_waits_for_a_job_that_a_visit_brings"),
            (Mutant::StartingEndsRelaxed, STARTING),
            (Mutant::EndLooksForStartingRelaxed, STARTING),
        ],
    );
}
