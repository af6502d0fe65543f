//! The value, the count of its changes, and the waiters for a change.
//!
//! *After the end* no receiver is notified of a change. A receiver learns of the end, under the lock of the count, when it has
//! seen all changes. So a change is counted under that lock, and only while the channel is not closed. The obvious look, before
//! the sender waits for the value, comes too early: during the wait the channel can be closed, and a receiver can learn of
//! that. `send` counts before it changes the value, as a `send` that is refused changes nothing; a change by the user's
//! function comes before the count, and stays.
//!
//! Checked by `models/several.rs`.

use super::{Receiver, RecvError, Ref};
use crate::chan::several::{self, Bell, Bells, HasParties, Parties, Side};
use crate::prim::hooks::*;
use crate::prim::{Arc, Mutex, Rank};
use crate::sync::wait_queue::{HasWaitQueue, Notified, WaitQueue};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use gmp_timers::Nanos;
use std::mem;

pub(super) struct State {
    /// The number of changes of the value.
    pub(super) version: u64,
    pub(super) parties: Parties,
}

impl State {
    /// Returns what a receiver that has `seen` this many changes waits for: the count after another change, or the close.
    pub(super) fn changed_since(&self, seen: u64) -> Option<Result<u64, RecvError>> {
        match self.version != seen {
            true => Some(Ok(self.version)),
            false => self.parties.closed.then_some(Err(RecvError)),
        }
    }
}

impl HasParties for State {
    fn parties(&mut self) -> &mut Parties {
        &mut self.parties
    }
}

impl HasWaitQueue for State {
    type Want = Side;
    fn waiters(&mut self, side: &Side) -> &mut WaitQueue<Side> {
        self.parties.queue(*side)
    }
}

/// The waiters that are told of a change once the value is unlocked.
#[must_use]
pub(super) struct Told {
    notified: Notified<Side>,
    rings: bool,
}

pub(super) struct Shared<T> {
    pub(super) value: RwLock<T>,
    pub(super) state: Mutex<State>,
    pub(super) bells: Bells,
}

impl<T> Shared<T> {
    pub(super) fn new(value: T, receivers: usize) -> Arc<Self> {
        let state = State { version: 0, parties: Parties::new(receivers) };
        let state = Mutex::new(Rank::WaitQueue, state);
        Arc::new(Shared { value: RwLock::new(value), state, bells: Bells::new() })
    }

    pub(super) fn subscribe(self: &Arc<Self>) -> Receiver<T> {
        let seen = several::join(&self.state, Side::Receivers).version;
        Receiver { shared: Arc::clone(self), seen, bell: None }
    }

    /// Reads the value for a receiver, and sets `seen` to the value's count. A wait that unwinds, or comes to its limit
    /// (`None`), leaves the value unseen, and rings again.
    pub(super) fn see(
        &self,
        bell: Option<&Bell>,
        seen: &mut u64,
        until: Option<Nanos>,
    ) -> Option<Ref<'_, T>> {
        let mut leaves = self.bells.leaves(bell);
        let value = self.value.read_until(until)?;
        leaves.news = false;
        Some(self.saw(value, seen))
    }

    /// Counts the value that was read as seen.
    pub(super) fn saw<'a>(&self, value: RwLockReadGuard<'a, T>, seen: &mut u64) -> Ref<'a, T> {
        let version = self.state.lock().version;
        Ref { value, changed: mem::replace(seen, version) != version }
    }

    /// Rings again if there is a change beyond `seen`, as a receiver's wait was given up whose caller may have heard the bell.
    pub(super) fn ring_for_the_rest(&self, bell: Option<&Bell>, seen: u64) {
        if bell.is_some() && self.state.lock().version != seen {
            self.bells.ring(bell);
        }
    }

    /// Counts a change of the value, which the caller has locked, and claims the receivers that wait for it. Returns `None` if
    /// `is_over` returns `true`: then no receiver is told.
    pub(super) fn count(&self, is_over: impl FnOnce(&Parties) -> bool) -> Option<Told> {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        if is_over(&state.parties).unless(WatchCountsAfterTheEnd) {
            return None;
        }
        unless!(WatchCountsLate, state.version += 1);
        let rings = state.parties.tell_receivers(&mut notified);
        Some(Told { notified, rings })
    }

    /// Unlocks the value, which was changed and counted, and tells the receivers.
    pub(super) fn let_go(&self, value: RwLockWriteGuard<'_, T>, Told { notified, rings }: Told) {
        // The receivers are claimed. R2 of `wait/task.rs` comes for them and for the readers before the first waker is called.
        let mut readers = RwLockWriteGuard::unlock_in_silence(value);
        mutant!(WatchCallsInBetween: mem::replace(&mut readers, crate::wait::task::Readied::new()).call_wakers());
        let mut receivers = notified.ready_in_silence();
        readers.queue();
        receivers.queue();
        readers.call_wakers();
        receivers.call_wakers();
        mutant!(WatchCountsLate: self.state.lock().version += 1);
        if rings {
            self.bells.ring_all();
        }
    }
}
