//! The sizes of stacks, and the memory of one.

use super::{Bytes, HAND, HAND_BYTES, MAX_STACK, MIN_STACK, PAGE};
use std::io;
use std::ptr::NonNull;

/// A size class, as the logarithm of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(pub(super) u8);

impl Class {
    pub(super) const FIRST: u8 = MIN_STACK.trailing_zeros() as u8;
    pub(super) const COUNT: usize = (MAX_STACK / MIN_STACK).trailing_zeros() as usize + 1;

    #[inline]
    pub(crate) fn of(size: usize) -> io::Result<Class> {
        if size > MAX_STACK {
            return Err(Class::too_big(size));
        }
        Ok(Class(size.max(MIN_STACK).next_power_of_two().trailing_zeros() as u8))
    }

    #[cold]
    fn too_big(size: usize) -> io::Error {
        let text = format!("a stack of {}: the biggest is {}", Bytes(size), Bytes(MAX_STACK));
        io::Error::new(io::ErrorKind::InvalidInput, text)
    }

    pub(super) fn bytes(self) -> usize {
        1 << self.0
    }

    pub(super) fn index(self) -> usize {
        (self.0 - Class::FIRST) as usize
    }

    /// Returns how many stacks go to and from a magazine at a time; reservations go in twice that number. A magazine keeps less
    /// than twice as many of each as go at a time.
    #[inline]
    pub(super) fn batch(self) -> usize {
        const BATCHES: [u8; Class::COUNT] = {
            let mut batches = [1; Class::COUNT];
            let mut index = 0;
            while HAND_BYTES >> index > MIN_STACK {
                let fit = HAND_BYTES >> index >> Class::FIRST;
                batches[index] = if fit < HAND { fit } else { HAND } as u8;
                index += 1;
            }
            batches
        };
        BATCHES[self.index()].into()
    }
}

/// A stack that is out of the pool. There is no `Drop`: a stack that is not given back is leaked and stays mapped.
#[derive(Debug)]
pub(crate) struct StackMem {
    pub(crate) top: NonNull<u8>,
    pub(super) slab: u32,
    pub(super) class: Class,
    /// Pages of the guard.
    pub(super) guard: u16,
}

// SAFETY: the slot belongs to this StackMem alone (`pool/mod.rs`, invariant 1), as a Box's memory is.
unsafe impl Send for StackMem {}

impl StackMem {
    /// Returns the end of the stack, which grows downwards from there; page-aligned.
    pub(crate) fn top(&self) -> *mut u8 {
        self.top.as_ptr()
    }

    /// Returns the size of the slot, the guard page included.
    pub(crate) fn bytes(&self) -> usize {
        self.class.bytes()
    }

    /// Returns where the first frame begins: up to 1,920 bytes below the top, aligned to a pair of cache lines.
    ///
    /// Slots are a power of two apart. If all stacks began at their tops, those of parked goroutines would share a few sets of
    /// each cache: a thousand goroutines that take turns ran a quarter slower.
    pub(crate) fn start(&self) -> *mut u8 {
        const COLOURS: usize = 16;
        const APART: usize = 128;
        let slot = self.top.addr().get() / self.class.bytes();
        self.top().wrapping_sub(slot % COLOURS * APART)
    }

    pub(crate) fn extent(&self) -> Extent {
        let top = self.top.addr().get();
        let bottom = top - self.class.bytes();
        Extent { guard: bottom + PAGE - usize::from(self.guard) * PAGE, bottom, top }
    }
}

/// The addresses that belong to a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    /// The guard begins here: below the slot, if there is more than a page of guard.
    pub(crate) guard: usize,
    /// The slot begins here, with the guard's last page.
    pub(crate) bottom: usize,
    /// The first frames lie just below.
    pub(crate) top: usize,
}

impl Extent {
    /// Returns how many bytes it is down to the lowest page that is in memory. Takes no lock and allocates nothing.
    pub(crate) fn touched(&self) -> Option<usize> {
        const PAGES: usize = 256;
        let mut from = self.usable();
        while from < self.top {
            let mut there = [0_u8; PAGES];
            let bytes = (self.top - from).min(PAGES * PAGE);
            let at = std::ptr::without_provenance_mut::<libc::c_void>(from);
            // SAFETY: the kernel writes a byte for each page, and reads nothing there.
            if unsafe { libc::mincore(at, bytes, there.as_mut_ptr()) } != 0 {
                return None;
            }
            if let Some(page) = there.iter().position(|page| page & 1 != 0) {
                return Some(self.top - from - page * PAGE);
            }
            from += bytes;
        }
        Some(0)
    }

    /// Gives the pages that were touched back to the kernel, except for the top page.
    pub(crate) fn forget(&self) {
        let at = std::ptr::without_provenance_mut::<libc::c_void>(self.usable());
        // SAFETY: the owner has the stack for itself, and nothing lies there yet.
        unsafe { libc::madvise(at, self.top - PAGE - self.usable(), libc::MADV_DONTNEED) };
    }

    /// Returns where the guard ends: the lowest byte that can be used.
    pub(crate) fn usable(self) -> usize {
        self.bottom + PAGE
    }

    /// Returns `true` if a stack pointer with this value is on this stack. A pointer to the top has used nothing yet.
    pub(crate) fn holds(self, sp: usize) -> bool {
        self.bottom < sp && sp <= self.top
    }
}
