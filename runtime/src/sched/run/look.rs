//! When a busy M looks beyond its own queue, and at what.
//!
//! An M takes one goroutine after another from the queue of its P. If the M looked nowhere else, the goroutines in the
//! global queue, in the poller and in the queues of other Ps would wait for as long as this queue lasts. So there are:
//!
//! * *visits*: every 61st goroutine (or every N-th, by the policy's `tick`) is taken from the P's mailbox or the head of the
//!   global queue, if there is one. At a visit, if no M waits in the poller, the M also polls, and serves the timers of idle Ps
//!   (`sched/timers/mod.rs`). Long goroutines bring the visit forward, to [`MAX_VISIT_GAP`] after the last, but no two visits
//!   precede successive goroutines. Every [`SHARE_EVERY`]th visit, and each visit that came early, takes the P's share of the
//!   queue instead of one goroutine, unless a round is on;
//! * looks *before each goroutine* at the timers of the M's own P. If a single goroutine is due there, that goroutine runs at
//!   once, as in Go: at the end of a long queue it would be late by the whole queue. But only one in [`SLEEPER_EVERY`]
//!   goroutines may be such a sleeper: otherwise goroutines that sleep for a short time, again and again, would keep those in
//!   the queue from running. Other goroutines that are due become arrivals if the goroutines in the ring are long
//!   ([`PollSchedule::ring_is_long`]). Otherwise they go to the end of the queue, in their order. Until the goroutines that
//!   were in the queue at that time have run, no sleeper goes first, and a goroutine that becomes due only gets a place at the
//!   end. So during that time the M looks at its timers less often: it takes together all sleepers that become due within
//!   [`TIMERS_GAP`], or while [`capacity::TIMERS_EVERY`] goroutines run. While the earliest timer is far away, the M does not
//!   read the clock for each goroutine: see [`PollSchedule::none_is_due`];
//! * looks for *arrivals*, such sleepers and goroutines readied from outside of all Ps, which take turns with the ring
//!   (`arrivals.rs`): at each look that reads the clock, and after each goroutine of an arrivals' turn; if no arrival waits,
//!   also in the poller;
//! * *at the end of a round*, when goroutines that yield have filled the ring beside others in the global queue (`round.rs`);
//! * *around*: about every [`capacity::LOOK_AROUND`], however long goroutines are, at another P (`help.rs`).
//!
//! A look that reads the clock also ends the slice of goroutines that wake each other, if the ring has had no turn for
//! [`LONGEST_SLICE`] meanwhile: otherwise [`capacity::MAX_INHERITED`] long ones would run before the ring, or before arrivals.
//! A slice ends by time as by its count, and the look moves no goroutine for that (`P::end_slice`): so a model, whose clock
//! stands still, needs only the count.
//!
//! Reading the clock costs more than a yield, so an M does not read it between looks: the price of a goroutine is one
//! comparison. A look that reads the clock computes, from the number of goroutines since the last reading, how many fit into
//! the time to the next one, at most [`CLOCK_EVERY`]. When goroutines become longer all at once, that many of the long ones run
//! before the M notices. Arrivals do not wait for that: if some wait beside the ring at a look that does not read the clock,
//! the next look comes one goroutine later, and reads the clock.
//!
//! With `GMPDEBUG=helping=0` an M reads no clock for its looks. Then the M does not look around: it helps no other P, and moves
//! no woken M off its CPU (O2 of `m/apart.rs`); arrivals have no turns; only visits poll; and time neither brings a
//! visit forward nor ends a slice.
//!
//! `models/visits.rs` checks which Ms a visit must wake, `models/poll.rs` checks that a visit serves timers, and
//! `look/tests.rs` checks the rhythms.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{capacity, may_help};
use crate::runtime::policy::Policy;
use crate::sched::Sched;
use crate::sched::run::arrivals::Arrivals;
use crate::sched::run::round::Round;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::time::Duration;

/// Every fourth visit takes a batch from the global queue. One goroutine at a time is unfair when the ring overflows,
/// as most goroutines then stand in the global queue; a batch each time is fair too, but spends much of the time on
/// moving goroutines.
const SHARE_EVERY: u32 = 4;
/// After at most this many goroutines, however short they are, an M reads the clock: often enough for `MAX_VISIT_GAP`, and
/// seldom enough to cost little.
const CLOCK_EVERY: u32 = 244;
/// The longest time from one visit to the next, unless a single goroutine runs longer.
const MAX_VISIT_GAP: Duration = Duration::from_micros(500);

