//! What lies under a channel's lock, whatever its messages are.
//!
//! ```text
//!   send:  a receiver waits? ──▶ into its slot        recv:  a message in the buffer? ──▶ take it; a waiting sender's
//!          room?             ──▶ into the buffer                                         moves up into the buffer
//!          else              ──▶ wait                        a sender waits? ──▶ out of its slot
//!                                                            else           ──▶ wait
//! ```
//! A waiting operation is a [`Record`] on its owner's stack, with a *slot*: where a receiver's message is to go, where a
//! sender's lies. Whoever finds it claims its wait, moves the message, notes the [`WaitResult`], takes it out of the queue,
//! and readies the owner once the lock is free. So a message goes from hand to hand, and who waits never has to look again.
//!
//! **A promise.** A send in a `select!` has its message only after it was chosen, and its record has no slot. What is promised
//! is a *reserved* place in the buffer, which counts as taken, or the message of one receiver. That receiver's record stands in
//! a queue of its own, `promised`, and the sender knows only its number there, the [`Ticket`]: the receiver may leave at any
//! time, by its limit or an interrupt, and takes its record along. Three ways lead there:
//!
//! * a receiver claims a send that waits: it queues a *partner* record, and its owner waits for the message and nothing else;
//! * a `select!` that runs finds a receiver that waits in this queue alone: its wait stays open, and it sleeps on;
//! * a `select!` that runs finds a receiver that is a `select!` itself: its wait is claimed, as no other channel may end it,
//!   and readied at once. It comes to look (*coming*), and becomes a partner if the message is not in its slot by then.
//!
//! ```text
//!   sender:    F1 lock: the ticket's record out of `promised`; claim its wait (or it is coming): the message into its slot
//!              F2 none is there, or the claim fails: a plain send, with the limit of the select
//!   receiver:  G1 its own claim wins (limit, interrupt) · G2 lock: its record out of `promised`
//! ```
//! One claim wins: the message is in the slot of a receiver that goes on, or with the sender. If the message's expression
//! unwinds, or the sender's goroutine is left behind by its runtime ([`PromiseHook`](crate::chan::select::PromiseHook)), the
//! promise is withdrawn: the place is given back and offered to the next sender; a partner starts anew; a record that was in
//! the queue is put back to its place, *returned*: its owner is awake, and will come to look; the lock alone decides
//! meanwhile whether a message still goes to it ([`QueueState`]).
//!
//! Invariants, under the lock:
//! 1. A receiver that can be claimed stands in the queue only while the buffer is empty; a sender only while
//!    `len + reserved` is the capacity.
//! 2. After the close no sender stands in the queue; and no receiver, once the buffer is empty and nothing is reserved.
//! 3. A record's result changes from Open once for each number; whoever changes it has claimed that number.
//! 4. Records stand in a queue in the order of their places, which they keep until their operation ends.
//! 5. `promises` is the number of tickets that were given out and are neither kept nor withdrawn, `reserved` that of places.

use crate::host::{Active, Host};
use crate::prim::{Mutant, UnsafeCell, mutated, unless};
use crate::sched::run::wake::goready;
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{UpgradedWaiter, Waiter};
use gmp_timers::Nanos;
use std::num::NonZeroU64;
use std::ptr::NonNull;
use std::time::Duration;

/// A record, where it lies.
pub(crate) type RecordPtr = NonNull<Node<Record>>;

/// How a waiting operation was ended by a counterpart.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum WaitResult {
    /// It was not.
    Open,
    /// The message was moved.
    Done,
    /// The channel is closed.
    Closed,
    /// A send without a message: a receiver waits for it.
    Partner(Ticket),
    /// A send without a message: there is a place for it in the buffer.
    Reserved,
    /// A select's receive: its message was promised, and it comes to look.
    Promised,
    /// A receiver's message will not come.
    Withdrawn,
}

/// The number of a record: never given twice by one channel.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ticket(NonZeroU64);

/// What a select's send has promised to bring.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Promised {
    /// The message of the receiver with this ticket, if that still waits.
    To(Ticket),
    /// A message for a place in the buffer.
    Reserved,
    /// Nothing: the channel is closed.
    Closed,
}

/// Whose record it is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// An operation's that waits in no other queue.
    Alone,
    /// An arm's of a select.
    OfSelect,
    /// One that waits for a promise; with the record that keeps its owner's place in the same channel's queue.
    Partner(Option<RecordPtr>),
}

