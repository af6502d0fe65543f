//! Promises of messages: a select's send is chosen before the message is evaluated, and either keeps the promise or
//! withdraws it. `state.rs` has the protocol. Checked by `models/promise.rs`.

use crate::chan::flow::{Chan, Ended, Raw, WaitBy, has_passed};
use crate::chan::select::Limit;
use crate::chan::state::{Kind, Message, Promised, QueueState, Record, RecordPtr, State, WaitResult, Woken};
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::sched::Sched;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::abandon::{AbandonHook, StandingHook};
use crate::wait::interrupt::{self, Interrupt, OnInterrupt};
use crate::wait::waiter::{How, Opened, Wait, Woke};
use gmp_timers::Nanos;
use std::cell::Cell;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;
use std::time::Duration;

/// A receiver waits at least this long for a promised message, even past the receiver's limit: the sender came in time. If the
/// receiver left earlier, the sender would be bound to this arm, and would have to wait for another receiver of this channel.
const GRACE: Duration = Duration::from_millis(10);

/// The time from which a receiver with a limit asks no further sender: the end of its first wait for a promised message.
/// Senders may withdraw their promises and come back at once; without this time a receive would ask one after the other, far
/// beyond its limit. A sender that was asked before that time has its whole `GRACE`. A receive that has reached this time looks
/// once more for a message that it can have without asking.
pub(crate) struct LastAsk(Cell<Option<Nanos>>);

impl LastAsk {
    #[inline(always)]
    pub(crate) const fn new() -> Self {
        LastAsk(Cell::new(None))
    }

    /// Begins a wait for a promised message, with this limit. Returns the end of the wait.
    fn wait_from_now(&self, limit: Option<Nanos>) -> Option<Nanos> {
        let until = limit?.max(Active::after(GRACE));
        self.0.set(self.0.get().or(Some(until)));
        Some(until)
    }

    /// Returns `true` if a receiver whose promise was withdrawn may ask no further sender.
    pub(crate) fn has_passed(&self) -> bool {
        has_passed(self.0.get())
    }
}

/// The way in which a receiver came to a promise.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ask {
    /// The receiver has claimed this waiting send.
    Sender(RecordPtr),
    /// The receiver was promised a message while it waited, under this record of its own.
    Own(RecordPtr),
}

impl Ask {
    /// Asks for the message, with `partner` as the record that gets it. Returns the sender, which the caller readies then,
    /// unless the sender is awake; or how the wait has ended already.
    ///
    /// # Safety
    /// As `await_promise`. The partner is taken out of the queue before the partner's frame ends.
    #[inline(always)]
    unsafe fn put(self, state: &mut State, partner: RecordPtr) -> Result<Option<RecordPtr>, Outcome> {
        match self {
            Ask::Sender(sender) => {
                // SAFETY: by this function's contract. The sender is claimed, and sleeps until `ready`.
                unsafe { sender.as_ref().value.set_wait_result(WaitResult::Partner(state.ask(partner))) };
                Ok(Some(sender))
            }
            // SAFETY: the record belongs to the caller, and the state is locked.
            Ask::Own(own) => match unsafe { own.as_ref() }.value.queue_state() {
                QueueState::Coming => {
                    // SAFETY: by this function's contract.
                    unsafe { state.ask_on(partner, own) };
                    Ok(None)
                }
                QueueState::Served => Err(Outcome::Came),
                _ => Err(Outcome::Withdrawn),
            },
        }
    }
}

/// The end of the wait for a promised message.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[must_use]
pub(crate) enum Outcome {
    /// The message is in the slot.
    Came,
    /// The message will not come. The record that keeps the receiver's place is Returned, or Served.
    Withdrawn,
    /// The limit came first.
    TimedOut,
    /// The wait was interrupted: the receiver must leave its queues and unwind.
    Interrupted(Interrupt),
}

/// The standing hook of a receiver that has claimed a send and may have to park, or stay, before it asks for the message.
#[repr(C)]
struct Asks {
    hook: StandingHook,
    sender: RecordPtr,
}

impl Asks {
    /// Lets the sender go, for a receiver that never runs again.
    ///
    /// # Safety
    /// `hook` is the hook of an `Asks`.
    unsafe fn run(hook: *const AbandonHook) {
        // SAFETY: by this function's contract. The receiver has claimed the sender's wait, and has not readied the sender.
        unsafe { (*hook.cast::<Self>()).let_go() };
    }

    /// Readies the sender without a chosen arm, as the receiver asks for nothing; the sender begins its select anew. If the
    /// sender were given the ticket of a promise instead, for which no receiver waits, it would be bound to this arm.
    ///
    /// # Safety
    /// The receiver has claimed the sender's wait, and has not readied the sender.
    unsafe fn let_go(&self) {
        // SAFETY: by this function's contract the sender sleeps until this.
        unless!(PromiseLetGoSilently, unsafe { self.sender.as_ref() }.value.claimed().ready());
    }
}

