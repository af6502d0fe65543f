//! Naps: a thief whose last thefts kept it busy for less than 100 µs, and do not pay, waits before it looks for the next one.
//!
//! *The problem.* Goroutines that pass small messages to each other are readied, run and park again within microseconds. At
//! nearly every moment one of them is in the ring of the P on which they run, so a thief finds one there. The thief takes half
//! of that ring, runs the goroutines for some microseconds, and is without work again. From then on the cache lines of their
//! channels go from core to core with each message, and their locks are contended: two Ps take longer than one for the same
//! messages.
//!
//! *The obvious way* is not to steal a goroutine that has been in a ring for only some microseconds. But a goroutine does not
//! record when it was queued (`help.rs`), and goroutines that compute for a millisecond would wait for those microseconds, too.
//!
//! *Here* a thief judges by its last theft. If the theft kept the thief busy for less than [`SHORT`], the thief naps before it
//! looks again. Each further such theft in a row doubles the nap, up to [`LONGEST`]. A theft that kept the thief busy for
//! longer, or a time of [`APART`] without a theft, ends the row. So a thief takes a goroutine that computes for long at once,
//! or after one nap; goroutines that exchange messages stay where they are for most of the time.
//!
//! *Short thefts that pay.* The stages of a pipeline exchange messages, too, but each computes for a microsecond or more
//! between two waits, and each core gets some of the stages: there a thief should not nap. Whether thefts pay depends on how
//! much the goroutines compute, how often the two cores want the same lines, and how long a line takes from core to core. The
//! thief can measure all three, and no other goroutine pays for that:
//!
//! * how long a goroutine runs, by the number of goroutines that the thief has run since the theft;
//! * how often the thief's thread has found a lock taken (`prim::contentions`), which only the slow ways of gmp's locks count.
//!   Locks of other crates, and atomics, are not counted; a lock that a parked goroutine holds is, though no line moves for it;
//! * how long the theft itself took, which is some lines from the victim's core.
//!
//! [`WINDOW`] short thefts together are judged (`Sums::pay`): goroutines have to run for as long as [`RUN`] thefts take, and
//! from one contention to the next there has to be the time of [`BETWEEN_TO_BEGIN`] thefts. When the thief no longer naps, both
//! cores run more of the time, and contentions become more frequent: then [`BETWEEN_TO_GO_ON`] is enough. As the unit is a
//! theft, the rule is the same where lines go from socket to socket, and fewer programs gain from a second core.
//!
//! *Go's way.* In Go a thief that sees nothing but `runnext` sleeps for 3 µs, which Linux turns into some 60, and counts as
//! spinning meanwhile: that, too, keeps goroutines that exchange messages together, and no submitter wakes another M.
//!
//! *What a nap delays.* An M that naps holds its P, and does not count as spinning. So a submitter that finds another P idle
//! wakes another M. If no P is idle, S3 of `wake.rs` has nothing to do: each holder of a P looks at every queue before it
//! sleeps, and an M that naps looks after the nap. After the nap the M looks first at its own timers, and then at the global
//! queue, the mailboxes and the queues of the classes: so a goroutine that was submitted there meanwhile waits for the nap
//! only, and not for the goroutines that the M steals next. A nap ends before the first timer that this M would have to serve.
//! No M begins a nap while a descriptor is watched but no M waits in the poller, while there are jobs (`jobs.rs`), mail, or
//! goroutines of classes, or when the runtime ends. Work that comes during a nap waits for its end.
//!
//! `GMPDEBUG=naps=0` switches naps off; `docs/experiments.md` has figures.
//!
//! A nap changes only when an M looks: so no model needs to know of naps, and there are none in models.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
#[cfg(test)]
use crate::prim::AtomicU32;
use crate::prim::{Relaxed, capacity, contentions, event, pause};
use crate::sched::Sched;
use crate::sched::poll::NO_POLLER;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::time::Duration;

