//! The record of an operation that waits, and the list of records whose owners are to be readied.

use crate::host::Active;
use crate::prim::UnsafeCell;
use crate::sched::run::wake::goready;
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{UpgradedWaiter, Waiter};
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// The address of a record.
pub(crate) type RecordPtr = NonNull<Node<Record>>;

/// How a counterpart has ended a waiting operation.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum WaitResult {
    /// No counterpart has ended the operation.
    Open,
    /// The message was moved.
    Done,
    /// The channel is closed.
    Closed,
    /// A select's send was chosen: the receiver with this ticket waits for the message.
    Partner(Ticket),
    /// A select's send was chosen: a place in the buffer is reserved for the message.
    Reserved,
    /// A select's receive was promised a message: the owner has to take the lock and see whether the message is there.
    Promised,
    /// The message that was promised to a receiver will not come.
    Withdrawn,
}

/// The number under which a sender knows a receiver: a record's place. A channel gives each number once.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ticket(pub(super) NonZeroU64);

/// What a select's send has promised.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Promised {
    /// A message for the receiver with this ticket, if that still waits.
    To(Ticket),
    /// A message for a reserved place in the buffer.
    Reserved,
    /// Nothing: the channel is closed.
    Closed,
}

/// The kind of wait that a record stands for.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Kind {
    /// An operation that waits in this queue alone.
    Alone,
    /// An arm of a select.
    OfSelect,
    /// A wait for a promised message; with the record that keeps the owner's place in the same channel's queue.
    Partner(Option<RecordPtr>),
}

/// What a counterpart may do with a record that stands in a queue. Read and written under the lock.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum QueueState {
    /// The owner waits under the record's wait number: a claim decides.
    Open,
    /// The owner is awake, and has not taken the lock yet. A message may still be put into the record's slot.
    Returned,
    /// As Returned, and a message was put into the slot. The record is out of the queue.
    Served,
    /// The owner is taking a message itself, or waits for a message that was promised under another of the owner's
    /// records. The record keeps the owner's place, and is not served.
    Held,
    /// The owner waits under the record's wait number, and was promised a message. The record stands in `promised`.
    Promised,
    /// As Promised, but the owner was readied, and has not taken the lock yet.
    Coming,
}

/// An operation that waits.
pub(crate) struct Record {
    waiter: UnsafeCell<Waiter<Active>>,
    slot: UnsafeCell<*mut ()>,
    wait_result: UnsafeCell<WaitResult>,
    queue_state: UnsafeCell<QueueState>,
    pub(super) place: UnsafeCell<u64>,
    pub(super) kind: Kind,
}

impl Record {
    /// `slot` is null for a send whose message is not evaluated yet.
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

    /// Makes a Held record Returned, as the promise to its owner has ended: the record may be served again. Under the
    /// lock.
    pub(crate) fn end_hold(&self) {
        if self.queue_state() == QueueState::Held {
            self.set_queue_state(QueueState::Returned);
        }
    }

    #[inline]
    pub(crate) fn claim(&self) -> bool {
        // SAFETY: the caller has the channel's lock, or owns the record.
        self.waiter.with(|waiter| unsafe { (*waiter).claim() })
    }

    /// Returns `true` if a claim would win now.
    pub(super) fn is_open(&self) -> bool {
        // SAFETY: under the lock.
        self.waiter.with(|waiter| unsafe { (*waiter).is_open() })
    }

    /// Returns `true` if the owner was left behind by the runtime.
    pub(crate) fn is_left(&self) -> bool {
        // SAFETY: the caller has the channel's lock, or has claimed the wait.
        self.waiter.with(|waiter| unsafe { (*waiter).is_left() })
    }

    /// Readies the owner, whose wait the caller has claimed. The record may be gone afterwards.
    #[inline]
    pub(crate) fn ready(&self) {
        // SAFETY: the caller has claimed the wait, so the owner sleeps, and the record stays, until the owner is
        // readied here.
        match self.waiter.with(|waiter| unsafe { (*waiter).g() }) {
            Some(g) => goready(g),
            None => self.ready_thread(),
        }
    }

    #[cold]
    pub(super) fn ready_thread(&self) {
        // SAFETY: the caller of `ready` has claimed the wait, so the owner sleeps, and the record stays, until the
        // owner is readied here.
        let waiter = self.waiter.with(|waiter| unsafe { (*waiter).clone() });
        waiter.ready();
    }

    /// The waiter, kept alive so that the caller can nudge the waiter after the lock.
    pub(crate) fn upgrade(&self) -> UpgradedWaiter<Active> {
        // SAFETY: under the lock.
        self.waiter.with(|waiter| unsafe { (*waiter).upgrade() })
    }

    pub(crate) fn slot(&self) -> *mut () {
        // SAFETY: the slot was set before the record was queued, and does not change.
        self.slot.with(|slot| unsafe { *slot })
    }

    pub(crate) fn wait_result(&self) -> WaitResult {
        // SAFETY: the caller is the owner, whose wait is over (the ready published the result), or the thread that
        // has claimed the wait.
        self.wait_result.with(|wait_result| unsafe { *wait_result })
    }

    /// Sets the result. The caller has claimed the wait, or is the owner between two waits.
    pub(crate) fn set_wait_result(&self, to: WaitResult) {
        // SAFETY: a claim is won once, and the record's owner sleeps until `ready`; in `renew` the owner holds the
        // lock, and no wait is open.
        self.wait_result.with_mut(|wait_result| unsafe { *wait_result = to });
    }

    /// The owner opens a new wait under the same record, which keeps its place. Under the lock.
    pub(crate) fn renew(&self, waiter: Waiter<Active>) {
        // SAFETY: others read the waiter under the lock only, which the owner has here.
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

    pub(super) fn place(&self) -> u64 {
        // SAFETY: under the lock.
        self.place.with(|place| unsafe { *place })
    }

    /// The record's ticket. Under the lock, after `give_place`.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(NonZeroU64::new(self.place()).expect("ticket: the record was never queued"))
    }
}

/// Claimed records, whose owners are to be readied when the lock is free. Mostly there is one.
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
    /// The caller has claimed the record's wait and taken the record out of the queue.
    #[inline]
    pub(crate) unsafe fn add(&mut self, record: RecordPtr) {
        if self.first.is_none() {
            self.first = Some(record);
        } else {
            // SAFETY: the record's owner sleeps until `ready`, by this function's contract, so the record stays.
            unsafe { self.others.push_back(record) };
        }
    }

    /// Adds a claimed record that stands in a queue (`promised`); such a record must be the first, as its links are in
    /// use.
    pub(super) fn add_linked(&mut self, record: RecordPtr) {
        debug_assert!(self.first.is_none(), "add_linked: its links are in use");
        self.first = Some(record);
    }

    /// Readies all. Called without the lock.
    #[inline]
    pub(crate) fn ready(self) {
        if let Some(first) = self.first {
            // SAFETY: by the contract of `add` the owner sleeps until this.
            unsafe { first.as_ref() }.value.ready();
            if !self.others.is_empty() {
                Self::ready_all(self.others);
            }
        }
    }

    #[cold]
    pub(super) fn ready_all(mut records: Queue<Record>) {
        while let Some(record) = records.pop_front() {
            // SAFETY: by the contract of `add` the owner sleeps until this.
            unsafe { record.as_ref() }.value.ready();
        }
    }
}
