//! How many Ps there are, and changing that while they work.
//!
//! The Ps with a number below `wanted` are in use; any other P is *surplus* as long as an M holds it, and then *retired*. Go
//! stops the world for this; here each P retires by itself:
//!
//! ```text
//!                      made                      fewer procs: an idle one at once, a held one at its M's next
//!                        ▼                       look for work, or when it is given away, or finds no taker
//!   ┌──────┐        ┌─────────┐                       ┌─────────┐
//!   │ held │ ◀────▶ │  idle   │ ────────────────────▶ │ retired │
//!   └──────┘        └─────────┘ ◀──────────────────── └─────────┘
//!       │             nlive and npidle, in the lock        ▲
//!       └──────────── nlive, in the lock ──────────────────┘
//! ```
//! `procs`, the lists, and nlive of the census change in one critical section of the central lock, and an M that puts a P down
//! checks under that lock whether the P is surplus. So, under the lock, an idle P is in use, a retired P is not, and an M that
//! asks for an idle P gets no surplus P. A goroutine on a surplus P runs on and submits as before: thieves steal from that P as
//! from any other. `find_runnable` reads `attention`, which is `wanted` or zero (`sched/run/classes.rs`), without the lock; an
//! M that reads an old value runs one more goroutine. When the runtime ends, `wanted` is zero, so this one look also shows the
//! end; from then on no P retires.
//!
//! **No wake-up is lost** (S1 to S3, I1 to I3 of `sched/run/wake.rs`).
//!
//! *The queue of a P that retires* goes to the global queue, under the lock. An M that goes idle at that time might look at the
//! global queue before the move and at the ring after it, and miss the goroutines in both. But that M has idled its P under the
//! lock by then. So the M that leaves a surplus P looks for an idle P in the same critical section, and if there is one, takes
//! it and spins, as after I3. If no P is idle, all other Ps are held, and each holder looks at the global queue, in I1, before
//! it idles its P. A retaker, or a goroutine that gives its P away (`handoffp`), has queued the P's goroutines like any
//! submitter, and calls `wakep`.
//!
//! *An M that spins on a surplus P* and finds no idle P stops spinning under the lock, without IdleFence and I3. A submitter
//! that left a goroutine to this M has read the census, after SubmitFence, as it was before that moment. An M that idles a P
//! later changes the census after that moment, and then executes IdleFence. If SubmitFence came after that IdleFence, S3 would
//! have seen the idle P. So SubmitFence comes first, and I3 of that M sees the goroutine. If a P had become idle earlier, the
//! spinning M would have found that P.
//!
//! *Fewer procs*: a submitter that has seen an idle P in the census might find none under the lock, as when another M has taken
//! it. The Ps that remain are then held. *More procs*: there are new idle Ps, and perhaps work that waits for one; `wakep`,
//! after the lock, sends an M, which finds work and wakes the next M if there is more. If an M spins at that moment, `wakep`
//! does nothing: that M sees the new idle P when it gives up. If that M has already given up, `wakep` does not see it spinning.
//!
//! *An M that looks at all Ps* (I3, thieves) with an old count of Ps misses only Ps that were made after its last critical
//! section, in I1. A submitter on such a P has acquired that P under the lock after that I1, and so sees at S3 that the P of
//! the M that looks is idle. The same holds for timers, with T1 to T3 and B1 to B3 of `sched/poll.rs`.
//!
//! *The mail of a P that is surplus* goes to the end of the global queue in the section that changes `procs`: from then on no
//! goroutine is mailed to that P (`run/mail.rs`). An M that goes idle looks at both places in one critical section.
//!
//! **Timers of a retired P** stay in its heap, like those of an idle one: the poller's wait, the last round of thieves and the
//! monitor see them, and an M that has work looks at those timers at each look at the global queue. So no timer moves, and a
//! callback, whose handle names its heap, need not know of the retirement.
//!
//! Until the program sets the number, the number follows the machine: a monitor that is awake asks the host once a second.
//!
//! Checked by `models/procs.rs`.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{CachePadded, MutexGuard, Relaxed, Release, capacity, event};
use crate::sched::lasting::PRef;
use crate::sched::{Central, Sched};

