//! A channel of messages of one type: the operations of `state.rs`, and the moves of the messages.

mod owners;
mod promise;
mod recv;
mod send;
mod task;
mod tick;

pub(crate) use owners::{Owned, Party, Room};
pub(crate) use promise::{Ask, LastAsk, Outcome, await_promise};
pub(crate) use send::Abandoned;
pub(crate) use task::{TaskReceive, TaskSend};

use crate::chan::buffer::Buffer;
use crate::chan::flow::owners::Owners;
use crate::chan::state::{Kind, Message, QueueState, RecordPtr, State, Tick, WaitResult, Woken};
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::prim::{Mutex, MutexGuard, Rank, SingleWriterFlag, UnsafeCell};
use crate::wait::interrupt::{Frame, Interrupt};
use crate::wait::waiter::UpgradedWaiter;
use gmp_timers::Nanos;
use std::ptr::{NonNull, without_provenance};
use std::time::Instant;

/// The part of a channel that does not depend on the type of its messages.
pub(crate) struct Raw {
    pub(crate) state: Mutex<State>,
    /// Whether `close` has an effect.
    closable: bool,
    /// Whether `State::len` is more than zero, for a glance. Written under the lock.
    has_messages: SingleWriterFlag,
    /// Set if a receive may be ready without a message in the buffer: then a glance does not tell. Written under the lock.
    has_more_to_see: SingleWriterFlag,
}

/// The result of a look at a channel without the lock.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Glance {
    /// The buffer has messages, or had some a moment ago.
    Messages,
    /// A receive can't complete, or could not a moment ago.
    Nothing,
    /// Only a look at the state, under the lock, tells.
    Unclear,
}

impl Raw {
    /// Looks at the channel without the lock. The caller sees at least the operations on the channel that happen before this
    /// call.
    #[inline(always)]
    pub(crate) fn glance(&self) -> Glance {
        if self.has_more_to_see.peek() {
            return Glance::Unclear;
        }
        if self.has_messages.peek() { Glance::Messages } else { Glance::Nothing }
    }

    /// Sets the number of messages that any receiver may take. `state` is the state of this channel.
    #[inline(always)]
    fn set_len(&self, state: &mut State, len: usize) {
        state.len = len;
        self.has_messages.set(len > 0);
    }
}

/// A channel. Not aligned to a cache line: an aligned allocation takes a slow path of the allocator, which would
/// dominate the cost of making and dropping a channel.
#[repr(C)]
pub(crate) struct Chan<T> {
    raw: Raw,
    /// Accessed under the lock of `raw.state`, whose `len` counts the messages in here.
    buffer: UnsafeCell<Buffer<T>>,
    owners: Owners,
    /// How many slots of the buffer lie behind the channel.
    slots: usize,
}

// SAFETY: messages go from thread to thread under the lock; no reference to a `T` in the channel can be had.
unsafe impl<T: Send> Send for Chan<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Chan<T> {}

/// The result of one attempt to receive.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Taken {
    /// The message is in the slot.
    Done,
    /// The channel is closed, and no message is left.
    Closed,
    /// The caller has claimed this send of a select and taken it out of the queue. The sender evaluates the message
    /// once it knows the receiver.
    Promise(RecordPtr),
    /// There is no message.
    Nothing,
}

/// The end of a blocking operation.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(crate) enum Ended {
    Done,
    Closed,
    TimedOut,
}

/// The end of a wait, in one register: an `Ended`, or an interrupt, which the caller throws. A `Result` would come through
/// memory, at a cost of 16 instructions for each wait.
#[derive(Copy, Clone)]
struct EndWord(*const Frame);

impl EndWord {
    /// Words above `SHUTDOWN` are addresses of frames, which never lie in the first page.
    const EXIT: usize = 3;
    const SHUTDOWN: usize = 4;

    #[inline(always)]
    fn ended(ended: Ended) -> Self {
        EndWord(without_provenance(ended as usize))
    }