/// What a place in a queue is worth. Under the lock.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum QueueState {
    /// Its owner waits under the number in the record.
    Open,
    /// Its owner is awake, and has not looked yet. A message may still be put into its slot.
    Returned,
    /// The same, and one was; the record is out of the queue.
    Served,
    /// Its owner waits for a message that was promised to it under another record.
    Held,
    /// Its owner waits under the number in the record, and a message was promised to it. The record stands in `promised`.
    Promised,
    /// The same, but its owner is awake, and has not looked yet.
    Coming,
}

/// One operation that waits.
pub(crate) struct Record {
    waiter: UnsafeCell<Waiter<Active>>,
    slot: UnsafeCell<*mut ()>,
    wait_result: UnsafeCell<WaitResult>,
    queue_state: UnsafeCell<QueueState>,
    place: UnsafeCell<u64>,
    kind: Kind,
}

impl Record {
    /// `slot` is null for a send whose message is not there yet.
    #[inline(always)]
    pub(crate) fn new(waiter: Waiter<Active>, slot: *mut (), kind: Kind) -> Node<Record> {
        Node::new(Record {
            waiter: UnsafeCell::new(waiter),
            slot: UnsafeCell::new(slot),
            wait_result: UnsafeCell::new(WaitResult::Open),
            queue_state: UnsafeCell::new(QueueState::Open),
            place: UnsafeCell::new(0),
            kind,
        })
    }

    /// A promise ends, in the lock: whoever keeps a place may be served again.
    pub(crate) fn end_hold(&self) {
        if self.queue_state() == QueueState::Held {
            self.set_queue_state(QueueState::Returned);
        }
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
    pub(crate) fn upgrade(&self) -> UpgradedWaiter<Active> {
        // SAFETY: under the lock.
        self.waiter.with(|waiter| unsafe { (*waiter).upgrade() })
    }

    pub(crate) fn slot(&self) -> *mut () {
        // SAFETY: set before it was queued.
        self.slot.with(|slot| unsafe { *slot })
    }

    pub(crate) fn wait_result(&self) -> WaitResult {
        // SAFETY: the owner runs, and the result came with the ready; or the caller has claimed the wait.
        self.wait_result.with(|wait_result| unsafe { *wait_result })
    }

    /// By whoever has claimed the wait.
    pub(crate) fn set_wait_result(&self, to: WaitResult) {
        // SAFETY: the claim is won once, and the owner sleeps.
        self.wait_result.with_mut(|wait_result| unsafe { *wait_result = to });
    }

    /// The owner opens a new wait in the same place, under the lock.
    pub(crate) fn renew(&self, waiter: Waiter<Active>) {
        // SAFETY: the lock keeps others from it.
        self.waiter.with_mut(|old| unsafe { *old = waiter });
        self.set_wait_result(WaitResult::Open);
        self.set_queue_state(QueueState::Open);
    }

    /// Under the lock.
    pub(crate) fn queue_state(&self) -> QueueState {
        // SAFETY: under the lock.
        self.queue_state.with(|queue_state| unsafe { *queue_state })
    }

    /// Under the lock.
    pub(crate) fn set_queue_state(&self, to: QueueState) {
        // SAFETY: under the lock.
        self.queue_state.with_mut(|queue_state| unsafe { *queue_state = to });
    }

    fn place(&self) -> u64 {
        // SAFETY: under the lock.
        self.place.with(|place| unsafe { *place })
    }

    /// Under the lock, once it has a place.
    fn ticket(&self) -> Ticket {
        Ticket(NonZeroU64::new(self.place()).expect("ticket: the record was never queued"))
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
    /// Receivers to whom a message was promised; in no order.
    pub(crate) promised: Queue<Record>,
    /// Tickets that senders hold, also those of receivers that have left.
    pub(crate) promises: usize,
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

    /// One that stands in a queue, and is the first here.
    fn add_linked(&mut self, record: RecordPtr) {
        debug_assert!(self.first.is_none(), "add_linked: its links are in use");
        self.first = Some(record);
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
            promised: Queue::new(),
            promises: 0,
        }
    }

    /// A number for the next record in a queue.
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
        if it.queue_state() == QueueState::Open && it.claim() {
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
            let claimed = match it.queue_state() {
                QueueState::Open => it.claim() || mutated(Mutant::ChanServesWithoutClaim),
                // It does not come to look, and what it was given would be lost.
                QueueState::Returned if it.is_left() => false,
                QueueState::Returned if message == Message::Here => {
                    it.set_queue_state(QueueState::Served);
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
            it.queue_state() == QueueState::Returned && !it.is_left()
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
                    receiver.as_ref().value.set_queue_state(QueueState::Served);
                    self.receivers.remove(receiver);
                }
                return Some((receiver, sender));
            }
        }
        None
    }

