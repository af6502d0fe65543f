//! Jobs: a record that no M takes goes back to its forker; a branch whose record an M takes is run once, and the forker goes on
//! only after that, however it leaves its own branch.
//!
//! *Modelled*: forkers, thieves, an owner that visits, and the end of the runtime. *Left out*: classes, and Ps that retire or
//! are taken (`models/jobs_beside.rs`); the slots alone (`models/jobs_slots.rs`). *The mutants* take out SubmitFence, the looks
//! at jobs before an M sleeps or a P goes idle, the look of a forker before it waits, and the orderings of a record's end.
//! *Failures*: a branch that is never begun, or a forker that is never woken, is a deadlock; a record that is read early is a
//! causality violation.

use super::caught;
use super::cover::Handle;
use crate::model::{Flag, Model, Mutant, at_rest, done, runtime, together};
use crate::sync::Event;
use crate::{fork_scope, go, go_lifo, goexit, join, yield_now};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Counts how often an action was done. loom does not see the count.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

impl Count {
    fn add(&self) {
        self.0.fetch_add(1, Relaxed);
    }
    fn get(&self) -> usize {
        self.0.load(Relaxed)
    }
}

/// A forker parks in its own branch, and is the only goroutine. Fails by deadlock when the P's M does not begin the other
/// branch, for which the forker waits; or when the forker, which comes to the end first, is not woken.
#[test]
fn a_job_is_begun_by_its_own_p_while_the_forker_is_parked() {
    Model::new().check("park_in_a", || {
        let runtime = at_rest::<1>();
        let forker = runtime.go(|| {
            let event = Event::new();
            let both = join(
                || {
                    event.wait();
                    1
                },
                || {
                    event.notify_one();
                    yield_now();
                    2
                },
            );
            assert_eq!(both, (1, 2));
            done();
        });
        forker.join().unwrap();
    });
}

