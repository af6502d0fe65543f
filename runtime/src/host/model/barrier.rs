//! Whether a model has a retaker, and the barrier for all threads that this retaker asks for.

use super::ModelHost;
use crate::m::M;
use crate::prim::{AtomicU32, Ordering, fence};
use std::cell::Cell;

/// Which retaker a model has, to take Ps from running goroutines.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Retaker {
    /// No retaker.
    None,
    /// A thread of the model, over a host that has a barrier for all threads.
    Heavy,
    /// A thread of the model, over a host that has none.
    Fences,
    /// A thread of the model, over a host that refuses the barrier when it is asked for one.
    Refused,
}

thread_local! {
    /// That of the model which this OS thread explores.
    pub(super) static RETAKER: Cell<Retaker> = const { Cell::new(Retaker::None) };
    /// Over a host that refuses it: the barrier was asked for in this execution.
    pub(super) static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if a retaker relies on it that each entry into the runtime is a barrier.
pub(crate) fn relies_on_entries() -> bool {
    RETAKER.get() == Retaker::Heavy
}

/// The kernel may switch the calling thread out here, in which it passes a barrier: it does where another thread waits for
/// that. Anywhere, in truth; a model has such points in the windows, and where it says so.
pub(crate) fn switch_point() {
    if RETAKER.get() == Retaker::Refused {
        M::<ModelHost>::current().inspect(|m| m.local.switches.may_pass());
    }
}

/// The barriers which others wait for one M to pass.
#[derive(Debug)]
pub(super) struct Switches {
    asked: AtomicU32,
    passed: AtomicU32,
}

impl Switches {
    pub(super) fn new() -> Self {
        Switches { asked: AtomicU32::new(0), passed: AtomicU32::new(0) }
    }

    /// The M's thread.
    fn may_pass(&self) {
        // Acquire: partner `wait_for_one`; what the asker did before is seen from here on.
        let asked = self.asked.load(crate::prim::Acquire);
        if self.passed.load(crate::prim::Relaxed) != asked {
            // SeqCst: the barrier for which a retaker asks, on the M's thread: partner EntryBarrier.
            fence(Ordering::SeqCst);
            // Release: partner `wait_for_one`.
            self.passed.store(asked, crate::prim::Release);
        }
    }

    pub(super) fn wait_for_one(&self) {
        let asked = self.asked.load(crate::prim::Relaxed) + 1;
        // Release: partner `may_pass`.
        self.asked.store(asked, crate::prim::Release);
        // Acquire: partner `may_pass`; what that thread did before is seen.
        while self.passed.load(crate::prim::Acquire) != asked {
            loom::thread::yield_now();
        }
    }
}
