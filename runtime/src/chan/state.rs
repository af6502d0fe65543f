//! The state under a channel's lock: what a send, a receive and a close do, whatever the type of the messages.
//!
//! ```text
//!   send:  a receiver waits? ──▶ into its slot        recv:  a message in the buffer? ──▶ take it; a waiting sender's
//!          room?             ──▶ into the buffer                                         moves up into the buffer
//!          else              ──▶ wait                        a sender waits? ──▶ out of its slot
//!                                                            else           ──▶ wait
//! ```
//! A waiting operation is a [`Record`] on the owner's stack, with a *slot*: where a receiver's message is to go, or
//! where a sender's message lies. A counterpart (sender, receiver or closer) that finds the record claims its wait,
//! moves the message, notes the [`WaitResult`], takes the record out of the queue, and readies the owner once the lock
//! is free. So the message goes directly from sender to receiver. The obvious way, to wake a waiter and let it try
//! again, would let a later operation overtake the waiter, which could then starve.
//!
//! **A promise.** A send in a `select!` evaluates the message only after the send was chosen, so the send's record has
//! no slot. The sender promises to bring the message, either for a *reserved* place in the buffer, which counts as
//! taken, or for one receiver. That receiver's record stands in a queue of its own, `promised`. The sender knows the
//! receiver by a number only, the [`Ticket`], as the receiver may leave at any time, by a limit or an interrupt, and
//! the record on the receiver's stack is gone then. A receiver gets a promise in one of three ways:
//!
//! * A receiver claims a send that waits. The receiver queues a *partner* record, and waits for the message and
//!   nothing else. If an interrupt is due to the receiver, it readies the sender with no arm dealt with, and unwinds; the
//!   sender tries its arms again.
//! * A sender in a `select!` finds a receiver that waits in this queue alone. The receiver's wait stays open, and the
//!   receiver sleeps on.
//! * A sender in a `select!` finds a receiver that waits in a `select!`. The sender claims the receiver's wait, so that
//!   no other channel can end it, and readies the receiver at once. The receiver is *coming*: that is, the receiver
//!   takes the lock, and queues a partner record if the message is not in its slot by then.
//!
//! ```text
//!   sender:    F1 lock: the ticket's record out of `promised`; claim its wait (or it is coming): the message into its slot
//!              F2 none is there, or it was left behind, or the claim fails: a plain send, with the limit of the select
//!   receiver:  G1 its own claim wins (limit, interrupt) · G2 lock: its record out of `promised`
//! ```
//! F1 and G1 claim the same wait, so one of them wins: either the message is in the slot of a receiver that goes
//! on, or the sender still has the message. A receiver that was left behind may stand there with its wait open: it
//! ran on past the end of its runtime, and its M claims the wait a moment after it has parked. If the message's
//! expression unwinds, or the sender's goroutine is left behind by the runtime
//! ([`PromiseHook`](crate::chan::select::PromiseHook)), the promise is withdrawn. Then a reserved place is given
//! back and offered to the next sender. A partner receives anew. A record from the queue of receivers is put back
//! to its place, and is *returned*: the owner is awake, and is about to take the lock; until then a sender may,
//! under the lock, still put a message into the record's slot ([`QueueState`]).
//!
//! **A task.** A future may be dropped at any time, so no message is handed to a receive of a task. The message goes into the
//! buffer, and the task is *granted* one (`chan/flow/task.rs`): it is claimed and woken, and takes in its next poll whichever
//! message is the first by then. A message that was granted is none of the `len` that all may take, and takes no place, as one
//! in the slot of a goroutine takes none. So no receiver overtakes a task that was woken, and a dropped future gives back what
//! was never moved. A send of a task is a sender like any other, whose message lies in the pinned future. No waker unwinds out
//! of [`Woken::ready`] (`wait/task.rs`): what comes after that call is done, and no message is dropped twice.
//!
//! Invariants, under the lock:
//! 1. A receiver that can be claimed stands in the queue only while `len` is zero; a sender only while `len + reserved` is the
//!    capacity, or more, after tasks gave messages back.
//! 2. After the close no sender stands in the queue; and no receiver, once the buffer is empty and nothing is reserved.
//! 3. A record's result changes from Open once for each wait number, by the thread that has claimed that number.
//! 4. Records stand in a queue in the order of their places, which they keep until their operation ends.
//! 5. The ring of the buffer holds `len + granted` messages.
//! 6. `promises` counts the tickets whose promises are neither kept nor withdrawn, `reserved` the reserved places.

use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::wait::queue::Queue;
use gmp_timers::Nanos;
use std::time::Duration;

