//! Goroutines of classes other than `Normal`: each is run, whichever M gives up or steals and whichever P retires
//! meanwhile, and those of a higher class run before others.

use super::caught;
use super::cover::{Handle, Made, blocking_here};
use super::procs::{First, one_on, one_p};
use super::submit_vs_idle::{two_of_three_are_taken, yield_before_a_goroutine_that_stays};
use super::visits::have_no_m_poll;
use crate::model::{
    Body, Flag, Model, Mutant, at_rest, done, fall_asleep, runtime, together, together_with_us,
};
use crate::{JoinHandle, Priority, go, set_priority, yield_now};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// Makes three goroutines. The first keeps its M until the second has run; the M that takes the first has the second in the
/// batch of its P.
fn three_that_need_two_ms(handle: &Handle) -> [Made; 3] {
    let flag = Flag::default();
    let waits = flag.clone();
    let first = handle.make(move || {
        waits.wait_on_thread();
        done();
    });
    [first, handle.make(move || flag.raise()), handle.make(|| ())]
}

/// Goroutines of a class are submitted while all Ms sleep, and one M takes two of them at once. Fails by deadlock when the
/// other M does not look at the batch before it sleeps, and by a search without end when that M sees the second one there and
/// leaves it.
#[test]
fn the_batch_behind_a_goroutine_that_does_not_yield_is_run() {
    Model::new().preemptions(1).check("batch_vs_thief", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        fall_asleep::<2>(&runtime);
        handle.use_classes();
        let three = three_that_need_two_ms(&handle);
        loom::explore();
        for one in handle.inject_of(Priority::High, three) {
            one.join().unwrap();
        }
    });
}

/// One goroutine of a class is submitted while both Ms give up. Fails by deadlock, or by a search without end, when neither M
/// heeds it.
#[test]
fn a_goroutine_of_a_class_is_run_while_two_ms_go_idle() {
    Model::new().preemptions(1).check("class_vs_two_idle", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        handle.use_classes();
        let work = handle.make(done);
        let _both = together_with_us(&runtime, [Box::new(|| ()), Box::new(|| ())]);
        for one in handle.inject_of(Priority::Background, [work]) {
            one.join().unwrap();
        }
    });
}

/// A goroutine of a class yields, and the goroutine that runs in its place keeps the M until the first has run on. Fails by
/// deadlock when the other M, which has looked at the queue before the yield and at the ring after it, is not woken.
#[test]
fn a_goroutine_of_a_class_that_yields_is_run_elsewhere() {
    Model::new().check("class_gosched", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        handle.use_classes();
        yield_before_a_goroutine_that_stays(&runtime, move |stays| {
            crate::set_priority(Priority::Low);
            // No M is woken: as if the other M had been woken for this goroutine, and had looked a moment too early.
            handle.queue_in_silence([handle.make(stays)]);
        });
    });
}

/// As `a_goroutine_of_a_class_that_yields_is_run_elsewhere`, where a job runs in the place of the goroutine.
#[test]
fn a_goroutine_of_a_class_that_yields_before_a_job_is_run_elsewhere() {
    Model::new().preemptions_by_default(1).check("class_gosched_job", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        handle.use_classes();
        yield_before_a_goroutine_that_stays(&runtime, move |stays| {
            crate::set_priority(Priority::Background);
            handle.put_job_in_silence(handle.make(stays));
        });
    });
}

/// A `Normal` goroutine yields. A `High` goroutine that stood in the batch runs in its place, and keeps the M until the first
/// has run on. The other M gives up. Fails by deadlock when that M looks at the ring before the yield, and at the batch after
/// it.
#[test]
fn a_goroutine_that_yields_before_the_batch_is_run_elsewhere() {
    Model::new().preemptions_by_default(2).check("gosched_before_batch", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        handle.use_classes();
        yield_before_a_goroutine_that_stays(&runtime, move |stays| {
            handle.fill_batch_in_silence(Priority::High, [handle.make(stays)]);
            handle.wake();
        });
    });
}

/// `queues` places two goroutines, and wakes no M: the first goroutine keeps its M until the second has run. No M polls, and
/// the other M sleeps.
fn the_first_waits_for_the_second(queues: fn(&Handle, Made, Made)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran, ended) = (Handle::of(&runtime), Flag::default(), Flag::default());
        let ends = ended.clone();
        let _first = runtime.go(move || {
            have_no_m_poll(&handle);
            let (waits, raises) = (ran.clone(), ran);
            let waits = handle.make(move || {
                waits.wait_on_thread();
                done();
                ends.raise();
            });
            queues(&handle, waits, handle.make(move || raises.raise()));
            loom::explore();
        });
        ended.wait_on_thread();
    }
}

