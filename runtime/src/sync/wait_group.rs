//! A wait group: waiting for the end of a number of tasks.
//!
//! ```text
//!   word:  COUNT ×    the number of tasks that have not ended
//!          WAITED     a waiter stands in the queue. Changes under the lock of the queue
//! ```
//! Counting is one exchange. Only a step to zero with WAITED set takes the lock; under the lock that step makes the
//! word 0, and notifies all waiters. So a waiter that comes after the next `add` waits for the next zero, and is not
//! notified by this one.
//!
//! Checked by `models/waitgroup.rs`.

use crate::goroutine;
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::prim::{AcqRel, Acquire, Arc, AtomicI64, Mutex, Rank, Relaxed, Release};
use crate::sched::park::WaitReason;
use crate::sync::condvar::WaitTimeoutResult;
use crate::sync::wait_queue::{Gone, Left, Notified, Position, TaskIn, WaitQueue, wait_in};
use crate::wait::task::TaskWait;
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

const WAITED: i64 = 1;
const COUNT: i64 = 2;

/// Counts tasks, and blocks waiters until the count is zero. Clones share one count. (Go's `sync.WaitGroup`.)
///
/// A wait group can be used again: the waiters are woken when the count reaches zero, even if tasks are added after that. Add a
/// task before it starts, so that a waiter counts it; [`go`](Self::go) does both. Goroutines and plain threads may be mixed.
///
/// ```
/// use gmp::sync::WaitGroup;
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// static SUM: AtomicU32 = AtomicU32::new(0);
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let tasks = WaitGroup::new();
///         for n in 1..=100 {
///             tasks.go(move || {
///                 SUM.fetch_add(n, Ordering::Relaxed);
///             });
///         }
///         tasks.wait();
///         assert_eq!(SUM.load(Ordering::Relaxed), 5050);
///     })
/// }
/// ```
#[derive(Clone)]
pub struct WaitGroup(Arc<Count>);

/// The count, without a handle.
pub(super) struct Count {
    word: AtomicI64,
    waiters: Mutex<WaitQueue<()>>,
}

/// The body of a goroutine of [`WaitGroup::go`]. A task that is dropped unrun counts down after `f` was dropped: fields are
/// dropped in this order.
struct Task<F> {
    f: F,
    done: Done,
}

/// Counts down when dropped.
struct Done(WaitGroup);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl WaitGroup {
    /// Makes a wait group with the count zero.
    #[must_use]
    pub fn new() -> Self {
        WaitGroup(Arc::new(Count::new()))
    }

    /// Adds `delta` to the count. Does not block.
    ///
    /// # Panics
    /// If the count would be negative or too large; nothing has changed then.
    #[track_caller]
    pub fn add(&self, delta: isize) {
        self.0.add(delta);
    }

    /// Subtracts one from the count. Does not block.
    ///
    /// # Panics
    /// If the count is zero.
    #[track_caller]
    pub fn done(&self) {
        self.add(-1);
    }

    /// Blocks the calling goroutine, or the plain thread, until the count is zero.
    ///
    /// ```
    /// use gmp::sync::WaitGroup;
    ///
    /// let tasks = WaitGroup::new();
    /// tasks.add(2);
    /// for task in [tasks.clone(), tasks.clone()] {
    ///     std::thread::spawn(move || task.done());
    /// }
    /// tasks.wait();
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait(&self) {
        self.0.wait_in(None);
    }

    /// As [`wait`](Self::wait), for at most `timeout`. The tasks and their count continue after that. The limit also holds
    /// where nothing can be unwound.
    ///
    /// ```
    /// use gmp::sync::WaitGroup;
    /// use std::time::Duration;
    ///
    /// let tasks = WaitGroup::new();
    /// tasks.add(1);
    /// assert!(tasks.wait_timeout(Duration::from_millis(1)).timed_out());
    /// let theirs = tasks.clone();
    /// std::thread::spawn(move || theirs.done());
    /// assert!(!tasks.wait_timeout(Duration::from_secs(60)).timed_out());
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_timeout(&self, timeout: Duration) -> WaitTimeoutResult {
        WaitTimeoutResult::new(!self.0.wait_in(Some(Active::after(timeout))))
    }