mod promises;
mod record;

pub(crate) use record::{Kind, Promised, QueueState, Record, RecordPtr, Ticket, WaitResult, Woken};

/// When a channel that tells the time has its next message, and how often.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Tick {
    /// When the next message is there; `None` for never.
    pub(crate) due: Option<Nanos>,
    /// The time between two messages; zero for a single message.
    pub(crate) period: Duration,
}

impl Tick {
    /// Takes the message that is there at `now`: the time at which the message was due. A late reader has missed the
    /// messages in between; the next message is on the beat.
    pub(super) fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let due = self.due.filter(|&due| due <= now)?;
        self.due = (!self.period.is_zero()).then(|| {
            let late = now.as_nanos() - due.as_nanos();
            let Ok(period) = u64::try_from(self.period.as_nanos()) else { return Nanos::MAX };
            let beats = if late < period { 1 } else { late / period + 1 };
            Nanos::from_nanos(due.as_nanos().saturating_add(beats.saturating_mul(period)))
        });
        Some(due)
    }
}

/// The state of a channel. The fields that each send and receive reads come first; with the lock they fill one cache
/// line.
#[repr(C)]
pub(crate) struct State {
    pub(crate) closed: bool,
    /// There is no buffer, and no message in it either: a receive takes the message of a sender that waits. Without a buffer,
    /// `false` after a grant, until a receive finds that nothing is left of that.
    pub(crate) meets: bool,
    /// Messages in the buffer that any receiver may take.
    pub(crate) len: usize,
    /// Reserved places in the buffer.
    pub(crate) reserved: usize,
    pub(crate) capacity: usize,
    pub(crate) receivers: Queue<Record>,
    pub(crate) senders: Queue<Record>,
    /// Waiters of `Select::ready`: to be woken when a `recv`, or a `send`, could complete.
    pub(crate) receive_watchers: Queue<Record>,
    pub(crate) send_watchers: Queue<Record>,
    /// Messages that are granted to tasks. They lie in the buffer, and take no place there.
    pub(crate) granted: usize,
    pub(crate) tick: Option<Tick>,
    places: u64,
    /// Records of receivers to which a message was promised; in no order.
    pub(crate) promised: Queue<Record>,
    /// The number of tickets that senders hold, also for receivers that have left.
    pub(crate) promises: usize,
}

// SAFETY: the records are reached under the lock; a message in a slot is a `T` of a `Chan<T>`, which is `Send` only
// for `T: Send`.
unsafe impl Send for State {}

/// Tells a sender that has a message already from a sender that has yet to evaluate it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Message {
    Here,
    ToCome,
}

/// Where a send's message is to go.
pub(crate) enum Offer {
    /// To this receiver, which is claimed (or Served, or granted a message) and out of the queue.
    Receiver(RecordPtr),
    /// There is room in the buffer.
    Room,
    Closed,
    /// Nowhere: the send has to wait.
    Full,
}

impl State {
    pub(crate) const fn new(capacity: usize) -> Self {
        State {
            receivers: Queue::new(),
            senders: Queue::new(),
            receive_watchers: Queue::new(),
            send_watchers: Queue::new(),
            len: 0,
            reserved: 0,
            capacity,
            places: 0,
            closed: false,
            meets: capacity == 0,
            tick: None,
            promised: Queue::new(),
            promises: 0,
            granted: 0,
        }
    }

    /// Gives a record a place in the order of waiters.
    ///
    /// # Safety
    /// The record is in no queue.
    pub(crate) unsafe fn give_place(&mut self, record: RecordPtr) {
        self.places += 1;
        // SAFETY: by this function's contract.
        unsafe { record.as_ref() }.value.place.with_mut(|place| unsafe { *place = self.places });
    }

    /// Queues the record of a receiver at the place that an earlier record of the same receive had.
    ///
    /// # Safety
    /// The records are in no queue.
    #[cold]
    pub(crate) unsafe fn wait_in_place_of(&mut self, before: &Record, record: RecordPtr) {
        // SAFETY: by this function's contract.
        unsafe {
            record.as_ref().value.place.with_mut(|place| *place = before.place());
            self.insert_by_place(record);
        }
    }

    /// Claims the first record of the queue that can be claimed, and takes that record out. If the message is here, a
    /// Returned record counts too, and becomes Served.
    #[inline]
    fn claim_for(queue: &mut Queue<Record>, message: Message) -> Option<RecordPtr> {
        let first = queue.front()?;
        // SAFETY: the record stands in the queue, which is locked.
        let it = unsafe { &first.as_ref().value };
        if it.queue_state() == QueueState::Open && it.claim() {
            // SAFETY: the record stands in the queue, which is locked.
            unsafe { queue.remove(first) };
            return Some(first);
        }
        Self::claim_further(queue, message)
    }

