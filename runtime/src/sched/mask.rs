//! A bit for each P (Go's `pMask`).

use crate::prim::{AtomicU64, Relaxed};

const BITS: u32 = u64::BITS;

/// A set of Ps, written under the scheduler's lock and read without it. Relaxed: what orders it is said where it is used.
#[derive(Debug)]
pub(crate) struct Mask(Box<[AtomicU64]>);

impl Mask {
    /// The Ps from `first` to `count - 1` of `count`.
    pub(crate) fn new(first: u32, count: u32) -> Self {
        let mask = Mask((0..count.div_ceil(BITS)).map(|_| AtomicU64::new(0)).collect());
        (first..count).for_each(|id| mask.set(id));
        mask
    }

    /// Whether the P is in it.
    #[inline]
    pub(crate) fn has(&self, id: u32) -> bool {
        self.0[(id / BITS) as usize].load(Relaxed) & 1 << (id % BITS) != 0
    }

    /// The set as it is now, for one who wants no news.
    pub(crate) fn copy(&self) -> Mask {
        Mask(self.0.iter().map(|word| AtomicU64::new(word.load(Relaxed))).collect())
    }

    /// Under the scheduler's lock: a plain store is enough, as nobody else writes.
    pub(crate) fn set(&self, id: u32) {
        let word = &self.0[(id / BITS) as usize];
        word.store(word.load(Relaxed) | 1 << (id % BITS), Relaxed);
    }

    /// Under the scheduler's lock.
    pub(crate) fn clear(&self, id: u32) {
        let word = &self.0[(id / BITS) as usize];
        word.store(word.load(Relaxed) & !(1 << (id % BITS)), Relaxed);
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_p_has_its_own_bit() {
        let mask = Mask::new(1, 130);
        for id in [0, 1, 63, 64, 65, 129] {
            assert_eq!(mask.has(id), id != 0);
            mask.clear(id);
            assert!(!mask.has(id));
            assert!(id == 2 || mask.has(2), "another P's bit stays");
            mask.set(id);
            assert!(mask.has(id));
        }
    }
}
