//! Arrivals: goroutines that were readied from outside of all Ps run soon, even if rings are long.
//!
//! A goroutine that an event or a plain thread readies, an *arrival*, has no P whose `runnext` it could take. At the end of a
//! ring the arrival would wait for all goroutines in that ring: for 10 ms behind a hundred goroutines that compute for 100 µs
//! each.
//!
//! A sleeper whose own P finds it due, and that may not go first, is an arrival, too, if the goroutines in the ring are long
//! (`ring_is_long` in `look.rs`).
//!
//! *The obvious way* puts each arrival before the ring. That starves the ring; and a server whose goroutines are all arrivals
//! would always serve the latest ones. *Here* arrivals have a queue of their own, first in, first out, which is a part of the
//! global queue (`globq.rs`): under that queue's lock, and counted by that queue's `is_empty`. So each proof about the global
//! queue covers the arrivals.
//!
//! | an owner takes | when |
//! | --- | --- |
//! | the first arrival, before its ring | a look has read the clock, and the arrivals have their turn |
//! | an arrival and a goroutine of its ring alternately | `Normal` has its turn beside a higher class (`classes.rs`) |
//! | arrivals and others of the global queue in turn, one more of the others for each thousand that wait | at a visit, if the ring has no goroutines of its own |
//! | the same, into its ring | the ring is empty, and no goroutine stands in `runnext` |
//!
//! *Turns.* Arrivals and ring take turns. An arrivals' turn begins at a look, if an arrival waits and the ring's turn is over.
//! The arrivals' turn ends when no arrival waits, or after [`TURN`]. The ring then has its turn for as long as that of the
//! arrivals has taken, up to [`MOST_TURN`]: so arrivals take at most about half of the time, and a ring takes at most about
//! twice as long as without them. If other programs take the CPU away during a turn of the arrivals, the ring gets more. The P
//! keeps a turn as two times, so the turn goes on, and ends, whichever M holds the P. Beside a ring that has goroutines of its
//! own a visit (`look.rs`) takes no arrival; a goroutine that the visit takes counts towards the turn in which that goroutine
//! runs.
//!
//! *The queue does not grow without end.* Arrivals that spawn long goroutines take little time themselves: with half of the
//! time they would make the ring, or the global queue behind it, longer and longer. So an owner keeps a *debt*: the number of
//! goroutines by which the ring and the global queue grew in the arrivals' turns, less the number by which they have shrunk
//! since. The debt of one turn is at most the number of goroutines that the owner itself queued in that turn: goroutines that
//! plain threads and other Ps add are not counted beyond that. While the debt is more than [`MOST_ADDED`], the ring's turn goes
//! on, at most for a round, whose end cancels the debt. A round lasts until as many goroutines have run as stood, when the turn
//! began, in the ring and in this P's share of the global queue: the queue's length divided by the number of Ps that an M
//! holds. If the other Ps take nothing from the global queue, that queue can grow by [`MOST_ADDED`] for each P that an M holds.
//! Beside a higher class there is no such bound.
//!
//! *Not done*: reducing the debt by the number of goroutines that this P runs, less those that it queues. That would end a debt
//! sooner while other Ps and threads add goroutines. But two goroutines that ready each other run many times in one slice; they
//! would pay off a debt although no queue becomes shorter.
//!
//! *No arrival displaces another goroutine.* The goroutine in `runnext` runs within its slice, and arrivals wait until that
//! slice has ended. A goroutine that an arrival readies runs within the arrival's slice, in the arrivals' turn. A sleeper that
//! goes first goes before arrivals as well.
//!
//! *How soon.* An owner reads the clock about every [`LOOK_AROUND`](crate::prim::capacity::LOOK_AROUND), or after each
//! goroutine if goroutines run for longer than that; in an arrivals' turn it reads the clock after each goroutine. If no
//! arrival waits and no M is in the poller, the owner also polls about every `LOOK_AROUND`; a poll takes about a hundredth of
//! that time. A look that does not read the clock, and sees arrivals beside a ring with goroutines of its own, makes the owner
//! read the clock one goroutine later, because goroutines may have become longer. So in the best case an arrival waits for as
//! long as one goroutine runs, or for `LOOK_AROUND`; in the worst case it waits for the goroutines up to the next visit and one
//! more, for the ring's turn, and for the arrivals before it.
//!
//! *Not before equals.* A ring counts as a *ring of arrivals* if its owner has filled it only from the poller, from other Ps,
//! or, when empty, from the global queue, and its own goroutines have added none. Then the goroutines that the poller finds go
//! to the ring's end, and no arrival goes first. So a server with many connections serves them in order, and polls no more
//! often. An empty ring with a goroutine in `runnext` is not a ring of arrivals: two goroutines that wake each other could keep
//! it in that state for ever.
//!
//! *No wake-up is lost.* S1 of an arrival is under the central lock (`inject`). An owner that takes an arrival before its ring
//! calls `wakep` for the ring: no M was woken for a goroutine that is alone in the ring, because the owner was to run it at
//! once.
//!
//! There are no turns by time under a policy with one queue, while a goroutine of a higher class waits, beside a ring of
//! arrivals, and without a clock (`GMPDEBUG=helping=0`).
//!
//! Checked by `models/visits.rs`. The tests below, and `tests/scheduling/arrivals.rs`, check the turns and the order.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::event;
use crate::prim::hooks::*;
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::time::Duration;

