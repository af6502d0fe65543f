//! A turn that is given to one goroutine: that goroutine is taken out of the ring once, by the ring's owner or a thief, and the
//! goroutines before it are not forgotten.

use super::caught;
use super::cover::Handle;
use super::runq::{assert_each_once, queues, rest, thief};
use super::visits::have_no_m_poll;
use crate::model::{Flag, Model, Mutant, at_rest, done, runtime, together};
use crate::{go, yield_to};
use std::sync::Arc;

/// The owner picks the last of three beside a thief. Fails when both take the same G, when neither does, or when the thief
/// reads a slot that the owner writes.
#[test]
fn a_g_is_picked_out_of_the_ring_beside_a_thief() {
    Model::new().unbounded().check("pick_vs_steal", || {
        let [own, thiefs] = queues(4);
        let mut taken = own.push_batch(&[0, 1, 2]);
        let thief = thief(&thiefs, &own, 1);
        taken.extend(own.pick(2));
        taken.extend(own.push(3));
        let left = rest(&own);
        assert!(left.is_sorted(), "the others keep their order: {left:?}");
        taken.extend(left);
        assert_each_once(4, &[taken, thief.join().unwrap()]);
    });
}

/// The owner picks one of two. Fails when a thread that looks meanwhile finds the ring empty.
#[test]
fn a_ring_that_loses_one_of_two_is_never_seen_empty() {
    Model::new().unbounded().check("pick_vs_look", || {
        let [own] = queues(2);
        assert!(own.push(0).is_empty());
        let looker = loom::thread::spawn({
            let own = Arc::clone(&own);
            move || assert!(!own.is_empty(), "the other one is there")
        });
        assert!(own.push(1).is_empty());
        assert_eq!(own.pick(0), Some(0));
        looker.join().unwrap();
        assert_eq!(rest(&own), [1]);
    });
}

/// A goroutine gives its turn to the older one of two that it has started, while the other M steals. Fails when a goroutine
/// runs twice or never.
#[test]
fn a_goroutine_that_is_given_a_turn_runs_once_beside_a_thief() {
    Model::new().preemptions(1).check("turn_vs_thief", || {
        let runtime = runtime(2, 2);
        let [gives, _] = together(
            &runtime,
            [
                Box::new(|| {
                    let two = [go(|| ()), go(|| ())];
                    yield_to(&two[0]);
                    two.into_iter().for_each(|one| one.join().unwrap());
                    done();
                }),
                Box::new(|| ()),
            ],
        );
        gives.join().unwrap();
    });
}

/// The ring is full, so the caller goes to the global queue with half of the ring, and the goroutine that is picked is the last
/// in the ring: it keeps the M until the goroutine before it has run. The other M sleeps, as if it had looked at the global
/// queue before the half came there, and at the ring while the owner had both goroutines in hand. Fails by deadlock when no M
/// is woken.
#[test]
fn goroutines_before_the_picked_one_are_run_by_another_m() {
    Model::new().preemptions(1).check("pick_hides", || {
        let runtime = at_rest::<2>();
        loom::stop_exploring();
        let (handle, ran) = (Handle::of(&runtime), Flag::default());
        let gives = runtime.go(move || {
            have_no_m_poll(&handle);
            let (waits, raises) = (ran.clone(), ran);
            let [.., last] = handle.queue_in_silence_for([
                handle.make(|| ()),
                handle.make(|| ()),
                handle.make(move || raises.raise()),
                handle.make(move || waits.wait_on_thread()),
            ]);
            loom::explore();
            yield_to(&last);
            done();
        });
        gives.join().unwrap();
    });
}

#[test]
fn mutants() {
    const PICKED: &str = "a_g_is_picked_out_of_the_ring_beside_a_thief";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::PickUnclaimed, PICKED),
            (Mutant::PickRelaxed, PICKED),
            (Mutant::PickClaimRelaxed, "a_ring_that_loses_one_of_two_is_never_seen_empty"),
            (Mutant::PickWakesNobody, "goroutines_before_the_picked_one_are_run_by_another_m"),
        ],
    );
}
