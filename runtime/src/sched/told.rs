//! What the world has refused for good, and the scheduler does without: told once for each runtime, however often it is met.

use crate::host::Host;
use crate::prim::{AtomicU32, Relaxed};
use crate::sched::Sched;

/// What was refused.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Refusal {
    /// A look at what a thread does.
    Watch,
    /// The barrier by which a retaker spares the entries into the runtime theirs.
    Barrier,
    /// That barrier, and what would take its place once.
    SlowBarrier,
    /// Every call by which the poller waits.
    Poll,
    /// What ends such a wait.
    Break,
}

/// The refusals of which the operator knows, a bit for each.
pub(crate) struct Told(AtomicU32);

impl Told {
    pub(crate) fn new() -> Self {
        Told(AtomicU32::new(0))
    }
}

impl<H: Host> Sched<H> {
    /// Whether the operator was told of it. Relaxed: a hint, for whoever goes another way from then on.
    pub(crate) fn was_refused(&self, what: Refusal) -> bool {
        self.told.0.load(Relaxed) & (1 << what as u32) != 0
    }

    /// Tells the operator, the first time.
    #[cold]
    pub(crate) fn tell_refused(&self, what: Refusal, text: impl FnOnce() -> String) {
        let bit = 1 << what as u32;
        // Relaxed: the exchange alone decides which of two callers tells.
        if self.told.0.fetch_or(bit, Relaxed) & bit == 0 {
            H::warn(&text());
        }
    }
}
