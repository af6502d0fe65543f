//! Pointers to the Ps and Ms of a scheduler.
//!
//! Both live as long as their scheduler: a P lies in a slot that never moves (`threads/ps.rs`), and the record of an M stays
//! when its thread has ended (`threads/mexit.rs`). The scheduler frees them in its own drop, when no handle to it is left.
//! Pointers stand in that scheduler, in its Ps and Ms, and on the stacks of its threads and goroutines, which keep the
//! scheduler.

use crate::host::Host;
use crate::m::M;
use crate::p::P;
use std::ops::Deref;
use std::ptr::NonNull;

pub(crate) type PRef<H> = Lasting<P<H>>;
pub(crate) type MRef<H> = Lasting<M<H>>;

/// A pointer to a part of a scheduler that lives as long as the scheduler: see the module's header. Copies are free.
pub(crate) struct Lasting<T>(NonNull<T>);

impl<H: Host> PRef<H> {
    /// `p` lies in a slot of its scheduler.
    #[inline(always)]
    pub(crate) fn of(p: &P<H>) -> Self {
        Lasting(NonNull::from(p))
    }
}

impl<H: Host> MRef<H> {
    /// `m` came from `boxed`.
    #[inline(always)]
    pub(crate) fn of(m: &M<H>) -> Self {
        Lasting(NonNull::from(m))
    }
}

impl<T> Lasting<T> {
    /// Returns the pointer by which `free` frees `part`.
    pub(crate) fn boxed(part: Box<T>) -> Self {
        Lasting(NonNull::from(Box::leak(part)))
    }

    #[inline(always)]
    pub(crate) fn get<'a>(self) -> &'a T {
        // SAFETY: the part lives as long as its scheduler, which the holders of the pointer keep: see the module's header.
        unsafe { self.0.as_ref() }
    }

    /// # Safety
    /// The pointer came from `boxed`, and no copy of it is used afterwards.
    pub(crate) unsafe fn free(self) {
        // SAFETY: by this function's contract.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl<T> Deref for Lasting<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        self.get()
    }
}

impl<T> Clone for Lasting<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Lasting<T> {}
impl<T> PartialEq for Lasting<T> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}
// SAFETY: the pointer is a shared reference.
unsafe impl<T: Sync> Send for Lasting<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Sync> Sync for Lasting<T> {}
