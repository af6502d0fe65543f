//! One owner, which the tests drive step by step, alone and beside real thieves.

use super::*;

use super::thief::Refused;
use crate::host::Active;
use crate::runtime::policy::Steal;

/// Gs without a runtime, which are told apart by their numbers.
struct Gs(Box<[G<Active>]>);

impl Gs {
    fn new(count: u32) -> Self {
        Gs((0..count).map(|_| G::new()).collect())
    }
    fn g(&self, number: u32) -> GRef<Active> {
        GRef::new(&self.0[number as usize])
    }
    fn list(&self, numbers: impl IntoIterator<Item = u32>) -> GList<Active> {
        let mut list = GList::new();
        numbers.into_iter().for_each(|number| list.push(self.g(number)));
        list
    }
    fn number(&self, g: GRef<Active>) -> u32 {
        ((g.to_raw().addr() - self.0.as_ptr().addr()) / size_of::<G<Active>>()) as u32
    }
    fn numbers(&self, mut list: GList<Active>) -> Vec<u32> {
        std::iter::from_fn(|| list.pop()).map(|g| self.number(g)).collect()
    }
    /// Returns the Gs that are spilled with `g`, if `g` has found the ring full.
    fn spilt(&self, queue: &Runq<Active>, g: Option<GRef<Active>>) -> Vec<u32> {
        let mut out = Vec::new();
        if let Some(g) = g {
            queue.spill(g, |g| out.push(self.number(g)));
        }
        out
    }
    /// Takes all Gs out of the ring, and returns them.
    fn ring(&self, queue: &Runq<Active>) -> Vec<u32> {
        std::iter::from_fn(|| queue.pop()).map(|g| self.number(g)).collect()
    }
    fn push(&self, queue: &Runq<Active>, numbers: std::ops::Range<u32>) {
        numbers.for_each(|number| assert!(queue.push(self.g(number)).is_none()));
    }
}

fn range(numbers: std::ops::Range<u32>) -> Vec<u32> {
    numbers.collect()
}

#[test]
fn the_ring_is_first_in_first_out_also_where_positions_wrap() {
    let gs = Gs::new(RUNQ);
    for start in [0, RUNQ - 1, u32::MAX - RUNQ, u32::MAX - 1, u32::MAX] {
        let queue = Runq::starting_at(start);
        for round in 1..4 {
            let count = RUNQ / round;
            gs.push(&queue, 0..count);
            assert_eq!((queue.len(), queue.is_empty()), (count, false));
            assert_eq!(gs.ring(&queue), range(0..count), "from {start}");
            assert_eq!((queue.len(), queue.is_empty()), (0, true));
        }
    }
}

#[test]
fn the_g_that_was_next_goes_to_the_tail() {
    let (gs, queue) = (Gs::new(3), Runq::new(Policy::default()));
    assert!(queue.push_next(gs.g(0), || ()).is_none());
    assert_eq!((queue.len(), queue.is_empty()), (0, false));
    assert!(queue.push(gs.g(1)).is_none());
    assert!(queue.push_next(gs.g(2), || ()).is_none());
    assert_eq!(queue.pop_next().map(|g| gs.number(g)), Some(2));
    assert_eq!(queue.pop_next(), None);
    assert_eq!(gs.ring(&queue), [1, 0]);
}

#[test]
fn a_full_ring_gives_its_older_half_and_the_new_one_away() {
    let gs = Gs::new(RUNQ + 2);
    for start in [0, u32::MAX - HALF / 2] {
        let queue = Runq::starting_at(start);
        gs.push(&queue, 0..RUNQ);
        assert!(queue.push_next(gs.g(RUNQ), || ()).is_none());
        let spilt = gs.spilt(&queue, queue.push_next(gs.g(RUNQ + 1), || ()));
        assert_eq!(spilt, [range(0..HALF), vec![RUNQ]].concat());
        assert_eq!(queue.pop_next().map(|g| gs.number(g)), Some(RUNQ + 1));
        assert_eq!(gs.ring(&queue), range(HALF..RUNQ));
    }
}

/// Fails when the owner waits for the thief, or gives away or overwrites what the thief has claimed.
#[test]
fn while_a_thief_is_in_the_ring_the_owner_pops_and_only_the_new_one_overflows() {
    let (gs, queue) = (Gs::new(RUNQ + 2), Runq::starting_at(u32::MAX - 1));
    gs.push(&queue, 0..RUNQ);
    let claim = queue.claim(|waiting| waiting / 2).expect("no other thief");
    assert_eq!(queue.claim(|waiting| waiting).err(), Some(Refused::Busy));
    assert_eq!(gs.spilt(&queue, queue.push(gs.g(RUNQ))), [RUNQ]);
    assert_eq!(queue.pop().map(|g| gs.number(g)), Some(HALF));
    assert_eq!(gs.spilt(&queue, queue.push(gs.g(RUNQ))), [RUNQ], "no slot comes back before the thief goes");
    assert_eq!(claim.gs().map(|g| gs.number(g)).collect::<Vec<_>>(), range(0..HALF));
    drop(claim);
    gs.push(&queue, RUNQ..RUNQ + 2);
    assert_eq!(gs.ring(&queue), range(HALF + 1..RUNQ + 2));
}

