//! A simulation of one P's queues. The shipped code decides when an owner looks at which source, and which goroutines move
//! between the ring and the global queue. Time is counted in goroutines that have run, so no result depends on the machine.

use super::*;

use crate::prim::capacity::MAX_INHERITED;
use crate::runtime::policy::{Overflow, WorkStealing};
use crate::sched::run::look::{PollSchedule, QueueVisit};
use gmp_timers::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// By how much a wait in the global queue can exceed one goroutine for each that stood before it: three rings. They are the
/// goroutines that came into the ring before, those that came while the goroutine stood in the queue, and those that came into
/// the other half of the ring when the goroutine was back. All goroutines in the global queue overtake those in the ring once,
/// at the end of a round.
const SLACK: usize = 3 * RUNQ as usize;

/// How a goroutine became runnable, or what it does.
#[derive(Copy, Clone, Debug, Eq, PartialEq, Ord, PartialOrd)]
enum Of {
    /// Runs once: one of the goroutines that a spawner keeps alive.
    Child,
    /// Spawns as many goroutines as may live, and yields.
    Spawner,
    /// Yields again and again.
    Yielder,
    /// Spawns a goroutine and waits until that goroutine has run.
    Joiner,
    /// The goroutine for which a joiner waits.
    Joined,
    /// Was submitted by a plain thread.
    Thread,
    /// Was found in the poller.
    Poller,
    /// Slept until a timer was due.
    Timer,
    /// Sleeps again and again, for this long.
    Sleeper(u32),
}

#[derive(Copy, Clone, Debug)]
struct Queued {
    of: Of,
    at: u32,
    /// How many goroutines stood in the queues.
    before: usize,
}

struct Play {
    policy: WorkStealing,
    /// `false`: no yield begins a round.
    rounds: bool,
    poll_schedule: PollSchedule,
    tick: u32,
    head: u32,
    next: Option<Queued>,
    ring: VecDeque<Queued>,
    global: VecDeque<Queued>,
    inherited: u32,
    /// The goroutines in the poller: since when they are there.
    events: Vec<u32>,
    /// The heap of timers: when each goroutine is due.
    timers: Vec<(u32, Of)>,
    live: usize,
    most: usize,
    /// By how much, at most, a wait exceeded the number of goroutines before it.
    longest: BTreeMap<Of, usize>,
}

impl Play {
    fn new(rounds: bool, most: usize, spawners: usize) -> Self {
        Self::under(WorkStealing::new(), rounds, most, spawners)
    }

    fn under(policy: WorkStealing, rounds: bool, most: usize, spawners: usize) -> Self {
        let mut play = Play {
            policy,
            rounds,
            poll_schedule: PollSchedule::new(policy.into()),
            tick: 0,
            head: u32::MAX - 5_000,
            next: None,
            ring: VecDeque::new(),
            global: VecDeque::new(),
            inherited: 0,
            events: Vec::new(),
            timers: Vec::new(),
            live: 0,
            most,
            longest: BTreeMap::new(),
        };
        (0..spawners).for_each(|_| play.push_new(Of::Spawner));
        play.push_new(Of::Yielder);
        play.push_new(Of::Joiner);
        play
    }

    fn queued(&self, of: Of) -> Queued {
        let before = self.ring.len() + self.global.len() + usize::from(self.next.is_some());
        Queued { of, at: self.tick, before }
    }

    fn tail(&self) -> u32 {
        self.head.wrapping_add(self.ring.len() as u32)
    }

    fn push_new(&mut self, of: Of) {
        self.push(self.queued(of));
    }

    fn push(&mut self, g: Queued) {
        if self.ring.len() < RUNQ as usize {
            return self.ring.push_back(g);
        }
        if self.policy.overflow == Overflow::PutOne {
            // The new goroutine alone goes to the global queue.
        } else if self.poll_schedule.round.is_on() {
            let newer = self.ring.split_off(BATCH);
            self.global.extend(newer);
            self.poll_schedule.round.keep_older_half(self.head);
            self.head = self.head.wrapping_add(RUNQ);
        } else {
            self.global.extend(self.ring.drain(..BATCH));
            self.head = self.head.wrapping_add(BATCH as u32);
        }
        self.global.push_back(g);
    }

    fn ready(&mut self, of: Of) {
        let new = self.queued(of);
        if let Some(displaced) = self.next.replace(new) {
            self.push(displaced);
        }
    }

