//! A goroutine that is about to block its thread while others wait for its P: another M makes the call.
//!
//! *The obvious way* is to keep the goroutine on its thread and to give the P to another M. Where that M's thread sleeps, the
//! P's goroutines wait until the kernel has woken it; in a server whose handlers block, once for each request. *Here* the M
//! keeps its P and goes on with the next goroutine, and the one that is about to block, the *caller*, goes to an M without a P:
//!
//! ```text
//!   M with the P, which the caller has left        M without a P: one that was sent for, or that has just left its goroutine
//!
//!   B1  lock: is an M on its way?  else takes      H1  lock: it is on its way no more
//!       one out of the idle set, or asks for       H2  callers?  takes the first; are there more, and is no M on its
//!       a new one;  none: the caller goes on           way?  sends the next, as in B1
//!       here, and gives the P away (`handoffp`)        none: stands by
//!   B2  queues the caller                          H3  wakes the M of H2
//!   B3  wakes that M, and takes the next           H4  runs its caller, without a P
//!       goroutine of the P
//! ```
//! *One M is on its way for many callers*, as one spinner is for many submissions: a burst of calls costs the M with the P one
//! futex call, and each M that comes sends the next one. When a goroutine comes back without a P and goes to the global queue,
//! its M takes the next caller instead of sleeping. That caller costs no wake. An M that idles a P takes no caller: the callers
//! wait for the M that was sent.
//!
//! *A thread may take long to start*, as it calls the user's functions first. So where the M on its way is a new one, B1 sends
//! an M of the idle set, too, and an M that stands by on its note beside callers goes itself (`take_start_over`). The new M
//! finds no caller at H2, and stands by. If it ends, by H1, the count of an M that was sent after it, then one M more may be
//! sent.
//!
//! *No caller is forgotten*: while callers stand there an M is on its way. B1 and B2 are one section of the lock, and so are H1
//! and H2: when an M has found no caller at H2, a caller that comes later finds no M on its way, and sends one. An M on its way
//! comes, unless its thread is refused, or the runtime ends, whose ender takes the callers (`stop.rs`). *No other work is
//! forgotten* for a caller: an M that is sent between its I1 and its I3 (`run/spin.rs`) may see work there and can't come for
//! it. So that M summons another one (S2 and S3 of a submission).
//!
//! *Where there is no M*, at `max_threads`, or as the thread was refused, the callers that stand there go to the global queue
//! (`callers_go_back`): a caller that is run by an M with a P gives that P away and blocks that M, as in the obvious way. An
//! M that comes without a P first looks at the global queue and at the jobs, as it would before it stands by (`mput`). If work
//! is there and a P is idle, the M takes that P, and its caller goes to the global queue. The look comes after the M has sent
//! the other callers back: at the limit this M may be the only one that comes, beside a P that has gone idle meanwhile. The M
//! does not look at the rings. To take work there, the M would have to put the caller into the global queue, would run that
//! caller first, and would be blocked by it. So at the limit a goroutine in the ring of a P whose owner does not come back may
//! wait beside an idle P until a call ends. The M in the poller is not taken for a caller.
//!
//! A caller is Runnable, as in any queue. Bound goroutines are no callers, nor do goroutines become callers where functions of
//! `gmp::hooks` are registered, which would have to be called around the change of the thread: `gmp::hooks` promises that a
//! goroutine stays on its thread in `blocking`.
//!
//! Checked by `models/callers.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::{Assignment, M, Window};
use crate::prim::hooks::*;
use crate::prim::{MutexGuard, event};
use crate::sched::run::classes::Heeded;
use crate::sched::run::wake::Wake;
use crate::sched::{Central, Sched};

/// The M that is on its way for the callers.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum CallerM {
    /// None is.
    None,
    /// One that was woken, or is awake.
    Comes,
    /// One that is being started.
    Starts,
}

impl<H: Host> Sched<H> {
    /// Returns `true` if the calling goroutine, which is about to block its thread, is to be a caller: others wait for its P,
    /// in the P's queue, in the global one, or in that of a class above `Background`; or, under `migrate=1`, whenever it may. A
    /// hint.
    pub(crate) fn wants_p_of(&self, window: &Window<H>) -> bool {
        let g = window.g();
        let others = self.has_work(window.p())
            || !self.globrunq_is_empty()
            || self.waiting_classes.any_above_background();
        (others || g.ties.are_some()) && !g.ties.is_bound() && !H::has_switch_hooks()
    }

