//! The run queue of a P: each G is taken once, by its owner or a thief, and no look finds the queue empty while it is
//! not. Rings of four; all positions wrap on the way.
//!
//! *Modelled*: one owner or two, and up to two thieves, without a scheduler. *Left out*: the wake-ups that follow
//! (`models/submit_vs_idle.rs`). *The mutants* take out the Acquires and Releases of `runnext`, heads and tail, the order in
//! which thieves and looks read these, the exchanges (a store in their place), and the computation of room. *Failures*: a lost
//! or doubled G fails an assertion; a slot that is read and overwritten at once is a causality violation.

use super::caught;
use super::cover::{Gs, Runq};
use crate::model::{Model, Mutant};
use std::sync::Arc;

/// Returns an owner's queue, and one for each thief, over `gs` Gs.
pub(super) fn queues<const N: usize>(gs: usize) -> [Arc<Runq>; N] {
    let gs = Gs::new(gs);
    std::array::from_fn(|_| Arc::new(Runq::new(&gs)))
}

/// Takes all Gs that are left in a queue, as its owner, and returns them.
pub(super) fn rest(queue: &Runq) -> Vec<usize> {
    std::iter::from_fn(|| queue.pop_next().or_else(|| queue.pop())).collect()
}

/// Starts a thread that looks for work `times` times, in its own queue first, and returns all Gs that it got.
pub(super) fn thief(
    own: &Arc<Runq>,
    victim: &Arc<Runq>,
    times: usize,
) -> loom::thread::JoinHandle<Vec<usize>> {
    let (own, victim) = (Arc::clone(own), Arc::clone(victim));
    loom::thread::spawn(move || {
        let mut taken: Vec<_> =
            (0..times).filter_map(|_| own.pop().or_else(|| own.steal_from(&victim))).collect();
        taken.extend(rest(&own));
        taken
    })
}

/// Fails when a G was lost, or taken twice.
pub(super) fn assert_each_once(gs: usize, parts: &[Vec<usize>]) {
    let mut all = parts.concat();
    all.sort_unstable();
    assert_eq!(all, (0..gs).collect::<Vec<_>>(), "taken: {parts:?}");
}

/// Fails when owner and thief take the same G, when neither does, or when a thief reads a slot that was not written
/// before.
#[test]
fn each_g_is_taken_once_by_its_owner_or_a_thief() {
    Model::new().unbounded().check("runq_pop_vs_steal", || {
        let [own, thiefs] = queues(3);
        let thief = thief(&thiefs, &own, 2);
        let mut taken: Vec<_> = (0..2).flat_map(|g| own.push(g)).collect();
        taken.extend(own.pop());
        taken.extend(own.push(2));
        taken.extend(own.pop());
        let stolen = thief.join().unwrap();
        taken.extend(rest(&own));
        assert_each_once(3, &[taken, stolen]);
    });
}

/// A thief takes one G at most. Fails when owner and thief take the same G, or when neither does.
#[test]
fn one_g_is_stolen_beside_its_owner() {
    Model::new().unbounded().check("runq_pop_vs_steal_one", || {
        let [own, thiefs] = queues(4);
        let mut taken = own.push_batch(&[0, 1, 2]);
        let thief = loom::thread::spawn({
            let (own, thiefs) = (Arc::clone(&own), Arc::clone(&thiefs));
            move || {
                let got = Vec::from_iter(thiefs.steal_one_from(&own));
                assert!(thiefs.is_empty(), "a thief of one has queued another");
                got
            }
        });
        taken.extend(own.pop());
        taken.extend(own.push(3));
        taken.extend(own.pop());
        let stolen = thief.join().unwrap();
        taken.extend(rest(&own));
        assert_each_once(4, &[taken, stolen]);
    });
}

/// Fails when the owner overwrites a slot that a thief reads, or gives away what a thief has claimed.
#[test]
fn a_full_ring_overflows_beside_a_thief() {
    Model::new().unbounded().check("runq_overflow_vs_steal", || {
        let [own, thiefs] = queues(6);
        let mut taken = own.push_batch(&[0, 1, 2, 3]);
        let thief = thief(&thiefs, &own, 1);
        taken.extend(own.push(4));
        taken.extend(own.pop());
        taken.extend(own.push(5));
        taken.extend(own.pop());
        let stolen = thief.join().unwrap();
        taken.extend(rest(&own));
        assert_each_once(6, &[taken, stolen]);
    });
}

/// Fails when a thief sees the heads as a spill has moved them, and an older tail.
#[test]
fn half_of_a_ring_goes_beside_a_thief() {
    Model::new().unbounded().check("runq_spill_vs_steal", || {
        let [own, thiefs] = queues(5);
        let thief = thief(&thiefs, &own, 1);
        let mut taken = own.push_batch(&[0, 1, 2, 3]);
        taken.extend(own.push(4));
        taken.extend(rest(&own));
        assert_each_once(5, &[taken, thief.join().unwrap()]);
    });
}

