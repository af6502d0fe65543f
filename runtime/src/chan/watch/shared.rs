//! The value, the count of its changes, and the waiters for a change.

use super::{Receiver, RecvError, Ref};
use crate::chan::several::{self, Bell, Bells, HasParties, Parties, Side};
use crate::prim::hooks::*;
use crate::prim::{Arc, Mutex, Rank};
use crate::sync::wait_queue::{HasWaitQueue, Notified, WaitQueue};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::mem;

pub(super) struct State {
    /// How often the value was changed.
    pub(super) version: u64,
    pub(super) parties: Parties,
}

impl State {
    /// What a receiver that has `seen` so many changes waits for: the count of another one, or the close.
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

    /// Reads the value for a receiver, whose count of what it has `seen` is the value's from here on. A wait that unwinds
    /// leaves the value unseen, and rings again.
    pub(super) fn see(&self, bell: Option<&Bell>, seen: &mut u64) -> Ref<'_, T> {
        let mut leaves = self.bells.leaves(bell);
        let value = self.value.read();
        leaves.news = false;
        self.saw(value, seen)
    }

    /// What is read counts as seen.
    pub(super) fn saw<'a>(&self, value: RwLockReadGuard<'a, T>, seen: &mut u64) -> Ref<'a, T> {
        let version = self.state.lock().version;
        Ref { value, changed: mem::replace(seen, version) != version }
    }

    /// The wait of a receiver that has `seen` so many changes was given up, whose caller may have heard the bell.
    pub(super) fn ring_for_the_rest(&self, bell: Option<&Bell>, seen: u64) {
        if bell.is_some() && self.state.lock().version != seen {
            self.bells.ring(bell);
        }
    }

    /// The value was changed.
    pub(super) fn tell(&self, value: RwLockWriteGuard<'_, T>) {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        unless!(WatchCountsLate, state.version += 1);
        let rings = state.parties.tell_receivers(&mut notified);
        drop(state);
        // The receivers are claimed: R2 of `wait/task.rs` for them and for the readers, before the first waker is called.
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
