//! The queues of the classes other than `Normal`: under the scheduler's lock, in the global queue. Each is first in, first out.
//!
//! `GlobalQueue::push` is the one way into the global queue, and decides by the goroutine's class: so a submitter that
//! queues a goroutine there, for whatever reason, need not know of classes.

use crate::g::GRef;
use crate::host::Host;
use crate::prim::SingleWriterByte;
use crate::runtime::priority::Priority;
use std::collections::VecDeque;

/// The classes other than `Normal`, the highest first.
pub(crate) const CLASSES: [Priority; 3] = [Priority::High, Priority::Low, Priority::Background];

/// An empty queue keeps memory for at most this many goroutines.
const KEPT: usize = 1 << 12;

/// Under the scheduler's lock.
pub(crate) struct ClassQueues<H: Host> {
    /// A class other than `Normal` was given to a goroutine of this runtime. Never taken back.
    in_use: bool,
    /// In the order of `CLASSES`.
    queues: [VecDeque<GRef<H>>; 3],
}

/// Where a class stands in `CLASSES`; `Normal` does not.
pub(crate) fn at(class: Priority) -> Option<usize> {
    CLASSES.iter().position(|&it| it == class)
}

impl<H: Host> ClassQueues<H> {
    pub(crate) fn new() -> Self {
        ClassQueues { in_use: false, queues: Default::default() }
    }

    #[inline]
    pub(crate) fn are_in_use(&self) -> bool {
        self.in_use
    }

    pub(crate) fn begin(&mut self) {
        self.in_use = true;
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.in_use || self.queues.iter().all(VecDeque::is_empty)
    }

    /// How many of this class there are; none of `Normal`.
    pub(crate) fn len(&self, class: Priority) -> usize {
        at(class).map_or(0, |at| self.queues[at].len())
    }

    /// How many there are.
    pub(crate) fn total(&self) -> usize {
        self.queues.iter().map(VecDeque::len).sum()
    }

    /// Appends `g`, which stands in no queue. Returns `false` if `g` is `Normal`.
    #[cold]
    pub(crate) fn push(&mut self, g: GRef<H>) -> bool {
        let Some(at) = at(g.class()) else { return false };
        g.place.touch();
        self.queues[at].push_back(g);
        true
    }

    /// Those that were taken out in this order go back to where they were.
    pub(crate) fn put_back(&mut self, class: Priority, gs: impl Iterator<Item = GRef<H>>) {
        let Some(at) = at(class) else { unreachable!("put_back: a batch of {class}") };
        let before = self.queues[at].len();
        self.queues[at].extend(gs.inspect(|g| g.place.touch()));
        let came = self.queues[at].len() - before;
        self.queues[at].rotate_right(came);
    }

    /// Takes the oldest of this class.
    pub(crate) fn pop(&mut self, class: Priority) -> Option<GRef<H>> {
        let queue = &mut self.queues[at(class)?];
        let g = queue.pop_front()?;
        g.place.touch();
        if queue.is_empty() && queue.capacity() > KEPT {
            *queue = VecDeque::new();
        }
        Some(g)
    }

    /// Takes the oldest of the highest class.
    pub(crate) fn pop_any(&mut self) -> Option<GRef<H>> {
        CLASSES.into_iter().find_map(|class| self.pop(class))
    }

    /// Asks for each G whether it stays.
    pub(crate) fn retain(&mut self, mut stays: impl FnMut(GRef<H>) -> bool) {
        for queue in &mut self.queues {
            queue.retain(|&g| {
                g.place.touch();
                stays(g)
            });
        }
    }

    fn waiting(&self) -> u8 {
        CLASSES.into_iter().filter(|&class| self.len(class) > 0).map(bit).sum()
    }
}

fn bit(class: Priority) -> u8 {
    1 << class.code()
}

/// Of which classes goroutines stand in the queues of the classes, for readers without the lock: as at the last `publish`.
pub(crate) struct WaitingClasses(SingleWriterByte);

impl WaitingClasses {
    pub(crate) fn new() -> Self {
        WaitingClasses(SingleWriterByte::new(0))
    }

    /// Under the lock. Returns `true` if there is any.
    pub(crate) fn publish<H: Host>(&self, queues: &ClassQueues<H>) -> bool {
        let waiting = queues.waiting();
        if self.0.get() != waiting {
            self.0.set(waiting);
        }
        waiting != 0
    }

    /// Exact under the lock, else a hint.
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

    /// As `has`, for those that are not to wait until nothing else runs.
    pub(crate) fn any_above_background(&self) -> bool {
        self.0.get() & !bit(Priority::Background) != 0
    }
}