    fn requeue(&mut self, of: Of) {
        self.push_new(of);
        if self.rounds && !self.global.is_empty() {
            self.poll_schedule.note_yield(|| (self.tick, (self.head, self.tail())));
        }
    }

    fn pop(&mut self) -> Option<Queued> {
        if let Some(next) = self.next.take() {
            self.inherited += 1;
            if self.inherited < MAX_INHERITED {
                return Some(next);
            }
            self.push(next);
        }
        self.inherited = 0;
        let first = self.ring.pop_front()?;
        self.head = self.head.wrapping_add(1);
        Some(first)
    }

    fn take(&mut self, mut count: usize) {
        while count > 0
            && self.ring.len() < RUNQ as usize
            && let Some(g) = self.global.pop_front()
        {
            self.ring.push_back(g);
            count -= 1;
        }
    }

    /// Does what `globrunqget` does, for one P.
    fn share(&mut self) -> Option<Queued> {
        let others = Take::of(self.global.len(), 1, self.policy.global).share - 1;
        let first = self.global.pop_front();
        self.take(others);
        self.poll_schedule.round.take_in(self.tail());
        first
    }

    /// Does what `find_runnable` does.
    fn find(&mut self) -> Option<Queued> {
        self.tick += 1;
        let time = |tick: u32| Nanos::from_nanos(u64::from(tick) * 100);
        let earliest = self.timers.iter().map(|(at, _)| time(*at)).min().unwrap_or(Nanos::MAX);
        let others = self.next.is_some() || !self.ring.is_empty();
        let far = self.poll_schedule.timers_are_far(self.tick, earliest);
        let waits = others && (far || self.poll_schedule.timers_wait(self.tick));
        let mut due: Vec<_> = self.timers.extract_if(.., |(at, _)| !waits && *at <= self.tick).collect();
        if others && !waits && due.is_empty() {
            self.poll_schedule.none_is_due(self.tick, self.ring.len() as u32, time(self.tick), earliest);
        }
        let looks = self.poll_schedule.is_due(self.tick);
        let mut sleeper = None;
        if due.len() == 1 && self.poll_schedule.sleeper_goes_first(self.tick) {
            sleeper = due.pop().map(|(_, of)| self.queued(of));
        }
        let some = !due.is_empty();
        due.into_iter().for_each(|(_, of)| self.push_new(of));
        if some {
            self.poll_schedule.sleepers_are_queued(self.tick, self.ring.len() as u32, time(self.tick));
        }
        let mut found = None;
        if looks {
            if self.poll_schedule.round.left(self.head) == Some(0) {
                let exchange = exchange_by(
                    &self.poll_schedule.round,
                    (self.ring.len(), self.global.len()),
                    Take::of(self.global.len(), 1, self.policy.global),
                );
                if exchange.gives_all {
                    self.head = self.tail();
                    self.global.append(&mut self.ring);
                }
                self.take(exchange.takes);
                self.poll_schedule.round.take_in(self.tail());
            }
            let visit = self.poll_schedule.look(self.tick, self.head, None::<fn() -> Nanos>).visit;
            if visit.is_some() {
                for at in std::mem::take(&mut self.events) {
                    let g = Queued { at, ..self.queued(Of::Poller) };
                    if self.global.is_empty() { self.push(g) } else { self.global.push_back(g) }
                }
            }
            found = match visit {
                None => None,
                Some(QueueVisit::One) => self.global.pop_front(),
                Some(QueueVisit::Share) => self.share(),
            };
        }
        if found.is_some()
            && let Some(sleeper) = sleeper.take()
        {
            self.push(sleeper);
        }
        found.or(sleeper).or_else(|| self.pop()).or_else(|| self.share())
    }

    /// Records how long `g` has waited. Leaves out the first goroutines: those that a spawner spawns before a goroutine has
    /// yielded are in no order.
    fn note(&mut self, g: Queued) {
        let beyond = ((self.tick - g.at) as usize).saturating_sub(g.before);
        if g.at as usize > self.most {
            let longest = self.longest.entry(g.of).or_default();
            *longest = beyond.max(*longest);
        }
    }