    /// B1 to B3, for `g`, which has left `m`. Returns `true` if there is no M for it: then `g` goes on at once, with the P.
    #[cold]
    #[inline(never)]
    pub(crate) fn queue_caller(&self, m: &M<H>, g: GRef<H>) -> bool {
        let mut central = self.central.lock();
        if self.is_stopping() {
            return true;
        }
        let wake = match central.caller_m {
            CallerM::None => self.take_m_for_caller(&mut central),
            CallerM::Starts if true.unless(CallerAwaitsTheStart) => {
                self.take_sleeper_for_caller(&mut central)
            }
            CallerM::Comes | CallerM::Starts => None,
        };
        if (central.caller_m == CallerM::None).unless(CallerQueuedAtTheLimit) {
            return true;
        }
        event(format_args!("leaves {g:?}, which is to block, to an M without a P"));
        g.word.requeue();
        central.callers.push(g);
        drop(central);
        mutant!(CallerWakesNobody: return false);
        let p = m.p().expect("queue_caller: a goroutine says this in a window");
        self.start_woken_by(p, wake);
        false
    }

    /// Takes an M out of the idle set for the callers, or asks for a new one, and counts it as on its way. `start_woken` wakes
    /// or starts that M after the lock.
    fn take_m_for_caller(&self, central: &mut Central<H>) -> Option<Wake<H>> {
        let sleeper = self.take_sleeper_for_caller(central);
        if sleeper.is_none() && self.may_start(central) {
            central.asked_for += 1;
            central.caller_m = CallerM::Starts;
            return Some(Wake::New(Assignment::Caller));
        }
        sleeper
    }

    /// As `take_m_for_caller`, of the idle set alone.
    fn take_sleeper_for_caller(&self, central: &mut Central<H>) -> Option<Wake<H>> {
        let m = central.idle.take_m()?;
        // SAFETY: Ms live as long as their scheduler. The lock, and the idle set, give this M to its finder alone.
        unsafe { m.as_ref() }.assign(Some(Assignment::Caller));
        central.caller_m = CallerM::Comes;
        Some(Wake::M(m))
    }

    /// By `m`, which stands by on its note from here on, under the lock: where callers wait for an M that is being started `m`
    /// goes in its place, and finds its note woken.
    pub(crate) fn take_start_over(&self, m: &M<H>, central: &mut Central<H>) {
        mutant!(SleeperLeavesTheCallers: return);
        if central.caller_m == CallerM::Starts && !central.callers.is_empty() && central.idle.take_this_m(m) {
            m.assign(Some(Assignment::Caller));
            central.caller_m = CallerM::Comes;
            m.note.wake();
        }
    }

    /// H1 to H3, for `m`, which holds no P, where callers stand.
    #[cold]
    #[inline(never)]
    pub(crate) fn serve_callers(&self, m: &M<H>, mut central: MutexGuard<'_, Central<H>>) -> Heeded<H> {
        let first = central.callers.pop().expect("serve_callers: a caller stands there");
        let left = !central.callers.is_empty() && central.caller_m == CallerM::None;
        mutant!(CallerLeavesTheRest: let left = false);
        let wake = if left { self.take_m_for_caller(&mut central) } else { None };
        let go_back = left && wake.is_none();
        if go_back {
            self.callers_go_back(&mut central);
        }
        // Behind that: this M may be the only one that comes.
        let elsewhere = !central.globq.is_empty() || self.jobs_somewhere();
        mutant!(CallersGoBackUnseen: let elsewhere = elsewhere && !go_back);
        let p = if elsewhere { self.pidleget_or(&mut central, m.last_p()) } else { None };
        if p.is_some() {
            central.globq.push(first);
            self.publish_len(&central);
        }
        drop(central);
        mutant!(CallerCountedOnLate: relax(); self.central.lock().caller_m = CallerM::None);
        match p {
            Some(p) => {
                m.acquire(p);
                self.become_spinning(m);
                // Behind the P: to start a thread takes long.
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

    /// No M can be had for the callers that stand there: they go to the global queue.
    pub(crate) fn callers_go_back(&self, central: &mut Central<H>) {
        mutant!(CallersStay: return);
        while let Some(g) = central.callers.pop() {
            central.globq.push(g);
        }
        self.publish_len(central);
    }
}
