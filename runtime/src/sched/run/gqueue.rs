//! A queue of Gs in an array, of which the global queue, the mailboxes and the queues of the classes are made.
//!
//! The obvious queue is a list through the Gs. An M that moves a hundred goroutines between a ring and such a list misses the
//! cache a hundred times each way, which was half of the cost of a yield among a thousand goroutines. So this queue is an array
//! of pointers, and touches no G. The array grows: queueing a goroutine can allocate, as spawning one can.
//!
//! In a model each way in and out touches the G's place: so loom checks that no two lists have the G at once.

use crate::g::GRef;
use crate::host::Host;
use crate::p::runq::Runq;
use std::collections::VecDeque;

/// First in, first out, under the central lock. An empty queue keeps memory for at most `KEPT` Gs.
pub(crate) struct GQueue<H: Host, const KEPT: usize>(VecDeque<GRef<H>>);

/// Returns `g`, whose queue changes here.
fn touched<H: Host>(g: GRef<H>) -> GRef<H> {
    g.place.touch();
    g
}

impl<H: Host, const KEPT: usize> GQueue<H, KEPT> {
    pub(crate) const fn new() -> Self {
        GQueue(VecDeque::new())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Appends a G that stands in no queue.
    #[inline]
    pub(crate) fn push(&mut self, g: GRef<H>) {
        self.0.push_back(touched(g));
    }

    /// Appends Gs that no longer stand in a queue.
    pub(crate) fn extend(&mut self, gs: impl Iterator<Item = GRef<H>>) {
        self.0.extend(gs.map(touched));
    }

    /// Puts Gs that were taken out in this order back in front of all others.
    pub(crate) fn put_back(&mut self, gs: impl Iterator<Item = GRef<H>>) {
        let before = self.len();
        self.extend(gs);
        let came = self.len() - before;
        self.0.rotate_right(came);
    }

    /// Takes the G that has waited longest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<GRef<H>> {
        let first = self.0.pop_front()?;
        self.shrink();
        Some(touched(first))
    }

    /// Takes the G at an index below `len`. The last G moves to that index.
    pub(crate) fn swap_remove(&mut self, at: usize) -> Option<GRef<H>> {
        let g = self.0.swap_remove_back(at)?;
        self.shrink();
        Some(touched(g))
    }

    /// Takes the G for which `is_it` returns `true` out, if it stands among the first `most`.
    pub(crate) fn take_this(&mut self, most: usize, is_it: impl Fn(GRef<H>) -> bool) -> Option<GRef<H>> {
        let at = self.0.iter().take(most).position(|&g| is_it(g))?;
        self.0.remove(at).map(touched)
    }

    /// Takes all Gs, and leaves an empty queue.
    pub(crate) fn take_all(&mut self) -> Self {
        std::mem::replace(self, Self::new())
    }

    /// Keeps the Gs for which `stays` returns `true`. Asks in the order of the queue.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(GRef<H>) -> bool) {
        self.0.retain(|&g| stays(touched(g)));
        self.shrink();
    }

    /// Moves the `count` Gs that have waited longest to the ring of the caller's P, which has room for them.
    pub(crate) fn move_to(&mut self, ring: &Runq<H>, count: usize) {
        ring.push_all(self.0.drain(..count).map(touched));
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.0.is_empty() && self.0.capacity() > KEPT {
            self.0 = VecDeque::new();
        }
    }

    #[cfg(all(test, not(gmp_loom)))]
    pub(super) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

impl<H: Host, const KEPT: usize> IntoIterator for GQueue<H, KEPT> {
    type Item = GRef<H>;
    type IntoIter = std::iter::Map<std::collections::vec_deque::IntoIter<GRef<H>>, fn(GRef<H>) -> GRef<H>>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter().map(touched as fn(GRef<H>) -> GRef<H>)
    }
}
