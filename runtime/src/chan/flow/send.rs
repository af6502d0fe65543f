//! Sending: one attempt, and then a wait.

use crate::chan::flow::{Chan, EndWord, Ended, has_passed};
use crate::chan::state::{Kind, Offer, Record, State, WaitResult, Woken};
use crate::host::Active;
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::queue::Node;
use crate::wait::waiter::{How, Opened, Wait, Woke};
use gmp_timers::Nanos;
use std::ptr::NonNull;

impl<T> Chan<T> {
    /// Sends the message in `slot`. The message is moved out if and only if the result is Done.
    ///
    /// # Safety
    /// A `T` lies in `slot`.
    pub(crate) unsafe fn send(&self, slot: *mut T, limit: Option<Nanos>) -> Ended {
        let mut state = self.lock();
        // One condition at a time, as in `recv_for`.
        if state.has_room() {
            if state.has_nobody_to_tell() {
                // SAFETY: by this function's contract.
                unsafe { self.push(&mut state, slot) };
                return Ended::Done;
            }
        } else if state.has_no_place_to_put() {
            // SAFETY: by this function's contract.
            return unsafe { self.send_or_throw(state, slot, limit) };
        }
        let mut woken = Woken::new();
        // SAFETY: by this function's contract.
        if let Some(ended) = unsafe { self.put(&mut state, slot, &mut woken) } {
            drop(state);
            woken.ready();
            return ended;
        }
        // SAFETY: by this function's contract.
        unsafe { self.send_or_throw(state, slot, limit) }
    }

    /// As `send`, without waiting.
    ///
    /// # Safety
    /// As `send`.
    pub(crate) unsafe fn try_send(&self, slot: *mut T) -> Ended {
        let mut woken = Woken::new();
        let mut state = self.lock();
        // SAFETY: by this function's contract.
        let put = unsafe { self.put(&mut state, slot, &mut woken) };
        drop(state);
        woken.ready();
        put.unwrap_or(Ended::TimedOut)
    }

    /// As `Sender::send_absent`.
    pub(crate) fn send_absent(&self, mut message: T)
    where
        T: Copy + PartialEq,
    {
        let mut woken = Woken::new();
        let mut state = self.lock();
        // SAFETY: the state is locked.
        let is_there = self.buffer.with(|buffer| unsafe { (*buffer).contains(&message) });
        if !is_there {
            // SAFETY: the message is initialised; it is `Copy`, so it may stay here if it is not moved out.
            let _closed = unsafe { self.put(&mut state, &raw mut message, &mut woken) };
        }
        drop(state);
        woken.ready();
    }

    /// Sends, as far as that is possible without waiting; `None` if the send has to wait.
    ///
    /// # Safety
    /// As `send`.
    #[inline(always)]
    pub(super) unsafe fn put(&self, state: &mut State, slot: *mut T, woken: &mut Woken) -> Option<Ended> {
        match state.offer() {
            // SAFETY: `offer` has claimed the receiver; the message by this function's contract.
            Offer::Receiver(receiver) => unsafe { self.hand(state, receiver, slot, woken) },
            Offer::Room => {
                // SAFETY: there is room; the message by this function's contract.
                unsafe { self.push(state, slot) };
                state.tell_receive_watchers(woken);
            }
            Offer::Closed => return Some(Ended::Closed),
            Offer::Full => return None,
        }
        Some(Ended::Done)
    }

