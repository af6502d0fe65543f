//! How many Ps there are, and changing that while they work.
//!
//! The Ps with a number below `wanted` are to be used; a P beyond is *surplus* as long as an M has it, and then
//! *retired*. Go stops the world for this; here each P retires by itself:
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
//! `procs`, the lists, and nlive of the census change in one critical section of the scheduler's lock, and an M that puts a P
//! down asks there whether the P is surplus. So, inside the lock: an idle P is not surplus, a retired one is, and an M that
//! asks for an idle P gets no surplus one. A goroutine on a surplus P runs on and submits as before: thieves steal from that P
//! as from any. `find_runnable` reads `attention`, which is `wanted` or zero (`sched/run/classes.rs`), without the lock; an old
//! value costs one more goroutine. When the runtime ends `wanted` is zero, so that this one look tells both; then no P retires
//! any more.
//!
//! **No wake-up is lost** (S1 to S3, I1 to I3 of `sched/run/wake.rs`).
//!
//! *The queue of a P that retires* goes to the global queue, in the lock. An M that goes idle at that time may have looked at
//! the global queue before and look at the ring after it, and miss the goroutines in both. That M's P is idle by then, in the
//! lock. So the M that leaves a surplus P asks for an idle one in the same critical section, and if there is one goes on with
//! it, spinning, as after I3. If there is none, all others are held, and each holder looks at the global queue, in I1, before
//! putting the P down. A retaker, or a goroutine that gives its P away (`handoffp`), has queued the P's goroutines like any
//! submitter, and calls `wakep`.
//!
//! *An M that spins on a surplus P* and finds no idle one stops spinning in the lock, without IdleFence and I3. A submitter
//! that left a goroutine to this M has read, after SubmitFence, the census from before that moment; an M that puts a P down
//! later changes the census afterwards and passes IdleFence: one of the two fences comes first, and SubmitFence can't be the
//! later one, as S3 would then have seen that P. So I3 sees the goroutine. A P that became idle earlier would have been found.
//!
//! *Fewer procs*: a waker that has counted on an idle P finds that P gone, in the lock, as when another M has taken it. The Ps
//! that are left are then held. *More procs*: new idle Ps, and perhaps work that waits for one; `wakep`, after the lock, sends
//! an M, which finds work and wakes the next if there is more. An M that spins meanwhile finds the new P on giving up, or
//! has given up before, and then is not seen spinning.
//!
//! *An M that looks at all Ps* (I3, thieves) with an old number of them misses only Ps that were made after the M's
//! last critical section, in I1. A submitter on one of those took that P in the lock after that, and at S3 sees the
//! looker's P idle. The same holds for timers, with T1 to T3 and B1 to B3 of `sched/poll.rs`.
//!
//! *The mail of a P that is surplus* goes to the end of the global queue in the section that changes `procs`: from then on
//! no goroutine is mailed to that P (`run/mail.rs`). To an M that goes idle both places are one, under the lock.
//!
//! **Timers of a retired P** stay in its heap, like those of an idle one: the poller's wait, the last round of thieves
//! and the monitor see them, and an M that has work looks at those timers at each look at the global queue. So no timer
//! moves, and a callback, whose heap is named by its handle, need not know of the retirement.
//!
//! Until the program sets the number by hand, the number follows the machine: the monitor asks the host once a second, while
//! the monitor is awake.
//!
//! Checked by `models/procs.rs`.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::hooks::*;
use crate::prim::{CachePadded, MutexGuard, Relaxed, Release, capacity, event};
use crate::sched::{Central, Sched};
use gmp_timers::Nanos;
use std::ptr::NonNull;
use std::time::Duration;

/// How often the machine is asked.
const ASK_EVERY: Duration = Duration::from_secs(1);

/// Where the number of Ps comes from.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Says {
    /// From the program: from here on the machine has no say.
    Hand,
    /// From the machine, unless the program has set a number.
    Machine,
}

/// Refuses a number of Ps that can't be had.
pub(crate) fn check_procs(what: &str, procs: usize) -> Result<u32, String> {
    if (1..=capacity::PROCS).contains(&procs) {
        Ok(procs as u32)
    } else {
        Err(format!("{what}: {procs} is not within 1..={}", capacity::PROCS))
    }
}

impl<H: Host> Sched<H> {
    /// Returns how many goroutines may run at the same time. Without the lock; under the lock `Central::procs` has
    /// the number.
    pub(crate) fn procs(&self) -> usize {
        match self.wanted.load(Relaxed) {
            // The runtime ends.
            0 => self.central.lock().procs as usize,
            procs => procs as usize,
        }
    }

    /// The runtime ends: every M finds its P surplus, and then finds out why. Under the lock.
    pub(crate) fn no_p_is_wanted(&self) {
        self.wanted.store(0, Relaxed);
        // Release: `wanted`, partner `heed`.
        self.attention.store(0, Release);
    }

    /// Changes the number of Ps, from any thread, and returns the number before. Does not wait for goroutines on Ps that
    /// are surplus now. Without effect when the runtime ends.
    pub(crate) fn set_procs(&self, procs: u32) -> usize {
        self.change_procs(procs, Says::Hand)
    }

