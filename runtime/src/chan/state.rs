//! The state under a channel's lock, and the part of a send, a receive and a close that does not depend on the type of the
//! messages.
//!
//! ```text
//!   send:  a receiver waits? ──▶ into its slot        recv:  a message in the buffer? ──▶ take it; a waiting sender's
//!          room?             ──▶ into the buffer                                         moves up into the buffer
//!          else              ──▶ wait                        a sender waits? ──▶ out of its slot
//!                                                            else           ──▶ wait
//! ```
//! A waiting operation is a [`Record`] on the owner's stack, with a *slot*: the place for a receiver's message, or the place
//! where a sender's message lies. A counterpart (sender, receiver or closer) that finds the record claims its wait, moves the
//! message, notes the [`WaitResult`], takes the record out of the queue, and readies the owner once the lock is free. So the
//! message goes directly from sender to receiver. The obvious way, to wake a waiter and let it try again, would let a later
//! operation overtake the waiter, which could then starve.
//!
//! **A promise.** A send in a `select!` evaluates the message only after the send was chosen, so the send's record has no slot.
//! The sender promises to bring the message, either for a *reserved* place in the buffer, which counts as taken, or for one
//! receiver. That receiver's record stands in a separate queue, `promised`. The sender knows the receiver only by a number, the
//! [`Ticket`], as the receiver may leave at any time, by a limit or an interrupt, and the record on the receiver's stack is
//! gone then. A receiver gets a promise in one of three ways:
//!
//! * A receiver claims a waiting send. The receiver queues a *partner* record, and waits for that message and no other. If an
//!   interrupt is due to the receiver, the receiver readies the sender without choosing an arm, and unwinds; the sender tries
//!   its arms again.
//! * A sender in a `select!` finds a receiver that waits in this queue alone. The receiver's wait stays open, and the
//!   receiver sleeps on.
//! * A sender in a `select!` finds a receiver that waits in a `select!`. The sender claims the receiver's wait, so that no
//!   other channel can end that wait, and readies the receiver at once. The receiver is *coming*: it is about to take the lock,
//!   and to queue a partner record if the message is not in its slot by then.
//!
//! ```text
//!   sender:    F1 lock: take the ticket's record out of `promised`; claim its wait (or it is coming); message into its slot
//!              F2 no record, or its owner was left behind, or the claim fails: a plain send, with the limit of the select
//!   receiver:  G1 its own claim wins (limit, interrupt) · G2 lock: take its record out of `promised`
//! ```
//! F1 and G1 claim the same wait, so one of them wins: either the message is in the slot of a receiver that resumes, or the
//! sender still has the message. The record of a receiver that was left behind can stand there with its wait open: the receiver
//! ran on past the end of its runtime, and its M claims the wait a moment after the receiver has parked. If the message's
//! expression unwinds, or the sender's goroutine is left behind by the runtime
//! ([`PromiseHook`](crate::chan::select::PromiseHook)), the promise is withdrawn. Then a reserved place is given back and
//! offered to the next sender. A partner receives anew. A record from the queue of receivers is put back in its place, and is
//! *returned*: the owner is awake, and is about to take the lock; until then a sender may, under the lock, still put a message
//! into the record's slot ([`QueueState`]).
//!
//! *The last receiver goes* while a place is reserved. A message put into that place afterwards would stay there until the last
//! sender goes; for ever if that sender is in the message, or waits for an answer to it. So the receiver marks the channel as
//! *deserted* in the critical section in which it empties the buffer, and the sender looks for the mark in the critical section
//! in which it fills its place:
//!
//! ```text
//!   receiver:  L1 lock: close, mark, empty the buffer
//!   sender:    F3 lock: marked? give the place back, and the message to the caller; otherwise message into the place
//! ```
//! If F3 comes first, L1 takes the message out, and drops it; otherwise F3 sees the mark. A close by a user leaves receivers,
//! so a promise of a reserved place is kept even after that close.
//!
//! **A task.** A future can be dropped at any time, so no message is handed to a receive of a task. The message goes into the
//! buffer, and the task is *granted* one (`chan/flow/task.rs`): it is claimed and woken, and takes the message that is first in
//! the buffer at its next poll. A granted message does not count in `len`, the messages that any receiver may take, and
//! occupies no place, like a message in the slot of a goroutine. So no receiver overtakes a task that was woken, and a dropped
//! future gives back a message that was never moved. A send of a task is a sender like any other, whose message lies in the
//! pinned future. No waker unwinds out of [`Woken::ready`] (`wait/task.rs`): the code after that call runs, and no message is
//! dropped twice.
//!
//! Invariants, under the lock:
//! 1. A receiver that can be claimed stands in the queue only while `len` is zero; a sender only while `len + reserved` is at
//!    least the capacity (it can be more after tasks gave messages back).
//! 2. After the close no sender stands in the queue, nor any receiver once the buffer is empty and no place is reserved.
//! 3. The thread that has claimed a wait number changes the record's result from Open, once for each number.
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

