//! Naps: a thief whose last thefts kept it busy for less than 100 µs waits before it looks for the next one.
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
//! or after one nap; goroutines that exchange messages stay where they are for most of the time. (In Go a thief that sees
//! nothing but `runnext` sleeps for 3 µs, which Linux turns into some 60, and counts as spinning meanwhile: that, too, keeps
//! goroutines that exchange messages together, and no submitter wakes another M.)
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
use crate::prim::{Relaxed, capacity, event, pause};
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

/// What an M knows of its thefts. Only the M itself uses this.
pub(crate) struct Thefts {
    /// When the last theft was; `None` if `judge` has taken it already.
    last: Cell<Option<Nanos>>,
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
    /// Notes that `m` has taken goroutines from another P. If naps are off, nothing is noted, and so no theft is ever judged.
    pub(super) fn note_theft(&self, m: &M<H>) {
        if capacity::NAPS && self.config.knobs.naps {
            m.thefts.note(H::now());
        }
    }

    /// For an M that has found nothing for `p` and is about to steal. Returns `true` if the M has napped.
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

    /// Fails if short thefts in a row do not make naps longer up to the limit, or if a long theft, or a time without one, does
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

    /// Fails if an M naps that has stolen nothing since the last look.
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
