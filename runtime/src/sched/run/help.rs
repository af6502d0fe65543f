//! Helping: a busy P takes work from a P whose goroutines wait too long.
//!
//! A thief is an M that has nothing to do. While goroutines on P1 yield to each other, P1's M never becomes a thief, and a
//! goroutine that runs on P0 without yielding starves all goroutines in P0's queue. So the owner of a P shows how old the P's
//! queue is, and a busy owner looks now and then at the age of another P's queue (`look.rs`). The scheme is that of CforAll's
//! scheduler (Thierry Delisle's thesis, chapter "Scheduling Core"): ages, damped by a moving average, biased towards the
//! helper's own queue and cache, in a redundant copy that a reader need not read exactly.
//!
//! ```text
//!   owner, at a look around                            helper, the owner of another P, at its look around
//!
//!   A1  the head has reached the mark?                 B1  age := now - the time shown, averaged
//!       yes: the wait until then goes into the         B2  over 8 times its own (16 times, under another
//!       average; no: the mark and the time stay            last-level cache), and over the floor?
//!   A2  the mark := the ring's end; shows the time     B3  fires the due timers; takes half of the ring,
//!                                                          or `runnext`; or one, for equal shares
//!                                                      B4  wakep
//! ```
//! CforAll stamps each goroutine when it is queued. Here a push reads no clock, and a goroutine does not record when it was
//! queued. Instead there is the *mark*: a ring position, and the time at which that position was the tail. While the head is
//! before the mark, some goroutine has waited since that time; once the head is past it, every queued goroutine is younger. So
//! the time shown makes a queue look younger than it is, by one look at most. An owner that does not come back shows the same
//! time for ever: its queue looks older and older. A helper that reads an old copy also takes the queue for older than it is. A
//! queue that looks old can be empty; then the theft finds no goroutine. An owner that has just acquired its P shows the queue
//! as *undated*, so that it need not read the clock; the first helper that looks at the P dates the queue.
//!
//! *Equal shares.* Goroutines that wake each other keep their P, and no P becomes a thief that way. With seven such groups on
//! one P and one group on another no goroutine waits for long, but each of the seven gets a seventh of a P, and the eighth gets
//! a whole P. So a helper that has seen one ring longer than its own by two goroutines at [`LONGER`] looks in a row takes one
//! goroutine at B3, however young that queue is. After a look at a longer ring the helper looks at the same P again. With fewer
//! looks a helper would take goroutines from a ring that is longer for a moment only.
//!
//! B3 is a theft like that of an M that spins (`p/runq.rs`), except that the thief's own ring can hold goroutines: the theft
//! does not rely on an empty ring. For a moment the stolen goroutines are in neither ring, and the helper does not count in
//! `nmspinning`: an M that gives up in that moment does not see them. B4 follows when the goroutines are in the helper's ring.
//! B4 is S2 and S3 of a submission (`wake.rs`): the helper sees that the P of the M that has given up is idle, and wakes an M.
//!
//! *The floors.* An age of about two looks is within the error of the mark, and the kernel can be the cause of a greater age. A
//! P whose M the kernel has preempted looks as old as a P whose goroutine runs on and on; in each of the kernel's time slices
//! helpers would take its work, and its owner would take the work back, at a high price. So an owner also shows its CPU when it
//! looks or wakes an M. If the helper runs on that CPU, or the owner of a third P has looked there since, then the kernel has
//! preempted the victim's M. In that case the helper takes nothing until the queue is older than the kernel usually keeps a
//! thread off its CPU. Helping earlier would gain little: the goroutine that the victim's M was running waits for the kernel in
//! any case.
//!
//! `models/runq.rs` checks the theft itself, and `models/help.rs` the helper's part. `tests/scheduling/transfer.rs` measures
//! helping, and shows that a goroutine waits for ever without it.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::p::runq::StealNext;
use crate::prim::hooks::*;
use crate::prim::{AtomicU32, AtomicU64, CachePadded, Relaxed, capacity, event};
use crate::runtime::policy::Steal;
use crate::sched::Sched;
use crate::sched::run::look::nanos;
use gmp_timers::Nanos;
use std::cell::Cell;

