//! The user's code never shares a frame with a park of the library's.
//!
//! The address of a `thread_local!` does not change within a function, so the compiler takes it for a constant there: it
//! computes the address once, and may do so at the function's beginning, out of a loop or ahead of a branch. A park in between
//! is only a call to the compiler, and so the address may be that of the thread on which the goroutine was before. The
//! contract (`gmp::migration`, 2) has the user keep the two apart, but "a function" is what the compiler makes of it: the calls
//! here are generic, and inlined into their caller, together with the future or the closure that they are given. Such a closure
//! keeps the contract where it does not park itself.
//!
//! So each call that may park, before or after, and calls a closure or polls a future in the same frame, does that by
//! [`in_own_frame`]. It is not needed for a closure that is called through `dyn` (`Context::run`, `with_stack`, the functions
//! of `gmp::hooks`), or that is the first on a stack (`go` and its kind), nor in a call that does not park itself (`local!`,
//! `Mutex::map`). The methods of a type (`Drop`, `Clone`, `Hash`) are the user's to mark, as the contract says, but for the
//! drop of a future, which the compiler writes.
//!
//! *Large values.* What is given to a function that is not inlined, or returned by one, may be copied on the way, and a stack
//! does not grow. So `blocking` is inlined, and hands its closure straight on; and `block_on` hands its future on by reference,
//! to be moved into its place inside ([`MadeInOwnFrame`]).
//!
//! Obvious and wrong: to mark the parks. They are not inlined as it is; what must be out of the frame is the address.

use std::mem::{MaybeUninit, needs_drop};
use std::pin::Pin;

/// Calls `f` in a frame without parks of the library's.
#[inline(never)]
pub(crate) fn in_own_frame<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// A value that is made in its place, and dropped there, in frames of their own.
pub(crate) struct MadeInOwnFrame<T> {
    value: MaybeUninit<T>,
    is_there: bool,
}

impl<T> MadeInOwnFrame<T> {
    /// A place without a value.
    #[inline]
    pub(crate) fn none() -> Self {
        MadeInOwnFrame { value: MaybeUninit::uninit(), is_there: false }
    }

    /// Makes the value, and returns it.
    ///
    /// # Panics
    /// If there is one.
    #[inline]
    pub(crate) fn make(self: Pin<&mut Self>, make: impl FnOnce() -> T) -> Pin<&mut T> {
        assert!(!self.is_there, "make: there is a value");
        // SAFETY: the value is pinned with `self`: it is dropped in its place, and moved by nothing here.
        let this = unsafe { self.get_unchecked_mut() };
        in_own_frame(|| _ = this.value.write(make()));
        this.is_there = true;
        // SAFETY: it was just written, and is pinned, as above.
        unsafe { Pin::new_unchecked(this.value.assume_init_mut()) }
    }

    /// Drops the value, if there is one.
    #[inline]
    pub(crate) fn clear(self: Pin<&mut Self>) {
        // SAFETY: the value is dropped in its place.
        unsafe { self.get_unchecked_mut() }.drop_in_place();
    }

    #[inline]
    fn drop_in_place(&mut self) {
        if std::mem::replace(&mut self.is_there, false) && needs_drop::<T>() {
            // SAFETY: the value was there, and counts as gone since.
            in_own_frame(|| unsafe { self.value.assume_init_drop() });
        }
    }
}

impl<T> Drop for MadeInOwnFrame<T> {
    #[inline]
    fn drop(&mut self) {
        self.drop_in_place();
    }
}
