//! A value that is written once.

use crate::host::{Active, Clock};
use crate::prim::{UnsafeCell, const_fn};
use crate::sync::futures::OnceLockWait;
use crate::sync::once::{Completion, Once};
use std::fmt;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

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
    pub(super) once: Once,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: a shared `OnceLock` gives `&T` to many threads, and can take a value from one thread that another drops.
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
        // SAFETY: as in `get`; `&mut self` rules out any other reference.
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

    /// Returns the value, which `f` makes if there is none. Blocks the calling goroutine, or the plain thread, while another
    /// caller's closure makes the value. If `f` unwinds, no value is stored, and the next caller's closure runs. A closure that
    /// asks for the same value waits for its own end.
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
        self.once.call_once_force(|_state| self.write(f()));
        self.get().expect("get_or_init: a closure has run to its end")
    }

    /// Writes the value, in the closure of the `Once`.
    fn write(&self, made: T) {
        self.value.with_mut(|value| {
            // SAFETY: one closure runs at a time, and none runs after a closure has returned.
            unsafe { (*value).write(made) };
        });
    }

    /// As [`get_or_init`](Self::get_or_init), with an `f` that may fail: then no value is stored, and the next caller's closure
    /// runs. (std has this method too, and it is not stable.)
    ///
    /// ```
    /// use gmp::sync::OnceLock;
    ///
    /// static LEVEL: OnceLock<u32> = OnceLock::new();
    /// assert!(LEVEL.get_or_try_init(|| "high".parse()).is_err());
    /// assert_eq!(LEVEL.get_or_try_init(|| "3".parse()), Ok(&3));
    /// assert_eq!(LEVEL.get_or_try_init(|| "4".parse()), Ok(&3));
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// Those of `f`.
    pub fn get_or_try_init<F, E>(&self, f: F) -> Result<&T, E>
    where
        F: FnOnce() -> Result<T, E>,
    {
        let mut failed = None;
        if !self.once.is_completed() {
            self.once.call("", true, |_state| {
                let made = f();
                made.map(|made| self.write(made)).map_err(|error| failed = Some(error)).is_ok()
            });
        }
        match failed {
            // Another caller's closure may have made the value since.
            Some(error) => Err(error),
            None => Ok(self.get().expect("get_or_try_init: a closure has run to its end")),
        }
    }

    /// As [`get_or_init`](Self::get_or_init), to change the value: no other caller's closure runs. (std has this method too,
    /// and it is not stable.)
    ///
    /// ```
    /// let mut names = gmp::sync::OnceLock::new();
    /// names.get_mut_or_init(Vec::new).push("a");
    /// names.get_mut_or_init(Vec::new).push("b");
    /// assert_eq!(names.into_inner(), Some(vec!["a", "b"]));
    /// ```
    ///
    /// # Unwinds
    /// If `f` unwinds.
    pub fn get_mut_or_init(&mut self, f: impl FnOnce() -> T) -> &mut T {
        self.get_or_init(f);
        self.get_mut().expect("get_mut_or_init: a closure has run to its end")
    }

    /// As [`get_mut_or_init`](Self::get_mut_or_init), with an `f` that may fail, as in
    /// [`get_or_try_init`](Self::get_or_try_init).
    ///
    /// ```
    /// let mut level = gmp::sync::OnceLock::new();
    /// *level.get_mut_or_try_init(|| "3".parse::<u32>())? += 1;
    /// assert_eq!(level.get(), Some(&4));
    /// # Ok::<(), std::num::ParseIntError>(())
    /// ```
    ///
    /// # Unwinds
    /// If `f` unwinds.
    ///
    /// # Errors
    /// Those of `f`.
    pub fn get_mut_or_try_init<F, E>(&mut self, f: F) -> Result<&mut T, E>
    where
        F: FnOnce() -> Result<T, E>,
    {
        self.get_or_try_init(f)?;
        Ok(self.get_mut().expect("get_mut_or_try_init: a closure has run to its end"))
    }

    /// Returns the value. Blocks the calling goroutine, or the plain thread, until there is one.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait(&self) -> &T {
        self.once.wait_force();
        self.get().expect("wait: a closure has run to its end")
    }

    /// As [`wait`](Self::wait), for at most `timeout`; returns `None` after that. The limit also holds where nothing can be
    /// unwound.
    ///
    /// ```
    /// use gmp::sync::OnceLock;
    /// use std::time::Duration;
    ///
    /// static PORT: OnceLock<u16> = OnceLock::new();
    /// assert_eq!(PORT.wait_timeout(Duration::from_millis(1)), None);
    /// std::thread::spawn(|| PORT.set(8080));
    /// assert_eq!(PORT.wait_timeout(Duration::from_secs(60)), Some(&8080));
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_timeout(&self, timeout: Duration) -> Option<&T> {
        self.once.wait_force_in(Some(Active::after(timeout)));
        self.get()
    }

    /// As [`wait_timeout`](Self::wait_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_deadline(&self, deadline: Instant) -> Option<&T> {
        self.once.wait_force_in(Some(Active::nanos(deadline)));
        self.get()
    }

    /// As [`wait`](Self::wait), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future waits from its first poll on, and can be dropped
    /// at any time. Polled again after its end, the future returns the value again.
    ///
    /// ```
    /// use gmp::sync::OnceLock;
    ///
    /// static PORT: OnceLock<u16> = OnceLock::new();
    /// std::thread::spawn(|| PORT.set(8080));
    /// assert_eq!(gmp::block_on(PORT.wait_async()), &8080);
    /// ```
    pub fn wait_async(&self) -> OnceLockWait<'_, T> {
        OnceLockWait::new(self, Completion::new())
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
        // SAFETY: the value was written, and the `Once` that was just put in place says that there is no value.
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