/// How many times as old as the helper's own queue the victim's queue has to be.
const BIAS: u64 = 8;
/// As `BIAS`, for a P that runs under another last-level cache.
const FAR_BIAS: u64 = 16;
/// At this many looks in a row the other ring has to be longer, by two goroutines, before the helper takes one from it.
const LONGER: u32 = 4;
/// `Published::since` of a P that has not looked in this lease.
const UNDATED: u64 = u64::MAX;
/// A position in the ring, and when that was the ring's end.
#[derive(Copy, Clone, Debug)]
struct Mark {
    head: u32,
    waiting: u32,
    at: Nanos,
}

/// The words that other Ms read. Relaxed: each word is a hint by itself.
struct Published {
    /// A time at which some goroutine was in the queue that might still be there; UNDATED if none is known.
    since: AtomicU64,
    /// The average wait, in nanoseconds.
    usual: AtomicU64,
    /// The CPU on which the owner was at that look, at a later one, or when it last woke an M.
    cpu: AtomicU32,
}

/// How long the goroutines in the queue of a P wait.
pub(crate) struct QueueAge {
    published: CachePadded<Published>,
    /// Owner: the mark; `None` if the owner has set none in this lease.
    mark: Cell<Option<Mark>>,
    /// Owner: the P whose ring was longer at the last look, and at how many looks in a row.
    longer: Cell<Option<(u32, u32)>>,
}

/// Three quarters of the new value, as in CforAll (12/16 and 4/16).
fn average(new: u64, old: u64) -> u64 {
    (new.saturating_mul(3).saturating_add(old)) / 4
}

/// B2: returns how old the queue of a P has to be before a helper takes from it. `own` is the age of the helper's queue; the
/// CPUs are that of the helper and that of the P's owner.
fn least_age(own: u64, [helper, owner]: [u32; 2], cache_of: impl Fn(u32) -> u32) -> u64 {
    let bias = if cache_of(helper) == cache_of(owner) { BIAS } else { FAR_BIAS };
    own.saturating_mul(bias).max(nanos(capacity::HELP_FLOOR))
}

impl QueueAge {
    pub(crate) fn new() -> Self {
        let published =
            Published { since: AtomicU64::new(UNDATED), usual: AtomicU64::new(0), cpu: AtomicU32::new(0) };
        QueueAge { published: CachePadded::new(published), mark: Cell::new(None), longer: Cell::new(None) }
    }

    /// Owner: another M has acquired the P, or the same M after a sleep.
    pub(crate) fn begin_lease(&self) {
        // Even if the owner has set no mark, a helper might have dated the queue.
        if self.mark.take().is_some() || self.published.since.load(Relaxed) != UNDATED {
            self.published.since.store(UNDATED, Relaxed);
        }
        self.longer.set(None);
    }

    /// Owner, A1 and A2: `head` and `tail` are the ends of the ring. Returns how old the queue is.
    pub(crate) fn advance(&self, (head, tail): (u32, u32), now: Nanos) -> u64 {
        let usual = self.published.usual.load(Relaxed);
        let mut wait = usual;
        if let Some(mark) = self.mark.get() {
            let (passed, gone) = (nanos(now.saturating_since(mark.at)), head.wrapping_sub(mark.head));
            if gone < mark.waiting {
                return average(passed, usual);
            }
            // Little's law: `gone` goroutines left the ring in the time `passed`.
            let last = passed * u64::from(mark.waiting) / u64::from(gone.max(1));
            wait = average(last, usual);
            self.published.usual.store(wait, Relaxed);
        }
        self.mark.set(Some(Mark { head, waiting: tail.wrapping_sub(head), at: now }));
        self.published.since.store(now.as_nanos(), Relaxed);
        wait
    }

    /// Owner, at a look at the P `other`: notes the lengths of the two rings. Returns `true` if the ring of `other` has been
    /// longer for [`LONGER`] looks: then one goroutine goes over.
    fn note_lengths(&self, own: u32, other: u32, length: u32) -> bool {
        let looks = match self.longer.get() {
            Some((seen, looks)) if seen == other => looks + 1,
            _ => 1,
        };
        let is_longer = length >= own + 2;
        self.longer.set((is_longer && looks < LONGER).then_some((other, looks)));
        is_longer && looks == LONGER
    }

    /// Owner: shows the CPU on which the owner runs.
    pub(crate) fn show_cpu(&self, cpu: u32) {
        if self.published.cpu.load(Relaxed) != cpu {
            self.published.cpu.store(cpu, Relaxed);
        }
    }