/// Where the number of Ps comes from.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Says {
    /// From the program: from then on the number no longer follows the machine.
    Hand,
    /// From the machine, unless the program has set a number.
    Machine,
}

/// Refuses a number of Ps that is out of range.
pub(crate) fn check_procs(what: &str, procs: usize) -> Result<u32, String> {
    if (1..=capacity::PROCS).contains(&procs) {
        Ok(procs as u32)
    } else {
        Err(format!("{what}: {procs} is not within 1..={}", capacity::PROCS))
    }
}

impl<H: Host> Sched<H> {
    /// Returns how many goroutines can run at the same time. For a caller without the lock; under the lock `Central::procs` has
    /// the number.
    pub(crate) fn procs(&self) -> usize {
        match self.wanted.load(Relaxed) {
            // The runtime ends.
            0 => self.central.lock().procs as usize,
            procs => procs as usize,
        }
    }

    /// Makes the runtime end: `is_stopping` returns `true` from here on, and every M finds its P surplus, and then finds out
    /// why. Under the lock.
    pub(crate) fn no_p_is_wanted(&self) {
        self.wanted.store(0, Relaxed);
        // Release: `wanted`, partner `heed`.
        self.attention.store(0, Release.unless(EndCallsInTheDark));
    }

    /// Changes the number of Ps and returns the old number. Any thread may call this. Does not wait for goroutines on Ps that
    /// are surplus now. Has no effect when the runtime ends.
    pub(crate) fn set_procs(&self, procs: u32) -> usize {
        self.change_procs(procs, Says::Hand)
    }

    /// For the monitor: sets the number of Ps to the machine's, unless the program has set one.
    pub(crate) fn reread_procs(&self) {
        if self.central.lock().procs_follow {
            // Not under the lock: the host reads files.
            let procs = match H::parallelism() {
                Ok(procs) => procs,
                // The limit that could not be read might be the one that keeps the number low.
                Err(at_most) => at_most.min(self.procs()),
            };
            self.change_procs(procs.clamp(1, capacity::PROCS) as u32, Says::Machine);
        }
    }

    /// Returns `true` if the M that holds `p` is to give `p` up, as each M is when the runtime ends. Exact under the lock;
    /// elsewhere a hint, which might be out of date. A retaker takes a surplus P at once.
    #[inline]
    pub(crate) fn is_surplus(&self, p: &P<H>) -> bool {
        p.id >= self.wanted.load(Relaxed)
    }

    /// Returns the Ps in use. A hint: other Ps might still be held.
    pub(crate) fn ps_in_use(&self) -> &[CachePadded<P<H>>] {
        let ps = &*self.ps;
        // Relaxed: a hint.
        &ps[..ps.len().min(self.wanted.load(Relaxed) as usize)]
    }

    /// Returns `true` if the caller, which puts `p` down, has to `retire` it. Under the lock. Returns `false` at the end of a
    /// runtime, where no P retires.
    pub(crate) fn is_to_retire(&self, p: &P<H>) -> bool {
        let wanted = self.wanted.load(Relaxed);
        p.id >= wanted && wanted > 0
    }

    /// Retires a surplus P that no M holds any more; the goroutines in its queue go to the global queue. The caller wakes an M
    /// for them.
    pub(crate) fn retire(&self, central: &mut Central<H>, p: PRef<H>) {
        event(format_args!("retires {:?}", *p));
        unless!(RetireKeepsTheQueue, p.runq.drain(|g| central.globq.push(g)));
        unless!(RetireKeepsTheBatch, self.empty_batch(central, &p));
        self.publish_len(central);
        self.offer_stacks(central, &p);
        self.nobody_has(&p);
        central.retired_ps.push(p);
        self.census.p_retired();
    }

