//! A notification that is kept for the next waiter.
//!
//! A permit and a wait queue lie under one lock. A notifier claims the wait of the first waiter, or leaves the permit; so a
//! notification that comes before the wait ends the wait at once. The permit is left only if no waiter can be claimed. So if
//! the waiter that `notify_one` has claimed does not act on the notification (a future that is dropped, a goroutine that its
//! runtime leaves behind), the notification is passed on like a new one. `notify_all` serves the waiters of that moment: a
//! notification from it that a waiter does not act on is lost.
//!
//! Checked by `models/event.rs`, and `models/task.rs` for futures.

mod future;

pub(super) use future::Hearing;

use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::prim::{Mutex, Rank, const_fn};
use crate::sched::park::WaitReason;
use crate::sync::condvar::WaitTimeoutResult;
use crate::sync::futures::EventWait;
use crate::sync::wait_queue::{HasWaitQueue, Notified, NotifiedOne, Position, WaitQueue, wait_in_and};
use crate::wait::task::Readied;
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::cell::Cell;
use std::fmt;
use std::time::{Duration, Instant};

/// A waiter's request in the queue.
struct Ask {
    event: *const Event,
    /// `notify_one` has notified this waiter alone. Written by the notifier that has claimed the wait.
    alone: Cell<bool>,
}

// SAFETY: the event is Sync; the cell belongs to the notifier that has claimed the wait, and to the owner once readied.
unsafe impl Send for Ask {}

impl Ask {
    fn new(event: &Event) -> Self {
        Ask { event, alone: Cell::new(false) }
    }
}

struct State {
    /// A notification that no waiter has taken yet. Never set while a waiter that can be claimed is in the queue.
    permit: bool,
    waiters: WaitQueue<Ask>,
}

impl State {
    fn take_permit(&mut self) -> bool {
        std::mem::take(&mut self.permit)
    }
}

impl HasWaitQueue for State {
    type Want = Ask;
    fn waiters(&mut self, _ask: &Ask) -> &mut WaitQueue<Ask> {
        &mut self.waiters
    }
    fn settle(ask: &Ask, notified: bool) -> Readied<Active> {
        // SAFETY: the record's owner borrows the event: for good, if the owner never runs again, or at least until this call is
        // over.
        let event = unsafe { &*ask.event };
        let alone = (notified && ask.alone.get()).unless(EventStaysWithTheLeft);
        let next = if alone { event.claim_one() } else { None };
        next.map_or_else(Readied::new, NotifiedOne::ready_in_silence)
    }
}

/// A notification for a waiter: like a condition variable, but without a mutex, and with one permit.
///
/// [`notify_one`](Self::notify_one) wakes the waiter that has waited longest. If there is no waiter, the call leaves a permit,
/// which the next [`wait`](Self::wait) takes instead of blocking; permits do not add up. Writes before a notification are
/// visible after the wait that the notification ends; there are no spurious wake-ups. Goroutines and plain threads may be mixed
/// on both sides. If a goroutine is notified, but the end of its runtime leaves it in the wait, a `notify_one` goes to the next
/// waiter, or leaves the permit; a `notify_all` is not passed on.
///
/// ```
/// use gmp::{go, sync::Event};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (ping, pong) = (Arc::new(Event::new()), Arc::new(Event::new()));
///         let (hears, answers) = (Arc::clone(&ping), Arc::clone(&pong));
///         let other = go(move || {
///             for _ in 0..10 {
///                 hears.wait();
///                 answers.notify_one();
///             }
///         });
///         for _ in 0..10 {
///             ping.notify_one();
///             pong.wait();
///         }
///         other.join().unwrap();
///     })
/// }
/// ```
#[doc(alias = "Notify")]
pub struct Event {
    state: Mutex<State>,
}

impl Event {
    const_fn! {
        /// Makes an event without waiters and without a permit.
        pub fn new() -> Self {
            Event { state: Mutex::new(Rank::WaitQueue, State { permit: false, waiters: WaitQueue::new() }) }
        }
    }

