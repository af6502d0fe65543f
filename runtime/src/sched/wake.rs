//! Making a goroutine runnable, and having somebody run it.
//!
//! ```text
//!   submitter:  S1 lock · S2 queue the G · S3 an idle P?  take it and an M to wake · S4 unlock · S5 wake
//!   idle M:     I1 lock · I2 the queue is empty · I3 put the P back, stand among the idle Ms · I4 unlock · sleep
//! ```
//! The two critical sections have an order. If S comes first, I2 finds the G. If I does, S3 finds the P, and one
//! of: an idle M, the M that blocks in the poller, the right to start a new M.
//!
//! One P is woken for one submission. An M that takes a G and leaves others in the queue wakes the next one, so a
//! burst spreads without the submitter paying for it.
//!
//! Checked by `tests/loom_submit_vs_idle.rs`.

use crate::g::GRef;
use crate::host::Host;
use crate::m::M;
use crate::p::P;
use crate::prim::{Mutant, mutated};
use crate::runq::GList;
use crate::sched::poll::Poller;
use crate::sched::{Central, Sched};
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
    let m = NonNull::new(H::current().cast_mut());
    // SAFETY: the current M lives as long as its thread.
    if let Some(m) = m.map(|m| unsafe { m.as_ref() })
        && std::ptr::eq(m.sched(), g.home().as_ptr())
    {
        if g.word.ready() == Then::Queue {
            m.sched().submit(GList::one(g));
        }
    } else {
        let sched = g.home().upgrade();
        if g.word.ready() == Then::Queue
            && let Some(sched) = sched
        {
            sched.submit(GList::one(g));
        }
    }
}

impl<H: Host> Sched<H> {
    /// S1 to S5.
    pub(crate) fn submit(&self, mut list: GList<H>) {
        if list.is_empty() {
            return;
        }
        let mut central = self.central.lock();
        let early = if mutated(Mutant::SubmitWakeFirst) {
            let wake = self.wakep(&mut central);
            drop(central);
            central = self.central.lock();
            wake
        } else {
            None
        };
        central.runq.append(&mut list);
        let wake = if mutated(Mutant::SubmitNoWake) || mutated(Mutant::SubmitWakeFirst) {
            early
        } else {
            self.wakep(&mut central)
        };
        drop(central);
        self.start_woken(wake);
    }

    /// S3: finds a P that may run the work and somebody to bring it, if there is one.
    pub(crate) fn wakep(&self, central: &mut Central<H>) -> Option<Wake<H>> {
        let p = central.idle_ps.pop()?;
        if let Some(m) = central.idle_ms.pop() {
            // SAFETY: Ms live as long as their scheduler.
            unsafe { m.as_ref() }.give(Some(p));
            return Some(Wake::M(m));
        }
        if let Poller::Blocked { .. } = central.poller {
            central.idle_ps.push(p);
            central.poller = Poller::Broken;
            return Some(Wake::Poller);
        }
        if central.ms.len() < self.config.max_threads as usize {
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
                crate::prim::unless(Mutant::SubmitNoBreak, || self.host.break_poll());
            }
            Some(Wake::New(p)) => self.startm(p),
        }
    }
}
