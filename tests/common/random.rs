//! What races are made of: how many rounds, and pauses of random length.

use crate::effort;

/// So many rounds, or a multiple of them; a tenth in a debug build.
pub fn rounds(base: usize) -> usize {
    (base * effort() as usize / if cfg!(debug_assertions) { 10 } else { 1 }).max(1)
}

/// xorshift64: the same pauses in every run, for what they are worth on a machine with others.
pub struct Random(u64);

impl Random {
    pub fn new(seed: usize) -> Self {
        Random(0x9E37_79B9_7F4A_7C15 ^ (seed as u64 + 1).wrapping_mul(0xD1B5_4A32_D192_ED03))
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }

    /// Passes time and stays awake; more often a little than much. The unit is some 10 ns.
    pub fn pause(&mut self, most: u64) {
        let most = 1 + self.below(most);
        spin(self.below(most));
    }
}

/// Passes so much time and stays awake.
pub fn spin(steps: u64) {
    for _ in 0..steps {
        std::hint::spin_loop();
    }
}