/// How long a turn of the arrivals lasts at most: as long as the longest time between two visits.
const TURN: Duration = Duration::from_micros(500);
/// How long the ring's turn by time lasts at most: an arrival that took longer was kept off its CPU, or blocked its thread.
const MOST_TURN: Duration = Duration::from_millis(100);
/// While arrivals have added no more than this many goroutines to a queue, they still take turns by time.
const MOST_ADDED: usize = 1 << 12;

/// What an owner sees at a look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) tick: u32,
    pub(crate) now: Nanos,
    /// How many goroutines stand in the ring and in the global queue, without the arrivals.
    pub(crate) waiting: usize,
    /// How many of these a round of this P has.
    pub(crate) round: usize,
    /// See [`Arrivals::queued`].
    pub(crate) queued: u32,
}

/// Owner: whether the arrivals or the ring have their turn on a P, and where the ring's goroutines have come from.
pub(crate) struct Arrivals {
    /// When the arrivals' turn began, while it lasts.
    began: Cell<Option<Nanos>>,
    /// The ring has its turn until then.
    ring_until: Cell<Nanos>,
    /// The tick at which the ring's turn began, and how many goroutines a round had then.
    round: Cell<(u32, usize)>,
    /// How many goroutines stood in the ring and in the global queue when this turn began; in a turn of the ring, the fewest
    /// since then.
    waiting: Cell<usize>,
    /// How many goroutines the owner had queued when the arrivals' turn began.
    queued_before: Cell<u32>,
    /// How many Gs came into the ring from elsewhere, less those that the owner has queued in the global queue. Wraps.
    from_elsewhere: Cell<u32>,
    /// The debt: how many goroutines that the arrivals' turns have added might still be there.
    added: Cell<usize>,
    /// The next look reads the clock.
    settles: Cell<bool>,
    /// Beside a higher class the next turn of `Normal` is the ring's.
    ring_is_next: Cell<bool>,
    /// These positions of the ring were filled from elsewhere, one after another.
    filled: Cell<(u32, u32)>,
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        Arrivals {
            began: Cell::new(None),
            ring_until: Cell::new(Nanos::ZERO),
            round: Cell::new((0, 0)),
            waiting: Cell::new(0),
            queued_before: Cell::new(0),
            from_elsewhere: Cell::new(0),
            added: Cell::new(0),
            settles: Cell::new(false),
            ring_is_next: Cell::new(false),
            filled: Cell::new((0, 0)),
        }
    }

    /// The P was idle: neither arrivals nor a ring have waited for a turn.
    #[inline]
    pub(crate) fn begin_anew(&self) {
        self.began.set(None);
        self.ring_until.set(Nanos::ZERO);
        self.added.set(0);
    }

    /// The ring is empty, or a ring of arrivals: no goroutine waits for a turn of the ring.
    fn have_no_ring(&self, seen: Seen) {
        self.end_turn(seen);
        self.ring_until.set(Nanos::ZERO);
    }

    /// Returns `true` if a turn of the ring, if there is one, is over at this time.
    pub(crate) fn ring_turn_is_over_at(&self, time: Nanos) -> bool {
        self.ring_until.get() <= time
    }

    /// At a look: returns `true` if the clock is to be read.
    pub(crate) fn take_time(&self) -> bool {
        self.settles.replace(false)
    }

    /// The next look reads the clock.
    pub(crate) fn take_time_next(&self) {
        self.settles.set(true);
    }

    /// Returns `true` if an arrival may go first now. Ends a turn of the arrivals that has lasted long enough.
    pub(crate) fn may_go_first(&self, seen: Seen) -> bool {
        match self.began.get() {
            Some(began) if seen.now.saturating_since(began) >= TURN => {
                self.end_turn(seen);
                false
            }
            Some(_) => true,
            None => self.has_kept_up(seen) && seen.now >= self.ring_until.get(),
        }
    }

    /// In a turn of the ring: returns `true` if at most [`MOST_ADDED`] goroutines are left of those that the arrivals have
    /// added, or if a round is over.
    fn has_kept_up(&self, seen: Seen) -> bool {
        let gone = self.waiting.get().saturating_sub(seen.waiting);
        self.waiting.set(self.waiting.get() - gone);
        let (tick, round) = self.round.get();
        let all_have_run = seen.tick.wrapping_sub(tick) as usize >= round;
        let left = if all_have_run { 0 } else { self.added.get().saturating_sub(gone).min(seen.waiting) };
        self.added.set(left);
        left <= MOST_ADDED
    }

    /// An arrival goes first: the arrivals' turn begins, unless it goes on.
    pub(crate) fn go_first(&self, seen: Seen) {
        if self.began.get().is_none() {
            self.began.set(Some(seen.now));
            self.waiting.set(seen.waiting);
            self.queued_before.set(seen.queued);
        }
    }

    /// Ends the arrivals' turn, if it is on: the ring's turn begins.
    pub(crate) fn end_turn(&self, seen: Seen) {
        if let Some(began) = self.began.take() {
            self.ring_until.set(seen.now.saturating_add(seen.now.saturating_since(began).min(MOST_TURN)));
            self.round.set((seen.tick, seen.round));
            let queued = (seen.queued.wrapping_sub(self.queued_before.get()) as i32).max(0) as usize;
            self.added.set(self.added.get() + seen.waiting.saturating_sub(self.waiting.get()).min(queued));
            self.waiting.set(seen.waiting);
        }
    }

    /// Returns `true` during a turn of the arrivals.
    pub(crate) fn have_their_turn(&self) -> bool {
        self.began.get().is_some()
    }

    /// How many goroutines owners have queued in the ring, which ends at `tail`, and in the global queue. Wraps.
    fn queued(&self, tail: u32) -> u32 {
        tail.wrapping_sub(self.from_elsewhere.get())
    }

    /// The tail of the ring has moved by `moved`; the owner has queued `queued` of its own goroutines, here or elsewhere.
    #[inline]
    pub(crate) fn note_queued(&self, moved: u32, queued: u32) {
        let before = self.from_elsewhere.get();
        self.from_elsewhere.set(before.wrapping_add(moved).wrapping_sub(queued));
    }

    /// The ring had these ends, and was then filled from elsewhere up to this tail.
    #[inline]
    pub(crate) fn fill(&self, (head, tail): (u32, u32), filled: u32) {
        self.note_queued(filled.wrapping_sub(tail), 0);
        let (from, to) = self.filled.get();
        if head == tail {
            self.filled.set((tail, filled));
        } else if to == tail && head.wrapping_sub(from) as i32 >= 0 {
            self.filled.set((from, filled));
        }
    }

    /// Returns `true` if all goroutines between the ends of the ring have come from elsewhere, one after another.
    #[inline]
    pub(crate) fn are_all(&self, (head, tail): (u32, u32)) -> bool {
        let (from, to) = self.filled.get();
        head == tail || to == tail && head.wrapping_sub(from) as i32 >= 0
    }
}