/// Opens the wait of a receiver for a promised message. The error is an interrupt that has come before: the receiver must
/// unwind, and has bound no sender.
fn open(ask: Ask) -> Result<Opened<Active>, Interrupt> {
    let Ask::Sender(sender) = ask else { return Ok(Wait::open()) };
    let is_calm = interrupt::is_none_due::<Active>();
    mutant!(PromiseAskedForNobody: let is_calm = true);
    if is_calm && let Some(opened) = Wait::try_open() {
        return Ok(opened);
    }
    let asks = Asks { hook: StandingHook::new(Asks::run), sender };
    let hook = (&raw const asks).cast();
    // SAFETY: `hook` is the first field of `asks`, and is taken back before `asks` is dropped.
    unsafe { StandingHook::note(hook) };
    let opened = loop {
        let due = if interrupt::is_none_due::<Active>() { None } else { interrupt::due_here::<Active>() };
        if let Some(why) = due {
            break Err(why);
        }
        if let Some(opened) = Wait::try_open() {
            break Ok(opened);
        }
        // Parks for a P, and has one afterwards. An interrupt may have come meanwhile.
        Wait::of(Wait::<Active>::open()).withdraw();
    };
    // SAFETY: the hook was noted with this pointer, and `asks` still lives.
    unsafe { StandingHook::take_back(hook) };
    if opened.is_err() {
        // SAFETY: `take` has claimed the sender.
        unsafe { asks.let_go() };
    }
    opened
}

/// Waits for a message that was promised to the caller; the sender puts it into `slot`. `holds` is the caller's record
/// in the same channel's queue, if there is one: a record that is Held, or the very record that was promised the
/// message.
///
/// # Safety
/// The sender of `ask` is claimed and out of its queue, or the record of `ask` belongs to the caller; `slot` is valid for a
/// write of a message of this channel.
pub(crate) unsafe fn await_promise(
    raw: &Raw,
    ask: Ask,
    slot: *mut (),
    (by, limit, last_ask): (WaitBy, Option<Nanos>, &LastAsk),
    holds: Option<RecordPtr>,
) -> Outcome {
    let (opened, ends) = match by {
        WaitBy::Parks => match open(ask) {
            Ok(opened) => (opened, OnInterrupt::Unwinding),
            Err(why) => return Outcome::Interrupted(why),
        },
        WaitBy::Thread => {
            Sched::<Active>::step_aside();
            // The wait is short, and in a call that is documented not to wait.
            (Opened::on_thread(), OnInterrupt::Never)
        }
    };
    let mut wait = Wait::<Active>::of(opened);
    let record = Record::new(wait.waiter(), slot, Kind::Partner(holds));
    let partner = NonNull::from(&record);
    let mut state = raw.state.lock();
    // SAFETY: by this function's contract. The partner leaves the queue before this frame ends: a counterpart takes the partner
    // out, or G2 below does.
    let sender = match unsafe { ask.put(&mut state, partner) } {
        Ok(sender) => sender,
        Err(ended) => {
            drop(state);
            wait.withdraw();
            return ended;
        }
    };
    let tell = |sender: Option<RecordPtr>| {
        if let Some(sender) = sender {
            // SAFETY: the sender is claimed, and sleeps until this.
            unsafe { sender.as_ref() }.value.claimed().ready();
        }
    };
    mutant!(PromiseAskedTooEarly: drop(state); tell(sender); state = raw.state.lock());
    mutant!(PromiseAskedTooEarly: let sender = None);
    let how = How::new(WaitReason::ChanReceive).until(last_ask.wait_from_now(limit)).ends(ends);
    // The commit hook releases the lock, after this goroutine was saved: a sender can keep the promise as soon as it is
    // readied, and has to find the receiver asleep.
    let woke = wait.park(how, move || {
        drop(state);
        tell(sender);
        Commit::Park
    });
    match record.value.wait_result() {
        WaitResult::Done => return Outcome::Came,
        WaitResult::Withdrawn => return Outcome::Withdrawn,
        _ => {}
    }
    // G2. SAFETY: the partner stands in `promised`, or in no queue.
    unsafe { unless!(PromiseLeavesItsPartner, raw.state.lock().leave(partner)) };
    match woke {
        Woke::Interrupted(why) => Outcome::Interrupted(why),
        _ => Outcome::TimedOut,
    }
}

