//! A group of goroutines with a common task, whose first error counts.

use crate::context::{Cancel, Context};
use crate::goroutine;
use crate::host::Active;
use crate::prim::{Arc, AtomicBool, Mutex as Short, Rank, Relaxed};
use crate::sched::Sched;
use crate::sync::mutex::Mutex;
use crate::sync::semaphore::{Semaphore, SemaphorePermit};
use crate::sync::wait_group::Count;
use crate::wait::interrupt::{self, is_interrupt};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
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
    group: Arc<Group<E>>,
}

/// What the group and its tasks share.
struct Group<E> {
    tasks: Count,
    /// There may be a semaphore in `slots`.
    limited: AtomicBool,
    /// Under a short lock: a goroutine that waits for that lock does not park.
    slots: Short<Option<Arc<Semaphore>>>,
    /// The results of the tasks since the last `wait`.
    first: Mutex<First<E>>,
    /// A task has ended without a result.
    unfinished: AtomicBool,
    /// Cancels the group's own context, if there is one.
    cancel: Option<Cancel>,
}

struct First<E> {
    error: Option<E>,
    panic: Option<Box<dyn Any + Send>>,
}

/// One task, counted. The drop without a result reports that the task ended without one, gives the permit back, and counts
/// down.
struct Running<E> {
    group: Arc<Group<E>>,
    slot: Slot,
    /// There is a goroutine for the task. Without one nothing has begun, and so nothing is unfinished: the caller is told.
    has_goroutine: bool,
}

impl<E> Drop for Running<E> {
    fn drop(&mut self) {
        if !self.has_goroutine {
            drop(Ends { group: &self.group, slot: &mut self.slot });
            return;
        }
        // Relaxed: published by the count of the tasks, which falls after this.
        self.group.unfinished.store(true, Relaxed);
        // Also where what the end of the context calls panics.
        let _ends = Ends { group: &self.group, slot: &mut self.slot };
        self.group.cancel_all();
    }
}

/// Gives the permit of a task back, and counts down.
struct Ends<'a, E> {
    group: &'a Group<E>,
    slot: &'a mut Slot,
}

impl<E> Drop for Ends<'_, E> {
    fn drop(&mut self) {
        self.slot.give_back();
        self.group.tasks.add(-1);
    }
}

impl<E> Running<E> {
    /// The task has told its result.
    fn finish(self) {
        let mut this = ManuallyDrop::new(self);
        this.slot.give_back();
        this.group.tasks.add(-1);
        // SAFETY: `this` is not used afterwards.
        drop(unsafe { std::ptr::read(&this.group) });
    }
}

impl<E> Group<E> {
    fn cancel_all(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

/// What a goroutine of a group runs. Where it never runs `f` is dropped first: fields are dropped in this order.
struct Task<E, F> {
    f: F,
    running: Running<E>,
}

impl<E, F: FnOnce() -> Result<(), E>> Task<E, F> {
    fn run(self) {
        let Task { f, running } = self;
        let first = &running.group.first;
        match catch_unwind(AssertUnwindSafe(f)) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                drop(First::note(first, |first| &mut first.error, error));
                running.group.cancel_all();
            }
            // An interrupt has ended the task: no result.
            Err(payload) if is_interrupt(&*payload) => resume_unwind(payload),
            Err(payload) => {
                drop(First::note(first, |first| &mut first.panic, payload));
                running.group.cancel_all();
            }
        }
        running.finish();
    }
}

/// A permit for one task.
struct Slot(Option<Arc<Semaphore>>);

impl Slot {
    fn give_back(&mut self) {
        if let Some(slots) = self.0.take() {
            slots.release(1);
        }
    }
}