    /// What the send of a select finds, which it then has to bring; `None`: it has to wait. A select that receives is to be
    /// woken for that.
    #[inline(never)]
    pub(crate) fn promise(&mut self, woken: &mut Woken) -> Option<Promised> {
        if self.closed {
            return Some(Promised::Closed);
        }
        let room = self.has_room();
        if !room && (self.capacity > 0 || self.receivers.is_empty()) {
            // As in `offer`.
            return None;
        }
        if let Some(ticket) = self.promise_receiver(woken) {
            return Some(Promised::To(ticket));
        }
        self.reserved += usize::from(room);
        room.then_some(Promised::Reserved)
    }

    /// Promises a message to the first receiver that waits.
    fn promise_receiver(&mut self, woken: &mut Woken) -> Option<Ticket> {
        let mut at = self.receivers.front();
        while let Some(record) = at {
            at = self.receivers.next(record);
            // SAFETY: it stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            if it.queue_state() != QueueState::Open {
                continue;
            }
            // Who can't be claimed leaves, or was left behind by its runtime.
            let waits = if it.kind == Kind::OfSelect { it.claim() } else { it.is_open() };
            // SAFETY: as above; its owner takes it out of the other queue before it goes.
            unsafe {
                self.receivers.remove(record);
                if !waits {
                    continue;
                }
                self.promised.push_back(record);
            }
            self.promises += 1;
            if it.kind == Kind::OfSelect {
                it.set_wait_result(WaitResult::Promised);
                it.set_queue_state(QueueState::Coming);
                woken.add_linked(record);
            } else {
                it.set_queue_state(QueueState::Promised);
            }
            return Some(it.ticket());
        }
        None
    }

    /// A receiver has claimed a send that waits, and queues a partner for its message.
    ///
    /// # Safety
    /// The partner is in no queue, and is taken out before it goes.
    pub(crate) unsafe fn ask(&mut self, partner: RecordPtr) -> Ticket {
        self.promises += 1;
        // SAFETY: by this function's contract.
        unsafe {
            self.give_place(partner);
            self.wait_for_promise(partner)
        }
    }

    /// A ticket under which nobody waits.
    pub(crate) fn promise_nobody(&mut self) -> Ticket {
        self.promises += 1;
        self.places += 1;
        Ticket(NonZeroU64::new(self.places).expect("promise_nobody: counted just now"))
    }

    /// A receiver that came to look waits on, by a partner that takes over the ticket; its record keeps its place meanwhile.
    ///
    /// # Safety
    /// As `ask`; the record is Coming, and the caller's.
    pub(crate) unsafe fn ask_on(&mut self, partner: RecordPtr, record: RecordPtr) {
        // SAFETY: by this function's contract.
        unsafe {
            let it = &record.as_ref().value;
            partner.as_ref().value.place.with_mut(|place| *place = it.place());
            self.promised.remove(record);
            self.stand_again(record, QueueState::Held);
            self.wait_for_promise(partner);
        }
    }

    /// # Safety
    /// As `ask`.
    unsafe fn wait_for_promise(&mut self, partner: RecordPtr) -> Ticket {
        // SAFETY: by this function's contract.
        let it = unsafe { &partner.as_ref().value };
        it.set_queue_state(QueueState::Promised);
        // SAFETY: as above.
        unsafe { self.promised.push_back(partner) };
        it.ticket()
    }

    /// The ticket comes back: the record, out of its queue, if its owner has not left.
    fn redeem(&mut self, ticket: Ticket) -> Option<RecordPtr> {
        self.promises -= 1;
        // SAFETY: they stand in the queue, which is locked.
        let record = self.promised.iter().find(|at| unsafe { at.as_ref() }.value.ticket() == ticket)?;
        // SAFETY: as above.
        unsafe { self.promised.remove(record) };
        Some(record)
    }

    /// F1: the receiver of a message that was promised and is there now. It is claimed, or Served.
    pub(crate) fn keep_promise(&mut self, ticket: Ticket) -> Option<RecordPtr> {
        let record = self.redeem(ticket)?;
        // SAFETY: its owner sleeps, or comes to look under the lock.
        let it = unsafe { &record.as_ref().value };
        let gets = match it.queue_state() {
            QueueState::Coming if it.is_left() => false,
            QueueState::Coming => {
                it.set_queue_state(QueueState::Served);
                true
            }
            _ => it.claim() || mutated(Mutant::PromiseKeptWithoutClaim),
        };
        gets.then_some(record)
    }

    /// The message will not come. The receiver, if there is one to be readied; the caller feeds those that were put back.
    pub(crate) fn break_promise(&mut self, ticket: Ticket) -> Option<RecordPtr> {
        let record = self.redeem(ticket)?;
        // SAFETY: its owner sleeps, or comes to look under the lock.
        let it = unsafe { &record.as_ref().value };
        if it.queue_state() == QueueState::Coming {
            // SAFETY: it was taken out just now; its owner takes it out before it goes.
            unsafe { self.stand_again(record, QueueState::Returned) };
            return None;
        }
        if !it.claim() {
            // It leaves, and has to find itself in no queue.
            return None;
        }
        it.set_wait_result(WaitResult::Withdrawn);
        match it.kind {
            Kind::Partner(None) => {}
            // SAFETY: it lies on the stack of the same owner, who sleeps.
            Kind::Partner(Some(held)) => unsafe { held.as_ref() }.value.end_hold(),
            // SAFETY: as for one that comes.
            Kind::Alone | Kind::OfSelect => unsafe { self.stand_again(record, QueueState::Returned) },
        }
        Some(record)
    }

    /// Takes the caller's record out of the queue in which it stands, if it stands in one. Its wait is over.
    ///
    /// # Safety
    /// It is a receiver's, and stands in a queue of this channel or in none.
    pub(crate) unsafe fn leave(&mut self, record: RecordPtr) {
        // SAFETY: by this function's contract, and the queue state says which queue it is.
        unsafe {
            match record.as_ref().value.queue_state() {
                QueueState::Promised | QueueState::Coming => self.promised.remove(record),
                _ => self.receivers.remove(record),
            };
        }
    }

    /// What a send finds.
    #[inline]
    pub(crate) fn offer(&mut self) -> Offer {
        if self.closed {
            return Offer::Closed;
        }
        let room = self.has_room();
        if !room && (self.capacity > 0 || self.receivers.is_empty()) {
            // Also where a receiver waits, for what was promised: nobody overtakes a promise, nor a sender that waits.
            return Offer::Full;
        }
        // Who was put back comes to look, and takes from the sender that waits.
        let overtakes = self.capacity == 0 && Self::somebody_waits(&self.senders);
        let message = if overtakes { Message::ToCome } else { Message::Here };
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

    /// Puts a record whose message was promised back to its place.
    ///
    /// # Safety
    /// It stands in no queue, and its owner takes it out before it goes.
    unsafe fn stand_again(&mut self, receiver: RecordPtr, queue_state: QueueState) {
        // SAFETY: its owner sleeps, or comes to look under the lock.
        let it = unsafe { &receiver.as_ref().value };
        it.set_queue_state(queue_state);
        // Before it stand those only that were put back like it.
        // SAFETY: they stand in the queue, which is locked.
        let behind = self.receivers.iter().find(|at| unsafe { at.as_ref() }.value.place() > it.place());
        // SAFETY: by this function's contract.
        unsafe { self.receivers.insert_before(receiver, behind) };
    }

    /// A `recv` could go on now.
    #[inline]
    pub(crate) fn tell_receive_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.receive_watchers, WaitResult::Done, woken);
    }

    /// A `send` could go on now.
    #[inline]
    pub(crate) fn tell_send_watchers(&mut self, woken: &mut Woken) {
        Self::end_all(&mut self.send_watchers, WaitResult::Done, woken);
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

    /// Closes. False: it was closed before.
    pub(crate) fn close(&mut self, woken: &mut Woken) -> bool {
        if std::mem::replace(&mut self.closed, true) {
            return false;
        }
        unless(Mutant::ChanCloseForgetsSenders, || {
            Self::end_all(&mut self.senders, WaitResult::Closed, woken)
        });
        self.tell_send_watchers(woken);
        self.tell_receive_watchers(woken);
        self.end_receivers_if_drained(woken);
        true
    }

    /// Receivers that wait for what was promised, and who watches for it, hear that it will not come.
    pub(crate) fn end_receivers_if_drained(&mut self, woken: &mut Woken) {
        if self.is_drained() && !mutated(Mutant::ChanCloseForgetsReceivers) {
            Self::end_all(&mut self.receivers, WaitResult::Closed, woken);
            self.tell_receive_watchers(woken);
        }
    }

    /// Whether a `recv` would go on now; perhaps another is faster.
    #[inline(always)]
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
