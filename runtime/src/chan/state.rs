//! What lies under a channel's lock, whatever its messages are.
//!
//! ```text
//!   send:  a receiver waits? ──▶ into its slot        recv:  a message in the buffer? ──▶ take it; a waiting sender's
//!          room?             ──▶ into the buffer                                         moves up into the buffer
//!          else              ──▶ wait                        a sender waits? ──▶ out of its slot
//!                                                            else           ──▶ wait
//! ```
//! A waiting operation is a [`Record`] on its owner's stack, with a *slot*: where a receiver's message is to go, where a
//! sender's lies. Whoever finds it claims its wait, moves the message, notes the [`Deal`], takes it out of the queue, and
//! readies the owner once the lock is free. So a message goes from hand to hand, and who waits never has to look again.
//!
//! **A promise.** A send in a `select!` has its message only after it was chosen. Its record has no slot. Who claims it
//! promises: from a full buffer a *reserved* place, which counts as taken; on a channel without a buffer the claimer's own
//! record, the *partner*, whose owner waits for the message and for nothing else. The other way round a running `select!`
//! whose send meets a waiting receiver has claimed that one, and brings the message later. If the message's expression
//! unwinds the promise is withdrawn: the place is given back and offered to the next sender; the partner starts anew.
//! A partner that stood in the queue is put back to its place, *returned*: its owner was readied, and will come to look; the
//! lock alone decides meanwhile whether a message still goes to it ([`Seat`]).
//!
//! Invariants, under the lock:
//! 1. A receiver that can be claimed stands in the queue only while the buffer is empty; a sender only while
//!    `len + reserved` is the capacity.
//! 2. After the close no sender stands in the queue; and no receiver, once the buffer is empty and nothing is reserved.
//! 3. A record's deal changes from Open once for each number; whoever changes it has claimed that number.
//! 4. Records stand in a queue in the order of their places, which they keep until their operation ends.

use crate::host::{Active, Host};
use crate::prim::{Mutant, UnsafeCell, mutated, unless};
use crate::queue::{Node, Queue};
use crate::sched::wake::goready;
use crate::waiter::{Kept, Waiter};
use gmp_timers::Nanos;
use std::ptr::NonNull;
use std::time::Duration;

/// A record, where it lies.
pub(crate) type RecordPtr = NonNull<Node<Record>>;

/// How a waiting operation was ended by a counterpart.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Deal {
    /// It was not.
    Open,
    /// The message was moved.
    Done,
    /// The channel is closed.
    Closed,
    /// A send without a message: this receiver waits for it.
    Partner(RecordPtr),
    /// A send without a message: there is a place for it in the buffer.
    Reserved,
    /// A receiver's message will not come.
    Withdrawn,
}

/// What a place in a queue is worth. Under the lock.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Seat {
    /// Its owner waits under the number in the record.
    Open,
    /// Its owner is awake, and has not looked yet. A message may still be put into its slot.
    Returned,
    /// The same, and one was; the record is out of the queue.
    Served,
    /// Its owner waits for a message that was promised to it.
    Held,
}

/// One operation that waits.
pub(crate) struct Record {
    waiter: UnsafeCell<Waiter<Active>>,
    slot: UnsafeCell<*mut ()>,
    deal: UnsafeCell<Deal>,
    seat: UnsafeCell<Seat>,
    place: UnsafeCell<u64>,
    /// A partner's: the record that holds its owner's place in the same channel's queue.
    holds: Option<RecordPtr>,
}

impl Record {
    /// `slot` is null for a send whose message is not there yet.
    pub(crate) fn new(waiter: Waiter<Active>, slot: *mut ()) -> Node<Record> {
        Node::new(Record {
            waiter: UnsafeCell::new(waiter),
            slot: UnsafeCell::new(slot),
            deal: UnsafeCell::new(Deal::Open),
            seat: UnsafeCell::new(Seat::Open),
            place: UnsafeCell::new(0),
            holds: None,
        })
    }