/// A theft that keeps the thief busy for less than this is short.
const SHORT: Duration = Duration::from_micros(100);
/// Short thefts that are further apart than this are not in a row.
const APART: Duration = Duration::from_millis(1);
/// The first nap. The next one is twice as long, and so on.
const FIRST: Duration = Duration::from_micros(2);
/// How long a nap is at most.
const LONGEST: Duration = Duration::from_micros(16);
/// In a shorter nap the thread does not sleep but pauses: a sleep takes four system calls (`host/native/slack.rs`) and two
/// thread switches.
const ASLEEP: Duration = Duration::from_micros(10);

/// So many short thefts are judged together.
const WINDOW: u32 = 32;
/// Short thefts pay if a goroutine runs, on average, for as long as so many thefts take.
const RUN: u32 = 6;
/// Thieves that nap take to stealing without naps if there is the time of so many thefts between two contentions.
const BETWEEN_TO_BEGIN: u32 = 24;
/// Thieves go on without naps as long as there is the time of so many thefts.
const BETWEEN_TO_GO_ON: u32 = 19;
/// A theft that takes longer counts as this long: the thief has waited for `runnext`, or was off its CPU.
const LONGEST_THEFT: Duration = Duration::from_micros(1);

/// What the owner of a P sees at some time.
#[derive(Copy, Clone, Debug)]
struct Seen {
    at: Nanos,
    p: u32,
    /// How many goroutines have run on that P.
    ran: u32,
    /// How often the M's thread has found a lock taken.
    contentions: u32,
}

impl Seen {
    fn by_owner<H: Host>(p: &P<H>) -> Self {
        Seen { at: H::now(), p: p.id, ran: p.tick(), contentions: contentions() }
    }
}

#[derive(Copy, Clone, Debug)]
struct Theft {
    took: Duration,
    /// What the thief saw after the theft.
    seen: Seen,
}

/// Sums over short thefts.
#[derive(Copy, Clone, Debug, Default)]
struct Sums {
    thefts: u32,
    took: Duration,
    busy: Duration,
    ran: u32,
    contentions: u32,
}

impl Sums {
    /// Adds a theft. `now` is what the thief sees when it has nothing to do any more, on the same P.
    fn add(&mut self, theft: Theft, now: Seen) {
        self.thefts += 1;
        self.took += theft.took.min(LONGEST_THEFT);
        self.busy += now.at.saturating_since(theft.seen.at);
        self.ran = self.ran.saturating_add(now.ran.wrapping_sub(theft.seen.ran));
        self.contentions =
            self.contentions.saturating_add(now.contentions.wrapping_sub(theft.seen.contentions));
    }

    /// Returns `true` if such thefts pay. `paid`: so did those before.
    fn pay(&self, paid: bool) -> bool {
        let between = if paid { BETWEEN_TO_GO_ON } else { BETWEEN_TO_BEGIN };
        let theft = self.took / self.thefts;
        let least = |each: u32, count: u32| theft.saturating_mul(each.saturating_mul(count));
        self.busy >= least(RUN, self.ran) && self.busy >= least(between, self.contentions)
    }
}

/// What an M knows of its thefts. Only the M itself uses this.
pub(crate) struct Thefts {
    /// The last theft; `None` if `judge` has taken it already.
    last: Cell<Option<Theft>>,
    /// Of the short thefts since the last verdict.
    sums: Cell<Sums>,
    /// The last verdict: short thefts pay.
    pay: Cell<bool>,
    judged: Cell<Nanos>,
    /// How many short thefts there were in a row.
    short: Cell<u32>,
    #[cfg(test)]
    naps: AtomicU32,
}

impl Thefts {
    pub(crate) fn new() -> Self {
        Thefts {
            last: Cell::new(None),
            sums: Cell::new(Sums::default()),
            pay: Cell::new(false),
            judged: Cell::new(Nanos::ZERO),
            short: Cell::new(0),
            #[cfg(test)]
            naps: AtomicU32::new(0),
        }
    }

