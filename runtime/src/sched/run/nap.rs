//! Naps: a thief whose last thefts kept it busy for less than 100 µs waits before it looks for the next one.
//!
//! *The problem.* Goroutines that pass small messages to each other are readied, run and park again within microseconds. At
//! nearly every moment one of them stands in the ring of the P on which they run, and so a thief that has nothing to do finds
//! one there. It takes half of them, runs them for some microseconds, and has nothing to do again. From then on the lines of
//! their channels go from core to core with each message, and the channels' locks are held on the other core: two Ps take
//! longer than one for the same messages.
//!
//! *The obvious way* is to leave alone what has stood in a ring for microseconds only. But no goroutine knows since when it
//! stands there (`help.rs`), and goroutines that compute for a millisecond would wait for that time, too.
//!
//! *Here* a thief judges by what became of its last theft. If the theft kept it busy for less than [`SHORT`], then it naps
//! before it looks again, the longer the more such thefts it has made in a row, up to [`LONGEST`]. A theft that kept it
//! busy for longer, or a time of [`APART`] without a theft, ends the row. So a goroutine that computes is taken at once, or
//! after one nap; those that exchange messages stay where they are for most of the time. (In Go a thief that sees nothing
//! but `runnext` sleeps for 3 µs, which Linux makes some 60, and counts as spinning meanwhile: goroutines that exchange
//! messages stay together by that, too, and no submitter wakes another M.)
//!
//! *What a nap delays.* An M that naps holds its P, and does not count as spinning. So a submitter that finds another P
//! idle wakes another M. If no P is idle, S3 of `wake.rs` has nothing to do, as each holder of a P looks at every queue
//! before it sleeps; and this M does so after the nap. The M looks first at its own timers, and at every queue that is no
//! ring: so a goroutine that was submitted meanwhile has waited for the nap, and not for what is stolen next. A nap ends
//! before the first timer that this M would have to serve. No M begins a nap while it is the M that has to poll, nor
//! while there are jobs (`jobs.rs`), mail, or goroutines of classes, or the runtime ends; what comes during the nap waits
//! for its end.
//!
//! `GMPDEBUG=naps=0` switches naps off; `docs/performance.md` has figures.
//!
//! A nap changes when an M looks, and nothing else: no model needs to know of it, and in a model there is none.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::{AtomicU32, Relaxed, capacity, event, pause};
use crate::sched::Sched;
use crate::sched::poll::NO_POLLER;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::time::Duration;

/// A theft that keeps the thief busy for less is a short one.
const SHORT: Duration = Duration::from_micros(100);
/// Short thefts that are further apart are not in a row.
const APART: Duration = Duration::from_millis(1);
/// The first nap. The next one is twice as long, and so on.
const FIRST: Duration = Duration::from_micros(2);
/// How long a nap is at most.
const LONGEST: Duration = Duration::from_micros(16);
/// A shorter nap is spent awake: a sleep is four system calls (`host/native/slack.rs`), and the kernel's way to another thread.
const ASLEEP: Duration = Duration::from_micros(10);

/// What an M knows of its thefts. The M's own.
pub(crate) struct Thefts {
    /// When the last one was, unless it was judged.
    last: Cell<Option<Nanos>>,
    judged: Cell<Nanos>,
    /// How many short ones there were in a row.
    short: Cell<u32>,
    #[cfg(test)]
    naps: AtomicU32,
}

impl Thefts {
    pub(crate) fn new() -> Self {
        Thefts {
            last: Cell::new(None),
            judged: Cell::new(Nanos::ZERO),
            short: Cell::new(0),
            #[cfg(test)]
            naps: AtomicU32::new(0),
        }
    }

    /// The M has taken goroutines from another P.
    fn note(&self, now: Nanos) {
        self.last.set(Some(now));
    }

    fn is_to_be_judged(&self) -> bool {
        self.last.get().is_some()
    }

