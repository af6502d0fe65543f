//! The queues of the classes other than `Normal`, in the global queue, under the central lock. Each is first in, first out.
//!
//! Every goroutine enters the global queue by `GlobalQueue::push`, which chooses the queue by the goroutine's class, so a
//! submitter need not know of classes.

use crate::g::GRef;
use crate::host::Host;
use crate::prim::SingleWriterByte;
use crate::runtime::priority::Priority;
use crate::sched::run::gqueue::GQueue;

/// The classes other than `Normal`, the highest first.
pub(crate) const CLASSES: [Priority; 3] = [Priority::High, Priority::Low, Priority::Background];

/// An empty queue keeps memory for at most this many goroutines.
const KEPT: usize = 1 << 12;

/// Under the central lock.
pub(crate) struct ClassQueues<H: Host> {
    /// A goroutine of this runtime was given a class other than `Normal`. Never cleared.
    in_use: bool,
    /// In the order of `CLASSES`.
    queues: [GQueue<H, KEPT>; 3],
}

/// Returns the index of a class in `CLASSES`; `None` for `Normal`.
pub(crate) fn at(class: Priority) -> Option<usize> {
    CLASSES.iter().position(|&it| it == class)
}

impl<H: Host> ClassQueues<H> {
    pub(crate) fn new() -> Self {
        ClassQueues { in_use: false, queues: [const { GQueue::new() }; 3] }
    }

    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.in_use
    }

    pub(crate) fn begin(&mut self) {
        self.in_use = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.in_use || self.queues.iter().all(GQueue::is_empty)
    }

    /// Returns how many goroutines of this class there are; zero for `Normal`.
    pub(crate) fn len(&self, class: Priority) -> usize {
        at(class).map_or(0, |at| self.queues[at].len())
    }

    /// Returns how many goroutines there are in all.
    pub(crate) fn total(&self) -> usize {
        self.queues.iter().map(GQueue::len).sum()
    }

    /// Appends `g`, which stands in no queue. Returns `false` if `g` is `Normal`.
    #[cold]
    pub(crate) fn push(&mut self, g: GRef<H>) -> bool {
        let Some(at) = at(g.class()) else { return false };
        self.queues[at].push(g);
        true
    }

    /// Puts goroutines that were taken out in this order back to the front.
    pub(crate) fn put_back(&mut self, class: Priority, gs: impl Iterator<Item = GRef<H>>) {
        let Some(at) = at(class) else { unreachable!("put_back: a batch of {class}") };
        self.queues[at].put_back(gs);
    }

    /// Takes the oldest goroutine of this class.
    pub(crate) fn pop(&mut self, class: Priority) -> Option<GRef<H>> {
        self.queues[at(class)?].pop()
    }

    /// Takes the oldest goroutine of the highest class.
    pub(crate) fn pop_any(&mut self) -> Option<GRef<H>> {
        CLASSES.into_iter().find_map(|class| self.pop(class))
    }

    /// Keeps the Gs for which `stays` returns `true`.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(GRef<H>) -> bool) {
        for queue in &mut self.queues {
            queue.retain(&mut stays);
        }
    }

    fn waiting(&self) -> u8 {
        CLASSES.into_iter().filter(|&class| self.len(class) > 0).map(bit).sum()
    }
}

fn bit(class: Priority) -> u8 {
    1 << class.code()
}

/// The classes whose queues have goroutines, for readers without the lock: as at the last `publish`.
pub(crate) struct WaitingClasses(SingleWriterByte);

impl WaitingClasses {
    pub(crate) fn new() -> Self {
        WaitingClasses(SingleWriterByte::new(0))
    }

    /// Stores which classes have goroutines. Returns `true` if any has. Under the lock.
    pub(crate) fn publish<H: Host>(&self, queues: &ClassQueues<H>) -> bool {
        let waiting = queues.waiting();
        if self.0.get() != waiting {
            self.0.set(waiting);
        }
        waiting != 0
    }

    /// Returns `true` if this class has goroutines in its queue. Exact under the lock; otherwise a hint.
    #[inline]
    pub(crate) fn has(&self, class: Priority) -> bool {
        self.0.get() & bit(class) != 0
    }

    /// As `has`, for any class.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.get() != 0
    }

    /// As `has`, for this class or a higher one.
    pub(crate) fn any_from(&self, least: Priority) -> bool {
        CLASSES.into_iter().any(|class| class >= least && self.has(class))
    }

    /// As `has`, for any class above `Background`.
    pub(crate) fn any_above_background(&self) -> bool {
        self.0.get() & !bit(Priority::Background) != 0
    }
}
