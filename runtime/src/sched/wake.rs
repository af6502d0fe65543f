//! Making a goroutine runnable, and having somebody run it.
//!
//! ```text
//!   submitter:  S1 lock · S2 queue the G · S3 an idle P?  take it and an M to wake · S4 unlock · S5 wake
//!   idle M:     I1 lock · I2 the queue is empty · I3 put the P back, stand among the idle Ms · I4 unlock · sleep
//! ```
//! The two critical sections have an order. If S comes first, I2 finds the G. If I does, S3 finds the P, and one
//! of: an idle M, the M that blocks in the poller, the right to start a new M.
//!
//! S3 may find nobody: no P is idle, or the poller's M is on its way back to the only one, or there may be no more
//! threads. Then too somebody comes: an M that is neither among the idle ones nor in the poller looks at the queue,
//! under the lock, before it sleeps.
//!
//! One P is woken for one submission. An M that takes a G and leaves others in the queue wakes the next one, so a
//! burst spreads without the submitter paying for it.
//!
//! Checked by `tests/loom_submit_vs_idle.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::net::turn::Turn;
use crate::p::P;
use crate::prim::{Mutant, MutexGuard, mutated, unless};
use crate::runq::GList;
use crate::sched::poll::Poller;
use crate::sched::{Central, Sched, Stage};
use crate::status::Then;
use std::ptr::NonNull;

/// Whom a submission has decided to wake, under the lock; to be started after it.
#[must_use]
pub(crate) enum Wake<H: Host> {
    /// An idle M, with the P that was left for it.
    M(NonNull<M<H>>),
    /// The M that blocks in the poller. It takes a P when it comes back.
    Poller,
    /// A new M, for this P.
    New(NonNull<P>),
}

/// Makes a goroutine runnable whose wait the caller has claimed. Any thread may call it.
#[doc(alias = "ready")]
pub(crate) fn goready<H: Host>(g: GRef<H>) {
    // From here on the goroutine may run and end, and its runtime with it: hold the scheduler, unless this
    // thread is one of its own Ms.
    if let Some(m) = M::<H>::current()
        && std::ptr::eq(m.sched(), g.home().as_ptr())
    {
        if g.word.ready() == Then::Queue {
            m.sched().submit(GList::one(g));
        }
        return;
    }
    let sched = g.home().upgrade();
    if g.word.ready() == Then::Queue {
        match sched {
            Some(sched) => sched.submit(GList::one(g)),
            // Its runtime is over, and it was left; nobody but us knows what we have just handed it.
            None => Turn::give_up_of(g),
        }
    }
}

impl<H: Host> Sched<H> {
    /// S1 to S5, for goroutines that have run before.
    pub(crate) fn submit(&self, mut list: GList<H>) {
        if list.is_empty() {
            return;
        }
        let central = self.central.lock();
        if central.stage == Stage::Running {
            self.queue(central, list);
        } else {
            // No M takes them any more.
            drop(central);
            while let Some(g) = list.pop() {
                self.leave(g);
            }
        }
    }

    /// S1 to S5, for a new goroutine. False: the runtime ends and takes no more.
    #[must_use]
    pub(crate) fn submit_new(&self, g: GRef<H>) -> bool {
        let central = self.central.lock();
        if central.stage == Stage::Stopping {
            return false;
        }
        self.queue(central, GList::one(g));
        true
    }

    fn queue<'a>(&'a self, mut central: MutexGuard<'a, Central<H>>, mut list: GList<H>) {
        let mut wake = None;
        if mutated(Mutant::SubmitWakeFirst) {
            wake = self.wakep(&mut central);
            drop(central);
            central = self.central.lock();
        }
        central.runq.append(&mut list);
        if !mutated(Mutant::SubmitNoWake) && !mutated(Mutant::SubmitWakeFirst) {
            wake = self.wakep(&mut central);
        }
        drop(central);
        self.start_woken(wake);
    }

    /// S3: finds a P that may run the work and somebody to bring it, if there is one.
    pub(crate) fn wakep(&self, central: &mut Central<H>) -> Option<Wake<H>> {
        let p = central.take_idle_p(&self.monitor_note)?;
        if let Some(m) = central.idle_ms.pop() {
            // SAFETY: Ms live as long as their scheduler.
            unsafe { m.as_ref() }.give(Some(p));
            return Some(Wake::M(m));
        }
        match central.poller {
            Poller::Blocked { .. } => {
                central.idle_ps.push(p);
                central.poller = Poller::Broken;
                return Some(Wake::Poller);
            }
            // It is on its way, and takes the only P.
            Poller::Broken if central.idle_ps.is_empty() => {
                central.idle_ps.push(p);
                return None;
            }
            Poller::Broken | Poller::Nobody => {}
        }
        if central.ms.len() as u32 + central.asked_for < self.config.max_threads {
            central.asked_for += 1;
            return Some(Wake::New(p));
        }
        central.idle_ps.push(p);
        None
    }

    /// S5.
    pub(crate) fn start_woken(&self, wake: Option<Wake<H>>) {
        match wake {
            None => {}
            // SAFETY: Ms live as long as their scheduler; this one was taken out of the idle list.
            Some(Wake::M(m)) => unsafe { m.as_ref() }.note.wake(),
            Some(Wake::Poller) => {
                unless(Mutant::SubmitNoBreak, || self.host.break_poll());
            }
            Some(Wake::New(p)) => self.startm(p),
        }
    }
}
