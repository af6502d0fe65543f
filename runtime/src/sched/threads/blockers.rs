//! A goroutine that is about to block its thread while others wait for its P: another M makes the call.
//!
//! *The obvious way* is to keep the goroutine on its thread and to give the P to another M. If that M's thread sleeps, the P's
//! goroutines wait until the kernel has woken the thread: in a server whose handlers block, once for each request. *Here* the M
//! keeps its P and runs the next goroutine. The goroutine that is about to block, the *blocker*, goes to an M without a P:
//!
//! ```text
//!   M with the P, which the blocker has left       M without a P: it was sent for, or its goroutine has just left it
//!
//!   B1  lock: is an M on its way?  else takes      H1  lock: it is no longer on its way
//!       one out of the idle set, or asks for       H2  blockers?  takes the first; are there more, and is no M on its
//!       a new one;  none: the blocker goes on          way?  sends the next, as in B1
//!       here, and gives the P away (`handoffp`)        none: stands by
//!   B2  queues the blocker                         H3  wakes the M of H2
//!   B3  wakes that M, and takes the next           H4  runs its blocker, without a P
//!       goroutine of the P
//! ```
//! *One M is on its way for many blockers*, as one spinner is for many submissions: a burst of calls costs the M with the P one
//! futex call, and each M that comes sends the next one. When a goroutine comes back without a P and goes to the global queue,
//! its M takes the next blocker instead of sleeping, and no wake is needed for that blocker. An M that idles a P takes no
//! blocker: the blockers wait for the M that was sent.
//!
//! *A thread can take long to start*, because it calls the user's functions first. So while the M on its way is a new one, B1
//! also sends an M of the idle set, if there is one; and an M that is about to stand by on its note takes the new M's place
//! (`take_start_over`). The new M then finds no blocker at H2, and stands by. `blocker_m` does not say which M is on its way:
//! so H1 of the new M can clear the mark of an M that was sent later, and then B1 sends one M too many.
//!
//! *No blocker is forgotten*: while `blockers` is not empty, an M is on its way. B1 and B2 are one section of the lock, and so
//! are H1 and H2: when an M has found no blocker at H2, a blocker that comes later finds no M on its way, and sends one. An M
//! on its way comes, unless its thread is refused, or the runtime ends: then the ender takes the blockers (`stop.rs`). *No
//! other work is forgotten* for a blocker: an M that is sent for the blockers between I1 and I3 (`run/spin.rs`) might see work
//! at I3, and can't take it. So that M summons another M (S2 and S3 of a submission).
//!
//! *If there is no M*, at `max_threads` or because a thread was refused, the blockers go to the global queue
//! (`blockers_go_back`). An M with a P that runs one of them gives that P away and is blocked, as in the obvious way. An M that
//! takes a blocker looks at the global queue and at the jobs first, as it would before it stands by (`mput`). If there is work
//! and a P is idle, the M takes that P, and puts the blocker into the global queue. The M looks after it has sent the other
//! blockers to the global queue: at the limit this M might be the only one that comes, while a P has become idle. The M does
//! not look at the rings. To take work from a ring the M would have to put the blocker into the global queue; the M would then
//! run that blocker first, and be blocked. So at the limit a goroutine in the ring of a P whose owner does not come back might
//! wait until a call ends, although a P is idle. The M in the poller is never sent for blockers.
//!
//! A blocker is Runnable, as in any queue. Bound goroutines are no blockers. If functions of `gmp::hooks` are registered, no
//! goroutine becomes a blocker: these functions would have to be called around the change of the thread, and `gmp::hooks`
//! promises that a goroutine stays on its thread in `blocking`.
//!
//! Checked by `models/blockers.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::{Assignment, M, Window};
use crate::prim::hooks::*;
use crate::prim::{MutexGuard, event};
use crate::sched::run::classes::Heeded;
use crate::sched::run::wake::Wake;
use crate::sched::{Central, Sched};

/// Whether an M is on its way for the blockers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum BlockerM {
    /// No M is on its way.
    None,
    /// An M that was woken, or is awake.
    Comes,
    /// An M that is being started.
    Starts,
}

impl<H: Host> Sched<H> {
    /// Returns `true` if the calling goroutine, which is about to block its thread, is to be a blocker: other goroutines wait,
    /// in the P's queue, in the global queue, or in the queue of a class above `Background`. Under `migrate=1` no other
    /// goroutine need wait. Always `false` for a bound goroutine, and if functions of `gmp::hooks` are registered. A hint.
    pub(crate) fn wants_p_of(&self, window: &Window<H>) -> bool {
        let g = window.g();
        let others = self.has_work(window.p())
            || !self.globq_len.is_zero()
            || self.waiting_classes.any_above_background();
        (others || g.ties.are_some()) && !g.ties.is_bound() && !H::has_switch_hooks()
    }

