//! One owner, which the tests drive step by step, alone and beside real thieves.

use super::*;

use crate::host::Active;
use std::sync::atomic::{AtomicBool, AtomicU32 as Count, Ordering::SeqCst};
use std::thread;

/// Stand-ins for records: the tests use only their addresses.
struct Names(Vec<u64>);

impl Names {
    fn new(count: usize) -> Self {
        Names(vec![0; count])
    }
    fn name(&self, number: usize) -> NonNull<Job<Active>> {
        NonNull::from(&self.0[number]).cast()
    }
    fn number(&self, entry: Entry<Active>) -> usize {
        let Entry::Job(job) = entry else { panic!("number: a goroutine") };
        (job.addr().get() - self.0.as_ptr().addr()) / size_of::<u64>()
    }
    fn put_in<'a>(&self, jobs: &'a Jobs<Active>, number: usize) -> Option<&'a Slot<Active>> {
        jobs.put_in(Entry::Job(self.name(number)), 1, || ())
    }
}

fn opened() -> Jobs<Active> {
    let jobs = Jobs::new();
    assert!(jobs.open() && !jobs.open());
    jobs
}

#[test]
fn there_is_no_room_before_the_first_job_was_announced() {
    let (jobs, names) = (Jobs::<Active>::new(), Names::new(1));
    assert!(names.put_in(&jobs, 0).is_none());
    assert!(jobs.open());
    assert!(names.put_in(&jobs, 0).is_some());
}

#[test]
fn the_owner_takes_the_newest_and_a_thief_the_oldest() {
    let (jobs, names) = (opened(), Names::new(4));
    assert!(jobs.is_empty());
    (0..4).for_each(|number| assert!(names.put_in(&jobs, number).is_some()));
    assert!(!jobs.is_empty());
    let order = [jobs.take_newest(), jobs.take_oldest(), jobs.take_oldest(), jobs.take_newest()];
    assert_eq!(order.map(|entry| names.number(entry.unwrap())), [3, 0, 1, 2]);
    assert!(jobs.is_empty() && jobs.take_newest().is_none() && jobs.take_oldest().is_none());
}

#[test]
fn a_forker_withdraws_in_the_middle_and_once() {
    let (jobs, names) = (opened(), Names::new(4));
    let slots: Vec<_> = (0..3).map(|number| names.put_in(&jobs, number).unwrap()).collect();
    assert!(slots[1].withdraw(names.name(1)) && !slots[1].withdraw(names.name(1)));
    // The slot behind the hole is full, so the hole stays, and the next job goes behind that slot.
    let last = names.put_in(&jobs, 3).unwrap();
    assert!(!slots.iter().any(|slot| std::ptr::eq(*slot, last)));
    assert_eq!(names.number(jobs.take_oldest().unwrap()), 0);
    assert!(!slots[0].withdraw(names.name(0)));
    assert!(slots[2].withdraw(names.name(2)) && last.withdraw(names.name(3)));
    assert!(jobs.is_empty());
}

#[test]
fn a_slot_whose_job_was_taken_is_used_again_and_is_not_the_first_ones() {
    let (jobs, names) = (opened(), Names::new(2));
    let slot = names.put_in(&jobs, 0).unwrap();
    assert_eq!(names.number(jobs.take_oldest().unwrap()), 0);
    let again = names.put_in(&jobs, 1).unwrap();
    assert!(std::ptr::eq(slot, again));
    assert!(!slot.withdraw(names.name(0)));
    assert!(again.withdraw(names.name(1)));
}

/// Positions wrap at the end of the ring, and, with the second start, at the end of `u32`.
#[test]
fn a_full_ring_refuses_and_has_room_again_from_either_end() {
    let count = JOBS as usize;
    let (jobs, names) = (opened(), Names::new(count + 1));
    for start in [0, u32::MAX - 3] {
        jobs.top.store(start, Relaxed);
        jobs.bottom.store(start, Relaxed);
        (0..count).for_each(|number| assert!(names.put_in(&jobs, number).is_some()));
        assert!(names.put_in(&jobs, count).is_none());
        assert_eq!(names.number(jobs.take_oldest().unwrap()), 0);
        assert!(names.put_in(&jobs, count).is_some());
        assert_eq!(names.number(jobs.take_newest().unwrap()), count);
        assert!(names.put_in(&jobs, 0).is_some());
        let rest: Vec<_> =
            std::iter::from_fn(|| jobs.take_oldest()).map(|entry| names.number(entry)).collect();
        assert_eq!(rest, (1..count).chain([0]).collect::<Vec<_>>());
        assert!(jobs.is_empty());
    }
}