    /// As [`wait_timeout`](Self::wait_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_deadline(&self, deadline: Instant) -> WaitTimeoutResult {
        WaitTimeoutResult::new(!self.0.wait_in(Some(Active::nanos(deadline))))
    }

    /// As [`wait`](Self::wait), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)), on plain threads and under other executors, and the task that has polled last is woken.
    /// The future looks at the count in its first poll, and if the count is not zero waits for the next zero after that. The
    /// future holds a clone of the group, and can be dropped at any time.
    ///
    /// ```
    /// use gmp::sync::WaitGroup;
    ///
    /// let tasks = WaitGroup::new();
    /// tasks.add(1);
    /// let theirs = tasks.clone();
    /// let other = std::thread::spawn(move || theirs.done());
    /// gmp::block_on(tasks.wait_async());
    /// other.join().unwrap();
    /// ```
    pub fn wait_async(&self) -> WaitGroupWait {
        WaitGroupWait { group: self.clone(), task: TaskIn::new() }
    }

    /// Adds one to the count, and runs `f` in a new goroutine. The count is decremented when `f` has ended, also if `f`
    /// unwinds, or never runs because the runtime ends. Does not block. A goroutine that the end of its runtime leaves behind,
    /// since it can't be unwound, stays counted: a waiter of another runtime needs a limit
    /// ([`wait_timeout`](Self::wait_timeout)) to get past it.
    ///
    /// # Panics
    /// Outside of a goroutine, and when the goroutine can get no stack, as [`gmp::go`](crate::go); the count is unchanged then.
    /// [`Builder::go_counted`](crate::Builder::go_counted) returns an error instead.
    #[track_caller]
    pub fn go(&self, f: impl FnOnce() + Send + 'static) {
        let sched = goroutine::here("WaitGroup::go", goroutine::FROM_A_THREAD);
        let task = self.counted(f);
        goroutine::go_detached(sched, || task);
    }

    /// Returns `f` as a task that is counted, until it has run or was dropped.
    #[inline]
    #[track_caller]
    pub(crate) fn counted<F: FnOnce() + Send + 'static>(&self, f: F) -> impl FnOnce() + Send + use<F> {
        self.add(1);
        let task = Task { f, done: Done(self.clone()) };
        move || {
            let Task { f, done: _done } = task;
            f();
        }
    }
}

impl Count {
    pub(super) fn new() -> Self {
        Count { word: AtomicI64::new(0), waiters: Mutex::new(Rank::WaitQueue, WaitQueue::new()) }
    }

