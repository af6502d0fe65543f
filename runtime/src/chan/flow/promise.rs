//! Messages that a select brings after it was chosen: what was promised for them, and how that is kept or withdrawn. See
//! `state.rs`. Checked by `models/promise.rs`.

use crate::chan::flow::{Chan, Ended, Raw, WaitBy};
use crate::chan::select::Limit;
use crate::chan::state::{Kind, Message, Promised, QueueState, Record, RecordPtr, State, WaitResult, Woken};
use crate::host::{Active, Host};
use crate::prim::{Mutant, mutated, unless};
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::interrupt::Interrupt;
use crate::wait::waiter::{How, Opened, Wait, Woke};
use gmp_timers::Nanos;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::time::Duration;

/// So long at least a receiver waits for a message that was promised to it, also past its limit: the sender was there in time,
/// and would stand in the line of this channel alone from then on.
const GRACE: Duration = Duration::from_millis(10);

/// How a receiver came to a promise.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ask {
    /// It has claimed this send, which waits.
    Sender(RecordPtr),
    /// It was promised a message as it waited, by this record.
    Own(RecordPtr),
}

/// What came of a promise.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Outcome {
    /// The message is in the slot.
    Came,
    /// It will not come. The record that keeps the receiver's place is Returned, or Served.
    Withdrawn,
    /// The limit came first.
    TimedOut,
    /// The receiver is to leave its queues and unwind.
    Interrupted(Interrupt),
}

/// A receiver has claimed a send, and is about to open the wait for its message, for which it may have to park.
#[repr(C)]
struct Asks<'a> {
    hook: StandingHook,
    raw: &'a Raw,
    sender: RecordPtr,
}

impl Asks<'_> {
    /// The sender is answered in place of a receiver that never runs again, and finds nobody under its ticket.
    ///
    /// # Safety
    /// `hook` is that of an `Asks`.
    unsafe fn run(hook: *const AbandonHook) {
        // SAFETY: by this function's contract.
        let this = unsafe { &*hook.cast::<Self>() };
        // SAFETY: claimed, and it sleeps until it is readied.
        let sender = unsafe { &this.sender.as_ref().value };
        sender.set_wait_result(WaitResult::Partner(this.raw.state.lock().promise_nobody()));
        sender.ready();
    }
}

/// Opens the wait of a receiver for the message that it was promised.
fn open(raw: &Raw, ask: Ask) -> Opened<Active> {
    match (Wait::try_open(), ask) {
        (Some(opened), _) => opened,
        (None, Ask::Own(_)) => Wait::open(),
        (None, Ask::Sender(sender)) => {
            let asks = Asks { hook: StandingHook::new(Asks::run), raw, sender };
            let hook = (&raw const asks).cast();
            // SAFETY: the first field, of an `Asks`, which is taken back before it goes.
            unsafe { StandingHook::note(hook) };
            let opened = Wait::open();
            // SAFETY: as above.
            unsafe { StandingHook::take_back(hook) };
            opened
        }
    }
}

