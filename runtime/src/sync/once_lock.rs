//! A value that is written once.

use crate::prim::{UnsafeCell, const_fn};
use crate::sync::once::Once;
use std::fmt;
use std::mem::MaybeUninit;

/// A value that is written at most once. Signatures and behaviour are those of `std::sync::OnceLock`; a goroutine
/// that has to wait parks, a plain thread blocks.
///
/// ```
/// use gmp::sync::OnceLock;
///
/// static NAME: OnceLock<String> = OnceLock::new();
/// assert_eq!(NAME.get(), None);
/// assert_eq!(NAME.get_or_init(|| "gopher".to_owned()), "gopher");
/// assert_eq!(NAME.set("other".to_owned()), Err("other".to_owned()));
/// ```
pub struct OnceLock<T> {
    once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: shared, a `OnceLock` gives `&T` to many threads, and takes the value of one thread to be dropped by another.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: a `OnceLock` owns its value.
unsafe impl<T: Send> Send for OnceLock<T> {}

impl<T> OnceLock<T> {
    const_fn! {
        /// Makes a `OnceLock` without a value.
        pub fn new() -> Self {
            OnceLock { once: Once::new(), value: UnsafeCell::new(MaybeUninit::uninit()) }
        }
    }

    /// Returns the value, if there is one. Does not block.
    #[inline]
    pub fn get(&self) -> Option<&T> {
        // SAFETY: `is_completed` comes after the value was written, and no later call writes the value.
        self.once.is_completed().then(|| self.value.with(|value| unsafe { (*value).assume_init_ref() }))
    }

    /// Returns the value, if there is one.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        // SAFETY: as in `get`; by `&mut self` there is no other reference.
        self.once.is_completed().then(|| self.value.with_mut(|value| unsafe { (*value).assume_init_mut() }))
    }

    /// Writes the value. Blocks the calling goroutine, or the plain thread, while another caller writes the value.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `value`, if there is a value already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("the closure runs once"));
        value.map_or(Ok(()), Err)
    }

    /// Returns the value, which `f` makes if there is none. Blocks the calling goroutine, or the plain thread, while
    /// another caller's closure makes the value. If `f` unwinds there is no value, and the next caller's closure runs.
    /// A closure that asks for the same value waits for its own end.
    ///
    /// ```
    /// let host = gmp::sync::OnceLock::new();
    /// assert_eq!(host.get_or_init(|| "localhost".to_owned()), "localhost");
    /// assert_eq!(host.get_or_init(|| unreachable!("there is a value")), "localhost");
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[inline]
    pub fn get_or_init(&self, f: impl FnOnce() -> T) -> &T {
        self.once.call_once_force(|_state| {
            let made = f();
            self.value.with_mut(|value| {
                // SAFETY: one closure runs at a time, and none after a closure that has returned.
                unsafe { (*value).write(made) };
            });
        });
        self.get().expect("get_or_init: a closure has run to its end")
    }

    /// Returns the value. Blocks the calling goroutine, or the plain thread, until there is one.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        self.get().expect("wait: a closure has run to its end")
    }

    /// Returns the value, if there is one.
    pub fn into_inner(mut self) -> Option<T> {
        self.take()
    }

    /// Takes the value out: the `OnceLock` has none afterwards.
    pub fn take(&mut self) -> Option<T> {
        if !self.once.is_completed() {
            return None;
        }
        self.once = Once::new();
        // SAFETY: the value was written, and the word, replaced just now, says that there is none.
        Some(self.value.with(|value| unsafe { (*value).assume_init_read() }))
    }
}

impl<T> Drop for OnceLock<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let it = Self::new();
        it.get_or_init(|| value);
        it
    }
}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().cloned().map_or_else(Self::new, Self::from)
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => it.field(value),
            None => it.field(&format_args!("<uninit>")),
        };
        it.finish()
    }
}
