//! A group of goroutines with a common task; the first error is reported.
//!
//! A task counts until it has reported its result, or that it has none, and has given its permit back, in this order: a caller
//! that finds the count at zero finds all of that. Checked by `models/group.rs`.

use crate::context::{Cancel, Context};
use crate::g::{Birth, call_undisturbed};
use crate::goroutine;
use crate::host::{Active, Clock};
use crate::impls::future;
use crate::prim::hooks::*;
use crate::prim::{Arc, AtomicBool, Mutex as Short, Rank, Relaxed};
use crate::sched::Sched;
use crate::sched::run::place::Place;
use crate::sync::mutex::Mutex;
use crate::sync::semaphore::{Semaphore, SemaphorePermit};
use crate::sync::wait_group::Count;
use crate::sync::wait_queue::{TaskIn, WaitQueue};
use crate::wait::interrupt::{self, is_interrupt};
use std::any::Any;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};
use std::time::{Duration, Instant};

/// Starts goroutines, waits for all of them, and returns the first error. (Go's `golang.org/x/sync/errgroup`.) Clones share one
/// group.
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
///
/// A task may start others in its group, by a clone; a `wait` that has begun waits for these too. But a task must not wait for
/// its own group, which waits for the task; and if all tasks of a full group start others by [`go`](Self::go), each waits for
/// another to end. [`try_go`](Self::try_go) returns `false` in that case.
///
/// ```
/// use gmp::sync::ErrGroup;
///
/// fn visit(group: &ErrGroup<String>, page: u32) -> Result<(), String> {
///     for link in [2 * page, 2 * page + 1].into_iter().filter(|link| *link < 100) {
///         let theirs = group.clone();
///         group.go(move || visit(&theirs, link));
///     }
///     if page == 77 { Err(format!("page {page} is gone")) } else { Ok(()) }
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let result = unsafe {
///     gmp::run(|| {
///         let group = ErrGroup::new();
///         visit(&group, 1)?;
///         group.wait()
///     })
/// };
/// assert_eq!(result.unwrap_err(), "page 77 is gone");
/// ```
pub struct ErrGroup<E> {
    group: Arc<Group<E>>,
}

/// The state that the group and its tasks share.
pub(super) struct Group<E> {
    tasks: Count,
    /// There may be a semaphore in `slots`.
    limited: AtomicBool,
    /// A short lock: a goroutine that waits for it does not park.
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

/// One task, counted. A drop without a result reports that the task ended without one, gives the permit back, and counts down.
struct Running<E> {
    group: Arc<Group<E>>,
    slot: Slot,
    /// Set from the moment when the task has a goroutine until its result. Without a goroutine the task has not begun, so it is
    /// not unfinished: the caller gets an error.
    owes_a_result: bool,
}

impl<E> Drop for Running<E> {
    fn drop(&mut self) {
        // Drops even if a callback panics that the end of the context calls.
        let _ends = Ends { group: &self.group, slot: &mut self.slot };
        if self.owes_a_result {
            mutant!(ErrGroupCountsBeforeItTells: self.group.tasks.add(-1));
            // Relaxed: the count of the tasks, which falls after this, publishes the store.
            self.group.unfinished.store(true, Relaxed);
            mutant!(ErrGroupCountsBeforeItTells: self.group.tasks.add(1));
            self.group.cancel_all();
        }
    }
}

/// Gives the permit of a task back, and counts down.
struct Ends<'a, E> {
    group: &'a Group<E>,
    slot: &'a mut Slot,
}

impl<E> Drop for Ends<'_, E> {
    fn drop(&mut self) {
        mutant!(ErrGroupCountsBeforeThePermit: self.group.tasks.add(-1));
        self.slot.give_back();
        mutant!(ErrGroupCountsBeforeThePermit: self.group.tasks.add(1));
        self.group.tasks.add(-1);
    }
}

impl<E> Running<E> {
    /// Ends a task that has reported its result.
    fn finish(mut self) {
        self.owes_a_result = false;
    }
}

impl<E> Group<E> {
    fn cancel_all(&self) {
        if let Some(cancel) = &self.cancel {
            cancel.cancel();
        }
    }
}

