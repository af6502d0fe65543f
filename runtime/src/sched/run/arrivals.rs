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
//! the global queue have become longer in the arrivals' turns, and have not become shorter since. What others add, plain
//! threads and other Ps, counts at most as far as the owner has queued as many, and then until the queues have become shorter,
//! or a round is over. While the arrivals owe more than [`MOST_ADDED`], the ring's turn goes on, at most for a round: until as
//! many goroutines have run as stood in the ring, and in the global queue for each P that an M has, when the turn began. Where
//! the other Ps take none of that queue, it may become longer by as many times [`MOST_ADDED`]. Beside a higher class there is
//! no such bound.
//!
//! *To pay by each goroutine that this P runs*, less those that it queues, would end a debt sooner beside what others add. But
//! two that ready each other run again and again within one slice, and no queue becomes shorter for that.
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

/// Owner: whose turn it is on a P, and what the P's ring is made of.
pub(crate) struct Arrivals {
    /// When the arrivals' turn began, while it lasts.
    began: Cell<Option<Nanos>>,
    /// The ring has its turn until then.
    ring_until: Cell<Nanos>,
    /// The tick at which the ring's turn began, and how many a round had then.
    round: Cell<(u32, usize)>,
    /// How many stood there when this turn began; or the fewest since, in a turn of the ring.
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

    /// The ring is empty, or one of arrivals: nothing waits for a turn of the ring's.
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

