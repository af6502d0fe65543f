//! A closure that runs once.

use crate::goroutine::own_frame::in_own_frame;
use crate::host::Active;
use crate::impls::opaque;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Mutex, Rank, Relaxed, Release, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{Notified, Position, TaskIn, WaitQueue, wait_in};
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::task::TaskWait;
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::cell::Cell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

const NEW: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;
const POISONED: u32 = 3;

/// Runs a closure once, however many callers there are; every caller returns after the closure has ended. Signatures
/// and behaviour are those of `std::sync::Once`; a goroutine that has to wait for another's closure parks, a plain
/// thread blocks.
///
/// The closure runs without any lock of the library, and may park. A closure that calls the same `Once` again waits for its own
/// end. A closure that unwinds poisons the `Once`, and so does a closure whose goroutine is left behind by the end of its
/// runtime. Goroutines that such a closure has started, for example in a [`scope`](crate::scope), may run on beside the closure
/// that [`call_once_force`](Self::call_once_force) runs next.
///
/// ```
/// use gmp::sync::Once;
///
/// static ONCE: Once = Once::new();
/// ONCE.call_once(|| println!("this is printed once"));
/// ONCE.call_once(|| unreachable!());
/// assert!(ONCE.is_completed());
/// ```
pub struct Once {
    word: AtomicU32,
    waiters: Mutex<WaitQueue<()>>,
}

/// The state that [`Once::call_once_force`] passes to its closure.
///
/// ```
/// use gmp::sync::Once;
/// use std::panic::catch_unwind;
///
/// static SETUP: Once = Once::new();
/// assert!(catch_unwind(|| SETUP.call_once(|| panic!("no"))).is_err());
/// SETUP.call_once_force(|state| assert!(state.is_poisoned()));
/// assert!(SETUP.is_completed());
/// ```
pub struct OnceState {
    poisoned: bool,
}

impl OnceState {
    /// Returns `true` if an earlier closure has unwound.
    pub fn is_poisoned(&self) -> bool {
        self.poisoned
    }
}

impl fmt::Debug for OnceState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceState").field("poisoned", &self.poisoned).finish()
    }
}

/// Ends the run of a closure, also if the closure unwinds, or never resumes: its hook is noted when the closure begins.
#[repr(C)]
struct Run<'a> {
    hook: StandingHook,
    once: &'a Once,
    leaves: Cell<u32>,
}

impl Run<'_> {
    /// Ends the run of a closure whose goroutine is left behind.
    ///
    /// # Safety
    /// `hook` is the hook of a `Run`.
    unsafe fn is_left(hook: *const AbandonHook) {
        // SAFETY: by this function's contract. The goroutine's stack stays, and with it the borrow of the `Once`.
        let notified = unsafe { &*hook.cast::<Self>() }.once.end(POISONED);
        // No user code may run where a hook is run (`sched/stop.rs`).
        notified.ready_elsewhere();
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // SAFETY: the hook was noted, and is still there.
        unsafe { StandingHook::take_back(&raw const self.hook) };
        self.once.end(self.leaves.get()).ready();
    }
}

impl Once {
    const_fn! {
        /// Makes a `Once` whose closure has not run.
        pub fn new() -> Self {
            Once { word: AtomicU32::new(NEW), waiters: Mutex::new(Rank::WaitQueue, WaitQueue::new()) }
        }
    }

