//! An M gives its P away, and its goroutine comes back without one: the goroutines in the P's queue are run, and so is the
//! goroutine that comes back.
//!
//! *Left out*: the retaker (`models/window.rs`) and bound goroutines that wait for their turn (`models/locked.rs`). *The
//! mutants* take out HandoffpFence, the re-check after the P has become idle, the looks at the P's queue and at the global one,
//! the count before the lock is released, and the one critical section of a return.

use super::caught;
use super::cover::Handle;
use crate::model::{Flag, Model, Mutant, done, runtime};

/// A goroutine gives its P away for the second time; at the first time an M took the P, found nothing, and went into
/// the poller. So no M has to be sent there, and the P goes idle if its queue is empty. Fails by deadlock when the P
/// goes idle although a goroutine is queued there.
#[test]
fn the_queue_of_a_p_that_is_given_away_is_served() {
    Model::new().check("give_away", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let gives = runtime.go(move || {
            crate::blocking(|| {
                handle.await_poller();
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

/// A goroutine comes back from a blocking call while the M that has its P goes idle. The goroutine calls `first` at
/// its beginning.
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

/// Fails by deadlock when the goroutine is queued where no M looks any more, or when the P can be taken before it is
/// counted as idle.
#[test]
fn a_goroutine_that_comes_back_is_run_while_its_p_goes_idle() {
    Model::new().check("come_back", || comes_back_beside_an_idle_p(|| ()));
}

/// As `a_goroutine_that_comes_back_is_run_while_its_p_goes_idle`, with a bound goroutine, whose M looks into no
/// queue. Fails by deadlock when the goroutine goes into the global queue after it has found the P taken, and the P
/// became idle in between.
#[test]
fn a_bound_goroutine_that_comes_back_is_run_while_its_p_goes_idle() {
    Model::new().check("come_back_bound", || comes_back_beside_an_idle_p(crate::lock_os_thread));
}

/// A goroutine without a P spawns another one: the spawned goroutine goes into the global queue, and is run.
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

/// A goroutine gives the only P away, and there is no work for it, while another goroutine comes back and takes the P.
/// Fails by an assertion of the census when the P may be taken before it is counted as idle.
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
                handle.await_poller();
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

/// A goroutine gives its P away, and there is no work for it, while a goroutine on the other P submits and finds no P
/// idle. Fails by deadlock when the giver does not look once more after the P has become idle.
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
                // A third M is sent to the poller, as no other waits there.
                handle.await_poller();
                there.wait_on_thread();
            });
            loom::explore();
            go_on.raise();
            crate::blocking(|| ran.wait_on_thread());
        });
        submits.join().unwrap();
    });
}

/// A goroutine gives the only P away while another one is in the global queue, for which no M was woken as no P was
/// idle. Fails by deadlock when the P goes idle and no M is summoned for it.
#[test]
fn the_global_queue_is_served_when_a_p_is_given_away() {
    Model::new().check("give_away_globally", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let gives = runtime.go(move || {
            crate::blocking(|| handle.await_poller());
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

/// A goroutine comes back from a blocking call before the M arrives that was summoned for a goroutine in the global
/// queue. The goroutine that comes back keeps its P until the queued one has run: fails by deadlock when it goes before the
/// queued one.
#[test]
fn a_goroutine_that_comes_back_overtakes_nobody() {
    Model::new().check("come_back_vs_call", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let comes_back = runtime.go(move || {
            let ran = Flag::default();
            let raised = ran.clone();
            crate::blocking(|| {
                handle.await_poller();
                loom::explore();
                drop(crate::go(move || raised.raise()));
            });
            ran.wait_on_thread();
            done();
        });
        comes_back.join().unwrap();
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::HandoffpSkipsQueue, "the_queue_of_a_p_that_is_given_away_is_served"),
            (Mutant::HandoffpSkipsGlobal, "the_global_queue_is_served_when_a_p_is_given_away"),
            (Mutant::ExitOvertakes, "a_goroutine_that_comes_back_overtakes_nobody"),
            (Mutant::HandoffpCountsLate, "a_p_that_is_given_away_is_counted_before_it_is_taken"),
            (Mutant::HandoffpNoFence, "a_p_that_is_given_away_is_offered_to_what_was_submitted_meanwhile"),
            (Mutant::HandoffpNoRecheck, "a_p_that_is_given_away_is_offered_to_what_was_submitted_meanwhile"),
            (Mutant::ExitInTwoSections, "a_bound_goroutine_that_comes_back_is_run_while_its_p_goes_idle"),
            (Mutant::CensusAfterTheLock, "a_goroutine_that_comes_back_is_run_while_its_p_goes_idle"),
            (Mutant::CensusAfterTheLock, "a_goroutine_without_a_p_submits_as_a_thread"),
        ],
    );
}