/// After this time a look ends a slice, in which goroutines that wake each other run before the ring.
const LONGEST_SLICE: Duration = MAX_VISIT_GAP;

/// At most one in this many goroutines runs before those in the queue because its time has come.
const SLEEPER_EVERY: u32 = capacity::MAX_INHERITED;

/// While sleepers that were due stand in the ring, at most [`capacity::TIMERS_EVERY`] goroutines run from one look at the
/// timers to the next. The number is chosen so that these goroutines take at most about this time, if they run for as long as
/// the ones before them. The same bound holds after a look that found nothing due.
const TIMERS_GAP: Duration = Duration::from_micros(20);

/// Goroutines that run for longer than this, on average, make a ring long. Beside shorter ones the price of an arrival, which
/// takes a lock, and a look after it, which reads the clock, would be a large part of the time.
const LONG: Duration = Duration::from_micros(10);

/// Owner: the rhythms of a P's looks. Ticks count the P's goroutines, and wrap.
pub(crate) struct PollSchedule {
    /// After this many goroutines an M looks at the global queue and at the poller although the P has work. The default is Go's
    /// number, which is a prime for the same reason: visits should not fall into step with a pattern of the program.
    look_every: u32,
    /// The policy has rings, whose goroutines give way in rounds.
    has_rounds: bool,
    /// The tick of the next look, of whatever kind.
    next: Cell<u32>,
    /// The tick at which the clock is read next.
    clock: Cell<u32>,
    /// How many goroutines run from one reading of the clock to the next.
    every: Cell<u32>,
    /// The last look around: its tick and its time; `None`: not in this lease.
    around: Cell<(u32, Option<Nanos>)>,
    /// The last visit, likewise.
    visit: Cell<(u32, Option<Nanos>)>,
    /// How many visits in a row have taken one goroutine instead of a share.
    ones: Cell<u32>,
    /// From this tick on a sleeper may go first.
    sleepers: Cell<u32>,
    /// When sleepers were last queued: the tick and the time; `None`: not in this lease.
    queued: Cell<(u32, Option<Nanos>)>,
    /// How many goroutines run from there to the next look at the timers: the number bounded by the length of the ring, and the
    /// number without that bound.
    timers: Cell<(u32, u32)>,
    /// When a look at the timers last found nothing due: the tick and the time; `None`: not in this lease.
    looked: Cell<(u32, Option<Nanos>)>,
    /// How many goroutines stood in the ring then.
    seen: Cell<u32>,
    /// From the tick in `looked` on, the clock is not read for this many goroutines, as long as no timer is earlier than this
    /// time.
    far: Cell<(u32, Nanos)>,
    /// What a look has seen of the slice. `None`: no look has since the lease, or a slice of an arrival, began.
    slice: Cell<Option<SliceSeen>>,
    pub(crate) round: Round,
    pub(crate) arrivals: Arrivals,
}

/// What was seen at the first look that read the clock since the last turn of the ring.
#[derive(Copy, Clone, Debug)]
struct SliceSeen {
    /// The beginning of the ring.
    head: u32,
    /// How many goroutines from `runnext` had run in the slice.
    inherited: u32,
    at: Nanos,
}

/// What a visit takes out of the global queue.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum QueueVisit {
    One,
    Share,
}

/// Which goroutine a look may return, to run before those in the P's queue.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum First {
    /// Any goroutine that the look finds.
    Any,
    /// Any goroutine that the look finds except an arrival: a sleeper is to go first, or right after the goroutine that was
    /// found.
    NoArrival,
    /// None: the caller queues the goroutine that is found.
    Queued,
}

/// What a look has to do.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Due {
    pub(crate) visit: Option<QueueVisit>,
    /// A look around, at this time.
    pub(super) around: Option<Nanos>,
    /// The time, if the look has read the clock: a look for arrivals.
    pub(crate) now: Option<Nanos>,
}

