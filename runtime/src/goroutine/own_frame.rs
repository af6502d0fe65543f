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
//! Obvious and wrong: to mark the parks. They are not inlined as it is; what must be out of the frame is the address.

use std::mem::{ManuallyDrop, needs_drop};
use std::pin::Pin;

/// Calls `f` in a frame without parks of the library's.
#[inline(never)]
pub(crate) fn in_own_frame<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// A value that is dropped in a frame of its own.
pub(crate) struct DropsInOwnFrame<T>(ManuallyDrop<T>);

impl<T> DropsInOwnFrame<T> {
    pub(crate) fn new(value: T) -> Self {
        DropsInOwnFrame(ManuallyDrop::new(value))
    }

    #[inline]
    pub(crate) fn value(self: Pin<&mut Self>) -> Pin<&mut T> {
        // SAFETY: the value is pinned with `self`: it is dropped in its place, and moved by nothing here.
        unsafe { self.map_unchecked_mut(|this| &mut *this.0) }
    }
}

impl<T> Drop for DropsInOwnFrame<T> {
    #[inline]
    fn drop(&mut self) {
        if needs_drop::<T>() {
            // SAFETY: once, and not used afterwards.
            in_own_frame(|| unsafe { ManuallyDrop::drop(&mut self.0) });
        }
    }
}
