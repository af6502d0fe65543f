//! The covers of a P's queue.

use crate::g::list::GList;
use crate::g::{G, GRef};
use crate::host::Active;
use crate::p::runq::{Runq as Queue, StealNext};
use crate::prim::Arc;
use crate::runtime::policy::Steal;

/// Gs that are only queued, told apart by their numbers.
#[derive(Clone)]
pub struct Gs(Arc<[G<Active>]>);

impl Gs {
    /// Makes `count` Gs.
    pub fn new(count: usize) -> Self {
        Gs((0..count).map(|_| G::new()).collect())
    }
    fn put(&self, number: usize) -> GRef<Active> {
        let g = GRef::new(&self.0[number]);
        // An exclusive access, here and in `took`: loom fails the execution if the two are not ordered.
        g.set_next(None);
        g
    }
    fn took(&self, g: GRef<Active>) -> usize {
        g.set_next(None);
        self.0.iter().position(|it| GRef::new(it) == g).expect("took: one of these Gs")
    }
    fn all(&self, mut list: GList<Active>) -> Vec<usize> {
        std::iter::from_fn(|| list.pop()).map(|g| self.took(g)).collect()
    }
}

/// `runq.rs`. Only the model's owner of the queue calls the owner's functions.
pub struct Runq {
    queue: Queue<Active>,
    gs: Gs,
}

impl Runq {
    /// An empty queue, whose positions wrap after two Gs.
    pub fn new(gs: &Gs) -> Self {
        Runq { queue: Queue::starting_at(u32::MAX - 1), gs: gs.clone() }
    }
    /// By the owner. Returns the Gs that do not fit.
    #[must_use]
    pub fn push_next(&self, number: usize) -> Vec<usize> {
        self.spilt(self.queue.push_next(self.gs.put(number), || ()))
    }
    /// By the owner, which has room for all. The last of the numbers becomes the next.
    pub fn push_next_each(&self, numbers: &[usize]) {
        let mut list = GList::new();
        numbers.iter().for_each(|&number| list.push(self.gs.put(number)));
        self.queue.push_next_each(&mut list, || ());
    }
    /// By the owner. Returns the Gs that do not fit.
    #[must_use]
    pub fn push(&self, number: usize) -> Vec<usize> {
        self.spilt(self.queue.push(self.gs.put(number)))
    }
    fn spilt(&self, g: Option<GRef<Active>>) -> Vec<usize> {
        let mut out = Vec::new();
        if let Some(g) = g {
            self.queue.spill(g, |g| out.push(self.gs.took(g)));
        }
        out
    }
    /// By the owner. Returns the Gs that do not fit: the newer half of a full ring.
    #[must_use]
    pub fn push_keeping_older(&self, number: usize) -> Vec<usize> {
        let mut out = Vec::new();
        if let Some(g) = self.queue.push(self.gs.put(number)) {
            let _gone = self.queue.spill_newer(g, |g| out.push(self.gs.took(g)));
        }
        out
    }
    /// By the owner. Takes the whole ring, unless a thief is in it.
    #[must_use]
    pub fn take_all(&self) -> Vec<usize> {
        self.queue.take_all().into_iter().flatten().map(|g| self.gs.took(g)).collect()
    }
    /// By the owner. Returns the Gs that do not fit.
    #[must_use]
    pub fn push_batch(&self, numbers: &[usize]) -> Vec<usize> {
        let mut list = GList::new();
        numbers.iter().for_each(|&number| list.push(self.gs.put(number)));
        self.queue.push_batch(&mut list);
        self.gs.all(list)
    }
    /// Called by the owner: puts as many into the ring as there is room for, as the end of a round does, and returns the
    /// others.
    #[must_use]
    pub fn push_where_room_is(&self, numbers: &[usize]) -> Vec<usize> {
        let (come, stay) = numbers.split_at((self.queue.room() as usize).min(numbers.len()));
        self.queue.push_all(come.iter().map(|&number| self.gs.put(number)));
        stay.to_vec()
    }
    /// By the owner.
    pub fn pop_next(&self) -> Option<usize> {
        self.queue.pop_next().map(|g| self.gs.took(g))
    }
    /// By the owner.
    pub fn pop(&self) -> Option<usize> {
        self.queue.pop().map(|g| self.gs.took(g))
    }
    /// By the owner. Takes this one out of the ring.
    pub fn pick(&self, number: usize) -> Option<usize> {
        let wanted = GRef::new(&self.gs.0[number]);
        self.queue.pick(|g| g == wanted).map(|picked| self.gs.took(picked.g))
    }
    /// By any thread.
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
    /// By the owner of `self`. Takes `runnext`, too, when the victim's ring is empty.
    pub fn steal_from(&self, victim: &Self) -> Option<usize> {
        self.steal(victim, Steal::Half)
    }
    /// As `steal_from`, of one goroutine at most.
    pub fn steal_one_from(&self, victim: &Self) -> Option<usize> {
        self.steal(victim, Steal::One)
    }
    fn steal(&self, victim: &Self, steal: Steal) -> Option<usize> {
        self.queue.steal_from(&victim.queue, steal, StealNext::IfLeft(&|| 0)).map(|g| self.gs.took(g))
    }
    /// By any thread.
    pub fn drain(&self) -> Vec<usize> {
        let mut out = Vec::new();
        self.queue.drain(|g| out.push(self.gs.took(g)));
        out
    }
}
