//! A notification that is kept for the next waiter.

mod future;

pub use future::EventWait;

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Mutex, Rank, const_fn};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::queue::{Node, Queue};
use crate::wait::task::Readied;
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;

/// A waiter.
struct Record {
    waiter: Waiter<Active>,
    /// `notify_one` has notified this waiter, and no other. Written by the notifier that has claimed the wait.
    alone: Cell<bool>,
}

impl Record {
    fn new(waiter: Waiter<Active>) -> Self {
        Record { waiter, alone: Cell::new(false) }
    }

    /// For the owner of a record that was notified: whether a notification is lost if the owner does not act on it.
    fn is_the_only_one(&self) -> bool {
        self.alone.get()
    }
}

// SAFETY: the cell belongs to the notifier that has claimed the wait, and from the ready on to the owner.
unsafe impl Send for Record {}

struct State {
    /// A notification that no waiter has taken yet. Never set while a waiter that can be claimed is in the queue.
    permit: bool,
    waiters: Queue<Record>,
}

impl State {
    fn take_permit(&mut self) -> bool {
        std::mem::take(&mut self.permit)
    }
}

/// A notification for a waiter: like a condition variable, but without a mutex, and with one permit.
///
/// [`notify_one`](Self::notify_one) wakes the waiter that has waited longest. If there is no waiter, the call leaves a
/// permit, which the next [`wait`](Self::wait) takes instead of blocking; permits do not add up. Writes before a
/// notification are visible after the wait that the notification ends; there are no spurious wake-ups. Goroutines and
/// plain threads may be mixed on both sides. A notification for a goroutine whose runtime then ends is lost with the
/// goroutine.
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
            Event { state: Mutex::new(Rank::WaitQueue, State { permit: false, waiters: Queue::new() }) }
        }
    }

    /// Blocks the calling goroutine, or the plain thread, until a notification. If there is a permit, takes that and
    /// returns at once.
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
        let mut wait = Wait::begin();
        let mut state = self.state.lock();
        if state.take_permit() {
            drop(state);
            wait.withdraw();
            return;
        }
        let record = Node::new(Record::new(wait.waiter()));
        let node = NonNull::from(&record);
        // SAFETY: before this frame ends the record is taken out of the queue, by the notifier that has claimed the
        // wait or below.
        unsafe { state.waiters.push_back(node) };
        let woke = wait.park(How::new(WaitReason::Event), move || {
            drop(state);
            Commit::Park
        });
        if let Woke::Interrupted(why) = woke {
            // SAFETY: the record stands in this queue, or a notifier has found the wait claimed and taken the record
            // out.
            unsafe { self.state.lock().waiters.remove(node) };
            // A throw stops at each frame that has something to drop.
            drop((wait, record));
            why.throw::<Active>();
        }
    }

    /// As [`wait`](Self::wait), as a future: blocks nothing, and may be polled by any task, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future joins the queue in its first poll. A future
    /// that is dropped before it is ready leaves the queue, and one that was notified by [`notify_one`](Self::notify_one)
    /// passes the notification on. Polled again after its end it waits for another notification.
    ///
    /// ```
    /// use gmp::sync::Event;
    ///
    /// let event = Event::new();
    /// event.notify_one();
    /// gmp::block_on(event.wait_async());
    /// ```
    pub fn wait_async(&self) -> EventWait<'_> {
        EventWait::new(self)
    }

    /// Wakes the waiter that has waited longest, or leaves a permit. Does not block.
    pub fn notify_one(&self) {
        let mut state = self.state.lock();
        let claimed = loop {
            let Some(first) = state.waiters.pop_front() else { break None };
            // SAFETY: the queue is locked, and has the record.
            let record = unsafe { &first.as_ref().value };
            // A waiter that can't be claimed was interrupted, or left behind by its runtime: the next one is tried.
            if record.waiter.claim() {
                record.alone.set(true);
                break Some(record);
            }
        };
        state.permit |= claimed.is_none().unless(EventLeavesNoPermit);
        drop(state);
        if let Some(record) = claimed {
            record.waiter.ready();
        }
    }

    /// Wakes all present waiters. Leaves no permit. Does not block.
    pub fn notify_all(&self) {
        let mut woken = Vec::new();
        let mut state = self.state.lock();
        while let Some(first) = state.waiters.pop_front() {
            // SAFETY: as in `notify_one`.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.claim() {
                woken.push(record.waiter.clone());
            }
        }
        drop(state);
        let mut readied = Readied::new();
        woken.iter().for_each(|waiter| waiter.ready_with(&mut readied));
        readied.call_wakers();
    }
}

impl Default for Event {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        let waiting = state.waiters.iter().count();
        f.debug_struct("Event").field("permit", &state.permit).field("waiting", &waiting).finish()
    }
}