#[test]
fn a_batch_fills_the_ring_and_leaves_the_rest() {
    let gs = Gs::new(RUNQ + 3);
    for start in [0, u32::MAX - 1] {
        let queue = Runq::starting_at(start);
        gs.push(&queue, 0..1);
        let mut list = gs.list(1..RUNQ + 3);
        queue.push_batch(&mut list);
        assert_eq!(gs.numbers(list), range(RUNQ..RUNQ + 3));
        assert_eq!(gs.ring(&queue), range(0..RUNQ));
        let mut few = gs.list(0..2);
        queue.push_batch(&mut few);
        assert!(few.is_empty());
        queue.push_batch(&mut few);
        assert_eq!(gs.ring(&queue), [0, 1]);
    }
}

#[test]
fn a_thief_takes_half_rounded_up_and_runs_the_oldest() {
    let gs = Gs::new(RUNQ);
    for (waiting, stolen) in [(1, 1), (2, 1), (3, 2), (RUNQ - 1, HALF), (RUNQ, HALF)] {
        let (victim, own) = (Runq::starting_at(u32::MAX - 1), Runq::starting_at(u32::MAX - 2));
        gs.push(&victim, 0..waiting);
        let oldest = own.steal_from(&victim, Steal::Half, StealNext::No).expect("there is one");
        assert_eq!(gs.number(oldest), 0);
        assert_eq!(gs.ring(&own), range(1..stolen));
        assert_eq!(gs.ring(&victim), range(stolen..waiting));
    }
}

#[test]
fn a_thief_takes_no_more_than_it_has_room_for() {
    let (gs, victim, own) = (Gs::new(2 * RUNQ), Runq::new(Policy::default()), Runq::new(Policy::default()));
    gs.push(&victim, 0..RUNQ);
    gs.push(&own, RUNQ..2 * RUNQ - 2);
    assert_eq!(own.steal_from(&victim, Steal::Half, StealNext::No).map(|g| gs.number(g)), Some(0));
    assert_eq!((own.len(), victim.len()), (RUNQ, RUNQ - 3));
    assert_eq!(own.steal_from(&victim, Steal::Half, StealNext::No).map(|g| gs.number(g)), Some(3));
    assert_eq!((own.len(), victim.len()), (RUNQ, RUNQ - 4));
}

#[test]
fn runnext_is_stolen_only_from_an_empty_ring_and_only_on_demand() {
    let (gs, victim, own) = (Gs::new(2), Runq::new(Policy::default()), Runq::new(Policy::default()));
    assert!(victim.push_next(gs.g(0), || ()).is_none());
    assert_eq!(own.steal_from(&victim, Steal::Half, StealNext::No), None);
    gs.push(&victim, 1..2);
    let steal = || own.steal_from(&victim, Steal::Half, StealNext::IfLeft(&|| 0)).map(|g| gs.number(g));
    assert_eq!([steal(), steal(), steal()], [Some(1), Some(0), None]);
    assert!(victim.is_empty());
}

#[test]
fn a_drain_leaves_nothing() {
    let (gs, queue) = (Gs::new(4), Runq::starting_at(u32::MAX));
    gs.push(&queue, 0..3);
    assert!(queue.push_next(gs.g(3), || ()).is_none());
    let mut out = Vec::new();
    queue.drain(|g| out.push(gs.number(g)));
    assert_eq!(out, [0, 1, 2, 3]);
    assert!(queue.is_empty());
}

/// Fails if a G is taken twice, or is missing at the end.
#[test]
fn an_owner_and_three_thieves_take_each_g_once() {
    const ROUNDS: u32 = 300_000;
    let gs = Gs::new(2 * RUNQ);
    // Whether each G stands in a queue; the owner queues a G only when it does not.
    let queued: Vec<_> = gs.0.iter().map(|_| AtomicU32::new(0)).collect();
    let done = AtomicU32::new(0);
    let queues: [Runq<Active>; 4] = std::array::from_fn(|_| Runq::starting_at(u32::MAX - 1000));
    let take = |g| assert_eq!(queued[gs.number(g) as usize].swap(0, Relaxed), 1, "taken twice");
    let pop = |own: &Runq<Active>| own.pop_next().or_else(|| own.pop());
    let thief = |own: usize| {
        let mut stolen = 0;
        while done.load(Relaxed) == 0 {
            let mut found = false;
            for victim in (0..queues.len()).filter(|&victim| victim != own) {
                let g = queues[own].steal_from(&queues[victim], Steal::Half, StealNext::IfLeft(&|| 0));
                found |= g.is_some();
                g.into_iter().for_each(|g| {
                    stolen += 1;
                    take(g);
                });
                // The thief leaves half of its Gs for other thieves.
                (0..queues[own].len() / 2).filter_map(|_| queues[own].pop()).for_each(take);
            }
            if !found {
                std::thread::yield_now();
            }
        }
        stolen
    };
    let stolen: u32 = std::thread::scope(|scope| {
        let thieves: Vec<_> = (1..queues.len()).map(|own| scope.spawn(move || thief(own))).collect();
        let queue = &queues[0];
        for round in 0..ROUNDS {
            let number = round % gs.0.len() as u32;
            if queued[number as usize].swap(1, Relaxed) == 0 {
                let g = gs.g(number);
                let full = if round % 4 == 0 { queue.push_next(g, || ()) } else { queue.push(g) };
                full.into_iter().for_each(|g| queue.spill(g, take));
            } else {
                pop(queue).into_iter().for_each(take);
            }
            if round % 64 == 0 {
                std::thread::yield_now();
            }
        }
        done.store(1, Relaxed);
        thieves.into_iter().map(|thief| thief.join().unwrap()).sum()
    });
    queues.iter().for_each(|queue| std::iter::from_fn(|| pop(queue)).for_each(take));
    assert!(stolen > 0 && queued.iter().all(|queued| queued.load(Relaxed) == 0));
}
