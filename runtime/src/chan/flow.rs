//! A channel for messages of a type: what `state.rs` describes, with the messages moved.

mod promise;
mod recv;
mod send;

pub(crate) use promise::{Ask, Outcome, await_promise};
pub(crate) use send::Abandoned;

use crate::chan::buffer::Buffer;
use crate::chan::state::{Message, QueueState, RecordPtr, State, Tick, WaitResult, Woken};
use crate::host::{Active, Host};
use crate::prim::{AcqRel, Arc, AtomicU64, Mutant, Mutex, MutexGuard, Rank, Relaxed, UnsafeCell, unless};
use crate::wait::waiter::UpgradedWaiter;
use gmp_timers::Nanos;
use std::time::Instant;

/// The part of a channel that knows nothing of its messages.
pub(crate) struct Raw {
    pub(crate) state: Mutex<State>,
    /// Whether `close` has an effect.
    closable: bool,
}

/// A channel. Not aligned to a cache line: the allocator has no quick way for that, and that part of
/// making and dropping a channel would take 2.5 times as long and more.
#[repr(C)]
pub(crate) struct Chan<T> {
    raw: Raw,
    /// Under the lock of `raw.state`, which knows how many there are.
    buffer: UnsafeCell<Buffer<T>>,
    senders: AtomicU64,
    receivers: AtomicU64,
}

// SAFETY: messages go from thread to thread under the lock; nothing else of a `T` can be reached.
unsafe impl<T: Send> Send for Chan<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Chan<T> {}

/// What came of a receive.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Taken {
    /// The message is in the slot.
    Done,
    /// Closed, and nothing left.
    Closed,
    /// This sender, claimed and out of the queue, will have a message once it is told for whom.
    Promise(RecordPtr),
    /// Nothing is there.
    Nothing,
}

/// How a blocking operation ended.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Ended {
    Done,
    Closed,
    TimedOut,
}

/// Who has to wait until a promised message is there.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum WaitBy {
    /// Whoever may park.
    Parks,
    /// The thread, as the call is one that never parks; its P is handed off.
    Thread,
}

