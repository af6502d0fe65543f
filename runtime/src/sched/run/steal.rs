//! Taking work from other Ps: half of a queue, or one goroutine, by the policy; then due timers, and last the goroutine in
//! `runnext`.
//!
//! A thief, which is a spinning M, goes over the other Ps in [`STEAL_ROUNDS`](capacity::STEAL_ROUNDS) rounds, beginning at a
//! random P. On a machine with several last-level caches it first visits the Ps that run under its own cache: the data that
//! their goroutines have touched is there. From the round with that number on, the thief also runs the due timers of other Ps,
//! and takes from `runnext`. The owner will most probably run the goroutine in `runnext` within a microsecond, and a thief that
//! takes that goroutine moves it away from the data for which it was woken. So the thief takes nothing from `runnext` while the
//! owner runs one goroutine after another.
//!
//! The thief makes more such rounds as long as it has seen work in one of the last two, up to
//! [`STEAL_ROUNDS_MOST`](capacity::STEAL_ROUNDS_MOST) rounds in all. Two goroutines that wake each other keep `runnext`
//! occupied about half of the time. A thief that gave up at the first empty round would be summoned by the very next of these
//! wake-ups, at the price of a futex call and the lock. During that call the goroutine that the owner has just readied stands
//! in `runnext`, and the woken M would take it. So a thief takes nothing from `runnext` while the owner is in that call, except
//! in round `STEAL_ROUNDS_MOST`. If the call lasts for more than [`LONGEST_WAKE`] rounds, the kernel has given the owner's CPU
//! to another thread, often to the M that was woken. From then on the thief takes from `runnext` all the same: it might be
//! spinning on the very CPU that the owner needs.
//!
//! *On the waker's CPU.* The kernel might run the woken M on the waker's CPU at once, in the waker's place, although another
//! CPU sleeps. The owner of a P shows its CPU before the call that wakes. A thief looks for an owner that is in that call and
//! shows the thief's own CPU. If there is one, the thief gives the CPU back between its rounds (`sched_yield`), and goes on
//! spinning: so the owner continues, without a further wake-up.
//!
//! Idle Ps have empty queues, and thieves pass over them (`idle_mask`); idle Ps can have timers (`timer_mask`). Both masks are
//! hints here: work that a stale mask hides is found by the recheck after giving up (`spin.rs`), or by the poller's wait.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::p::runq::StealNext;
use crate::prim::hooks::*;
use crate::prim::{capacity, event, pause, relax};
use crate::runtime::policy::Steal;
use crate::sched::Sched;

/// Pauses between two repeated rounds, a few microseconds, because each look takes the cache lines of those queues
/// away from their owners.
const PAUSES: u32 = 8;
/// The thief gives up after this many empty rounds in a row. The first rounds, which have no pause between them, do not count.
const IN_VAIN: u32 = 2;

/// An owner that is still in the same call to wake an M after this many rounds, some 20 µs, is taken to be off its CPU.
const LONGEST_WAKE: u32 = 6;

/// What a round takes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum How {
    /// From rings alone.
    Ring,
    /// From rings; due timers; from `runnext`, except while the P's owner is in the kernel to wake an M.
    NextIfLeft,
    /// As `NextIfLeft`, and from `runnext` also while the P's owner is in the kernel.
    All,
}

/// The call to wake an M in which a thief has seen an owner, round after round.
#[derive(Default)]
struct InKernel {
    /// The first P whose owner was seen in a call, and that owner's signs of life, until that call ends.
    seen: Option<(u32, u32)>,
    rounds: u32,
}

impl InKernel {
    /// Returns how the thief steals from `victim` in a round of that kind.
    fn how<H: Host>(&mut self, how: How, victim: &P<H>, is_idle: bool) -> How {
        let in_call = || (!is_idle && victim.is_waking()).then(|| victim.signs_of_life());
        if how == How::NextIfLeft && self.keeps(victim.id, in_call()) { How::All } else { how }
    }

