//! The operations of tasks: the polls and the drops of futures of a channel.
//!
//! *A receive.* In the obvious way a sender hands the message to the waiting task, as to a goroutine. But a future that was
//! served can be dropped before its next poll, and then can't return the message; and if the message went back to the channel,
//! another receiver might have had a later message meanwhile. Another way is to notify the task of the message, and to let the
//! task try. Then faster receivers overtake the task, for ever if there are always such receivers. *Here* the message is
//! *granted*: it goes into the buffer, but does not count among the messages that others may take.
//!
//! ```text
//!   sender, under the lock                           future, under the lock
//!
//!   S1  the first receiver is a task: claim it       T1  poll, nothing to take: queue the record as a receiver
//!   S2  put the message at the end of the ring       T2  poll, granted: granted -= 1, take the first message
//!       granted += 1                                     the channel may be drained: notify the waiters
//!   S3  READY, call the waker (after the lock)       T3  drop, granted: granted -= 1, len += 1: feed the waiters
//!                                                    T4  drop, not granted: leave the queue
//! ```
//! * *None lost, none twice*: between S2 and T2 the message lies in the ring and is not moved. T3 changes only counts. The ring
//!   has `len + granted` messages, so T2 finds one.
//! * *In order*: each receiver takes the first message of the ring, or finds it empty. While a message is granted, a message
//!   for a goroutine goes behind the others, and the goroutine gets the first (`Chan::exchange`). So a message that T3 gives
//!   back is still in its place. Only *which receiver* gets which message is decided later than for goroutines.
//! * *Fair*: receivers that come between S1 and T2 find no message in `len`, and queue. A task that is slow, or never polls
//!   again, withholds one message from others. Until the channel is closed it delays nothing else: a granted message occupies
//!   no place in the buffer, like a message in the slot of a goroutine.
//! * *The end*: a closed channel is not drained while a message is granted. T2 notifies the receivers behind the task of the
//!   end, or T3 gives them the message.
//! * *A message too many*: a send that finds a task has met a receiver, and is done. If T3 finds no receiver, the message stays
//!   in the ring, even on a channel without a buffer, where the next receive takes that message before looking for a sender.
//!
//! A message that a `select!` has promised to a task is granted when it is there. If the promise is withdrawn, the task looks
//! again. Until then, its record is Held and keeps its place. No other waiter depends on a Held task, so the drop of a Held
//! task passes nothing on.
//!
//! *A send.* The record, which a blocking send has on its stack, lies in the future, and the message beside it. A counterpart
//! takes the message out of the future (on a channel without a buffer two futures would never meet if both only looked), or
//! moves it up into the buffer. The drop claims the wait: if the claim wins, the message is dropped, unsent; otherwise the
//! message was sent.
//!
//! Checked by `models/chan_task.rs`.

use crate::chan::flow::{Chan, Ended, Taken};
use crate::chan::state::{Kind, Record, RecordPtr, WaitResult, Woken};
use crate::chan::{RecvError, SendError};
use crate::host::Active;
use crate::prim::hooks::*;
use crate::sched::timers::callback::{Guard, RunMode, call_at};
use crate::wait::queue::Node;
use crate::wait::task::{TaskWait, wake};
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// The receives of a task, one after the other. The owner of this value calls `leave` before the drop.
pub(crate) struct TaskReceive {
    /// `Some` from the poll that finds no message to the poll that ends the wait.
    wait: Option<TaskWait<Active>>,
    /// Made with the wait. Pointers to the record are made from shared references, as in `Receive`.
    record: Option<Node<Record>>,
    /// Set for a timer channel: then a poll looks, whatever has woken the task.
    tells_time: bool,
    /// Wakes the task when the next message of such a channel is due.
    timer: Option<Guard<Active>>,
    _pinned: PhantomPinned,
}

// SAFETY: the record's links and states are touched under the channel's lock, the rest by the party that has claimed the wait.
unsafe impl Send for TaskReceive {}
// SAFETY: a shared reference has no operations.
unsafe impl Sync for TaskReceive {}

impl TaskReceive {
    pub(crate) fn new() -> Self {
        TaskReceive { wait: None, record: None, tells_time: false, timer: None, _pinned: PhantomPinned }
    }