/// The earlier of two limits.
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
    pub(crate) fn new(capacity: usize, buffer: Buffer<T>, tick: Option<Tick>, closable: bool) -> Self {
        let mut state = State::new(capacity);
        state.tick = tick;
        Chan {
            raw: Raw { state: Mutex::new(Rank::Channel, state), closable },
            buffer: UnsafeCell::new(buffer),
            senders: AtomicU64::new(1),
            receivers: AtomicU64::new(1),
        }
    }

    pub(crate) fn raw(&self) -> &Raw {
        &self.raw
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.raw.state.lock()
    }

    /// Messages are moved by address, as large ones would else be copied from frame to frame.
    ///
    /// # Safety
    /// A message lies there, and is the channel's from here on.
    #[inline]
    unsafe fn push(&self, state: &mut State, message: *const T) {
        state.len += 1;
        // SAFETY: the caller has the locked state; the message by this function's contract.
        self.buffer.with_mut(|buffer| unsafe { (*buffer).push(message.read()) });
    }

    /// # Safety
    /// The slot is good for a message.
    #[inline]
    unsafe fn pop(&self, state: &mut State, slot: *mut T) -> bool {
        if state.len == 0 {
            return false;
        }
        state.len -= 1;
        // SAFETY: as in `push`.
        self.buffer.with_mut(|buffer| unsafe { (*buffer).pop(slot) });
        true
    }

    /// A receive, as far as it goes without waiting.
    ///
    /// # Safety
    /// `slot` is good for a `T`.
    #[inline(always)]
    pub(crate) unsafe fn take(&self, state: &mut State, slot: *mut T, woken: &mut Woken) -> Taken {
        if state.capacity == 0
            && let Some(sender) = State::claim(&mut state.senders)
        {
            // SAFETY: claimed: its owner sleeps.
            let it = unsafe { &sender.as_ref().value };
            let from = it.slot().cast::<T>();
            if from.is_null() {
                return Taken::Promise(sender);
            }
            // SAFETY: the sender's message lies there, and is the receiver's from here on; the slot by this function's
            // contract.
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
        // SAFETY: by this function's contract.
        if unsafe { self.pop(state, slot) } {
            unless(Mutant::ChanNobodyMovesUp, || self.refill(state, woken));
            return Taken::Done;
        }
        if state.tick.is_some() {
            // SAFETY: as above.
            return unsafe { self.take_tick(state, slot) };
        }
        if state.is_drained() { Taken::Closed } else { Taken::Nothing }
    }

    /// # Safety
    /// As `take`. A channel with a tick has Instants for messages.
    unsafe fn take_tick(&self, state: &mut State, slot: *mut T) -> Taken {
        let Some(tick) = &mut state.tick else { return Taken::Nothing };
        let now = Active::now();
        let Some(due) = tick.due.filter(|&due| due <= now) else { return Taken::Nothing };
        tick.due = (!tick.period.is_zero()).then(|| {
            // A reader that is late has missed those in between; the next one is on the beat.
            let late = now.saturating_since(due).as_nanos() / tick.period.as_nanos();
            let periods = u32::try_from(late + 1).unwrap_or(u32::MAX);
            due.saturating_add(tick.period.saturating_mul(periods))
        });
        // SAFETY: `T` is Instant, see above.
        unsafe { slot.cast::<Instant>().write(Active::instant(due)) };
        Taken::Done
    }

    /// Hands a message on that there is room for: to who waits for one, or into the buffer.
    ///
    /// # Safety
    /// As `push`.
    unsafe fn deliver(&self, state: &mut State, message: *const T, woken: &mut Woken) {
        match state.claim_receiver(Message::Here) {
            // SAFETY: claimed just now; the message by this function's contract.
            Some(receiver) => unsafe { self.hand(receiver, message, woken) },
            None => {
                // SAFETY: as above.
                unsafe { self.push(state, message) };
                state.tell_receive_watchers(woken);
            }
        }
    }

    /// # Safety
    /// As `push`. The caller has claimed the receiver, and taken it out of the queue of this channel; one that is Served,
    /// under the lock.
    unsafe fn hand(&self, receiver: RecordPtr, message: *const T, woken: &mut Woken) {
        // SAFETY: its owner sleeps, or comes to look under the lock; the slot is good for a `T` until then.
        unsafe {
            let it = &receiver.as_ref().value;
            it.slot().cast::<T>().copy_from_nonoverlapping(message, 1);
            if it.queue_state() != QueueState::Served {
                it.set_wait_result(WaitResult::Done);
                woken.add(receiver);
            }
        }
    }

    /// There may be room: senders that wait move up.
    fn refill(&self, state: &mut State, woken: &mut Woken) {
        while state.len + state.reserved < state.capacity {
            let Some(sender) = State::claim(&mut state.senders) else {
                state.tell_send_watchers(woken);
                return;
            };
            // SAFETY: claimed: its owner sleeps.
            let it = unsafe { &sender.as_ref().value };
            let from = it.slot().cast::<T>();
            if from.is_null() {
                state.reserved += 1;
                it.set_wait_result(WaitResult::Reserved);
            } else {
                it.set_wait_result(WaitResult::Done);
                // SAFETY: the sender's message lies there, and was not taken.
                unsafe { self.deliver(state, from, woken) };
            }
            // SAFETY: claimed, and out of the queue.
            unsafe { woken.add(sender) };
        }
    }

    /// Closes, if that has an effect; true for the call that did.
    pub(crate) fn close(&self) -> bool {
        self.raw.closable && self.shut()
    }

    /// Closes in any case.
    pub(crate) fn shut(&self) -> bool {
        let mut woken = Woken::new();
        let closed = self.lock().close(&mut woken);
        woken.ready();
        closed
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Messages that can be received without waiting for a sender.
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

    pub(crate) fn add_sender(&self) {
        // Relaxed: the caller has one.
        self.senders.fetch_add(1, Relaxed);
    }

    pub(crate) fn add_receiver(&self) {
        // Relaxed: as above.
        self.receivers.fetch_add(1, Relaxed);
    }

    pub(crate) fn drop_sender(this: &Arc<Self>) {
        // AcqRel, its own partner: the last one closes after all that the others did.
        if this.senders.fetch_sub(1, AcqRel) == 1 {
            this.shut();
            let state = this.lock();
            if state.promises + state.reserved > 0 {
                // A chosen operation borrows its sender, so these were forgotten. The goroutine that did so still names the
                // channel, and will withdraw them if it is left behind by its runtime.
                std::mem::forget(Arc::clone(this));
            }
        }
    }

    /// The last receiver takes what is left with it.
    pub(crate) fn drop_receiver(this: &Arc<Self>) {
        // AcqRel, its own partner: as above.
        if this.receivers.fetch_sub(1, AcqRel) == 1 {
            this.shut();
            let left = {
                let mut state = this.lock();
                state.len = 0;
                // SAFETY: the state is locked.
                this.buffer.with_mut(|buffer| std::mem::replace(unsafe { &mut *buffer }, Buffer::growing()))
            };
            // Without the lock. What was promised may still come, and goes with the channel.
            drop(left);
        }
    }

    /// Has the channel tell another time. Gives what it told before.
    pub(crate) fn set_tick(&self, tick: Tick) -> Option<Tick> {
        let mut state = self.lock();
        let before = state.tick.replace(tick);
        // SAFETY: they stand in the queues, which are locked.
        let keep = |record: RecordPtr| unsafe { record.as_ref() }.value.upgrade();
        let waiting: Vec<_> = state.receivers.iter().chain(state.receive_watchers.iter()).map(keep).collect();
        drop(state);
        // Without the lock: whose runtime ends meanwhile may have promises to withdraw, on other channels.
        waiting.iter().for_each(UpgradedWaiter::nudge);
        before
    }
}