/// A goroutine forks, and keeps its P until the other branch has run, while the other M gives up. Fails by deadlock when that M
/// is not woken, or does not look at jobs in its last look; and by a causality violation when the taker, or the forker, reads a
/// part of the record that was not handed to it.
#[test]
fn a_job_is_taken_while_the_last_spinner_gives_up() {
    Model::new().check("fork_vs_last_spinner", || {
        let runtime = runtime(2, 2);
        let [forker, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let (ran, mut value) = (Flag::default(), 1);
                    let raises = ran.clone();
                    let both = join(
                        || ran.wait_on_thread(),
                        || {
                            value += 1;
                            raises.raise();
                            value
                        },
                    );
                    assert_eq!(both, ((), 2));
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        forker.join().unwrap();
    });
}

/// As `a_job_is_taken_while_the_last_spinner_gives_up`, for a goroutine that stands among the jobs.
#[test]
fn a_goroutine_of_go_lifo_is_run_while_the_last_spinner_gives_up() {
    Model::new().preemptions(1).check("lifo_vs_last_spinner", || {
        let runtime = runtime(2, 2);
        let [spawner, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let ran = Flag::default();
                    let raises = ran.clone();
                    drop(go_lifo(move || raises.raise()));
                    ran.wait_on_thread();
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        spawner.join().unwrap();
    });
}

/// Two branches of a scope keep an M each. Fails by deadlock when one of them is not begun.
#[test]
fn two_branches_of_a_scope_are_begun() {
    Model::new().preemptions(1).check("fork_scope", || {
        let runtime = runtime(2, 2);
        let [forker, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let (first, second) = (Flag::default(), Flag::default());
                    let count = Count::default();
                    fork_scope(|s| {
                        s.fork(|| count.add());
                        s.fork(|| {
                            first.raise();
                            second.wait_on_thread();
                        });
                        first.wait_on_thread();
                        second.raise();
                    });
                    assert_eq!(count.get(), 1);
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        forker.join().unwrap();
    });
}

/// A forker blocks its thread in its own branch, and gives the P away; an M waits in the poller. Fails by deadlock when the P
/// becomes idle and no M looks at the job that stands there.
#[test]
fn a_job_is_begun_when_its_forker_gives_the_p_away() {
    Model::new().check("blocking_in_a", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let forker = runtime.go(move || {
            crate::blocking(|| handle.await_poller());
            let ran = Flag::default();
            loom::explore();
            join(|| crate::blocking(|| ran.wait_on_thread()), || ran.raise());
            done();
        });
        forker.join().unwrap();
    });
}

/// Two goroutines of one P fork, and each comes to the end of its branch while the other's record stands in the slots, in front
/// of its own or behind it. Fails when one record is put over the other, or when a branch runs twice or not at all.
#[test]
fn records_of_two_goroutines_on_one_p_are_told_apart() {
    Model::new().check("two_forkers", || {
        let runtime = at_rest::<1>();
        let first = runtime.go(|| {
            let counts = [Count::default(), Count::default()];
            let (mine, others) = (counts[0].clone(), counts[1].clone());
            let (second, ()) = join(
                move || {
                    let second = go(move || {
                        join(yield_now, || others.add());
                    });
                    yield_now();
                    second
                },
                || mine.add(),
            );
            second.join().unwrap();
            assert_eq!(counts.map(|count| count.get()), [1, 1]);
            done();
        });
        first.join().unwrap();
    });
}

/// A record was taken, and another goroutine's record stands in the same slot, when the forker comes to the end of its branch.
/// Fails by an assertion when the forker withdraws the other goroutine's record.
#[test]
fn a_slot_that_holds_anothers_record_is_not_the_forkers_any_more() {
    Model::new().check("slot_used_again", || {
        let runtime = at_rest::<1>();
        let forker = runtime.go(|| {
            let (event, count) = (Arc::new(Event::new()), Count::default());
            let (wakes, counts) = (Arc::clone(&event), count.clone());
            join(
                || event.wait(),
                // The P's M begins this branch. The second forker's record comes into the slot of this one.
                || {
                    counts.add();
                    drop(go(move || {
                        join(
                            || {
                                wakes.notify_one();
                                // The first yield ends the slice of `runnext`.
                                yield_now();
                                yield_now();
                            },
                            || (),
                        );
                    }));
                },
            );
            assert_eq!(count.get(), 1);
            done();
        });
        forker.join().unwrap();
    });
}

/// A forker leaves its own branch by an unwinding while a thief comes. The branch is run once or not at all.
#[test]
fn an_unwinding_forker_withdraws_its_record_or_waits() {
    Model::new().preemptions(1).check("unwinding_vs_theft", || {
        let runtime = runtime(2, 2);
        let (begun, over) = (Count::default(), Count::default());
        let counts = (begun.clone(), over.clone());
        let [forker, _] = together(
            &runtime,
            [
                Box::new(move || {
                    let value = Borrowed(loom::cell::UnsafeCell::new(1));
                    join(
                        || goexit(),
                        || {
                            counts.0.add();
                            let value = &value;
                            // SAFETY: the forker writes to the cell in its drop alone, after this.
                            value.0.with(|value| assert_eq!(unsafe { *value }, 1));
                            counts.1.add();
                        },
                    );
                }),
                Box::new(|| ()),
            ],
        );
        assert!(forker.join().unwrap_err().is_goexit());
        assert_eq!(begun.get(), over.get());
        assert!(begun.get() <= 1);
    });
}

/// A value that a branch borrows from its forker's frames.
struct Borrowed(loom::cell::UnsafeCell<u32>);
// SAFETY: the cell checks that the accesses are ordered.
unsafe impl Sync for Borrowed {}

impl Drop for Borrowed {
    fn drop(&mut self) {
        // SAFETY: the branch reads the cell no more; loom checks that.
        self.0.with_mut(|value| unsafe { *value = 0 });
        done();
    }
}

/// Checks, as a forker's frames go, that the branch that borrows from them is over.
struct Frames {
    over: Count,
}

impl Drop for Frames {
    fn drop(&mut self) {
        assert_eq!(self.over.get(), 1, "the forker's frames go while its branch runs");
        done();
    }
}

/// A forker unwinds when another M has begun its branch. Fails by an assertion when the forker does not wait.
#[test]
fn an_unwinding_forker_waits_for_a_branch_that_was_begun() {
    Model::new().preemptions(1).check("unwinding_after_theft", || {
        let runtime = runtime(2, 2);
        let [forker, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let frames = Frames { over: Count::default() };
                    let begun = Flag::default();
                    join(
                        || {
                            begun.wait_on_thread();
                            goexit()
                        },
                        || {
                            begun.raise();
                            loom::thread::yield_now();
                            frames.over.add();
                        },
                    );
                }),
                Box::new(|| ()),
            ],
        );
        assert!(forker.join().unwrap_err().is_goexit());
    });
}

/// A goroutine yields in its own branch, and its P is never without other work. Fails by an assertion when no visit brings
/// the job in.
#[test]
fn a_visit_queues_the_oldest_job() {
    Model::new().check("visit_takes_job", || {
        let runtime = at_rest::<1>();
        let handle = Handle::of(&runtime);
        let forker = runtime.go(move || {
            let (ran, runs) = (Count::default(), Count::default());
            let counts = ran.clone();
            join(
                || {
                    for _ in 0..3 {
                        handle.have_a_visit_come();
                        yield_now();
                        runs.add();
                    }
                    assert_eq!(ran.get(), 1, "no visit has brought the job in");
                },
                || counts.add(),
            );
            done();
        });
        forker.join().unwrap();
    });
}