    fn node(&self) -> RecordPtr {
        NonNull::from(self.record.as_ref().expect("node: it was made with the wait"))
    }

    fn result(&self) -> WaitResult {
        self.record.as_ref().map_or(WaitResult::Open, |record| record.value.wait_result())
    }

    /// Receives, or waits. Without a channel the future is never ready.
    pub(crate) fn poll<T>(
        self: Pin<&mut Self>,
        chan: Option<&Chan<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, RecvError>> {
        let Some(chan) = chan else { return Poll::Pending };
        // SAFETY: the record is not moved from the poll that queues it to the poll that ends the wait, or to `leave`.
        let this = unsafe { self.get_unchecked_mut() };
        let mut slot = MaybeUninit::uninit();
        let taken = match &this.wait {
            // An earlier poll has unwound, and opened no wait; the record stands in its place.
            None if this.record.is_some() => Taken::Nothing,
            // SAFETY: the slot is valid for a write of a `T`.
            None => unsafe { chan.take_before_a_wait(slot.as_mut_ptr()) },
            Some(wait) if wait.is_over(cx.waker()) => match this.result() {
                // SAFETY: as above. A message is granted to this task.
                WaitResult::Granted => unsafe { chan.take_granted(slot.as_mut_ptr()) },
                WaitResult::Closed => Taken::Closed,
                _ => Taken::Nothing,
            },
            Some(wait) if this.tells_time && wait.leave() => {
                // The record keeps its place.
                this.wait = None;
                Taken::Nothing
            }
            Some(_) => return Poll::Pending,
        };
        this.disarm();
        let taken = match taken {
            // SAFETY: as above.
            Taken::Nothing => unsafe { this.look(chan, slot.as_mut_ptr(), cx) },
            taken => taken,
        };
        if let Taken::Nothing | Taken::Promise(_) = taken {
            return Poll::Pending;
        }
        (this.wait, this.record) = (None, None);
        // SAFETY: a message was moved into the slot.
        Poll::Ready(if taken == Taken::Done { Ok(unsafe { slot.assume_init() }) } else { Err(RecvError) })
    }

    /// Takes a message if there is one, or opens a wait.
    ///
    /// # Safety
    /// As `Chan::take`. The last wait, if there was one, is over, and its record is Held, in no queue, or among the receivers
    /// of a timer channel.
    unsafe fn look<T>(&mut self, chan: &Chan<T>, slot: *mut T, cx: &mut Context<'_>) -> Taken {
        // Without the lock: user code clones and drops wakers.
        let wait = TaskWait::open(cx.waker());
        let (waiter, mut woken) = (wait.waiter(), Woken::new());
        let mut state = chan.lock();
        self.tells_time = state.tick.is_some();
        let taken = if self.tells_time {
            let own = self.record.as_ref().map(NonNull::from);
            // SAFETY: by this function's contract; `T` is `Instant`, as for every channel with a tick (`chan::clock`).
            unsafe { chan.take_tick(&mut state, own, slot) }
        } else {
            // SAFETY: by this function's contract.
            unsafe { chan.take(&mut state, slot, &mut woken) }
        };
        if let Taken::Done | Taken::Closed = taken {
            if self.record.is_some() {
                // SAFETY: the record belongs to this task, and stands in this queue or in none.
                unsafe { chan.raw.leave_turn(state, self.node(), wake::<Active>) };
            } else {
                drop(state);
            }
            woken.ready();
            wait.withdraw();
            return taken;
        }
        let timer = self.tells_time.then(|| waiter.clone());
        let queued = match &self.record {
            Some(record) => {
                record.value.renew(waiter);
                true
            }
            None => {
                self.record = Some(Record::new(waiter, std::ptr::null_mut(), Kind::OfTask));
                false
            }
        };
        let node = self.node();
        match taken {
            // SAFETY: `take` has claimed the sender, which sleeps until readied below. The record leaves the queue before it is
            // dropped: a counterpart takes it out, or `leave` does.
            Taken::Promise(sender) => unsafe {
                sender.as_ref().value.set_wait_result(WaitResult::Partner(state.ask_for_task(node)));
                woken.add(sender);
            },
            // SAFETY: the record leaves the queue as above.
            _ if !queued => unsafe {
                state.give_place(node);
                state.receivers.push_back(node);
            },
            _ => {}
        }
        if taken == Taken::Nothing {
            unless!(TaskReceivesInSilence, state.tell_of_receiver(&mut woken));
        }
        let timer = timer.and_then(|waiter| Some((state.turn_of(Some(node))?, waiter)));
        drop(state);
        let before = self.wait.replace(wait);
        woken.ready();
        drop(before);
        self.timer = timer.map(|(due, waiter)| call_at(due, RunMode::Wakes, move || waiter.nudge()));
        taken
    }

    fn disarm(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.stop();
        }
    }