    /// For a message that was promised; `holds` keeps its owner's place meanwhile.
    pub(crate) fn partner(waiter: Waiter<Active>, slot: *mut (), holds: Option<RecordPtr>) -> Node<Record> {
        let mut record = Self::new(waiter, slot);
        record.value.holds = holds;
        record
    }

    /// A promise ends, in the lock: whoever keeps a place may be served again.
    pub(crate) fn end_hold(&self) {
        if self.seat() == Seat::Held {
            self.set_seat(Seat::Returned);
        }
    }

    /// The message will not come, under the lock. The caller has claimed the wait, and readies it.
    pub(crate) fn withdraw(&self) {
        if let Some(held) = self.holds {
            // SAFETY: it lies on the stack of the same owner, who sleeps.
            unsafe { held.as_ref() }.value.end_hold();
        }
        self.set_deal(Deal::Withdrawn);
    }

    #[inline]
    pub(crate) fn claim(&self) -> bool {
        // SAFETY: under the lock, or the caller's own.
        self.waiter.with(|waiter| unsafe { (*waiter).claim() })
    }

    /// Whether a claim would win now.
    fn is_open(&self) -> bool {
        // SAFETY: under the lock.
        self.waiter.with(|waiter| unsafe { (*waiter).is_open() })
    }

    /// Whether the owner was left behind by its runtime.
    pub(crate) fn is_left(&self) -> bool {
        // SAFETY: under the lock, or the caller has claimed the wait.
        self.waiter.with(|waiter| unsafe { (*waiter).is_left() })
    }

    /// Lets the owner go on, whose wait the caller has claimed. The record may be gone afterwards.
    #[inline]
    pub(crate) fn ready(&self) {
        // SAFETY: the owner sleeps until this.
        match self.waiter.with(|waiter| unsafe { (*waiter).g() }) {
            Some(g) => goready(g),
            None => self.ready_thread(),
        }
    }

    #[cold]
    fn ready_thread(&self) {
        // SAFETY: as above.
        let waiter = self.waiter.with(|waiter| unsafe { (*waiter).clone() });
        waiter.ready();
    }

    /// Whoever waits, to be nudged after the lock.
    pub(crate) fn keep(&self) -> Kept<Active> {
        // SAFETY: under the lock.
        self.waiter.with(|waiter| unsafe { (*waiter).keep() })
    }

    pub(crate) fn slot(&self) -> *mut () {
        // SAFETY: set before it was queued.
        self.slot.with(|slot| unsafe { *slot })
    }

    pub(crate) fn deal(&self) -> Deal {
        // SAFETY: the owner runs, and the deal came with the ready; or the caller has claimed the wait.
        self.deal.with(|deal| unsafe { *deal })
    }

    /// By whoever has claimed the wait.
    pub(crate) fn set_deal(&self, to: Deal) {
        // SAFETY: the claim is won once, and the owner sleeps.
        self.deal.with_mut(|deal| unsafe { *deal = to });
    }

    /// The owner opens a new wait in the same place, under the lock.
    pub(crate) fn renew(&self, waiter: Waiter<Active>) {
        // SAFETY: the lock keeps others from it.
        self.waiter.with_mut(|old| unsafe { *old = waiter });
        self.set_deal(Deal::Open);
        self.set_seat(Seat::Open);
    }

    /// Under the lock.
    pub(crate) fn seat(&self) -> Seat {
        // SAFETY: under the lock.
        self.seat.with(|seat| unsafe { *seat })
    }

    /// Under the lock.
    pub(crate) fn set_seat(&self, to: Seat) {
        // SAFETY: under the lock.
        self.seat.with_mut(|seat| unsafe { *seat = to });
    }

    fn place(&self) -> u64 {
        // SAFETY: under the lock.
        self.place.with(|place| unsafe { *place })
    }
}

