//! Messages that a select brings after it was chosen: what was promised for them, and how that is kept or withdrawn. See
//! `state.rs`.

use crate::chan::flow::{Chan, Ended, Patience};
use crate::chan::state::{Deal, Message, Record, RecordPtr, Seat, State, Woken};
use crate::host::Active;
use crate::interrupt::Ends;
use crate::prim::{Mutant, mutated, unless};
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::waiter::{How, Wait, Woke};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// Waits for the message of a sender that the caller has claimed, and has it put into `slot`. False: it will not come.
/// `holds` is a record that keeps the caller's place in the same queue, and is Held.
///
/// # Safety
/// The sender is claimed and out of its queue, and `slot` is good for its messages.
pub(crate) unsafe fn keep_promise(
    sender: RecordPtr,
    slot: *mut (),
    patience: Patience,
    holds: Option<RecordPtr>,
) -> bool {
    let mut wait = match patience {
        Patience::Parks => Wait::<Active>::begin(),
        Patience::Thread => {
            Sched::<Active>::step_aside();
            Wait::begin_on_thread()
        }
    };
    let record = Record::partner(wait.waiter(), slot, holds);
    let partner = NonNull::from(&record);
    let ask = || {
        // SAFETY: claimed, and it sleeps until it is readied.
        let sender = unsafe { &sender.as_ref().value };
        sender.set_deal(Deal::Partner(partner));
        sender.ready();
    };
    if mutated(Mutant::PromiseAskedTooEarly) {
        ask();
    }
    // The sender may answer as soon as it is readied, and is to find us asleep.
    let woke = wait.park(How::new(WaitReason::ChanReceive).ends(Ends::Never), move || {
        unless(Mutant::PromiseAskedTooEarly, ask);
        Commit::Park
    });
    debug_assert_eq!(woke, Woke::Readied, "nothing but its sender ends this wait");
    record.value.deal() == Deal::Done
}

/// Messages that a sender brings when it has them.
pub(crate) enum Promised {
    /// This receiver waits for it and can be claimed by nobody else, except by the end of its runtime.
    Partner(RecordPtr),
    /// This receiver stood in the queue, and is claimed.
    Claimed(RecordPtr),
    /// There is a place in the buffer.
    Reserved,
    /// The channel is closed.
    Closed,
}

impl<T> Chan<T> {
    /// Brings the message. Gives it back when the channel is closed.
    pub(crate) fn fulfil(&self, promised: Promised, message: T) -> Result<(), T> {
        match promised {
            Promised::Closed => return Err(message),
            Promised::Reserved => self.fill_reserved(message),
            Promised::Partner(receiver) => {
                // SAFETY: it lies on the stack of one who waits, or who was left behind by its runtime.
                if !unsafe { receiver.as_ref() }.value.claim() {
                    return self.send_whole(message);
                }
                self.hand_over(receiver, message);
            }
            Promised::Claimed(receiver) => {
                // SAFETY: claimed, and its owner sleeps, or was left behind by its runtime, and its stack with it.
                if unsafe { receiver.as_ref() }.value.is_left() {
                    return self.send_whole(message);
                }
                self.hand_over(receiver, message);
            }
        }
        Ok(())
    }

    fn hand_over(&self, receiver: RecordPtr, message: T) {
        let (mut woken, message) = (Woken::new(), ManuallyDrop::new(message));
        // SAFETY: claimed, and in no queue. The message lies there, and is not dropped here.
        unsafe { self.hand(receiver, &raw const *message, &mut woken) };
        woken.ready();
    }

    fn send_whole(&self, message: T) -> Result<(), T> {
        let mut message = MaybeUninit::new(message);
        // SAFETY: it lies there; it was moved if and only if it was sent.
        unsafe {
            match self.send(message.as_mut_ptr(), None) {
                Ended::Done => Ok(()),
                _ => Err(message.assume_init()),
            }
        }
    }

    /// The message will not come.
    pub(crate) fn withdraw(&self, promised: Promised) {
        match promised {
            Promised::Closed => {}
            Promised::Reserved => self.give_reserved_back(),
            Promised::Partner(receiver) => {
                // SAFETY: as in `fulfil`.
                let it = unsafe { &receiver.as_ref().value };
                if it.claim() {
                    let (mut state, mut woken) = (self.lock(), Woken::new());
                    it.withdraw();
                    self.feed(&mut state, &mut woken);
                    drop(state);
                    woken.ready();
                    unless(Mutant::PromiseWithdrawnSilently, || it.ready());
                }
            }
            Promised::Claimed(receiver) => {
                let (mut state, mut woken) = (self.lock(), Woken::new());
                // SAFETY: claimed by this operation, which readies it below.
                unsafe { state.put_back(receiver) };
                self.feed(&mut state, &mut woken);
                drop(state);
                woken.ready();
                // SAFETY: it sleeps until this.
                unsafe { receiver.as_ref() }.value.ready();
            }
        }
    }

    /// A message for a place that was promised.
    pub(crate) fn fill_reserved(&self, message: T) {
        let mut woken = Woken::new();
        let mut state = self.lock();
        state.reserved -= 1;
        let message = ManuallyDrop::new(message);
        // SAFETY: it lies there, and is not dropped here.
        unsafe { self.deliver(&mut state, &raw const *message, &mut woken) };
        // Where it went to a receiver, the place is free.
        unless(Mutant::ChanReservedNotOffered, || self.refill(&mut state, &mut woken));
        state.end_receivers_if_drained(&mut woken);
        drop(state);
        woken.ready();
    }

    /// No message comes for a place that was promised: it is the next sender's.
    pub(crate) fn give_reserved_back(&self) {
        let mut woken = Woken::new();
        let mut state = self.lock();
        state.reserved -= 1;
        unless(Mutant::ChanReservedNotOffered, || self.refill(&mut state, &mut woken));
        state.end_receivers_if_drained(&mut woken);
        drop(state);
        woken.ready();
    }

    /// Hands what is in the buffer, or without one what waits, to receivers that were returned meanwhile, in order.
    fn feed(&self, state: &mut State, woken: &mut Woken) {
        while state.len > 0
            && let Some(receiver) = state.claim_receiver(Message::Here)
        {
            // SAFETY: it sleeps, or comes to look under the lock; its slot is good for a message.
            unsafe {
                let it = &receiver.as_ref().value;
                self.pop(state, it.slot().cast());
                if it.seat() != Seat::Served {
                    it.set_deal(Deal::Done);
                    woken.add(receiver);
                }
            }
        }
        while let Some((receiver, sender)) = state.claim_pair() {
            // SAFETY: the sender is claimed, and its message lies there; the receiver is Served.
            unsafe {
                let it = &sender.as_ref().value;
                self.hand(receiver, it.slot().cast(), woken);
                it.set_deal(Deal::Done);
                woken.add(sender);
            }
        }
        self.refill(state, woken);
    }
}