/// Returns how many goroutines one P runs until each of the `ring` goroutines in its ring, and of the `global` goroutines in
/// the global queue, has had a turn, if all `busy` Ps, of which the caller's is one, take from the global queue.
fn round_of(ring: usize, global: usize, busy: usize) -> usize {
    ring + global.div_ceil(busy)
}

impl<H: Host> Sched<H> {
    /// Returns `true` if the goroutines that the owner of `p` has just found are to stand among the arrivals, and not in its
    /// ring: others have waited for longer, or the ring has goroutines of its own.
    pub(crate) fn arrive_globally(&self, p: &P<H>) -> bool {
        self.globq_len.for_all() > 0
            || self.globq_len.has_arrivals()
            || self.config.knobs.helping && self.has_own_ring(p)
    }

    /// Returns `true` if the ring of the caller's `p` is not one of arrivals, or `runnext` stands alone.
    pub(crate) fn has_own_ring(&self, p: &P<H>) -> bool {
        let (head, tail) = p.runq.ends();
        if head == tail { p.runq.has_next() } else { !p.poll_schedule.arrivals.are_all((head, tail)) }
    }

    /// In a turn of `Normal` beside a higher class: returns an arrival every second time, if both arrivals and the ring's own
    /// goroutines wait.
    pub(crate) fn arrival_in_turn(&self, p: &P<H>) -> Option<GRef<H>> {
        let ring_is_next = &p.poll_schedule.arrivals.ring_is_next;
        if !self.globq_len.has_arrivals()
            || !self.has_own_ring(p)
            || ring_is_next.replace(!ring_is_next.get())
        {
            return None;
        }
        let first = self.take_arrival(p)?;
        mutant!(ArrivalInTurnWakesNobody: return Some(first));
        self.wakep();
        Some(first)
    }