    #[cold]
    fn interrupted(why: Interrupt) -> Self {
        EndWord(match why {
            Interrupt::Exit => without_provenance(Self::EXIT),
            Interrupt::Shutdown => without_provenance(Self::SHUTDOWN),
            Interrupt::Context(frame) => frame.as_ptr(),
        })
    }

    #[inline(always)]
    fn get(self) -> Result<Ended, Interrupt> {
        let word = self.0.addr();
        if word >= Self::EXIT {
            return Err(self.interrupt());
        }
        // Not a `match`, for which the compiler compares one value after the other. SAFETY: only `ended` makes words below
        // `EXIT`, so the word is the number of an `Ended`.
        Ok(unsafe { std::mem::transmute::<u8, Ended>(word as u8) })
    }

    #[cold]
    fn interrupt(self) -> Interrupt {
        match self.0.addr() {
            Self::EXIT => Interrupt::Exit,
            Self::SHUTDOWN => Interrupt::Shutdown,
            _ => Interrupt::Context(
                NonNull::new(self.0.cast_mut()).expect("interrupt: the address of a frame"),
            ),
        }
    }
}

const _: () = assert!((Ended::TimedOut as usize) < EndWord::EXIT, "each end has a word of its own");

/// The party that waits until a promised message is there.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum WaitBy {
    /// The goroutine, which parks, or the plain thread.
    Parks,
    /// The M's thread, with the P handed off, as the call never parks.
    Thread,
}

/// Returns the earlier of two limits.
#[inline]
pub(crate) fn earlier(a: Option<Nanos>, b: Option<Nanos>) -> Option<Nanos> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

#[inline]
pub(crate) fn has_passed(limit: Option<Nanos>) -> bool {
    limit.is_some_and(|limit| limit <= Active::now())
}

impl<T> Chan<T> {
    fn new(
        (capacity, slots): (usize, usize),
        buffer: Buffer<T>,
        tick: Option<Tick>,
        closable: bool,
        owners: Owners,
    ) -> Self {
        let mut state = State::new(capacity);
        state.tick = tick;
        // Without a buffer a sender may wait, except where only `shut_and_tell` ends the waits (`chan::signal`).
        let has_more_to_see = tick.is_some() || capacity == 0 && closable;
        Chan {
            raw: Raw {
                state: Mutex::new(Rank::Channel, state),
                closable,
                has_messages: SingleWriterFlag::new(false),
                has_more_to_see: SingleWriterFlag::new(has_more_to_see),
            },
            buffer: UnsafeCell::new(buffer),
            owners,
            slots,
        }
    }

    pub(crate) fn raw(&self) -> &Raw {
        &self.raw
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.raw.state.lock()
    }

    /// Puts a message into the buffer. The message is passed by address: a large message by value would be copied from frame to
    /// frame.
    ///
    /// # Safety
    /// A message lies at `message`, and belongs to the channel from here on.
    #[inline]
    unsafe fn push(&self, state: &mut State, message: *const T) {
        // SAFETY: the caller holds the lock of the state; the message by this function's contract.
        self.buffer.with_mut(|buffer| unsafe { (*buffer).push(message) });
        // After the push, which panics if it finds no memory.
        self.raw.set_len(state, state.len + 1);
    }

    /// # Safety
    /// `slot` is valid for a write of a `T`.
    #[inline]
    unsafe fn pop(&self, state: &mut State, slot: *mut T) -> bool {
        if state.len == 0 {
            return false;
        }
        self.raw.set_len(state, state.len - 1);
        // SAFETY: as in `push`.
        self.buffer.with_mut(|buffer| unsafe { (*buffer).pop(slot) });
        true
    }

