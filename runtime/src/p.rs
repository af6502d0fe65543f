//! P, the right to run goroutines: a token, and all that whoever holds it may touch without a lock.
//!
//! ```text
//!                 acquirep                      (the M parks its goroutine and takes the next: no change)
//!      ┌──────┐ ────────────▶ ┌──────┐
//!      │ idle │               │ held │ ◀── an M that waits for it, or is being started, finds it in its gift
//!      └──────┘ ◀──────────── └──────┘
//!                 releasep        │ the M does not come back to the runtime: a retaker takes it (`handoff.rs`)
//!                                 └──────▶ handed to another M, or idle
//! ```
//!
//! Invariants:
//! 1. A P is in the idle list, or held by one M, or on its way to one inside a `Gift`.
//! 2. An idle P has an empty run queue. It may have timers: whoever waits in the poller waits for those too.
//! 3. The methods and fields marked *owner* are for the M that holds the P, between entering the runtime and
//!    leaving it (`m.rs`). loom checks it: each touches the ghost.

use crate::gpool::FreeGs;
use crate::handoff::HandoffWord;
use crate::host::Host;
use crate::prim::{AtomicU64, Ghost, Relaxed, capacity};
use crate::runq::Runq;
use crate::sched::timers::Timers;
use std::cell::Cell;

/// Numbers of goroutines that a P draws at a time. Go's number.
const ID_BATCH: u32 = 16;

/// The right to run goroutines.
pub(crate) struct P<H: Host> {
    pub(crate) id: u32,
    pub(crate) handoff: HandoffWord,
    pub(crate) runq: Runq<H>,
    pub(crate) timers: Timers<H>,
    /// Written by each owner on each of its operations: exactly one owner at a time.
    pub(crate) owner: Ghost,
    /// Owner: Gs without a goroutine.
    pub(crate) free_gs: FreeGs<H>,
    /// Owner: the next number of a goroutine, and how many are left of the last batch.
    ids: Cell<(u64, u32)>,
    /// Owner: how many goroutines were run.
    tick: Cell<u32>,
    /// Owner: how many of them, in a row, came from `runnext`.
    inherited: Cell<u32>,
}

// SAFETY: the cells belong to the owner (invariant 3); the rest is Sync by itself.
unsafe impl<H: Host> Send for P<H> {}
// SAFETY: as above.
unsafe impl<H: Host> Sync for P<H> {}

impl<H: Host> P<H> {
    pub(crate) fn new(id: u32) -> Self {
        P {
            id,
            handoff: HandoffWord::new(),
            runq: Runq::new(),
            timers: Timers::new(),
            owner: Ghost::new(),
            free_gs: FreeGs::new(),
            ids: Cell::new((0, 0)),
            tick: Cell::new(0),
            inherited: Cell::new(0),
        }
    }

    /// Owner: a number for a new goroutine, from a batch of the runtime's (Go's `goidcache`).
    #[inline]
    pub(crate) fn next_id(&self, source: &AtomicU64) -> u64 {
        let (next, left) = match self.ids.get() {
            // Relaxed: a number, ordered by nothing.
            (_, 0) => (source.fetch_add(u64::from(ID_BATCH), Relaxed), ID_BATCH),
            some => some,
        };
        self.ids.set((next + 1, left - 1));
        next
    }

    /// Owner: counts the goroutines that are run (Go's `schedtick`).
    #[inline]
    pub(crate) fn next_tick(&self) -> u32 {
        self.owner.touch();
        let tick = self.tick.get().wrapping_add(1);
        self.tick.set(tick);
        tick
    }

    /// Owner: a goroutine from `runnext` is to be run within the slice of the last one. False: the slice has ended
    /// ([`capacity::SLICE`]), and a new one begins with whoever is first in the queue.
    #[inline]
    pub(crate) fn inherit_slice(&self) -> bool {
        let inherited = self.inherited.get() + 1;
        let goes_on = inherited < capacity::SLICE;
        self.inherited.set(if goes_on { inherited } else { 0 });
        goes_on
    }

    /// Owner: a goroutine from anywhere else is to be run.
    #[inline]
    pub(crate) fn begin_slice(&self) {
        self.inherited.set(0);
    }
}

impl<H: Host> std::fmt::Debug for P<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "P{}", self.id)
    }
}
