//! The record of a waiting operation, and the list of records whose owners are readied after the lock.

use crate::host::Active;
use crate::prim::UnsafeCell;
use crate::wait::queue::{Node, Queue};
use crate::wait::task::Readied;
use crate::wait::waiter::{Claimed, UpgradedWaiter, Waiter};
use std::num::NonZeroU64;
use std::ptr::NonNull;

/// The address of a record.
pub(crate) type RecordPtr = NonNull<Node<Record>>;

/// The result that a counterpart gave to a waiting operation.
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
    /// A message is granted to the task: it lies in the buffer, and the task takes the buffer's first message as its own.
    Granted,
    /// A select's receive was promised a message: the owner has to take the lock and look whether the message is there.
    Promised,
    /// The message that was promised to a receiver will not come.
    Withdrawn,
}

/// The number by which a sender knows a receiver: the place of a record. A channel gives out each number once.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) struct Ticket(pub(super) NonZeroU64);

/// The promise of a select's send.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Promised {
    /// A message for the receiver with this ticket, if that receiver still waits.
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
    /// A receive of a task, which has no slot, and waits in this queue alone.
    OfTask,
    /// A wait for a promised message, with the record, if any, that keeps the owner's place in the same channel's queue.
    Partner(Option<RecordPtr>),
}

/// The state of a record in a queue, which says what a counterpart may do with it. Read and written under the lock.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum QueueState {
    /// The owner waits under the record's wait number: a claim decides.
    Open,
    /// As Open, for the record of a task. A separate state, so that a sender that hands a message to the first receiver looks
    /// at one byte only.
    OpenToGrants,
    /// The owner is awake, and has not taken the lock yet. A sender may still put a message into the record's slot.
    Returned,
    /// As Returned, but a sender has put a message into the slot. The record is out of the queue.
    Served,
    /// The owner is taking a message itself, or waits for a message that was promised under another of the owner's records. The
    /// record keeps the owner's place, and no counterpart serves it.
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
    pub(crate) kind: Kind,
}

impl Record {
    /// `slot` is null for a send whose message is not evaluated yet.
    #[inline(always)]
    pub(crate) fn new(waiter: Waiter<Active>, slot: *mut (), kind: Kind) -> Node<Record> {
        let open = if kind == Kind::OfTask { QueueState::OpenToGrants } else { QueueState::Open };
        Node::new(Record {
            waiter: UnsafeCell::new(waiter),
            slot: UnsafeCell::new(slot),
            wait_result: UnsafeCell::new(WaitResult::Open),
            queue_state: UnsafeCell::new(open),
            place: UnsafeCell::new(0),
            kind,
        })
    }

    /// Makes a Held record Returned, as the promise to its owner has ended: counterparts may serve the record again. Under the
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

    /// Returns `true` if the runtime has left the owner behind.
    pub(crate) fn is_left(&self) -> bool {
        // SAFETY: the caller has the channel's lock, or has claimed the wait.
        self.waiter.with(|waiter| unsafe { (*waiter).is_left() })
    }

    /// Returns the owner, whose wait the caller has claimed, and whom the caller has to ready. The record may be gone
    /// afterwards.
    #[inline(always)]
    pub(crate) fn claimed(&self) -> Claimed<Active> {
        // SAFETY: the caller has claimed the wait, so the owner sleeps, and the record stays, until the owner is readied.
        self.waiter.with(|waiter| unsafe { (*waiter).claimed() })
    }

    /// Returns the waiter, kept alive so that the caller can nudge it after the lock.
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

    /// Opens a new wait of the owner under the same record, which keeps its place. Under the lock.
    pub(crate) fn renew(&self, waiter: Waiter<Active>) {
        // SAFETY: others read the waiter only under the lock, which the owner has here.
        self.waiter.with_mut(|old| unsafe { *old = waiter });
        self.set_wait_result(WaitResult::Open);
        let of_task = self.kind == Kind::OfTask;
        self.set_queue_state(if of_task { QueueState::OpenToGrants } else { QueueState::Open });
    }

    /// Returns `true` if no counterpart has claimed the owner's wait and noted that in the queue state. Under the lock.
    pub(super) fn is_unclaimed(&self) -> bool {
        matches!(self.queue_state(), QueueState::Open | QueueState::OpenToGrants)
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

    /// Returns the record's ticket. Under the lock, after `give_place`.
    pub(super) fn ticket(&self) -> Ticket {
        Ticket(NonZeroU64::new(self.place()).expect("ticket: the record was never queued"))
    }
}

/// Claimed records, whose owners are readied when the lock is free. Most often there is one.
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

    /// Adds a claimed record whose links are in use (it stands in `promised`, or was put back); such a record must be the
    /// first.
    pub(super) fn add_linked(&mut self, record: RecordPtr) {
        debug_assert!(self.first.is_none(), "add_linked: its links are in use");
        self.first = Some(record);
    }

    /// Readies all owners. Called without the lock.
    #[inline]
    pub(crate) fn ready(self) {
        if let Some(first) = self.first {
            if self.others.is_empty() {
                // SAFETY: by the contract of `add` the owner sleeps until this.
                unsafe { first.as_ref() }.value.claimed().ready();
            } else {
                Self::ready_all(first, self.others);
            }
        }
    }

    /// Calls the wakers of tasks last: a waker might drop a future that waits to be readied here.
    #[cold]
    fn ready_all(first: RecordPtr, others: Queue<Record>) {
        let mut readied = Readied::new();
        Woken { first: Some(first), others }.ready_with(&mut readied);
        readied.call_wakers();
    }

    /// As `ready`, but another thread calls the wakers of tasks, or another goroutine.
    pub(crate) fn ready_elsewhere(self) {
        let mut readied = Readied::new();
        self.ready_with(&mut readied);
        readied.call_wakers_elsewhere();
    }

    /// As `ready`, but leaves it to the caller to call the wakers of tasks.
    pub(crate) fn ready_with(mut self, readied: &mut Readied<Active>) {
        let mut at = self.first;
        while let Some(record) = at {
            // The next record is taken out first: this record goes when its owner resumes.
            at = self.others.pop_front();
            // SAFETY: by the contract of `add` the owner sleeps until this.
            unsafe { record.as_ref() }.value.claimed().ready_with(readied);
        }
    }
}
