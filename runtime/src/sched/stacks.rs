//! When the kernel has no stack: who waits for one to come back, and when none ever will.
//!
//! ```text
//!   waiter:    W1 stand in `stackless` · W2 `wanted` := true · W3 ask once more: got one?  all try again
//!   returner:  R1 give the stack back · R2 `wanted`?  all try again
//! ```
//! W3 and R1 meet in the host's lock. If R1 comes first, W3 finds the stack; if W3 does, R2 sees W2.

use crate::g::GRef;
use crate::glist::GList;
use crate::host::Host;
use crate::m::M;
use crate::prim::{AtomicBool, Relaxed};
use crate::sched::Sched;
use std::io;

/// Whether goroutines wait for a stack.
pub(crate) struct Stacks {
    wanted: AtomicBool,
}

impl Stacks {
    pub(crate) fn new() -> Self {
        Stacks { wanted: AtomicBool::new(false) }
    }
}

impl<H: Host> Sched<H> {
    /// Gives `g` a stack before its first run. False: the kernel has none now, and `g` waits for one to come back.
    #[inline]
    pub(crate) fn provide_stack(&self, m: &M<H>, g: GRef<H>) -> bool {
        // SAFETY: `run` returned Go, so this M alone has the stack (status.rs, invariant 2).
        if g.stack.with(|stack| unsafe { (*stack).is_some() }) {
            return true;
        }
        let size = g.with_birth(|birth| birth.stack_size);
        m.count_stacks(1);
        match self.host.new_stack(size, g) {
            Ok(fresh) => {
                // SAFETY: as above.
                g.stack.with_mut(|stack| unsafe { *stack = Some(fresh) });
                true
            }
            Err(refused) => {
                m.count_stacks(-1);
                self.wait_for_stack(g, size, &refused);
                false
            }
        }
    }

    /// The stack of a goroutine that has ended goes back to the host, and those who wait for one try again: all of
    /// them, since sizes differ.
    #[inline]
    pub(crate) fn retire_stack(&self, m: &M<H>, stack: H::Stack) {
        self.host.retire(stack);
        m.count_stacks(-1);
        if self.stacks.wanted.load(Relaxed) {
            self.try_again();
        }
    }

    #[cold]
    fn wait_for_stack(&self, g: GRef<H>, size: usize, refused: &io::Error) {
        g.word.requeue();
        let mut central = self.central.lock();
        central.stackless.push(g);
        self.stacks.wanted.store(true, Relaxed);
        drop(central);
        if let Ok(there_is_one) = self.host.new_stack(size, g) {
            self.host.retire(there_is_one);
            self.try_again();
        } else if !self.is_stopping() && self.no_stack_is_out() && self.no_stack_is_out() {
            H::fatal(&format!("no stack for a goroutine, and none in use that could come back: {refused}"));
        }
    }

    /// Adds up what the Ms count, each by itself. A goroutine that goes from one M to another between two looks may be
    /// missed by one pass, and is seen by the next: what the later M has counted makes the earlier one's count visible.
    fn no_stack_is_out(&self) -> bool {
        let central = self.central.lock();
        // SAFETY: Ms live as long as their scheduler.
        central.ms.iter().map(|m| unsafe { m.as_ref() }.stacks()).sum::<i64>() <= 0
    }

    #[cold]
    fn try_again(&self) {
        let mut central = self.central.lock();
        self.stacks.wanted.store(false, Relaxed);
        let waiting = std::mem::replace(&mut central.stackless, GList::new());
        drop(central);
        self.inject(waiting);
    }
}
