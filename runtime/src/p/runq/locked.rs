//! A queue under a lock instead of the ring, for the bench of policies. Present only under the cfg `gmp_policies`.
//!
//! The queue has no bound, so it never overflows. `runnext` works as beside the ring. The store that queues a G is under the
//! lock, whose release is no fence: so `fence` follows (SubmitFence, `sched/run/wake.rs`).

use super::Runq;
use crate::g::GRef;
use crate::host::Host;
use crate::prim::{Mutex, Ordering, Rank, fence};
use crate::runtime::policy::Steal;
use std::collections::VecDeque;

/// Under the lock: the Gs, and how many were taken so far.
struct Queue<H: Host> {
    gs: VecDeque<GRef<H>>,
    head: u32,
}

impl<H: Host> Queue<H> {
    fn take(&mut self, count: usize) -> Vec<GRef<H>> {
        self.head = self.head.wrapping_add(count as u32);
        self.gs.drain(..count).collect()
    }
}

pub(super) struct Locked<H: Host>(Mutex<Queue<H>>);

impl<H: Host> Locked<H> {
    pub(super) fn new() -> Self {
        Locked(Mutex::new(Rank::LockedQueue, Queue { gs: VecDeque::new(), head: 0 }))
    }

    pub(super) fn len(&self) -> u32 {
        self.0.lock().gs.len() as u32
    }

    pub(super) fn ends(&self) -> (u32, u32) {
        let queue = self.0.lock();
        (queue.head, queue.head.wrapping_add(queue.gs.len() as u32))
    }

    pub(super) fn push(&self, g: GRef<H>) {
        self.0.lock().gs.push_back(g);
        self.fence();
    }

    pub(super) fn fence(&self) {
        // SeqCst: as in `wakep`, with the same partners.
        fence(Ordering::SeqCst);
    }

    pub(super) fn push_from(&self, mut next: impl FnMut() -> Option<GRef<H>>) {
        self.0.lock().gs.extend(std::iter::from_fn(&mut next));
    }

    pub(super) fn pop(&self) -> Option<GRef<H>> {
        let mut queue = self.0.lock();
        let first = queue.gs.pop_front()?;
        queue.head = queue.head.wrapping_add(1);
        Some(first)
    }

    pub(super) fn pick(&self, is_it: impl Fn(GRef<H>) -> bool) -> Option<GRef<H>> {
        let mut queue = self.0.lock();
        let at = queue.gs.iter().position(|&g| is_it(g))?;
        queue.head = queue.head.wrapping_add(1);
        queue.gs.remove(at)
    }

    pub(super) fn take_all(&self) -> Vec<GRef<H>> {
        let mut queue = self.0.lock();
        let all = queue.gs.len();
        queue.take(all)
    }

    /// As `Runq::is_empty`; `next_is_null` looks at `runnext`.
    pub(super) fn is_empty(&self, next_is_null: impl FnOnce() -> bool) -> bool {
        let before = self.ends();
        // A G that went from `runnext` to the queue since the first look shows in the second.
        before.0 == before.1 && next_is_null() && self.ends() == before
    }

    /// By the owner of `self`: takes Gs from `victim`, and returns the oldest.
    pub(super) fn steal_from(&self, victim: &Self, steal: Steal) -> Option<GRef<H>> {
        let taken = {
            let mut queue = victim.0.lock();
            let waiting = queue.gs.len();
            let count = if steal == Steal::One { waiting.min(1) } else { waiting - waiting / 2 };
            queue.take(count)
        };
        let mut taken = taken.into_iter();
        let oldest = taken.next()?;
        self.0.lock().gs.extend(taken);
        Some(oldest)
    }
}

impl<H: Host> Runq<H> {
    /// Owner only. As `take_all` of the ring.
    pub(crate) fn take_all(&self) -> Option<Box<dyn Iterator<Item = GRef<H>> + '_>> {
        match &self.locked {
            Some(locked) => Some(Box::new(locked.take_all().into_iter())),
            None => Some(Box::new(self.take_ring()?)),
        }
    }
}