    /// Ends a wait that the future has claimed itself, or that ended with the record Held.
    fn forget<T>(&mut self, chan: &Chan<T>) {
        // SAFETY: the record belongs to this task, and stands in a queue of this channel or in none.
        unsafe {
            let mut state = chan.lock();
            if self.tells_time {
                chan.raw.leave_turn(state, self.node(), wake::<Active>);
            } else {
                state.leave(self.node());
            }
        }
        (self.wait, self.record) = (None, None);
    }

    /// Ends the receive. A granted message goes to the next receiver.
    pub(crate) fn leave<T>(self: Pin<&mut Self>, chan: Option<&Chan<T>>) {
        let Some(chan) = chan else { return };
        // SAFETY: the record is dropped when it stands in no queue.
        let this = unsafe { self.get_unchecked_mut() };
        this.disarm();
        let Some(wait) = &this.wait else {
            if this.record.is_some() {
                // An earlier poll has unwound, ended the wait, and opened none.
                this.forget(chan);
            }
            return;
        };
        if wait.leave() || this.result() == WaitResult::Withdrawn {
            // T4.
            return this.forget(chan);
        }
        let granted = this.result() == WaitResult::Granted;
        (this.wait, this.record) = (None, None);
        if granted {
            unless!(TaskKeepsItsGrant, chan.give_back());
        }
    }
}

/// A send of one message by a task. The owner of this value calls `leave` or `take_back` before the drop.
pub(crate) struct TaskSend<T> {
    /// The message, until sent or given back.
    message: MaybeUninit<T>,
    is_there: bool,
    /// `Some` from the poll that finds no room.
    wait: Option<TaskWait<Active>>,
    record: Option<Node<Record>>,
    _pinned: PhantomPinned,
}

// SAFETY: as for `TaskReceive`; the message goes from thread to thread.
unsafe impl<T: Send> Send for TaskSend<T> {}
// SAFETY: a shared reference has no operations.
unsafe impl<T: Send> Sync for TaskSend<T> {}

impl<T> TaskSend<T> {
    pub(crate) fn new(message: T) -> Self {
        let message = MaybeUninit::new(message);
        TaskSend { message, is_there: true, wait: None, record: None, _pinned: PhantomPinned }
    }

    fn node(&self) -> RecordPtr {
        NonNull::from(self.record.as_ref().expect("node: it was made with the wait"))
    }