impl<T> Chan<T> {
    /// Keeps the promise: sends the message. Returns the message as the error if the channel is closed, unless a place is
    /// reserved and a receiver is there; or if the receiver has left and no other takes the message before `limit`.
    pub(crate) fn fulfil(&self, promised: Promised, message: T, limit: Limit) -> Result<(), T> {
        match promised {
            Promised::Closed => Err(message),
            Promised::Reserved => self.fill_reserved(message),
            Promised::To(ticket) => {
                let mut state = self.lock();
                if (state.closed && state.is_promised_to_task(ticket)).unless(GrantedBehindTheEnd) {
                    // No message may be granted here: a task that gave it back would let it come after the end.
                    drop(state);
                    self.withdraw(promised).ready();
                    return Err(message);
                }
                let Some(receiver) = state.keep_promise(ticket) else {
                    drop(state);
                    return self.send_whole(message, limit);
                };
                let (mut woken, message) = (Woken::new(), ManuallyDrop::new(message));
                // SAFETY: `keep_promise` has claimed the receiver's wait, or made its record Served. The message lies
                // in `message`, whose destructor never runs.
                unsafe { self.hand(&mut state, receiver, &raw const *message, &mut woken) };
                drop(state);
                woken.ready();
                Ok(())
            }
        }
    }

    /// Does F2.
    #[cold]
    fn send_whole(&self, message: T, limit: Limit) -> Result<(), T> {
        mutant!(PromiseNotSentOn: return Err(message));
        let mut message = MaybeUninit::new(message);
        // SAFETY: the message lies in `message`, and was moved out if and only if the result is Done.
        unsafe {
            let ended = match limit {
                Limit::Now => self.try_send(message.as_mut_ptr()),
                Limit::Until(limit) => self.send(message.as_mut_ptr(), limit),
            };
            match ended {
                Ended::Done => Ok(()),
                _ => Err(message.assume_init()),
            }
        }
    }

    /// Withdraws a promise: the message will not come. A reserved place is offered to the next sender. The caller readies the
    /// waiters that are told of that.
    pub(crate) fn withdraw(&self, promised: Promised) -> Woken {
        let mut woken = Woken::new();
        match promised {
            Promised::Closed => {}
            Promised::Reserved => {
                let mut state = self.lock();
                state.reserved -= 1;
                unless!(ChanReservedNotOffered, self.refill(&mut state, &mut woken));
                unless!(ChanGivenBackEndsNobody, state.end_receivers_if_drained(&mut woken));
            }
            Promised::To(ticket) => {
                let mut state = self.lock();
                state.break_promise(ticket, &mut woken);
                self.feed(&mut state, &mut woken);
            }
        }
        woken
    }

    /// Does F3: puts a message into a reserved place. Returns the message as the error if the last receiver has gone.
    fn fill_reserved(&self, message: T) -> Result<(), T> {
        let mut woken = Woken::new();
        let mut state = self.lock();
        if state.deserted.unless(ChanFilledForNobody) {
            drop(state);
            self.withdraw(Promised::Reserved).ready();
            return Err(message);
        }
        state.reserved -= 1;
        let message = ManuallyDrop::new(message);
        // SAFETY: the message lies in `message`, which does not drop it.
        unsafe { self.deliver(&mut state, &raw const *message, &mut woken) };
        // If the message went to a receiver, the place is free again.
        unless!(ChanFilledNotOffered, self.refill(&mut state, &mut woken));
        unless!(ChanFilledEndsNobody, state.end_receivers_if_drained(&mut woken));
        drop(state);
        woken.ready();
        Ok(())
    }

    /// Serves, in order, the receivers that wait while there are messages, and those whose records were put back in their
    /// places: from the buffer, or, on a channel without a buffer, from the waiting senders.
    pub(super) fn feed(&self, state: &mut State, woken: &mut Woken) {
        while state.len > 0
            && let Some(receiver) = state.claim_receiver(Message::Here)
        {
            // SAFETY: the receiver sleeps, or first has to take the lock, which is held; its slot is valid for a
            // write of a `T`.
            unsafe {
                let it = &receiver.as_ref().value;
                if it.kind == Kind::OfTask {
                    // The task was granted the message that is in the buffer.
                    self.raw.set_len(state, state.len - 1);
                    woken.add(receiver);
                    continue;
                }
                self.pop(state, it.slot().cast());
                if it.queue_state() != QueueState::Served {
                    it.set_wait_result(WaitResult::Done);
                    woken.add(receiver);
                }
            }
        }
        while let Some((receiver, sender)) = state.claim_pair() {
            // SAFETY: the sender is claimed, and its message lies in its slot; the receiver's record is Served.
            unsafe {
                let it = &sender.as_ref().value;
                self.hand(state, receiver, it.slot().cast(), woken);
                it.set_wait_result(WaitResult::Done);
                woken.add(sender);
            }
        }
        self.refill(state, woken);
    }
}
