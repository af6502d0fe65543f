//! Naps: a thief whose last thefts were over in a moment waits before it looks for the next one.
//!
//! *The problem.* Goroutines that pass small messages to each other are readied, run and park again within microseconds. At
//! nearly every moment one of them stands in the ring of the P on which they run, and so a thief that has nothing to do finds
//! one there. It takes half of them, runs them for some microseconds, and has nothing to do again. From then on the lines of
//! their channels go from core to core with each message, and the channels' locks are held on the other core: two Ps take up
//! to twice as long as one for the same messages.
//!
//! *The obvious way* is to leave alone what has stood in a ring for a moment only. But no goroutine knows since when it stands
//! there (`help.rs`), and goroutines that compute for a millisecond would wait for that moment, too.
//!
//! *Here* a thief judges by what became of its last theft. If that kept it busy for less than [`SHORT`], the theft was a short
//! one, and before it looks again it naps, the longer the more short thefts it has made in a row, up to [`LONGEST`]. After a
//! theft that kept it busy for longer, or a sleep as long, it begins anew. Goroutines that compute are taken at once, as
//! ever; those that exchange messages stay where they are for most of the time. (In Go a thief that sees nothing but `runnext`
//! sleeps for 3 µs, which Linux makes some 60: goroutines that exchange messages stay together by that, too.)
//!
//! *What a nap delays.* An M that naps holds its P, and does not count as spinning. So a submitter that finds another P idle
//! wakes another M. If no P is idle, S3 of `wake.rs` has nothing to do, as each holder of a P looks at every queue before it
//! sleeps; and this one does so when the nap is over. What is submitted meanwhile waits for the rest of the nap at most. No M
//! naps while it is the one that has to poll, nor beyond the first timer of its own P, nor while there are jobs (`jobs.rs`) or
//! goroutines of classes, or the runtime ends.
//!
//! `GMPDEBUG=naps=0` switches naps off; `docs/performance.md` has figures.
//!
//! A nap changes when an M looks, and nothing else: no model needs to know of it, and in a model there is none.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::{AtomicU32, event, pause};
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::cell::Cell;
use std::time::Duration;

/// A theft that keeps the thief busy for less is a short one.
const SHORT: Duration = Duration::from_micros(100);
/// The first nap. The next one is twice as long, and so on.
const FIRST: Duration = Duration::from_micros(2);
/// How long a nap is at most, as it is asked for; Linux adds its timer slack of 50 µs.
const LONGEST: Duration = Duration::from_micros(16);

/// A nap that is shorter costs less awake than the kernel's part of a sleep.
const ASLEEP: Duration = Duration::from_micros(10);

/// What an M knows of its thefts. The M's own.
pub(crate) struct Thefts {
    last: Cell<Option<Nanos>>,
    /// How many short ones there were in a row.
    short: Cell<u32>,
}

impl Thefts {
    pub(crate) fn new() -> Self {
        Thefts { last: Cell::new(None), short: Cell::new(0) }
    }

    /// The M has taken goroutines from another P.
    pub(crate) fn note(&self, now: Nanos) {
        self.last.set(Some(now));
    }

    /// The M has nothing to do. Returns how long it is to nap.
    fn judge(&self, now: Nanos) -> Option<Duration> {
        let lasted = now.saturating_since(self.last.take()?);
        if lasted >= SHORT {
            self.short.set(0);
            return None;
        }
        let before = self.short.get();
        self.short.set(before.saturating_add(1));
        Some(FIRST.saturating_mul(1_u32.checked_shl(before).unwrap_or(u32::MAX)).min(LONGEST))
    }
}

impl<H: Host> Sched<H> {
    /// For an M that has found nothing for `p` and is about to look for what it may steal.
    #[cold]
    #[inline(never)]
    pub(super) fn nap_after_short_thefts(&self, m: &M<H>, p: &P<H>) {
        let now = H::now();
        let Some(nap) = m.thefts.judge(now) else { return };
        if self.nobody_polls() || self.jobs_somewhere() || self.waiting_classes.any() || self.is_stopping() {
            return;
        }
        let nap = p.timers.earliest().map_or(nap, |due| due.saturating_since(now).min(nap));
        event(format_args!("naps for {nap:?}"));
        if nap >= ASLEEP {
            // A sleep that is never woken.
            return H::sleep(&H::SleepState::default(), &AtomicU32::new(0), 0, Some(nap));
        }
        while H::now().saturating_since(now) < nap {
            pause();
        }
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails where short thefts in a row do not make naps longer up to the limit, or a long one does not end that.
    #[test]
    fn naps_grow_with_short_thefts_and_end_with_a_long_one() {
        let (thefts, mut clock) = (Thefts::new(), Nanos::from_nanos(1_000_000));
        let mut steal_for = |lasts: Duration| {
            thefts.note(clock);
            clock = clock.saturating_add(lasts);
            thefts.judge(clock)
        };
        let naps = Vec::from_iter((0..40).map(|_| steal_for(SHORT / 2)));
        assert_eq!(naps[..2], [Some(FIRST), Some(2 * FIRST)]);
        assert!(naps.iter().all(|nap| nap.is_some_and(|nap| nap <= LONGEST)));
        assert_eq!(naps[39], Some(LONGEST));
        assert_eq!(steal_for(SHORT), None);
        assert_eq!(steal_for(SHORT / 2), Some(FIRST));
    }

    /// Fails where an M naps that has stolen nothing since the last look.
    #[test]
    fn no_nap_without_a_theft() {
        let (thefts, clock) = (Thefts::new(), Nanos::from_nanos(1_000_000));
        assert_eq!(thefts.judge(clock), None);
        thefts.note(clock);
        assert!(thefts.judge(clock).is_some());
        assert_eq!(thefts.judge(clock), None, "a theft is judged once");
    }
}
