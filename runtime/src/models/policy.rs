//! The policies: one queue, thefts of one, spills of one, a queue that is taken whole. However many goroutines move at once, an
//! M is woken for the goroutines that are left behind, or that stand in the taker's queue. A goroutine that is interrupted as
//! it parks looks before the others in the only queue run.

use super::caught;
use super::cover::{Handle, Made};
use super::submit_vs_idle::{submit_beside_an_m_that_gives_up, yield_before_a_goroutine_that_stays};
use super::visits::have_no_m_poll;
use crate::context::{Context, ContextError};
use crate::model::{Flag, LONG, Model, Mutant, Parts, done, fall_asleep, pass, together};
use crate::policy::{FromGlobal, Overflow, Policy, Steal, WorkStealing};
use crate::sync::Event;
use crate::time::sleep;
use crate::{Runtime, go, yield_now};
use std::sync::Arc;

/// Does what `model::runtime` does, under this policy.
fn runtime_under(procs: usize, policy: impl Into<Policy>) -> Runtime {
    loom::stop_exploring();
    // SAFETY: the goroutines keep nothing of a thread.
    unsafe { Runtime::builder().procs(procs).max_threads(procs).policy(policy).build() }
        .expect("a model's runtime starts")
}

/// A goroutine submits into the only queue, and keeps its P, while the other M gives up. Fails by deadlock when that M is not
/// woken, or does not look at the queue in the critical section in which it gives up.
#[test]
fn a_goroutine_in_the_only_queue_is_run_while_the_last_spinner_gives_up() {
    Model::new().check("only_queue_vs_last_spinner", || {
        let runtime = runtime_under(2, Policy::GlobalFifo);
        submit_beside_an_m_that_gives_up(&runtime, 2);
    });
}

/// A goroutine yields into the only queue, and no M is woken for that; the goroutine that takes its place keeps the M until the
/// first has run on.
#[test]
fn a_goroutine_that_yields_into_the_only_queue_is_run_elsewhere() {
    Model::new().check("only_queue_gosched", || {
        let runtime = runtime_under(2, Policy::Random(1));
        yield_before_a_goroutine_that_stays(&runtime, |stays| drop(go(stays)));
    });
}

/// A goroutine yields, and is alone in the only queue; a sleeper goes before it, and keeps the M until that goroutine has run.
/// No M polls, and the other one sleeps on its note. Fails by deadlock when the M looks for others in its ring alone.
#[test]
fn a_goroutine_in_the_only_queue_before_which_a_sleeper_goes_is_run_by_another_m() {
    Model::new().preemptions(1).check("only_queue_sleeper_first", || {
        let runtime = runtime_under(2, Policy::GlobalFifo);
        fall_asleep::<2>(&runtime);
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let raises = ran.clone();
        let sleeper = runtime.go(move || {
            have_no_m_poll(&handle);
            handle.queue_globally_in_silence([handle.make(move || {
                loom::explore();
                pass(LONG);
                yield_now();
                raises.raise();
            })]);
            sleep(LONG);
            ran.wait_on_thread();
        });
        sleeper.join().unwrap();
        done();
    });
}

/// A goroutine is interrupted as it parks, and another one, which stands in the only queue, would end its wait. Fails when the
/// other one runs first.
#[test]
fn a_goroutine_that_parks_interrupted_looks_before_the_others_run() {
    Model::new().check("only_queue_interrupted", || {
        let runtime = runtime_under(1, Policy::GlobalFifo);
        let event = Arc::new(Event::new());
        let notified = Arc::clone(&event);
        let waits = runtime.go(move || {
            loom::explore();
            let (ctx, cancel) = Context::background().with_cancel();
            let notifies = go(move || notified.notify_one());
            cancel.cancel();
            assert_eq!(ctx.run(|| event.wait()), Err(ContextError::Canceled));
            notifies.join().unwrap();
        });
        waits.join().unwrap();
        done();
    });
}