/// Fails when a thief takes a G of the older half before and after it was appended, or reads beyond the tail.
#[test]
fn the_newer_half_of_a_ring_goes_beside_a_thief() {
    Model::new().unbounded().check("runq_turn_vs_steal", || {
        let [own, thiefs] = queues(5);
        let mut taken = own.push_batch(&[0, 1, 2, 3]);
        let thief = thief(&thiefs, &own, 1);
        taken.extend(own.push_keeping_older(4));
        taken.extend(rest(&own));
        assert_each_once(5, &[taken, thief.join().unwrap()]);
    });
}

/// Fails when the owner gives away what a thief has claimed, or a thief sees moved heads and an older tail.
#[test]
fn all_of_a_ring_goes_beside_a_thief() {
    Model::new().unbounded().check("runq_all_vs_steal", || {
        let [own, thiefs] = queues(4);
        let mut taken = own.push_batch(&[0, 1, 2]);
        let thief = thief(&thiefs, &own, 1);
        taken.extend(own.take_all());
        taken.extend(own.push(3));
        taken.extend(rest(&own));
        assert_each_once(4, &[taken, thief.join().unwrap()]);
    });
}

/// Fails when the owner overwrites a slot that a thief reads.
#[test]
fn a_ring_is_filled_beside_a_thief() {
    Model::new().preemptions(3).check("runq_fill_vs_steal", || {
        let [own, thiefs] = queues(5);
        let mut taken = own.push_batch(&[0, 1, 2, 3]);
        let thief = thief(&thiefs, &own, 1);
        taken.extend(own.pop());
        taken.extend(own.push_where_room_is(&[4]));
        taken.extend(rest(&own));
        assert_each_once(5, &[taken, thief.join().unwrap()]);
    });
}

/// Fails when a thief and the owner both have the G of `runnext`, or when its content is not visible.
#[test]
fn runnext_is_taken_once() {
    Model::new().unbounded().check("runq_runnext", || {
        let [own, thiefs] = queues(3);
        let thief = thief(&thiefs, &own, 2);
        let mut taken = own.push_next(0);
        taken.extend(own.pop_next());
        taken.extend(own.push_next(1));
        taken.extend(own.push_next(2));
        taken.extend(own.pop_next());
        taken.extend(rest(&own));
        assert_each_once(3, &[taken, thief.join().unwrap()]);
    });
}

/// Fails when a thief sees a batch before it is written, takes the G of `runnext` beside the owner, or reads what that G holds
/// before it is there.
#[test]
fn several_become_the_next_beside_a_thief() {
    Model::new().preemptions(3).check("runq_next_each", || {
        let [own, thiefs] = queues(4);
        let thief = thief(&thiefs, &own, 2);
        own.push_next_each(&[0, 1]);
        own.push_next_each(&[2, 3]);
        let mut taken = Vec::from_iter(own.pop_next());
        taken.extend(own.pop());
        let stolen = thief.join().unwrap();
        taken.extend(rest(&own));
        assert_each_once(4, &[taken, stolen]);
    });
}

/// Fails when the thief leaves without the only G that there is.
#[test]
fn runnext_is_stolen_from_an_owner_that_does_not_come() {
    Model::new().unbounded().check("runq_runnext_stolen", || {
        let [own, thiefs] = queues(1);
        assert!(own.push_next(0).is_empty());
        assert_eq!(thief(&thiefs, &own, 1).join().unwrap(), [0]);
        assert!(own.is_empty());
    });
}

/// Fails when two thieves are in the ring at once, or one gives back the other's claim.
#[test]
fn two_thieves_share_a_ring() {
    Model::new().unbounded().check("runq_two_thieves", || {
        let [own, first, second] = queues(5);
        let mut taken: Vec<_> = (0..3).flat_map(|g| own.push(g)).collect();
        let thieves = [thief(&first, &own, 1), thief(&second, &own, 1)];
        taken.extend(own.push_batch(&[3, 4]));
        let [first, second] = thieves.map(|thief| thief.join().unwrap());
        taken.extend(rest(&own));
        assert_each_once(5, &[taken, first, second]);
    });
}