/// The runtime ends while a forker keeps its thread. Fails by deadlock when the forker then waits for a record that no
/// goroutine runs.
#[test]
fn a_forker_that_outlives_its_runtime_has_its_record_back() {
    Model::new().check("fork_vs_end", || {
        let runtime = runtime(1, 1);
        let (begins, ends, over) = (Flag::default(), Flag::default(), Flag::default());
        let forker = runtime.go({
            let (begins, ends, over) = (begins.clone(), ends.clone(), over.clone());
            move || {
                let _over = Raises(over);
                join(
                    || {
                        begins.raise();
                        ends.wait_on_thread();
                    },
                    || (),
                );
            }
        });
        begins.wait_on_thread();
        loom::explore();
        runtime.shutdown(Duration::ZERO);
        ends.raise();
        over.wait_on_thread();
        drop(forker);
        done();
    });
}

struct Raises(Flag);

impl Drop for Raises {
    fn drop(&mut self) {
        self.0.raise();
    }
}

/// The runtime ends while a goroutine stands among the jobs. Fails by an assertion when its closure is not dropped.
#[test]
fn a_goroutine_among_the_jobs_is_dropped_by_the_end() {
    Model::new().check("lifo_vs_end", || {
        let runtime = runtime(1, 1);
        let (begins, ends) = (Flag::default(), Flag::default());
        let value = Arc::new(());
        let lifo = Arc::new(Mutex::new(None));
        let hog = runtime.go({
            let (begins, ends) = (begins.clone(), ends.clone());
            let (value, lifo) = (Arc::clone(&value), Arc::clone(&lifo));
            move || {
                *lifo.lock().unwrap() = Some(go_lifo(move || drop(value)));
                begins.raise();
                ends.wait_on_thread();
            }
        });
        begins.wait_on_thread();
        loom::explore();
        runtime.shutdown(Duration::ZERO);
        let lifo = lifo.lock().unwrap().take().expect("the goroutine has started it");
        assert!(lifo.join().unwrap_err().is_shutdown());
        assert_eq!(Arc::strong_count(&value), 1, "the closure was not dropped");
        ends.raise();
        drop(hog);
        done();
    });
}

#[test]
fn mutants() {
    const TAKEN: &str = "a_job_is_taken_while_the_last_spinner_gives_up";
    const PARKED: &str = "a_job_is_begun_by_its_own_p_while_the_forker_is_parked";
    const AWAY: &str = "a_job_is_begun_when_its_forker_gives_the_p_away";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::JobSettledInSilence, PARKED),
            (Mutant::JobNoFence, TAKEN),
            (Mutant::SubmitNoWake, TAKEN),
            (Mutant::ForkWakesNobody, TAKEN),
            (Mutant::LifoWakesNobody, "a_goroutine_of_go_lifo_is_run_while_the_last_spinner_gives_up"),
            (Mutant::JobsUnseenAtTheLastLook, TAKEN),
            (Mutant::JobSettleRelaxed, TAKEN),
            (Mutant::JobSettleLooksRelaxed, TAKEN),
            (Mutant::JobEndLooksRelaxed, TAKEN),
            (Mutant::JobEndLooksRelaxed, "two_branches_of_a_scope_are_begun"),
            (Mutant::JobEndLooksRelaxed, "an_unwinding_forker_withdraws_its_record_or_waits"),
            (Mutant::JobWaitRelaxed, TAKEN),
            (Mutant::JobWaitsBlindly, TAKEN),
            (Mutant::HandoffpNoRecheck, AWAY),
            (Mutant::JobsOfTheIdleUnseen, AWAY),
            (Mutant::JobsTrimmedBlindly, "records_of_two_goroutines_on_one_p_are_told_apart"),
            (Mutant::JobWithdrawnByPlace, "a_slot_that_holds_anothers_record_is_not_the_forkers_any_more"),
            (Mutant::UnwindingLeavesTheJob, "an_unwinding_forker_waits_for_a_branch_that_was_begun"),
            (Mutant::VisitLeavesJobs, "a_visit_queues_the_oldest_job"),
            (Mutant::JobKeptFromItsForker, "a_forker_that_outlives_its_runtime_has_its_record_back"),
            (Mutant::JobsForgottenAtTheEnd, "a_goroutine_among_the_jobs_is_dropped_by_the_end"),
        ],
    );
}
