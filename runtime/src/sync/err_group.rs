//! Goroutines with a common task, whose first error counts.

use crate::context::{Cancel, Context};
use crate::interrupt::Thrown;
use crate::prim::Arc;
use crate::sync::mutex::Mutex;
use crate::sync::semaphore::Semaphore;
use crate::sync::wait_group::WaitGroup;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Starts goroutines, waits for all of them, and gives the first error. (Go's `golang.org/x/sync/errgroup`.)
///
/// ```
/// use gmp::sync::ErrGroup;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let result = unsafe {
///     gmp::run(|| {
///         let group = ErrGroup::new();
///         for text in ["1", "2", "three"] {
///             group.go(move || text.parse::<u32>().map(drop));
///         }
///         group.wait()
///     })
/// };
/// assert!(result.is_err());
/// ```
pub struct ErrGroup<E> {
    tasks: WaitGroup,
    slots: Mutex<Option<Arc<Semaphore>>>,
    first: Arc<Mutex<First<E>>>,
    /// Of the group's own context.
    cancel: Option<Cancel>,
}

/// What the tasks have come to so far.
struct First<E> {
    error: Option<E>,
    panic: Option<Box<dyn Any + Send>>,
}

/// Gives a slot back when it is dropped.
struct Slot(Option<Arc<Semaphore>>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.release(1);
        }
    }
}

impl<E: Send + 'static> ErrGroup<E> {
    /// Without a limit.
    #[must_use]
    pub fn new() -> Self {
        let first = Arc::new(Mutex::new(First { error: None, panic: None }));
        ErrGroup { tasks: WaitGroup::new(), slots: Mutex::new(None), first, cancel: None }
    }

    /// Without a limit, and a context derived from `context` that is cancelled as soon as one of the group fails or
    /// panics, or the first [`wait`](Self::wait) is over. The goroutines do not run under it by themselves
    /// ([`Context::run`] does that).
    ///
    /// ```
    /// use gmp::context::Context;
    /// use gmp::sync::ErrGroup;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (group, context) = ErrGroup::with_context(&Context::background());
    ///         group.go(|| Err("the disk is full"));
    ///         group.go(move || {
    ///             let _cancelled = context.done().recv();
    ///             Ok(())
    ///         });
    ///         assert_eq!(group.wait(), Err("the disk is full"));
    ///     })
    /// }
    /// ```
    #[must_use]
    pub fn with_context(context: &Context) -> (Self, Context) {
        let (context, cancel) = context.with_cancel();
        (ErrGroup { cancel: Some(cancel), ..Self::new() }, context)
    }

    /// At most so many at a time; the others wait to be started.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        let group = Self::new();
        group.set_limit(limit);
        group
    }

    /// At most so many at a time, from here on. With 0 nothing is started any more.
    ///
    /// # Panics
    /// While a goroutine of the group runs.
    #[track_caller]
    pub fn set_limit(&self, limit: usize) {
        assert!(self.tasks.is_zero(), "ErrGroup: the limit is changed while goroutines of the group run");
        *self.slots.lock() = Some(Arc::new(Semaphore::new(limit)));
    }

    /// Runs `f` in a goroutine. Blocks the calling one while the limit is reached. What `f` returns, or its panic, is
    /// given by [`wait`](Self::wait).
    ///
    /// # Panics
    /// Outside of a goroutine, as [`gmp::go`](crate::go).
    #[track_caller]
    pub fn go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) {
        crate::goroutine::assert_on_goroutine("ErrGroup::go");
        let slots = self.slots.lock().clone();
        if let Some(slots) = &slots {
            slots.acquire(1);
        }
        self.start(Slot(slots), f);
    }

    /// As [`go`](Self::go), if the limit is not reached; false otherwise. Does not block.
    ///
    /// # Panics
    /// As `go`.
    #[track_caller]
    pub fn try_go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) -> bool {
        crate::goroutine::assert_on_goroutine("ErrGroup::try_go");
        let slots = self.slots.lock().clone();
        let free = slots.as_ref().is_none_or(|slots| slots.try_acquire(1));
        if free {
            self.start(Slot(slots), f);
        }
        free
    }

    #[track_caller]
    fn start(&self, slot: Slot, f: impl FnOnce() -> Result<(), E> + Send + 'static) {
        let (first, cancel) = (Arc::clone(&self.first), self.cancel.clone());
        self.tasks.go(move || {
            let _slot = slot;
            match catch_unwind(AssertUnwindSafe(f)) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => drop(First::note(&first, |first| &mut first.error, error)),
                // It was ended from outside.
                Err(payload) if payload.is::<Thrown>() => resume_unwind(payload),
                Err(payload) => drop(First::note(&first, |first| &mut first.panic, payload)),
            }
            if let Some(cancel) = cancel {
                cancel.cancel();
            }
        });
    }

    /// Blocks the calling goroutine, or the plain thread, until all have ended.
    ///
    /// # Errors
    /// The first error that one of them returned since the last `wait`.
    ///
    /// # Panics
    /// When one of them has panicked, by its panic.
    pub fn wait(&self) -> Result<(), E> {
        self.tasks.wait();
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
        let mut first = self.first.lock_surely();
        let (error, panic) = (first.error.take(), first.panic.take());
        drop(first);
        match panic {
            Some(payload) => resume_unwind(payload),
            None => error.map_or(Ok(()), Err),
        }
    }
}

impl<E> First<E> {
    /// Gives back what came later, to be dropped without the lock.
    fn note<V>(this: &Mutex<Self>, place: impl FnOnce(&mut Self) -> &mut Option<V>, value: V) -> Option<V> {
        let mut first = this.lock_surely();
        let place = place(&mut first);
        if place.is_some() {
            return Some(value);
        }
        place.replace(value)
    }
}

impl<E: Send + 'static> Default for ErrGroup<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> fmt::Debug for ErrGroup<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrGroup").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}