    /// The ring has its turn, if the arrivals had theirs.
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

/// How many goroutines one P runs until each of these has had a turn, if all Ps that an M has take of the global queue; the
/// caller's is one of them.
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
        if others_first.unless(ArrivalPutsOffTheSleeper) {
            if self.arrivals_wait() {
                p.poll_schedule.take_time_next(tick);
            }
            return None;
        }
        // The whole of the global queue: what moves between that and the ring changes nothing then.
        let (ring, global) = (p.runq.len() as usize, self.globrunq_len());
        let round = round_of(ring, global, self.census.read().nbusy() as usize);
        let seen =
            Seen { tick, now, waiting: ring + global, round, queued: arrivals.queued(p.runq.ends().1) };
        if !self.has_own_ring(p) {
            arrivals.have_no_ring(seen);
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
        // The one that goes first is not queued, so that no other M comes for it, unless its class or its hint may send it
        // elsewhere. The `wakep` below is for the ring.
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
        // A goroutine that stands there alone was to be run at once, so no M was woken.
        mutant!(ArrivalWakesNobody: return Some(first));
        self.wakep();
        Some(first)
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::g::{Birth, drop_handle};
    use crate::host::Active;
    use crate::prim::capacity;
    use crate::runtime::policy::Policy;
    use crate::sched::run::look::PollSchedule;
    use crate::sched::run::place::Place;
    use crate::{Runtime, go, go_fair, yield_now};
    use std::panic::Location;

    /// How long goroutines of the ring run, arrivals, and what a visit takes, which is always there unless it takes no time; in
    /// nanoseconds.
    #[derive(Clone, Copy, Debug)]
    struct Lengths {
        ring: u64,
        arrival: u64,
        visit: u64,
    }

    /// What has run for how long; how many turns the ring has had, and how often the M has looked around.
    #[derive(Debug, Default)]
    struct Ran {
        ring: u64,
        arrivals: u64,
        visits: u64,
        turns: u64,
        arounds: u64,
    }

    /// Plays an owner whose ring never ends. `comes` is asked whether an arrival waits at a time, and takes it.
    fn play(lengths: Lengths, ticks: u32, mut comes: impl FnMut(u64) -> bool) -> Ran {
        let (schedule, mut clock, mut ran) = (PollSchedule::new(Policy::default()), 0, Ran::default());
        let arrivals = &schedule.arrivals;
        for tick in 1..=ticks {
            let (mut of_visit, mut of_arrivals) = (false, false);
            let seen = |now| Seen { tick, now, waiting: 100, round: 100, queued: 0 };
            if schedule.is_due(tick) {
                let due = schedule.look(tick, 0, Some(|| Nanos::from_nanos(clock)));
                let during_turn = arrivals.have_their_turn();
                of_visit = due.visit.is_some() && lengths.visit > 0;
                if let Some(seen) = due.now.map(seen).filter(|&seen| !of_visit && arrivals.may_go_first(seen))
                {
                    of_arrivals = comes(clock);
                    if of_arrivals {
                        arrivals.go_first(seen);
                    } else {
                        arrivals.end_turn(seen);
                    }
                }
                if arrivals.have_their_turn() {
                    schedule.arrival_runs(tick);
                }
                let finds = of_visit || of_arrivals;
                ran.arounds += u64::from(due.around.is_some() && (!finds || during_turn && !of_visit));
                if due.around.is_some() && finds {
                    schedule.look_again(tick);
                }
            }
            let (kind, long) = match (of_visit, of_arrivals) {
                (true, _) => (&mut ran.visits, lengths.visit),
                (false, true) => (&mut ran.arrivals, lengths.arrival),
                (false, false) => {
                    ran.turns += 1;
                    (&mut ran.ring, lengths.ring)
                }
            };
            *kind += long;
            clock += long;
        }
        ran
    }

    const LENGTHS: [u64; 5] = [100, 2_000, 20_000, 100_000, 10_000_000];

    /// Fails when arrivals, of which there are always more, take more than half of the time, or far less.
    #[test]
    fn arrivals_take_half_of_the_time_at_most() {
        for ring in LENGTHS {
            for arrival in LENGTHS {
                let lengths = Lengths { ring, arrival, visit: 0 };
                let ran = play(lengths, 100_000, |_| true);
                let ahead = nanos(TURN) + arrival;
                assert!(ran.arrivals <= ran.ring + ahead, "{lengths:?}: {ran:?}");
                // A goroutine of the ring that is longer than the turn is not ended.
                let share = nanos(TURN).max(arrival) as f64 / (nanos(TURN).max(arrival) + ring) as f64;
                assert!(ran.arrivals as f64 > 0.8 * share * ran.ring as f64, "{lengths:?}: {ran:?}");
            }
        }
    }

    /// One arrival, ready again soon after it has run: a client that asks again when it has its answer. Fails when that takes
    /// more than half of the time.
    #[test]
    fn one_that_comes_back_at_once_takes_half_of_the_time_at_most() {
        for ring in LENGTHS {
            for arrival in LENGTHS {
                let (lengths, mut ready) = (Lengths { ring, arrival, visit: 0 }, 0);
                let ran = play(lengths, 100_000, |clock| {
                    let comes = clock >= ready;
                    if comes {
                        ready = clock + arrival + 20_000;
                    }
                    comes
                });
                assert!(ran.arrivals <= ran.ring + nanos(TURN) + arrival, "{lengths:?}: {ran:?}");
                assert!(ran.arrivals > 0, "{lengths:?}");
            }
        }
    }

    /// A client that asks again some time after its answer, so that each turn of the ring is one goroutine. Fails when the M
    /// looks around far less often than beside the ring's goroutines alone.
    #[test]
    fn arrivals_do_not_keep_an_m_from_looking_around() {
        for (ring, arrival, apart) in [
            (100_000, 20_000, 50_000),
            (50_000, 20_000, 20_000),
            (1_000_000, 100_000, 0),
            (2_000, 100_000, 0),
        ] {
            let (lengths, mut ready) = (Lengths { ring, arrival, visit: 0 }, 0);
            let ran = play(lengths, 100_000, |clock| {
                let comes = clock >= ready;
                if comes {
                    ready = clock + arrival + apart;
                }
                comes
            });
            let least = ran.ring / ring.max(nanos(capacity::LOOK_AROUND)) / 3;
            assert!(ran.arounds >= least, "{lengths:?}, {apart}: {ran:?}");
        }
    }

    /// Fails when arrivals have no turn beside others that visits find without end, or the ring none between two visits.
    #[test]
    fn what_visits_find_keeps_neither_arrivals_nor_the_ring_back() {
        for ring in [2_000, 100_000, 600_000] {
            for visit in [100_000, 1_000_000, 5_000_000] {
                for (arrival, apart) in [(10_000, 900_000), (100_000, 0), (1_000_000, 20_000)] {
                    let (lengths, mut ready, mut came) = (Lengths { ring, arrival, visit }, 0, 0);
                    let ran = play(lengths, 100_000, |clock| {
                        let comes = clock >= ready;
                        if comes {
                            ready = clock + arrival + apart;
                            came += 1;
                        }
                        comes
                    });
                    assert!(came > 100, "{lengths:?}, {apart}: {came}, {ran:?}");
                    assert!(ran.turns >= ran.visits / visit - 1, "{lengths:?}, {apart}: {ran:?}");
                }
            }
        }
    }

    /// Fails when one that comes now and then waits for more than a goroutine, or than the time between two looks.
    #[test]
    fn an_arrival_waits_for_one_goroutine_or_a_moment() {
        for ring in LENGTHS {
            let (every, mut next, mut waits) = (10 * ring.max(100_000), 0, Vec::new());
            play(Lengths { ring, arrival: 10_000, visit: 0 }, 400_000, |clock| {
                let came = clock >= next;
                if came {
                    waits.push(clock - next);
                    next += every;
                }
                came
            });
            let most = ring.max(2 * nanos(capacity::LOOK_AROUND)) + ring;
            assert!(waits.len() > 20, "{ring}: {} waits", waits.len());
            // The first ones find no rhythm yet.
            let longest = *waits[3..].iter().max().expect("there are as many");
            assert!(longest <= most, "beside {ring}: {longest} instead of {most}");
        }
    }

    fn nanos(time: Duration) -> u64 {
        time.as_nanos() as u64
    }

    /// Fails when a turn of the arrivals does not end, or that of the ring, also after a long pause, or when another M goes on
    /// with the P.
    #[test]
    fn turns_end() {
        let arrivals = Arrivals::new();
        let at = |micros: u64| Nanos::from_nanos(1_000_000_000 + 1_000 * micros);
        let seen = |micros| Seen { tick: 7, now: at(micros), waiting: 9, round: 9, queued: 9 };
        let may = |micros| arrivals.may_go_first(seen(micros));
        assert!(may(0));
        arrivals.go_first(seen(0));
        arrivals.go_first(seen(100));
        assert!(arrivals.have_their_turn() && may(499));
        assert!(!may(600), "the ring's turn begins");
        assert!(!arrivals.have_their_turn() && !may(1_199));
        assert!(may(1_200));
        arrivals.go_first(seen(1_200));
        arrivals.end_turn(seen(1_250));
        assert!(!may(1_299) && may(1_300), "none waited");
        arrivals.go_first(seen(1_300));
        assert!(!may(3_600_000_000), "an hour");
        assert!(may(3_600_100_000));
        arrivals.go_first(seen(3_600_100_000));
        arrivals.have_no_ring(seen(3_600_200_000));
        assert!(!arrivals.have_their_turn() && may(3_600_200_000));
    }

    /// Fails when arrivals go first although they have added too many goroutines, or may not although these are gone, or after
    /// a round; when the ring's own goroutines count; also where ticks wrap.
    #[test]
    fn arrivals_that_have_added_too_many_wait_for_a_round_at_most() {
        let arrivals = Arrivals::new();
        let seen = |tick: u32, millis: u64, waiting: usize| Seen {
            tick: (u32::MAX - 100).wrapping_add(tick),
            now: Nanos::from_nanos(1_000_000 * millis),
            waiting,
            round: waiting,
            queued: waiting as u32,
        };
        let may = |tick, millis, waiting| arrivals.may_go_first(seen(tick, millis, waiting));
        // What the ring has added itself.
        assert!(may(0, 0, 3 * MOST_ADDED));
        arrivals.go_first(seen(0, 0, 10));
        arrivals.end_turn(seen(1, 0, 10 + MOST_ADDED));
        assert!(may(2, 1, 5 * MOST_ADDED));
        arrivals.go_first(seen(2, 1, 20 + MOST_ADDED));
        arrivals.end_turn(seen(3, 1, 50 + MOST_ADDED));
        assert!(!may(4, 2, 50 + MOST_ADDED) && !may(5, 3, 90 + MOST_ADDED), "30 too many");
        assert!(!may(6, 4, 21 + MOST_ADDED) && !may(7, 5, 30 + MOST_ADDED) && may(8, 6, 20 + MOST_ADDED));
        // A round, which all of them have had.
        let most = MOST_ADDED as u32;
        arrivals.go_first(seen(9, 7, 20 + MOST_ADDED));
        arrivals.end_turn(seen(10, 7, 60 + MOST_ADDED));
        assert!(!may(69 + most, 8, 60 + MOST_ADDED) && may(70 + most, 9, 60 + MOST_ADDED));
        arrivals.go_first(seen(71 + most, 10, 60 + MOST_ADDED));
        arrivals.end_turn(seen(72 + most, 10, 90 + MOST_ADDED));
        assert!(may(73 + most, 11, 90 + MOST_ADDED), "30 since then");
        // No more are left than stand there.
        arrivals.go_first(seen(80, 12, 0));
        arrivals.end_turn(seen(81, 12, 2 * MOST_ADDED));
        assert!(!may(82, 13, 2 * MOST_ADDED));
        arrivals.go_first(seen(83, 13, MOST_ADDED));
        arrivals.end_turn(seen(84, 13, MOST_ADDED));
        assert!(may(85, 14, MOST_ADDED));
    }

    /// Each arrival spawns goroutines, which run once, into a queue of others that yield. Fails when more and more stand there.
    #[test]
    fn arrivals_that_spawn_do_not_make_a_queue_longer_and_longer() {
        const ARRIVAL: u64 = 2_000;
        for (crowd, adds, at_once) in [(1, 1, 300), (100, 2, 300), (100, 8, 10_000), (1_000, 2, 100)] {
            let (arrivals, mut clock, mut left, mut spawned) = (Arrivals::new(), 0, 0, 0);
            let mut queued = 0;
            let mut queue: std::collections::VecDeque<_> = std::iter::repeat_n(true, crowd).collect();
            let mut most = 0;
            for tick in 0..2_000_000 {
                let (now, waiting) = (Nanos::from_nanos(clock), queue.len());
                let seen = Seen { tick, now, waiting, round: waiting, queued };
                if arrivals.may_go_first(seen) {
                    // So many come at once, after each turn of the ring.
                    if left > 0 {
                        (left, clock, spawned) = (left - 1, clock + ARRIVAL, spawned + adds);
                        arrivals.go_first(seen);
                        queue.extend(std::iter::repeat_n(false, adds));
                        queued += adds as u32;
                        most = most.max(queue.len());
                        continue;
                    }
                    arrivals.end_turn(seen);
                    left = at_once;
                }
                if queue.pop_front() == Some(true) {
                    queue.push_back(true);
                    queued += 1;
                }
                clock += 30_000;
            }
            let of_a_turn = adds * at_once.min((nanos(TURN) / ARRIVAL) as usize + 1);
            assert!(most <= crowd + MOST_ADDED + 2 * of_a_turn, "{crowd}, {adds}, {at_once}: {most}");
            assert!(spawned > 100_000, "{crowd}, {adds}, {at_once}: {spawned}");
        }
    }

    /// A plain thread, or another P, makes the global queue longer and longer; arrivals add nothing, or no more than
    /// [`MOST_ADDED`] in all. Fails when the ring's turn is longer than the one of the arrivals before it.
    #[test]
    fn what_others_add_is_no_debt_of_arrivals() {
        const ARRIVAL: u64 = 2_000;
        const RING: u64 = 10_000;
        for (each_milli, own) in [(0, 0), (10, 0), (400, 0), (400, 1), (100_000, 3)] {
            let (arrivals, mut clock, mut queued, mut turns, mut begins, mut ends) =
                (Arrivals::new(), 0, 0, 0, 0, 0);
            for tick in 0..100_000 {
                let waiting = 100_000 + (clock * each_milli / 1_000_000) as usize;
                let seen = Seen { tick, now: Nanos::from_nanos(clock), waiting, round: waiting, queued };
                if arrivals.may_go_first(seen) {
                    if !arrivals.have_their_turn() {
                        let (turn, waited) = (ends - begins, clock - ends);
                        assert!(waited <= turn + RING, "{each_milli}, {own}: {waited} after {turn}");
                        (turns, begins) = (turns + 1, clock);
                        queued += own;
                    }
                    arrivals.go_first(seen);
                    (clock, ends) = (clock + ARRIVAL, clock + ARRIVAL);
                } else {
                    clock += RING;
                }
            }
            assert!(turns > 100, "{each_milli}, {own}: {turns}");
        }
    }

    /// Others make the queue longer all the time, and each turn of the arrivals adds a few. Fails when what the owner has
    /// queued is a debt for longer than a round, or is none.
    #[test]
    fn beside_what_others_add_a_debt_lasts_for_a_round() {
        const EACH: u32 = 300;
        const ROUND: u32 = 5_000;
        let (arrivals, mut queued, mut ticks) = (Arrivals::new(), 0, 0);
        let mut waits = Vec::new();
        for turn in 0..100 {
            let seen = |tick: u32, queued| {
                let now = Nanos::from_nanos(1_000_000 * u64::from(tick));
                Seen { tick, now, waiting: 1_000 * tick as usize, round: ROUND as usize, queued }
            };
            assert!(arrivals.may_go_first(seen(ticks, queued)), "turn {turn}");
            arrivals.go_first(seen(ticks, queued));
            (ticks, queued) = (ticks + 1, queued + EACH);
            arrivals.end_turn(seen(ticks, queued));
            let ended = ticks;
            while !arrivals.may_go_first(seen(ticks, queued)) && ticks - ended <= ROUND {
                ticks += 1;
            }
            waits.push(ticks - ended);
        }
        let rounds = waits.iter().filter(|&&wait| wait == ROUND).count();
        assert!(waits.iter().all(|&wait| wait == ROUND || wait <= 1), "{waits:?}");
        assert_eq!(rounds, 100 / (MOST_ADDED / EACH as usize + 1), "{waits:?}");
    }

    /// Fails when arrivals that have added too many wait for all that stand in the global queue, of which other Ps take, too.
    #[test]
    fn a_round_is_what_one_p_runs_of_the_global_queue() {
        assert_eq!(round_of(7, 21, 1), 28);
        let arrivals = Arrivals::new();
        let seen = |tick, global: usize| Seen {
            tick,
            now: Nanos::from_nanos(1_000_000 * u64::from(tick)),
            waiting: 10 + global,
            round: round_of(10, global, 20),
            queued: global as u32,
        };
        arrivals.go_first(seen(0, 10_000));
        arrivals.end_turn(seen(1, 19_790));
        assert!(!arrivals.may_go_first(seen(1_000, 19_790)) && arrivals.may_go_first(seen(1_001, 19_790)));
    }

    /// Spawns on one P, beside goroutines that stand in the global queue as if a plain thread had spawned them; each yields so
    /// often. Returns how many the owner has queued, and how many its positions say; `None` if the monitor has taken the P just
    /// then.
    fn queue_on_one_p(handle: &crate::Handle, times: u32) -> Option<(u32, u32)> {
        const OWN: u32 = 600;
        const OTHERS: u32 = 300;
        let queued = || {
            let inside = M::<Active>::current().and_then(M::look_in)?;
            Some(inside.p.poll_schedule.arrivals.queued(inside.p.runq.ends().1))
        };
        let yields = move || (0..times).for_each(|_| yield_now());
        yield_now();
        let before = queued()?;
        // By the goroutine itself: it keeps its P, which it would lose while it waits for a thread.
        let sched = handle.sched("arrivals").unwrap();
        for _ in 0..OTHERS {
            let birth = Birth { name: None, stack_size: 1 << 16, site: Location::caller() };
            // SAFETY: the closure is 'static.
            let g = unsafe { sched.make(birth, yields) }.unwrap();
            drop_handle(g);
            sched.send(g, Place::Shared);
        }
        drop(sched);
        let mut all = OTHERS * times;
        for n in 0..OWN {
            drop(if n % 8 == 0 { go_fair(yields) } else { go(yields) });
            all += 1 + times;
        }
        while handle.num_goroutines() > 1 {
            if times > 0 {
                yield_now();
                all += 1;
            } else {
                // A yield would begin a round, and visits take no share.
                crate::time::sleep(Duration::from_millis(1));
            }
        }
        Some((all, queued()?.wrapping_sub(before)))
    }

    /// Fails when what comes into a ring from elsewhere counts as queued by its owner, or what is queued globally does not. A
    /// count in which the monitor has taken the P is not exact; ten in a row are no accident.
    #[test]
    fn an_owner_counts_what_it_has_queued_itself() {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(1).build() }.unwrap();
        let handle = runtime.handle();
        for times in [0, 2] {
            let mut counted = Vec::new();
            let exact = runtime.run(|| {
                (0..10).any(|_| {
                    counted.push(queue_on_one_p(&handle, times));
                    // One may stand in `runnext`, or have stood there.
                    counted.last().is_some_and(|last| last.is_some_and(|(all, own)| all.abs_diff(own) <= 1))
                })
            });
            assert!(exact, "{times} times: {counted:?}");
        }
    }

    /// Fails when a ring in which own goroutines stand is taken for one of arrivals, or the other way round.
    #[test]
    fn a_ring_is_one_of_arrivals_as_long_as_its_own_goroutines_add_none() {
        for at in [0, u32::MAX - 4] {
            let (arrivals, pos) = (Arrivals::new(), |n: u32| at.wrapping_add(n));
            let fill = |head, tail, by| arrivals.fill((pos(head), pos(tail)), pos(tail + by));
            assert!(arrivals.are_all((pos(3), pos(3))), "none");
            fill(3, 3, 5);
            fill(6, 8, 1);
            assert!(arrivals.are_all((pos(6), pos(9))));
            // One yields.
            assert!(!arrivals.are_all((pos(7), pos(10))));
            fill(7, 10, 4);
            assert!(!arrivals.are_all((pos(11), pos(14))), "it was no ring of arrivals before");
            fill(14, 14, 2);
            assert!(arrivals.are_all((pos(15), pos(16))));
        }
    }
}