/// A batch goes back into its queue, as a goroutine of a higher class has come. That goroutine keeps the M until the goroutine
/// of the batch has run. The other M sleeps, as if it had looked at the queue before the batch went back, and at the batch
/// after that. Fails by deadlock when no M is woken.
#[test]
fn a_batch_that_goes_back_is_run_by_another_m() {
    let queues = |handle: &Handle, waits, raises| {
        handle.fill_batch_in_silence(Priority::Low, [raises]);
        handle.queue_of_class_in_silence(Priority::High, [waits]);
    };
    Model::new().preemptions(1).check("batch_goes_back", the_first_waits_for_the_second(queues));
}

/// A visit finds a goroutine while a `High` one stands in the batch. The `High` goroutine goes first, and keeps the M until the
/// found one has run. The other M sleeps, as if it had looked at the ring before the visit, and at the queue after it. Fails by
/// deadlock when no M is woken.
#[test]
fn a_goroutine_that_a_visit_finds_beside_high_is_run_by_another_m() {
    let queues = |handle: &Handle, waits, raises| {
        handle.fill_batch_in_silence(Priority::High, [waits]);
        handle.queue_globally_in_silence([raises]);
        handle.have_a_visit_come();
    };
    Model::new().preemptions(1).check("visit_beside_high", the_first_waits_for_the_second(queues));
}

/// An M finds two goroutines of a class among the timers. The first keeps that M until the second has run; the other M sleeps.
/// Fails by deadlock when no M is woken.
#[test]
fn the_second_of_a_class_that_an_m_finds_is_run_by_another_m() {
    let queues = |handle: &Handle, waits, raises| handle.find(Priority::High, [waits, raises]);
    Model::new().preemptions(1).check("found_of_class", the_first_waits_for_the_second(queues));
}

/// A goroutine stands in the batch of a P that retires. Fails when the goroutine stays there.
#[test]
fn the_batch_of_a_p_that_retires_is_run() {
    Model::new().preemptions_by_default(1).check("batch_vs_shrink", || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        handle.use_classes();
        let ran = Flag::default();
        let raised = ran.clone();
        let queued = handle.make(move || raised.raise());
        let queues = move || handle.fill_batch_in_silence(Priority::Low, [queued]);
        let bodies: [Body; 2] = [Box::new(queues), Box::new(|| ())];
        let _both = one_on(1, &runtime, (First::Elsewhere, one_p), bodies);
        ran.wait_on_thread();
        done();
    });
}

/// On one P, a goroutine starts a `Normal` one and then one of each other class. Fails when they do not run in the order of the
/// classes.
#[test]
fn the_higher_class_goes_first() {
    Model::new().preemptions(0).check("class_order", || {
        let runtime = runtime(1, 1);
        let ran = Arc::new(Mutex::new(Vec::new()));
        let notes = |class| {
            let ran = Arc::clone(&ran);
            move || ran.lock().unwrap().push(class)
        };
        let [low, background, high] = [Priority::Low, Priority::Background, Priority::High].map(notes);
        let normal = notes(Priority::Normal);
        let starts = runtime.go(move || {
            loom::explore();
            let started = [go(normal)];
            let spawn = |class, f| crate::Builder::new().priority(class).go(f).unwrap();
            drop(started);
            drop(spawn(Priority::Background, background));
            drop(spawn(Priority::Low, low));
            drop(spawn(Priority::High, high));
        });
        starts.join().unwrap();
        while ran.lock().unwrap().len() < 4 {
            loom::thread::yield_now();
        }
        let order = [Priority::High, Priority::Normal, Priority::Low, Priority::Background];
        assert_eq!(*ran.lock().unwrap(), order);
        done();
    });
}

/// A goroutine keeps its M until the three goroutines in the batch of its P have run. `before` is called once they are there,
/// with the handle of the first, and before the other M is woken.
fn three_of_a_batch_are_run(before: fn(&JoinHandle<()>)) -> impl Fn() + Send + Sync + 'static {
    move || {
        let runtime = runtime(2, 2);
        let handle = Handle::of(&runtime);
        handle.use_classes();
        let keeps = move || {
            let (ran, last) = (Arc::new(AtomicUsize::new(0)), Flag::default());
            let three = [(); 3].map(|()| {
                let (ran, last) = (Arc::clone(&ran), last.clone());
                handle.make(move || {
                    if ran.fetch_add(1, Relaxed) == 2 {
                        last.raise();
                    }
                })
            });
            let [first, ..] = handle.fill_batch_in_silence_for(Priority::Low, three);
            before(&first);
            handle.wake();
            last.wait_on_thread();
            done();
        };
        let [keeps, _] = together(&runtime, [Box::new(keeps), Box::new(|| ())]);
        keeps.join().unwrap();
    }
}