    /// Receives, as far as that is possible without waiting.
    ///
    /// # Safety
    /// `slot` is valid for a write of a `T`.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, state: &mut State, slot: *mut T, woken: &mut Woken) -> Taken {
        if state.meets
            && let Some(sender) = State::claim(&mut state.senders)
        {
            // SAFETY: `State::claim` has claimed the record's wait: its owner sleeps until readied.
            let it = unsafe { &sender.as_ref().value };
            let from = it.slot().cast::<T>();
            if from.is_null() {
                return Taken::Promise(sender);
            }
            // SAFETY: the sender's message lies at `from`, and belongs to the receiver from here on; `slot` by this
            // function's contract.
            unsafe { slot.copy_from_nonoverlapping(from, 1) };
            it.set_wait_result(WaitResult::Done);
            // SAFETY: claimed, and out of the queue.
            unsafe { woken.add(sender) };
            return Taken::Done;
        }
        // SAFETY: by this function's contract.
        unsafe { self.take_without_sender(state, slot, woken) }
    }

    /// # Safety
    /// As `take`.
    #[inline(never)]
    unsafe fn take_without_sender(&self, state: &mut State, slot: *mut T, woken: &mut Woken) -> Taken {
        let first = true;
        mutant!(GivenBackIsPassed: let first = state.capacity > 0);
        // SAFETY: by this function's contract.
        if first && unsafe { self.pop(state, slot) } {
            mutant!(ChanNobodyMovesUp: return Taken::Done);
            if !state.has_no_waiter_for_room() {
                self.refill(state, woken);
            }
            return Taken::Done;
        }
        if state.tick.is_some() {
            // SAFETY: by this function's contract.
            return unsafe { self.take_tick(state, None, slot) };
        }
        if !state.meets && state.capacity == 0 {
            // SAFETY: by this function's contract.
            return unsafe { self.take_aside(state, slot, woken) };
        }
        if state.is_drained() { Taken::Closed } else { Taken::Nothing }
    }

    /// Receives a message from the buffer. Returns `false` if there is none.
    ///
    /// # Safety
    /// As `take`.
    pub(crate) unsafe fn take_message(&self, slot: *mut T) -> bool {
        let mut state = self.lock();
        if state.has_no_waiter_for_room() {
            // SAFETY: by this function's contract.
            return unsafe { self.pop(&mut state, slot) };
        }
        // SAFETY: by this function's contract.
        unsafe { self.take_message_and_refill(state, slot) }
    }

    /// # Safety
    /// As `take`.
    #[inline(never)]
    unsafe fn take_message_and_refill(&self, mut state: MutexGuard<'_, State>, slot: *mut T) -> bool {
        let mut woken = Woken::new();
        // SAFETY: by this function's contract.
        let taken = unsafe { self.take_without_sender(&mut state, slot, &mut woken) };
        drop(state);
        woken.ready();
        taken == Taken::Done
    }

    /// Receives a time, for a receiver that waits under the record `own`, or does not wait.
    ///
    /// # Safety
    /// As `take`. `T` is `Instant`, as for every channel with a tick (`chan::clock`).
    #[cold]
    #[inline(never)]
    unsafe fn take_tick(&self, state: &mut State, own: Option<RecordPtr>, slot: *mut T) -> Taken {
        let Some(due) = state.take_tick(own, Active::now()) else { return Taken::Nothing };
        // SAFETY: `T` is `Instant`, by this function's contract.
        unsafe { slot.cast::<Instant>().write(Active::instant(due)) };
        Taken::Done
    }

    /// Passes on a message for which there is room: to a waiting receiver, or into the buffer.
    ///
    /// # Safety
    /// As `push`.
    unsafe fn deliver(&self, state: &mut State, message: *const T, woken: &mut Woken) {
        match state.claim_receiver(Message::Here) {
            // SAFETY: claimed just now; the message by this function's contract.
            Some(receiver) => unsafe { self.hand(state, receiver, message, woken) },
            None => {
                // SAFETY: there is room; the message by this function's contract.
                unsafe { self.push(state, message) };
                unless!(ChanLateMessageTellsNobody, state.tell_receive_watchers(woken));
            }
        }
    }

    /// # Safety
    /// As `push`. The caller has claimed the receiver's wait, or made its record Served in this critical section; the
    /// record is out of its queue.
    unsafe fn hand(&self, state: &mut State, receiver: RecordPtr, message: *const T, woken: &mut Woken) {
        // SAFETY: the record's owner sleeps, or first has to take the lock, which the caller holds; until then the
        // record lives, and its slot is valid for a write of a `T`.
        unsafe {
            // The buffer may have messages: granted ones, or ones that a dropped task has given back while this receiver was
            // promised a message.
            if state.granted > 0 || state.len > 0 {
                return self.hand_beside_grants(receiver, message, woken);
            }
            let it = &receiver.as_ref().value;
            it.slot().cast::<T>().copy_from_nonoverlapping(message, 1);
            if it.queue_state() != QueueState::Served {
                it.set_wait_result(WaitResult::Done);
                woken.add(receiver);
            }
        }
    }

    /// As `hand`, while the buffer has messages, or when the receiver is a task, for which this message is counted as granted
    /// already.
    ///
    /// # Safety
    /// As `hand`.
    #[cold]
    #[inline(never)]
    unsafe fn hand_beside_grants(&self, receiver: RecordPtr, message: *const T, woken: &mut Woken) {
        // SAFETY: as in `hand`.
        unsafe {
            let it = &receiver.as_ref().value;
            if it.kind == Kind::OfTask {
                self.buffer.with_mut(|buffer| (*buffer).push_seldom(message));
                return woken.add(receiver);
            }
            self.exchange(message, it.slot().cast());
            if it.queue_state() != QueueState::Served {
                it.set_wait_result(WaitResult::Done);
                woken.add(receiver);
            }
        }
    }

    /// Moves a message from a sender to a receiver while earlier messages lie in the buffer: the receiver gets the first of
    /// them, and the message goes behind them.
    ///
    /// # Safety
    /// As `push`; the slot is valid for a write of a `T`.
    unsafe fn exchange(&self, message: *const T, slot: *mut T) {
        // SAFETY: by this function's contract.
        mutant!(ChanHandsPastTheGranted: return unsafe { slot.copy_from_nonoverlapping(message, 1) });
        // SAFETY: by this function's contract; the caller holds the lock of the state.
        self.buffer.with_mut(|buffer| unsafe {
            (*buffer).push_seldom(message);
            (*buffer).pop_seldom(slot);
        });
    }

    /// As `take`, but asks no sender for a message that is still to come.
    ///
    /// # Safety
    /// As `take`.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn take_at_once(&self, state: &mut State, slot: *mut T, woken: &mut Woken) -> Taken {
        // SAFETY: by this function's contract.
        unsafe {
            if state.capacity == 0
                && state.len == 0
                && let Some(sender) = state.claim_with_message()
            {
                self.take_from(state, sender, slot);
                woken.add(sender);
                return Taken::Done;
            }
            if state.capacity == 0 && state.len == 0 && state.tick.is_none() {
                return if state.is_drained() { Taken::Closed } else { Taken::Nothing };
            }
            self.take_without_sender(state, slot, woken)
        }
    }

    /// Takes the message of a sender, on a channel without a buffer.
    ///
    /// # Safety
    /// As `take`. The caller has claimed the sender, whose message is there, and readies the sender later.
    unsafe fn take_from(&self, state: &State, sender: RecordPtr, slot: *mut T) {
        // SAFETY: by this function's contract: the message lies in the sender's slot, and belongs to the receiver from here on.
        unsafe {
            let it = &sender.as_ref().value;
            let from = it.slot().cast::<T>();
            if state.granted > 0 || state.len > 0 {
                self.exchange(from, slot);
            } else {
                slot.copy_from_nonoverlapping(from, 1);
            }
            it.set_wait_result(WaitResult::Done);
        }
    }

    /// As `take`, on a channel without a buffer whose ring may have granted messages, but no others.
    ///
    /// # Safety
    /// As `take`.
    #[cold]
    #[inline(never)]
    unsafe fn take_aside(&self, state: &mut State, slot: *mut T, woken: &mut Woken) -> Taken {
        // SAFETY: by this function's contract.
        unsafe {
            state.meets = state.granted == 0;
            let Some(sender) = State::claim(&mut state.senders) else {
                return if state.is_drained() { Taken::Closed } else { Taken::Nothing };
            };
            if sender.as_ref().value.slot().is_null() {
                return Taken::Promise(sender);
            }
            self.take_from(state, sender, slot);
            woken.add(sender);
        }
        Taken::Done
    }

    /// Fills the buffer from the waiting senders, as long as there is room. A sender without a message gets a reserved place.
    fn refill(&self, state: &mut State, woken: &mut Woken) {
        loop {
            let room = state.has_room();
            mutant!(ChanFillsReservedPlaces: let room = state.len < state.capacity);
            if !room {
                return;
            }
            let Some(sender) = State::claim(&mut state.senders) else {
                unless!(ChanRoomTellsNobody, state.tell_send_watchers(woken));
                return;
            };
            // SAFETY: `State::claim` has claimed the record's wait: its owner sleeps until readied.
            let it = unsafe { &sender.as_ref().value };
            let from = it.slot().cast::<T>();
            if from.is_null() {
                state.reserved += 1;
                it.set_wait_result(WaitResult::Reserved);
            } else {
                it.set_wait_result(WaitResult::Done);
                // SAFETY: the claimed sender's message lies at `from`, and no other thread moves the message.
                unsafe { self.deliver(state, from, woken) };
            }
            // SAFETY: claimed, and out of the queue.
            unsafe { woken.add(sender) };
        }
    }

    /// Closes the channel, if users may close it. Returns `true` if this call closed it.
    pub(crate) fn close(&self) -> bool {
        if !self.raw.closable {
            return false;
        }
        let mut woken = Woken::new();
        let closed = self.shut_and_tell(&mut woken);
        woken.ready();
        closed
    }

    /// Closes the channel, for a caller that holds a lock, and readies the waiters in `woken` later. Returns `true` if this
    /// call closed the channel.
    pub(crate) fn shut_and_tell(&self, woken: &mut Woken) -> bool {
        let mut state = self.lock();
        self.raw.has_more_to_see.set(true);
        state.close(woken)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Returns the number of messages that can be received without waiting for a sender.
    pub(crate) fn len(&self) -> usize {
        let state = self.lock();
        match state.due() {
            Some(due) => usize::from(due <= Active::now()),
            None => state.len,
        }
    }

    pub(crate) fn capacity(&self) -> usize {
        self.lock().capacity
    }

    pub(crate) fn is_full(&self) -> bool {
        let state = self.lock();
        match state.due() {
            Some(due) => due <= Active::now(),
            None => state.tick.is_none() && state.len + state.reserved >= state.capacity,
        }
    }

    /// Gives a timer channel another due time. Returns the previous tick.
    pub(crate) fn set_tick(&self, tick: Tick) -> Option<Tick> {
        let mut state = self.lock();
        let before = state.tick.replace(tick);
        // SAFETY: the records stand in the queues, which are locked, so their owners have not left.
        let keep = |record: RecordPtr| unsafe { record.as_ref() }.value.upgrade();
        let waiting: Vec<_> = state.receivers.iter().chain(state.receive_watchers.iter()).map(keep).collect();
        mutant!(TickMovesNoWatcher: let waiting = state.receivers.iter().map(keep).collect::<Vec<_>>());
        drop(state);
        // Nudged without the lock: if this upgrade is the last reference to a runtime that has ended, the drop of the runtime
        // withdraws promises on other channels.
        waiting.iter().for_each(UpgradedWaiter::nudge);
        before
    }
}
