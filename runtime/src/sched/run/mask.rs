//! A bit for each P (Go's `pMask`).

use crate::prim::{AtomicU64, Relaxed, capacity};

const BITS: u32 = u64::BITS;

/// A set of Ps, written under the central lock and read without a lock. Relaxed: each reader says what orders its reads.
#[derive(Debug)]
pub(crate) struct Mask(Box<[AtomicU64]>);

impl Mask {
    /// Returns a set of the first `count` Ps, with room for as many Ps as there can be.
    pub(crate) fn new(count: u32) -> Self {
        let words = (capacity::PROCS as u32).div_ceil(BITS);
        let mask = Mask((0..words).map(|_| AtomicU64::new(0)).collect());
        (0..count).for_each(|id| mask.set(id));
        mask
    }

    /// Returns `true` if the P is in the set.
    #[inline]
    pub(crate) fn has(&self, id: u32) -> bool {
        self.0[(id / BITS) as usize].load(Relaxed) & 1 << (id % BITS) != 0
    }

    /// Returns the members from the number `first` on. Reads a word at a time, because most words are empty.
    #[inline]
    pub(crate) fn members_from(&self, first: u32) -> impl Iterator<Item = u32> {
        (first / BITS..self.0.len() as u32).flat_map(move |word| {
            let below = if word == first / BITS { first % BITS } else { 0 };
            let mut bits = self.0[word as usize].load(Relaxed) & u64::MAX << below;
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(word * BITS + bit)
            })
        })
    }

    /// Returns a copy of the set as it is now.
    #[cfg(gmp_loom)]
    pub(crate) fn copy(&self) -> Mask {
        Mask(self.0.iter().map(|word| AtomicU64::new(word.load(Relaxed))).collect())
    }

    /// Under the central lock: a plain store is enough, because only the lock's holder writes.
    pub(crate) fn set(&self, id: u32) {
        let word = &self.0[(id / BITS) as usize];
        word.store(word.load(Relaxed) | 1 << (id % BITS), Relaxed);
    }

    /// Under the central lock.
    pub(crate) fn clear(&self, id: u32) {
        let word = &self.0[(id / BITS) as usize];
        word.store(word.load(Relaxed) & !(1 << (id % BITS)), Relaxed);
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_from_any_number_on() {
        let (mask, all) = (Mask::new(0), [0, 1, 63, 64, 130, 1023]);
        all.iter().for_each(|&id| mask.set(id));
        for first in [0, 1, 2, 63, 64, 65, 130, 131, 1023, 1024] {
            let rest: Vec<_> = all.into_iter().filter(|&id| id >= first).collect();
            assert_eq!(mask.members_from(first).collect::<Vec<_>>(), rest, "from {first} on");
        }
    }

    #[test]
    fn each_p_has_its_own_bit() {
        let mask = Mask::new(65);
        for id in [0, 1, 63, 64, 65, 129, 1023] {
            assert_eq!(mask.has(id), id < 65);
            mask.clear(id);
            assert!(!mask.has(id));
            assert!(id == 2 || mask.has(2), "another P's bit stays");
            mask.set(id);
            assert!(mask.has(id));
        }
    }
}
