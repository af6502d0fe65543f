//! Waiting for each other: [`Event`].

use crate::host::Active;
use crate::prim::{Mutant, Mutex, mutated};
use crate::sched::park::{Commit, WaitReason};
use crate::status::Woke;
use crate::waiter::{Wait, Waiter};
use std::collections::VecDeque;
use std::fmt;

#[derive(Default)]
struct State {
    /// A notification that nobody was there to take. Never beside a waiter that could.
    permit: bool,
    waiters: VecDeque<Waiter<Active>>,
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
#[derive(Default)]
pub struct Event {
    state: Mutex<State>,
}

impl Event {
    /// Nobody waits, and there is no permit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Blocks the calling goroutine, or the plain thread, until it is notified. Takes a permit that is there
    /// and returns at once.
    pub fn wait(&self) {
        let wait = Wait::begin();
        let mut state = self.state.lock();
        if std::mem::take(&mut state.permit) {
            drop(state);
            wait.withdraw();
            return;
        }
        state.waiters.push_back(wait.waiter());
        let woke = wait.park(WaitReason::Event, move || {
            drop(state);
            Commit::Park
        });
        debug_assert_eq!(woke, Woke::Readied, "only a notification wakes a waiter");
    }

    /// Wakes the one who has waited longest, or leaves a permit. Does not block.
    pub fn notify_one(&self) {
        loop {
            let first = {
                let mut state = self.state.lock();
                let first = state.waiters.pop_front();
                state.permit |= first.is_none() && !mutated(Mutant::EventLeavesNoPermit);
                first
            };
            // Who can't be claimed was left behind by its runtime: then it is the next one's turn.
            if first.is_none_or(Waiter::wake) {
                return;
            }
        }
    }

    /// Wakes all who wait now, and nobody who comes later: leaves no permit. Does not block.
    pub fn notify_all(&self) {
        let waiters = std::mem::take(&mut self.state.lock().waiters);
        for waiter in waiters {
            waiter.wake();
        }
    }
}

impl fmt::Debug for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Event").field("permit", &state.permit).field("waiting", &state.waiters.len()).finish()
    }
}