impl PollSchedule {
    pub(crate) fn new(policy: Policy) -> Self {
        let [next, clock] = [(); 2].map(|()| Cell::new(1));
        let [around, visit, queued, looked] = [(); 4].map(|()| Cell::new((0, None)));
        PollSchedule {
            look_every: policy.stealing().tick,
            has_rounds: !policy.has_one_queue(),
            next,
            clock,
            every: Cell::new(1),
            around,
            visit,
            ones: Cell::new(0),
            sleepers: Cell::new(0),
            queued,
            timers: Cell::new((0, 1)),
            looked,
            seen: Cell::new(0),
            far: Cell::new((0, Nanos::ZERO)),
            slice: Cell::new(None),
            round: Round::new(),
            arrivals: Arrivals::new(),
        }
    }

    /// Another M has acquired the P, or the same M after a sleep: for the P's goroutines no time has passed.
    pub(crate) fn begin_lease(&self) {
        for last in [&self.around, &self.visit, &self.queued, &self.looked] {
            last.set((last.get().0, None));
        }
        self.slice.set(None);
        self.timers.set((0, self.timers.get().1));
        self.far.set((0, Nanos::ZERO));
        self.round.end();
    }

    /// A goroutine has yielded while there are others in the global queue. `now` returns the tick, and the ends of the ring, in
    /// which the goroutine is already queued.
    #[inline]
    pub(crate) fn note_yield(&self, now: impl FnOnce() -> (u32, (u32, u32))) {
        if !self.round.has_yielded() {
            self.note_first_yield(now());
        }
    }

    #[cold]
    #[inline(never)]
    fn note_first_yield(&self, (tick, (head, tail)): (u32, (u32, u32))) {
        if self.has_rounds && self.round.note_yield(tail) {
            let (to_look, to_end) = (self.next.get().wrapping_sub(tick), tail.wrapping_sub(head));
            self.next.set(tick.wrapping_add(to_look.min(to_end.max(1))));
        }
    }

    /// An arrival begins a slice, which is as long as any other, whatever the slice before it took.
    pub(crate) fn begin_slice(&self) {
        self.slice.set(None);
    }

    /// The next look is a look around, and comes before the next goroutine.
    pub(crate) fn look_again(&self, tick: u32) {
        self.clock.set(self.look_next(tick));
        self.around.set((tick, None));
    }

    /// The goroutine of this tick runs in a turn of the arrivals: the clock is read before the next one. The counters of visits
    /// and of looks around count the ring's goroutines only: otherwise a turn of the arrivals would bring visits sooner, and
    /// these would delay the ring, too.
    pub(crate) fn arrival_runs(&self, tick: u32) {
        self.take_time_next(tick);
        self.far.set((0, Nanos::ZERO));
        self.clock.set(self.clock.get().wrapping_add(1));
        for rhythm in [&self.around, &self.visit] {
            let (last, at) = rhythm.get();
            rhythm.set((last.wrapping_add(1), at));
        }
    }

    /// Makes the M look, and read the clock, before the goroutine that follows that of this tick.
    pub(crate) fn take_time_next(&self, tick: u32) {
        self.look_next(tick);
        self.arrivals.take_time_next();
    }

    /// Makes the M look before the goroutine that follows that of this tick. Returns the tick of that next goroutine.
    fn look_next(&self, tick: u32) -> u32 {
        let soon = tick.wrapping_add(1);
        self.next.set(soon);
        soon
    }

