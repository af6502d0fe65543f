//! Numbered slots in blocks of 64; the memory of an empty block is freed.
//!
//! A chunk is the place of a block in the directory. Values never move, so a slot's number is valid as long as the value stays.
//! One array of all slots would keep its length for one old timer at the end, and copy all values to grow.
//!
//! Invariants:
//! 1. Bit b of `used` is set if and only if slot b of the chunk holds a value.
//! 2. A chunk has a block if and only if it holds a value. One block without a chunk is kept in `spare`, so a heap whose number
//!    of timers swings around a multiple of 64 allocates nothing.
//! 3. A chunk is in the list that starts at `open` if and only if it has a free slot.
//!
//! Memory: one block for each chunk that holds a value, one spare. The directory (half a byte a slot) goes when
//! the slab is empty.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;

const CHUNK: u32 = u64::BITS;
/// Directories up to this length are kept: 2 KiB.
const MIN_CHUNKS: usize = 64;
/// How many chunks have all the numbers that a u32 can hold.
const MAX_CHUNKS: usize = 1 << (32 - CHUNK.trailing_zeros());
/// End of the list of open chunks.
const NONE: u32 = u32::MAX;

type Block<V> = Box<[Option<V>]>;

struct Chunk<V> {
    block: Block<V>,
    used: u64,
    next_open: u32,
}

pub(crate) struct Slab<V> {
    chunks: Vec<Chunk<V>>,
    open: u32,
    spare: Option<Block<V>>,
    len: usize,
}

impl<V> Slab<V> {
    pub const fn new() -> Slab<V> {
        Slab { chunks: Vec::new(), open: NONE, spare: None, len: 0 }
    }

    pub fn len(&self) -> usize {
        self.len
    }

    /// Panics when all 2^32 slots are taken.
    #[inline] // See `Heap::insert`.
    #[track_caller]
    pub fn insert(&mut self, value: V) -> u32 {
        if self.open == NONE {
            let chunks = self.chunks.len();
            assert!(chunks < MAX_CHUNKS, "Slab::insert: no free slot ({} timers)", self.len);
            self.open = chunks as u32;
            self.chunks.push(Chunk { block: Block::default(), used: 0, next_open: NONE });
        }
        let at = self.open;
        let chunk = &mut self.chunks[at as usize];
        if chunk.used == 0 {
            chunk.block = self.spare.take().unwrap_or_else(|| (0..CHUNK).map(|_| None).collect());
        }
        let bit = chunk.used.trailing_ones();
        chunk.block[bit as usize] = Some(value);
        chunk.used |= 1 << bit;
        if chunk.used == u64::MAX {
            self.open = chunk.next_open;
        }
        self.len += 1;
        at * CHUNK + bit
    }

    pub fn get_mut(&mut self, slot: u32) -> Option<&mut V> {
        let chunk = self.chunks.get_mut((slot / CHUNK) as usize)?;
        chunk.block.get_mut((slot % CHUNK) as usize)?.as_mut()
    }

    /// Empties the slot if `pred` returns `true`. Returns the part of the value that `part` takes, so that no more is copied.
    #[inline]
    pub fn remove_if<R>(
        &mut self,
        slot: u32,
        pred: impl FnOnce(&mut V) -> bool,
        part: impl FnOnce(V) -> R,
    ) -> Option<R> {
        let (at, bit) = (slot / CHUNK, slot % CHUNK);
        let chunk = self.chunks.get_mut(at as usize)?;
        let value = chunk.block.get_mut(bit as usize)?.take_if(pred).map(part)?;
        if chunk.used == u64::MAX {
            chunk.next_open = mem::replace(&mut self.open, at);
        }
        chunk.used &= !(1 << bit);
        self.len -= 1;
        if chunk.used == 0 {
            self.spare.get_or_insert(mem::take(&mut chunk.block));
            if self.len == 0 && self.chunks.len() > MIN_CHUNKS {
                self.chunks = Vec::new();
                self.open = NONE;
            }
        }
        Some(value)
    }

    /// Blocks that hold memory now, the spare included.
    #[cfg(test)]
    pub fn blocks(&self) -> usize {
        self.chunks.iter().filter(|chunk| !chunk.block.is_empty()).count() + usize::from(self.spare.is_some())
    }

    #[cfg(test)]
    pub fn directory(&self) -> usize {
        self.chunks.capacity()
    }

    /// Asserts the three invariants.
    #[cfg(test)]
    pub fn check(&self) {
        let mut open = alloc::vec![false; self.chunks.len()];
        let mut at = self.open;
        while at != NONE {
            assert!(!mem::replace(&mut open[at as usize], true), "chunk {at} is twice in the list");
            at = self.chunks[at as usize].next_open;
        }
        let mut len = 0;
        for (chunk, open) in self.chunks.iter().zip(open) {
            let used = |bit: u32| chunk.block.get(bit as usize).is_some_and(Option::is_some);
            assert_eq!(chunk.used, (0..CHUNK).map(|bit| u64::from(used(bit)) << bit).sum());
            assert_eq!(chunk.used == 0, chunk.block.is_empty());
            assert_eq!(chunk.used == u64::MAX, !open);
            len += chunk.used.count_ones() as usize;
        }
        assert_eq!(len, self.len);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails by a block that stays although the chunk is empty, or by all of them staying because one value, the last
    /// of the burst, is still there.
    #[test]
    fn one_old_value_keeps_one_block() {
        let mut slab = Slab::new();
        let slots: Vec<u32> = (0..10_000).map(|value| slab.insert(value)).collect();
        assert_eq!(slab.blocks(), 10_000usize.div_ceil(64));
        for &slot in &slots[..9_999] {
            assert!(slab.remove_if(slot, |_| true, |value| value).is_some());
        }
        slab.check();
        assert_eq!(slab.blocks(), 2);
        assert_eq!(slab.remove_if(slots[9_999], |_| true, |value| value), Some(9_999));
        slab.check();
        assert_eq!((slab.blocks(), slab.directory()), (1, 0));
        slab.insert(7);
        assert_eq!(slab.blocks(), 1);
    }

    /// Fails by a slot that is given out while holding a value, or by a slot that is lost when a full chunk gets room
    /// again.
    #[test]
    fn free_slots_are_used_before_new_ones() {
        let mut slab = Slab::new();
        for value in 0..640u32 {
            assert_eq!(slab.insert(value), value);
        }
        for slot in (0..640).filter(|slot| slot % 5 != 0) {
            assert_eq!(slab.remove_if(slot, |value| *value == slot, |value| value), Some(slot));
        }
        slab.check();
        for _ in 0..512 {
            let slot = slab.insert(1_000);
            assert!(slot < 640 && slot % 5 != 0);
        }
        slab.check();
        assert_eq!(slab.len(), 640);
        assert!((0..640).step_by(5).all(|slot| slab.get_mut(slot).is_some_and(|value| *value == slot)));
    }

    /// Fails by a value that leaves although the condition was false, or by a panic on a number never given out.
    #[test]
    fn a_refused_or_unknown_slot_changes_nothing() {
        let mut slab = Slab::new();
        let slot = slab.insert('a');
        assert_eq!(slab.remove_if(slot, |_| false, |value| value), None);
        assert_eq!(slab.remove_if(slot + 1, |_| true, |value| value), None);
        assert_eq!(slab.remove_if(u32::MAX, |_| true, |value| value), None);
        assert_eq!(slab.get_mut(slot + 64), None);
        assert_eq!(slab.get_mut(u32::MAX), None);
        assert_eq!(slab.get_mut(slot), Some(&mut 'a'));
        slab.check();
    }
}
