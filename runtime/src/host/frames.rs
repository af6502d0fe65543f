//! The frames of a goroutine, as return addresses.

/// The addresses at which the frames of a goroutine go on, innermost first.
pub(crate) struct Frames {
    pcs: [usize; Self::MOST],
    len: usize,
}

impl Frames {
    /// How many places there are; the last one is for the mark that there are further frames.
    const MOST: usize = 64;
    /// Stands behind the kept addresses when there are further frames.
    pub(crate) const MORE: usize = 0;

    pub(crate) const fn new() -> Self {
        Frames { pcs: [0; Self::MOST], len: 0 }
    }

    /// Adds the next frame. Returns `false` if the list is full.
    #[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
    pub(crate) fn push(&mut self, pc: usize) -> bool {
        let last = self.len + 1 == Self::MOST;
        self.pcs[self.len] = if last { Self::MORE } else { pc };
        self.len += 1;
        !last
    }

    pub(crate) fn pcs(&self) -> &[usize] {
        &self.pcs[..self.len]
    }
}
