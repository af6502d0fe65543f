//! Giving a P away and coming back without one: a goroutine continues on its thread, while another M has the P.
//!
//! ```text
//!                 entersyscallblock                            exitsyscall (its next call that can park)
//!   with a P ─────────────────────────▶ without one ──┬──▶ a P is idle, none waits: with the P it had, or that one
//!                 or a retaker          │             ├──▶ a P is idle, others wait: the end of the global queue; the M
//!                                       │             │    takes the P, and runs the first of them
//!                                       │             └──▶ none is idle: the global queue; the M stands by
//!                                       └ calls that never park go on, as from a plain thread
//! ```
//! If other goroutines wait for the P, a goroutine gives the P away only if it can't go to another M instead: `blockers.rs`.
//!
//! *A P that is given away* goes to another M if there is work in the P's own queue. Otherwise the P becomes idle, and if the
//! global queue has work or no M is in the poller, an M is summoned (`sched/run/wake.rs`), unless an M spins already. An M that
//! idles a P without waking a spinner rechecks the queues (IdleFence), like every M that idles a P (I1 to I3). If that M has
//! claimed to spin, and `max_threads` allows no further M, it undoes the claim under the same lock. Then no M rechecks, because
//! there is no M to wake: the next M that comes without a P finds the goroutines in the global queue and in the queues of held
//! Ps, before it sleeps (`mput`, `sleep_unless`). An M that takes a blocker instead looks at the global queue and at the jobs
//! alone (`blockers.rs`).
//!
//! The obvious way is to hand the P over for work in the global queue as well. Then no M can use the P from the moment at which
//! the next M is woken until that M runs. Goroutines that come back from blocking calls in that time find no P and go to the
//! global queue, and their Ms go to sleep: from then on each of these goroutines waits for a wake, and each wake waits for the
//! one before. The first M that comes back takes an idle P, in contrast, without any wake.
//!
//! *Coming back*, the M looks for an idle P, and queues its goroutine globally, in one critical section: an M that idles a P
//! after that section finds the goroutine there. (With two sections most Ms would still be safe, because `stopm` looks at both
//! again; but an M with a bound goroutine does not come to `stopm`.) A goroutine that comes back does not overtake the
//! goroutines in the global queue: an M that was summoned for those could come in vain each time, and those would wait for as
//! long as others come back. A goroutine that is bound to its M goes behind them like any other; its M gives the P away again
//! (`locked.rs`).
//!
//! An M that takes an idle P takes only one goroutine from the global queue at first, not the P's share
//! (`sched/run/inject.rs`): when that goroutine blocks, the goroutines in the P's queue would have to be handed over together
//! with the P.
//!
//! Checked by `models/handoffp.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::{Assignment, M, Window};
use crate::prim::hooks::*;
use crate::prim::{Ordering, event, fence};
use crate::sched::Sched;
use crate::sched::lasting::PRef;
use crate::sched::run::spawn_burst;

impl<H: Host> Sched<H> {
    /// Gives the P of the calling goroutine away; the goroutine goes on without a P.
    pub(crate) fn entersyscallblock(&self, window: &Window<H>) {
        let p = window.m().release();
        event(format_args!("{:?} gives its P away", window.g()));
        unless!(BlockingKeepsTheCpus, window.m().go_where_the_thread_belongs());
        self.handoffp(p);
    }

    /// Gives away the P of the calling goroutine, which is about to block its thread in a call that never parks. Does nothing
    /// without a P, and on a plain thread.
    pub(crate) fn step_aside() {
        match Window::<H>::enter_with_p() {
            Some(window) => window.m().sched().entersyscallblock(&window),
            None => spawn_burst::goes_on_without_p::<H>(),
        }
    }

    /// Assigns `p`, which the caller has released, or taken from its M, to an M; or retires it, or makes it idle.
    pub(crate) fn handoffp(&self, p: PRef<H>) {
        let mut central = self.central.lock();
        if self.is_to_retire(&p) {
            self.retire(&mut central, p);
            drop(central);
            // For the goroutines that stood in the P's queue; and so that an M goes to the poller, if none is there.
            mutant!(HandoffpRetiresQuietly: return);
            self.wakep();
            return;
        }
        let works = self.has_work(&p);
        mutant!(HandoffpSkipsQueue: let works = false);
        if works && !self.is_stopping() {
            let wake = self.startm(&mut central, Assignment::P(p));
            if wake.is_none() {
                return self.warn_at_the_limit(central);
            }
            drop(central);
            return self.start_woken(wake);
        }
        if self.is_stopping().unless(HandoffpAtTheEndKeepsTheQueue) {
            p.runq.drain(|g| central.globq.push(g));
            self.empty_batch(&mut central, &p);
            self.publish_len(&central);
        }
        self.pidleput(&mut central, p);
        // Under the lock: the next M that takes the P must find the P counted as idle.
        unless!(HandoffpCountsLate, self.census.give_up(false));
        let works = !central.globq.is_empty();
        mutant!(HandoffpSkipsGlobal: let works = false);
        if (works || central.poller.is_empty()) && !self.is_stopping() && self.census.claim_spinning() {
            // The summoned M looks at all queues, if the P is still idle; if not, the M that holds the P looks when it gives
            // the P up.
            let wake = self.startm(&mut central, Assignment::Summons);
            if wake.is_none() && works {
                return self.warn_at_the_limit(central);
            }
            drop(central);
            return self.start_woken(wake);
        }
        drop(central);
        mutant!(HandoffpCountsLate: self.census.give_up(false));
        // HandoffpFence. SeqCst: a store to the census, then loads from the queues; partner: SubmitFence in `wakep`.
        fence(Ordering::SeqCst.unless(HandoffpNoFence));
        mutant!(HandoffpNoRecheck: return);
        if self.work_somewhere(&self.idle_mask) {
            self.wakep();
        }
    }

    /// For `m`, which runs `g` and has lost its P or given it away: takes the same P back, or another idle P. If goroutines
    /// stand in the global queue, or no P is idle, `g` goes to the end of that queue. Returns `true` if `g` goes on at once.
    #[doc(alias = "exitsyscall0")]
    pub(crate) fn exitsyscall(&self, m: &M<H>, g: GRef<H>) -> bool {
        let mut central = self.central.lock();
        let p = self.pidleget_or(&mut central, m.last_p());
        let first = self.goes_first(&central, g);
        mutant!(ExitOvertakes: let first = true);
        if let Some(p) = p.filter(|_| first) {
            drop(central);
            m.acquire_for_own(p);
            return true;
        }
        mutant!(ExitInTwoSections: drop(central); central = self.central.lock());
        event(format_args!("queues {g:?}, which comes back without a P, or behind others"));
        g.word.requeue();
        central.globq.push(g);
        self.publish_len(&central);
        drop(central);
        if let Some(p) = p {
            m.acquire(p);
        }
        false
    }
}