/// Fails when two owners that steal from each other lose or double a G.
#[test]
fn two_owners_steal_from_each_other() {
    Model::new().unbounded().check("runq_mutual", || {
        let [one, two] = queues(6);
        let mut taken: Vec<_> = (0..3).flat_map(|g| one.push(g)).collect();
        taken.extend((3..6).flat_map(|g| two.push(g)));
        let other = loom::thread::spawn({
            let (one, two) = (Arc::clone(&one), Arc::clone(&two));
            move || Vec::from_iter(two.steal_from(&one))
        });
        taken.extend(one.steal_from(&two));
        let stolen = other.join().unwrap();
        assert_each_once(6, &[taken, stolen, rest(&one), rest(&two)]);
    });
}

/// Fails when a batch is seen before it is written, or does not keep to the free slots.
#[test]
fn a_batch_is_seen_whole_by_a_thief() {
    Model::new().unbounded().check("runq_batch_vs_steal", || {
        let [own, thiefs] = queues(6);
        let mut taken = own.push(0);
        let thief = thief(&thiefs, &own, 2);
        taken.extend(own.push_batch(&[1, 2, 3]));
        taken.extend(own.push_batch(&[4, 5]));
        taken.extend(own.pop());
        let stolen = thief.join().unwrap();
        taken.extend(rest(&own));
        assert!(stolen.is_sorted(), "stolen: {stolen:?}");
        assert_each_once(6, &[taken, stolen]);
    });
}

/// Fails when the ender, which drains the queue, and an M that still works both take a G.
#[test]
fn a_drain_takes_nothing_that_the_owner_takes() {
    Model::new().unbounded().check("runq_drain", || {
        let [own] = queues(4);
        let mut taken = own.push(0);
        let drain = loom::thread::spawn({
            let own = Arc::clone(&own);
            move || own.drain()
        });
        taken.extend(own.push_next(1));
        taken.extend(own.push_next(2));
        taken.extend(own.pop());
        taken.extend(own.push(3));
        let drained = drain.join().unwrap();
        taken.extend(own.drain());
        assert!(own.is_empty());
        assert_each_once(4, &[taken, drained]);
    });
}

/// Makes another thread look at a queue that is never empty, after `before` and while the queue's owner does `moves`.
fn looked_at(name: &str, before: fn(&Runq), moves: fn(&Runq, &Runq)) {
    Model::new().unbounded().check(name, move || {
        let [own, thiefs] = queues(5);
        before(&own);
        let look = loom::thread::spawn({
            let own = Arc::clone(&own);
            move || {
                assert!(!own.is_empty(), "empty, and a G is in it");
            }
        });
        moves(&own, &thiefs);
        look.join().unwrap();
    });
}

/// Fails when a look finds the ring empty before, and `runnext` after, the G has moved from `runnext` into the ring.
#[test]
fn a_g_that_is_kicked_from_runnext_into_the_ring_is_seen() {
    let before = |own: &Runq| assert!(own.push_next(0).is_empty());
    looked_at("runq_empty_vs_kick", before, |own, _| {
        assert!(own.push_next(1).is_empty());
        assert_eq!(own.pop_next(), Some(1));
    });
}

/// Fails when a look finds the ring empty before, and `runnext` after, a batch has moved the G of `runnext` into the ring.
#[test]
fn a_g_that_a_batch_kicks_from_runnext_is_seen() {
    let before = |own: &Runq| own.push_next_each(&[0]);
    looked_at("runq_empty_vs_batch", before, |own, _| {
        own.push_next_each(&[1, 2]);
        assert_eq!(own.pop_next(), Some(2));
    });
}

/// Fails when a look finds `runnext` empty before, and the ring after, one G came into `runnext` and the other left
/// the ring.
#[test]
fn a_g_that_becomes_the_next_before_the_ring_is_empty_is_seen() {
    let before = |own: &Runq| assert!(own.push(0).is_empty());
    looked_at("runq_empty_vs_pop", before, |own, _| {
        assert!(own.push_next(1).is_empty());
        assert_eq!(own.pop(), Some(0));
    });
}

/// As `a_g_that_becomes_the_next_before_the_ring_is_empty_is_seen`, with a thief that sees the one G and takes the other.
#[test]
fn a_g_that_becomes_the_next_before_the_ring_is_robbed_is_seen() {
    let before = |own: &Runq| assert!(own.push(0).is_empty());
    looked_at("runq_empty_vs_steal", before, |own, thiefs| {
        assert!(own.push_next(1).is_empty());
        assert_eq!(thiefs.steal_from(own), Some(0));
    });
}

