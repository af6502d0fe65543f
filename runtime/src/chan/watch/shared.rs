//! The value, the count of its changes, and those that wait for one.

use super::Receiver;
use crate::chan::several::{Bell, Bells, HasParties, Parties, Side};
use crate::prim::{Arc, Mutex, Rank};
use crate::sync::wait_queue::{HasWaitQueue, Notified, WaitQueue};
use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(super) struct State {
    /// How often the value was changed.
    pub(super) version: u64,
    pub(super) parties: Parties,
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
        let mut state = self.state.lock();
        state.parties.receivers += 1;
        let seen = state.version;
        drop(state);
        Receiver { shared: Arc::clone(self), seen, bell: None }
    }

    /// Reads the value for a receiver that will have seen it. A wait that unwinds leaves it behind, and rings again.
    pub(super) fn read(&self, bell: Option<&Bell>) -> RwLockReadGuard<'_, T> {
        let mut leaves = self.bells.leaves(bell);
        let value = self.value.read();
        leaves.news = false;
        value
    }

    /// The value was changed.
    pub(super) fn tell(&self, value: RwLockWriteGuard<'_, T>) {
        let mut notified = Notified::new();
        let mut state = self.state.lock();
        state.version += 1;
        let rings = state.parties.tell_receivers(&mut notified);
        drop(state);
        drop(value);
        notified.ready();
        if rings {
            self.bells.ring_all();
        }
    }
}