    /// Waits, and throws the interrupt that has ended the wait: in a frame of its own, as `recv_or_throw`.
    ///
    /// # Safety
    /// As `send`.
    #[inline(never)]
    unsafe fn send_or_throw<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        slot: *mut T,
        limit: Option<Nanos>,
    ) -> Ended {
        // SAFETY: by this function's contract.
        match unsafe { self.send_waiting(state, slot, limit) }.get() {
            Ok(ended) => ended,
            Err(why) => {
                // No counterpart has moved the message: the unwinding drops the message.
                let _message = Abandoned(slot);
                why.throw::<Active>();
            }
        }
    }

    /// Waits. If an interrupt has ended the wait, no counterpart has moved the message.
    ///
    /// # Safety
    /// As `send`.
    #[inline(never)]
    unsafe fn send_waiting<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        slot: *mut T,
        limit: Option<Nanos>,
    ) -> EndWord {
        loop {
            let opened = match Wait::try_open() {
                Some(opened) => opened,
                // SAFETY: by this function's contract.
                None => match unsafe { self.open_send(state, slot) } {
                    Ok((locked, opened)) => {
                        state = locked;
                        opened
                    }
                    Err(ended) => return EndWord::ended(ended),
                },
            };
            let mut wait = Wait::<Active>::of(opened);
            if has_passed(limit) {
                drop(state);
                wait.withdraw();
                return EndWord::ended(Ended::TimedOut);
            }
            let record = Record::new(wait.waiter(), slot.cast(), Kind::Alone);
            // SAFETY: the record is taken out of the queue below, if a counterpart has not done so.
            let woke = unsafe { self.park_send(&mut wait, state, &record, limit) };
            match record.value.wait_result() {
                WaitResult::Done => return EndWord::ended(Ended::Done),
                WaitResult::Closed => return EndWord::ended(Ended::Closed),
                _ => {}
            }
            state = self.lock();
            // SAFETY: the record stands in this queue, or in none.
            unsafe { state.senders.remove(NonNull::from(&record)) };
            if let Woke::Interrupted(why) = woke {
                drop(state);
                return EndWord::interrupted(why);
            }
            let mut woken = Woken::new();
            // SAFETY: by this function's contract.
            if let Some(ended) = unsafe { self.put(&mut state, slot, &mut woken) } {
                drop(state);
                woken.ready();
                return EndWord::ended(ended);
            }
        }
    }

    /// Opens a wait without the lock, as the goroutine may have to park for a P first. If the send ends afterwards, returns its
    /// end as the error.
    ///
    /// # Safety
    /// As `send`.
    #[cold]
    unsafe fn open_send<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        slot: *mut T,
    ) -> Result<(MutexGuard<'a, State>, Opened<Active>), Ended> {
        drop(state);
        let opened = Wait::open();
        let (mut state, mut woken) = (self.lock(), Woken::new());
        mutant!(ChanSendOpensBlindly: return Ok((state, opened)));
        // SAFETY: by this function's contract.
        if let Some(ended) = unsafe { self.put(&mut state, slot, &mut woken) } {
            drop(state);
            woken.ready();
            Wait::of(opened).withdraw();
            return Err(ended);
        }
        Ok((state, opened))
    }

    /// Queues the record and parks, once.
    ///
    /// # Safety
    /// The record is taken out of the queue before the caller's frame ends.
    #[inline(always)]
    unsafe fn park_send<'a>(
        &'a self,
        wait: &mut Wait<Active>,
        mut state: MutexGuard<'a, State>,
        record: &Node<Record>,
        limit: Option<Nanos>,
    ) -> Woke {
        let node = NonNull::from(record);
        mutant!(ChanSendQueuesLate: drop(state); state = self.lock());
        // SAFETY: by this function's contract.
        unsafe {
            state.give_place(node);
            state.senders.push_back(node);
        }
        wait.park(How::new(WaitReason::ChanSend).until(limit), move || {
            let mut told = Woken::new();
            unless!(SendComesInSilence, state.tell_of_sender(&mut told));
            drop(state);
            told.ready();
            Commit::Park
        })
    }
}

/// Drops a message that the sender will not send.
pub(crate) struct Abandoned<T>(pub(crate) *mut T);

impl<T> Drop for Abandoned<T> {
    fn drop(&mut self) {
        // SAFETY: the message lies in the sender's slot, and no counterpart has moved it.
        unsafe { self.0.drop_in_place() };
    }
}