/// A goroutine submits two, and keeps its M. A thief takes one of them, which keeps the thief until the other runs. Fails by
/// deadlock when the thief wakes no M for the goroutine that it has left.
#[test]
fn a_thief_of_one_wakes_an_m_for_the_others() {
    Model::new().preemptions(1).check("steal_one", || {
        let runtime = runtime_under(3, WorkStealing::new().steal(Steal::One));
        fall_asleep::<3>(&runtime);
        let (handle, both) = (Handle::of(&runtime), [Flag::default(), Flag::default()]);
        let parts = Parts::of(2);
        let owner = runtime.go(move || {
            let two = [0, 1].map(|me| {
                let (mine, other, parts) = (both[me].clone(), both[1 - me].clone(), parts.clone());
                handle.make(move || {
                    parts.held();
                    mine.raise();
                    other.wait_on_thread();
                })
            });
            handle.queue_in_silence(two);
            loom::explore();
            handle.wake();
            both.iter().for_each(Flag::wait_on_thread);
        });
        owner.join().unwrap();
    });
}

/// A goroutine fills the ring of its P, and one more goroutine goes to the global queue alone, while the other M gives up.
/// Fails by deadlock when that goroutine is forgotten, and by a search without end when no M learns that it stands there.
#[test]
fn a_goroutine_that_a_full_ring_puts_out_is_run() {
    Model::new().preemptions(1).check("put_one", || {
        let runtime = runtime_under(2, WorkStealing::new().overflow(Overflow::PutOne));
        let handle = Handle::of(&runtime);
        let [submitter, _] = together(
            &runtime,
            [
                Box::new(move || {
                    let all: [Flag; 4] = std::array::from_fn(|_| Flag::default());
                    handle.queue_in_silence(all.clone().map(|one| handle.make(move || one.raise())));
                    // The first is next, and the second displaces it.
                    go_and_stay_behind();
                    all.iter().for_each(Flag::wait_on_thread);
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        submitter.join().unwrap();
    });
}

/// Submits two goroutines, and keeps the P until both have run.
fn go_and_stay_behind() {
    let both = [Flag::default(), Flag::default()];
    for one in both.clone() {
        drop(go(move || one.raise()));
    }
    both.iter().for_each(Flag::wait_on_thread);
}

/// Two goroutines are injected while all Ms sleep. The M that is woken takes both, and the first keeps it until the second has
/// run. Fails by deadlock when that M wakes no other for the goroutine in its ring.
#[test]
fn an_m_that_takes_the_whole_queue_wakes_the_next() {
    Model::new().check("get_all", || {
        let runtime = runtime_under(2, WorkStealing::new().global(FromGlobal::All));
        let handle = Handle::of(&runtime);
        fall_asleep::<2>(&runtime);
        let flag = Flag::default();
        let waits = flag.clone();
        let first = handle.make(move || {
            waits.wait_on_thread();
            done();
        });
        let two: [Made; 2] = [first, handle.make(move || flag.raise())];
        loom::explore();
        for one in handle.inject(two) {
            one.join().unwrap();
        }
    });
}

#[test]
fn mutants() {
    const ONLY: &str = "a_goroutine_in_the_only_queue_is_run_while_the_last_spinner_gives_up";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::InjectWakesNobody, ONLY),
            (Mutant::InjectWakesNobody, "a_goroutine_that_yields_into_the_only_queue_is_run_elsewhere"),
            (Mutant::IdleSkipsGlobal, ONLY),
            (
                Mutant::OnlyQueueUnseen,
                "a_goroutine_in_the_only_queue_before_which_a_sleeper_goes_is_run_by_another_m",
            ),
            (Mutant::InterruptedIsQueued, "a_goroutine_that_parks_interrupted_looks_before_the_others_run"),
            (Mutant::SpinnerWakesNobody, "a_thief_of_one_wakes_an_m_for_the_others"),
            (Mutant::SubmitNoWake, "a_goroutine_that_a_full_ring_puts_out_is_run"),
            (Mutant::SpinnerWakesNobody, "an_m_that_takes_the_whole_queue_wakes_the_next"),
        ],
    );
}