    /// B1 to B3, for `g`, which has left `m`. Returns `true` if there is no M for `g`: then `g` goes on at once, with the P.
    #[cold]
    #[inline(never)]
    pub(crate) fn queue_blocker(&self, m: &M<H>, g: GRef<H>) -> bool {
        let mut central = self.central.lock();
        if self.is_stopping() {
            return true;
        }
        let wake = match central.blocker_m {
            BlockerM::None => self.take_m_for_blocker(&mut central),
            BlockerM::Starts if true.unless(BlockerAwaitsTheStart) => {
                self.take_sleeper_for_blocker(&mut central)
            }
            BlockerM::Comes | BlockerM::Starts => None,
        };
        if (central.blocker_m == BlockerM::None).unless(BlockerQueuedAtTheLimit) {
            return true;
        }
        event(format_args!("leaves {g:?}, which is to block, to an M without a P"));
        g.word.requeue();
        central.blockers.push(g);
        drop(central);
        mutant!(BlockerWakesNobody: return false);
        let p = m.p().expect("queue_blocker: a goroutine says this in a window");
        self.start_woken_by(p, wake);
        false
    }

    /// Takes an M out of the idle set for the blockers, or asks for a new one, and counts it as on its way. `start_woken` wakes
    /// or starts that M after the lock.
    fn take_m_for_blocker(&self, central: &mut Central<H>) -> Option<Wake<H>> {
        let sleeper = self.take_sleeper_for_blocker(central);
        if sleeper.is_none() && self.may_start(central) {
            central.asked_for += 1;
            central.blocker_m = BlockerM::Starts;
            return Some(Wake::New(Assignment::Blocker));
        }
        sleeper
    }

    /// As `take_m_for_blocker`, but starts no new M.
    fn take_sleeper_for_blocker(&self, central: &mut Central<H>) -> Option<Wake<H>> {
        let m = central.idle.take_m()?;
        m.assign(Assignment::Blocker);
        central.blocker_m = BlockerM::Comes;
        Some(Wake::M(m))
    }

    /// Called by `m` under the lock, when `m` has joined the idle set. If blockers wait for an M that is being started, `m`
    /// leaves the idle set and is sent for them in that M's place: when `m` goes to sleep, its note is already woken.
    pub(crate) fn take_start_over(&self, m: &M<H>, central: &mut Central<H>) {
        mutant!(SleeperLeavesTheBlockers: return);
        if central.blocker_m == BlockerM::Starts
            && !central.blockers.is_empty()
            && central.idle.take_this_m(m)
        {
            m.assign(Assignment::Blocker);
            central.blocker_m = BlockerM::Comes;
            m.note.wake();
        }
    }

    /// H1 to H3, for `m`, which holds no P, while blockers stand there.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_blockers(&self, m: &M<H>, mut central: MutexGuard<'_, Central<H>>) -> Heeded<H> {
        let first = central.blockers.pop().expect("serve_blockers: a blocker stands there");
        let left = !central.blockers.is_empty() && central.blocker_m == BlockerM::None;
        mutant!(BlockerLeavesTheRest: let left = false);
        let wake = if left { self.take_m_for_blocker(&mut central) } else { None };
        let go_back = left && wake.is_none();
        if go_back {
            self.blockers_go_back(&mut central);
        }
        // After the blockers went back, so that this look sees them: this M might be the only one that comes.
        let elsewhere = !central.globq.is_empty() || self.jobs_somewhere();
        mutant!(BlockersGoBackUnseen: let elsewhere = elsewhere && !go_back);
        let p = if elsewhere { self.pidleget_or(&mut central, m.last_p()) } else { None };
        if p.is_some() {
            central.globq.push(first);
            unless!(BlockerInTheQueueUnseen, self.publish_len(&central));
        }
        drop(central);
        mutant!(BlockerCountedOnLate: relax(); self.central.lock().blocker_m = BlockerM::None);
        match p {
            Some(p) => {
                m.acquire(p);
                self.become_spinning(m);
                // After the P was acquired: starting a thread takes long.
                self.start_woken(wake);
                Heeded::LooksAgain
            }
            None => {
                self.start_woken(wake);
                event(format_args!("takes {first:?}, which is to block"));
                m.go_where_the_thread_belongs();
                Heeded::Runs(first)
            }
        }
    }

    /// Moves the blockers, for which there is no M, to the global queue.
    pub(crate) fn blockers_go_back(&self, central: &mut Central<H>) {
        mutant!(BlockersStay: return);
        while let Some(g) = central.blockers.pop() {
            central.globq.push(g);
        }
        self.publish_len(central);
    }
}
