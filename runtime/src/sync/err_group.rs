//! A group of goroutines with a common task, whose first error counts.

use crate::context::{Cancel, Context};
use crate::host::Active;
use crate::prim::{Arc, AtomicBool, Mutex as Short, Rank, Relaxed};
use crate::sched::Sched;
use crate::sync::mutex::Mutex;
use crate::sync::semaphore::Semaphore;
use crate::sync::wait_group::WaitGroup;
use crate::wait::interrupt::{self, is_interrupt};
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Starts goroutines, waits for all of them, and returns the first error. (Go's `golang.org/x/sync/errgroup`.)
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
    /// Under a short lock: a goroutine that waits for that lock does not park.
    slots: Short<Option<Arc<Semaphore>>>,
    results: Arc<Results<E>>,
    /// Cancels the group's own context, if there is one.
    cancel: Option<Cancel>,
}

/// The results of the tasks since the last `wait`.
struct Results<E> {
    first: Mutex<First<E>>,
    /// A task has ended without a result.
    unfinished: AtomicBool,
}

struct First<E> {
    error: Option<E>,
    panic: Option<Box<dyn Any + Send>>,
}

/// Reports the result of a task. The drop without a result reports that the task ended without one.
struct Tells<E> {
    results: Arc<Results<E>>,
    cancel: Option<Cancel>,
    told: bool,
}

impl<E> Drop for Tells<E> {
    fn drop(&mut self) {
        if !self.told {
            // Relaxed: published by the count of the tasks, which falls after this.
            self.results.unfinished.store(true, Relaxed);
            self.cancel_all();
        }
    }
}

impl<E> Tells<E> {
    fn cancel_all(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

/// A permit for one task, which the drop gives back.
struct Slot(Option<Arc<Semaphore>>);

impl Drop for Slot {
    fn drop(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.release(1);
        }
    }
}

impl<E: Send + 'static> ErrGroup<E> {
    /// Makes a group without a limit.
    #[must_use]
    pub fn new() -> Self {
        let first = Mutex::new(First { error: None, panic: None });
        let results = Arc::new(Results { first, unfinished: AtomicBool::new(false) });
        ErrGroup { tasks: WaitGroup::new(), slots: Short::new(Rank::ErrGroup, None), results, cancel: None }
    }

    /// Makes a group without a limit, and a context derived from `context`. The context is cancelled as soon as a
    /// task of the group fails, panics, or ends without a result, or the first [`wait`](Self::wait) is over. The
    /// tasks do not run under the context by themselves ([`Context::run`] does that).
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

    /// Makes a group that runs at most `limit` tasks at a time.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        let group = Self::new();
        group.set_limit(limit);
        group
    }

    /// Limits the number of tasks that run at a time. With 0 no task is started any more.
    ///
    /// # Panics
    /// If a goroutine of the group runs.
    #[track_caller]
    pub fn set_limit(&self, limit: usize) {
        assert!(self.tasks.is_zero(), "ErrGroup: the limit is changed while goroutines of the group run");
        let slots = Some(Arc::new(Semaphore::new(limit)));
        // Dropped after the lock.
        let _before = std::mem::replace(&mut *self.slots.lock(), slots);
    }

    /// Runs `f` in a new goroutine. Blocks the calling goroutine while the limit is reached. [`wait`](Self::wait)
    /// reports what `f` returns, or the panic of `f`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
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

    /// As [`go`](Self::go), if the limit is not reached. Returns `false` at the limit. Does not block.
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
        let tells = Tells { results: Arc::clone(&self.results), cancel: self.cancel.clone(), told: false };
        self.tasks.go(move || {
            let (_slot, mut tells) = (slot, tells);
            let first = &tells.results.first;
            match catch_unwind(AssertUnwindSafe(f)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    drop(First::note(first, |first| &mut first.error, error));
                    tells.cancel_all();
                }
                // An interrupt has ended the task: no result.
                Err(payload) if is_interrupt(&*payload) => resume_unwind(payload),
                Err(payload) => {
                    drop(First::note(first, |first| &mut first.panic, payload));
                    tells.cancel_all();
                }
            }
            tells.told = true;
        });
    }

    /// Blocks the calling goroutine, or the plain thread, until all tasks have ended.
    ///
    /// In a destructor of a goroutine that its runtime ends, `Ok` does not say that all tasks have succeeded: the
    /// runtime ends the group's goroutines too, and a task that was ended in this way has neither an error of type `E`
    /// nor a panic. A destructor that does more than wait, such as a commit of the group's work, has to ask
    /// [`std::thread::panicking`] before.
    ///
    /// A group that has failed in several ways reports one failure for each `wait`: the first panic, then the first
    /// error, then that a task had no result. So a caller that catches the panic gets the error from another `wait`.
    ///
    /// ```
    /// use gmp::sync::ErrGroup;
    /// use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let group = ErrGroup::new();
    ///         group.go(|| Err("the disk is full"));
    ///         group.go(|| resume_unwind(Box::new("a bug")));
    ///         let panic = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
    ///         assert_eq!(panic.downcast_ref(), Some(&"a bug"));
    ///         assert_eq!(group.wait(), Err("the disk is full"));
    ///         assert_eq!(group.wait(), Ok(()));
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The first error that a task returned and no `wait` has reported.
    ///
    /// # Panics
    /// If a task has panicked, with the same panic. If a task has ended without a result, by [`goexit`](crate::goexit)
    /// or with its runtime. On a goroutine whose own runtime ends, the wait unwinds instead; in a destructor that such
    /// a goroutine runs while unwinding, where a panic would end the process, the wait returns `Ok`.
    #[track_caller]
    pub fn wait(&self) -> Result<(), E> {
        self.tasks.wait();
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
        let mut first = self.results.first.lock_surely();
        let panic = first.panic.take();
        let error = if panic.is_none() { first.error.take() } else { None };
        drop(first);
        match (panic, error) {
            (Some(payload), _) => resume_unwind(payload),
            (None, Some(error)) => Err(error),
            // The caller's runtime ends, and the caller was awake when the task ended: that is no failure of the
            // program. The flag stays set, so that a caller of another runtime is told. Relaxed: see `Tells`.
            (None, None)
                if self.results.unfinished.load(Relaxed)
                    && Sched::<Active>::current().is_some_and(Sched::is_ending) =>
            {
                interrupt::end_here::<Active>();
                Ok(())
            }
            // Relaxed: see `Tells`.
            (None, None) if self.results.unfinished.swap(false, Relaxed) => {
                panic!(
                    "ErrGroup: a goroutine of the group ended without a result, by goexit or with its runtime"
                )
            }
            (None, None) => Ok(()),
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
