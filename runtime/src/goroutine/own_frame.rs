//! User code never shares a frame with a park of the library.
//!
//! The address of a `thread_local!` does not change within a function, so the compiler takes it for a constant there: it
//! computes the address once, and may do so at the function's beginning, out of a loop or ahead of a branch. A park in between
//! is only a call to the compiler, and so the address may be that of the thread on which the goroutine was before. The contract
//! (`gmp::migration`, 2) makes the user keep the two apart, but only in functions as the compiler sees them: this library's
//! calls are generic, and inlined into their caller, together with the future or the closure that they are given. A closure
//! that does not park itself keeps the contract.
//!
//! So each call that may park, and before or after that calls a closure or polls a future in the same frame, does so by
//! [`in_own_frame`]. This is not needed for a closure that is called through `dyn` (`Context::run`, `with_stack`, the functions
//! of `gmp::hooks`), or that is the first on a stack (`go` and its kind), nor in a call that does not park itself (`local!`,
//! `Mutex::map`). The user marks the methods of a type (`Drop`, `Clone`, `Hash`), as the contract says, except the drop of a
//! future, which the compiler writes.
//!
//! *What std keeps.* std counts panics in a thread-local: `catch_unwind` decrements the count where it has caught a panic, and
//! `resume_unwind` increments the count. If std's functions were inlined in a call that catches, parks and throws again, both
//! would be in one frame, with a park between them; and with `lto = "fat"` only std's own attributes prevent that. Then the
//! count of one thread would stay too high, and that of another too low. So such a call catches by [`caught`] and throws by
//! [`throw_again`].
//!
//! *Large values.* A value that is passed to a function that is not inlined, or returned by one, might be copied on the way,
//! and a stack does not grow. So `blocking` is inlined, and hands its closure straight on; and `block_on` hands its future on
//! by reference, to be moved into its place inside ([`MadeInOwnFrame`]).
//!
//! Obvious and wrong: to mark the parks `#[inline(never)]`. They are not inlined anyway; the address must be kept out of the
//! frame.

use std::any::Any;
use std::hint::black_box;
use std::mem::{MaybeUninit, needs_drop};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::thread;

/// Calls `f` in a frame that has no parks of the library.
#[inline(never)]
pub(crate) fn in_own_frame<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// Does the same as `in_own_frame`, and catches a panic of `f` in another frame that has no parks of the library.
#[inline(always)]
pub(crate) fn caught<R, F: FnOnce() -> R>(f: F) -> thread::Result<R> {
    // Through a pointer that the compiler can't see through, as in `context/run.rs`.
    black_box(catches as fn(F) -> thread::Result<R>)(f)
}

#[inline(never)]
fn catches<R, F: FnOnce() -> R>(f: F) -> thread::Result<R> {
    catch_unwind(AssertUnwindSafe(|| in_own_frame(f)))
}

/// Calls `resume_unwind` in a frame that has no parks of the library.
#[cold]
#[inline(never)]
pub(crate) fn throw_again(payload: Box<dyn Any + Send>) -> ! {
    resume_unwind(payload)
}

/// A value that is made in place, and dropped there, in frames of their own.
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
        // SAFETY: the value is pinned with `self`: dropped in place, and not moved by any code here.
        let this = unsafe { self.get_unchecked_mut() };
        in_own_frame(|| _ = this.value.write(make()));
        this.is_there = true;
        // SAFETY: the value was just written, and is pinned, as above.
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
            // SAFETY: the value was there, and counts as gone from the `replace` on.
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
