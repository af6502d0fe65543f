//! Receiving: one attempt, and then a wait. The record of the wait keeps its place in the queue while its owner tries
//! again.

use crate::chan::flow::{Ask, Chan, Ended, Outcome, Taken, WaitBy, await_promise, earlier, has_passed};
use crate::chan::state::{Kind, QueueState, Record, RecordPtr, State, WaitResult, Woken};
use crate::host::{Active, Host};
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::waiter::{How, Wait, Woke};
use gmp_timers::Nanos;
use std::ptr::NonNull;

impl<T> Chan<T> {
    /// Receives into `slot`. Waits at most until `limit`.
    ///
    /// # Safety
    /// `slot` is valid for a write of a `T`.
    pub(crate) unsafe fn recv(&self, slot: *mut T, limit: Option<Nanos>) -> Ended {
        let mut state = self.lock();
        if state.has_messages_for_all() {
            // SAFETY: by this function's contract.
            unsafe { self.pop(&mut state, slot) };
            return Ended::Done;
        }
        let mut taken = Taken::Nothing;
        if !state.has_nothing_to_take() {
            let mut woken = Woken::new();
            // SAFETY: by this function's contract.
            taken = unsafe { self.take(&mut state, slot, &mut woken) };
            if taken == Taken::Done {
                drop(state);
                woken.ready();
                return Ended::Done;
            }
        }
        // SAFETY: as above.
        unsafe { self.recv_waiting(state, taken, slot, limit) }
    }