    /// Follows the machine. The monitor calls this at each look.
    pub(crate) fn reread_procs(&self) {
        let (now, last) = (H::now(), Nanos::from_nanos(self.procs_read.load(Relaxed)));
        if now.saturating_since(last) < ASK_EVERY {
            return;
        }
        // Relaxed: the monitor's own.
        self.procs_read.store(now.as_nanos(), Relaxed);
        if self.central.lock().procs_follow {
            // Not under the lock: the host reads files.
            let procs = match H::parallelism() {
                Ok(procs) => procs,
                // The limit that could not be read may be what keeps the number low.
                Err(at_most) => at_most.min(self.procs()),
            };
            self.change_procs(procs.clamp(1, capacity::PROCS) as u32, Says::Machine);
        }
    }

    /// Returns `true` if the M that has `p` is to give `p` up; when the runtime ends each M is. Exact under the lock;
    /// elsewhere a hint, which may be out of date. A retaker takes such a P at once.
    #[inline]
    pub(crate) fn is_surplus(&self, p: &P<H>) -> bool {
        p.id >= self.wanted.load(Relaxed)
    }

    /// Returns the Ps that are to be used. A hint: other Ps may still be held.
    pub(crate) fn ps_in_use(&self) -> &[CachePadded<P<H>>] {
        let ps = &*self.ps;
        // Relaxed: a hint.
        &ps[..ps.len().min(self.wanted.load(Relaxed) as usize)]
    }

    /// Returns `true` if the caller, which puts `p` down, has to `retire` it: under the lock. `false` at the end of a
    /// runtime, where no P retires.
    pub(crate) fn is_to_retire(&self, p: NonNull<P<H>>) -> bool {
        // SAFETY: Ps live as long as their scheduler.
        self.is_surplus(unsafe { p.as_ref() }) && !self.is_stopping()
    }

    /// Takes a surplus P, which no M has any more, out of use; the P's queue goes to the global one. The caller wakes
    /// an M.
    pub(crate) fn retire(&self, central: &mut Central<H>, p: NonNull<P<H>>) {
        // SAFETY: Ps live as long as their scheduler.
        let there = unsafe { p.as_ref() };
        event(format_args!("retires {there:?}"));
        unless!(RetireKeepsTheQueue, there.runq.drain(|g| central.globq.push(g)));
        unless!(RetireKeepsTheBatch, self.empty_batch(central, there));
        self.publish_len(central);
        self.offer_stacks(central, there);
        self.nobody_has(there);
        central.retired_ps.push(p);
        self.census.p_retired();
    }

    /// `m` has a P that seems to be surplus. If the lock shows that the P is surplus, `m` gives the P up, and comes back with
    /// another; or sleeps, when all are held.
    #[cold]
    pub(crate) fn leave_surplus(&self, m: &M<H>) {
        let mut central = self.central.lock();
        let held = m.p().expect("leave_surplus: the M holds a P");
        let retires = self.is_to_retire(NonNull::from(held));
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
        if !m.spinning.get() {
            mutant!(LeaveSurplusDoesNotSpin: return);
            self.become_spinning(m);
        }
    }

    /// `m`, which has given the P up, sleeps until a waker assigns one.
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
        if self.is_stopping() {
            return before;
        }
        central.procs = procs;
        // Relaxed: whatever `wanted` decides is decided under the lock.
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

    /// Idle Ps that are surplus now retire. This concerns no M: those that stand by take whichever P they are assigned.
    fn retire_idle(&self, central: &mut Central<H>) {
        let surplus = central.idle.take_ps(|p| self.is_surplus(p));
        let before = central.retired_ps.len();
        central.retired_ps.extend(surplus);
        self.census.idle_ps_went((central.retired_ps.len() - before) as u64);
    }

    /// Makes idle the Ps that are retired no more, and new ones up to `procs`. A P that is still held stays so. Returns
    /// `true` if there are any.
    fn add_idle(&self, central: &mut Central<H>) -> bool {
        let before = central.idle.num_ps();
        // SAFETY: Ps live as long as their scheduler.
        let wanted = central.retired_ps.extract_if(.., |p| !self.is_surplus(unsafe { p.as_ref() }));
        central.idle.put_ps(wanted);
        // SAFETY: the pool lives as long as the scheduler.
        let home = unsafe { self.pool.as_ref() }.sched();
        while self.ps.len() < central.procs as usize {
            let p = self.ps.push(|id| P::new(id, home, self.config.policy));
            // SAFETY: Ps live as long as their scheduler.
            self.nobody_has(unsafe { p.as_ref() });
            central.idle.put_p(p);
        }
        let came = central.idle.num_ps() - before;
        self.census.idle_ps_came(came as u64);
        came > 0
    }

    /// The first number of a P that may be retired.
    #[inline]
    pub(crate) fn first_retired(&self) -> u32 {
        // Relaxed: a hint.
        self.wanted.load(Relaxed)
    }

    /// For models: returns how many Ps are neither idle nor retired, are idle, are retired.
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