/// A channel that tells the time: when, and how often.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Tick {
    /// When the next message is there; `None` for never.
    pub(crate) due: Option<Nanos>,
    /// Between two of them; zero for a single one.
    pub(crate) period: Duration,
}

/// The state of a channel. What each send and receive looks at comes first, and is with the lock as large as one cache line.
#[repr(C)]
pub(crate) struct State {
    pub(crate) closed: bool,
    /// Messages in the buffer.
    pub(crate) len: usize,
    /// Places in the buffer that are promised.
    pub(crate) reserved: usize,
    pub(crate) capacity: usize,
    pub(crate) receivers: Queue<Record>,
    pub(crate) senders: Queue<Record>,
    /// Who waits until a `recv`, or a `send`, could go on, and will not do it itself (`Select::ready`).
    pub(crate) receive_watchers: Queue<Record>,
    pub(crate) send_watchers: Queue<Record>,
    pub(crate) tick: Option<Tick>,
    places: u64,
}

// SAFETY: the records are reached under the lock; what their slots hold is a `T: Send` of the channel's ends.
unsafe impl Send for State {}

/// Claimed records, to be readied when the lock is free. Most often it is one.
pub(crate) struct Woken {
    first: Option<RecordPtr>,
    others: Queue<Record>,
}

impl Woken {
    #[inline]
    pub(crate) const fn new() -> Self {
        Woken { first: None, others: Queue::new() }
    }

    /// # Safety
    /// The caller has claimed the record's wait and taken it out of its queue.
    #[inline]
    pub(crate) unsafe fn add(&mut self, record: RecordPtr) {
        if self.first.is_none() {
            self.first = Some(record);
        } else {
            // SAFETY: its owner sleeps until `ready`.
            unsafe { self.others.push_back(record) };
        }
    }

    /// Called without the lock.
    #[inline]
    pub(crate) fn ready(self) {
        if let Some(first) = self.first {
            // SAFETY: as in `add`.
            unsafe { first.as_ref() }.value.ready();
            if !self.others.is_empty() {
                Self::ready_all(self.others);
            }
        }
    }

    #[cold]
    fn ready_all(mut records: Queue<Record>) {
        while let Some(record) = records.pop_front() {
            // SAFETY: as in `add`.
            unsafe { record.as_ref() }.value.ready();
        }
    }
}

/// Whether a sender has its message already.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Message {
    Here,
    ToCome,
}

