//! A poller without a kernel: what is posted is reported, in that order, and nothing else happens.
//!
//! The fake keeps what makes the real poller difficult: an event is an edge, reported once; events of one key before a
//! wait are one; wakes before a wait are one, which the first wait swallows. The fake never blocks: a wait with
//! [`Timeout::After`] returns at once, as if the time were over.

use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::event::{Event, Key, Readiness};
use crate::poller::{Events, Timeout, Woken};

/// A [`Poller`](crate::Poller) for tests: the test posts what the kernel would report.
///
/// ```
/// use gmp_netpoll::{Events, FakePoller, Key, Readiness, Timeout, Woken};
///
/// let poller = FakePoller::new();
/// let key = Key { index: 3, generation: 1 };
/// poller.post(key, Readiness::READABLE);
/// poller.wake()?;
/// let mut events = Events::with_capacity(8);
/// assert_eq!(poller.wait(&mut events, Timeout::Forever)?, Woken::Yes);
/// assert_eq!(events.iter().len(), 1);
/// // Events and wakes are reported once.
/// assert_eq!(poller.wait(&mut events, Timeout::Zero)?, Woken::No);
/// assert!(events.is_empty());
/// assert_eq!(poller.take_waits(), [Timeout::Forever, Timeout::Zero]);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct FakePoller {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    pending: VecDeque<Event>,
    woken: bool,
    waits: Vec<Timeout>,
}

impl FakePoller {
    /// Makes a poller with nothing to report.
    pub fn new() -> Self {
        Self::default()
    }

    /// The next wait reports `readiness` under `key`, together with what was posted for that key and not
    /// reported yet. A key whose descriptor is gone makes a stale event.
    pub fn post(&self, key: Key, readiness: Readiness) {
        let mut state = self.state();
        match state.pending.iter_mut().find(|event| event.key == key) {
            Some(event) => event.readiness |= readiness,
            None => state.pending.push_back(Event { key, readiness }),
        }
    }

    /// The next wait returns [`Woken::Yes`].
    ///
    /// # Errors
    /// None; the result is there for the likeness.
    pub fn wake(&self) -> io::Result<()> {
        self.state().woken = true;
        Ok(())
    }

    /// Reports what is pending, as much as fits, and never blocks.
    ///
    /// # Panics
    /// If the wait is [`Timeout::Forever`] and there is nothing to report: the real one would sleep for ever.
    ///
    /// # Errors
    /// None; the result is there for the likeness.
    #[track_caller]
    pub fn wait(&self, events: &mut Events, timeout: Timeout) -> io::Result<Woken> {
        let mut state = self.state();
        state.waits.push(timeout);
        let woken = if std::mem::take(&mut state.woken) { Woken::Yes } else { Woken::No };
        events.refill(&mut state.pending);
        let asleep = events.is_empty() && woken == Woken::No && timeout == Timeout::Forever;
        assert!(!asleep, "FakePoller::wait: nothing is posted, this wait would never end");
        Ok(woken)
    }

    /// The timeouts of all waits since the last call of this, in order.
    pub fn take_waits(&self) -> Vec<Timeout> {
        std::mem::take(&mut self.state().waits)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No step under this lock leaves the state half changed, so a test that panicked has not spoilt the state.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const A: Key = Key { index: 1, generation: 1 };
    const B: Key = Key { index: 2, generation: 1 };

    fn report(fake: &FakePoller, capacity: usize) -> (Woken, Vec<Event>) {
        let mut events = Events::with_capacity(capacity);
        let woken = fake.wait(&mut events, Timeout::Zero).expect("a fake does not fail");
        (woken, events.iter().collect())
    }

    #[test]
    fn events_are_reported_once_in_order_and_merged_by_key() {
        let fake = FakePoller::new();
        fake.post(A, Readiness::READABLE);
        fake.post(B, Readiness::WRITABLE);
        fake.post(A, Readiness::READ_HUP);
        let merged = Event { key: A, readiness: Readiness::READABLE | Readiness::READ_HUP };
        let other = Event { key: B, readiness: Readiness::WRITABLE };
        assert_eq!(report(&fake, 1), (Woken::No, vec![merged]));
        assert_eq!(report(&fake, 1), (Woken::No, vec![other]));
        assert_eq!(report(&fake, 1), (Woken::No, vec![]));
    }

    #[test]
    fn wakes_are_one_edge_and_the_first_wait_swallows_it() {
        let fake = FakePoller::new();
        fake.wake().and(fake.wake()).expect("a fake does not fail");
        assert_eq!(report(&fake, 1), (Woken::Yes, vec![]));
        assert_eq!(report(&fake, 1), (Woken::No, vec![]));
    }

    #[test]
    fn the_timeouts_asked_for_are_kept() {
        let fake = FakePoller::new();
        let mut events = Events::with_capacity(1);
        let after = Timeout::After(Duration::from_secs(3600));
        assert_eq!(fake.wait(&mut events, after).expect("a fake does not fail"), Woken::No);
        fake.post(A, Readiness::ERROR);
        assert_eq!(fake.wait(&mut events, Timeout::Forever).expect("a fake does not fail"), Woken::No);
        assert_eq!(fake.take_waits(), [after, Timeout::Forever]);
        assert_eq!(fake.take_waits(), []);
    }

    #[test]
    #[should_panic(expected = "would never end")]
    fn an_endless_wait_for_nothing_is_a_failed_test() {
        _ = FakePoller::new().wait(&mut Events::with_capacity(1), Timeout::Forever);
    }
}
