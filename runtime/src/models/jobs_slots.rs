//! The slots of one P alone, without a scheduler and its fences: each record has one taker, which sees the record as its forker
//! wrote it.
//!
//! In the scheduler SubmitFence, the lock and the switches order nearly all of this, too. So the scheduler's models would not
//! fail without the orderings of the slots; these models do.

use super::caught;
use super::cover::Jobs;
use crate::model::{Model, Mutant};
use loom::sync::atomic::{AtomicU32, Ordering::Relaxed};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

/// Starts a thread that takes the oldest record, `times` times, and returns what it got.
fn thief(jobs: &Jobs, times: usize) -> JoinHandle<Vec<usize>> {
    let jobs = jobs.clone();
    thread::spawn(move || (0..times).filter_map(|_| jobs.take_oldest()).collect())
}

/// Fails when both forker and thief have the record, or neither has it; by a causality violation when nothing orders the
/// thief's accesses after the forker's, or the forker's after the thief's.
#[test]
fn a_record_has_one_taker_that_sees_what_it_holds() {
    Model::new().unbounded().check("slot_withdraw_vs_take", || {
        let jobs = Jobs::new(1);
        let thief = thief(&jobs, 1);
        let place = jobs.put_in(0);
        let mine = jobs.withdraw(&place, 0);
        let taken = thief.join().unwrap();
        assert_eq!(taken.len() + usize::from(mine), 1, "{taken:?}");
        assert!(jobs.is_empty());
    });
}

/// A thief has seen an address in the slot, which stands there again, as the address of a second record that was put in since.
/// Fails by a causality violation when the thief takes the second record, and reads what the first one held.
#[test]
fn an_address_that_stands_there_again_is_the_new_record() {
    Model::new().unbounded().check("slot_same_address", || {
        let jobs = Jobs::new(1);
        let thief = thief(&jobs, 1);
        let place = jobs.put_in(0);
        if jobs.withdraw(&place, 0) {
            let again = jobs.put_in(0);
            let _mine = jobs.withdraw(&again, 0);
        }
        thief.join().unwrap();
        assert!(jobs.is_empty());
    });
}

/// Two thieves, and two records, the newer of which the forker withdraws. Fails when a record has two takers, or none; and by
/// an assertion when `put_in` finds the slot full.
#[test]
fn two_records_have_a_taker_each_beside_two_thieves() {
    Model::new().preemptions_by_default(2).check("slots_two_thieves", || {
        let jobs = Jobs::new(3);
        let thieves = [(); 2].map(|()| thief(&jobs, 1));
        let places = [0, 1].map(|number| jobs.put_in(number));
        let mut all = Vec::new();
        if jobs.withdraw(&places[1], 1) {
            all.push(1);
            // The third record goes into the slot of the second one, or of the first one if that was taken.
            let third = jobs.put_in(2);
            all.extend(jobs.withdraw(&third, 2).then_some(2));
        } else {
            all.push(2);
        }
        all.extend(jobs.withdraw(&places[0], 0).then_some(0));
        all.extend(thieves.into_iter().flat_map(|thief| thief.join().unwrap()));
        all.sort_unstable();
        assert_eq!(all, [0, 1, 2]);
        assert!(jobs.is_empty());
    });
}

/// A taker writes a word before it takes, as `Starting` does, and the forker finds its record taken. Fails by an assertion when
/// the forker does not see that word: then the ender, which finds the forker asleep after that, would not see it either.
#[test]
fn a_forker_whose_record_was_taken_knows_that_a_job_is_starting() {
    Model::new().unbounded().check("slot_taken_is_starting", || {
        let (jobs, starting) = (Jobs::new(1), Arc::new(AtomicU32::new(0)));
        let place = jobs.put_in(0);
        let thief = thread::spawn({
            let (jobs, starting) = (jobs.clone(), Arc::clone(&starting));
            move || {
                starting.fetch_add(1, Relaxed);
                assert!(jobs.take_oldest().is_none_or(|number| number == 0));
            }
        });
        if !jobs.withdraw(&place, 0) {
            assert_eq!(starting.load(Relaxed), 1, "the forker sees the slot, and not what came before");
        }
        thief.join().unwrap();
    });
}

#[test]
fn mutants() {
    const ONE: &str = "a_record_has_one_taker_that_sees_what_it_holds";
    const STARTING: &str = "a_forker_whose_record_was_taken_knows_that_a_job_is_starting";
    caught::assert_caught(
        module_path!(),
        &[
            (Mutant::JobPutInRelaxed, ONE),
            (Mutant::JobTakeLooksRelaxed, ONE),
            (Mutant::JobTakenByItsLook, "an_address_that_stands_there_again_is_the_new_record"),
            (Mutant::JobTakeRelaxed, STARTING),
            (Mutant::JobWithdrawLooksRelaxed, STARTING),
        ],
    );
}
