//! The promises of sends that were chosen before their message was there; see `chan/state.rs`.

use super::{Kind, Promised, QueueState, RecordPtr, State, Ticket, WaitResult, Woken};
use crate::prim::hooks::*;

impl State {
    /// Makes a promise for the send of a running select; `None` if the send has to wait. A receiver that waits in a
    /// select is added to `woken`.
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

    /// Promises a message to the first waiting receiver, and returns the receiver's ticket.
    fn promise_receiver(&mut self, woken: &mut Woken) -> Option<Ticket> {
        let mut at = self.receivers.front();
        while let Some(record) = at {
            at = self.receivers.next(record);
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            if (!it.is_unclaimed()).unless(PromiseToOneAwake) {
                continue;
            }
            // A record that can't be claimed is removed: the owner is leaving, or was left behind by the runtime.
            let waits = if it.kind == Kind::OfSelect { it.claim() } else { it.is_open() };
            // SAFETY: the record stands in the queue, which is locked; the owner takes it out of `promised` before
            // the owner returns.
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

    /// Queues the partner record of a receiver that has claimed a waiting send, and returns the ticket for the
    /// sender.
    ///
    /// # Safety
    /// The partner is in no queue, and is taken out of the queue before it is dropped.
    pub(crate) unsafe fn ask(&mut self, partner: RecordPtr) -> Ticket {
        self.promises += 1;
        // SAFETY: by this function's contract.
        unsafe {
            self.give_place(partner);
            self.wait_for_promise(partner)
        }
    }

    /// Makes a task wait for the message of a send that it has claimed, under the task's own record, which keeps its place if
    /// it has one. Returns the ticket for the sender.
    ///
    /// # Safety
    /// As `ask`; the record belongs to a task, stands among the receivers or in no queue, and its wait is open.
    pub(crate) unsafe fn ask_for_task(&mut self, record: RecordPtr) -> Ticket {
        self.promises += 1;
        // SAFETY: by this function's contract.
        unsafe {
            if !self.receivers.remove(record) {
                self.give_place(record);
            }
            self.wait_for_promise(record)
        }
    }

    /// Returns `true` if the receiver with this ticket is a task that has not left.
    pub(crate) fn is_promised_to_task(&self, ticket: Ticket) -> bool {
        self.promised.iter().any(|at| {
            // SAFETY: the records stand in the queue, which is locked.
            let it = unsafe { &at.as_ref().value };
            it.kind == Kind::OfTask && it.ticket() == ticket
        })
    }

    /// Lets a Coming receiver continue to wait: the partner record takes over the ticket, and the receiver's own record goes
    /// back to its place, Held.
    ///
    /// # Safety
    /// As `ask`; the record is Coming, and belongs to the caller.
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
        // SAFETY: by this function's contract.
        unsafe { self.promised.push_back(partner) };
        it.ticket()
    }

    /// Takes a ticket back. Returns the ticket's record, out of `promised`, if the receiver has not left.
    fn redeem(&mut self, ticket: Ticket) -> Option<RecordPtr> {
        self.promises -= 1;
        // SAFETY: the records stand in the queue, which is locked.
        let record = self.promised.iter().find(|at| unsafe { at.as_ref() }.value.ticket() == ticket)?;
        // SAFETY: the records stand in the queue, which is locked.
        unsafe { self.promised.remove(record) };
        Some(record)
    }

    /// Does F1: returns the receiver for a promised message that is there now; `None` if the receiver has left.
    pub(crate) fn keep_promise(&mut self, ticket: Ticket) -> Option<RecordPtr> {
        let record = self.redeem(ticket)?;
        // SAFETY: the record's owner sleeps, or first has to take the lock, which the caller has.
        let it = unsafe { &record.as_ref().value };
        let gets = match it.queue_state() {
            QueueState::Coming if it.is_left().unless(PromiseKeptToTheLeft) => false,
            QueueState::Coming => {
                it.set_queue_state(QueueState::Served);
                true
            }
            // The receiver's M parks it after the end of their runtime, and has not claimed the wait yet (`Sched::leave_late`).
            _ if it.is_left().unless(PromiseKeptToTheLate) => false,
            _ => it.claim(),
        };
        mutant!(PromiseKeptWithoutClaim: let gets = gets || it.queue_state() != QueueState::Coming);
        if gets {
            self.grant(it);
        }
        gets.then_some(record)
    }

    /// Withdraws a promise. Adds a receiver that is claimed for that to `woken`, as the first; the caller serves records that
    /// were put back (`Chan::feed`).
    pub(crate) fn break_promise(&mut self, ticket: Ticket, woken: &mut Woken) {
        let Some(record) = self.redeem(ticket) else { return };
        // SAFETY: the record's owner sleeps, or first has to take the lock, which the caller has.
        let it = unsafe { &record.as_ref().value };
        if it.queue_state() == QueueState::Coming {
            // SAFETY: `redeem` has taken the record out; the owner takes the record out again before returning.
            unsafe { self.stand_again(record, QueueState::Returned) };
            return;
        }
        if !it.claim() {
            // The receiver is leaving, and reads the record without the lock.
            return;
        }
        it.set_wait_result(WaitResult::Withdrawn);
        match it.kind {
            Kind::Partner(None) => {}
            // SAFETY: the held record lies on the stack of the same owner, which sleeps.
            Kind::Partner(Some(held)) => unsafe { unless!(PromiseHoldsOn, held.as_ref().value.end_hold()) },
            // SAFETY: as for a Coming record, above.
            Kind::Alone | Kind::OfSelect => unsafe { self.stand_again(record, QueueState::Returned) },
            // A task has no slot for a message of another sender. The task looks for a message itself, from the place that it
            // keeps. SAFETY: as for a Coming record, above.
            Kind::OfTask => unsafe { self.stand_again(record, QueueState::Held) },
        }
        unless!(PromiseWithdrawnSilently, woken.add_linked(record));
    }

    /// Puts a record back in its place among the receivers.
    ///
    /// # Safety
    /// The record stands in no queue, and the owner takes the record out before returning.
    unsafe fn stand_again(&mut self, receiver: RecordPtr, queue_state: QueueState) {
        // SAFETY: the record's owner sleeps, or first has to take the lock, which the caller has.
        unsafe {
            receiver.as_ref().value.set_queue_state(queue_state);
            self.insert_by_place(receiver);
        }
    }

    /// Puts a record in its place among the receivers.
    ///
    /// # Safety
    /// As `stand_again`.
    pub(super) unsafe fn insert_by_place(&mut self, receiver: RecordPtr) {
        // SAFETY: by this function's contract.
        let it = unsafe { &receiver.as_ref().value };
        // Only other records that were put back can have smaller places. SAFETY: the records stand in the queue, which is
        // locked.
        let behind = self.receivers.iter().find(|at| unsafe { at.as_ref() }.value.place() > it.place());
        // SAFETY: by this function's contract.
        unsafe { self.receivers.insert_before(receiver, behind) };
    }
}
