//! Receiving: one attempt, and then a wait. The record of the wait keeps its place in the queue while the owner tries
//! again.

use crate::chan::flow::{
    Ask, Chan, EndWord, Ended, LastAsk, Outcome, Taken, WaitBy, await_promise, has_passed,
};
use crate::chan::state::{Kind, QueueState, Record, RecordPtr, State, WaitResult, Woken};
use crate::host::{Active, Clock};
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::interrupt::Interrupt;
use crate::wait::queue::Node;
use crate::wait::waiter::{How, Opened, Wait, Waiter, Woke};
use gmp_timers::Nanos;
use std::cell::{Cell, OnceCell};
use std::ptr::NonNull;

/// What a receive waits for, as a dump shows it.
const MESSAGES: bool = false;
const AN_END: bool = true;

/// A receive that waits.
struct Receive<T> {
    /// Valid for a write of a `T`.
    slot: *mut T,
    limit: Option<Nanos>,
    last_ask: LastAsk,
    /// Made once. Pointers to the record are made from shared references, as the queue keeps one pointer while others are made.
    record: OnceCell<Node<Record>>,
    /// `true` while the record is in the queue and keeps its place there.
    queued: Cell<bool>,
}

impl<T> Receive<T> {
    #[inline(always)]
    fn new(slot: *mut T, limit: Option<Nanos>) -> Self {
        Receive { slot, limit, last_ask: LastAsk::new(), record: OnceCell::new(), queued: Cell::new(false) }
    }

    #[inline(always)]
    fn node(&self) -> Option<RecordPtr> {
        self.record.get().map(NonNull::from)
    }

    /// Returns the record, if it keeps its place.
    #[inline(always)]
    fn kept(&self) -> Option<RecordPtr> {
        self.node().filter(|_| self.queued.get())
    }

    /// Readies the record for a new wait. Under the lock.
    #[inline(always)]
    fn renew(&self, waiter: Waiter<Active>) -> RecordPtr {
        match self.record.get() {
            None => drop(self.record.set(Record::new(waiter, self.slot.cast(), Kind::Alone))),
            Some(record) => record.value.renew(waiter),
        }
        self.node().expect("renew: made just now")
    }

    /// Removes the record that keeps its place, if there is one, from the queue.
    #[inline(always)]
    fn leave(&self, state: &mut State) {
        if let Some(node) = self.kept() {
            // SAFETY: the record belongs to the caller, and stands in this queue or in none.
            unsafe { state.receivers.remove(node) };
        }
    }
}

impl Chan<()> {
    /// Waits until the channel, on which nothing is sent, is closed by the end of a goroutine; at most until `limit`.
    pub(crate) fn await_end(&self, limit: Option<Nanos>) {
        let mut slot = ();
        // SAFETY: the slot is valid for a write.
        let _closed = unsafe { self.recv_for::<AN_END>(&raw mut slot, limit) };
    }
}

impl<T> Chan<T> {
    /// Receives into `slot`. Waits at most until `limit`.
    ///
    /// # Safety
    /// `slot` is valid for a write of a `T`.
    pub(crate) unsafe fn recv(&self, slot: *mut T, limit: Option<Nanos>) -> Ended {
        // SAFETY: by this function's contract.
        unsafe { self.recv_for::<MESSAGES>(slot, limit) }
    }

    /// As `recv`; a dump shows that the caller waits for `FOR`.
    ///
    /// # Safety
    /// As `recv`.
    #[inline(always)]
    unsafe fn recv_for<const FOR: bool>(&self, slot: *mut T, limit: Option<Nanos>) -> Ended {
        let mut state = self.lock();
        // One condition at a time, so that each is a branch: the compiler would otherwise first compute one value from all of
        // them.
        if state.has_messages() {
            if state.has_no_waiter_for_room() {
                // SAFETY: by this function's contract.
                unsafe { self.pop(&mut state, slot) };
                return Ended::Done;
            }
        } else if state.meets_nobody() {
            if state.tick.is_none() {
                // SAFETY: by this function's contract.
                return unsafe { self.recv_or_throw::<FOR>(state, None, slot, limit) };
            }
            // SAFETY: by this function's contract; `T` is `Instant`, as for every channel with a tick (`chan::clock`).
            return unsafe { self.raw.recv_tick_or_throw(state, slot.cast(), limit) };
        }
        let mut woken = Woken::new();
        // SAFETY: by this function's contract.
        let promised = match unsafe { self.take(&mut state, slot, &mut woken) } {
            Taken::Done => {
                drop(state);
                woken.ready();
                return Ended::Done;
            }
            Taken::Closed => return Ended::Closed,
            Taken::Promise(sender) => Some(sender),
            Taken::Nothing => None,
        };
        // SAFETY: by this function's contract; `take` has claimed the sender.
        unsafe { self.recv_or_throw::<FOR>(state, promised, slot, limit) }
    }

