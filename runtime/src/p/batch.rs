//! The batch of a P: goroutines of one class other than `Normal`, which the owner has taken out of the queue of that class at
//! one acquisition of the lock, or from the batch of another P.
//!
//! The batch is a ring like that of the `Normal` goroutines (`runq.rs`), without `runnext`. So thieves take from the batch by
//! the same protocol, and every last look at a P's ring is a look at its batch as well (`sched/run/classes.rs`). The owner
//! fills only an empty batch, so all goroutines of the batch are of the class that it shows, and stand in the order of their
//! age. For thieves that class is a hint: the owner might have filled the batch anew meanwhile.

use crate::g::GRef;
use crate::host::Host;
use crate::p::runq::{Runq, StealNext};
use crate::prim::hooks::*;
use crate::prim::{SingleWriterByte, SingleWriterWord};
use crate::runtime::policy::Steal;
use crate::runtime::priority::Priority;
use crate::sched::run::class_queues::at;
use gmp_timers::Nanos;
use std::cell::Cell;

/// See the module's header.
pub(crate) struct Batch<H: Host> {
    /// Boxed, because a runtime can be built on a small stack.
    ring: Box<Runq<H>>,
    /// The code of the class. Written by the owner.
    class: SingleWriterByte,
    pub(crate) turns: Turns,
    /// Owner: when the owner last looked beyond its P before it ran a goroutine of a class below `Normal`.
    pub(crate) looked: Cell<Nanos>,
    /// How many goroutines of each class, in the order of `CLASSES`, the owner has taken out of a queue or a batch. Written by
    /// the owner.
    ran: [SingleWriterWord; 3],
    /// How often the owner took the lock to take goroutines of a class.
    #[cfg(test)]
    pub(crate) locks: Cell<usize>,
}

/// Which class has the next turn: the highest that waits, or a lower class that is due its share.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Turn {
    /// The highest goes first.
    Highest,
    Normal,
    Low,
}

/// Owner: how many goroutines of higher classes have run since a lower class had a turn.
pub(crate) struct Turns {
    normal: Cell<u32>,
    low: Cell<u32>,
}

impl Turns {
    const fn new() -> Self {
        Turns { normal: Cell::new(0), low: Cell::new(0) }
    }

    /// Returns which class has the next turn, if the lower classes have one turn in `share`. The caller asks once for each
    /// goroutine, while a goroutine of a class other than `Normal` waits.
    pub(crate) fn next(&self, share: u32) -> Turn {
        let [normal, low] = [&self.normal, &self.low].map(|turn| {
            turn.set(turn.get().saturating_add(1));
            turn.get()
        });
        if low >= share {
            Turn::Low
        } else if normal >= share {
            Turn::Normal
        } else {
            Turn::Highest
        }
    }

    /// For models: makes the next turn one of `Normal`.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn normal_comes_next(&self, share: u32) {
        self.normal.set(share);
        self.low.set(0);
    }

    /// Called when a goroutine of this class is to run, or when the class had its turn and no goroutine.
    pub(crate) fn ran(&self, class: Priority) {
        match class {
            Priority::High | Priority::Background => {}
            Priority::Normal => self.normal.set(0),
            Priority::Low => self.low.set(0),
        }
    }
}

impl<H: Host> Batch<H> {
    pub(crate) fn new() -> Self {
        Batch {
            ring: Box::new(Runq::starting_at(0)),
            class: SingleWriterByte::new(Priority::Low.code() as u8),
            turns: Turns::new(),
            looked: Cell::new(Nanos::ZERO),
            ran: std::array::from_fn(|_| SingleWriterWord::new(0)),
            #[cfg(test)]
            locks: Cell::new(0),
        }
    }

    /// Returns the class of the goroutines in the batch. Exact for the owner; otherwise a hint.
    pub(crate) fn class(&self) -> Priority {
        Priority::of_code(u32::from(self.class.get()))
    }

