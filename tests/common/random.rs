//! The parts of races: numbers of rounds, choices, and pauses of random length.

use crate::effort;
use std::time::Duration;

/// Returns `base` rounds, or a multiple of them; a tenth in a debug build.
pub fn rounds(base: usize) -> usize {
    (base * effort() as usize / if cfg!(debug_assertions) { 10 } else { 1 }).max(1)
}

/// splitmix64: the same numbers in every run, which says little about the schedule on a shared machine.
pub struct Random(u64);

impl Random {
    /// Returns the generator of the test's member with this number.
    pub fn new(number: usize) -> Self {
        Random::of_seed(number as u64)
    }

    pub fn of_seed(seed: u64) -> Self {
        Random(seed)
    }

    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.bits() % limit
    }

    /// Returns `true` one time in `many`.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn micros(&mut self, limit: u64) -> Duration {
        Duration::from_micros(self.below(limit))
    }

    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    /// Passes some time without sleeping, more often a little than much. The unit is some 10 ns.
    pub fn pause(&mut self, most: u64) {
        let most = 1 + self.below(most);
        spin(self.below(most));
    }
}

/// Spins for `steps` steps, without sleeping.
pub fn spin(steps: u64) {
    for _ in 0..steps {
        std::hint::spin_loop();
    }
}