/// The first goroutine that a thief takes out of a batch becomes `Normal` meanwhile. Fails by an assertion, or by deadlock,
/// when the thief marks its new batch as one of `Normal`, at which no owner looks.
#[test]
fn goroutines_behind_one_that_became_normal_are_run() {
    let before = |first: &JoinHandle<()>| {
        first.set_priority(Priority::Normal);
    };
    Model::new().preemptions(1).check("stolen_batch_of_normal", three_of_a_batch_are_run(before));
}

/// As `submit_vs_idle::what_a_thief_queues_is_run_by_an_m_that_gave_up`, but the thief is the owner of a `Low`
/// goroutine that yields.
#[test]
fn what_the_owner_of_a_low_goroutine_takes_is_run_by_an_m_that_gave_up() {
    let takes = || {
        set_priority(Priority::Low);
        yield_now();
    };
    Model::new().preemptions(1).check("look_beyond_vs_idle", move || two_of_three_are_taken(takes));
}

/// A thief takes two of a batch. Fails by an assertion when the second stays in the thief's batch as the thief's P goes idle.
#[test]
fn the_second_that_a_thief_takes_of_a_batch_is_run() {
    Model::new().preemptions(1).check("stolen_batch", three_of_a_batch_are_run(|_| ()));
}

/// A goroutine gives its P away while no other thread is allowed, and another goroutine stands in the batch of that P. Fails by
/// an assertion, or by deadlock, when the batch stays with the idle P.
#[test]
fn the_batch_of_a_p_for_which_there_is_no_m_is_run() {
    Model::new().check("batch_at_the_limit", || {
        let runtime = runtime(1, 1);
        let handle = Handle::of(&runtime);
        let ran = Flag::default();
        let raises = ran.clone();
        let gives = runtime.go(move || {
            handle.fill_batch_in_silence(Priority::Low, [handle.make(move || raises.raise())]);
            loom::explore();
            blocking_here(|| ());
        });
        ran.wait_on_thread();
        gives.join().unwrap();
        done();
    });
}

#[test]
fn mutants() {
    const THIEF: &str = "the_batch_behind_a_goroutine_that_does_not_yield_is_run";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::BatchUnseen, THIEF),
            (Mutant::BatchNeverStolen, THIEF),
            (Mutant::BatchReadsTheClassTwice, "goroutines_behind_one_that_became_normal_are_run"),
            (Mutant::StolenBatchUnalerted, "the_second_that_a_thief_takes_of_a_batch_is_run"),
            (Mutant::BatchReadLast, "a_goroutine_that_yields_before_the_batch_is_run_elsewhere"),
            (Mutant::WakepNoFence, "a_goroutine_that_yields_before_the_batch_is_run_elsewhere"),
            (
                Mutant::JobBeforeTheYielderUnseen,
                "a_goroutine_of_a_class_that_yields_before_a_job_is_run_elsewhere",
            ),
            (Mutant::AttentionNotCalled, "a_goroutine_of_a_class_is_run_while_two_ms_go_idle"),
            (Mutant::ClassYieldsInSilence, "a_goroutine_of_a_class_that_yields_is_run_elsewhere"),
            (Mutant::BehindHighInSilence, "a_goroutine_that_a_visit_finds_beside_high_is_run_by_another_m"),
            (Mutant::FoundOfClassesWakesNobody, "the_second_of_a_class_that_an_m_finds_is_run_by_another_m"),
            (Mutant::BatchGoesBackInSilence, "a_batch_that_goes_back_is_run_by_another_m"),
            (
                Mutant::LookBeyondWakesNobody,
                "what_the_owner_of_a_low_goroutine_takes_is_run_by_an_m_that_gave_up",
            ),
            (Mutant::RetireKeepsTheBatch, "the_batch_of_a_p_that_retires_is_run"),
            (Mutant::TakeBackKeepsTheBatch, "the_batch_of_a_p_for_which_there_is_no_m_is_run"),
            (Mutant::PushForgetsTheClass, "the_higher_class_goes_first"),
        ],
    );
}
