//! A goroutine that has lost its P spawns others, and takes an idle P.

use super::caught;
use super::cover::{Handle, Held};
use crate::model::{Flag, Model, Mutant, done, runtime};

/// Has the monitor take the P of the calling goroutine, and returns when the P is idle.
fn lose_p(handle: &Handle) {
    let held = Held::current();
    let taken = loom::thread::spawn(move || held.retake()).join().unwrap();
    assert!(taken, "the goroutine is outside of the runtime");
    handle.await_poller();
}

/// The monitor judges the P that the spawner takes, and takes it again if the spawner seems to be outside. Fails by a causality
/// violation when the P has two owners.
#[test]
fn a_p_that_a_spawner_takes_has_one_owner() {
    Model::new().with_retaker().preemptions(2).check("spawn_vs_retake", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        let retaker = runtime.run(move || {
            let mut again = Held::current();
            lose_p(&handle);
            loom::explore();
            let retaker = loom::thread::spawn(move || {
                again.judge_again();
                again.retake();
            });
            drop(crate::go(|| ()));
            done();
            retaker
        });
        retaker.join().unwrap();
    });
}

/// A thread has queued a goroutine, and an M was summoned for it. Fails by deadlock when the spawner takes the P for which the
/// M comes, and then blocks its thread until that goroutine has run.
#[test]
fn a_spawner_leaves_the_p_to_a_summoned_m() {
    Model::new().with_retaker().preemptions(2).check("spawn_vs_summons", || {
        let runtime = runtime(1, 2);
        let handle = Handle::of(&runtime);
        runtime.run(move || {
            lose_p(&handle);
            loom::explore();
            let (queued, ran, submitter) = (Flag::default(), Flag::default(), crate::handle());
            let (raises, runs) = (queued.clone(), ran.clone());
            let thread = loom::thread::spawn(move || {
                drop(submitter.go(move || runs.raise()));
                raises.raise();
            });
            queued.wait_on_thread();
            drop(crate::go(|| ()));
            ran.wait_on_thread();
            thread.join().unwrap();
            done();
        });
    });
}

#[test]
fn mutants() {
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::SpawnerComesInLate, "a_p_that_a_spawner_takes_has_one_owner"),
            (Mutant::SpawnerOvertakes, "a_spawner_leaves_the_p_to_a_summoned_m"),
        ],
    );
}
