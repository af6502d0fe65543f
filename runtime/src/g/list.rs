//! A list of goroutines: intrusive and FIFO, through `G::next` (Go's `gQueue`).
//!
//! A G is in at most one list at a time, so that neither queueing nor moving allocates. The list has no lock of its own: the
//! lists of goroutines that wait for a stack, of the blockers (`sched/threads/blockers.rs`) and of those that the ender has set
//! aside are under the central lock; a list of goroutines that a thread has found in the poller, among the timers or in a wait
//! queue, and queues next, is on that thread's stack.

use crate::g::GRef;
use crate::host::Host;

/// A FIFO list of goroutines. `&mut` is the right to write it.
pub(crate) struct GList<H: Host> {
    head: Option<GRef<H>>,
    tail: Option<GRef<H>>,
    len: usize,
}

impl<H: Host> GList<H> {
    pub(crate) const fn new() -> Self {
        GList { head: None, tail: None, len: 0 }
    }

    pub(crate) fn one(g: GRef<H>) -> Self {
        let mut list = Self::new();
        list.push(g);
        list
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the G that has waited longest.
    pub(crate) fn first(&self) -> Option<GRef<H>> {
        self.head
    }

    /// Returns the G that came last.
    pub(crate) fn last(&self) -> Option<GRef<H>> {
        self.tail
    }

    /// Appends a G that stands in no list.
    pub(crate) fn push(&mut self, g: GRef<H>) {
        g.set_next(None);
        match self.tail {
            Some(tail) => tail.set_next(Some(g)),
            None => self.head = Some(g),
        }
        self.tail = Some(g);
        self.len += 1;
    }

    /// Takes the G that has waited longest.
    pub(crate) fn pop(&mut self) -> Option<GRef<H>> {
        let g = self.head?;
        self.head = g.next();
        if self.head.is_none() {
            self.tail = None;
        }
        self.len -= 1;
        Some(g)
    }

    /// Moves all of `other` behind what is here.
    pub(crate) fn append(&mut self, other: &mut Self) {
        match (self.tail, other.head) {
            (_, None) => return,
            (Some(tail), head) => tail.set_next(head),
            (None, head) => self.head = head,
        }
        self.tail = other.tail;
        self.len += other.len;
        *other = Self::new();
    }
}

impl<H: Host> std::fmt::Debug for GList<H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} goroutines", self.len)
    }
}
