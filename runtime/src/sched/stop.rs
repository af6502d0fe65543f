//! The end of a runtime.
//!
//! 1. `stopping` is set; Ms that stand by are woken, every M leaves when it next looks for work. Whoever queues a
//!    goroutine from here on finds the flag after S2 of `wake.rs`, and sets aside what is queued.
//! 2. What is parked or queued will not run again: the waits are claimed, so that nobody hands them anything, whoever
//!    joins one of these hears that the runtime ended, and what they owe is paid (`debt.rs`): turns go to the next in line.
//!    Callbacks that are armed go to the keeper (`keeper.rs`).
//! 3. The caller waits for the last M, for a limited time. A goroutine that does not come back to the runtime
//!    keeps its M; it is left behind, with everything that it refers to.
//! 4. Step 2 once more, for those that ran meanwhile. Those that never ran are dropped. The others stay where they are:
//!    their stacks, and all that lies on them, are leaked, because others may still refer to it. They are counted.

use crate::debt::Debt;
use crate::g::{self, End, GRef};
use crate::glist::GList;
use crate::gpool::GPool;
use crate::host::Host;
use crate::m::M;
use crate::prim::{Mutant, Ordering, Relaxed, fence, unless};
use crate::sched::Sched;
use crate::sched::poll::Poller;
use std::time::Duration;

/// What was left when a runtime ended.
#[derive(Copy, Clone, Debug, Default, Eq, PartialEq)]
pub struct Report {
    goroutines: usize,
    threads: usize,
}

impl Report {
    /// Goroutines that had not ended. Their stacks are leaked.
    pub fn goroutines_left(&self) -> usize {
        self.goroutines
    }

    /// Threads that did not come back to the runtime in time, each with the goroutine that it runs.
    pub fn threads_left(&self) -> usize {
        self.threads
    }

    /// Everything has ended.
    pub fn is_clean(&self) -> bool {
        *self == Report::default()
    }
}

impl<H: Host> Sched<H> {
    /// Ends the runtime and waits for its threads, at most for `limit`.
    pub(crate) fn stop(&self, limit: Duration) -> Report {
        let until = H::now().saturating_add(limit);
        self.begin_stop();
        let all = if M::<H>::current().is_some_and(|m| std::ptr::eq(m.sched(), self)) {
            // A goroutine of its own can't wait for the M that runs it.
            false
        } else if self.central.lock().alive == 0 {
            true
        } else {
            self.all_left.sleep_until(until)
        };
        if all {
            let threads = self.central.lock().take_threads();
            threads.into_iter().for_each(H::join);
        }
        let threads = self.central.lock().alive as usize;
        Report { goroutines: self.leave_goroutines(), threads }
    }

    fn begin_stop(&self) {
        if let Some(runtimes) = H::runtimes() {
            runtimes.end(self);
        }
        let mut central = self.central.lock();
        // Who stands by is taken out below, under the same lock; who would stand by later finds this first.
        self.stopping.store(true, Relaxed);
        self.no_p_is_wanted();
        // SeqCst: a store that submissions load, then loads from the queues (`take_queued`) and from the lives of Gs;
        // partner: S2 of `wake.rs`. The locks on the way order it for those who take them, and a submission need not.
        unless(Mutant::StopNoFence, || fence(Ordering::SeqCst));
        let mut idle = std::mem::take(&mut central.idle_ms);
        unless(Mutant::StopForgetsTheBound, || idle.append(&mut central.bound_ms));
        let blocked = matches!(central.poller, Poller::Blocked(_));
        if blocked {
            self.expel_poller(&mut central);
        }
        central.call_monitor(&self.monitor_note);
        drop(central);
        for m in idle {
            // SAFETY: Ms live as long as their scheduler; these were taken out of the idle list.
            let m = unsafe { m.as_ref() };
            m.give(None);
            m.note.wake();
        }
        if blocked {
            self.host.break_poll();
        }
        self.leave_parked();
        self.leave_timers();
        self.set_queued_aside();
    }

    /// An M leaves for good, with its P.
    pub(crate) fn m_leaves(&self, m: &M<H>) {
        let mut central = self.central.lock();
        if m.p().is_some() {
            let p = m.release();
            // Its queue is not empty, perhaps, but nobody takes the P any more.
            central.idle_ps.push(p);
            self.census.p_returned();
        }
        if m.spinning.replace(false) {
            self.census.end_spinning();
        }
    }

    /// A thread leaves, or a start of one is over.
    pub(crate) fn thread_left(&self) {
        let mut central = self.central.lock();
        central.alive -= 1;
        let last = central.alive == 0 && self.is_stopping();
        drop(central);
        if last {
            self.all_left.wake();
        }
    }

    /// What is left when no M takes work any more. Returns how many goroutines stay behind.
    pub(crate) fn leave_goroutines(&self) -> usize {
        self.leave_parked();
        self.set_queued_aside();
        // SAFETY: the pool is closed when the scheduler is dropped.
        unsafe {
            GPool::for_each_live(self.pool, |g| {
                g.leave();
                g::mark_done(g, End::Left);
            });
        }
        // Only now: a closure that is dropped may be one that waits.
        self.drop_set_aside();
        self.num_goroutines()
    }

    /// No M runs again what is parked. All their waits are claimed before anybody is told: else each would wake the one
    /// who joins it, and that one the next.
    fn leave_parked(&self) {
        let mut parked = Vec::new();
        // SAFETY: the pool is closed when the scheduler is dropped.
        unsafe {
            GPool::for_each_live(self.pool, |g| {
                if g.word.seize() {
                    parked.push(g);
                }
            });
        }
        for g in parked {
            g::mark_done(g, End::Left);
            Debt::settle_of(g);
        }
    }

    /// The runtime ends: nobody will run what is queued. Whoever waits for one of these is told.
    /// Their closures are dropped later, as no user's code may run here.
    #[cold]
    pub(crate) fn set_queued_aside(&self) {
        let (mut queued, mut aside) = (self.take_queued(), GList::new());
        while let Some(g) = queued.pop() {
            // Before anybody is told: see `leave_parked`.
            g.word.seize_queued();
            g::mark_done(g, End::Left);
            Debt::settle_of(g);
            aside.push(g);
        }
        self.central.lock().aside.append(&mut aside);
    }

    /// Drops the closures of those that were set aside. Runs the user's code.
    #[cold]
    pub(crate) fn drop_set_aside(&self) {
        let mut aside = std::mem::replace(&mut self.central.lock().aside, GList::new());
        while let Some(g) = aside.pop() {
            self.drop_if_unrun(g);
        }
    }

    fn take_queued(&self) -> GList<H> {
        let mut queued = GList::new();
        let mut central = self.central.lock();
        let lists = &mut *central;
        for list in [&mut lists.globq, &mut lists.stackless] {
            queued.append(list);
        }
        self.publish_len(&central);
        drop(central);
        self.ps.iter().for_each(|p| p.runq.drain_into(&mut queued));
        queued
    }

    /// Drops the closure of a goroutine that was taken out of a queue, if it never ran.
    fn drop_if_unrun(&self, g: GRef<H>) {
        // SAFETY: it stood in a queue, so no M runs it, and this caller has taken it out.
        if g.stack.with(|stack| unsafe { (*stack).is_none() }) {
            self.live.fetch_sub(i64::from(g.counts()), Relaxed);
            g::drop_unrun(g);
        }
    }
}