/// Waits for a message that was promised to the caller, and has it put into `slot`. `holds` is a record that keeps the
/// caller's place in the same channel's queue, and is Held; or it is the one that was promised the message.
///
/// # Safety
/// The sender is claimed and out of its queue, or the record is the caller's; `slot` is good for messages of this channel.
pub(crate) unsafe fn await_promise(
    raw: &Raw,
    ask: Ask,
    slot: *mut (),
    (patience, limit): (WaitBy, Option<Nanos>),
    holds: Option<RecordPtr>,
) -> Outcome {
    let mut wait = Wait::<Active>::of(match patience {
        WaitBy::Parks => open(raw, ask),
        WaitBy::Thread => {
            Sched::<Active>::step_aside();
            Wait::open_on_thread()
        }
    });
    let record = Record::new(wait.waiter(), slot, Kind::Partner(holds));
    let partner = NonNull::from(&record);
    let mut state = raw.state.lock();
    let sender = match ask {
        Ask::Sender(sender) => {
            // SAFETY: the partner leaves below. The sender is claimed, and sleeps until it is readied.
            unsafe { sender.as_ref().value.set_wait_result(WaitResult::Partner(state.ask(partner))) };
            Some(sender)
        }
        Ask::Own(own) => {
            // SAFETY: it is the caller's, and the state is locked.
            let queue_state = unsafe { own.as_ref() }.value.queue_state();
            if queue_state != QueueState::Coming {
                drop(state);
                wait.withdraw();
                return if queue_state == QueueState::Served { Outcome::Came } else { Outcome::Withdrawn };
            }
            // SAFETY: the partner leaves below.
            unsafe { state.ask_on(partner, own) };
            None
        }
    };
    let told = move || {
        drop(state);
        if let Some(sender) = sender {
            // SAFETY: as above.
            unsafe { sender.as_ref() }.value.ready();
        }
    };
    let until = limit.map(|limit| limit.max(Active::now().saturating_add(GRACE)));
    let how = How::new(WaitReason::ChanReceive).until(until);
    // The sender may answer as soon as it is readied, and is to find us asleep: the lock is let go after the save.
    let woke = if mutated(Mutant::PromiseAskedTooEarly) {
        told();
        wait.park(how, || Commit::Park)
    } else {
        wait.park(how, move || {
            told();
            Commit::Park
        })
    };
    match record.value.wait_result() {
        WaitResult::Done => return Outcome::Came,
        WaitResult::Withdrawn => return Outcome::Withdrawn,
        _ => {}
    }
    // G2. SAFETY: it stands there, or in none.
    unsafe { raw.state.lock().leave(partner) };
    match woke {
        Woke::Interrupted(why) => Outcome::Interrupted(why),
        _ => Outcome::TimedOut,
    }
}

impl<T> Chan<T> {
    /// Brings the message. Gives it back when the channel is closed, or whoever it was for has left and nobody else takes it
    /// before the limit.
    pub(crate) fn fulfil(&self, promised: Promised, message: T, limit: Limit) -> Result<(), T> {
        match promised {
            Promised::Closed => Err(message),
            Promised::Reserved => {
                self.fill_reserved(message);
                Ok(())
            }
            Promised::To(ticket) => {
                let mut state = self.lock();
                let Some(receiver) = state.keep_promise(ticket) else {
                    drop(state);
                    return self.send_whole(message, limit);
                };
                let (mut woken, message) = (Woken::new(), ManuallyDrop::new(message));
                // SAFETY: claimed or Served just now. The message lies there, and is not dropped here.
                unsafe { self.hand(receiver, &raw const *message, &mut woken) };
                drop(state);
                woken.ready();
                Ok(())
            }
        }
    }

    /// F2.
    #[cold]
    fn send_whole(&self, message: T, limit: Limit) -> Result<(), T> {
        let mut message = MaybeUninit::new(message);
        // SAFETY: it lies there; it was moved if and only if it was sent.
        unsafe {
            let ended = match limit {
                _ if mutated(Mutant::PromiseNotSentOn) => Ended::TimedOut,
                Limit::Now => self.try_send(message.as_mut_ptr()),
                Limit::Until(limit) => self.send(message.as_mut_ptr(), limit),
            };
            match ended {
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
            Promised::To(ticket) => {
                let (mut state, mut woken) = (self.lock(), Woken::new());
                let receiver = state.break_promise(ticket);
                self.feed(&mut state, &mut woken);
                drop(state);
                woken.ready();
                if let Some(receiver) = receiver {
                    // SAFETY: claimed just now, and it sleeps until this.
                    unless(Mutant::PromiseWithdrawnSilently, || unsafe { receiver.as_ref() }.value.ready());
                }
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
                if it.queue_state() != QueueState::Served {
                    it.set_wait_result(WaitResult::Done);
                    woken.add(receiver);
                }
            }
        }
        while let Some((receiver, sender)) = state.claim_pair() {
            // SAFETY: the sender is claimed, and its message lies there; the receiver is Served.
            unsafe {
                let it = &sender.as_ref().value;
                self.hand(receiver, it.slot().cast(), woken);
                it.set_wait_result(WaitResult::Done);
                woken.add(sender);
            }
        }
        self.refill(state, woken);
    }
}