impl<E: Send + 'static> ErrGroup<E> {
    /// Makes a group without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::with_cancel(None)
    }

    fn with_cancel(cancel: Option<Cancel>) -> Self {
        ErrGroup {
            group: Arc::new(Group {
                tasks: Count::new(),
                limited: AtomicBool::new(false),
                slots: Short::new(Rank::ErrGroup, None),
                first: Mutex::new(First { error: None, panic: None }),
                unfinished: AtomicBool::new(false),
                cancel,
            }),
        }
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
        (Self::with_cancel(Some(cancel)), context)
    }

    /// Makes a group that runs at most `limit` tasks at a time.
    #[must_use]
    pub fn with_limit(limit: usize) -> Self {
        let group = Self::new();
        group.set_limit(limit);
        group
    }

    /// Limits the number of tasks that run at a time. With 0 no task is started before a later call sets another limit. Calls
    /// of [`go`](Self::go) that wait at the limit go by the new limit from now on, in any order; a call that is about to start
    /// its task beside this one still counts for the old limit. Does not block.
    ///
    /// # Panics
    /// If a goroutine of the group runs.
    #[track_caller]
    pub fn set_limit(&self, limit: usize) {
        assert!(
            self.group.tasks.is_zero(),
            "ErrGroup: the limit is changed while goroutines of the group run"
        );
        let slots = Some(Arc::new(Semaphore::new(limit)));
        // Relaxed: for a caller that comes later; a caller beside this call finds a limit or none.
        self.group.limited.store(true, Relaxed);
        let before = std::mem::replace(&mut *self.group.slots.lock(), slots);
        // After the lock. A caller that waits there looks again.
        if let Some(before) = before {
            before.close();
        }
    }

    /// Runs `f` in a new goroutine. Blocks the calling goroutine while the limit is reached. [`wait`](Self::wait)
    /// reports what `f` returns, or the panic of `f`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// Outside of a goroutine, and when the goroutine can get no stack, as [`gmp::go`](crate::go). The group is as before then,
    /// and `f` was dropped.
    #[track_caller]
    pub fn go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) {
        // The scheduler stays the same, on whichever M the wait for a permit goes on.
        let sched = goroutine::here("ErrGroup::go", goroutine::FROM_A_THREAD);
        let slot = loop {
            let Some(slots) = self.slots() else { break Slot(None) };
            // Refused where there is another limit now.
            let taken = slots.acquire_guard(1).map(SemaphorePermit::forget);
            if taken.is_ok() {
                break Slot(Some(slots));
            }
        };
        self.start(sched, slot, f);
    }

    /// As [`go`](Self::go), if the limit is not reached. Returns `false` at the limit. Does not block.
    ///
    /// # Panics
    /// As `go`.
    #[track_caller]
    pub fn try_go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) -> bool {
        let sched = goroutine::here("ErrGroup::try_go", goroutine::FROM_A_THREAD);
        loop {
            let slots = self.slots();
            if slots.as_ref().is_none_or(|slots| slots.try_acquire(1)) {
                self.start(sched, Slot(slots), f);
                return true;
            }
            // Closed: there is another limit now.
            if !slots.is_some_and(|slots| slots.is_closed()) {
                return false;
            }
        }
    }

    fn slots(&self) -> Option<Arc<Semaphore>> {
        // Relaxed: see `set_limit`.
        if self.group.limited.load(Relaxed) { self.group.slots.lock().clone() } else { None }
    }

    #[track_caller]
    fn start(&self, sched: &Sched<Active>, slot: Slot, f: impl FnOnce() -> Result<(), E> + Send + 'static) {
        self.group.tasks.add(1);
        let running = Running { group: Arc::clone(&self.group), slot, has_goroutine: false };
        let mut task = Task { f, running };
        goroutine::go_detached(sched, move || {
            task.running.has_goroutine = true;
            move || task.run()
        });
    }

    /// Blocks the calling goroutine, or the plain thread, until all tasks have ended. A task that the end of its runtime leaves
    /// behind, since it can't be unwound, never ends: a caller of another runtime that is to go on has a limit
    /// ([`time::timeout`](crate::time::timeout)).
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
        self.group.tasks.wait();
        self.group.cancel_all();
        let mut first = self.group.first.lock_surely();
        let panic = first.panic.take();
        let error = if panic.is_none() { first.error.take() } else { None };
        drop(first);
        match (panic, error) {
            (Some(payload), _) => resume_unwind(payload),
            (None, Some(error)) => Err(error),
            // The caller's runtime ends, and the caller was awake when the task ended: that is no failure of the
            // program. The flag stays set, so that a caller of another runtime is told. Relaxed: see `Running`.
            (None, None)
                if self.group.unfinished.load(Relaxed)
                    && Sched::<Active>::current().is_some_and(Sched::is_ending) =>
            {
                interrupt::end_here::<Active>();
                Ok(())
            }
            // Relaxed: see `Running`.
            (None, None) if self.group.unfinished.swap(false, Relaxed) => {
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
        f.debug_struct("ErrGroup").field("tasks", &self.group.tasks).finish_non_exhaustive()
    }
}