    /// # Safety
    /// As `recv`.
    #[inline(never)]
    unsafe fn recv_waiting<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        mut taken: Taken,
        slot: *mut T,
        limit: Option<Nanos>,
    ) -> Ended {
        let mut woken = Woken::new();
        let mut record = None;
        // Whether `record` is in the queue and keeps its place there.
        let mut queued = false;
        loop {
            let node = record.as_ref().map(NonNull::from);
            let kept = node.filter(|_| queued);
            match taken {
                Taken::Done | Taken::Closed => {
                    Self::leave(&mut state, kept);
                    drop(state);
                    woken.ready();
                    return if taken == Taken::Done { Ended::Done } else { Ended::Closed };
                }
                Taken::Promise(sender) => {
                    drop(state);
                    let (ask, how) = (Ask::Sender(sender), (WaitBy::Parks, limit));
                    // SAFETY: `take` has claimed the sender; the slot is the caller's.
                    let outcome = unsafe { await_promise(&self.raw, ask, slot.cast(), how, kept) };
                    if outcome != Outcome::Withdrawn && kept.is_some() {
                        Self::leave(&mut self.lock(), kept);
                    }
                    match outcome {
                        Outcome::Came => return Ended::Done,
                        Outcome::TimedOut => return Ended::TimedOut,
                        Outcome::Interrupted(why) => why.throw::<Active>(),
                        Outcome::Withdrawn => {}
                    }
                }
                Taken::Nothing => {
                    let opened = match Wait::try_open() {
                        Some(opened) => opened,
                        None => {
                            drop(state);
                            let opened = Wait::open();
                            state = self.lock();
                            // SAFETY: by this function's contract.
                            taken = unsafe { self.take_again(&mut state, kept, slot, &mut woken) };
                            if taken != Taken::Nothing {
                                Wait::of(opened).withdraw();
                                continue;
                            }
                            opened
                        }
                    };
                    let mut wait = Wait::<Active>::of(opened);
                    if has_passed(limit) {
                        Self::leave(&mut state, kept);
                        drop(state);
                        wait.withdraw();
                        return Ended::TimedOut;
                    }
                    match &record {
                        None => record = Some(Record::new(wait.waiter(), slot.cast(), Kind::Alone)),
                        Some(it) => it.value.renew(wait.waiter()),
                    }
                    // The pointer is always made from a shared reference, as the queue keeps it while further shared
                    // references are made.
                    let node = record.as_ref().map(NonNull::from).expect("recv: made just now");
                    mutant!(ChanRecvQueuesLate: drop(state); state = self.lock());
                    if !queued {
                        // SAFETY: the record is taken out of the queue before this function returns.
                        unsafe {
                            state.give_place(node);
                            state.receivers.push_back(node);
                        }
                    }
                    state.tell_send_watchers(&mut woken);
                    let mut how = How::new(WaitReason::ChanReceive).until(earlier(limit, state.due()));
                    how.looks = state.tick.is_some();
                    let told = std::mem::replace(&mut woken, Woken::new());
                    let mut woke = wait.park(how, move || {
                        drop(state);
                        told.ready();
                        Commit::Park
                    });
                    while woke == Woke::Nudged {
                        // `Chan::set_tick` nudges: the channel tells another time now.
                        how = how.until(earlier(limit, self.lock().due()));
                        woke = wait.park_again(how);
                    }
                    // SAFETY: the wait is over.
                    match unsafe { node.as_ref() }.value.wait_result() {
                        WaitResult::Done => return Ended::Done,
                        WaitResult::Closed => return Ended::Closed,
                        WaitResult::Withdrawn => queued = true,
                        _ => {
                            // SAFETY: the record stands in one of this channel's queues, or in none.
                            unsafe { self.lock().leave(node) };
                            queued = false;
                            if let Woke::Interrupted(why) = woke {
                                why.throw::<Active>();
                            }
                        }
                    }
                }
            }
            let kept = record.as_ref().map(NonNull::from).filter(|_| queued);
            state = self.lock();
            // SAFETY: by this function's contract.
            taken = unsafe { self.take_again(&mut state, kept, slot, &mut woken) };
        }
    }

    /// Removes the record that keeps the caller's place from the queue, if it is there.
    fn leave(state: &mut State, kept: Option<RecordPtr>) {
        if let Some(node) = kept {
            // SAFETY: the record is the caller's, and stands in this queue or in none.
            unsafe { state.receivers.remove(node) };
        }
    }

    /// As `take`, for a receiver whose record may have been served meanwhile.
    ///
    /// # Safety
    /// As `take`; the record is the caller's.
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
        // SAFETY: the record is the caller's, by this function's contract; its state is read under the lock.
        let it = unsafe { &node.as_ref().value };
        if (it.queue_state() == QueueState::Served).unless(ReturnedIgnoresItsSlot) {
            return Taken::Done;
        }
        // A Held record is not served: not while its owner takes a message here, nor while the owner waits for a
        // promised one.
        it.set_queue_state(QueueState::Held);
        // SAFETY: as above.
        let taken = unsafe { self.take(state, slot, woken) };
        if taken == Taken::Nothing {
            it.set_queue_state(QueueState::Returned);
        }
        taken
    }

    /// As `recv`, without waiting, except for a promised message: for that its thread waits up to `GRACE`.
    ///
    /// # Safety
    /// As `recv`.
    pub(crate) unsafe fn try_recv(&self, slot: *mut T) -> Ended {
        loop {
            let mut woken = Woken::new();
            let mut state = self.lock();
            // SAFETY: by this function's contract.
            let taken = unsafe { self.take(&mut state, slot, &mut woken) };
            drop(state);
            woken.ready();
            match taken {
                Taken::Done => return Ended::Done,
                Taken::Closed => return Ended::Closed,
                Taken::Nothing => return Ended::TimedOut,
                Taken::Promise(sender) => {
                    let (ask, how) = (Ask::Sender(sender), (WaitBy::Thread, Some(Active::now())));
                    // SAFETY: `take` has claimed the sender; the slot is the caller's.
                    match unsafe { await_promise(&self.raw, ask, slot.cast(), how, None) } {
                        Outcome::Came => return Ended::Done,
                        Outcome::TimedOut => return Ended::TimedOut,
                        Outcome::Interrupted(why) => why.throw::<Active>(),
                        Outcome::Withdrawn => {}
                    }
                }
            }
        }
    }
}
