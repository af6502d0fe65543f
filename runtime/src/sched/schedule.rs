//! An M's life: find a goroutine, run it until it yields, act on what it said.

use crate::g::GRef;
use crate::host::{Host, Stack};
use crate::m::M;
use crate::p::P;
use crate::sched::Sched;
use crate::sched::park::Yield;
use crate::status::Run;

/// Every so many goroutines an M looks at the global queue and at the poller although its P has work. Go's number, for
/// the same purpose as there: a prime, so that it does not fall into step with a pattern of the program.
const LOOK_EVERY: u32 = 61;

impl<H: Host> Sched<H> {
    /// The body of an M's thread. Returns when the runtime ends.
    pub(crate) fn mstart(&self, m: &M<H>) {
        H::set_current(m);
        m.take_gift();
        while let Some(g) = self.find_runnable(m) {
            self.execute(m, g);
        }
        self.m_leaves(m);
        H::set_current(std::ptr::null());
        self.thread_left();
    }

    /// The next goroutine for this M, which sleeps until there is one. `None`: the runtime ends.
    #[doc(alias = "findRunnable")]
    fn find_runnable(&self, m: &M<H>) -> Option<GRef<H>> {
        loop {
            if self.is_stopping() {
                return None;
            }
            let Some(p) = m.p() else {
                self.stopm(m);
                continue;
            };
            self.run_timers(m, p);
            let found = self
                .look_elsewhere_in_turn(m, p)
                .or_else(|| self.runqget(p))
                .or_else(|| self.globrunqget(p))
                .or_else(|| self.look_elsewhere(m, p));
            if found.is_some() {
                self.reset_spinning(m);
                return found;
            }
            self.go_idle(m);
        }
    }

    /// Every 61st goroutine is the first of the global queue, if there is one: else two that keep readying each other
    /// on every P would keep those away for ever. The same for what waits in the poller.
    #[inline]
    fn look_elsewhere_in_turn(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if !p.next_tick().is_multiple_of(LOOK_EVERY) {
            return None;
        }
        if self.nobody_polls() {
            let found = self.look_at_poller(&m.local);
            self.submit_found(m, found);
        }
        self.globrunqget(p)
    }

    /// The first of the P's own queue. A goroutine in `runnext` was readied by the last one, and goes on within its
    /// time slice: two that wake each other keep the P, and their data stays in its cache. When the slice has ended it
    /// goes to the end of the queue like everybody.
    #[inline]
    pub(crate) fn runqget(&self, p: &P<H>) -> Option<GRef<H>> {
        p.owner.touch();
        if let Some(next) = p.runq.pop_next() {
            if p.inherit_slice() {
                return Some(next);
            }
            let overflow = p.runq.push(next);
            self.globrunqput(overflow);
        } else {
            p.begin_slice();
        }
        p.runq.pop()
    }

    /// What waits in the poller, or in the queues of other Ps. When all of those are idle there is nothing to steal, and
    /// the M goes on to wait in the poller at once: a look before that would be a system call in vain.
    fn look_elsewhere(&self, m: &M<H>, p: &P<H>) -> Option<GRef<H>> {
        if self.census.look().npidle() as usize + 1 == self.ps.len() {
            return None;
        }
        if self.nobody_polls() {
            let found = self.look_at_poller(&m.local);
            self.submit_found(m, found);
            if let Some(g) = self.runqget(p) {
                return Some(g);
            }
        }
        self.steal_work(m, p)
    }

    /// Runs `g` until it parks, yields or ends.
    fn execute(&self, m: &M<H>, g: GRef<H>) {
        if g.word.run() == Run::Held {
            return;
        }
        if !self.provide_stack(m, g) {
            return;
        }
        m.set_g(Some(g));
        loop {
            let said = g.stack.with_mut(|stack| {
                // SAFETY: `run` returned Go, so this M alone has the stack (status.rs, invariant 2), until a new
                // status is stored below.
                let stack = unsafe { (*stack).as_mut() }.expect("execute: a running G has a stack");
                m.leave();
                // SAFETY: as above; this M's thread runs this function.
                unsafe { stack.resume(m) }
            });
            // For loom, to which an access is as old as its beginning: until here the goroutine used its stack.
            g.stack.with_mut(|_| ());
            match said {
                Yield::Park(number, hook) => {
                    if !self.park(g, number, hook) {
                        break;
                    }
                }
                Yield::Requeue => {
                    self.requeue(m, g);
                    break;
                }
                Yield::Return => {
                    if !self.exitsyscall(m, g) {
                        break;
                    }
                }
                Yield::Exit => {
                    self.goexit0(m, g);
                    break;
                }
            }
        }
        m.set_g(None);
    }

    /// The goroutine lets others go first: the end of its P's own queue. Nobody is woken. This M takes one that was
    /// queued before, in exchange for this one: as many are queued as were, and those have been announced.
    #[doc(alias = "goschedImpl")]
    fn requeue(&self, m: &M<H>, g: GRef<H>) {
        let p = m.p().expect("requeue: a goroutine yields inside the runtime");
        g.word.requeue();
        p.owner.touch();
        let overflow = p.runq.push(g);
        self.globrunqput(overflow);
    }
}
