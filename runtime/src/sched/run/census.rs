//! The census: how many Ms spin, how many Ps are idle, and how many Ps there are, in one word that a submitter reads instead of
//! taking the lock.
//!
//! An M *spins* while it holds a P and looks for work, or was summoned and is on its way to an idle P (`wake.rs`). An M is
//! counted in `nmspinning` from before its first queue check until it finds work, gives up the P, or finds no idle P to take. A
//! summoned M is counted by its waker (C1), before the waker has chosen the M. The claim of an M that is being started can end
//! earlier: an M that stands by takes that claim over (`threads/newm.rs`). Go keeps `nmspinning` and `npidle` in two words;
//! here one load shows both as they were at one moment, and "my P is idle, and I no longer spin" is one step. `nlive` counts
//! the Ps that are not retired (`sched/threads/procs.rs`): those that are idle, those that are held, and those on their way to
//! an M.
//!
//! Every change is a read-modify-write, Relaxed: SubmitFence and IdleFence (`wake.rs`), or the central lock, order it against
//! the queues. `models/submit_vs_idle.rs` checks the census together with these.

use crate::prim::{AtomicU64, Relaxed};

const SPINNING: u64 = 1;
const IDLE: u64 = 1 << 24;
const LIVE: u64 = 1 << 44;
const SPINNERS: u64 = IDLE - 1;
const PS: u64 = (1 << 20) - 1;

/// The word as it was at one moment.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(crate) struct Seen(u64);

impl Seen {
    /// Ms that look for work.
    pub(crate) fn nmspinning(self) -> u64 {
        self.0 & SPINNERS
    }

    /// Idle Ps.
    pub(crate) fn npidle(self) -> u64 {
        self.0 >> 24 & PS
    }

    /// Ps that are not retired.
    pub(crate) fn nlive(self) -> u64 {
        self.0 >> 44
    }

    /// Ps that an M holds, or that are on their way to one.
    #[inline]
    pub(crate) fn nbusy(self) -> u64 {
        self.nlive() - self.npidle()
    }

    /// Returns `true` if no M spins, and a P is idle.
    #[inline]
    fn lacks_a_spinner(self) -> bool {
        self.nmspinning() == 0 && self.npidle() > 0
    }
}

impl std::fmt::Debug for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} spinning, {} of {} idle", self.nmspinning(), self.npidle(), self.nlive())
    }
}

/// The word itself.
#[derive(Debug)]
pub(crate) struct Census(AtomicU64);

impl Census {
    /// A census of `npidle` idle Ps and no M.
    pub(crate) fn new(npidle: u32) -> Self {
        Census(AtomicU64::new(u64::from(npidle) * (IDLE + LIVE)))
    }

    /// Returns the counts at this moment.
    #[inline]
    pub(crate) fn read(&self) -> Seen {
        Seen(self.0.load(Relaxed))
    }

    /// S3 of `wake.rs`: returns `true` if no M spins, and a P is idle.
    #[inline]
    pub(crate) fn lacks_a_spinner(&self) -> bool {
        self.read().lacks_a_spinner()
    }

    /// Counts `count` Ps that were made, or came out of retirement, and are idle. Under the central lock.
    pub(crate) fn idle_ps_came(&self, count: u64) {
        self.0.fetch_add(count * (IDLE + LIVE), Relaxed);
    }

    /// Takes `count` idle Ps, which are retired, out of the count. Under the central lock.
    pub(crate) fn idle_ps_went(&self, count: u64) {
        let before = Seen(self.0.fetch_sub(count * (IDLE + LIVE), Relaxed));
        debug_assert!(before.npidle() >= count, "idle_ps_went: so many were not idle ({count}, {before:?})");
    }

    /// Takes a P that was not idle, and is retired, out of the count. Under the central lock.
    pub(crate) fn p_retired(&self) {
        let before = Seen(self.0.fetch_sub(LIVE, Relaxed));
        debug_assert!(before.nbusy() > 0, "p_retired: nobody had a P ({before:?})");
    }

    /// I1 of `wake.rs`: the caller has put its P among the idle ones, and no longer spins.
    pub(crate) fn give_up(&self, spun: bool) {
        // The sum wraps: one idle more, one spinning less.
        self.0.fetch_add(IDLE.wrapping_sub(if spun { SPINNING } else { 0 }), Relaxed);
    }

    /// A P was taken out of the idle ones, under the central lock.
    pub(crate) fn p_taken(&self) {
        let before = Seen(self.0.fetch_sub(IDLE, Relaxed));
        debug_assert!(before.npidle() > 0, "p_taken: no P was idle ({before:?})");
    }

    /// A P was put back among the idle ones by an M that did not run on it, under the central lock.
    pub(crate) fn p_returned(&self) {
        self.0.fetch_add(IDLE, Relaxed);
    }

    /// Counts the M that the caller is about to wake as the only M that spins. Returns `false`, and counts nothing, if another
    /// M already spins, or no P is idle.
    pub(crate) fn claim_spinning(&self) -> bool {
        let mut seen = self.read();
        while seen.lacks_a_spinner() {
            match self.0.compare_exchange_weak(seen.0, seen.0 + SPINNING, Relaxed, Relaxed) {
                Ok(_) => return true,
                Err(now) => seen = Seen(now),
            }
        }
        false
    }

    /// One more M spins.
    pub(crate) fn begin_spinning(&self) {
        self.0.fetch_add(SPINNING, Relaxed);
    }

    /// One fewer M spins: the M has found work, or was summoned in vain, or the caller's claim for an M to summon was in vain.
    pub(crate) fn end_spinning(&self) {
        let before = Seen(self.0.fetch_sub(SPINNING, Relaxed));
        debug_assert!(before.nmspinning() > 0, "end_spinning: nobody was spinning ({before:?})");
    }

    /// Returns `true` if the number of Ms that spin is less than half of the number of busy Ps: more Ms would only look at each
    /// other.
    pub(crate) fn may_spin(&self) -> bool {
        let seen = self.read();
        2 * seen.nmspinning() < seen.nbusy()
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn giving_up_is_one_step() {
        let census = Census::new(2);
        census.p_taken();
        census.begin_spinning();
        assert_eq!((census.read().nmspinning(), census.read().npidle()), (1, 1));
        assert!(!census.lacks_a_spinner(), "somebody spins");
        census.give_up(true);
        assert_eq!((census.read().nmspinning(), census.read().npidle()), (0, 2));
        assert!(census.lacks_a_spinner());
    }

    #[test]
    fn one_submitter_claims() {
        let census = Census::new(1);
        assert!(census.claim_spinning());
        assert!(!census.claim_spinning());
        census.end_spinning();
        census.p_taken();
        assert!(!census.claim_spinning(), "no P is idle");
    }

    #[test]
    fn at_most_half_of_the_busy_spin() {
        let census = Census::new(4);
        for _ in 0..3 {
            census.p_taken();
        }
        assert!(census.may_spin());
        census.begin_spinning();
        assert!(census.may_spin());
        census.begin_spinning();
        assert!(!census.may_spin());
    }

    #[test]
    fn what_is_retired_is_neither_idle_nor_busy() {
        let census = Census::new(1024);
        census.p_taken();
        census.idle_ps_went(1023);
        assert_eq!((census.read().nlive(), census.read().npidle(), census.read().nbusy()), (1, 0, 1));
        census.idle_ps_came(1);
        census.p_retired();
        assert_eq!((census.read().nlive(), census.read().npidle(), census.read().nbusy()), (1, 1, 0));
    }
}
