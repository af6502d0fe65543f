//! An M's life: find a goroutine, run it until it yields, act on what it said.

use crate::g::GRef;
use crate::host::{Host, Stack};
use crate::m::M;
use crate::prim::{Mutant, Relaxed, mutated};
use crate::sched::park::Yield;
use crate::sched::{Sched, Stage};
use crate::status::Run;

/// Every so many turns an M looks at the poller although there is other work. Go's number, for the same purpose
/// as there: a prime, so that it does not fall into step with a pattern of the program.
const LOOK_EVERY: u32 = 61;

impl<H: Host> Sched<H> {
    /// The body of an M's thread. Returns when the runtime ends.
    pub(crate) fn mstart(&self, m: &M<H>) {
        H::set_current(m);
        if let Some(p) = m.take_given() {
            m.acquire(p);
        }
        while let Some(g) = self.find_runnable(m) {
            self.execute(m, g);
        }
        H::set_current(std::ptr::null());
        self.thread_left();
    }

    /// The next goroutine for this M, which sleeps until there is one. `None`: the runtime ends, and the M has
    /// given its P up.
    fn find_runnable(&self, m: &M<H>) -> Option<GRef<H>> {
        loop {
            if m.p().is_none() && !self.stopm(m) {
                return None;
            }
            m.touch_p();
            if m.next_tick().is_multiple_of(LOOK_EVERY) {
                self.look_at_poller(&m.local);
            }
            self.run_timers();

            let mut central = self.central.lock();
            if central.stage == Stage::Stopping {
                let p = m.release();
                central.idle_ps.push(p);
                return None;
            }
            if let Some(g) = central.runq.pop() {
                // One wake at a time: whoever takes work and leaves some wakes the next.
                let none_left = central.runq.is_empty() || mutated(Mutant::TakerWakesNobody);
                let wake = if none_left { None } else { self.wakep(&mut central) };
                drop(central);
                self.start_woken(wake);
                return Some(g);
            }
            self.go_idle(m, central);
        }
    }

    /// Runs `g` until it parks, yields or ends.
    fn execute(&self, m: &M<H>, g: GRef<H>) {
        if g.word.run() == Run::Held {
            return;
        }
        if !self.provide_stack(g) {
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
            match said {
                Yield::Park(number, hook) => {
                    if !self.park(g, number, hook) {
                        break;
                    }
                }
                Yield::Requeue => {
                    g.word.requeue();
                    self.central.lock().runq.push(g);
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

    /// Gives `g` a stack before its first run. False: the kernel has none now, and `g` waits for one to come
    /// back.
    fn provide_stack(&self, g: GRef<H>) -> bool {
        // SAFETY: as in `execute`.
        if g.stack.with(|stack| unsafe { (*stack).is_some() }) {
            return true;
        }
        // Relaxed: see `wait_for_stack`. A stale count means one attempt more.
        let returned = self.stacks.returned.load(Relaxed);
        self.stacks.out.fetch_add(1, Relaxed);
        let size = g.with_birth(|birth| birth.stack_size);
        match self.host.new_stack(size, g) {
            Ok(fresh) => {
                // SAFETY: as in `execute`.
                g.stack.with_mut(|stack| unsafe { *stack = Some(fresh) });
                true
            }
            Err(refused) => {
                self.wait_for_stack(g, returned, &refused);
                false
            }
        }
    }
}