    /// For models: a visit precedes the goroutine after that of this tick.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn turn_comes_next(&self, tick: u32) {
        let next = tick.wrapping_add(1);
        self.next.set(next);
        self.visit.set((next.wrapping_sub(self.look_every), None));
    }

    /// For models: an arrival may go before the goroutine after that of this tick.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn arrival_comes_next(&self, tick: u32) {
        self.arrivals.begin_anew();
        self.take_time_next(tick);
    }

    /// For models: no sleeper goes before the next goroutine.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn no_sleeper_comes_next(&self, tick: u32) {
        self.sleepers.set(tick.wrapping_add(2));
    }

    /// Returns `true` if a look precedes the goroutine of this tick.
    #[inline(always)]
    pub(crate) fn is_due(&self, tick: u32) -> bool {
        tick == self.next.get()
    }

    /// Returns `true` if a sleeper that is due alone is to run at this tick.
    pub(crate) fn sleeper_goes_first(&self, tick: u32) -> bool {
        let goes_first = reached(tick, self.sleepers.get());
        if goes_first {
            self.sleepers.set(tick.wrapping_add(SLEEPER_EVERY));
        }
        goes_first
    }

    /// At this tick, at the time `now`, goroutines that are due were queued at the end of a ring which now has `ring`
    /// goroutines, or as `ring` arrivals: no sleeper goes first before as many have run.
    pub(crate) fn sleepers_are_queued(&self, tick: u32, ring: u32, now: Nanos) {
        let run = tick.wrapping_add(ring);
        if reached(run, self.sleepers.get()) {
            self.sleepers.set(run);
        }
        let every = self.timers.get().1;
        let (at, before) = self.queued.replace((tick, Some(now)));
        let every = match before.map(|before| now.saturating_since(before)) {
            // Too few goroutines have run to judge by: other heaps were served in the same look, or the ring had few
            // goroutines.
            _ if tick.wrapping_sub(at) < every => every,
            Some(passed) if passed > TIMERS_GAP => 1,
            Some(passed) if 2 * passed <= TIMERS_GAP => (2 * every).min(capacity::TIMERS_EVERY),
            Some(_) | None => every,
        };
        self.timers.set((every.min(ring), every));
    }

    /// Returns `true` if the `ring` goroutines in the ring are long, and are likely to take longer than
    /// [`capacity::LOOK_AROUND`] from this tick and the time `now` on, at the pace since the last look at the timers that found
    /// nothing due. `false` if there was no such look in this lease, or if the ring's turn lasts for longer than that time:
    /// arrivals would then wait longer than the goroutines at the ring's end.
    pub(crate) fn ring_is_long(&self, tick: u32, ring: u32, now: Nanos) -> bool {
        let (at, before) = self.looked.get();
        before.is_some_and(|before| {
            let each = now.saturating_since(before) / tick.wrapping_sub(at).max(1);
            let all = each.saturating_mul(ring);
            each > LONG
                && all > capacity::LOOK_AROUND
                && self.arrivals.ring_turn_is_over_at(now.saturating_add(all))
        })
    }

    /// The look of this tick reads the clock, for the sleepers that have just become arrivals.
    pub(crate) fn take_time_now(&self, tick: u32) {
        self.next.set(tick);
        self.arrivals.take_time_next();
    }

    /// Returns `true` if the M does not look at its timers before the goroutine of this tick, because it queued sleepers only a
    /// few goroutines ago.
    #[inline]
    pub(crate) fn timers_wait(&self, tick: u32) -> bool {
        tick.wrapping_sub(self.queued.get().0) < self.timers.get().0
    }

    /// A look at this tick, at the time `now`, has found nothing due before `earliest`; `ring` goroutines stand in the ring. If
    /// the goroutines since the last such look took less than half of the time that is left, then as many goroutines, or twice
    /// as many, may run before the next look. So at a steady pace the M reads the clock for each goroutine when the time comes
    /// near; when goroutines become longer all at once, a timer is late by at most [`capacity::TIMERS_EVERY`] of the long ones.
    ///
    /// If the ring is less than half as long as at the last such look, the goroutines by which the pace was measured have
    /// parked, and the others may be longer. Then the M looks again at the latest when each goroutine in the ring has had a
    /// turn. A ring that loses a goroutine now and then keeps its pace.
    pub(crate) fn none_is_due(&self, tick: u32, ring: u32, now: Nanos, earliest: Nanos) {
        let (at, before) = self.looked.replace((tick, Some(now)));
        let within = (earliest.saturating_since(now) / 2).min(TIMERS_GAP);
        let ran = tick.wrapping_sub(at).min(capacity::TIMERS_EVERY);
        let every = match before.map(|before| now.saturating_since(before)) {
            Some(passed) if 2 * passed <= within => (2 * ran).min(capacity::TIMERS_EVERY),
            Some(passed) if passed <= within => ran,
            Some(_) | None => 1,
        };
        let shorter = 2 * ring < self.seen.replace(ring);
        self.far.set((if shorter { every.min(ring) } else { every }, earliest));
    }

    /// Returns `true` if the clock need not be read for the goroutine of this tick, because `earliest` is far away.
    #[inline]
    pub(crate) fn timers_are_far(&self, tick: u32, earliest: Nanos) -> bool {
        let (goroutines, known) = self.far.get();
        tick.wrapping_sub(self.looked.get().0) < goroutines && known <= earliest
    }

    /// Returns what a look at a tick that `is_due` has to do, and sets the tick of the next look. `head` is the beginning of
    /// the ring. Without a clock only visits are due.
    pub(crate) fn look(&self, tick: u32, head: u32, clock: Option<impl FnOnce() -> Nanos>) -> Due {
        let by_clock = tick == self.clock.get();
        let settles = self.arrivals.take_time();
        let now = clock.filter(|_| by_clock || settles).map(|now| now());
        let around = now.filter(|_| by_clock).and_then(|now| self.around(tick, now));
        let due = Due { visit: self.visit(tick, now), around, now };
        if now.is_some() && by_clock {
            self.clock.set(tick.wrapping_add(self.every.get()));
        }
        let to_visit = self.look_every - tick.wrapping_sub(self.visit.get().0);
        let to_clock = self.clock.get().wrapping_sub(tick);
        if reached(tick, self.sleepers.get()) {
            // Otherwise the sleepers' tick would be ahead again after the ticks have wrapped.
            self.sleepers.set(tick);
        }
        // Without a clock the clock's tick stays in the past, and this difference is large.
        let to_look = to_visit.min(to_clock.max(1));
        self.next
            .set(tick.wrapping_add(self.round.left(head).map_or(to_look, |left| to_look.min(left.max(1)))));
        due
    }

    /// Returns `true` if the ring, which begins at `head`, has had no turn for [`LONGEST_SLICE`], and goroutines from `runnext`
    /// have run meanwhile. Called at a look at the time `now`; `inherited`: how many of them have run in the slice.
    fn slice_is_long(&self, head: u32, inherited: u32, now: Nanos) -> bool {
        match self.slice.get() {
            // Fewer: another slice has begun since.
            Some(seen) if seen.head == head && inherited >= seen.inherited => {
                inherited > seen.inherited && now.saturating_since(seen.at) >= LONGEST_SLICE
            }
            _ => {
                self.slice.set(Some(SliceSeen { head, inherited, at: now }));
                false
            }
        }
    }

    fn visit(&self, tick: u32, now: Option<Nanos>) -> Option<QueueVisit> {
        let (last, at) = self.visit.get();
        let count = tick.wrapping_sub(last);
        let late = now.zip(at).is_some_and(|(now, at)| now.saturating_since(at) >= MAX_VISIT_GAP);
        let due = count >= self.look_every || late && count > 1;
        if due {
            // Without a clock the next reading dates the visit.
            self.visit.set((tick, now));
        } else if at.is_none() {
            self.visit.set((last, now));
        }
        due.then(|| self.take(late))
    }

    fn take(&self, late: bool) -> QueueVisit {
        let ones = self.ones.get() + 1;
        let share = (late || ones >= SHARE_EVERY) && !self.round.is_on();
        self.ones.set(if share { 0 } else { ones });
        if share { QueueVisit::Share } else { QueueVisit::One }
    }

    fn around(&self, tick: u32, now: Nanos) -> Option<Nanos> {
        let (last, at) = self.around.get();
        if let Some(at) = at {
            let (passed, wanted) = (nanos(now.saturating_since(at)), nanos(capacity::LOOK_AROUND));
            if passed < wanted {
                self.every.set((2 * self.every.get()).min(CLOCK_EVERY));
                return None;
            }
            // Rounded up: a look that comes a little too early is not made.
            let fit = u64::from(tick.wrapping_sub(last)) * wanted / passed.max(1) + 1;
            self.every.set(fit.min(CLOCK_EVERY.into()) as u32);
        }
        self.around.set((tick, Some(now)));
        Some(now)
    }
}

