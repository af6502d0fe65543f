//! The messages of a channel, and the look of a receiver at them.

use crate::chan::buffer::Buffer;
use crate::chan::several::{HasParties, Parties, Side};
use crate::prim::Arc;
use crate::sync;
use crate::sync::wait_queue::{HasWaitQueue, WaitQueue};
use std::collections::VecDeque;

/// A message, whose lock serialises the clones, so that `T` need not be `Sync`.
pub(super) type Message<T> = Arc<sync::Mutex<T>>;

pub(super) struct Entry<T> {
    pub(super) message: Message<T>,
    /// The number of receivers that have not seen the message; not zero.
    pub(super) unseen: usize,
}

pub(super) struct State<T> {
    pub(super) ring: VecDeque<Entry<T>>,
    pub(super) tail: u64,
    pub(super) parties: Parties,
}

impl<T> HasParties for State<T> {
    fn parties(&mut self) -> &mut Parties {
        &mut self.parties
    }
}

impl<T> HasWaitQueue for State<T> {
    type Want = Side;
    fn waiters(&mut self, side: &Side) -> &mut WaitQueue<Side> {
        self.parties.queue(*side)
    }
}

/// The result of a receiver's look.
pub(super) enum Found<T> {
    Message(Message<T>),
    Lagged(u64),
    Closed,
}

impl<T> State<T> {
    /// Returns the number of the oldest message in the ring.
    fn head(&self) -> u64 {
        self.tail - self.ring.len() as u64
    }

    /// Returns the place in the ring of the message `number`, or of the oldest message if that one is gone.
    pub(super) fn place(&self, number: u64) -> usize {
        usize::try_from(number.saturating_sub(self.head())).expect("place: the ring is in memory")
    }

    /// Returns what a receiver finds that sees `next` next; if it lags, sets `next` to the oldest message.
    pub(super) fn look(&self, next: &mut u64) -> Option<Found<T>> {
        let missed = self.head().saturating_sub(*next);
        if missed > 0 {
            *next = self.head();
            return Some(Found::Lagged(missed));
        }
        match self.ring.get(self.place(*next)) {
            Some(entry) => Some(Found::Message(Arc::clone(&entry.message))),
            None => self.parties.closed.then_some(Found::Closed),
        }
    }

    /// Notes that a receiver has seen the message `number`, which may have left the ring. If now all have seen the message, the
    /// message is the oldest one, and is returned: the caller drops it after the lock.
    #[inline]
    pub(super) fn saw_one(&mut self, number: u64) -> Option<Message<T>> {
        if number < self.head() {
            return None;
        }
        let place = self.place(number);
        let unseen = &mut self.ring[place].unseen;
        *unseen -= 1;
        if *unseen > 0 { None } else { self.ring.pop_front().map(|oldest| oldest.message) }
    }

    /// Notes that a receiver has seen the messages from `first` up to, and without, `end`. Messages that all have seen go into
    /// `gone`, which the caller drops after the lock.
    pub(super) fn saw(&mut self, first: u64, end: u64, gone: &mut Buffer<Message<T>>) {
        let (from, to) = (self.place(first), self.place(end));
        self.ring.range_mut(from..to).for_each(|entry| entry.unseen -= 1);
        // A receiver that has not seen a message has not seen the later ones, so the messages that all have seen are
        // the oldest.
        while self.ring.front().is_some_and(|oldest| oldest.unseen == 0) {
            let oldest = self.ring.pop_front().expect("saw: there is an oldest one");
            gone.put(oldest.message);
        }
    }
}