    /// The thief sees the owner of this P in a call, with these signs of life, or in none. Returns `true` if the owner has been
    /// in that call for [`LONGEST_WAKE`] rounds.
    fn keeps(&mut self, p: u32, in_call: Option<u32>) -> bool {
        if self.seen.is_some_and(|(seen, _)| seen != p) {
            return false;
        }
        let call = in_call.map(|signs| (p, signs));
        let goes_on = self.seen == call;
        self.seen = call;
        self.rounds = if goes_on && call.is_some() { self.rounds + 1 } else { 0 };
        self.rounds >= LONGEST_WAKE
    }
}

impl<H: Host> Sched<H> {
    /// Spins, unless enough other Ms spin. Returns the goroutine to run; the other goroutines that were taken are in the queue
    /// of `p`.
    #[doc(alias = "stealWork")]
    pub(crate) fn steal_work(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if !m.spinning.own() {
            if !self.census.may_spin() {
                return None;
            }
            if self.nap_after_short_thefts(m, p) {
                if self.run_timers(m, p) {
                    return self.runqget_found(p);
                }
                if self.waits_elsewhere(p) || !self.census.may_spin() {
                    return None;
                }
            }
            unless!(ThiefDoesNotSpin, self.become_spinning(m));
        }
        let (mut in_vain, mut kernel) = (0, InKernel::default());
        for round in 1..=capacity::STEAL_ROUNDS_MOST {
            let how = if round == capacity::STEAL_ROUNDS_MOST {
                How::All
            } else if round >= capacity::STEAL_ROUNDS {
                How::NextIfLeft
            } else {
                How::Ring
            };
            let found = self.victims(m, p).find_map(|victim| {
                let how = kernel.how(how, victim, self.is_idle(victim));
                self.steal_from(m, p, victim, how)
            });
            let found = found.or_else(|| self.steal_job(m, p));
            if found.is_some() || how == How::All {
                return found;
            }
            if how == How::Ring {
                continue;
            }
            in_vain = if self.work_somewhere(&self.idle_mask) { 0 } else { in_vain + 1 };
            // When the M gives up, it finds the goroutines in the global queue (I1).
            if in_vain >= IN_VAIN || !self.globq_len.is_zero() || self.waiting_classes.any() {
                return None;
            }
            if self.run_timers(m, p) {
                return self.runqget_found(p);
            }
            if self.keeps_a_waker_waiting(p) {
                relax();
            }
            (0..PAUSES).for_each(|_| pause());
        }
        None
    }

    /// For the owner of `p`, which has no work: returns `true` if the owner of another P is in a call to wake an M, and began
    /// that call on the caller's CPU. A hint.
    fn keeps_a_waker_waiting(&self, p: &P<H>) -> bool {
        let waits_for =
            |cpu: u32, other: &P<H>| other.is_waking() && other.queue_age.cpu() == cpu && other.id != p.id;
        let cpu = H::cpu();
        self.ps.iter().any(|other| !self.is_idle(other) && waits_for(cpu, other))
    }

    fn steal_from(&self, m: &M<H>, p: &P<H>, victim: &P<H>, how: How) -> Option<GRef<H>> {
        if how != How::Ring && self.timer_mask.has(victim.id) && self.run_timers(m, victim) {
            return self.runqget_found(p);
        }
        if self.is_idle(victim) {
            return None;
        }
        p.owner.touch();
        let signs = || victim.signs_of_life();
        let next = match how {
            How::Ring => StealNext::No,
            How::NextIfLeft if victim.is_waking() => StealNext::No,
            How::NextIfLeft | How::All => StealNext::IfLeft(&signs),
        };
        let began = if self.has_work(victim) { self.theft_begins() } else { None };
        if self.has_batch(victim)
            && let Some(g) = self.steal_batch(p, victim)
        {
            event(format_args!("steals {g:?} from the batch of {victim:?}"));
            self.note_theft(m, p, began);
            return Some(g);
        }
        let ends = p.runq.ends();
        let g = p.runq.steal_from(&victim.runq, self.steals(), next)?;
        p.poll_schedule.arrivals.fill(ends, p.runq.ends().1);
        #[cfg(gmp_policies)]
        p.count_theft();
        event(format_args!("steals {g:?} from {victim:?}"));
        self.note_theft(m, p, began);
        Some(g)
    }