/// The body of a group's goroutine. If the body never runs, `f` is dropped first: fields are dropped in this order.
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
                mutant!(ErrGroupCountsBeforeTheError: running.group.tasks.add(-1));
                First::note(first, |first| &mut first.error, error);
                running.group.cancel_all();
                mutant!(ErrGroupCountsBeforeTheError: running.group.tasks.add(1));
            }
            // An interrupt has ended the task, which has no result.
            Err(payload) if is_interrupt(&*payload) => resume_unwind(payload),
            Err(payload) => {
                First::note(first, |first| &mut first.panic, payload);
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

    /// Makes a group without a limit, and a context derived from `context`. The context is cancelled as soon as a task of the
    /// group fails, panics, or ends without a result, or when the first [`wait`](Self::wait) is over. The tasks do not run
    /// under the context by themselves ([`Context::run`] does that).
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
    /// of [`go`](Self::go) that wait at the limit follow the new limit from now on, in any order; a concurrent call that is
    /// about to start its task still counts for the old limit. Does not block.
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
        // Relaxed: serves callers that come later; a concurrent caller finds either the limit or none.
        self.group.limited.store(true, Relaxed);
        let before = std::mem::replace(&mut *self.group.slots.lock(), slots);
        // After the lock. A caller that waits in the old semaphore then looks for the new one.
        if let Some(before) = before {
            before.close();
        }
    }

    /// Runs `f` in a new goroutine. Blocks the calling goroutine while the limit is reached. [`wait`](Self::wait) reports the
    /// error or the panic of `f`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// Outside of a goroutine, and when the goroutine can get no stack, as [`gmp::go`](crate::go). The group is as before then,
    /// and `f` was dropped. [`Builder::go_grouped`](crate::Builder::go_grouped) returns an error instead.
    #[track_caller]
    pub fn go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) {
        let sched = goroutine::here("ErrGroup::go", goroutine::FROM_A_THREAD);
        goroutine::accepted("go", self.go_at(sched, goroutine::plain(sched), Place::Next, f));
    }

    /// As `go`, for a goroutine of `sched`, the caller's scheduler, which stays the same on whatever M the caller resumes after
    /// its wait for a permit.
    ///
    /// # Errors
    /// If the goroutine can get no stack.
    pub(crate) fn go_at(
        &self,
        sched: &Sched<Active>,
        birth: Birth,
        place: Place,
        f: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<()> {
        let slot = loop {
            let Some(slots) = self.slots() else { break Slot(None) };
            // The old semaphore refuses if another limit was set meanwhile.
            let taken = slots.acquire_guard(1).map(SemaphorePermit::forget);
            if taken.is_ok() {
                break Slot(Some(slots));
            }
        };
        self.start(sched, (birth, place), slot, f)
    }

    /// As [`go`](Self::go), if the limit is not reached. At the limit, drops `f` and returns `false`. Does not block.
    ///
    /// # Panics
    /// As `go`.
    #[must_use = "at the limit nothing was started"]
    #[track_caller]
    pub fn try_go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) -> bool {
        let sched = goroutine::here("ErrGroup::try_go", goroutine::FROM_A_THREAD);
        loop {
            let slots = self.slots();
            if slots.as_ref().is_none_or(|slots| slots.try_acquire(1)) {
                let asks = (goroutine::plain(sched), Place::Next);
                goroutine::accepted("go", self.start(sched, asks, Slot(slots), f));
                return true;
            }
            // A closed semaphore says that another limit was set.
            if !slots.is_some_and(|slots| slots.is_closed()) {
                return false;
            }
        }
    }

    fn slots(&self) -> Option<Arc<Semaphore>> {
        // Relaxed: see `set_limit`.
        if self.group.limited.load(Relaxed) { self.group.slots.lock().clone() } else { None }
    }

    fn start(
        &self,
        sched: &Sched<Active>,
        (birth, place): (Birth, Place),
        slot: Slot,
        f: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> io::Result<()> {
        self.group.tasks.add(1);
        let running = Running { group: Arc::clone(&self.group), slot, owes_a_result: false };
        let mut task = Task { f, running };
        let make = move || {
            task.running.owes_a_result = true;
            move || task.run()
        };
        // SAFETY: the closure borrows nothing that ends.
        unsafe { sched.spawn_detached(birth, place, make) }
    }

    /// Blocks the calling goroutine, or the plain thread, until all tasks have ended. A task that the end of its runtime leaves
    /// behind, since it can't be unwound, never ends: a caller of another runtime needs a limit
    /// ([`wait_timeout`](Self::wait_timeout)) to get past it.
    ///
    /// In a destructor of a goroutine that its runtime ends, `Ok` does not say that all tasks have succeeded: the runtime ends
    /// the group's goroutines too, and a task that was ended in this way has neither an error of type `E` nor a panic. A
    /// destructor that does more than wait, such as a commit of the group's work, has to ask [`std::thread::panicking`] first.
    ///
    /// A group that has failed in several ways reports one failure in each `wait`: the first panic, then the first error, then
    /// that a task had no result. So a caller that catches the panic gets the error from another `wait`.
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
        self.group.tasks.wait_in(None);
        self.group.report()
    }

    /// As [`wait`](Self::wait), for at most `timeout`. Returns `None` if tasks still run after that: they continue, and the
    /// call reports and cancels nothing; the next call waits anew. The limit also holds where nothing can be unwound. (To end
    /// the tasks, use the context of [`with_context`](Self::with_context), or contexts of the tasks' own.)
    ///
    /// ```
    /// use gmp::sync::ErrGroup;
    /// use std::time::Duration;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (go_on, hears) = gmp::chan::bounded::<()>(0);
    ///         let group = ErrGroup::<&str>::new();
    ///         group.go(move || hears.recv().map_or(Err("nobody has called"), Ok));
    ///         assert_eq!(group.wait_timeout(Duration::from_millis(1)), None);
    ///         drop(go_on);
    ///         assert_eq!(group.wait_timeout(Duration::from_secs(60)), Some(Err("nobody has called")));
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As `wait`.
    ///
    /// # Panics
    /// As `wait`.
    #[track_caller]
    #[must_use = "`None` says that tasks run still, and `Some` how they have ended"]
    pub fn wait_timeout(&self, timeout: Duration) -> Option<Result<(), E>> {
        self.group.tasks.wait_in(Some(Active::after(timeout))).then(|| self.group.report())
    }

    /// As [`wait_timeout`](Self::wait_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    #[track_caller]
    #[must_use = "`None` says that tasks run still, and `Some` how they have ended"]
    pub fn wait_deadline(&self, deadline: Instant) -> Option<Result<(), E>> {
        self.group.tasks.wait_in(Some(Active::nanos(deadline))).then(|| self.group.report())
    }

    /// As [`wait`](Self::wait), as a future: any task may poll it, on goroutines ([`block_on`](crate::block_on)), on plain
    /// threads and under other executors, and the task that has polled last is woken. The future holds the group, and can be
    /// dropped at any time: failures that no `wait` has reported stay for the next one. Polled again after its end, the future
    /// waits again, and reports the next failure.
    ///
    /// ```
    /// use gmp::sync::ErrGroup;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// let group = runtime.run(|| {
    ///     let group = ErrGroup::new();
    ///     group.go(|| "three".parse::<u32>().map(drop));
    ///     group
    /// });
    /// // On a plain thread, as in a task of any executor.
    /// assert!(gmp::block_on(group.wait_async()).is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The output is as that of `wait`.
    ///
    /// # Panics
    /// A poll panics, or unwinds, if `wait` would do so after its wait.
    pub fn wait_async(&self) -> ErrGroupWait<E> {
        ErrGroupWait::new(Arc::clone(&self.group), AllEnded(TaskIn::new()))
    }
}