    /// The M has nothing to do. Returns how long it is to nap.
    fn judge(&self, now: Nanos) -> Option<Duration> {
        let stole = self.last.take()?;
        let apart = stole.saturating_since(self.judged.replace(now));
        if now.saturating_since(stole) >= SHORT {
            self.short.set(0);
            return None;
        }
        let before = if apart >= APART { 0 } else { self.short.get() };
        self.short.set(before.saturating_add(1));
        Some(FIRST.saturating_mul(1_u32.checked_shl(before).unwrap_or(u32::MAX)).min(LONGEST))
    }
}

impl<H: Host> Sched<H> {
    /// `m` has taken goroutines from another P. Where no M naps nothing is noted, and so nothing is ever judged.
    pub(super) fn note_theft(&self, m: &M<H>) {
        if capacity::NAPS && self.config.knobs.naps {
            m.thefts.note(H::now());
        }
    }

    /// For an M that has found nothing for `p` and may look for what it can steal. Returns `true` if it has napped.
    pub(super) fn nap_after_short_thefts(&self, m: &M<H>, p: &P<H>) -> bool {
        m.thefts.is_to_be_judged() && self.nap(m, p)
    }

    #[cold]
    #[inline(never)]
    fn nap(&self, m: &M<H>, p: &P<H>) -> bool {
        if self.nobody_polls() || self.jobs_somewhere() || self.waits_elsewhere(p) {
            return false;
        }
        let now = H::now();
        let Some(nap) = m.thefts.judge(now) else { return false };
        // Relaxed: a hint. Without an M in the poller the timers of all heaps are served by those that look for work.
        let nobody = self.poll_until.load(Relaxed) == NO_POLLER;
        let first = if nobody { self.earliest_timer() } else { p.timers.earliest() };
        let nap = first.map_or(nap, |due| due.saturating_since(now).min(nap));
        event(format_args!("naps for {nap:?}"));
        #[cfg(test)]
        m.thefts.naps.fetch_add(1, Relaxed);
        if nap >= ASLEEP {
            // A sleep that is never woken.
            H::sleep(&H::SleepState::default(), &AtomicU32::new(0), 0, Some(nap));
        } else {
            while H::now().saturating_since(now) < nap {
                pause();
            }
        }
        true
    }

    /// Returns `true` if the owner of `p` has to look elsewhere than at rings. The owner finds all of that on its way to giving
    /// up, and as it gives up. A hint.
    pub(super) fn waits_elsewhere(&self, p: &P<H>) -> bool {
        self.is_called(p) || !self.globrunq_is_empty() || self.waiting_classes.any() || self.is_stopping()
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use crate::chan::bounded;
    use crate::host::Active;
    use crate::{Runtime, go};

    /// Fails where short thefts in a row do not make naps longer up to the limit, or a long one, or a time without one, does
    /// not end the row.
    #[test]
    fn naps_grow_with_short_thefts_in_a_row() {
        let (thefts, mut clock) = (Thefts::new(), Nanos::from_nanos(1_000_000_000));
        let mut steal_for = |lasts: Duration, pause: Duration| {
            clock = clock.saturating_add(pause);
            thefts.note(clock);
            clock = clock.saturating_add(lasts);
            thefts.judge(clock)
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

    /// Fails where an M naps that has stolen nothing since the last look.
    #[test]
    fn no_nap_without_a_theft() {
        let (thefts, clock) = (Thefts::new(), Nanos::from_nanos(1_000_000));
        assert_eq!(thefts.judge(clock), None);
        thefts.note(clock);
        assert!(thefts.is_to_be_judged() && thefts.judge(clock).is_some());
        assert_eq!(thefts.judge(clock), None, "a theft is judged once");
    }

    /// How often the Ms of this runtime have napped.
    fn naps(runtime: &Runtime) -> u32 {
        let sched = runtime.handle().sched("naps").unwrap();
        let ms = Vec::from_iter(sched.ps.iter().filter_map(|p| p.holder()));
        ms.iter().map(|m: &&M<Active>| m.thefts.naps.load(Relaxed)).sum()
    }

    /// Callers that ask an owner, on two Ps: fails by no end where no thief ever naps.
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