    /// As `claim_for`, where the first record could not simply be claimed.
    #[cold]
    fn claim_further(queue: &mut Queue<Record>, message: Message) -> Option<RecordPtr> {
        let mut at = queue.front();
        while let Some(record) = at {
            at = queue.next(record);
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            let claimed = match it.queue_state() {
                QueueState::Open | QueueState::OpenToGrants => it.claim(),
                // The owner never takes the lock again, so a message in the record's slot would be lost.
                QueueState::Returned if it.is_left().unless(ReturnedServedWhenLeft) => false,
                QueueState::Returned if message == Message::Here => {
                    it.set_queue_state(QueueState::Served);
                    true
                }
                _ => continue,
            };
            mutant!(ChanServesWithoutClaim: let claimed = claimed || it.queue_state() == QueueState::Open);
            // A record that can't be claimed is removed: the owner is leaving, or was left behind by the runtime.
            // SAFETY: the record stands in the queue, which is locked.
            unsafe { queue.remove(record) };
            if claimed {
                return Some(record);
            }
        }
        None
    }

    /// Claims the first record of the queue that can be claimed, and takes it out.
    #[inline]
    pub(crate) fn claim(queue: &mut Queue<Record>) -> Option<RecordPtr> {
        Self::claim_for(queue, Message::ToCome)
    }

