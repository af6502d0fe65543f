//! The door to private parts for the benches. Present under the cfg `gmp_bench` only.
//!
//! Each type here is a thin cover of the shipped one of the same name.

use crate::g::{G, GRef};
use crate::host::Active;
use crate::p::runq::{Runq as Queue, StealNext};
use crate::runtime::policy::{Policy, Steal};
use std::marker::PhantomData;

pub use crate::host::native::bench::Switch;

/// How often in this runtime the lock of the global queue was taken, a P's queue was robbed, and an M was woken by an M.
#[cfg(gmp_policies)]
pub fn counters(runtime: &crate::Runtime) -> [u64; 3] {
    runtime.counters()
}

/// How often threads of this process called the futex to sleep in a runtime, or to wake one that does.
#[cfg(gmp_policies)]
pub fn futex_calls() -> u64 {
    crate::host::native::bench::futex_calls()
}

/// Gs that only stand in queues.
pub struct Gs(Box<[G<Active>]>);

/// One of them.
#[derive(Copy, Clone)]
pub struct One<'a>(GRef<Active>, PhantomData<&'a Gs>);

impl Gs {
    /// So many.
    pub fn new(count: usize) -> Self {
        Gs((0..count).map(|_| G::new()).collect())
    }
    /// Each of them once.
    pub fn iter(&self) -> impl Iterator<Item = One<'_>> {
        self.0.iter().map(|g| One(GRef::new(g), PhantomData))
    }
}

/// `p/runq.rs`. The thread that has it is the owner.
pub struct Runq<'a>(Queue<Active>, PhantomData<&'a Gs>);

impl Default for Runq<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl<'a> Runq<'a> {
    /// Empty.
    pub fn new() -> Self {
        Runq(Queue::new(Policy::default()), PhantomData)
    }
    /// # Panics
    /// When the ring is full.
    pub fn push(&self, g: One<'a>) {
        assert!(self.0.push(g.0).is_none(), "push: the ring is full");
    }
    /// # Panics
    /// When the ring has no room for the one that was next.
    pub fn push_next(&self, g: One<'a>) {
        assert!(self.0.push_next(g.0, || ()).is_none(), "push_next: the ring is full");
    }
    /// From the ring.
    pub fn pop(&self) -> Option<One<'a>> {
        self.0.pop().map(|g| One(g, PhantomData))
    }
    /// Runnext.
    pub fn pop_next(&self) -> Option<One<'a>> {
        self.0.pop_next().map(|g| One(g, PhantomData))
    }
    /// Half of the victim's ring.
    pub fn steal_from(&self, victim: &Self) -> Option<One<'a>> {
        self.0.steal_from(&victim.0, Steal::Half, StealNext::No).map(|g| One(g, PhantomData))
    }
}