    /// Owner: counts a goroutine of this class, which is about to have a turn.
    pub(crate) fn count(&self, class: Priority) {
        if let Some(ran) = at(class).map(|at| &self.ran[at]) {
            ran.set(ran.get() + 1);
        }
    }

    /// Any thread: returns how many goroutines of this class have had a turn; zero for `Normal`. A hint.
    pub(crate) fn ran(&self, class: Priority) -> u64 {
        at(class).map_or(0, |at| self.ran[at].get())
    }

    /// Any thread: as [`Runq::is_empty`].
    pub(crate) fn is_empty(&self) -> bool {
        self.ring.is_empty()
    }

    /// Returns about how many goroutines there are.
    pub(crate) fn len(&self) -> u32 {
        self.ring.len()
    }

    /// Owner: takes the oldest goroutine, if the batch is of this class.
    #[inline]
    pub(crate) fn pop(&self, class: Priority) -> Option<GRef<H>> {
        if self.class() == class { self.ring.pop() } else { None }
    }

    /// Owner: fills the batch, which is empty, with goroutines of this class, in their order.
    pub(crate) fn fill(&self, class: Priority, gs: impl FnMut() -> Option<GRef<H>>) {
        debug_assert!(
            class != Priority::Normal && self.is_empty(),
            "fill: a batch of {} {class}",
            self.len()
        );
        self.class.set(class.code() as u8);
        self.ring.push_from(gs);
    }

    /// Owner: takes all goroutines, in order, for a caller that queues them before anything else. Returns `None` while a thief
    /// is in the ring.
    pub(crate) fn take_all(&self) -> Option<impl Iterator<Item = GRef<H>>> {
        self.ring.take_all()
    }

    /// Owner of `self`; `victim` is the batch of another P. Takes half of it, or one goroutine if the own batch is not empty.
    /// Returns the oldest, which is to run.
    pub(crate) fn steal_from(&self, victim: &Self) -> Option<GRef<H>> {
        mutant!(BatchNeverStolen: return None);
        let own = self.is_empty();
        // The owner might fill its batch anew between the looks and the theft: then the higher class counts, so that no
        // goroutine waits too long.
        let before = victim.class();
        let g =
            self.ring.steal_from(&victim.ring, if own { Steal::Half } else { Steal::One }, StealNext::No)?;
        if own {
            // The class is read once, because any thread can change it at any time. If `g` became `Normal` while it stood
            // there, its class does not count: no owner looks for a batch of `Normal` goroutines.
            let class = g.class();
            let of_g = if class == Priority::Normal { before } else { class };
            mutant!(BatchReadsTheClassTwice: let of_g = if class == Priority::Normal { before } else { g.class() });
            self.class.set(before.max(of_g).max(victim.class()).code() as u8);
        }
        Some(g)
    }

    /// Any thread: as [`Runq::drain`].
    pub(crate) fn drain(&self, out: impl FnMut(GRef<H>)) {
        self.ring.drain(out);
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Runs goroutines while some of each class wait, and returns how many of each had a turn.
    fn run(share: u32, count: u32) -> [u32; 3] {
        let turns = Turns::new();
        let mut ran = [0; 3];
        for _ in 0..count {
            let class = match turns.next(share) {
                Turn::Highest => Priority::High,
                Turn::Normal => Priority::Normal,
                Turn::Low => Priority::Low,
            };
            turns.ran(class);
            ran[[Priority::High, Priority::Normal, Priority::Low]
                .iter()
                .position(|&it| it == class)
                .unwrap()] += 1;
        }
        ran
    }

    /// Fails when the lower classes starve, or have more than their share.
    #[test]
    fn each_lower_class_has_its_share() {
        let [high, normal, low] = run(61, 6_100);
        assert!((98..=100).contains(&low) && (98..=100).contains(&normal), "{high} {normal} {low}");
        let [high, normal, low] = run(3, 300);
        assert!(low >= 98 && normal >= 98 && high >= 98, "{high} {normal} {low}");
    }
}