    /// The M has taken goroutines from another P.
    fn note(&self, theft: Theft) {
        self.last.set(Some(theft));
    }

    /// The M sleeps now: what it runs afterwards is not due to its last theft.
    pub(super) fn forget(&self) {
        self.last.set(None);
    }

    fn is_to_be_judged(&self) -> bool {
        self.last.get().is_some()
    }

    /// The M has nothing to do. Returns how long it is to nap.
    fn judge(&self, now: Seen) -> Option<Duration> {
        let theft = self.last.take()?;
        let stole = theft.seen.at;
        let apart = stole.saturating_since(self.judged.replace(now.at));
        if apart >= APART {
            // The thefts before belong to another phase of the program.
            self.sums.take();
        }
        if now.at.saturating_since(stole) >= SHORT {
            self.short.set(0);
            return None;
        }
        // The count of contentions is the thread's: it may go back when another thread has got the M's record (`mexit`).
        let contended = now.contentions.wrapping_sub(theft.seen.contentions);
        if theft.seen.p == now.p && i32::try_from(contended).is_ok() {
            self.weigh(theft, now);
        }
        let before = if apart >= APART { 0 } else { self.short.get() };
        self.short.set(before.saturating_add(1));
        let nap = FIRST.saturating_mul(1_u32.checked_shl(before).unwrap_or(u32::MAX)).min(LONGEST);
        (!self.pay.get()).then_some(nap)
    }

    /// Adds a short theft to the sums. Passes a verdict if they are complete.
    fn weigh(&self, theft: Theft, now: Seen) {
        let mut sums = self.sums.take();
        sums.add(theft, now);
        if sums.thefts < WINDOW {
            self.sums.set(sums);
        } else {
            self.pay.set(sums.pay(self.pay.get()));
        }
    }
}

impl<H: Host> Sched<H> {
    /// Returns the time, for `note_theft`. `None` if naps are off.
    pub(super) fn theft_begins(&self) -> Option<Nanos> {
        (capacity::NAPS && self.config.knobs.naps).then(H::now)
    }

    /// Notes that `m` has taken goroutines from another P, for `p`. Without a time nothing is noted, and so no theft is ever
    /// judged.
    pub(super) fn note_theft(&self, m: &M<H>, p: &P<H>, began: Option<Nanos>) {
        if let Some(began) = began {
            let seen = Seen::by_owner(p);
            m.thefts.note(Theft { took: seen.at.saturating_since(began), seen });
        }
    }

    /// For an M that has found nothing for `p` and is about to steal. Returns `true` if the M has napped.
    pub(super) fn nap_after_short_thefts(&self, m: &M<H>, p: &P<H>) -> bool {
        m.thefts.is_to_be_judged() && self.nap(m, p)
    }

    #[cold]
    #[inline(never)]
    fn nap(&self, m: &M<H>, p: &P<H>) -> bool {
        let seen = Seen::by_owner(p);
        let now = seen.at;
        let Some(nap) = m.thefts.judge(seen) else { return false };
        if self.nobody_polls() || self.jobs_somewhere() || self.waits_elsewhere(p) {
            return false;
        }
        // Relaxed: a hint. Without an M in the poller the Ms that look for work serve the timers of all heaps.
        let nobody = self.poll_until.load(Relaxed) == NO_POLLER;
        let first = if nobody { self.earliest_timer() } else { p.timers.earliest() };
        let nap = first.map_or(nap, |due| due.saturating_since(now).min(nap));
        event(format_args!("naps for {nap:?}"));
        #[cfg(test)]
        m.thefts.naps.fetch_add(1, Relaxed);
        if nap >= ASLEEP {
            H::rest(nap);
        } else {
            while H::now().saturating_since(now) < nap {
                pause();
            }
        }
        true
    }