/// Returns `true` if `tick` is not before `other`.
fn reached(tick: u32, other: u32) -> bool {
    tick.wrapping_sub(other) as i32 >= 0
}

pub(super) fn nanos(time: Duration) -> u64 {
    time.as_nanos() as u64
}

impl<H: Host> Sched<H> {
    /// Makes a look that [`PollSchedule::is_due`]. Returns the goroutine to run before those in the queue of `p`, if there is
    /// one.
    #[cold]
    #[inline(never)]
    pub(crate) fn look_elsewhere_when_due(
        &self,
        m: &M<H>,
        p: &P<H>,
        tick: u32,
        first: First,
    ) -> Option<GRef<H>> {
        let helps = self.config.knobs.helping && may_help();
        if p.poll_schedule.round.left(p.runq.ends().0) == Some(0) {
            self.end_round(p);
        }
        let head = p.runq.ends().0;
        let due = p.poll_schedule.look(tick, head, helps.then_some(H::now));
        let arrivals = &p.poll_schedule.arrivals;
        if due.now.is_some_and(|now| p.poll_schedule.slice_is_long(head, p.inherited(), now)) {
            p.end_slice();
        }
        let mut found = due.visit.and_then(|visit| self.visit_global_queue(m, p, visit, first));
        if let Some(now) = due.around {
            self.look_after_the_sent(p, now);
        }
        let mut around = due.around.filter(|_| self.ps.len() > 1);
        if let Some(now) = around.filter(|_| arrivals.have_their_turn() && found.is_none()) {
            // Otherwise arrivals, which go first at each look, would keep the M from ever looking at another P.
            found = self.help_another(m, p, now);
            around = None;
        }
        if let Some(now) = due.now.filter(|_| found.is_none()) {
            let polls = due.around.is_some() && due.visit.is_none();
            found = self.first_arrival(m, p, (tick, now, polls), first != First::Any);
        }
        if arrivals.have_their_turn() {
            p.poll_schedule.arrival_runs(tick);
        } else if self.globq_len.has_arrivals()
            && if due.now.is_some() { found.is_some() } else { self.has_own_ring(p) }
        {
            // Arrivals wait, and this look took none: it has not read the clock, or has found another goroutine.
            p.poll_schedule.take_time_next(tick);
        }
        match (around, found) {
            (Some(now), None) => self.help_another(m, p, now),
            (Some(_), found @ Some(_)) => {
                // Otherwise a global queue that is never empty, together with looks around at multiples of 61 goroutines, would
                // keep the M from ever looking around.
                p.poll_schedule.look_again(tick);
                found
            }
            (None, found) => found,
        }
    }