/// The owner of a full ring steals from another one while a thief takes from its own. Fails when the owner writes to
/// slots that its thief reads, or that are not free.
#[test]
fn a_full_ring_is_robbed_while_its_owner_steals() {
    Model::new().unbounded().check("runq_full_thief", || {
        let [own, victim, thiefs] = queues(7);
        let mut taken = own.push_batch(&[0, 1, 2, 3]);
        taken.extend(victim.push_batch(&[4, 5, 6]));
        // The thief begins, so that the owner's look is the one that may come too early.
        let owner = loom::thread::spawn({
            let (own, victim) = (Arc::clone(&own), Arc::clone(&victim));
            move || {
                let mut got = Vec::from_iter(own.steal_from(&victim));
                got.extend(rest(&own));
                got
            }
        });
        taken.extend(thiefs.steal_from(&own));
        let stolen = owner.join().unwrap();
        assert_each_once(7, &[taken, stolen, rest(&thiefs), rest(&victim)]);
    });
}

/// Fails when a look between the two halves of a spill finds a full ring empty, whose older half stays.
#[test]
fn a_ring_whose_newer_half_goes_is_seen() {
    let before = |own: &Runq| assert!(own.push_batch(&[0, 1, 2, 3]).is_empty());
    looked_at("runq_empty_vs_turn", before, |own, _| {
        assert_eq!(own.push_keeping_older(4), [2, 3, 4]);
    });
}

/// Fails when a drain loses a G that is in the ring while the thief copies others.
#[test]
fn a_drain_waits_for_a_thief() {
    Model::new().unbounded().check("runq_drain_vs_steal", || {
        let [victim, own] = queues(3);
        for number in 0..3 {
            assert!(victim.push(number).is_empty());
        }
        let thief = thief(&own, &victim, 1);
        let drained = victim.drain();
        assert_each_once(3, &[drained, thief.join().unwrap()]);
    });
}

#[test]
fn mutants() {
    let pop = "each_g_is_taken_once_by_its_owner_or_a_thief";
    let overflow = "a_full_ring_overflows_beside_a_thief";
    let next = "runnext_is_taken_once";
    let several = "several_become_the_next_beside_a_thief";
    let batch = "a_g_that_a_batch_kicks_from_runnext_is_seen";
    let kicked = "a_g_that_is_kicked_from_runnext_into_the_ring_is_seen";
    let popped = "a_g_that_becomes_the_next_before_the_ring_is_empty_is_seen";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::DrainLeavesToTheThief, "a_drain_waits_for_a_thief"),
            (Mutant::RingTailStoreRelaxed, pop),
            (Mutant::RingTurnsLate, "a_ring_whose_newer_half_goes_is_seen"),
            (Mutant::RingTailStoreRelaxed, "a_batch_is_seen_whole_by_a_thief"),
            (Mutant::RingTailLoadRelaxed, pop),
            (Mutant::RingTailReadFirst, pop),
            (Mutant::RingTailReadFirst, "the_newer_half_of_a_ring_goes_beside_a_thief"),
            (Mutant::RingHeadLoadRelaxed, pop),
            (Mutant::RingHeadStore, pop),
            (Mutant::RingPopRelaxed, pop),
            (Mutant::RingHeadStore, "one_g_is_stolen_beside_its_owner"),
            (Mutant::RingPopRelaxed, popped),
            (Mutant::RingPushHeadRelaxed, overflow),
            (Mutant::RingReleaseRelaxed, overflow),
            (Mutant::RingSpillRelaxed, "half_of_a_ring_goes_beside_a_thief"),
            (Mutant::RingClaimForgotten, overflow),
            (Mutant::RingClaimRelaxed, "a_g_that_becomes_the_next_before_the_ring_is_robbed_is_seen"),
            (Mutant::RunnextPutRelaxed, next),
            (Mutant::NextEachPutRelaxed, several),
            (Mutant::NextEachTailRelaxed, several),
            (Mutant::RingTailStoreRelaxed, "all_of_a_ring_goes_beside_a_thief"),
            (Mutant::DisplacedTailRelaxed, "a_drain_takes_nothing_that_the_owner_takes"),
            (Mutant::RunnextTakenByStore, next),
            (Mutant::RunnextPopRelaxed, kicked),
            (Mutant::RunnextStealRelaxed, next),
            (Mutant::RunnextNeverStolen, "runnext_is_stolen_from_an_owner_that_does_not_come"),
            (Mutant::EmptyIgnoresRunnext, kicked),
            (Mutant::EmptyTailReadFirst, kicked),
            (Mutant::EmptyTailReadFirst, batch),
            (Mutant::RunnextPopRelaxed, batch),
            (Mutant::EmptyNextRelaxed, kicked),
            (Mutant::EmptyHeadRelaxed, popped),
            (Mutant::RoomFromReal, "a_ring_is_filled_beside_a_thief"),
            (Mutant::StealReckonsFromReal, "a_full_ring_is_robbed_while_its_owner_steals"),
            (Mutant::StealBeyondTheRoom, "a_full_ring_is_robbed_while_its_owner_steals"),
        ],
    );
}
