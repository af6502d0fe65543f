//! A notification that waits for its waiter.

use crate::host::Active;
use crate::prim::{Mutant, Mutex, Rank, const_fn, mutated};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use std::fmt;
use std::ptr::NonNull;

/// One who waits.
struct Record {
    waiter: Waiter<Active>,
}

struct State {
    /// A notification that nobody was there to take. Never beside a waiter that could.
    permit: bool,
    waiters: Queue<Record>,
}

/// Something happens, and whoever waits for it goes on: the blocking form of a condition without a lock.
///
/// [`notify_one`](Self::notify_one) wakes the one who has waited longest. When nobody waits it leaves one permit,
/// which the next [`wait`](Self::wait) takes instead of blocking; more than one permit are one. What came before a
/// notification is seen after the wait that it ends; no wait ends without one. Goroutines and plain threads may be mixed
/// on both sides. A notification that was given to a goroutine whose runtime then ends goes with it.
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
        /// Nobody waits, and there is no permit.
        pub fn new() -> Self {
            Event { state: Mutex::new(Rank::WaitQueue, State { permit: false, waiters: Queue::new() }) }
        }
    }

    /// Blocks the calling goroutine, or the plain thread, until it is notified. Takes a permit that is there
    /// and returns at once.
    ///
    /// # Unwinds
    /// When its wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn wait(&self) {
        let mut wait = Wait::begin();
        let mut state = self.state.lock();
        if std::mem::take(&mut state.permit) {
            drop(state);
            wait.withdraw();
            return;
        }
        let record = Node::new(Record { waiter: wait.waiter() });
        let node = NonNull::from(&record);
        // SAFETY: it is taken out below, or was by whoever has claimed the wait, before this frame goes.
        unsafe { state.waiters.push_back(node) };
        let woke = wait.park(How::new(WaitReason::Event), move || {
            drop(state);
            Commit::Park
        });
        if let Woke::Interrupted(why) = woke {
            // SAFETY: it stands in this queue, or a notification has found it claimed and taken it out.
            unsafe { self.state.lock().waiters.remove(node) };
            why.throw::<Active>();
        }
    }

    /// Wakes the one who has waited longest, or leaves a permit. Does not block.
    pub fn notify_one(&self) {
        let mut state = self.state.lock();
        let claimed = loop {
            let Some(first) = state.waiters.pop_front() else { break None };
            // SAFETY: the queue is locked, and it stood there.
            let record = unsafe { &first.as_ref().value };
            // A waiter that can't be claimed was interrupted, or left behind by its runtime: the next one is tried.
            if record.waiter.claim() {
                break Some(record);
            }
        };
        state.permit |= claimed.is_none() && !mutated(Mutant::EventLeavesNoPermit);
        drop(state);
        if let Some(record) = claimed {
            record.waiter.ready();
        }
    }

    /// Wakes all who wait now, and nobody who comes later: leaves no permit. Does not block.
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
        woken.iter().for_each(Waiter::ready);
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
