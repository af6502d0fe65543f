//! A closure that runs once.

use crate::goroutine::own_frame::in_own_frame;
use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Acquire, AtomicU32, Mutex, Rank, Relaxed, Release, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Notified, Position, WaitQueue, wait_in};
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::waiter::{How, Wait};
use std::cell::Cell;
use std::fmt;

const NEW: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;
const POISONED: u32 = 3;

/// Runs a closure once, however many callers there are; every caller returns after the closure has ended. Signatures
/// and behaviour are those of `std::sync::Once`; a goroutine that has to wait for another's closure parks, a plain
/// thread blocks.
///
/// The closure runs without any lock of the library, and may park. A closure that calls the same `Once` again waits for
/// its own end. A closure that unwinds poisons the `Once`, and so does a closure whose goroutine is left behind by the end of
/// its runtime. What such a closure has started, goroutines of a [`scope`](crate::scope) for example, may run on beside the
/// closure that [`call_once_force`](Self::call_once_force) runs next.
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
    waiters: Mutex<Waiting>,
}

struct Waiting(WaitQueue<()>);

impl HasWaitQueue for Waiting {
    type Want = ();
    fn waiters(&mut self, _want: &()) -> &mut WaitQueue<()> {
        &mut self.0
    }
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

/// Ends the run of a closure, also of a closure that unwinds, or that never goes on: its hook is noted when the closure begins.
#[repr(C)]
struct Run<'a> {
    hook: StandingHook,
    once: &'a Once,
    leaves: Cell<u32>,
}

impl Run<'_> {
    /// For a closure whose goroutine is left behind.
    ///
    /// # Safety
    /// `hook` is that of a `Run`.
    unsafe fn is_left(hook: *const AbandonHook) {
        // SAFETY: by this function's contract. The goroutine's stack stays, and with it the loan of the `Once`.
        unsafe { &*hook.cast::<Self>() }.once.end(POISONED);
    }
}

impl Drop for Run<'_> {
    fn drop(&mut self) {
        // SAFETY: the hook was noted, and is still there.
        unsafe { StandingHook::take_back(&raw const self.hook) };
        self.once.end(self.leaves.get());
    }
}

impl Once {
    const_fn! {
        /// Makes a `Once` whose closure has not run.
        pub fn new() -> Self {
            Once { word: AtomicU32::new(NEW), waiters: Mutex::new(Rank::WaitQueue, Waiting(WaitQueue::new())) }
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
    /// If an earlier closure has unwound: the `Once` is poisoned. If `f` panics, its panic goes on.
    #[inline]
    #[track_caller]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.is_completed() {
            self.call("Once instance has previously been poisoned", false, |_state| f());
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
            self.call("", true, f);
        }
    }

    /// Returns `true` if a closure has run to its end.
    #[inline]
    pub fn is_completed(&self) -> bool {
        // Acquire: what the closure did: partner `end`.
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
            self.park_while(|word| word == NEW || word == RUNNING);
        }
    }

    /// As [`wait`](Self::wait), but goes on waiting if a closure has unwound.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_force(&self) {
        while !self.is_completed() {
            self.park_while(|word| word != DONE);
        }
    }

    #[cold]
    #[track_caller]
    pub(super) fn call(&self, poisoned: &str, force: bool, f: impl FnOnce(&OnceState)) {
        loop {
            // Acquire: as in `is_completed`, with the same partner.
            match self.word.load(Acquire.unless(OnceLookRelaxed)) {
                DONE => return,
                RUNNING => self.park_while(|word| word == RUNNING),
                POISONED if !force => panic!("{poisoned}"),
                seen => {
                    // Acquire: what an earlier closure did before unwinding: partner `end`.
                    if self.word.compare_exchange(seen, RUNNING, Acquire, Relaxed).is_err() {
                        continue;
                    }
                    let (hook, leaves) = (StandingHook::new(Run::is_left), Cell::new(POISONED));
                    let run = Run { hook, once: self, leaves };
                    // SAFETY: the hook is the first field of `run`, whose drop takes it back.
                    unsafe { StandingHook::note((&raw const run).cast()) };
                    let state = OnceState { poisoned: seen == POISONED };
                    in_own_frame(|| f(&state));
                    run.leaves.set(DONE);
                    return;
                }
            }
        }
    }

    /// The run of a closure is over.
    fn end(&self, leaves: u32) {
        let mut notified = Notified::new();
        let mut waiters = self.waiters.lock();
        // Release: what the closure did, for the callers that find the `Once` done: partners `is_completed` and `call`.
        self.word.store(leaves, Release.unless(OnceDoneRelaxed));
        waiters.0.notify_all(&mut notified);
        drop(waiters);
        notified.ready();
    }

    /// Waits until a closure ends, as long as `so` holds for the word.
    fn park_while(&self, so: impl Fn(u32) -> bool) {
        let wait = Wait::begin();
        let waiters = self.waiters.lock();
        // Relaxed: under the lock in which a closure ends.
        if (!so(self.word.load(Relaxed))).unless(OnceNoRecheck) {
            drop(waiters);
            wait.withdraw();
            return;
        }
        let how = How::new(WaitReason::Once);
        if let Err(left) = wait_in(wait, &self.waiters, waiters, ((), Position::Back), how) {
            drop(left.state);
            let interrupt = left.by.expect("park_while: a wait without a limit was called or interrupted");
            interrupt.throw::<Active>();
        }
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").finish_non_exhaustive()
    }
}
