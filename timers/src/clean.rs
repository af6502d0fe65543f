//! Cleaning: what happens to entries that are not true any more.
//!
//! C1 A stop or a move to an earlier time leaves a dead entry, a move to a later time an early one; no call searches for these.
//! C2 A call that changed the timer at the front corrects the front until the front is true, `CLEAN_BATCH` times at most. C3 A
//! call that leaves more dead entries than invariant 3 allows throws all of them away and rebuilds the array.
//!
//! Each call makes at most one entry dead or early, and each such entry is corrected once: in O(log n) at the front
//! or in O(1) by C3. So all of it is amortised.

use crate::entries::Entry;
use crate::{Heap, Nanos};
use core::num::NonZeroU32;

/// How many entries of stopped or moved timers one call of [`Heap::remove`], [`Heap::reset`] or [`Heap::pop_due`] cleans up at
/// most, besides the timers that are due.
pub const CLEAN_BATCH: usize = 16;

/// How many dead entries are always tolerated.
const MIN_DEAD: usize = 64;

/// Alone in its cache lines; with a value of up to 24 bytes that is one line.
#[repr(align(64))]
pub(crate) struct Timer<T> {
    pub due: Nanos,
    /// The number of the timer's last insert or reset: the order among equal due times.
    pub order: u64,
    /// Due time and number of the timer's entry; never behind (`due`, `order`).
    pub filed_due: Nanos,
    pub filed_seq: u64,
    pub generation: NonZeroU32,
    pub value: T,
}

impl<T> Timer<T> {
    /// Makes the true entry of this timer, which stands for the timer from now on.
    fn file_again(&mut self, slot: u32) -> Entry {
        (self.filed_due, self.filed_seq) = (self.due, self.order);
        Entry { due: self.due, seq: self.order, slot }
    }
}

/// What [`Heap::settle`] found at the front.
#[must_use]
#[derive(Eq, PartialEq)]
pub(crate) enum Front {
    /// The earliest timer.
    True,
    /// A dead or early entry, which has been corrected.
    Corrected,
}

impl<T> Heap<T> {
    /// The entry `seq` has lost its timer.
    pub(crate) fn unfile(&mut self, seq: u64) {
        // Hits for short-lived timers among long-lived ones: filed at the end, stopped at the end.
        self.entries.pop_if_last(seq);
        self.limit_dead();
        self.clean_behind(seq);
    }

    /// Restores invariants 3 and 4 after a timer or an entry was removed.
    pub(crate) fn limit_dead(&mut self) {
        let dead = self.entries.len() - self.len();
        if self.is_empty() {
            self.entries.clear();
        } else if dead > self.len().max(MIN_DEAD) {
            self.compact();
        }
    }

    /// The entry `seq` is no longer true: if that was the front, others may follow.
    pub(crate) fn clean_behind(&mut self, seq: u64) {
        if self.entries.root().is_some_and(|root| root.seq == seq) {
            self.clean_up();
        }
    }

    /// C2.
    pub(crate) fn clean_up(&mut self) {
        for _ in 0..CLEAN_BATCH {
            let Some(root) = self.entries.root() else { return };
            if self.settle(root) == Front::True {
                return;
            }
        }
    }

    /// Throws a dead front away, and files an early front again.
    pub(crate) fn settle(&mut self, root: Entry) -> Front {
        match self.timers.get_mut(root.slot).filter(|timer| timer.filed_seq == root.seq) {
            None => self.entries.pop_root(),
            Some(timer) if timer.order == root.seq => return Front::True,
            Some(timer) => self.entries.replace_root(timer.file_again(root.slot)),
        }
        Front::Corrected
    }

