//! A table of words that needs no lock: sets of eight places each.
//!
//! A word is whole: it has its key and its value, so a reader needs no order. The caller chooses the set by the key. In a table
//! with one place for each key, two keys that the same looks use would push each other out at each look, in about one program
//! of ten. A word that finds its set full takes the place of another one, of a different one each time.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};

pub(super) const WAYS: usize = 8;

/// The words of one set, in one line of the cache. 0: the place is free.
#[repr(align(64))]
struct Set([AtomicU64; WAYS]);

/// `SETS` is a power of two.
pub(super) struct Sets<const SETS: usize> {
    sets: [Set; SETS],
    /// The place whose turn it is to be replaced, in any set that is full.
    next_out: AtomicUsize,
}

impl<const SETS: usize> Sets<SETS> {
    /// The number of bits in the number of a set.
    pub(super) const BITS: u32 = {
        assert!(SETS.is_power_of_two());
        SETS.trailing_zeros()
    };

    pub(super) const fn new() -> Self {
        let sets = [const { Set([const { AtomicU64::new(0) }; WAYS]) }; SETS];
        Sets { sets, next_out: AtomicUsize::new(0) }
    }

    /// Returns the number of a set that depends on all bits of `key`.
    #[inline]
    pub(super) fn hash(key: u64) -> u64 {
        // By the golden ratio's bits, the highest ones of the product depend on all others.
        key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (u64::BITS - Self::BITS)
    }

    /// Returns the word of the set for which `is_it` returns `true`, if there is one. `is_it` gets free places, too.
    #[inline]
    pub(super) fn find(&self, set: u64, is_it: impl Fn(u64) -> bool) -> Option<u64> {
        // Relaxed: a word is whole.
        self.sets[set as usize].0.iter().map(|place| place.load(Relaxed)).find(|&word| is_it(word))
    }

    /// Keeps a word, which is not 0, in its set.
    pub(super) fn keep(&self, set: u64, word: u64) {
        let places = &self.sets[set as usize].0;
        // Relaxed, all: a word is whole, and any place will do.
        let free = places.iter().find(|place| place.load(Relaxed) == 0);
        let place = free.unwrap_or_else(|| &places[self.next_out.fetch_add(1, Relaxed) % WAYS]);
        place.store(word, Relaxed);
    }
}