    /// Runs `f`, if no closure has run yet. When the call returns, a closure has run to its end. Blocks the calling
    /// goroutine, or the plain thread, while another caller's closure runs.
    ///
    /// ```
    /// static SETUP: gmp::sync::Once = gmp::sync::Once::new();
    ///
    /// SETUP.call_once(|| println!("once"));
    /// SETUP.call_once(|| unreachable!("it has run"));
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// If an earlier closure has unwound: the `Once` is poisoned. A panic of `f` propagates.
    #[inline]
    #[track_caller]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.is_completed() {
            self.call("Once instance has previously been poisoned", false, |_state| {
                f();
                true
            });
        }
    }

    /// As [`call_once`](Self::call_once), but runs `f` even if the `Once` is poisoned. The poison is gone when `f`
    /// returns.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    #[inline]
    #[track_caller]
    pub fn call_once_force(&self, f: impl FnOnce(&OnceState)) {
        if !self.is_completed() {
            self.call("", true, |state| {
                f(state);
                true
            });
        }
    }

    /// Returns `true` if a closure has run to its end.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // Acquire: sees the closure's work: partner `end`.
        self.word.load(Acquire.unless(OnceLookRelaxed)) == DONE
    }

    /// Blocks the calling goroutine, or the plain thread, until a closure has run to its end.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Panics
    /// If a closure has unwound.
    #[track_caller]
    pub fn wait(&self) {
        while !self.is_completed() {
            assert!(self.word.load(Relaxed) != POISONED, "Once instance has previously been poisoned");
            self.park_while(|word| word == NEW || word == RUNNING, None);
        }
    }

    /// As [`wait`](Self::wait), but continues to wait if a closure has unwound.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_force(&self) {
        self.wait_force_in(None);
    }

    /// As `wait_force`, until `until` at most.
    pub(super) fn wait_force_in(&self, until: Option<Nanos>) {
        while !self.is_completed() && self.park_while(|word| word != DONE, until) {}
    }

    /// Runs `f`, which returns `true` if this run completes the `Once`. If `f` returns `false`, the call ends and leaves the
    /// `Once` as a closure does that has unwound.
    #[cold]
    #[track_caller]
    pub(super) fn call(&self, poisoned: &str, force: bool, f: impl FnOnce(&OnceState) -> bool) {
        loop {
            // Acquire: as in `is_completed`, with the same partner.
            match self.word.load(Acquire.unless(OnceCallLooksRelaxed)) {
                DONE => return,
                RUNNING => _ = self.park_while(|word| word == RUNNING, None),
                POISONED if !force => panic!("{poisoned}"),
                seen => {
                    // Acquire: sees the work of an earlier closure that unwound: partner `end`. The Acquire has to be the
                    // exchange's own: since the look another closure might have unwound.
                    let acquire = Acquire.unless(OnceBeginsRelaxed);
                    if self.word.compare_exchange(seen, RUNNING, acquire, Relaxed).is_err() {
                        continue;
                    }
                    let (hook, leaves) = (StandingHook::new(Run::is_left), Cell::new(POISONED));
                    let run = Run { hook, once: self, leaves };
                    // SAFETY: the hook is the first field of `run`, whose drop takes it back.
                    unsafe { StandingHook::note((&raw const run).cast()) };
                    let state = OnceState { poisoned: seen == POISONED };
                    if in_own_frame(|| f(&state)) {
                        run.leaves.set(DONE);
                    }
                    return;
                }
            }
        }
    }

    /// Ends the run of a closure, and notifies the waiters, which the caller readies.
    fn end(&self, leaves: u32) -> Notified<()> {
        let mut notified = Notified::new();
        let mut waiters = self.waiters.lock();
        // Release: publishes the closure's work to callers that find the `Once` done: partners `is_completed` and `call`.
        self.word.store(leaves, Release.unless(OnceDoneRelaxed));
        unless!(OnceWakesNobody, _ = waiters.notify_all(&mut notified));
        drop(waiters);
        notified
    }

    /// Waits until a closure ends, unless `so` does not hold for the word, and until `until` at most. Returns `false` if the
    /// limit came first.
    fn park_while(&self, so: impl Fn(u32) -> bool, until: Option<Nanos>) -> bool {
        let wait = Wait::begin();
        let waiters = self.waiters.lock();
        // Relaxed: read under the lock under which a closure ends.
        if (!so(self.word.load(Relaxed))).unless(OnceNoRecheck) {
            drop(waiters);
            wait.withdraw();
            return true;
        }
        let how = How::new(WaitReason::Once).until(until);
        match wait_in(wait, &self.waiters, waiters, ((), Position::Back), how).map_err(|left| left.by) {
            Ok(()) => true,
            Err(None) => false,
            Err(Some(interrupt)) => interrupt.throw::<Active>(),
        }
    }
}

/// As [`Once::wait_force`], for a future. Each end of a closure notifies all waiters, so a future that is dropped has nothing
/// to pass on.
pub(super) struct Completion(TaskIn<WaitQueue<()>>);

impl Completion {
    pub(super) fn new() -> Self {
        Completion(TaskIn::new())
    }

    fn task(self: Pin<&mut Self>) -> Pin<&mut TaskIn<WaitQueue<()>>> {
        // SAFETY: the task is pinned with this value; nothing moves it.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }
    }

    pub(super) fn poll(self: Pin<&mut Self>, once: &Once, cx: &mut Context<'_>) -> Poll<()> {
        let mut task = self.task();
        if task.is_waiting() && task.as_mut().poll(cx).is_pending() {
            return Poll::Pending;
        }
        if once.is_completed() {
            return Poll::Ready(());
        }
        // Before the lock, as foreign code clones the waker.
        let wait = TaskWait::open(cx.waker());
        let mut waiters = once.waiters.lock();
        if once.is_completed().unless(OncePollNoRecheck) {
            drop(waiters);
            wait.withdraw();
            return Poll::Ready(());
        }
        task.join(wait, &mut waiters, ((), Position::Back));
        Poll::Pending
    }

    pub(super) fn leave(self: Pin<&mut Self>, once: &Once) {
        let _gone = self.task().leave(&once.waiters);
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

opaque!(Once);
