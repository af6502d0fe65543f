//! The operations of tasks: what a future does to a channel in its polls and in its drop.
//!
//! *A receive.* The obvious way has a sender hand the message to the waiting task, as to a goroutine. But a future that
//! was served may be dropped before its next poll, and cannot return what it got; and if the message went back to the
//! channel then, another receiver might have had a later one meanwhile. Another way tells the task that there is a
//! message, and lets the task try: then faster receivers overtake the task, for ever if there are always such receivers.
//! *Here* the message is *granted*: it goes into the buffer, but does not count among the messages that others may take.
//!
//! ```text
//!   sender, under the lock                           future, under the lock
//!
//!   S1  the first receiver is a task: claim it       T1  poll: nothing to take: the record among the receivers
//!   S2  the message behind those in the ring         T2  poll, granted: granted -= 1, out comes the first message
//!       granted += 1                                     the channel may be drained: tell the waiters
//!   S3  READY, the waker (after the lock)            T3  drop, granted: granted -= 1, len += 1: feed the waiters
//!                                                    T4  drop, not granted: leave the queue
//! ```
//! * *None lost, none twice*: between S2 and T2 the message lies in the ring, where it is not moved. T3 changes counts
//!   alone. The ring has `len + granted` messages, so T2 finds one.
//! * *In order*: each receiver takes the first message of the ring, or finds it empty. While a message is granted, one
//!   that goes to a goroutine takes its place behind the others, and the goroutine gets the first (`Chan::exchange`).
//!   So a message that T3 gives back is where it was. Only *which receiver* gets which message is decided later than for
//!   goroutines.
//! * *Fair*: others that come between S1 and T2 find nothing in `len`, and queue. A task that is slow, or never polls again,
//!   keeps one message from others, and holds up nothing else before the channel is closed: what is granted takes no place, as
//!   in the slot of a goroutine.
//! * *The end*: a closed channel is not drained while a message is granted. Receivers behind the task are told of the
//!   end by T2, or get the message by T3.
//! * *A message too many*: a send that finds a task has met a receiver, and is done. If T3 finds no receiver, the
//!   message is in the buffer then, also of a channel without one, where the next receive takes it before it looks for
//!   a sender.
//!
//! A message that a `select!` has promised to a task is granted when it is there. Its withdrawal has the task look
//! again, from its place, where it stands Held meanwhile; no other waiter depends on what a Held task does, so its drop passes
//! nothing on.
//!
//! *A send.* The record that a blocking send has on its stack lies in the future, and the message beside it. A counterpart
//! takes the message out of there (on a channel without a buffer two futures would never meet if both only looked), or
//! moves it up into the buffer. The drop claims the wait: if it wins, the message is dropped, unsent; if not, the
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
use crate::wait::task::TaskWait;
use std::marker::PhantomPinned;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// A receive by a task, again and again. Before it is dropped, `leave` is called.
pub(crate) struct TaskReceive {
    /// From the poll that finds nothing to the one that ends the wait.
    wait: Option<TaskWait<Active>>,
    /// Made with the wait. Pointers to it are made from shared references, as in `Receive`.
    record: Option<Node<Record>>,
    /// The channel tells the time: a poll looks, whatever has woken the task.
    tells_time: bool,
    /// Wakes the task when the next message of such a channel is due.
    alarm: Option<Guard<Active>>,
    _pinned: PhantomPinned,
}

// SAFETY: the record's links and states are touched under the channel's lock, the rest by the one that has claimed the wait.
unsafe impl Send for TaskReceive {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for TaskReceive {}

impl TaskReceive {
    pub(crate) fn new() -> Self {
        TaskReceive { wait: None, record: None, tells_time: false, alarm: None, _pinned: PhantomPinned }
    }

    fn node(&self) -> RecordPtr {
        NonNull::from(self.record.as_ref().expect("node: it was made with the wait"))
    }

    fn result(&self) -> WaitResult {
        self.record.as_ref().map_or(WaitResult::Open, |record| record.value.wait_result())
    }

