//! The Ps of a runtime: slots side by side, filled one after the other and never emptied before the runtime's end.
//!
//! There is room for the most Ps that a runtime can have; the kernel gives memory only to the Ps that were made. A P never
//! moves, so a pointer to it stays valid, and an M that looks at all Ps reads one count and walks along a slice.
//!
//! Invariant: the slots below `made` hold a P each. `made` grows under the central lock, after the slot was filled.

use crate::host::Host;
use crate::p::P;
use crate::prim::{Acquire, AtomicU32, CachePadded, Relaxed, Release, capacity};
use crate::sched::lasting::PRef;
use std::io;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::ptr::NonNull;

/// All Ps that were ever made, as a slice.
pub(crate) struct Ps<H: Host> {
    /// From a box of `capacity::PROCS` slots.
    slots: NonNull<CachePadded<P<H>>>,
    made: AtomicU32,
}

// SAFETY: `Ps` owns the Ps, which are Send and Sync.
unsafe impl<H: Host> Send for Ps<H> {}
// SAFETY: `Ps` owns the Ps, which are Send and Sync; a reader of `made` sees the Ps below it.
unsafe impl<H: Host> Sync for Ps<H> {}

impl<H: Host> Ps<H> {
    /// Makes room for Ps, and no P.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn new() -> io::Result<Self> {
        let mut slots = Vec::<MaybeUninit<CachePadded<P<H>>>>::new();
        slots.try_reserve_exact(capacity::PROCS).map_err(|refused| {
            io::Error::new(
                io::ErrorKind::OutOfMemory,
                format!("cannot allocate the Ps of a runtime: {refused}"),
            )
        })?;
        // SAFETY: there is room for so many, and they need not be initialised.
        unsafe { slots.set_len(capacity::PROCS) };
        // SAFETY: a box is never null.
        let slots = unsafe { NonNull::new_unchecked(Box::into_raw(slots.into_boxed_slice()).cast()) };
        Ok(Ps { slots, made: AtomicU32::new(0) })
    }

    /// Makes the next P, with that P's number. Under the central lock, or before the scheduler is shared.
    pub(crate) fn push(&self, make: impl FnOnce(u32) -> P<H>) -> PRef<H> {
        // Relaxed: the caller alone writes `made`.
        let id = self.made.load(Relaxed);
        assert!((id as usize) < capacity::PROCS, "push: there is no room for another P ({id})");
        // SAFETY: `id` is below the number of slots.
        let slot = unsafe { self.slots.add(id as usize) };
        // SAFETY: the caller alone fills slots, and no reader goes beyond `made`.
        unsafe { slot.write(CachePadded::new(make(id))) };
        // Release: partner `deref`. No model has the two: loom does not model memory that does not exist yet.
        self.made.store(id + 1, Release);
        // SAFETY: this function has just filled the slot.
        PRef::of(unsafe { slot.as_ref() })
    }
}

impl<H: Host> Deref for Ps<H> {
    type Target = [CachePadded<P<H>>];

    #[inline]
    fn deref(&self) -> &Self::Target {
        // Acquire: partner `push`. An old value hides only Ps that were made after the caller last held the scheduler's
        // lock: see `procs.rs`.
        let made = self.made.load(Acquire) as usize;
        // SAFETY: `made` slots are filled, and stay as they are.
        unsafe { std::slice::from_raw_parts(self.slots.as_ptr(), made) }
    }
}

impl<H: Host> Drop for Ps<H> {
    fn drop(&mut self) {
        let made = std::ptr::slice_from_raw_parts_mut(self.slots.as_ptr(), self.made.load(Relaxed) as usize);
        // SAFETY: `&mut self`: no other reference to a P is left, and `made` slots are filled.
        unsafe { std::ptr::drop_in_place(made) };
        let slots = self.slots.as_ptr().cast::<MaybeUninit<CachePadded<P<H>>>>();
        // SAFETY: `new` took `slots` from a box of this length.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(slots, capacity::PROCS)) });
    }
}