    /// Blocks the calling goroutine, or the plain thread, until a notification. If there is a permit, takes it and returns at
    /// once.
    ///
    /// ```
    /// use gmp::sync::Event;
    ///
    /// let ready = Event::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| ready.notify_one());
    ///     ready.wait();
    /// });
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait(&self) {
        self.wait_in(None, || {});
    }

    /// As [`wait`](Self::wait), for at most `timeout`. A notification that comes later goes to another waiter, or is kept. The
    /// limit also holds where nothing can be unwound.
    ///
    /// ```
    /// use gmp::sync::Event;
    /// use std::time::Duration;
    ///
    /// let ready = Event::new();
    /// assert!(ready.wait_timeout(Duration::from_millis(1)).timed_out());
    /// ready.notify_one();
    /// assert!(!ready.wait_timeout(Duration::from_secs(60)).timed_out());
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_timeout(&self, timeout: Duration) -> WaitTimeoutResult {
        self.wait_until(Active::after(timeout))
    }

    /// As [`wait_timeout`](Self::wait_timeout), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait_deadline(&self, deadline: Instant) -> WaitTimeoutResult {
        self.wait_until(Active::nanos(deadline))
    }

    #[inline(never)]
    fn wait_until(&self, until: Nanos) -> WaitTimeoutResult {
        WaitTimeoutResult::new(!self.wait_in(Some(until), || {}))
    }

    /// Waits until `until` at most. Returns `false` if the limit came first. `then` does nothing: its type makes the wait
    /// without a limit a function of its own, with one caller, which is inlined as a whole.
    #[inline(always)]
    fn wait_in(&self, until: Option<Nanos>, then: impl FnOnce()) -> bool {
        let wait = Wait::begin();
        let mut state = self.state.lock();
        if state.take_permit() {
            drop(state);
            wait.withdraw();
            return true;
        }
        let (place, how) = ((Ask::new(self), Position::Back), How::new(WaitReason::Event).until(until));
        match wait_in_and(wait, (&self.state, state), place, how, then).map_err(|left| left.by) {
            Ok(_notified) => true,
            Err(None) => false,
            Err(Some(interrupt)) => interrupt.throw::<Active>(),
        }
    }

    /// As [`wait`](Self::wait), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future joins the queue in its first poll. A future that
    /// is dropped before it is ready leaves the queue, and passes a notification of [`notify_one`](Self::notify_one) on. Polled
    /// again after its end, the future waits for another notification.
    ///
    /// ```
    /// use gmp::sync::Event;
    ///
    /// let event = Event::new();
    /// event.notify_one();
    /// gmp::block_on(event.wait_async());
    /// ```
    pub fn wait_async(&self) -> EventWait<'_> {
        EventWait::new(self, Hearing::new())
    }

    /// Wakes the waiter that has waited longest, or leaves a permit. Does not block.
    pub fn notify_one(&self) {
        if let Some(waiter) = self.claim_one() {
            waiter.ready();
        }
    }

    /// Does the first half of `notify_one`: the caller readies the waiter.
    #[inline(always)]
    fn claim_one(&self) -> Option<NotifiedOne<Ask>> {
        let mut state = self.state.lock();
        let notified = state.waiters.notify_one();
        match &notified {
            Some(waiter) => waiter.want().alone.set(true),
            None => unless!(EventLeavesNoPermit, state.permit = true),
        }
        notified
    }

    /// Wakes all present waiters. Leaves no permit. Does not block.
    pub fn notify_all(&self) {
        let mut notified = Notified::new();
        self.state.lock().waiters.notify_all(&mut notified);
        notified.ready();
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The program's writer is called when the lock is free: the writer may use the event, or park.
        let (permit, waiting) = {
            let state = self.state.lock();
            (state.permit, state.waiters.len())
        };
        f.debug_struct("Event").field("permit", &permit).field("waiting", &waiting).finish()
    }
}