    /// Waits, and throws the interrupt that has ended the wait. In a frame of its own, with no table and few registers to
    /// restore: the unwinder visits each frame on the way twice, and reads its table and its rules up to the call. The
    /// parameters fit into registers, so that the call in `recv_for` is a tail call and leaves no frame of `recv`.
    ///
    /// # Safety
    /// As `recv`. The caller has claimed the sender that is `promised`.
    #[inline(never)]
    unsafe fn recv_or_throw<'a, const FOR: bool>(
        &'a self,
        state: MutexGuard<'a, State>,
        promised: Option<RecordPtr>,
        slot: *mut T,
        limit: Option<Nanos>,
    ) -> Ended {
        // SAFETY: by this function's contract.
        match unsafe { self.recv_waiting::<FOR>(state, promised, slot, limit) }.get() {
            Ok(ended) => ended,
            Err(why) => why.throw::<Active>(),
        }
    }

    /// # Safety
    /// As `recv_or_throw`.
    #[inline(never)]
    unsafe fn recv_waiting<'a, const FOR: bool>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        promised: Option<RecordPtr>,
        slot: *mut T,
        limit: Option<Nanos>,
    ) -> EndWord {
        let mut taken = promised.map_or(Taken::Nothing, Taken::Promise);
        let mut woken = Woken::new();
        let receive = Receive::new(slot, limit);
        loop {
            match taken {
                Taken::Done | Taken::Closed => {
                    receive.leave(&mut state);
                    drop(state);
                    woken.ready();
                    return EndWord::ended(if taken == Taken::Done { Ended::Done } else { Ended::Closed });
                }
                Taken::Promise(sender) => {
                    drop(state);
                    // SAFETY: `take` has claimed the sender; the slot belongs to the caller.
                    match unsafe { self.collect_promise(sender, &receive) } {
                        Ok(Some(ended)) => return EndWord::ended(ended),
                        Ok(None) => {}
                        Err(why) => return EndWord::interrupted(why),
                    }
                }
                Taken::Nothing => {
                    let opened = match Wait::try_open() {
                        Some(opened) => opened,
                        None => {
                            // SAFETY: by this function's contract.
                            let (locked, opened) = unsafe { self.open_recv(state, &receive, &mut woken) };
                            state = locked;
                            match opened {
                                Ok(opened) => opened,
                                Err(came) => {
                                    taken = came;
                                    continue;
                                }
                            }
                        }
                    };
                    let mut wait = Wait::<Active>::of(opened);
                    if has_passed(limit) {
                        receive.leave(&mut state);
                        drop(state);
                        wait.withdraw();
                        return EndWord::ended(Ended::TimedOut);
                    }
                    // SAFETY: the slot belongs to the caller. The record leaves the queue before this function returns.
                    let woke = unsafe { self.park_recv::<FOR>(&mut wait, state, &receive) };
                    match self.settle_recv(&receive, woke) {
                        Ok(Some(ended)) => return EndWord::ended(ended),
                        Ok(None) => {}
                        Err(why) => return EndWord::interrupted(why),
                    }
                }
            }
            state = self.lock();
            // SAFETY: by this function's contract.
            taken = unsafe { self.take_again(&mut state, receive.kept(), slot, &mut woken) };
        }
    }

    /// Waits for the message that was promised to the caller. Returns `None` if the message will not come: then the caller
    /// tries again. The error is the interrupt that has ended the wait.
    ///
    /// # Safety
    /// The caller has claimed the sender; otherwise as `recv`.
    #[inline]
    unsafe fn collect_promise(
        &self,
        sender: RecordPtr,
        receive: &Receive<T>,
    ) -> Result<Option<Ended>, Interrupt> {
        let kept = receive.kept();
        let (ask, how) = (Ask::Sender(sender), (WaitBy::Parks, receive.limit, &receive.last_ask));
        // SAFETY: by this function's contract.
        let mut outcome = unsafe { await_promise(&self.raw, ask, receive.slot.cast(), how, kept) };
        if outcome == Outcome::Withdrawn && receive.last_ask.has_passed() {
            outcome = Outcome::TimedOut;
        }
        if outcome != Outcome::Withdrawn
            && let Some(node) = kept
        {
            let mut state = self.lock();
            // SAFETY: the record belongs to the caller, and its state is read under the lock.
            if unsafe { node.as_ref() }.value.queue_state() == QueueState::Served {
                // A sender has served the record since the promise was withdrawn.
                outcome = Outcome::Came;
            }
            receive.leave(&mut state);
        }
        match outcome {
            Outcome::Came => Ok(Some(Ended::Done)),
            // SAFETY: by this function's contract.
            Outcome::TimedOut => Ok(Some(unsafe { self.look_last(receive.slot) })),
            Outcome::Interrupted(why) => Err(why),
            Outcome::Withdrawn => Ok(None),
        }
    }

    /// Opens a wait without the lock, as the goroutine may have to park for a P first. If there is something to take
    /// afterwards, returns that as the error.
    ///
    /// # Safety
    /// As `recv`.
    #[cold]
    unsafe fn open_recv<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        receive: &Receive<T>,
        woken: &mut Woken,
    ) -> (MutexGuard<'a, State>, Result<Opened<Active>, Taken>) {
        drop(state);
        let opened = Wait::open();
        let mut state = self.lock();
        mutant!(ChanRecvOpensBlindly: return (state, Ok(opened)));
        // SAFETY: by this function's contract.
        let taken = unsafe { self.take_again(&mut state, receive.kept(), receive.slot, woken) };
        if taken != Taken::Nothing {
            Wait::of(opened).withdraw();
            return (state, Err(taken));
        }
        (state, Ok(opened))
    }

    /// Queues the record, unless it keeps its place already, and parks, once.
    ///
    /// # Safety
    /// As `recv`. The caller takes the record out of the queue before it returns.
    #[inline(always)]
    unsafe fn park_recv<'a, const FOR: bool>(
        &'a self,
        wait: &mut Wait<Active>,
        mut state: MutexGuard<'a, State>,
        receive: &Receive<T>,
    ) -> Woke {
        let node = receive.renew(wait.waiter());
        mutant!(ChanRecvQueuesLate: drop(state); state = self.lock());
        if !receive.queued.get() {
            // SAFETY: by this function's contract.
            unsafe {
                state.give_place(node);
                state.receivers.push_back(node);
            }
        }
        let reason = if FOR == AN_END { WaitReason::Join } else { WaitReason::ChanReceive };
        let how = How::new(reason).until(receive.limit);
        wait.park(how, move || {
            let mut told = Woken::new();
            unless!(ReceiveComesInSilence, state.tell_of_receiver(&mut told));
            drop(state);
            told.ready();
            Commit::Park
        })
    }

    /// Returns, after the wait, how the receive has ended; `None` if no counterpart ended it: then the caller tries again. The
    /// error is the interrupt that has ended the wait.
    #[inline(always)]
    fn settle_recv(&self, receive: &Receive<T>, woke: Woke) -> Result<Option<Ended>, Interrupt> {
        let node = receive.node().expect("settle_recv: it was queued");
        // SAFETY: the wait is over.
        match unsafe { node.as_ref() }.value.wait_result() {
            WaitResult::Done => Ok(Some(Ended::Done)),
            WaitResult::Closed => Ok(Some(Ended::Closed)),
            WaitResult::Withdrawn => {
                receive.queued.set(true);
                Ok(None)
            }
            _ => {
                // SAFETY: the record stands in one of this channel's queues, or in none.
                unsafe { self.lock().leave(node) };
                receive.queued.set(false);
                match woke {
                    Woke::Interrupted(why) => Err(why),
                    _ => Ok(None),
                }
            }
        }
    }

    /// As `take`, for a receiver whose record a sender may have served meanwhile.
    ///
    /// # Safety
    /// As `take`; the record belongs to the caller.
    unsafe fn take_again(
        &self,
        state: &mut State,
        kept: Option<RecordPtr>,
        slot: *mut T,
        woken: &mut Woken,
    ) -> Taken {
        let Some(node) = kept else {
            // SAFETY: by this function's contract.
            return unsafe { self.take(state, slot, woken) };
        };
        // SAFETY: the record belongs to the caller, by this function's contract; its state is read under the lock.
        let it = unsafe { &node.as_ref().value };
        if (it.queue_state() == QueueState::Served).unless(ReturnedIgnoresItsSlot) {
            return Taken::Done;
        }
        // No counterpart serves a Held record: neither while the owner takes a message here, nor while the owner waits for a
        // promised message.
        unless!(ReturnedNotHeld, it.set_queue_state(QueueState::Held));
        // SAFETY: the record belongs to the caller, and the slot is valid by this function's contract.
        let taken = unsafe { self.take(state, slot, woken) };
        if taken == Taken::Nothing {
            it.set_queue_state(QueueState::Returned);
        }
        taken
    }

    /// Looks a last time, when the wait of a receive for a promised message has ended at its limit: there may be another
    /// message.
    ///
    /// # Safety
    /// As `recv`. The caller has no record in a queue.
    #[cold]
    #[inline(never)]
    unsafe fn look_last(&self, slot: *mut T) -> Ended {
        let mut woken = Woken::new();
        let mut state = self.lock();
        // SAFETY: by this function's contract.
        let taken = unsafe { self.take_at_once(&mut state, slot, &mut woken) };
        drop(state);
        woken.ready();
        match taken {
            Taken::Done => Ended::Done,
            Taken::Closed => Ended::Closed,
            Taken::Promise(_) | Taken::Nothing => Ended::TimedOut,
        }
    }

    /// As `recv`, without waiting, except for a promised message: for that the caller's thread waits up to `GRACE`, or up to
    /// twice as long if promises are withdrawn.
    ///
    /// # Safety
    /// As `recv`.
    pub(crate) unsafe fn try_recv(&self, slot: *mut T) -> Ended {
        // SAFETY: by this function's contract.
        match unsafe { self.try_take(slot) } {
            Taken::Done => Ended::Done,
            Taken::Closed => Ended::Closed,
            Taken::Nothing => Ended::TimedOut,
            // SAFETY: `try_take` has claimed the sender; the slot by this function's contract.
            Taken::Promise(sender) => unsafe { self.try_promised(sender, slot) },
        }
    }

    /// # Safety
    /// As `take`.
    #[inline(always)]
    unsafe fn try_take(&self, slot: *mut T) -> Taken {
        let mut woken = Woken::new();
        let mut state = self.lock();
        // SAFETY: by this function's contract.
        let taken = unsafe { self.take(&mut state, slot, &mut woken) };
        drop(state);
        woken.ready();
        taken
    }

    /// As `try_recv`, for a caller that was promised a message.
    ///
    /// # Safety
    /// As `recv`. The caller has claimed the sender.
    #[cold]
    #[inline(never)]
    unsafe fn try_promised(&self, mut sender: RecordPtr, slot: *mut T) -> Ended {
        let last_ask = LastAsk::new();
        loop {
            let (ask, how) = (Ask::Sender(sender), (WaitBy::Thread, Some(Active::now()), &last_ask));
            // SAFETY: the sender is claimed, and the slot belongs to the caller, by this function's contract.
            match unsafe { await_promise(&self.raw, ask, slot.cast(), how, None) } {
                Outcome::Came => return Ended::Done,
                // SAFETY: by this function's contract.
                Outcome::TimedOut => return unsafe { self.look_last(slot) },
                Outcome::Interrupted(why) => unreachable!("try_recv: interrupted by {why:?}"),
                // SAFETY: by this function's contract.
                Outcome::Withdrawn if last_ask.has_passed() => return unsafe { self.look_last(slot) },
                Outcome::Withdrawn => {}
            }
            // SAFETY: by this function's contract.
            sender = match unsafe { self.try_take(slot) } {
                Taken::Done => return Ended::Done,
                Taken::Closed => return Ended::Closed,
                Taken::Nothing => return Ended::TimedOut,
                Taken::Promise(next) => next,
            };
        }
    }
}