    /// For models: an M stands by on its note.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn has_m_on_note(&self) -> bool {
        self.central.lock().idle.has_m()
    }

    /// For models: makes a visit from the P of `m`.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn visit_now(&self, m: &M<H>) {
        let p = m.p().expect("visit_now: its M holds a P");
        assert!(
            self.visit_global_queue(m, p, QueueVisit::One, First::Any).is_none(),
            "visit_now: the global queue is empty"
        );
    }

    /// Makes a visit. Without visits, pairs of goroutines that ready each other, one pair on every P, would keep the goroutines
    /// in the global queue and in the poller waiting for ever.
    fn visit_global_queue(&self, m: &M<H>, p: &P<H>, visit: QueueVisit, first: First) -> Option<GRef<H>> {
        if self.nobody_polls() {
            let found = self.poll_now(&m.local);
            // The found goroutines do not go before those that have waited longer: a server with more connections than
            // the ring has room for would serve the same ones again and again.
            if self.arrive_globally(p) {
                mutant!(VisitQueuesInSilence: let found = { self.globrunqput(found); crate::g::list::GList::new() });
                self.inject(found);
            } else {
                self.submit_found(m, found);
            }
        }
        unless!(VisitLeavesTimers, self.run_unserved_timers(m));
        self.queue_oldest_job(p);
        if first == First::Queued && self.config.policy.has_one_queue() {
            // There is no ring: the caller would put the first of the queue back as its last.
            return None;
        }
        let arrivals_too = !self.has_own_ring(p);
        let first = match visit {
            QueueVisit::One => self.globrunqget_one(p, arrivals_too),
            QueueVisit::Share => self.globrunqget(p, arrivals_too),
        };
        if first.is_some() && !p.runq.is_empty() {
            // No M was woken for a single goroutine that a timer or the poller has just put into the ring, because this M was
            // to run that goroutine at once.
            mutant!(TurnWakesNobody: return first);
            self.wakep();
        }
        first
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