    /// Returns how much a thief takes of a ring, by the policy.
    pub(crate) fn steals(&self) -> Steal {
        self.config.policy.stealing().steal
    }

    /// Returns all other Ps, beginning at a random one; first those whose owners were last seen under the caller's cache.
    pub(crate) fn victims<'a>(&'a self, m: &M<H>, p: &P<H>) -> impl Iterator<Item = &'a P<H>> + use<'a, H> {
        let (own, count) = (p.id as usize, self.ps.len());
        let start = if capacity::RANDOM_VICTIMS { m.random() as usize % count } else { 0 };
        let cache_of_p = |i: usize| H::cache_of(self.ps[i].queue_age.cpu());
        let here = H::has_several_caches().then(|| H::cache_of(H::cpu()));
        let is_near = here.map(|here| move |i| cache_of_p(i) == here);
        from_near_to_far(count, start, is_near).filter(move |&i| i != own).map(|i| &*self.ps[i])
    }
}

/// Returns the numbers below `count`, from `start` on, wrapping around; with `is_near`, all near numbers first.
fn from_near_to_far<F: Fn(usize) -> bool>(
    count: usize,
    start: usize,
    is_near: Option<F>,
) -> impl Iterator<Item = usize> {
    let passes = if is_near.is_some() { 2 } else { 1 };
    (0..passes * count).filter_map(move |step| {
        let i = (start + step) % count;
        let is_in_this_pass = is_near.as_ref().is_none_or(|is_near| is_near(i) == (step < count));
        is_in_this_pass.then_some(i)
    })
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails if an owner that wakes again and again counts as off its CPU, if an owner that stays in a call does not, or if two
    /// such owners hide each other.
    #[test]
    fn an_owner_that_stays_in_one_call_is_off_its_cpu() {
        let mut kernel = InKernel::default();
        assert!((0..10 * LONGEST_WAKE).all(|wakes| !kernel.keeps(0, Some(2 * wakes + 1))));
        assert!(!kernel.keeps(0, None));
        for _ in 0..LONGEST_WAKE {
            assert!(!kernel.keeps(1, Some(7)) && !kernel.keeps(2, Some(3)) && !kernel.keeps(3, None));
        }
        assert!(kernel.keeps(1, Some(7)) && !kernel.keeps(2, Some(3)));
        assert!(!kernel.keeps(1, None));
        assert!((0..=LONGEST_WAKE).filter(|_| kernel.keeps(2, Some(3))).count() == 1);
    }

    fn order(count: usize, start: usize, near: &[usize]) -> Vec<usize> {
        from_near_to_far(count, start, Some(|i| near.contains(&i))).collect()
    }

    /// Fails if a victim is left out or comes twice, or a far victim comes before a near one.
    #[test]
    fn victims_under_the_same_cache_come_first() {
        assert_eq!(order(8, 6, &[0, 1, 2, 3]), [0, 1, 2, 3, 6, 7, 4, 5]);
        assert_eq!(order(8, 2, &[0, 1, 2, 3]), [2, 3, 0, 1, 4, 5, 6, 7]);
        assert_eq!(order(3, 1, &[]), [1, 2, 0]);
        assert_eq!(order(3, 1, &[0, 1, 2]), [1, 2, 0]);
        assert_eq!(from_near_to_far(3, 2, None::<fn(usize) -> bool>).collect::<Vec<_>>(), [2, 0, 1]);
    }
}