    /// Returns `true` if the owner of `p` has to look elsewhere than at rings. The owner finds all of this work before it idles
    /// the P, or at I1. A hint.
    pub(super) fn waits_elsewhere(&self, p: &P<H>) -> bool {
        self.is_called(p) || !self.globq_len.is_zero() || self.waiting_classes.any() || self.is_stopping()
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::chan::bounded;
    use crate::host::Active;
    use crate::{Runtime, go};

    /// How long a theft takes here.
    const TOOK: Duration = Duration::from_nanos(100);

    /// A theft whose goroutines run for so long, so many of them; the thief finds so many locks taken meanwhile.
    fn steal(thefts: &Thefts, at: Nanos, (lasts, ran, contended): (Duration, u32, u32)) -> Option<Duration> {
        let seen = Seen { at, p: 1, ran: u32::MAX, contentions: u32::MAX };
        thefts.note(Theft { took: TOOK, seen });
        thefts.judge(Seen {
            at: at.saturating_add(lasts),
            ran: seen.ran.wrapping_add(ran),
            contentions: seen.contentions.wrapping_add(contended),
            ..seen
        })
    }

    /// Goroutines that run too briefly for a theft to pay.
    fn briefly(lasts: Duration) -> (Duration, u32, u32) {
        (lasts, 1_000, 0)
    }

    /// Fails if short thefts in a row do not make naps longer up to the limit, or if a long theft, or a time without one, does
    /// not end the row.
    #[test]
    fn naps_grow_with_short_thefts_in_a_row() {
        let (thefts, mut clock) = (Thefts::new(), Nanos::from_nanos(1_000_000_000));
        let mut steal_for = |lasts: Duration, pause: Duration| {
            clock = clock.saturating_add(pause);
            let nap = steal(&thefts, clock, briefly(lasts));
            clock = clock.saturating_add(lasts);
            nap
        };
        let naps = Vec::from_iter((0..40).map(|_| steal_for(SHORT / 2, LONGEST)));
        assert_eq!(naps[..2], [Some(FIRST), Some(2 * FIRST)]);
        assert!(naps.iter().all(|nap| nap.is_some_and(|nap| nap <= LONGEST)));
        assert_eq!(naps[39], Some(LONGEST));
        assert_eq!(steal_for(SHORT, LONGEST), None);
        assert_eq!(steal_for(SHORT / 2, LONGEST), Some(FIRST));
        assert_eq!(steal_for(SHORT / 2, LONGEST), Some(2 * FIRST));
        assert_eq!(steal_for(SHORT / 2, APART), Some(FIRST));
    }

    /// Fails if an M naps that has stolen nothing since the last look.
    #[test]
    fn no_nap_without_a_theft() {
        let thefts = Thefts::new();
        let seen = Seen { at: Nanos::from_nanos(1_000_000), p: 0, ran: 0, contentions: 0 };
        assert_eq!(thefts.judge(seen), None);
        thefts.note(Theft { took: TOOK, seen });
        assert!(thefts.is_to_be_judged() && thefts.judge(seen).is_some());
        assert_eq!(thefts.judge(seen), None, "a theft is judged once");
    }

    /// Fails by an overflow if a theft is weighed although the count of contentions has gone back since.
    #[test]
    fn a_theft_of_the_thread_before_is_not_weighed() {
        let thefts = Thefts::new();
        for _ in 0..2 {
            let naps = steal(&thefts, Nanos::from_nanos(1_000_000), (SHORT / 2, 1, u32::MAX - 5));
            assert!(naps.is_some());
        }
        assert_eq!(thefts.sums.get().thefts, 0);
    }

    /// Returns whether a thief naps after each of many such thefts.
    fn nap_after(thefts: &Thefts, (ran, contended): (u32, u32)) -> [bool; 2 * WINDOW as usize] {
        std::array::from_fn(|_| {
            steal(thefts, Nanos::from_nanos(1_000_000), (SHORT / 2, ran, contended)).is_some()
        })
    }

    /// Each theft keeps the thief busy for 500 times as long as it takes. Fails if a thief naps although goroutines run for
    /// long and find locks free, if it does not nap where either is not so, or if the verdict on contentions has no hysteresis.
    #[test]
    fn no_naps_while_short_thefts_pay() {
        const ALL: usize = 2 * WINDOW as usize;
        const BEFORE_VERDICT: usize = WINDOW as usize - 1;
        const MOST: u32 = 500 / RUN;
        let count = |naps: [bool; ALL]| naps.iter().filter(|&&naps| naps).count();
        let thefts = Thefts::new();
        let naps = nap_after(&thefts, (MOST, 0));
        assert!(
            naps[..BEFORE_VERDICT].iter().all(|&naps| naps)
                && !naps[BEFORE_VERDICT..].iter().any(|&naps| naps)
        );
        assert_eq!(count(nap_after(&thefts, (MOST, 0))), 0);
        assert_eq!(count(nap_after(&thefts, (MOST + 1, 0))), ALL - BEFORE_VERDICT, "they run too briefly");
        const MOST_TO_BEGIN: u32 = 500 / BETWEEN_TO_BEGIN;
        const MOST_TO_GO_ON: u32 = 500 / BETWEEN_TO_GO_ON;
        assert_eq!(count(nap_after(&thefts, (1, MOST_TO_BEGIN + 1))), ALL, "too many contentions to begin");
        assert_eq!(count(nap_after(&thefts, (1, MOST_TO_BEGIN))), BEFORE_VERDICT);
        assert_eq!(count(nap_after(&thefts, (1, MOST_TO_GO_ON))), 0, "few enough to go on");
        assert_eq!(
            count(nap_after(&thefts, (1, MOST_TO_GO_ON + 1))),
            ALL - BEFORE_VERDICT,
            "too many to go on"
        );
    }

    /// Fails if a theft is weighed after a sleep, or on another P, or beside thefts of long ago.
    #[test]
    fn other_work_is_not_weighed() {
        let (thefts, at) = (Thefts::new(), Nanos::from_nanos(1_000_000));
        let seen = Seen { at, p: 1, ran: 0, contentions: 0 };
        thefts.note(Theft { took: TOOK, seen });
        thefts.forget();
        assert_eq!(thefts.judge(seen), None, "the M has slept since");
        thefts.note(Theft { took: TOOK, seen });
        assert!(thefts.judge(Seen { p: 2, ..seen }).is_some());
        assert_eq!(thefts.sums.get().thefts, 0, "its M has another P now");
        for (pause, sum) in [(Duration::ZERO, 1), (Duration::ZERO, 2), (APART, 1)] {
            let at = thefts.judged.get().saturating_add(pause);
            assert!(steal(&thefts, at, briefly(SHORT / 2)).is_some());
            assert_eq!(thefts.sums.get().thefts, sum);
        }
    }

    /// How often the Ms of this runtime have napped.
    fn naps(runtime: &Runtime) -> u32 {
        let sched = runtime.handle().sched("naps").unwrap();
        let ms = Vec::from_iter(sched.ps.iter().filter_map(|p| p.holder()));
        ms.iter().map(|m: &&M<Active>| m.thefts.naps.load(Relaxed)).sum()
    }

    /// Callers that ask an owner, on two Ps. Never ends if no thief ever naps.
    #[test]
    fn thieves_of_goroutines_that_exchange_messages_nap() {
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let runtime = unsafe { Runtime::builder().procs(2).build() }.unwrap();
        let mut most = 0;
        while most == 0 {
            most = runtime.run(|| {
                let (ask, asked) = bounded::<(u64, crate::chan::Sender<u64>)>(64);
                for _ in 0..16 {
                    let ask = ask.clone();
                    go(move || {
                        let (answer, answers) = bounded(1);
                        for i in 0..1_000 {
                            ask.send((i, answer.clone())).unwrap();
                            answers.recv().unwrap();
                        }
                    });
                }
                drop(ask);
                for (i, answer) in &asked {
                    answer.send(i).unwrap();
                }
                naps(&runtime)
            });
        }
        println!("{most} naps");
    }
}
