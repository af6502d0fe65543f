//! The global run queue: goroutines that were not submitted on an M, and those that do not fit into a P's ring.
//!
//! The obvious queue is a list through the Gs. An M that moves a hundred goroutines between a ring and such a list misses the
//! cache a hundred times each way, which was half of the cost of a yield among a thousand goroutines. So this queue is an array
//! of pointers, and touches no G. The array grows: queueing a goroutine may allocate, as spawning one may.

use crate::g::GRef;
use crate::g::list::GList;
use crate::host::Host;
use crate::p::runq::Runq;
use crate::prim::{AtomicU64, Relaxed};
use std::collections::VecDeque;

/// An empty queue keeps memory for at most this many goroutines.
const KEPT: usize = 1 << 16;

/// How many goroutines stand in the queue, for readers without the lock: as many as at the last `publish`, which follows
/// each change of the queue in the same critical section.
pub(crate) struct GlobalLen(AtomicU64);

impl GlobalLen {
    pub(crate) fn new() -> Self {
        GlobalLen(AtomicU64::new(0))
    }

    /// Exact under the lock, else a hint.
    #[inline]
    pub(crate) fn read(&self) -> usize {
        // Relaxed: a hint; a decision is made by the queue itself, under the lock.
        self.0.load(Relaxed) as usize
    }

    /// Under the lock.
    #[inline]
    pub(crate) fn publish<H: Host>(&self, queue: &GlobalQueue<H>) {
        // Relaxed: as in `read`.
        self.0.store(queue.len() as u64, Relaxed);
    }
}

/// First in, first out. Under the scheduler's lock.
pub(crate) struct GlobalQueue<H: Host>(VecDeque<GRef<H>>);

impl<H: Host> GlobalQueue<H> {
    pub(crate) const fn new() -> Self {
        GlobalQueue(VecDeque::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Appends a G that stands in no queue.
    #[inline]
    pub(crate) fn push(&mut self, g: GRef<H>) {
        g.place.touch();
        self.0.push_back(g);
    }

    /// Appends all of a list.
    pub(crate) fn append(&mut self, list: &mut GList<H>) {
        while let Some(g) = list.pop() {
            self.push(g);
        }
    }

    /// Appends Gs that stand in no queue any more.
    pub(crate) fn extend(&mut self, gs: impl Iterator<Item = GRef<H>>) {
        self.0.extend(gs.map(Self::touched));
    }

    /// Moves the `count` goroutines that have waited longest to the ring of the caller's P, which has room for them.
    pub(crate) fn move_to(&mut self, ring: &Runq<H>, count: usize) {
        ring.push_all(self.0.drain(..count).map(Self::touched));
        self.shrink();
    }

    /// `g`, whose queue changes here.
    fn touched(g: GRef<H>) -> GRef<H> {
        g.place.touch();
        g
    }

    fn shrink(&mut self) {
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = VecDeque::new();
        }
    }

    /// Takes the G that has waited longest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<GRef<H>> {
        let first = self.0.pop_front()?;
        first.place.touch();
        self.shrink();
        Some(first)
    }
}