    pub(crate) fn poll<T>(
        self: Pin<&mut Self>,
        chan: &Chan<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<T, RecvError>> {
        // SAFETY: the record is not moved from the poll that queues it to the one that ends the wait, or `leave`.
        let this = unsafe { self.get_unchecked_mut() };
        let mut slot = MaybeUninit::uninit();
        let taken = match &this.wait {
            // A poll that unwound has opened no wait, and the record stands in its place.
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

    /// Takes what there is, or opens a wait.
    ///
    /// # Safety
    /// As `Chan::take`. The last wait, if there was one, is over, and its record is Held, in no queue, or among the receivers
    /// of a channel that tells the time.
    unsafe fn look<T>(&mut self, chan: &Chan<T>, slot: *mut T, cx: &mut Context<'_>) -> Taken {
        // The user's code clones and drops wakers: without the lock.
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
                // SAFETY: the record is this task's, and stands in this queue or in none.
                unsafe { chan.raw.leave_turn(state, self.node()) };
            } else {
                drop(state);
            }
            woken.ready();
            wait.withdraw();
            return taken;
        }
        let alarm = self.tells_time.then(|| waiter.clone());
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
            // SAFETY: `take` has claimed the sender, which sleeps until it is readied below. The record leaves the
            // queue before it is dropped: a counterpart takes it out, or `leave`.
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
        let alarm = alarm.and_then(|waiter| Some((state.turn_of(Some(node))?, waiter)));
        drop(state);
        let before = self.wait.replace(wait);
        woken.ready();
        drop(before);
        self.alarm = alarm.map(|(due, waiter)| call_at(due, RunMode::Wakes, move || waiter.nudge()));
        taken
    }

    fn disarm(&mut self) {
        if let Some(alarm) = self.alarm.take() {
            alarm.stop();
        }
    }

    /// Ends a wait that the future has claimed itself, or that is over and has left its record Held.
    fn forget<T>(&mut self, chan: &Chan<T>) {
        // SAFETY: the record is this task's, and stands in a queue of this channel or in none.
        unsafe {
            let mut state = chan.lock();
            if self.tells_time {
                chan.raw.leave_turn(state, self.node());
            } else {
                state.leave(self.node());
            }
        }
        (self.wait, self.record) = (None, None);
    }

    /// Ends the receive. What was granted goes to the next receiver.
    pub(crate) fn leave<T>(self: Pin<&mut Self>, chan: &Chan<T>) {
        // SAFETY: the record is dropped when it stands in no queue.
        let this = unsafe { self.get_unchecked_mut() };
        this.disarm();
        let Some(wait) = &this.wait else {
            if this.record.is_some() {
                // A poll that unwound has ended the wait, and opened none.
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

/// A send by a task, of one message. Before it is dropped, `take_back` is called.
pub(crate) struct TaskSend<T> {
    /// The message, until it was sent or given back.
    message: MaybeUninit<T>,
    is_there: bool,
    /// From the poll that finds no room on.
    wait: Option<TaskWait<Active>>,
    record: Option<Node<Record>>,
    _pinned: PhantomPinned,
}

// SAFETY: as for `TaskReceive`; the message goes from thread to thread.
unsafe impl<T: Send> Send for TaskSend<T> {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl<T: Send> Sync for TaskSend<T> {}

impl<T> TaskSend<T> {
    pub(crate) fn new(message: T) -> Self {
        let message = MaybeUninit::new(message);
        TaskSend { message, is_there: true, wait: None, record: None, _pinned: PhantomPinned }
    }

    fn node(&self) -> RecordPtr {
        NonNull::from(self.record.as_ref().expect("node: it was made with the wait"))
    }

    /// For a wait that a counterpart has ended.
    fn was_moved(&self) -> bool {
        self.record.as_ref().is_some_and(|record| record.value.wait_result() == WaitResult::Done)
    }

    /// # Panics
    /// If the send has ended before.
    pub(crate) fn poll(
        self: Pin<&mut Self>,
        chan: &Chan<T>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<T>>> {
        // SAFETY: the record and the message are not moved from the poll that queues the record to the one that finds
        // the wait over, or `take_back`.
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

    /// Sends, or opens a wait: `None`.
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
        // SAFETY: the record leaves the queue before it is dropped: a counterpart takes it out, or `take_back`.
        unsafe {
            state.give_place(node);
            unless!(TaskSendKeepsItsMessage, state.senders.push_back(node));
        }
        unless!(TaskSendsInSilence, state.tell_of_sender(&mut woken));
        drop(state);
        woken.ready();
        None
    }

    /// Ends the send. Returns the message, if it was not sent.
    pub(crate) fn take_back(self: Pin<&mut Self>, chan: Option<&Chan<T>>) -> Option<T> {
        // SAFETY: the record is dropped when it stands in no queue.
        let this = unsafe { self.get_unchecked_mut() };
        if let (Some(wait), Some(chan)) = (&this.wait, chan) {
            if wait.leave() {
                // SAFETY: the record is this task's, and stands in this queue or in none.
                unsafe { chan.lock().senders.remove(this.node()) };
            } else if this.was_moved() {
                unless!(TaskKeepsWhatWasSent, this.is_there = false);
            }
        }
        (this.wait, this.record) = (None, None);
        // SAFETY: the message was not moved, and is not used any more.
        std::mem::take(&mut this.is_there).then(|| unsafe { this.message.assume_init_read() })
    }
}

impl<T> Chan<T> {
    /// Receives as far as that is possible without a sender that waits; its message may have to be evaluated yet.
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

    /// T2.
    ///
    /// # Safety
    /// As `take`. A message is granted to the caller.
    unsafe fn take_granted(&self, slot: *mut T) -> Taken {
        let (mut state, mut woken) = (self.lock(), Woken::new());
        state.granted -= 1;
        // SAFETY: as in `pop`; the ring has a message for each that is granted.
        self.buffer.with_mut(|buffer| unsafe { (*buffer).pop_seldom(slot) });
        unless!(GrantEndsNobody, state.end_receivers_if_drained(&mut woken));
        drop(state);
        woken.ready();
        Taken::Done
    }

    /// T3.
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
