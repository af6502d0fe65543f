//! The known verdicts: the kinds of the functions and landing pads that looks have met.
//!
//! Finding a verdict takes up to half a millisecond, and a look needs some ten of them. The verdicts are kept in a table of
//! words (`sets.rs`): address of the function or pad, generation, kind. The address chooses the set.
//!
//! An address may be used again after a `dlclose`: the generation is the count of unloaded objects. From 8191 on all would have
//! one number, so nothing is kept: looks are slow then, but right.

use super::Landmarks;
use super::code::{Kind, kind, kind_of_pad};
use super::sets::Sets;
use crate::host::native::objects;

/// How many objects were unloaded in this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Generation(u64);

pub(super) const GENERATION_BITS: u32 = 13;
/// The number of all generations from this one on.
const LAST: u64 = (1 << GENERATION_BITS) - 1;
const KIND_BITS: u32 = 3;
const KINDS: [Kind; 5] = [Kind::Aborts, Kind::Foreign, Kind::Passes, Kind::Depends, Kind::Mixed];

/// Each word has, from the highest bits on: the address, the generation, the kind.
struct Verdicts(Words);

type Words = Sets<64>;

/// The verdicts of this process.
static KNOWN: Verdicts = Verdicts::new();

impl Generation {
    pub(super) fn now() -> Generation {
        let mut count = 0;
        objects::show(|first| {
            count = first.unloads();
            true
        });
        Generation(count.min(LAST))
    }

    /// Returns `false` for the last generation, which has no end: nothing is kept in it.
    #[inline]
    pub(super) fn keeps(self) -> bool {
        self.0 < LAST
    }

    /// Returns the number, which is less than 2^`GENERATION_BITS`.
    #[inline]
    pub(super) fn number(self) -> u64 {
        self.0
    }

    #[cfg(test)]
    pub(super) fn numbered(number: u64) -> Generation {
        Generation(number)
    }

    /// Returns the kind of the function that starts at `start` and is on the stack of the caller.
    ///
    /// # Safety
    /// As of `kind`.
    pub(super) unsafe fn function(self, start: usize, table: *const u8, landmarks: &Landmarks) -> Kind {
        // SAFETY: by this function's contract.
        KNOWN.get(self, start, || unsafe { kind(start, table, landmarks) })
    }

    /// Returns the kind of a landing pad of a function that `Depends`, or is `Mixed`.
    ///
    /// # Safety
    /// As of `kind`.
    pub(super) unsafe fn pad(
        self,
        pad: usize,
        start: usize,
        table: *const u8,
        landmarks: &Landmarks,
    ) -> Kind {
        // SAFETY: by this function's contract.
        KNOWN.get(self, pad, || unsafe { kind_of_pad(pad, start, table, landmarks) })
    }
}

impl Verdicts {
    const fn new() -> Verdicts {
        Verdicts(Sets::new())
    }

    /// Returns the kind that is kept for an address, or finds it out.
    fn get(&self, generation: Generation, address: usize, find: impl FnOnce() -> Kind) -> Kind {
        if !generation.keeps() {
            return find();
        }
        let key = (address as u64) << GENERATION_BITS | generation.0;
        let set = set_of(address);
        if let Some(word) = self.0.find(set, |word| word >> KIND_BITS == key) {
            return KINDS[word as usize & ((1 << KIND_BITS) - 1)];
        }
        let kind = find();
        // The key of an address beyond 2^48 loses bits.
        if address >> 48 == 0 {
            self.0.keep(set, key << KIND_BITS | kind as u64);
        }
        kind
    }
}

fn set_of(address: usize) -> u64 {
    // Functions begin at multiples of 16.
    Words::hash(address as u64 >> 4)
}

#[cfg(test)]
mod tests {
    use super::super::sets::WAYS;
    use super::*;

    /// Fails where verdicts push each other out that fit in their set: each look would be some hundred times as dear.
    #[test]
    fn as_many_as_a_set_has_places_are_found_out_once() {
        let (verdicts, generation) = (Verdicts::new(), Generation(1));
        let of_one_set = (0x10_000..).step_by(16).filter(|&address| set_of(address) == 7);
        let (mut found, addresses) = (0, Vec::from_iter(of_one_set.take(100)));
        for round in 0..10 {
            for (at, &address) in addresses[..WAYS].iter().enumerate() {
                let kind = KINDS[at % KINDS.len()];
                let known = verdicts.get(generation, address, || {
                    found += 1;
                    kind
                });
                assert_eq!(known, kind, "in round {round}");
            }
        }
        assert_eq!(found, WAYS);
        // With one more, some are found out again, and are right.
        for (at, &address) in addresses.iter().enumerate() {
            let kind = KINDS[at % KINDS.len()];
            assert_eq!(verdicts.get(generation, address, || kind), kind);
            assert_eq!(verdicts.get(generation, address, || panic!("forgotten at once")), kind);
        }
        // What lies there after a `dlclose` is something else.
        assert_eq!(verdicts.get(Generation(2), addresses[99], || Kind::Foreign), Kind::Foreign);
    }
}