/// The schedule of a timer channel.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Tick {
    /// When the next message is due; `None` for never.
    pub(crate) due: Option<Nanos>,
    /// The time between two messages; zero for a single message.
    pub(crate) period: Duration,
}

impl Tick {
    /// Takes the message that is due at `now`: the time at which it was due. A late reader has missed the messages in between;
    /// the next message is on the beat.
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
    /// The capacity is zero and the ring is empty: a receive takes the message of a waiting sender. On a channel without a
    /// buffer, `false` from a grant until a receive finds no granted message left.
    pub(crate) meets: bool,
    /// The last receiver has gone: no message that comes into the channel would be taken out.
    pub(crate) deserted: bool,
    /// Messages in the buffer that any receiver may take.
    pub(crate) len: usize,
    /// Reserved places in the buffer.
    pub(crate) reserved: usize,
    pub(crate) capacity: usize,
    pub(crate) receivers: Queue<Record>,
    pub(crate) senders: Queue<Record>,
    /// Waiters of `Select::ready`, which are woken when a `recv`, or a `send`, could complete.
    pub(crate) receive_watchers: Queue<Record>,
    pub(crate) send_watchers: Queue<Record>,
    /// The number of messages that are granted to tasks. They lie in the buffer, and occupy no place there.
    pub(crate) granted: usize,
    pub(crate) tick: Option<Tick>,
    places: u64,
    /// Records of receivers to which a message was promised; in no order.
    pub(crate) promised: Queue<Record>,
    /// The number of tickets that senders hold, also for receivers that have left.
    pub(crate) promises: usize,
}

// SAFETY: the records are accessed under the lock; a message in a slot is a `T` of a `Chan<T>`, and that is `Send` only if `T`
// is.
unsafe impl Send for State {}

/// Tells a sender that has a message already from a sender that has yet to evaluate it.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Message {
    Here,
    ToCome,
}

/// The destination of a send's message.
pub(crate) enum Offer {
    /// This receiver, which is claimed (or Served, or granted a message) and out of the queue.
    Receiver(RecordPtr),
    /// The buffer, which has room.
    Room,
    Closed,
    /// None: the send has to wait.
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
            deserted: false,
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

    /// Claims the first record of the queue, if that is Open, and takes it out.
    #[inline(always)]
    fn claims_first(queue: &mut Queue<Record>, first: RecordPtr) -> bool {
        // SAFETY: the record stands in the queue, which is locked.
        let it = unsafe { &first.as_ref().value };
        let claimed = it.queue_state() == QueueState::Open && it.claim();
        if claimed {
            // SAFETY: the record stands in the queue, which is locked.
            unsafe { queue.remove(first) };
        }
        claimed
    }

    /// Claims the first record of the queue that can be claimed, and takes it out. If the message is `Here`, a Returned record
    /// counts too, and becomes Served.
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
        let first = queue.front()?;
        if Self::claims_first(queue, first) {
            return Some(first);
        }
        Self::claim_further(queue, Message::ToCome)
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