    /// B1: how old the queue looks to a helper.
    fn seen(&self, now: Nanos) -> u64 {
        let since = self.published.since.load(Relaxed);
        if since == UNDATED {
            // The exchange fails if the owner, or another helper, was faster.
            let _dated = self.published.since.compare_exchange(UNDATED, now.as_nanos(), Relaxed, Relaxed);
            return 0;
        }
        average(nanos(now.saturating_since(Nanos::from_nanos(since))), self.published.usual.load(Relaxed))
    }

    /// Returns the CPU on which the owner was last seen.
    pub(crate) fn cpu(&self) -> u32 {
        self.published.cpu.load(Relaxed)
    }

    /// Returns `true` if `self` shows a later time than `other`, and the same CPU: then the kernel has taken the M of `other`
    /// off that CPU.
    fn follows(&self, other: &QueueAge) -> bool {
        let [since, others] = [self, other].map(|age| age.published.since.load(Relaxed));
        self.cpu() == other.cpu() && since != UNDATED && since > others
    }
}

impl<H: Host> Sched<H> {
    /// A1 to B4, by the owner of `p`. Returns the goroutine to run; the other goroutines that were taken are in the
    /// queue of `p`.
    pub(crate) fn help_another(&self, m: &M<H>, p: &P<H>, now: Nanos) -> Option<GRef<H>> {
        let own = p.queue_age.advance(p.runq.ends(), now);
        let cpu = H::cpu();
        p.queue_age.show_cpu(cpu);
        // A ring that was longer is looked at again.
        let victim = match p.queue_age.longer.get() {
            Some((longer, _)) => &self.ps[longer as usize],
            None => self.draw_other_p(m, p)?,
        };
        if self.is_idle(victim) {
            p.queue_age.longer.set(None);
            return None;
        }
        let least = least_age(own, [cpu, victim.queue_age.cpu()], H::cache_of);
        let age = victim.queue_age.seen(now);
        let is_longer = p.queue_age.note_lengths(p.runq.len(), victim.id, victim.runq.len());
        let steals = match age >= least {
            true => self.steals(),
            false if is_longer => Steal::One,
            false => return None,
        };
        if age < nanos(capacity::HELP_FLOOR_OFF) && self.is_off_cpu(victim, cpu) {
            return None;
        }
        mutant!(HelpsNobody: return None);
        self.run_timers(m, victim);
        p.owner.touch();
        let ends = p.runq.ends();
        let g = p.runq.steal_from(&victim.runq, steals, StealNext::IfLeft(&|| victim.signs_of_life()))?;
        p.poll_schedule.arrivals.fill(ends, p.runq.ends().1);
        #[cfg(gmp_policies)]
        p.count_theft();
        if age >= least {
            // The other half waits as long.
            p.poll_schedule.look_again(p.tick());
        }
        event(format_args!("helps {victim:?} with {g:?}"));
        mutant!(HelpWakesNobody: return Some(g));
        self.wakep();
        Some(g)
    }

    /// Returns `true` if the kernel seems to run another M of this runtime on the CPU of the M of `victim`: the caller's M, on
    /// `cpu`, or the M of a third P, which has looked since.
    fn is_off_cpu(&self, victim: &P<H>, cpu: u32) -> bool {
        victim.queue_age.cpu() == cpu || self.ps.iter().any(|p| p.queue_age.follows(&victim.queue_age))
    }

    /// Returns a P to look at. If a retired P is drawn (there can be many more of these than of others), a P in use is drawn
    /// instead. A surplus P that is held is as good as any: without hand-off its M might keep that P, and then only a helper
    /// sees the goroutines in the P's queue.
    fn draw_other_p(&self, m: &M<H>, p: &P<H>) -> Option<&P<H>> {
        let drawn = another_of(m, p, &self.ps)?;
        if self.is_surplus(drawn) && self.is_idle(drawn) {
            another_of(m, p, self.ps_in_use())
        } else {
            Some(drawn)
        }
    }
}