    fn run(&mut self, g: Queued) {
        self.note(g);
        match g.of {
            Of::Child => self.live -= 1,
            Of::Spawner => {
                while self.live < self.most {
                    self.live += 1;
                    self.ready(Of::Child);
                }
                self.requeue(Of::Spawner);
            }
            Of::Yielder => self.requeue(Of::Yielder),
            Of::Joiner => self.ready(Of::Joined),
            Of::Joined => self.ready(Of::Joiner),
            Of::Sleeper(ticks) => self.timers.push((self.tick + ticks, g.of)),
            Of::Thread | Of::Poller | Of::Timer => {}
        }
    }

    /// Runs `ticks` goroutines. Returns by how much the waits of each kind exceeded the number of goroutines before.
    fn play(mut self, ticks: u32) -> BTreeMap<Of, usize> {
        while self.tick < ticks {
            match self.tick % 1009 {
                0 => self.global.push_back(self.queued(Of::Thread)),
                300 => self.events.push(self.tick),
                600 => self.timers.push((self.tick + 1, Of::Timer)),
                _ => {}
            }
            if let Some(g) = self.find() {
                self.run(g);
            }
        }
        // These goroutines still wait.
        for g in std::mem::take(&mut self.ring).into_iter().chain(std::mem::take(&mut self.global)) {
            self.note(g);
        }
        self.longest
    }
}

/// Returns how many goroutines move at the end of a round.
fn exchange(round: &Round, ring: usize, global: usize, procs: usize) -> Exchange {
    exchange_by(round, (ring, global), Take::of(global, procs, FromGlobal::Share))
}

fn exchange_by(round: &Round, lengths: (usize, usize), take: Take) -> Exchange {
    let mut moves = None;
    let moved = round.exchange(lengths, take, |exchange| moves.replace(exchange).is_none());
    assert!(moved);
    moves.expect("it is carried out")
}

/// Fails when a goroutine of any kind is overtaken again and again: by goroutines that a spawner puts into the ring, or by an
/// overflow that sends the goroutine back.
#[test]
fn a_runnable_goroutine_runs_within_a_round() {
    for most in [100, 300, 600, 1000, 3000, 10_000] {
        for spawners in [1, 2, 20, 300] {
            let longest = Play::new(true, most, spawners).play(200_000);
            println!("{most} alive, {spawners} spawners: {longest:?}");
            assert_eq!(longest.len(), 8, "all kinds were run");
            for (of, beyond) in longest {
                let once = if of == Of::Thread { 0 } else { most + spawners };
                assert!(
                    beyond <= once + SLACK,
                    "{most} alive, {spawners} spawners: {of:?} waits for {beyond} more"
                );
            }
        }
    }
}

/// Does the same as `a_runnable_goroutine_runs_within_a_round` under each policy, with a wider bound: as many goroutines as a
/// policy moves at once can overtake. Fails when a goroutine starves under one of the policies.
#[test]
fn under_every_policy_a_runnable_goroutine_runs() {
    for overflow in [Overflow::PutOne, Overflow::PutHalf] {
        for global in [FromGlobal::One, FromGlobal::Share, FromGlobal::All] {
            for (tick, most, spawners) in [(2, 600, 2), (61, 300, 20), (61, 3000, 2), (997, 1000, 20)] {
                let policy = WorkStealing::new().overflow(overflow).global(global).tick(tick);
                let longest = Play::under(policy, true, most, spawners).play(200_000);
                println!("{policy:?}, {most} alive: {longest:?}");
                assert_eq!(longest.len(), 8, "all kinds were run");
                for (of, beyond) in longest {
                    let bound = 2 * (most + spawners) + SLACK + 2 * tick as usize;
                    assert!(beyond <= bound, "{policy:?}, {most} alive: {of:?} waits for {beyond} more");
                }
            }
        }
    }
}

/// Fails when goroutines that sleep for a short time, each of which is due alone, leave too few turns to the others: sleepers
/// may have one turn in [`MAX_INHERITED`] before the others, and get their other turns in the order of all.
#[test]
fn sleepers_leave_the_others_their_turns() {
    for most in [100, 600, 3000] {
        for sleepers in [1, 20] {
            let mut play = Play::new(true, most, 2);
            play.timers.extend((0..sleepers).map(|at| (at, Of::Sleeper(sleepers))));
            let longest = play.play(200_000);
            println!("{most} alive, {sleepers} sleepers: {longest:?}");
            assert_eq!(longest.len(), 9, "all kinds were run");
            for (of, beyond) in longest {
                let turn = 2 * most + SLACK;
                assert!(
                    beyond <= turn + turn / (MAX_INHERITED as usize - 1),
                    "{most} alive, {sleepers} sleepers: {of:?} waits for {beyond} more"
                );
            }
        }
    }
}

