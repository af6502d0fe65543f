//! Goroutines that were readied from outside of all Ps run soon, also where rings are long.
//!
//! A goroutine that an event or a plain thread readies, an *arrival*, has no P on which it could be the next. At the end of a
//! ring it would wait for all that stand there: beside a hundred goroutines that compute for 100 µs each, 10 ms.
//!
//! *The obvious way*, each arrival before the ring, starves the ring; and a server, of whose goroutines each is an arrival,
//! would serve those that came last. *Here* arrivals have a queue of their own, first in, first out, which is a part of the
//! global queue (`globq.rs`): under its lock, and counted by its `is_empty`. So what is proved of the global queue is proved of
//! arrivals.
//!
//! | an owner takes | when |
//! | --- | --- |
//! | the first arrival, before its ring | a look has read the clock, and the arrivals have their turn |
//! | an arrival and one of its ring alternately | `Normal` has its turn beside a higher class (`classes.rs`) |
//! | arrivals and others of the global queue in turn, one more of the others for each thousand that wait | at a visit, where the ring has no goroutines of its own |
//! | the same, into its ring | the ring is empty, and no goroutine stands in `runnext` |
//!
//! *Turns.* Arrivals and ring take turns. An arrivals' turn begins when one waits at a look, and the ring has had its turn; it
//! ends when none waits, or after [`TURN`]. The ring then has its turn for as long as that of the arrivals has taken, up to
//! [`MOST_TURN`]: so arrivals take at most about half of the time, and a ring takes about twice as long at most as without
//! them. Where other programs take the CPU away during a turn of the arrivals the ring gets more. A turn is told by two times,
//! so it goes on, and ends, whichever M has the P. Beside a ring that has goroutines of its own a visit (`look.rs`) takes no
//! arrival, and what it takes counts as of the turn in which it runs.
//!
//! *The queue does not grow without end.* Arrivals that spawn long goroutines take little time themselves: with half of the
//! time they would make the ring, or the global queue behind it, longer and longer. So an owner counts by how much the ring and
//! the global queue have become longer in the arrivals' turns, and have not become shorter since. Goroutines that plain threads
//! and other Ps add count only up to the number that the owner has queued itself, and only until the queues are shorter again
//! or a round is over. While the arrivals owe more than [`MOST_ADDED`], the ring's turn goes on, at most for a round: until as
//! many goroutines have run as stood in the ring, and in the global queue for each P that an M has, when the turn began. Where
//! the other Ps take none of that queue, it may become longer by as many times [`MOST_ADDED`]. Beside a higher class there is
//! no such bound.
//!
//! *Not done*: to reduce the debt by one for each goroutine that this P runs, less one for each that it queues. That would end
//! a debt sooner while others add goroutines. But two goroutines that ready each other run many times in one slice; they would
//! pay off a debt although no queue becomes shorter.
//!
//! *No arrival displaces another goroutine.* The one in `runnext` goes on within its slice, and arrivals wait until that has
//! ended; what an arrival readies goes on within the arrival's slice, in the arrivals' turn. A sleeper that goes first does so
//! before arrivals.
//!
//! *How soon.* An owner reads the clock about every [`LOOK_AROUND`](crate::prim::capacity::LOOK_AROUND), and after each
//! goroutine if they run for longer; and after each one in an arrivals' turn. While no arrival waits and no M is in the poller,
//! such an owner also polls, as often: a poll takes about a hundredth of that time. So in the best case an arrival waits for as
//! long as one goroutine runs, or for that time; at most for the ring's turn, and for the arrivals before it.
//!
//! *Not before equals.* A ring that has got all its goroutines from the poller or from other Ps, or when it was empty from the
//! global queue, and to which its own goroutines have added none, counts as a ring of arrivals: what the poller has then goes
//! to the ring's end, and no arrival goes first. So a server with many connections serves them in order, and polls no oftener
//! for this. An empty ring beside `runnext` is no such ring: two that wake each other would stand there without end.
//!
//! *No wake-up is lost.* S1 of an arrival is under the scheduler's lock (`inject`). An owner that takes one before its ring
//! wakes an M for what stands there: a goroutine that stands there alone was to be run at once.
//!
//! There are no turns by time where there is one queue, while a goroutine of a higher class waits, beside a ring of arrivals,
//! and without a clock (`GMPDEBUG=helping=0`).
//!
//! Checked by `models/visits.rs`; the turns and the order by the tests below, and by `tests/scheduling/arrivals.rs`.

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

/// After so long the ring has its turn: as much as passes between two visits at most.
const TURN: Duration = Duration::from_micros(500);
/// The ring's turn by time lasts no longer: an arrival that took more was kept from its CPU, or blocked its thread.
const MOST_TURN: Duration = Duration::from_millis(100);
/// While arrivals have added no more than this many goroutines to a queue, they still take turns by time.
const MOST_ADDED: usize = 1 << 12;

/// What an owner sees at a look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) tick: u32,
    pub(crate) now: Nanos,
    /// How many stand in the ring and in the global queue, without the arrivals.
    pub(crate) waiting: usize,
    /// How many of those a round of this P has.
    pub(crate) round: usize,
    /// See [`Arrivals::queued`].
    pub(crate) queued: u32,
}

/// Owner: whether arrivals or the ring have their turn on a P, and where the ring's goroutines have come from.
pub(crate) struct Arrivals {
    /// When the arrivals' turn began, while it lasts.
    began: Cell<Option<Nanos>>,
    /// The ring has its turn until then.
    ring_until: Cell<Nanos>,
    /// The tick at which the ring's turn began, and how many a round had then.
    round: Cell<(u32, usize)>,
    /// How many stood in the ring and in the global queue when this turn began; or the fewest since, in a turn of the ring.
    waiting: Cell<usize>,
    /// How many the owner had queued when the arrivals' turn began.
    queued_before: Cell<u32>,
    /// How many of the ring's positions have Gs from elsewhere, less those that the owner has queued elsewhere. Wraps.
    from_elsewhere: Cell<u32>,
    /// How many the arrivals' turns have added that may be there still.
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

