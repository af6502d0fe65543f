//! The end of a runtime.
//!
//! 1. The stage becomes Stopping; idle Ms and the poller are woken, every M leaves when it next looks for work.
//! 2. The caller waits for the last M, for a limited time. A goroutine that does not come back to the runtime
//!    keeps its M; it is left behind, with everything that it refers to.
//! 3. Whoever joins one of the goroutines that have not ended hears that the runtime ended.
//! 4. Those that never ran are dropped. Those that are parked, or were runnable, stay where they are: their stacks,
//!    and all that lies on them, are leaked, because others may still refer to it. They are counted. Their waits
//!    are claimed, so that nobody hands them anything, and the turns they hold go to the next in line.

use crate::g::{self, End, GRef};
use crate::gpool::GPool;
use crate::host::Host;
use crate::m::M;
use crate::net::turn::Turn;
use crate::prim::Relaxed;
use crate::runq::GList;
use crate::sched::poll::Poller;
use crate::sched::{Sched, Stage};
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
        let until = self.host.now().saturating_add(limit);
        self.begin_stop();
        let all = if M::<H>::current().is_some_and(|m| std::ptr::eq(m.sched(), self)) {
            // A goroutine of its own can't wait for the M that runs it.
            false
        } else if self.central.lock().alive == 0 {
            true
        } else {
            self.all_left.sleep_until(&self.host, until)
        };
        if all {
            let threads = std::mem::take(&mut self.central.lock().threads);
            threads.into_iter().for_each(H::join);
        }
        let threads = self.central.lock().alive as usize;
        Report { goroutines: self.leave_goroutines(), threads }
    }

    fn begin_stop(&self) {
        let mut central = self.central.lock();
        central.stage = Stage::Stopping;
        let idle = std::mem::take(&mut central.idle_ms);
        let blocked = matches!(central.poller, Poller::Blocked { .. });
        if blocked {
            central.poller = Poller::Broken;
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
    }

    /// A thread leaves, or a start of one is over.
    pub(crate) fn thread_left(&self) {
        let mut central = self.central.lock();
        central.alive -= 1;
        let last = central.alive == 0 && central.stage == Stage::Stopping;
        drop(central);
        if last {
            self.all_left.wake();
        }
    }

    /// What is left when no M takes work any more. Returns how many goroutines stay behind.
    pub(crate) fn leave_goroutines(&self) -> usize {
        let mut queued = {
            let mut central = self.central.lock();
            let central = &mut *central;
            let mut queued = GList::new();
            queued.append(&mut central.runq);
            queued.append(&mut central.stackless);
            queued
        };
        // First of all whoever waits for one of them is told: a closure that is dropped below may be one that waits.
        // SAFETY: the pool is closed when the scheduler is dropped.
        unsafe { GPool::for_each_live(self.pool, |g| self.leave(g)) };
        while let Some(g) = queued.pop() {
            // SAFETY: it stood in a queue, so no M runs it, and this caller has taken it out.
            if g.stack.with(|stack| unsafe { (*stack).is_none() }) {
                self.live.fetch_sub(1, Relaxed);
                g::drop_unrun(g);
            }
        }
        self.num_goroutines()
    }

    /// `g` will not run again, unless it runs now: nobody is to wait for it, or to count on it.
    pub(crate) fn leave(&self, g: GRef<H>) {
        g::mark_done(g, End::Left);
        if g.word.seize() {
            Turn::give_up_of(g);
        }
    }
}
