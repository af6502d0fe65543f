//! The two heads of a ring.

use crate::prim::hooks::*;

/// Both heads in one word, so that one exchange moves both.
#[derive(Copy, Clone)]
pub(super) struct Head(pub(super) u64);

impl Head {
    pub(super) fn new(steal: u32, real: u32) -> Self {
        Head(u64::from(steal) << 32 | u64::from(real))
    }

    /// Returns the beginning of the slots that the owner may not write.
    pub(super) fn steal(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Returns the beginning of the Gs that can be taken.
    pub(super) fn real(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn has_thief(self) -> bool {
        self.steal() != self.real()
    }

    /// Returns the heads after the owner has taken `n`. A thief's claim stays as it is.
    pub(super) fn taken(self, n: u32) -> Self {
        let real = self.real().wrapping_add(n);
        let keep = self.has_thief().unless(RingClaimForgotten);
        Head::new(if keep { self.steal() } else { real }, real)
    }

    /// Returns the heads after a thief has claimed `n`.
    pub(super) fn claimed(self, n: u32) -> Self {
        Head::new(self.steal(), self.real().wrapping_add(n))
    }

    /// Returns the heads after the thief has released its claim.
    pub(super) fn released(self) -> Self {
        Head::new(self.real(), self.real())
    }
}

impl std::fmt::Debug for Head {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "steal {}, real {}", self.steal(), self.real())
    }
}