    /// In a turn of the ring: no more than [`MOST_ADDED`] are left of what the arrivals have added, or a round is over.
    fn has_kept_up(&self, seen: Seen) -> bool {
        let gone = self.waiting.get().saturating_sub(seen.waiting);
        self.waiting.set(self.waiting.get() - gone);
        let (tick, round) = self.round.get();
        let all_have_run = seen.tick.wrapping_sub(tick) as usize >= round;
        let left = if all_have_run { 0 } else { self.added.get().saturating_sub(gone).min(seen.waiting) };
        self.added.set(left);
        left <= MOST_ADDED
    }

    /// An arrival goes first.
    pub(crate) fn go_first(&self, seen: Seen) {
        if self.began.get().is_none() {
            self.began.set(Some(seen.now));
            self.waiting.set(seen.waiting);
            self.queued_before.set(seen.queued);
        }
    }

    /// Ends the arrivals' turn, if they have it: the ring's turn begins.
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

    /// The tail of the ring has moved so far, and the owner has queued so many.
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

    /// Returns `true` if all that stand between the ends of the ring have come from elsewhere, one after another.
    #[inline]
    pub(crate) fn are_all(&self, (head, tail): (u32, u32)) -> bool {
        let (from, to) = self.filled.get();
        head == tail || to == tail && head.wrapping_sub(from) as i32 >= 0
    }
}

/// Returns how many goroutines one P runs until each that stands in its `ring` or in the `global` queue has had a turn, if all
/// `busy` Ps, of which the caller's is one, take from the global queue.
fn round_of(ring: usize, global: usize, busy: usize) -> usize {
    ring + global.div_ceil(busy)
}

impl<H: Host> Sched<H> {
    /// Returns `true` if goroutines that the owner of `p` has just found are to stand among the arrivals, and not in its ring:
    /// there are others that have waited longer, or the ring's own goroutines stand there.
    pub(crate) fn arrive_globally(&self, p: &P<H>) -> bool {
        self.globrunq_len() > 0 || self.arrivals_wait() || self.config.knobs.helping && self.has_own_ring(p)
    }

    /// Returns `true` if the ring of the caller's `p` is not one of arrivals, or `runnext` stands alone.
    pub(crate) fn has_own_ring(&self, p: &P<H>) -> bool {
        let (head, tail) = p.runq.ends();
        if head == tail { p.runq.has_next() } else { !p.poll_schedule.arrivals.are_all((head, tail)) }
    }

    /// In a turn of `Normal` beside a higher class: returns an arrival each second time, if both arrivals and the ring's own
    /// goroutines wait.
    pub(crate) fn arrival_in_turn(&self, p: &P<H>) -> Option<GRef<H>> {
        let ring_is_next = &p.poll_schedule.arrivals.ring_is_next;
        if !self.arrivals_wait() || !self.has_own_ring(p) || ring_is_next.replace(!ring_is_next.get()) {
            return None;
        }
        let first = self.take_arrival(p)?;
        mutant!(ArrivalInTurnWakesNobody: return Some(first));
        self.wakep();
        Some(first)
    }

    /// At a look of this tick and time. Returns the arrival that goes before the ring, if one does. `polls`: no poll was made
    /// for [`LOOK_AROUND`](crate::prim::capacity::LOOK_AROUND). `others_first`: another goroutine was promised to go first.
    pub(crate) fn first_arrival(
        &self,
        m: &M<H>,
        p: &P<H>,
        (tick, now, polls): (u32, Nanos, bool),
        others_first: bool,
    ) -> Option<GRef<H>> {
        let arrivals = &p.poll_schedule.arrivals;
        // The whole of the global queue: what moves between that and the ring changes nothing then.
        let (ring, global) = (p.runq.len() as usize, self.globrunq_len());
        let round = round_of(ring, global, self.census.read().nbusy() as usize);
        let seen =
            Seen { tick, now, waiting: ring + global, round, queued: arrivals.queued(p.runq.ends().1) };
        if !self.has_own_ring(p) {
            // Before the branch below, which returns: each yield of a bound goroutine asks with `others_first`, and the
            // arrivals' turn would never end.
            arrivals.have_no_ring(seen);
            return None;
        }
        if others_first.unless(ArrivalPutsOffTheSleeper) {
            if self.arrivals_wait() {
                p.poll_schedule.take_time_next(tick);
            }
            return None;
        }
        if self.config.has_one_queue || self.waits_above_normal(p) {
            arrivals.end_turn(seen);
            return None;
        }
        if p.slice_goes_on() {
            if self.arrivals_wait() {
                p.poll_schedule.take_time_next(tick);
            }
            return None;
        }
        if !arrivals.may_go_first(seen) {
            return None;
        }
        let mut found = GList::new();
        if polls && !self.arrivals_wait() && self.nobody_polls() {
            found = self.poll_now(&m.local);
        }
        // The goroutine that goes first is not queued, so that no other M comes for it; but it is queued where its class or its
        // hint may send it elsewhere. The `wakep` below is for the ring.
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
        arrivals.go_first(seen);
        // No M was woken for a goroutine that stands alone in the ring, as it was to be run at once.
        mutant!(ArrivalWakesNobody: return Some(first));
        self.wakep();
        Some(first)
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