/// What a send comes to before its message is moved.
pub(crate) enum Offer {
    /// Claimed, and out of the queue.
    Receiver(RecordPtr),
    /// There is room in the buffer.
    Room,
    Closed,
    /// It has to wait.
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
            tick: None,
        }
    }

    /// A number for the next who stands in line.
    ///
    /// # Safety
    /// The record is in no queue.
    pub(crate) unsafe fn give_place(&mut self, record: RecordPtr) {
        self.places += 1;
        // SAFETY: by this function's contract.
        unsafe { record.as_ref() }.value.place.with_mut(|place| unsafe { *place = self.places });
    }

    /// The first of the queue that can be claimed, out of it. With `message`, one that is Returned can be, and is Served then.
    #[inline]
    fn claim_for(queue: &mut Queue<Record>, message: Message) -> Option<RecordPtr> {
        let first = queue.front()?;
        // SAFETY: it stands in the queue, which is locked.
        let it = unsafe { &first.as_ref().value };
        if it.seat() == Seat::Open && it.claim() {
            // SAFETY: as above.
            unsafe { queue.remove(first) };
            return Some(first);
        }
        Self::claim_further(queue, message)
    }

    /// As `claim_for`, where the first one is no plain case.
    #[cold]
    fn claim_further(queue: &mut Queue<Record>, message: Message) -> Option<RecordPtr> {
        let mut at = queue.front();
        while let Some(record) = at {
            at = queue.next(record);
            // SAFETY: it stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            let claimed = match it.seat() {
                Seat::Open => it.claim() || mutated(Mutant::ChanServesWithoutClaim),
                // It does not come to look, and what it was given would be lost.
                Seat::Returned if it.is_left() => false,
                Seat::Returned if message == Message::Here => {
                    it.set_seat(Seat::Served);
                    true
                }
                _ => continue,
            };
            // Who can't be claimed leaves, or was left behind by its runtime.
            // SAFETY: as above.
            unsafe { queue.remove(record) };
            if claimed {
                return Some(record);
            }
        }
        None
    }

    /// The first of the queue whose wait can be claimed, out of it.
    #[inline]
    pub(crate) fn claim(queue: &mut Queue<Record>) -> Option<RecordPtr> {
        Self::claim_for(queue, Message::ToCome)
    }

    /// The first receiver to which a message can go.
    #[inline]
    pub(crate) fn claim_receiver(&mut self, message: Message) -> Option<RecordPtr> {
        Self::claim_for(&mut self.receivers, message)
    }

    /// On a channel without a buffer, one that was put back and the sender that has waited longest, both out of their
    /// queues, if that one has its message.
    pub(crate) fn claim_pair(&mut self) -> Option<(RecordPtr, RecordPtr)> {
        let returned = |at: &RecordPtr| {
            // SAFETY: it stands in the queue, which is locked.
            let it = unsafe { &at.as_ref().value };
            it.seat() == Seat::Returned && !it.is_left()
        };
        let receiver = self.receivers.iter().find(returned).filter(|_| self.capacity == 0 && !self.closed)?;
        let mut at = self.senders.front();
        while let Some(sender) = at {
            at = self.senders.next(sender);
            // SAFETY: as above.
            let it = unsafe { &sender.as_ref().value };
            if it.slot().is_null() && it.is_open() {
                // Whoever comes to look asks it for its message.
                return None;
            }
            // SAFETY: as above.
            unsafe { self.senders.remove(sender) };
            if it.claim() {
                // SAFETY: as above.
                unsafe {
                    receiver.as_ref().value.set_seat(Seat::Served);
                    self.receivers.remove(receiver);
                }
                return Some((receiver, sender));
            }
        }
        None
    }

    /// What a send finds.
    #[inline]
    pub(crate) fn offer(&mut self, message: Message) -> Offer {
        if self.closed {
            return Offer::Closed;
        }
        let room = self.has_room();
        if !room && (self.capacity > 0 || self.receivers.is_empty()) {
            // Also where a receiver waits, for what was promised: nobody overtakes a promise, nor a sender that waits.
            return Offer::Full;
        }
        // Who was put back comes to look, and takes from the sender that waits.
        let message = if message == Message::Here && self.capacity == 0 && Self::somebody_waits(&self.senders)
        {
            Message::ToCome
        } else {
            message
        };
        if let Some(receiver) = self.claim_receiver(message) {
            Offer::Receiver(receiver)
        } else if room {
            Offer::Room
        } else {
            Offer::Full
        }
    }

    fn has_room(&self) -> bool {
        self.len + self.reserved < self.capacity
    }

    /// A message goes into the buffer, and nobody is to hear of it: what most sends of a buffered channel find.
    #[inline]
    pub(crate) fn has_room_for_all(&self) -> bool {
        self.has_room() && !self.closed && self.receivers.is_empty() && self.receive_watchers.is_empty()
    }

    /// A message comes out of the buffer, and nobody is to hear of it: what most receives of a buffered channel find.
    #[inline]
    pub(crate) fn has_messages_for_all(&self) -> bool {
        self.len > 0 && self.senders.is_empty() && self.send_watchers.is_empty()
    }

    /// A receive has to wait, and that is plain: no message, no sender, no end, and no time to tell.
    #[inline]
    pub(crate) fn has_nothing_to_take(&self) -> bool {
        self.len == 0 && self.senders.is_empty() && !self.closed && self.tick.is_none()
    }

    /// A send has to wait, and that is plain: no room, no receiver, no end.
    #[inline]
    pub(crate) fn has_no_place_to_put(&self) -> bool {
        !self.has_room() && self.receivers.is_empty() && !self.closed
    }

    /// Nothing is left to receive, and nothing will come.
    pub(crate) fn is_drained(&self) -> bool {
        self.closed && self.len == 0 && self.reserved == 0
    }

    /// Puts the record of a withdrawn promise back to its place.
    ///
    /// # Safety
    /// The caller has claimed its wait, and readies it after the lock.
    pub(crate) unsafe fn put_back(&mut self, receiver: RecordPtr) {
        // SAFETY: its owner sleeps.
        let it = unsafe { &receiver.as_ref().value };
        it.set_deal(Deal::Withdrawn);
        it.set_seat(Seat::Returned);
        // Before it stand those only that were returned like it.
        // SAFETY: they stand in the queue, which is locked.
        let behind = self.receivers.iter().find(|at| unsafe { at.as_ref() }.value.place() > it.place());
        // SAFETY: it was taken out when it was claimed; its owner takes it out before it goes.
        unsafe { self.receivers.insert_before(receiver, behind) };
    }

    /// A `recv` could go on now.
    #[inline]
    pub(crate) fn tell_receive_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.receive_watchers, Deal::Done, woken);
    }

    /// A `send` could go on now.
    #[inline]
    pub(crate) fn tell_send_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.send_watchers, Deal::Done, woken);
    }

    #[inline]
    fn end_all(queue: &mut Queue<Record>, deal: Deal, woken: &mut Woken) {
        if !queue.is_empty() {
            Self::end_each(queue, deal, woken);
        }
    }

    #[cold]
    fn end_each(queue: &mut Queue<Record>, deal: Deal, woken: &mut Woken) {
        while let Some(record) = Self::claim(queue) {
            // SAFETY: claimed, and out of the queue.
            unsafe {
                record.as_ref().value.set_deal(deal);
                woken.add(record);
            }
        }
    }

    /// Closes. False: it was closed before.
    pub(crate) fn close(&mut self, woken: &mut Woken) -> bool {
        if std::mem::replace(&mut self.closed, true) {
            return false;
        }
        unless(Mutant::ChanCloseForgetsSenders, || Self::end_all(&mut self.senders, Deal::Closed, woken));
        self.tell_send_watchers(woken);
        self.tell_receive_watchers(woken);
        self.end_receivers_if_drained(woken);
        true
    }

    /// Receivers that wait for what was promised, and who watches for it, hear that it will not come.
    pub(crate) fn end_receivers_if_drained(&mut self, woken: &mut Woken) {
        if self.is_drained() && !mutated(Mutant::ChanCloseForgetsReceivers) {
            Self::end_all(&mut self.receivers, Deal::Closed, woken);
            self.tell_receive_watchers(woken);
        }
    }

    /// Whether a `recv` would go on now; perhaps another is faster.
    #[inline]
    pub(crate) fn may_receive(&self) -> bool {
        if self.has_nothing_to_take() {
            return false;
        }
        let sender = self.capacity == 0 && Self::somebody_waits(&self.senders);
        self.len > 0 || sender || self.is_drained() || self.due().is_some_and(|due| due <= Active::now())
    }

    /// Whether a `send` would.
    pub(crate) fn may_send(&self) -> bool {
        self.closed || self.has_room() || self.capacity == 0 && Self::somebody_waits(&self.receivers)
    }

    #[inline]
    fn somebody_waits(queue: &Queue<Record>) -> bool {
        // SAFETY: they stand in the queue, which is locked.
        !queue.is_empty() && queue.iter().any(|record| unsafe { record.as_ref() }.value.is_open())
    }

    /// When the next message of a channel that tells the time is there.
    pub(crate) fn due(&self) -> Option<Nanos> {
        self.tick.and_then(|tick| tick.due)
    }
}
