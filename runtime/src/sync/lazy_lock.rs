//! A value that is made at the first access.

use crate::prim::{UnsafeCell, const_fn};
use crate::sync::once::Once;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

enum State<T, F> {
    Waiting(F),
    Made(T),
    /// The closure is running, or has unwound.
    Empty,
}

/// A value that a closure makes at the first access. Signatures and behaviour are those of `std::sync::LazyLock`; a
/// goroutine that has to wait for another's closure parks, a plain thread blocks.
///
/// ```
/// use gmp::sync::LazyLock;
///
/// static SQUARES: LazyLock<Vec<u64>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
/// assert_eq!(SQUARES[9], 81);
/// ```
///
/// If the closure unwinds, or its goroutine is left behind by the end of its runtime, the value is poisoned: every later access
/// panics.
pub struct LazyLock<T, F = fn() -> T> {
    once: Once,
    state: UnsafeCell<State<T, F>>,
}

// SAFETY: a shared `LazyLock` gives `&T` to many threads, and the closure to the thread that runs it.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}
// SAFETY: a `LazyLock` owns the value and the closure.
unsafe impl<T: Send, F: Send> Send for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    const_fn! {
        /// Makes a lazy value; `f` does not run yet.
        pub fn new(f: F) -> Self {
            LazyLock { once: Once::new(), state: UnsafeCell::new(State::Waiting(f)) }
        }
    }

    /// Returns the value. Blocks the calling goroutine, or the plain thread, while another caller's closure runs.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// If the closure has unwound. In the goroutine or thread that ran the closure, the closure's own panic propagates.
    #[inline]
    #[track_caller]
    pub fn force(this: &Self) -> &T {
        if !this.once.is_completed() {
            this.once.call("LazyLock instance has previously been poisoned", false, |_state| {
                this.make();
                true
            });
        }
        Self::get(this).expect("force: the closure has run to its end")
    }

    /// As [`force`](Self::force), for a caller with exclusive access: no other caller's closure runs. `DerefMut` does the same.
    ///
    /// ```
    /// use gmp::sync::LazyLock;
    ///
    /// let mut squares = LazyLock::new(|| vec![0, 1, 4]);
    /// LazyLock::force_mut(&mut squares).push(9);
    /// squares.push(16);
    /// assert_eq!(*squares, [0, 1, 4, 9, 16]);
    /// ```
    ///
    /// # Unwinds
    /// If the closure unwinds.
    ///
    /// # Panics
    /// As [`force`](Self::force).
    #[inline]
    #[track_caller]
    pub fn force_mut(this: &mut Self) -> &mut T {
        Self::force(this);
        Self::get_mut(this).expect("force_mut: the closure has run to its end")
    }

    fn make(&self) {
        let replace = |new| {
            // SAFETY: one closure of a `Once` runs at a time, and none runs after a closure has returned.
            self.state.with_mut(|state| unsafe { std::mem::replace(&mut *state, new) })
        };
        let State::Waiting(f) = replace(State::Empty) else { unreachable!("make: it runs once") };
        replace(State::Made(f()));
    }
}

impl<T, F> LazyLock<T, F> {
    /// Returns the value, if the closure has made it. Does not block, and runs no closure.
    ///
    /// ```
    /// use gmp::sync::LazyLock;
    ///
    /// static SQUARES: LazyLock<Vec<u64>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
    /// assert_eq!(LazyLock::get(&SQUARES), None);
    /// assert_eq!(SQUARES.len(), 10);
    /// assert_eq!(LazyLock::get(&SQUARES).map(|squares| squares[3]), Some(9));
    /// ```
    #[inline]
    pub fn get(this: &Self) -> Option<&T> {
        if !this.once.is_completed() {
            return None;
        }
        // SAFETY: `is_completed` comes after the value was written, and no later call writes the value.
        this.state.with(|state| match unsafe { &*state } {
            State::Made(value) => Some(value),
            _ => None,
        })
    }

    /// As [`get`](Self::get), to change the value.
    ///
    /// ```
    /// use gmp::sync::LazyLock;
    ///
    /// let mut level = LazyLock::new(|| 1);
    /// assert_eq!(LazyLock::get_mut(&mut level), None);
    /// *level += 1;
    /// assert_eq!(LazyLock::get_mut(&mut level), Some(&mut 2));
    /// ```
    #[inline]
    pub fn get_mut(this: &mut Self) -> Option<&mut T> {
        if !this.once.is_completed() {
            return None;
        }
        // SAFETY: as in `get`; `&mut` rules out any other reference.
        this.state.with_mut(|state| match unsafe { &mut *state } {
            State::Made(value) => Some(value),
            _ => None,
        })
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;
    /// Returns the value, as [`force`](Self::force) does: blocks the calling goroutine, or the plain thread, while another
    /// caller's closure runs.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// As [`force`](Self::force).
    #[inline]
    #[track_caller]
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T, F: FnOnce() -> T> DerefMut for LazyLock<T, F> {
    /// Returns the value, as [`force_mut`](Self::force_mut) does.
    ///
    /// # Unwinds
    /// If the closure unwinds.
    ///
    /// # Panics
    /// As [`force`](Self::force).
    #[inline]
    #[track_caller]
    fn deref_mut(&mut self) -> &mut T {
        Self::force_mut(self)
    }
}

// As in std: a closure that unwinds poisons the value, so no caller sees a half-done result.
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}
impl<T: RefUnwindSafe + UnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}

impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_tuple("LazyLock");
        match Self::get(self) {
            Some(value) => it.field(value),
            None => it.field(&format_args!("<uninit>")),
        };
        it.finish()
    }
}