    /// Returns `true` if the counterpart that has ended the wait has moved the message.
    fn was_moved(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.value.wait_result() == WaitResult::Done)
    }

    /// # Panics
    /// If the send has ended before.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        chan: Option<&Chan<T>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        let Some(chan) = chan else { return Poll::Pending };
        // SAFETY: the record and the message are not moved from the poll that queues the record to the poll that finds the wait
        // over, or to `take_back`.
        let this = unsafe { self.get_unchecked_mut() };
        assert!(this.is_there, "send_async: polled after it was ready");
        let sent = match &this.wait {
            Some(wait) if !wait.is_over(cx.waker()) => return Poll::Pending,
            Some(_) => this.was_moved(),
            None => match this.put(chan, cx) {
                Some(ended) => ended == Ended::Done,
                None => return Poll::Pending,
            },
        };
        (this.wait, this.record, this.is_there) = (None, None, false);
        // SAFETY: the message was not moved.
        Poll::Ready(if sent { Ok(()) } else { Err(SendError(unsafe { this.message.assume_init_read() })) })
    }

    /// Sends the message; or opens a wait, and returns `None`.
    fn put(&mut self, chan: &Chan<T>, cx: &mut Context<'_>) -> Option<Ended> {
        let slot = self.message.as_mut_ptr();
        // SAFETY: the message lies in the slot.
        let ended = unsafe { chan.try_send(slot) };
        if ended != Ended::TimedOut {
            return Some(ended);
        }
        // As in `TaskReceive::look`.
        let wait = TaskWait::open(cx.waker());
        let mut woken = Woken::new();
        let mut state = chan.lock();
        // SAFETY: as above.
        let ended = unsafe { chan.put(&mut state, slot, &mut woken) };
        if ended.is_some() {
            drop(state);
            woken.ready();
            wait.withdraw();
            return ended;
        }
        self.record = Some(Record::new(wait.waiter(), slot.cast(), Kind::Alone));
        self.wait = Some(wait);
        let node = self.node();
        // SAFETY: the record leaves the queue before it is dropped: a counterpart takes it out, or `take_back` does.
        unsafe {
            state.give_place(node);
            unless!(TaskSendKeepsItsMessage, state.senders.push_back(node));
        }
        unless!(TaskSendsInSilence, state.tell_of_sender(&mut woken));
        drop(state);
        woken.ready();
        None
    }

    /// Ends the send, and drops the message, if not sent.
    pub(crate) fn leave(self: Pin<&mut Self>, chan: Option<&Chan<T>>) {
        drop(self.take_back(chan));
    }

    /// Ends the send. Returns the message, if not sent.
    pub(crate) fn take_back(self: Pin<&mut Self>, chan: Option<&Chan<T>>) -> Option<T> {
        // SAFETY: the record is dropped when it stands in no queue.
        let this = unsafe { self.get_unchecked_mut() };
        if let (Some(wait), Some(chan)) = (&this.wait, chan) {
            if wait.leave() {
                // SAFETY: the record belongs to this task, and stands in this queue or in none.
                unsafe { chan.lock().senders.remove(this.node()) };
            } else if this.was_moved() {
                unless!(TaskKeepsWhatWasSent, this.is_there = false);
            }
        }
        (this.wait, this.record) = (None, None);
        // SAFETY: the message was not moved, and is not used again.
        std::mem::take(&mut this.is_there).then(|| unsafe { this.message.assume_init_read() })
    }
}

impl<T> Chan<T> {
    /// Receives as far as that is possible without a waiting sender, whose message may have to be evaluated yet.
    ///
    /// # Safety
    /// As `take`.
    unsafe fn take_before_a_wait(&self, slot: *mut T) -> Taken {
        let (mut state, mut woken) = (self.lock(), Woken::new());
        if state.len == 0 && !state.closed && state.tick.is_none() {
            return Taken::Nothing;
        }
        // SAFETY: by this function's contract.
        let taken = unsafe { self.take_without_sender(&mut state, slot, &mut woken) };
        drop(state);
        woken.ready();
        taken
    }

    /// Does T2: takes the message that is granted to the caller.
    ///
    /// # Safety
    /// As `take`. A message is granted to the caller.
    unsafe fn take_granted(&self, slot: *mut T) -> Taken {
        let (mut state, mut woken) = (self.lock(), Woken::new());
        state.granted -= 1;
        // SAFETY: as in `pop`; the ring has a message for each grant.
        self.buffer.with_mut(|buffer| unsafe { (*buffer).pop_seldom(slot) });
        unless!(GrantEndsNobody, state.end_receivers_if_drained(&mut woken));
        drop(state);
        woken.ready();
        Taken::Done
    }

    /// Does T3: gives a granted message back.
    fn give_back(&self) {
        let (mut state, mut woken) = (self.lock(), Woken::new());
        state.granted -= 1;
        let len = state.len + 1;
        self.raw.set_len(&mut state, len);
        unless!(GivenBackToNobody, self.feed(&mut state, &mut woken));
        if state.len > 0 {
            unless!(GivenBackInSilence, state.tell_receive_watchers(&mut woken));
        }
        unless!(GivenBackEndsNobody, state.end_receivers_if_drained(&mut woken));
        drop(state);
        woken.ready();
    }
}
