//! Sending: one attempt, and then a wait.

use crate::chan::flow::{Chan, Ended, has_passed};
use crate::chan::state::{Kind, Offer, Record, State, WaitResult, Woken};
use crate::host::Active;
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::waiter::{How, Wait, Woke};
use gmp_timers::Nanos;
use std::ptr::NonNull;

impl<T> Chan<T> {
    /// Sends the message in `slot`. The message is moved out if and only if the result is Done.
    ///
    /// # Safety
    /// A `T` lies in `slot`.
    pub(crate) unsafe fn send(&self, slot: *mut T, limit: Option<Nanos>) -> Ended {
        let mut state = self.lock();
        if state.has_room_for_all() {
            // SAFETY: by this function's contract.
            unsafe { self.push(&mut state, slot) };
            return Ended::Done;
        }
        if !state.has_no_place_to_put() {
            let mut woken = Woken::new();
            // SAFETY: by this function's contract.
            if let Some(ended) = unsafe { self.put(&mut state, slot, &mut woken) } {
                drop(state);
                woken.ready();
                return ended;
            }
        }
        // SAFETY: as above.
        unsafe { self.send_waiting(state, slot, limit) }
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

    /// Sends, as far as that is possible without waiting; `None` if the send has to wait.
    ///
    /// # Safety
    /// As `send`.
    #[inline(always)]
    unsafe fn put(&self, state: &mut State, slot: *mut T, woken: &mut Woken) -> Option<Ended> {
        match state.offer() {
            // SAFETY: `offer` has claimed the receiver; the message by this function's contract.
            Offer::Receiver(receiver) => unsafe { self.hand(receiver, slot, woken) },
            Offer::Room => {
                // SAFETY: as above.
                unsafe { self.push(state, slot) };
                state.tell_receive_watchers(woken);
            }
            Offer::Closed => return Some(Ended::Closed),
            Offer::Full => return None,
        }
        Some(Ended::Done)
    }

    /// # Safety
    /// As `send`.
    #[inline(never)]
    unsafe fn send_waiting<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        slot: *mut T,
        limit: Option<Nanos>,
    ) -> Ended {
        loop {
            let mut woken = Woken::new();
            let opened = match Wait::try_open() {
                Some(opened) => opened,
                None => {
                    drop(state);
                    let opened = Wait::open();
                    state = self.lock();
                    // SAFETY: by this function's contract.
                    if let Some(ended) = unsafe { self.put(&mut state, slot, &mut woken) } {
                        drop(state);
                        woken.ready();
                        Wait::of(opened).withdraw();
                        return ended;
                    }
                    opened
                }
            };
            let mut wait = Wait::<Active>::of(opened);
            if has_passed(limit) {
                drop(state);
                wait.withdraw();
                return Ended::TimedOut;
            }
            let record = Record::new(wait.waiter(), slot.cast(), Kind::Alone);
            let node = NonNull::from(&record);
            mutant!(ChanSendQueuesLate: drop(state); state = self.lock());
            // SAFETY: the record is taken out of the queue before this frame ends.
            unsafe {
                state.give_place(node);
                state.senders.push_back(node);
            }
            state.tell_receive_watchers(&mut woken);
            let woke = wait.park(How::new(WaitReason::ChanSend).until(limit), move || {
                drop(state);
                woken.ready();
                Commit::Park
            });
            match record.value.wait_result() {
                WaitResult::Done => return Ended::Done,
                WaitResult::Closed => return Ended::Closed,
                _ => {}
            }
            state = self.lock();
            // SAFETY: the record stands in this queue, or in none.
            unsafe { state.senders.remove(node) };
            if let Woke::Interrupted(why) = woke {
                drop(state);
                // The message was not moved: the unwinding drops it.
                let _message = Abandoned(slot);
                why.throw::<Active>();
            }
            let mut woken = Woken::new();
            // SAFETY: by this function's contract.
            if let Some(ended) = unsafe { self.put(&mut state, slot, &mut woken) } {
                drop(state);
                woken.ready();
                return ended;
            }
        }
    }
}

/// Drops a message that its sender will not send.
pub(crate) struct Abandoned<T>(pub(crate) *mut T);

impl<T> Drop for Abandoned<T> {
    fn drop(&mut self) {
        // SAFETY: the message lies in the sender's slot, and nobody has moved it.
        unsafe { self.0.drop_in_place() };
    }
}
