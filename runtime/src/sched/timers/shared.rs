//! A value with a count of owners, like an `Arc`, for values that are mostly lent once and given back.
//!
//! A value is made with two owners, and there are no weak owners. So making a value, giving it away, getting it back and
//! freeing it take one exchange in all. With `Arc` they take four: to count the other owner, to uncount it, to uncount the
//! first owner, and to uncount the weak count that all owners share.
//!
//! Invariants:
//! 1. `owners` is the number of [`Shared`]s. Only a [`Shared`] that exists makes another.
//! 2. So an owner that reads a count of one is alone and stays alone, and frees without an exchange.
//!
//! Checked by `models/shared.rs`.

use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU64, Relaxed, Release};
use std::ops::Deref;
use std::ptr::NonNull;

/// A value and the number of its owners.
pub(crate) struct Counted<T: ?Sized> {
    owners: AtomicU64,
    value: T,
}

impl<T> Counted<T> {
    /// For [`Shared::two`]: makes a box, which the caller can turn into the box of a trait object first.
    #[inline]
    pub(crate) fn boxed(value: T) -> Box<Self> {
        Box::new(Counted { owners: AtomicU64::new(2), value })
    }
}

/// One owner of a value.
pub(crate) struct Shared<T: ?Sized>(NonNull<Counted<T>>);

// SAFETY: as for `Arc`: each owner can read the value, and the last owner drops it.
unsafe impl<T: ?Sized + Send + Sync> Send for Shared<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: ?Sized + Send + Sync> Sync for Shared<T> {}

impl<T: ?Sized> Shared<T> {
    /// Returns the two owners of a new value.
    #[inline]
    pub(crate) fn two(of: Box<Counted<T>>) -> [Self; 2] {
        let it = NonNull::from(Box::leak(of));
        [Shared(it), Shared(it)]
    }

    fn counted(&self) -> &Counted<T> {
        // SAFETY: the value lives as long as one of the owners.
        unsafe { self.0.as_ref() }
    }
}

impl<T: ?Sized> Deref for Shared<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T: ?Sized> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Self {
        // Relaxed: the caller's own share keeps every other owner from being the last.
        self.counted().owners.fetch_add(1, Relaxed);
        Shared(self.0)
    }
}

impl<T: ?Sized> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        let owners = &self.counted().owners;
        // Acquire: the other owners' accesses to the value happen before its drop; the partner is the step below, made by
        // another owner.
        let alone = owners.load(Acquire.unless(SharedAloneRelaxed)) == 1;
        // Acquire: the other owners' accesses happen before the drop. Release: this owner's accesses happen before the drop by
        // the last owner. Each such step is the partner of the other owners' steps, and of the load above.
        if !alone
            && owners.fetch_sub(1, both(Acquire.unless(SharedNoAcquire), Release.unless(SharedNoRelease)))
                != 1
        {
            return;
        }
        // SAFETY: `two` made the pointer out of a box, and this was the last owner.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}