/// Waits until the tasks of a group have ended, for a future.
pub(super) struct AllEnded(TaskIn<WaitQueue<()>>);

impl AllEnded {
    fn task(self: Pin<&mut Self>) -> Pin<&mut TaskIn<WaitQueue<()>>> {
        // SAFETY: the task is pinned with this value; nothing moves it.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }
    }

    fn poll(self: Pin<&mut Self>, tasks: &Count, cx: &mut TaskContext<'_>) -> Poll<()> {
        tasks.poll(self.task(), cx)
    }

    fn leave(self: Pin<&mut Self>, tasks: &Count) {
        tasks.leave(self.task());
    }
}

future!(
    /// Waits until the tasks of a group have ended, as a future; made by [`ErrGroup::wait_async`].
    [E] ErrGroupWait<E> { Arc<Group<E>>, AllEnded } -> Result<(), E>,
    |group| &group.tasks, |()| group.report()
);

impl<E> Group<E> {
    /// Takes the failure that `wait` reports, once all tasks have ended.
    #[track_caller]
    fn report(&self) -> Result<(), E> {
        self.cancel_all();
        let mut first = self.first.lock_surely();
        let panic = first.panic.take();
        let error = if panic.is_none() { first.error.take() } else { None };
        drop(first);
        match (panic, error) {
            (Some(payload), _) => resume_unwind(payload),
            (None, Some(error)) => Err(error),
            // The caller's runtime ends, and the caller was awake when the task ended: that is no failure of the program. The
            // flag stays set for a caller of another runtime. Relaxed: see `Running`.
            (None, None)
                if self.unfinished.load(Relaxed)
                    && Sched::<Active>::current().is_some_and(Sched::is_ending) =>
            {
                interrupt::end_here::<Active>();
                Ok(())
            }
            // Relaxed: see `Running`.
            (None, None) if self.unfinished.swap(false, Relaxed) => {
                panic!(
                    "ErrGroup: a goroutine of the group ended without a result, by goexit or with its runtime"
                )
            }
            (None, None) => Ok(()),
        }
    }
}

impl<E> First<E> {
    /// Keeps the first value. A later value is dropped without the lock: it is not reported, and neither is a panic of its
    /// drop.
    fn note<V>(this: &Mutex<Self>, place: impl FnOnce(&mut Self) -> &mut Option<V>, value: V) {
        let mut first = this.lock_surely();
        let place = place(&mut first);
        if place.is_none() {
            *place = Some(value);
            return;
        }
        drop(first);
        call_undisturbed::<Active>(|| drop(value));
    }
}

impl<E> Clone for ErrGroup<E> {
    fn clone(&self) -> Self {
        ErrGroup { group: Arc::clone(&self.group) }
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