/// Without rounds the simulation shows starvation, for which rounds exist. Fails when goroutines that yield need no rounds.
#[test]
fn without_rounds_goroutines_starve() {
    for most in [1000, 3000, 10_000] {
        let longest = Play::new(false, most, 2).play(200_000);
        for of in [Of::Thread, Of::Timer, Of::Child] {
            let beyond = longest[&of];
            assert!(beyond > 20 * SLACK, "{most} alive: {of:?} waits for {beyond} more, without rounds");
        }
    }
}

/// Fails when goroutines that yield keep a P in rounds after the global queue was emptied, or when one yield keeps a P in
/// rounds for ever.
#[test]
fn rounds_end() {
    let round = Round::new();
    assert!(round.note_yield(100));
    assert_eq!((round.left(40), round.left(100), round.left(130)), (Some(60), Some(0), Some(0)));
    assert_eq!(exchange(&round, 200, 56, 1), Exchange { gives_all: false, takes: 56 });
    assert!(!round.is_on(), "all fit");

    assert!(round.note_yield(u32::MAX) && !round.note_yield(0));
    assert_eq!(round.left(u32::MAX - 7), Some(7));
    assert_eq!(exchange(&round, 200, 300, 1), Exchange { gives_all: true, takes: BATCH });
    // No goroutine yields any more, and others come to the global queue all the time.
    assert!(exchange(&round, 200, 1000, 1).gives_all && exchange(&round, 200, 1000, 1).gives_all);
    assert_eq!(exchange(&round, 200, 1000, 1), Exchange { gives_all: false, takes: 0 });
    assert!(!round.is_on() && round.left(0).is_none());
}

/// A thief in the ring puts off the exchange. Fails when, by the next look, the round has forgotten that a goroutine yielded in
/// it, or how many goroutines of the global queue are still due: the round would end before these had their turns, or begin
/// anew.
#[test]
fn a_round_that_could_not_end_is_what_it_was() {
    let round = Round::new();
    let refused = |ring, global| {
        let mut asked = None;
        assert!(!round.exchange((ring, global), Take::of(global, 1, FromGlobal::Share), |exchange| {
            asked.replace(exchange).is_some()
        }));
        asked.expect("it was to be carried out")
    };
    assert!(round.note_yield(40));
    for _ in 0..9 {
        assert_eq!(refused(200, 300), Exchange { gives_all: true, takes: BATCH });
        assert!(round.has_yielded() && round.left(40) == Some(0));
    }
    // All goroutines of the global queue are due, and no fewer.
    for _ in 0..2 {
        assert!(exchange(&round, 200, 300, 1).gives_all);
        assert!(refused(200, 300).gives_all && !round.has_yielded());
    }
    assert!(exchange(&round, 200, 300, 1).gives_all);
    assert_eq!(refused(200, 300), Exchange { gives_all: false, takes: 0 });
    assert!(round.is_on());
    assert_eq!(refused(100, 100), Exchange { gives_all: false, takes: 100 });
    assert!(round.is_on());
    assert_eq!(exchange(&round, 200, 300, 1), Exchange { gives_all: false, takes: 0 });
    assert!(!round.is_on());
}

/// Fails when one of several Ps takes more than its share.
#[test]
fn each_p_takes_its_share() {
    let round = Round::new();
    assert!(round.note_yield(0));
    assert_eq!(exchange(&round, 200, 99, 4), Exchange { gives_all: true, takes: 25 });
}

/// Fails when an overflow sends out goroutines that have come from the global queue.
#[test]
fn an_overflow_keeps_the_goroutines_of_the_round() {
    for head in [0, u32::MAX - 10] {
        let round = Round::new();
        assert!(round.note_yield(head.wrapping_add(30)));
        round.keep_older_half(head);
        assert_eq!(round.left(head.wrapping_add(RUNQ)), Some(30));
        round.take_in(head.wrapping_add(RUNQ));
        round.keep_older_half(head);
        assert_eq!(round.left(head.wrapping_add(RUNQ)), Some(RUNQ / 2));
    }
}