    /// For `m`, whose P seems to be surplus: if the lock confirms that, retires the P and acquires another one; if all Ps are
    /// held, sleeps instead.
    #[cold]
    pub(crate) fn leave_surplus(&self, m: &M<H>) {
        let mut central = self.central.lock();
        let held = m.p().expect("leave_surplus: the M holds a P");
        let retires = self.is_to_retire(held);
        mutant!(LeaveSurplusBlindly: let retires = true);
        if !retires {
            return;
        }
        let p = m.release();
        self.retire(&mut central, p);
        mutant!(LeaveSurplusAsksForNone: return self.sleep_without_p(m, central));
        let Some(next) = self.pidleget(&mut central) else { return self.sleep_without_p(m, central) };
        drop(central);
        m.acquire(next);
        if !m.spinning.own() {
            mutant!(LeaveSurplusDoesNotSpin: return);
            self.become_spinning(m);
        }
    }

    /// Makes `m`, which has given its P up, sleep until a waker assigns it a P.
    fn sleep_without_p(&self, m: &M<H>, mut central: MutexGuard<'_, Central<H>>) {
        let spun = m.spinning.replace(false);
        mutant!(LeaveSurplusLeaksSpinning: let spun = false);
        if spun {
            self.census.end_spinning();
        }
        self.stand_by_on_note(m, &mut central);
        drop(central);
        self.sleep_on_note(m);
    }

    fn change_procs(&self, procs: u32, says: Says) -> usize {
        let mut central = self.central.lock();
        match says {
            Says::Hand => central.procs_follow = false,
            Says::Machine if central.procs_follow => {}
            Says::Machine => return central.procs as usize,
        }
        let before = central.procs as usize;
        if self.is_stopping().unless(ProcsSetAfterTheEnd) {
            return before;
        }
        central.procs = procs;
        // Relaxed: each decision that depends on `wanted` is made under the lock.
        self.wanted.store(procs, Relaxed);
        self.settle_attention(&central);
        mutant!(ProcsInTwoSections: drop(central); central = self.central.lock());
        event(format_args!("{procs} procs instead of {before}"));
        if (procs as usize) < before {
            mutant!(ShrinkKeepsTheIdle: return before);
            self.retire_idle(&mut central);
            unless!(ShrinkKeepsTheMail, central.globq.forward_mail(procs));
            self.publish_len(&central);
        } else {
            central.globq.mail.resize(procs);
            if !self.add_idle(&mut central) {
                return before;
            }
            drop(central);
            mutant!(GrowWakesNobody: return before);
            self.wakep();
        }
        before
    }

    /// Retires the idle Ps that are surplus now. No M has to know: Ms that stand by take whichever P they are assigned.
    fn retire_idle(&self, central: &mut Central<H>) {
        let surplus = central.idle.take_ps(|p| self.is_surplus(p));
        let before = central.retired_ps.len();
        central.retired_ps.extend(surplus);
        self.census.idle_ps_went((central.retired_ps.len() - before) as u64);
    }

    /// Makes the retired Ps that are in use again idle, and makes new ones, up to `procs`. A P that is still held stays held.
    /// Returns `true` if any P became idle.
    fn add_idle(&self, central: &mut Central<H>) -> bool {
        let before = central.idle.num_ps();
        let wanted = central.retired_ps.extract_if(.., |p| !self.is_surplus(p));
        wanted.for_each(|p| central.idle.put_p(p));
        while self.ps.len() < central.procs as usize {
            let p = self.ps.push(|id| P::new(id, self.weak(), self.config.policy));
            self.nobody_has(&p);
            central.idle.put_p(p);
        }
        let came = central.idle.num_ps() - before;
        self.census.idle_ps_came(came as u64);
        came > 0
    }

    /// For models: returns how many Ps are neither idle nor retired, how many are idle, and how many are retired.
    #[cfg(all(test, gmp_loom))]
    pub(crate) fn count_ps(&self) -> [usize; 3] {
        let central = self.central.lock();
        let seen = self.census.read();
        assert_eq!(seen.npidle() as usize, central.idle.num_ps(), "count_ps: the census and the list differ");
        let (idle, retired) = (central.idle.num_ps(), central.retired_ps.len());
        assert_eq!(
            seen.nlive() as usize,
            self.ps.len() - retired,
            "count_ps: the census and the list differ"
        );
        [self.ps.len() - idle - retired, idle, retired]
    }
}