    /// Claims the first sender that has a message already, and takes it out.
    #[cold]
    pub(crate) fn claim_with_message(&mut self) -> Option<RecordPtr> {
        let mut at = self.senders.front();
        while let Some(sender) = at {
            at = self.senders.next(sender);
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &sender.as_ref().value };
            if !it.slot().is_null() {
                // As in `claim_further`.
                // SAFETY: the record stands in the queue, which is locked.
                unsafe { self.senders.remove(sender) };
                if it.claim() {
                    return Some(sender);
                }
            }
        }
        None
    }

    /// Claims the first receiver to which a message can go. A task is granted one: the message that the caller has for it.
    #[inline]
    pub(crate) fn claim_receiver(&mut self, message: Message) -> Option<RecordPtr> {
        let first = self.receivers.front()?;
        // SAFETY: the record stands in the queue, which is locked.
        let it = unsafe { &first.as_ref().value };
        if it.queue_state() == QueueState::Open && it.claim() {
            // SAFETY: the record stands in the queue, which is locked.
            unsafe { self.receivers.remove(first) };
            return Some(first);
        }
        self.claim_further_receiver(message)
    }

    #[cold]
    fn claim_further_receiver(&mut self, message: Message) -> Option<RecordPtr> {
        let receiver = Self::claim_further(&mut self.receivers, message)?;
        // SAFETY: claimed, or Served in this critical section.
        self.grant(unsafe { &receiver.as_ref().value });
        Some(receiver)
    }

    /// Counts the message that comes to this receiver, whose wait is claimed, if it is a task.
    fn grant(&mut self, receiver: &Record) {
        if receiver.kind == Kind::OfTask {
            self.granted += 1;
            self.meets = false;
            receiver.set_wait_result(WaitResult::Granted);
        }
    }

    /// On a channel without a buffer: takes the first Returned receiver and the sender that has waited longest out of
    /// their queues, if that sender has a message already. The receiver becomes Served, the sender is claimed.
    pub(crate) fn claim_pair(&mut self) -> Option<(RecordPtr, RecordPtr)> {
        let returned = |at: &RecordPtr| {
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &at.as_ref().value };
            it.queue_state() == QueueState::Returned && !it.is_left()
        };
        let receiver = self.receivers.iter().find(returned).filter(|_| self.capacity == 0 && !self.closed)?;
        let mut at = self.senders.front();
        while let Some(sender) = at {
            at = self.senders.next(sender);
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &sender.as_ref().value };
            if it.slot().is_null() && it.is_open() {
                // The Returned receiver, once it takes the lock, claims this sender and asks for the message.
                return None;
            }
            // SAFETY: the record stands in the queue, which is locked.
            unsafe { self.senders.remove(sender) };
            if it.claim() {
                // SAFETY: the record stands in the queue, which is locked.
                unsafe {
                    receiver.as_ref().value.set_queue_state(QueueState::Served);
                    self.receivers.remove(receiver);
                }
                return Some((receiver, sender));
            }
        }
        None
    }

    /// Takes the caller's record, whose wait is over, out of the queue in which the record stands, if there is one.
    ///
    /// # Safety
    /// The record is a receiver's, and stands in a queue of this channel or in none.
    pub(crate) unsafe fn leave(&mut self, record: RecordPtr) {
        // SAFETY: by this function's contract, and the record's state says which queue it is.
        unsafe {
            match record.as_ref().value.queue_state() {
                QueueState::Promised | QueueState::Coming => self.promised.remove(record),
                _ => self.receivers.remove(record),
            };
        }
    }

    /// Decides where a send's message goes.
    #[inline]
    pub(crate) fn offer(&mut self) -> Offer {
        if self.closed {
            return Offer::Closed;
        }
        let room = self.has_room();
        if !room && ((self.capacity > 0).unless(ChanSendPassesAPromise) || self.receivers.is_empty()) {
            // Even if a receiver waits: the places for which the receiver waits are reserved, and a send overtakes
            // neither a promise nor a sender that waits.
            return Offer::Full;
        }
        // While a sender waits, no message is put into a Returned record: the owner is about to take the lock, and to
        // receive from that sender.
        let overtakes =
            (self.capacity == 0 && Self::somebody_waits(&mut self.senders)).unless(ChanSendOvertakes);
        let message = if overtakes { Message::ToCome } else { Message::Here };
        if let Some(receiver) = self.claim_receiver(message) {
            Offer::Receiver(receiver)
        } else if room {
            Offer::Room
        } else {
            Offer::Full
        }
    }

    /// Returns `true` if the buffer has a place that is neither taken nor reserved.
    pub(crate) fn has_room(&self) -> bool {
        self.len + self.reserved < self.capacity
    }

    /// Returns `true` if the channel is open, and no waiter is to be told of a message that goes into the buffer: the case of
    /// most sends of a buffered channel.
    #[inline]
    pub(crate) fn has_nobody_to_tell(&self) -> bool {
        mutant!(ChanRoomPassesWatchers: return !self.closed && self.receivers.is_empty());
        !self.closed && self.receivers.is_empty() && self.receive_watchers.is_empty()
    }

    /// Returns `true` if a message can come out of the buffer.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.len > 0
    }

    /// Returns `true` if no waiter is to be told when a message has left the buffer: the case of most receives of a buffered
    /// channel.
    #[inline]
    pub(crate) fn has_nobody_who_wants_room(&self) -> bool {
        self.senders.is_empty() && self.send_watchers.is_empty()
    }

    /// Returns `true` if a receive plainly has to wait: no message, no sender, not closed, and no tick.
    #[inline]
    pub(crate) fn has_nothing_to_take(&self) -> bool {
        self.len == 0 && self.meets_nobody() && self.tick.is_none()
    }

    /// Returns `true` if no sender waits and the channel is not closed: then a receive that has found no message, from a
    /// channel that does not tell the time, has to wait.
    #[inline]
    pub(crate) fn meets_nobody(&self) -> bool {
        self.senders.is_empty() && !self.closed
    }

    /// Returns `true` if a send for which there is no room plainly has to wait: no receiver, not closed.
    #[inline]
    pub(crate) fn has_no_place_to_put(&self) -> bool {
        self.receivers.is_empty() && !self.closed
    }

    /// Returns `true` if no message is left to receive, and none will come.
    pub(crate) fn is_drained(&self) -> bool {
        self.closed && self.len == 0 && self.reserved == 0 && !(self.granted > 0).unless(GrantedIsDrained)
    }

    /// Wakes the watchers for a `recv`, as one could complete now.
    #[inline]
    pub(crate) fn tell_receive_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.receive_watchers, WaitResult::Done, woken);
    }

    /// Wakes the watchers for a `send`, as one could complete now.
    #[inline]
    pub(crate) fn tell_send_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.send_watchers, WaitResult::Done, woken);
    }

    /// As `tell_send_watchers`, where a receiver waits from here on. With a buffer that makes no send possible: if there is a
    /// watcher, all places are reserved.
    #[inline]
    pub(crate) fn tell_of_receiver(&mut self, woken: &mut Woken) {
        if !self.send_watchers.is_empty() && self.capacity == 0 {
            Self::end_each(&mut self.send_watchers, WaitResult::Done, woken);
        }
    }

    /// As `tell_receive_watchers`, where a sender waits from here on. With a buffer that makes no receive possible: if there is
    /// a watcher, all places are reserved.
    #[inline]
    pub(crate) fn tell_of_sender(&mut self, woken: &mut Woken) {
        if !self.receive_watchers.is_empty() && self.capacity == 0 {
            Self::end_each(&mut self.receive_watchers, WaitResult::Done, woken);
        }
    }

    #[inline]
    fn end_all(queue: &mut Queue<Record>, wait_result: WaitResult, woken: &mut Woken) {
        if !queue.is_empty() {
            Self::end_each(queue, wait_result, woken);
        }
    }

    #[cold]
    fn end_each(queue: &mut Queue<Record>, wait_result: WaitResult, woken: &mut Woken) {
        while let Some(record) = Self::claim(queue) {
            // SAFETY: claimed, and out of the queue.
            unsafe {
                record.as_ref().value.set_wait_result(wait_result);
                woken.add(record);
            }
        }
    }

    /// Closes the channel. Returns `false` if the channel was closed before.
    pub(crate) fn close(&mut self, woken: &mut Woken) -> bool {
        if std::mem::replace(&mut self.closed, true) {
            return false;
        }
        unless!(ChanCloseForgetsSenders, Self::end_all(&mut self.senders, WaitResult::Closed, woken));
        self.tell_send_watchers(woken);
        self.tell_receive_watchers(woken);
        self.end_receivers_if_drained(woken);
        true
    }

    /// If the channel is drained, ends the waits of all receivers and watchers: no message will come.
    pub(crate) fn end_receivers_if_drained(&mut self, woken: &mut Woken) {
        if self.is_drained().unless(ChanCloseForgetsReceivers) {
            Self::end_all(&mut self.receivers, WaitResult::Closed, woken);
            self.tell_receive_watchers(woken);
        }
    }

    /// Returns `true` if a `recv` could complete now. A counterpart that waits in several queues may be claimed
    /// elsewhere before the receive claims it.
    #[inline(always)]
    pub(crate) fn may_receive(&mut self) -> bool {
        if self.has_nothing_to_take() {
            return false;
        }
        let sender = self.capacity == 0 && Self::somebody_waits(&mut self.senders);
        self.len > 0
            || sender
            || self.is_drained()
            || self.turn_of(None).is_some_and(|turn| turn <= Active::now())
    }

    /// As `may_receive`, for a receive that asks no sender for a message.
    pub(crate) fn may_receive_at_once(&mut self) -> bool {
        // SAFETY: the records stand in the queue, which is locked.
        let sender = self
            .senders
            .iter()
            .map(|at| unsafe { &at.as_ref().value })
            .any(|it| !it.slot().is_null() && it.is_open());
        let here = self.len > 0 || self.capacity == 0 && sender || self.is_drained();
        here || self.turn_of(None).is_some_and(|turn| turn <= Active::now())
    }

    /// Returns `true` if a `send` could complete now; as `may_receive`.
    pub(crate) fn may_send(&mut self) -> bool {
        self.closed || self.has_room() || self.capacity == 0 && Self::somebody_waits(&mut self.receivers)
    }

    /// Returns `true` if a record of the queue can be claimed. Removes the records before it that can't be: else each of
    /// many tries would walk over all that were claimed through another queue and whose owners have not run yet.
    #[inline]
    fn somebody_waits(queue: &mut Queue<Record>) -> bool {
        !queue.is_empty() && Self::somebody_is_open(queue)
    }

    #[inline(never)]
    fn somebody_is_open(queue: &mut Queue<Record>) -> bool {
        let mut at = queue.front();
        while let Some(record) = at {
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            if it.is_open() {
                return true;
            }
            at = queue.next(record);
            // As in `claim_further`: a record that is not Open keeps its owner's place.
            if it.is_unclaimed() {
                // SAFETY: the record stands in the queue, which is locked.
                unsafe { queue.remove(record) };
            }
        }
        false
    }

    /// When the next message of a channel that tells the time is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.tick.and_then(|tick| tick.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails by a next message that is due before `now`.
    #[test]
    fn however_many_messages_a_reader_missed_the_next_is_the_first_of_the_beat_to_come() {
        let [first, year] = [Nanos::from_nanos(1_000), Nanos::from_nanos(365 * 86_400 * 1_000_000_000)];
        for period in [1, 7, 1_000, 1 << 32, 1 << 60, u64::MAX].map(Duration::from_nanos) {
            for now in [first, first.saturating_add(period), year] {
                let mut tick = Tick { due: Some(first), period };
                assert_eq!(tick.take(now), Some(first));
                let next = tick.due.unwrap();
                assert!(
                    next > now && next.saturating_since(now) <= period || now == Nanos::MAX,
                    "{period:?} {now:?}"
                );
                let whole = next.saturating_since(first).as_nanos().is_multiple_of(period.as_nanos());
                assert!(whole || next == Nanos::MAX, "{period:?} {now:?}: {next:?}");
            }
        }
    }
}