    /// At a look at this tick and time: returns the arrival that goes before the ring, if there is one. `polls`: no poll was
    /// made for [`LOOK_AROUND`](crate::prim::capacity::LOOK_AROUND). `others_first`: another goroutine was promised to go
    /// first.
    pub(crate) fn first_arrival(
        &self,
        m: &M<H>,
        p: &P<H>,
        (tick, now, polls): (u32, Nanos, bool),
        others_first: bool,
    ) -> Option<GRef<H>> {
        let arrivals = &p.poll_schedule.arrivals;
        // Ring and global queue together: so a move from one to the other changes nothing.
        let (ring, global) = (p.runq.len() as usize, self.globq_len.for_all());
        let round = round_of(ring, global, self.census.read().nbusy() as usize);
        let seen =
            Seen { tick, now, waiting: ring + global, round, queued: arrivals.queued(p.runq.ends().1) };
        if !self.has_own_ring(p) {
            // This branch comes before the next one, which returns: each yield of a bound goroutine sets `others_first`, and
            // the arrivals' turn would never end.
            arrivals.have_no_ring(seen);
            return None;
        }
        if others_first.unless(ArrivalPutsOffTheSleeper) {
            if self.globq_len.has_arrivals() {
                p.poll_schedule.take_time_next(tick);
            }
            return None;
        }
        if self.config.policy.has_one_queue() || self.waits_above_normal(p) {
            arrivals.end_turn(seen);
            return None;
        }
        if p.slice_goes_on() {
            if self.globq_len.has_arrivals() {
                p.poll_schedule.take_time_next(tick);
            }
            return None;
        }
        if !arrivals.may_go_first(seen) {
            return None;
        }
        let mut found = GList::new();
        if polls && !self.globq_len.has_arrivals() && self.nobody_polls() {
            found = self.poll_now(&m.local);
        }
        // The goroutine that is to run at once is not queued, so that no other M comes for it. With `detours` it is queued all
        // the same, because its class or its hint might send it elsewhere. The `wakep` below is for the ring.
        let first = if self.detours.get() == 0 { found.pop() } else { None };
        self.inject(found);
        if first.is_none() && self.waits_above_normal(p) {
            arrivals.end_turn(seen);
            return None;
        }
        let Some(first) = first.or_else(|| self.take_arrival(p)) else {
            arrivals.end_turn(seen);
            return None;
        };
        event(format_args!("runs {first:?} before the queue of {p:?}"));
        if let Some(next) = p.runq.pop_next()
            && let Some(next) = p.runq.push(next)
        {
            self.spill(p, next);
        }
        p.begin_slice();
        p.poll_schedule.begin_slice();
        arrivals.go_first(seen);
        // No M was woken for a goroutine that stands alone in the ring, because this M was to run that goroutine at once.
        mutant!(ArrivalWakesNobody: return Some(first));
        self.wakep();
        Some(first)
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