    /// As [`WaitGroup::add`].
    #[inline]
    #[track_caller]
    pub(super) fn add(&self, delta: isize) {
        let by = (delta as i64).checked_mul(COUNT);
        let mut seen = self.word.load(Relaxed);
        loop {
            let next = Self::sum(seen, by);
            if seen & WAITED != 0 && next < COUNT {
                return self.reach_zero(by);
            }
            // AcqRel: publishes the caller's work to a waiter that finds zero, and to the caller that takes the last step to
            // zero: partners `found_zero`, and the steps themselves.
            let both = AcqRel.unless(WaitGroupDoneRelaxed);
            match self.word.compare_exchange_weak(seen, next, both, Relaxed) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    #[track_caller]
    fn sum(seen: i64, by: Option<i64>) -> i64 {
        let next = by.and_then(|by| seen.checked_add(by)).expect("WaitGroup: the count does not fit");
        assert!(next >= 0, "WaitGroup: the count is below zero");
        next
    }

    /// Makes the step to zero with WAITED set, unless the count has grown meanwhile.
    #[cold]
    #[track_caller]
    fn reach_zero(&self, by: Option<i64>) {
        let mut notified = Notified::new();
        let mut waiters = self.waiters.lock();
        let mut seen = self.word.load(Relaxed);
        loop {
            let next = Self::sum(seen, by);
            let next = if next < COUNT { 0 } else { next };
            // AcqRel: as in `add`, with the same partners.
            let ordering =
                both(Acquire.unless(WaitGroupReachedLooksRelaxed), Release.unless(WaitGroupReachedRelaxed));
            match self.word.compare_exchange_weak(seen, next, ordering, Relaxed) {
                Ok(_) if (next == 0).unless(WaitGroupWakesNobody) => {
                    waiters.notify_all(&mut notified);
                    break;
                }
                Ok(_) => break,
                Err(now) => seen = now,
            }
        }
        drop(waiters);
        notified.ready();
    }

    /// Returns `true` if the count is zero at this moment.
    pub(super) fn is_zero(&self) -> bool {
        self.word.load(Relaxed) < COUNT
    }

    /// Returns `true` if the count is zero at this moment, for a caller that relies on the tasks' work.
    fn found_zero(&self) -> bool {
        // Acquire: sees the work before the count went down: partners `add` and `reach_zero`.
        self.word.load(Acquire.unless(WaitGroupLookRelaxed)) < COUNT
    }

    /// Waits for zero, until `until` at most. Returns `false` if the limit came first.
    #[inline]
    pub(super) fn wait_in(&self, until: Option<Nanos>) -> bool {
        self.found_zero() || self.park_in(until)
    }

    fn park_in(&self, until: Option<Nanos>) -> bool {
        let wait = Wait::begin();
        let waiters = self.waiters.lock();
        if self.is_zero_or_waited() {
            drop(waiters);
            wait.withdraw();
            return true;
        }
        let how = How::new(WaitReason::WaitGroup).until(until);
        let Err(Left { state: waiters, by }) =
            wait_in(wait, &self.waiters, waiters, ((), Position::Back), how)
        else {
            return true;
        };
        self.note_left(&waiters);
        drop(waiters);
        match by {
            Some(interrupt) => interrupt.throw::<Active>(),
            // The last step to zero may have come together with the limit, and found this wait claimed.
            None => self.found_zero(),
        }
    }

    /// As `wait_in` without a limit, for one poll of a future, whose place in the queue is `task`. `leave` comes before the
    /// drop.
    pub(super) fn poll(&self, task: Pin<&mut TaskIn<WaitQueue<()>>>, cx: &mut Context<'_>) -> Poll<()> {
        if task.is_waiting() {
            return task.poll(cx);
        }
        // Acquire: as in `found_zero`, with the same partners.
        if self.word.load(Acquire.unless(WaitGroupPollRelaxed)) < COUNT {
            return Poll::Ready(());
        }
        let wait = TaskWait::open(cx.waker());
        let mut waiters = self.waiters.lock();
        if self.is_zero_or_waited() {
            drop(waiters);
            wait.withdraw();
            return Poll::Ready(());
        }
        task.join(wait, &mut waiters, ((), Position::Back));
        Poll::Pending
    }

    /// Ends the wait of a future.
    pub(super) fn leave(&self, task: Pin<&mut TaskIn<WaitQueue<()>>>) {
        if let Some(Gone::Left(waiters)) = task.leave(&self.waiters) {
            self.note_left(&waiters);
        }
    }

    /// With the waiters locked: returns `true` if the count is zero; otherwise sets WAITED, for a waiter that is about to
    /// queue.
    fn is_zero_or_waited(&self) -> bool {
        let mut seen = self.word.load(Relaxed);
        loop {
            let zero = (seen < COUNT).unless(WaitGroupNoRecheck);
            let next = if zero { seen } else { seen | WAITED };
            // Acquire: sees the work before the count went down: partners `add` and `reach_zero`.
            let acquire = Acquire.unless(WaitGroupRecheckRelaxed);
            match self.word.compare_exchange_weak(seen, next, acquire, Relaxed) {
                Ok(_) => return zero,
                Err(now) => seen = now,
            }
        }
    }

    /// With the waiters locked: clears WAITED if the waiter that has left was the last.
    fn note_left(&self, waiters: &WaitQueue<()>) {
        mutant!(WaitGroupLeavesUnmarked: { self.word.fetch_and(!WAITED, Relaxed); });
        if waiters.is_empty() {
            self.word.fetch_and(!WAITED, Relaxed);
        }
    }
}

/// Waits for zero, as a future; made by [`WaitGroup::wait_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct WaitGroupWait {
    group: WaitGroup,
    task: TaskIn<WaitQueue<()>>,
}

impl WaitGroupWait {
    fn parts(self: Pin<&mut Self>) -> (&Count, Pin<&mut TaskIn<WaitQueue<()>>>) {
        // SAFETY: `task` is pinned with the future; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (&this.group.0, Pin::new_unchecked(&mut this.task))
        }
    }
}

impl Future for WaitGroupWait {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (count, task) = self.parts();
        count.poll(task, cx)
    }
}

impl Drop for WaitGroupWait {
    fn drop(&mut self) {
        // SAFETY: the future is dropped where it was pinned, if polled, and is never moved again.
        let (count, task) = unsafe { Pin::new_unchecked(self) }.parts();
        count.leave(task);
    }
}

impl fmt::Debug for WaitGroupWait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroupWait").field("group", &self.group).finish_non_exhaustive()
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup").field("count", &(self.word.load(Relaxed) / COUNT)).finish()
    }
}
