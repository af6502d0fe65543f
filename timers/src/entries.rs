//! The array of the heap: entries in the order of a 4-ary min-heap.
//!
//! The children of entry i are 4i+1 ..= 4i+4. Four children lie in two cache lines and halve the depth of a binary heap. No
//! slot knows where its entry is, so moving an entry writes to this array only.
//!
//! Invariants: no entry is less than its parent; numbers are unique, so the order is total without the slot.
//!
//! Rejected: 32-bit sequence numbers, which make an entry 16 bytes instead of 24 and a pop a little faster. They run
//! out, and then all timers would have to be sorted and numbered anew under the caller's lock.
//!
//! Memory: below an eighth of its capacity the array shrinks to twice its length. An eighth, because the dead entries that the
//! heap tolerates double the length and growth doubles it once more: at a quarter, each compaction would shrink the array, and
//! it would grow again before the next one.

use crate::Nanos;
use alloc::vec::Vec;

/// Capacity that is kept: 3 KiB.
const MIN_CAPACITY: usize = 128;

/// Stands for a timer, or for a timer that is gone: see the table of the crate.
#[derive(Copy, Clone)]
pub(crate) struct Entry {
    pub due: Nanos,
    /// Taken anew for each entry; orders those with equal due times.
    pub seq: u64,
    pub slot: u32,
}

impl Entry {
    /// Returns due time and number as one number, so that two entries are compared without a branch: no predictor can guess
    /// which of four children is least. A tuple (due, seq) makes a pop slower.
    fn key(&self) -> u128 {
        u128::from(self.due.as_nanos()) << 64 | u128::from(self.seq)
    }
}

pub(crate) struct Entries {
    heap: Vec<Entry>,
}

impl Entries {
    pub const fn new() -> Entries {
        Entries { heap: Vec::new() }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// The least entry.
    #[inline]
    pub fn root(&self) -> Option<Entry> {
        self.heap.first().copied()
    }

    #[inline]
    pub fn push(&mut self, entry: Entry) {
        self.heap.push(entry);
        self.sift_up(self.heap.len() - 1, entry);
    }

    /// Fills the hole at `at` with `entry`, after moving down the parents that are greater.
    #[inline(always)]
    fn sift_up(&mut self, mut at: usize, entry: Entry) {
        while at > 0 {
            let parent = (at - 1) / 4;
            if self.heap[parent].key() <= entry.key() {
                break;
            }
            self.heap[at] = self.heap[parent];
            at = parent;
        }
        self.heap[at] = entry;
    }

    /// Removes the root. The hole goes down to the bottom along the least children, and the last entry comes up from there: it
    /// is later than most, so a comparison with it at each level on the way down would mostly be wasted.
    pub fn pop_root(&mut self) {
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            let mut at = 0;
            while let Some(child) = self.least_child(at) {
                self.heap[at] = self.heap[child];
                at = child;
            }
            self.sift_up(at, last);
        }
        self.shrink();
    }

    /// Puts `entry` in the place of the root, which must exist.
    pub fn replace_root(&mut self, entry: Entry) {
        self.sift_down(0, entry);
    }

    /// Removes the entry `seq` if it is the last of the array, where the removal costs nothing.
    #[inline]
    pub fn pop_if_last(&mut self, seq: u64) {
        if self.heap.pop_if(|last| last.seq == seq).is_some() {
            self.shrink();
        }
    }

    /// Keeps the entries for which `keep` returns `true`; `keep` may change them. O(n).
    pub fn retain(&mut self, keep: impl FnMut(&mut Entry) -> bool) {
        self.heap.retain_mut(keep);
        // Entries past the first quarter have no children.
        for at in (0..self.heap.len().div_ceil(4)).rev() {
            self.sift_down(at, self.heap[at]);
        }
        self.shrink();
    }

    #[inline]
    pub fn clear(&mut self) {
        self.heap.clear();
        self.shrink();
    }

    /// Fills the hole at `at` with `entry`, after moving up the children that are less.
    fn sift_down(&mut self, mut at: usize, entry: Entry) {
        while let Some(child) = self.least_child(at)
            && self.heap[child].key() < entry.key()
        {
            self.heap[at] = self.heap[child];
            at = child;
        }
        self.heap[at] = entry;
    }

    /// Returns the least child of `parent`. Four children are a case of their own: a fold over a range of unknown length is
    /// slower.
    #[inline(always)]
    fn least_child(&self, parent: usize) -> Option<usize> {
        let first = 4 * parent + 1;
        let children = self.heap.get(first..)?;
        if let Some([a, b, c, d]) = children.first_chunk() {
            let ab = if b.key() < a.key() { (b.key(), 1) } else { (a.key(), 0) };
            let cd = if d.key() < c.key() { (d.key(), 3) } else { (c.key(), 2) };
            return Some(first + if cd.0 < ab.0 { cd.1 } else { ab.1 });
        }
        (first..self.heap.len()).min_by_key(|&child| self.heap[child].key())
    }

    #[inline]
    fn shrink(&mut self) {
        if self.heap.capacity() > MIN_CAPACITY && self.heap.len() < self.heap.capacity() / 8 {
            self.shrink_now();
        }
    }

    #[cold]
    fn shrink_now(&mut self) {
        self.heap.shrink_to(MIN_CAPACITY.max(2 * self.heap.len()));
    }

    #[cfg(test)]
    pub fn capacity(&self) -> usize {
        self.heap.capacity()
    }

    /// Asserts the order of the heap.
    #[cfg(test)]
    pub fn check(&self) {
        for at in 1..self.heap.len() {
            assert!(
                self.heap[(at - 1) / 4].key() < self.heap[at].key(),
                "entry {at} is less than its parent"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(due: u64, seq: u64) -> Entry {
        Entry { due: Nanos::from_nanos(due), seq, slot: 0 }
    }

    /// Fails by an entry that comes out before a lesser one: some length has a node whose last children are
    /// overlooked, in a sift or in the rebuild after `retain`.
    #[test]
    fn every_length_comes_out_in_order() {
        for len in 0..200u64 {
            let mut entries = Entries::new();
            for seq in 0..len {
                entries.push(entry(seq * 7919 % 64, seq));
            }
            entries.check();
            entries.retain(|entry| {
                entry.due = Nanos::from_nanos(63 - entry.due.as_nanos());
                entry.seq % 3 != 0
            });
            entries.check();
            let mut last = 0;
            let mut popped = 0;
            while let Some(root) = entries.root() {
                assert!(root.key() > last || popped == 0);
                last = root.key();
                popped += 1;
                entries.pop_root();
                entries.check();
            }
            assert_eq!(popped, len - len.div_ceil(3));
        }
    }

    /// Fails by a capacity that stays at the height of the burst, or that is given back to the last byte
    /// (each later push would allocate).
    #[test]
    fn the_array_shrinks_with_its_length() {
        let mut entries = Entries::new();
        for seq in 0..100_000 {
            entries.push(entry(seq, seq));
        }
        while entries.len() > 0 {
            entries.pop_root();
            assert!(entries.capacity() <= MIN_CAPACITY.max(8 * (entries.len() + 1)));
        }
        assert_eq!(entries.capacity(), MIN_CAPACITY);
    }
}
