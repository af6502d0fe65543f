//! Whether a model has a retaker, and how the model plays the barrier on all threads for which the retaker asks.

use super::ModelHost;
use crate::m::M;
use crate::prim::{AtomicU32, Ordering, fence};
use std::cell::Cell;

/// Which retaker a model has: a thread that takes Ps from running goroutines.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Retaker {
    /// No retaker.
    None,
    /// A thread of the model, over a host that has a barrier for all threads.
    Heavy,
    /// A thread of the model, over a host without such a barrier.
    Fences,
    /// A thread of the model, over a host that refuses the barrier when the retaker asks for one.
    Refused,
}

thread_local! {
    /// The retaker of the model that this OS thread explores.
    pub(super) static RETAKER: Cell<Retaker> = const { Cell::new(Retaker::None) };
    /// With `Retaker::Refused`: the barrier was asked for in this execution.
    pub(super) static REFUSED: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` if a retaker relies on each entry into the runtime being a barrier.
pub(super) fn relies_on_entries() -> bool {
    RETAKER.get() == Retaker::Heavy
}

/// A point at which the kernel may switch the calling thread out. The thread passes a barrier there if another thread waits for
/// one. A real thread may be switched out anywhere; a model has these points in the windows, and where the model itself calls
/// this.
pub(crate) fn switch_point() {
    if RETAKER.get() == Retaker::Refused {
        M::<ModelHost>::current().inspect(|m| m.local.switches.may_pass());
    }
}

/// The barriers of one M for which other threads wait.
#[derive(Debug)]
pub(super) struct Switches {
    asked: AtomicU32,
    passed: AtomicU32,
}

impl Switches {
    pub(super) fn new() -> Self {
        Switches { asked: AtomicU32::new(0), passed: AtomicU32::new(0) }
    }

    /// Called on the M's thread: passes the barrier for which an asker waits.
    fn may_pass(&self) {
        // Acquire: partner `wait_for_one`. The M sees from here on what the asker did before it asked.
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
        // Acquire: partner `may_pass`. The asker sees what the M's thread did before the barrier.
        while self.passed.load(crate::prim::Acquire) != asked {
            loom::thread::yield_now();
        }
    }
}
