//! Taking work from other Ps: half of a queue, what is due among their timers, and last what is about to run.
//!
//! A spinning M visits the others in [`ROUNDS`](capacity::STEAL_ROUNDS) rounds, beginning at a random one. The last
//! round also runs the timers of those that have any, and takes from `runnext`, which its owner will most probably run
//! within a microsecond: who takes it too early moves a goroutine away from the data that it was woken for.
//!
//! Idle Ps have an empty queue and are passed over (`idle_mask`); they may have timers (`timer_mask`). Both masks are
//! hints here: what a stale one hides is seen by the look after giving up (`spin.rs`), or by the poller's wait.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::{capacity, event};
use crate::runq::StealNext;
use crate::sched::Sched;

impl<H: Host> Sched<H> {
    /// Spins, unless enough others do. The goroutine to run; the rest of what was taken is in the queue of `p`.
    #[doc(alias = "stealWork")]
    pub(crate) fn steal_work(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if !m.spinning.get() {
            if !self.census.may_spin() {
                return None;
            }
            self.become_spinning(m);
        }
        for round in 1..=capacity::STEAL_ROUNDS {
            let last = round == capacity::STEAL_ROUNDS;
            let found = self.victims(m, p).find_map(|victim| self.steal_from(m, p, victim, last));
            if found.is_some() {
                return found;
            }
        }
        None
    }

    fn steal_from(&self, m: &M<H>, p: &P<H>, victim: &P<H>, last: bool) -> Option<GRef<H>> {
        if last && self.timer_mask.has(victim.id) && self.run_timers(m, victim) {
            return self.runqget(p);
        }
        if self.is_idle(victim) {
            return None;
        }
        p.owner.touch();
        let next = if last { StealNext::Yes } else { StealNext::No };
        let g = p.runq.steal_from(&victim.runq, next)?;
        event(format_args!("steals {g:?} from {victim:?}"));
        Some(g)
    }

    /// All other Ps, from a random one on.
    fn victims<'a>(&'a self, m: &M<H>, p: &P<H>) -> impl Iterator<Item = &'a P<H>> + use<'a, H> {
        let (own, count) = (p.id as usize, self.ps.len());
        let start = if capacity::RANDOM_VICTIMS { m.random() as usize % count } else { 0 };
        (0..count).map(move |i| (start + i) % count).filter(move |&i| i != own).map(|i| &*self.ps[i])
    }
}