/// Returns a P of `ps` other than `p`. Returns `None` if there is no other, or if `p` is not among `ps`: then `p` is surplus,
/// and its goroutines go to the other Ps anyway.
fn another_of<'a, H: Host>(m: &M<H>, p: &P<H>, ps: &'a [CachePadded<P<H>>]) -> Option<&'a P<H>> {
    let own = p.id as usize;
    if ps.len() < 2 || own >= ps.len() {
        return None;
    }
    let step = if capacity::RANDOM_VICTIMS { m.random() as usize % (ps.len() - 1) } else { 0 };
    Some(&ps[(own + 1 + step) % ps.len()])
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    fn at(micros: u64) -> Nanos {
        Nanos::from_nanos(micros * 1_000)
    }

    #[test]
    fn an_owner_that_does_not_come_looks_older_and_older() {
        let age = QueueAge::new();
        assert_eq!(age.seen(at(5)), 0, "undated: the look dates it");
        assert_eq!(age.seen(at(105)), 75_000);
        age.advance((7, 9), at(200));
        assert_eq!(age.seen(at(200)), 0);
        assert_eq!(age.seen(at(1_200)), 750_000);
        age.begin_lease();
        assert_eq!(age.seen(at(2_000)), 0);
        age.begin_lease();
        assert_eq!(age.seen(at(9_000)), 0, "a lease without a look leaves no date to the next");
    }

    /// Fails when a goroutine that yields alone counts as waiting, or when a long queue that moves fast counts as old.
    #[test]
    fn the_age_is_the_wait_of_goroutines_that_were_run() {
        let age = QueueAge::new();
        assert_eq!(age.advance((0, 0), at(0)), 0);
        assert_eq!(age.advance((0, 0), at(1_000)), 0, "nobody waited");
        assert_eq!(age.advance((0, 1), at(1_000)), 0);
        // Two that take turns, 100 times in 100 µs: a microsecond each.
        assert_eq!(age.advance((100, 101), at(1_100)), 750);
        assert_eq!(age.advance((200, 201), at(1_200)), 937);
        // A hundred wait, and one has run in 50 µs.
        let age = QueueAge::new();
        age.advance((200, 300), at(1_200));
        assert_eq!(age.advance((201, 300), at(1_250)), average(50_000, 0));
        assert_eq!(age.advance((201, 300), at(2_250)), average(1_050_000, 0), "the mark stays");
        assert_eq!(age.seen(at(2_250)), average(1_050_000, 0));
        assert_eq!(age.advance((300, 300), at(3_200)), average(2_000_000, 0), "until it is reached");
    }

    /// Two caches, of four CPUs each. Fails if the bias of a far P is that of a near one, or the other way round; if a CPU is
    /// taken for a cache; or if the floor does not hold.
    #[test]
    fn a_queue_under_another_cache_has_to_be_older() {
        let cache_of = |cpu: u32| 4 * (cpu / 4);
        let floor = nanos(capacity::HELP_FLOOR);
        for (helper, owner) in [(0, 3), (3, 0), (5, 5), (7, 4)] {
            assert_eq!(
                least_age(floor, [helper, owner], cache_of),
                8 * floor,
                "{helper} and {owner} are near"
            );
        }
        for (helper, owner) in [(0, 4), (4, 0), (3, 7), (6, 1)] {
            assert_eq!(
                least_age(floor, [helper, owner], cache_of),
                16 * floor,
                "{helper} and {owner} are far"
            );
        }
        assert_eq!(least_age(floor, [0, 7], |_| 0), 8 * floor, "all share one cache");
        assert_eq!([3, 7].map(|owner| least_age(1, [0, owner], cache_of)), [floor; 2]);
        assert_eq!(least_age(u64::MAX / 2, [0, 7], cache_of), u64::MAX);
    }

    /// Fails if a ring that is longer for a moment gives a goroutine away, or several such rings do in turn; or if a ring that
    /// stays longer gives none away, or one at each look.
    #[test]
    fn a_ring_that_stays_longer_gives_one_at_a_time() {
        let age = QueueAge::new();
        let gives = |own, other| (0..2 * LONGER).filter(|_| age.note_lengths(own, 1, other)).count();
        assert_eq!([gives(0, 6), gives(2, 4), gives(3, 4), gives(4, 2)], [2, 2, 0, 0]);
        assert_eq!((0..9 * LONGER).filter(|look| age.note_lengths(0, 1, 6 * (look % LONGER))).count(), 0);
        assert_eq!((0..9 * LONGER).filter(|look| age.note_lengths(0, look % 2, 6)).count(), 0);
        age.begin_lease();
        assert!(!(0..LONGER - 1).any(|_| age.note_lengths(0, 1, 6)));
        age.begin_lease();
        assert!(!age.note_lengths(0, 1, 6));
    }

    #[test]
    fn positions_wrap() {
        let age = QueueAge::new();
        age.advance((u32::MAX - 1, 1), at(0));
        assert_eq!(age.advance((0, 1), at(10)), 7_500, "two of three are gone");
        assert_eq!(age.advance((1, 1), at(30)), average(30_000, 0), "all of them");
    }
}
