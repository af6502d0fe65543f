//! Rounds: how goroutines that yield give way to those in the global queue.
//!
//! A goroutine that yields goes to the end of its P's ring. So the ring might never become empty. Then the goroutines in the
//! global queue would run at visits only (`look.rs`), and the next overflow would send back those that a visit brings into the
//! ring. So when a goroutine yields while the global queue holds others, a *round* begins, which lasts until the ring's present
//! goroutines have run.
//!
//! ```text
//!            these run in this round    these have come since
//!    ··· │ ························ │ ························ │ free ···
//!        ▲ head                     ▲ ends                     ▲ tail
//! ```
//! | when | then |
//! | --- | --- |
//! | the ring overflows in a round | its newer half, not its older half, goes to the global queue |
//! | a visit comes in a round | the visit takes one goroutine, which runs at once, and not a share |
//! | the round ends, and all fit into the ring | the global queue is emptied into the ring |
//! | the round ends, and not all fit | the ring's goroutines go behind the global queue's, whose first ones come in |
//!
//! So each goroutine has a turn before any goroutine that came later has a second turn, as if there were one queue. A round
//! follows another until as many goroutines have come from the global queue as that queue held at the end of the last round in
//! which a goroutine yielded.
//!
//! Goroutines that only spawn and wake others begin no round. With rounds a tree of tasks would run in the order of its spawns,
//! and all of its goroutines would be alive at once.
//!
//! [`Round`] decides, and knows positions and lengths only; `inject.rs` moves the goroutines. The tests below play whole queues
//! by its decisions and those of [`PollSchedule`](crate::sched::run::look::PollSchedule).

use crate::prim::capacity::RUNQ;
use crate::runtime::policy::FromGlobal;
use std::cell::Cell;

/// By default at most this many goroutines come from the global queue into the ring when not all fit: the other half of the
/// ring is for goroutines that are queued meanwhile.
const BATCH: usize = RUNQ as usize / 2;

/// Owner: the round of a P. Positions are those of the P's ring, and wrap.
pub(crate) struct Round {
    on: Cell<bool>,
    ends: Cell<u32>,
    /// A goroutine has yielded in this round; never `true` without a round.
    yielded: Cell<bool>,
    /// Rounds go on until this many goroutines more have come from the global queue.
    due: Cell<usize>,
}

/// How many goroutines a P takes out of the global queue, by the policy.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Take {
    /// When the P's ring is empty.
    pub(crate) share: usize,
    /// When the global queue could be emptied.
    most: usize,
}

impl Take {
    /// Returns how many of `global` goroutines one of `procs` Ps takes by the policy. By default the P takes its share, as if
    /// each P came once, and at most as many as half of its ring holds.
    pub(crate) fn of(global: usize, procs: usize, policy: FromGlobal) -> Self {
        match policy {
            FromGlobal::One => Take { share: 1, most: 1 },
            FromGlobal::Share => Take { share: (global / procs + 1).min(BATCH), most: usize::MAX },
            FromGlobal::All => Take { share: global.max(1), most: usize::MAX },
        }
    }
}

/// What the end of a round moves.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Exchange {
    /// The ring's goroutines go behind those of the global queue.
    pub(crate) gives_all: bool,
    /// This many then come into the ring.
    pub(crate) takes: usize,
}

impl Round {
    pub(crate) fn new() -> Self {
        Round { on: Cell::new(false), ends: Cell::new(0), yielded: Cell::new(false), due: Cell::new(0) }
    }

    /// Returns `true` if there is a round.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.get()
    }

    /// Returns `true` if there is a round, and a goroutine has yielded in it.
    #[inline]
    pub(crate) fn has_yielded(&self) -> bool {
        self.yielded.get()
    }

    /// A goroutine has yielded while the global queue was not empty. Returns `true` if a round begins, with all goroutines in
    /// the ring, up to the tail.
    pub(crate) fn note_yield(&self, tail: u32) -> bool {
        self.yielded.set(true);
        let begins = !self.on.replace(true);
        if begins {
            self.ends.set(tail);
        }
        begins
    }

    /// The goroutines up to the ring's tail run in this round, too.
    pub(crate) fn take_in(&self, tail: u32) {
        self.ends.set(tail);
    }

    /// Ends the round, if there is one, and begins no other.
    pub(crate) fn end(&self) {
        self.on.set(false);
        self.yielded.set(false);
        self.due.set(0);
    }

    /// Returns how many goroutines of this round are still in the ring; `None` if there is no round.
    pub(crate) fn left(&self, head: u32) -> Option<u32> {
        // Thieves might have moved the head beyond the end.
        self.on.get().then(|| (self.ends.get().wrapping_sub(head) as i32).max(0) as u32)
    }

    /// The older half of a full ring, which began at `head`, was moved behind the old tail, and the newer half is
    /// gone.
    pub(crate) fn keep_older_half(&self, head: u32) {
        let left = self.left(head).map_or(0, |left| left.min(RUNQ / 2));
        self.ends.set(head.wrapping_add(RUNQ + left));
    }

    /// Ends a round: `ring` and `global` are the numbers of goroutines in the ring and in the global queue. If all fit into the
    /// ring, and the policy lets a P take all of the global queue, all of it goes into the ring; otherwise the P takes its
    /// share. Calls `carry_out` to move them, and returns its result. If that is `false`, nothing was moved, and the round
    /// stays as it was: the next look tries again.
    pub(crate) fn exchange(
        &self,
        (ring, global): (usize, usize),
        take: Take,
        carry_out: impl FnOnce(Exchange) -> bool,
    ) -> bool {
        let all_fit = ring + global <= RUNQ as usize && global <= take.most;
        let share = take.share.min(RUNQ as usize).min(global);
        let due = match self.yielded.get() {
            _ if all_fit => 0,
            true => global,
            false => self.due.get().saturating_sub(share),
        };
        let goes_on = due > 0;
        let takes = match (all_fit, goes_on) {
            (true, _) => global,
            (false, true) => share,
            (false, false) => 0,
        };
        let moved = carry_out(Exchange { gives_all: goes_on, takes });
        if moved {
            self.yielded.set(false);
            self.due.set(due);
            self.on.set(goes_on);
        }
        moved
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