    /// Throws all dead entries away and files all early ones again. O(n).
    fn compact(&mut self) {
        self.entries.retain(|entry| {
            match self.timers.get_mut(entry.slot).filter(|timer| timer.filed_seq == entry.seq) {
                None => false,
                Some(timer) => {
                    *entry = timer.file_again(entry.slot);
                    true
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Handle;
    use alloc::vec::Vec;

    fn at(nanos: u64) -> Nanos {
        Nanos::from_nanos(nanos)
    }

    fn check<T>(heap: &Heap<T>) {
        heap.entries.check();
        heap.timers.check();
        let dead = heap.entries.len() - heap.len();
        assert!(dead <= heap.len().max(MIN_DEAD), "{heap:?}");
        assert!(!heap.is_empty() || dead == 0, "{heap:?}");
    }

    fn count_early<T>(heap: &mut Heap<T>) -> usize {
        let is_early = |slot: &u32| heap.timers.get_mut(*slot).is_some_and(|t| t.order != t.filed_seq);
        (0..1_000).filter(is_early).count()
    }

    /// Fails by dead entries that pile up: a stop, a move to earlier or a firing that does not look at their number.
    #[test]
    fn dead_entries_never_outnumber_the_timers() {
        let mut heap = Heap::new();
        let handles: Vec<Handle> = (0..5_000).map(|due| heap.insert(at(10_000 + due), due)).collect();
        for pair in handles.chunks(2) {
            heap.remove(pair[1]);
            check(&heap);
        }
        for round in 1..5 {
            for pair in handles.chunks(2) {
                assert!(heap.reset(pair[0], at(10_000 - round)));
                check(&heap);
            }
        }
        while heap.pop_due(Nanos::MAX).is_some() {
            check(&heap);
        }
        assert_eq!(heap.entries.len(), 0);
    }

    /// Fails by dead entries that stay when the timers before them fire: popping shrinks one side of the bound.
    #[test]
    fn firing_keeps_the_bound_on_dead_entries() {
        let mut heap = Heap::new();
        let soon: Vec<Handle> = (0..1_000).map(|due| heap.insert(at(due), due)).collect();
        let late: Vec<Handle> = (0..900).map(|due| heap.insert(at(5_000 + due), due)).collect();
        heap.insert(at(9_000), 0);
        late.iter().for_each(|&handle| assert!(heap.remove(handle).is_some()));
        assert_eq!(heap.entries.len(), 1_901);
        for _ in soon {
            assert!(heap.pop_due(at(1_000)).is_some());
            check(&heap);
        }
        assert_eq!(heap.next_due(), Some(at(9_000)));
    }

    /// Fails by one call that files all early entries anew, with the owner's lock held for as long as that takes.
    #[test]
    fn a_stop_or_move_cleans_a_bounded_number_of_entries() {
        let mut heap = Heap::new();
        let handles: Vec<Handle> = (0..1_000).map(|due| heap.insert(at(due), ())).collect();
        for (&handle, due) in handles[1..].iter().zip(2_000..) {
            heap.reset(handle, at(due));
        }
        assert_eq!(count_early(&mut heap), 999);
        heap.remove(handles[0]);
        assert_eq!(count_early(&mut heap), 999 - (CLEAN_BATCH - 1));
        assert_eq!(heap.next_due(), Some(at(CLEAN_BATCH as u64)));
        assert_eq!(heap.pop_due(at(500)), None);
        assert_eq!(count_early(&mut heap), 499);
        assert_eq!(heap.pop_due(at(1_999)), None);
        assert_eq!(count_early(&mut heap), 0);
        assert_eq!(heap.next_due(), Some(at(2_000)));
        check(&heap);
    }

    /// Fails by a dead entry that is taken for an early entry of the timer that has the slot now: that timer would have
    /// two entries.
    #[test]
    fn a_dead_entry_goes_although_its_slot_is_used_again() {
        let mut heap = Heap::new();
        let [_, stopped, _] = [1, 5, 100].map(|due| heap.insert(at(due), due));
        heap.remove(stopped);
        heap.insert(at(50), 50);
        assert_eq!((heap.timers.len(), heap.entries.len()), (3, 4));
        assert_eq!(heap.pop_due(at(1)), Some((at(1), 1)));
        assert_eq!((heap.timers.len(), heap.entries.len()), (2, 2));
        assert_eq!(heap.next_due(), Some(at(50)));
    }

    /// Fails by a dead entry for each timeout that was not needed, and so by a compaction for every few of them.
    #[test]
    fn a_late_timer_that_is_stopped_at_once_leaves_no_entry() {
        let mut heap = Heap::new();
        heap.insert(at(1), ());
        let handle = heap.insert(at(100), ());
        assert_eq!((heap.remove(handle), heap.entries.len()), (Some(()), 1));
    }

    /// Fails by early entries that outlast a rebuild of the array, each of them to be filed again on its own.
    #[test]
    fn a_compaction_makes_all_entries_true() {
        let mut heap = Heap::new();
        let handles: Vec<Handle> = (0..200).map(|due| heap.insert(at(due), ())).collect();
        handles[1..50].iter().for_each(|&handle| assert!(heap.reset(handle, at(500))));
        assert_eq!(count_early(&mut heap), 49);
        handles[60..161].iter().for_each(|&handle| assert!(heap.remove(handle).is_some()));
        assert_eq!((heap.len(), heap.entries.len(), count_early(&mut heap)), (99, 99, 0));
        check(&heap);
    }

    /// Fails by entries, blocks or directory that stay at the height of a burst; one timer outlives it.
    #[test]
    fn memory_falls_back_after_a_burst() {
        for fire in [true, false] {
            let mut heap = Heap::new();
            let burst: Vec<Handle> = (0..100_000).map(|due| heap.insert(at(due), ())).collect();
            let last = heap.insert(Nanos::MAX, ());
            if fire {
                while heap.pop_due(at(100_000)).is_some() {}
            } else {
                burst.into_iter().for_each(|handle| assert!(heap.remove(handle).is_some()));
            }
            check(&heap);
            assert_eq!(heap.len(), 1);
            assert!(heap.entries.capacity() <= 8 * (MIN_DEAD + 1), "{}", heap.entries.capacity());
            assert_eq!(heap.timers.blocks(), 2);
            heap.remove(last);
            assert!(heap.entries.capacity() <= 128, "{}", heap.entries.capacity());
            assert_eq!((heap.timers.blocks(), heap.timers.directory()), (1, 0));
        }
    }

    /// Fails by an array that grows and shrinks by turns, or by blocks that come and go, while the number of
    /// timers stays the same.
    #[test]
    fn the_steady_state_allocates_nothing() {
        for n in [0usize, 1, 31, 63, 64, 127, 1_000, 4_096] {
            let mut heap = Heap::new();
            let mut window: Vec<Handle> = (0..n as u64).map(|due| heap.insert(at(due), ())).collect();
            let mut sizes = Vec::new();
            for step in 0..10 * n.max(500) as u64 {
                let handle = heap.insert(at(100_000 + step), ());
                window.push(handle);
                // Oldest and newest by turns, so that dead entries come up as well.
                let stopped = if step % 4 == 0 { window.len() - 1 } else { 0 };
                heap.remove(window.swap_remove(stopped));
                if step >= 5 * n.max(500) as u64 {
                    sizes.push((heap.entries.capacity(), heap.timers.blocks()));
                }
            }
            sizes.dedup();
            assert_eq!(sizes.len(), 1, "{n} timers: {sizes:?}");
            check(&heap);
        }
    }
}