#[test]
fn the_jobs_of_the_goroutine_that_runs_have_not_waited() {
    let (jobs, names) = (opened(), Names::new(2));
    assert!(!jobs.have_waited(1));
    let slot = names.put_in(&jobs, 0).unwrap();
    assert!(!jobs.have_waited(1) && jobs.have_waited(2));
    assert!(jobs.put_in(Entry::Job(names.name(1)), 2, || ()).is_some());
    assert!(jobs.have_waited(2), "the older one still stands there");
    assert!(slot.withdraw(names.name(0)));
    assert!(jobs.take_newest().is_some() && !jobs.have_waited(3));
}

/// Fails if a job waits for as long as a goroutine computes that has come back to the P without a new tick.
#[test]
fn the_jobs_of_a_p_have_waited_when_a_goroutine_comes_back_to_it() {
    let (jobs, names) = (opened(), Names::new(2));
    let slot = names.put_in(&jobs, 0).unwrap();
    assert!(!jobs.have_waited(1));
    jobs.are_of_others();
    assert!(jobs.have_waited(1));
    assert!(slot.withdraw(names.name(0)) && !jobs.have_waited(1));
    assert!(names.put_in(&jobs, 1).is_some() && !jobs.have_waited(1), "it is the one's that has come back");
}

/// Fails if the monitor would take a P because of a job in the background, or would leave a P although a job above `Background`
/// waits beside one in the background.
#[test]
fn jobs_have_waited_unless_all_are_in_the_background() {
    let (jobs, names) = (opened(), Names::new(3));
    let put_in = |number, class| {
        jobs.note_class(class);
        names.put_in(&jobs, number).unwrap()
    };
    let first = put_in(0, Priority::Background);
    let _second = put_in(1, Priority::Background);
    assert!(!jobs.have_waited(2) && !jobs.stand_above_background() && !jobs.is_empty());
    let low = put_in(2, Priority::Low);
    assert!(jobs.have_waited(2) && !jobs.have_waited(1));
    assert!(first.withdraw(names.name(0)));
    put_in(0, Priority::Background);
    assert!(jobs.have_waited(2), "the one of Low still stands there");
    assert!(low.withdraw(names.name(2)));
    while jobs.take_oldest().is_some() {}
    put_in(0, Priority::Background);
    assert!(!jobs.have_waited(2));
    assert!(jobs.take_newest().is_some());
    put_in(1, Priority::Normal);
    put_in(0, Priority::Background);
    assert!(jobs.have_waited(2));
}

/// An owner puts in a few records, and withdraws them from the newest to the oldest; thieves take the oldest meanwhile. Fails
/// if a job is lost, or has two takers.
#[test]
fn each_job_has_one_taker() {
    const ROUNDS: usize = if cfg!(debug_assertions) { 20_000 } else { 200_000 };
    const DEPTH: usize = 5;
    let (jobs, names) = (opened(), Names::new(DEPTH));
    let taken: Vec<Count> = (0..DEPTH).map(|_| Count::new(0)).collect();
    let over = AtomicBool::new(false);
    /// `Jobs` has cells of its owner, which thieves do not touch.
    struct Shared<'a>(&'a Jobs<Active>);
    // SAFETY: thieves call only `take_oldest` and `is_empty`, which read atomics.
    unsafe impl Sync for Shared<'_> {}
    let shared = Shared(&jobs);
    thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                let shared = &shared;
                while !over.load(SeqCst) {
                    if let Some(entry) = shared.0.take_oldest() {
                        taken[names.number(entry)].fetch_add(1, SeqCst);
                    }
                    std::hint::spin_loop();
                }
            });
        }
        let (mut own, mut stolen) = (0, 0);
        for _ in 0..ROUNDS {
            let slots: Vec<_> =
                (0..DEPTH).map(|number| names.put_in(&jobs, number).expect("there is room")).collect();
            for (number, slot) in slots.into_iter().enumerate().rev() {
                if slot.withdraw(names.name(number)) {
                    own += 1;
                    continue;
                }
                while taken[number].load(SeqCst) == 0 {
                    thread::yield_now();
                }
                stolen += taken[number].swap(0, SeqCst) as usize;
            }
            assert!(jobs.is_empty());
        }
        over.store(true, SeqCst);
        assert_eq!(own + stolen, ROUNDS * DEPTH);
    });
    assert!(taken.iter().all(|count| count.load(SeqCst) == 0));
}