    /// Claims the first receiver to which a message can go. If that is a task, grants the task the caller's message.
    #[inline]
    pub(crate) fn claim_receiver(&mut self, message: Message) -> Option<RecordPtr> {
        let first = self.receivers.front()?;
        if Self::claims_first(&mut self.receivers, first) {
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

    /// Counts the message for this receiver, whose wait is claimed, as granted if the receiver is a task.
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
        // Looked at first: otherwise each message that is given back would have all waiting receivers looked at.
        if self.capacity > 0 || self.closed || self.senders.is_empty() {
            return None;
        }
        let receiver = self.receivers.iter().find(returned)?;
        let mut at = self.senders.front();
        while let Some(sender) = at {
            at = self.senders.next(sender);
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &sender.as_ref().value };
            if it.slot().is_null() && it.is_open() {
                // Once it takes the lock, the Returned receiver claims this sender and asks for the message.
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
    /// The record belongs to a receiver, and stands in a queue of this channel or in none.
    pub(crate) unsafe fn leave(&mut self, record: RecordPtr) {
        // SAFETY: by this function's contract; the record's state says in which queue it is.
        unsafe {
            match record.as_ref().value.queue_state() {
                QueueState::Promised | QueueState::Coming => self.promised.remove(record),
                _ => self.receivers.remove(record),
            };
        }
    }

    /// Chooses the destination of a send's message.
    #[inline]
    pub(crate) fn offer(&mut self) -> Offer {
        if self.closed {
            return Offer::Closed;
        }
        let room = self.has_room();
        if !room && ((self.capacity > 0).unless(ChanSendPassesAPromise) || self.receivers.is_empty()) {
            // Even if a receiver waits: the places for which the receiver waits are reserved, and a send overtakes neither a
            // promise nor a waiting sender.
            return Offer::Full;
        }
        // While a sender waits, no message is put into a Returned record: the owner is about to take the lock, and to
        // receive from that sender.
        let overtakes =
            (self.capacity == 0 && Self::has_open_waiter(&mut self.senders)).unless(ChanSendOvertakes);
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

    /// Returns `true` if the channel is open, and no waiter needs to be notified of a message that goes into the buffer: the
    /// case of most sends on a buffered channel.
    #[inline]
    pub(crate) fn has_nobody_to_tell(&self) -> bool {
        mutant!(ChanRoomPassesWatchers: return !self.closed && self.receivers.is_empty());
        !self.closed && self.receivers.is_empty() && self.receive_watchers.is_empty()
    }

    /// Returns `true` if a message can be taken out of the buffer.
    #[inline]
    pub(crate) fn has_messages(&self) -> bool {
        self.len > 0
    }

    /// Returns `true` if no waiter needs to be notified when a message has left the buffer: the case of most receives on a
    /// buffered channel.
    #[inline]
    pub(crate) fn has_no_waiter_for_room(&self) -> bool {
        self.senders.is_empty() && self.send_watchers.is_empty()
    }

    /// Returns `true` if a receive certainly has to wait: no message, no sender, not closed, and no tick.
    #[inline]
    fn has_nothing_to_take(&self) -> bool {
        self.len == 0 && self.meets_nobody() && self.tick.is_none()
    }

    /// Returns `true` if no sender waits and the channel is not closed: then a receive that has found no message, on a channel
    /// that is not a timer channel, has to wait.
    #[inline]
    pub(crate) fn meets_nobody(&self) -> bool {
        self.senders.is_empty() && !self.closed
    }

    /// Returns `true` if a send for which there is no room certainly has to wait: no receiver, not closed.
    #[inline]
    pub(crate) fn has_no_place_to_put(&self) -> bool {
        self.receivers.is_empty() && !self.closed
    }

    /// Returns `true` if no message is left to receive, and none will come.
    pub(crate) fn is_drained(&self) -> bool {
        self.closed && self.len == 0 && self.reserved == 0 && !(self.granted > 0).unless(GrantedIsDrained)
    }

    /// Wakes the watchers for a `recv`, as a `recv` could complete now.
    #[inline]
    pub(crate) fn tell_receive_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.receive_watchers, WaitResult::Done, woken);
    }

    /// Wakes the watchers for a `send`, as a `send` could complete now.
    #[inline]
    pub(crate) fn tell_send_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.send_watchers, WaitResult::Done, woken);
    }

    /// As `tell_send_watchers`, for a receiver that is about to wait. On a channel with a buffer this makes no send possible:
    /// if there is a watcher, all places are reserved.
    #[inline]
    pub(crate) fn tell_of_receiver(&mut self, woken: &mut Woken) {
        if !self.send_watchers.is_empty() && self.capacity == 0 {
            Self::end_each(&mut self.send_watchers, WaitResult::Done, woken);
        }
    }

    /// As `tell_receive_watchers`, for a sender that is about to wait. On a channel with a buffer this makes no receive
    /// possible: if there is a watcher, all places are reserved.
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
        unless!(ChanEndTellsNoSendWatcher, self.tell_send_watchers(woken));
        // If a message is still to come, or is granted, a receive would wait: the watchers are woken when that message is
        // there, or given back.
        self.end_receivers_if_drained(woken);
        true
    }

    /// If the channel is drained, ends the waits of all receivers and watchers: no message will come.
    pub(crate) fn end_receivers_if_drained(&mut self, woken: &mut Woken) {
        if self.is_drained().unless(ChanCloseForgetsReceivers) {
            Self::end_all(&mut self.receivers, WaitResult::Closed, woken);
            unless!(ChanEndTellsNoReceiveWatcher, self.tell_receive_watchers(woken));
        }
    }

    /// Returns `true` if a `recv` could complete now. A counterpart that waits in several queues can be claimed elsewhere
    /// before the receive claims it.
    #[inline(always)]
    pub(crate) fn may_receive(&mut self) -> bool {
        if self.has_nothing_to_take() {
            return false;
        }
        let sender = self.capacity == 0 && Self::has_open_waiter(&mut self.senders);
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

    /// Returns `true` if a `send` could complete now, with the same reservation as `may_receive`.
    pub(crate) fn may_send(&mut self) -> bool {
        self.closed || self.has_room() || self.capacity == 0 && Self::has_open_waiter(&mut self.receivers)
    }

    /// Returns `true` if a record of the queue can be claimed. Removes the records before it that can't be claimed: otherwise
    /// each of many tries would walk over all records that were claimed through another queue and whose owners have not run
    /// yet.
    #[inline]
    fn has_open_waiter(queue: &mut Queue<Record>) -> bool {
        !queue.is_empty() && Self::finds_open_waiter(queue)
    }

    #[inline(never)]
    fn finds_open_waiter(queue: &mut Queue<Record>) -> bool {
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

    /// Returns when the next message of a timer channel is due.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.tick.and_then(|tick| tick.due)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails if the next message is due before `now`.
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
