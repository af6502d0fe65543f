//! Receiving from a channel that tells the time: there a receiver waits for a time, and not for a sender.
//!
//! Such a channel has neither senders nor messages, and no receiver sees the channel closed. So the record of a wait is never
//! claimed, and stands in the queue only for a nudge by `Chan::set_tick`. That call changes the tick under the lock under which
//! the receiver has read the time and queued the record: it finds the record, or the receiver has read the new time.
//!
//! The record of a wait leaves the queue in the critical section in which the message that was due is taken.
//!
//! Checked by `models/timer.rs`.

use crate::chan::flow::{EndWord, Ended, Raw, earlier};
use crate::chan::state::{Kind, Record, State, WaitResult};
use crate::host::{Active, Clock};
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::waiter::{How, Wait, Woke};
use gmp_timers::Nanos;
use std::ptr::NonNull;
use std::time::Instant;

impl Raw {
    /// Receives a time into `slot`, and throws the interrupt that has ended the wait: a frame of its own, as that of
    /// `recv_or_throw`.
    ///
    /// # Safety
    /// The channel tells the time, and the caller has a receiver of it. `slot` is valid for a write.
    #[inline(never)]
    pub(super) unsafe fn recv_tick_or_throw<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        slot: *mut Instant,
        limit: Option<Nanos>,
    ) -> Ended {
        // SAFETY: by this function's contract.
        match unsafe { self.recv_tick(state, slot, limit) }.get() {
            Ok(ended) => ended,
            Err(why) => why.throw::<Active>(),
        }
    }

    /// # Safety
    /// As `recv_tick_or_throw`.
    #[inline(never)]
    unsafe fn recv_tick<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        slot: *mut Instant,
        limit: Option<Nanos>,
    ) -> EndWord {
        let mut now = Active::now();
        loop {
            if let Some(due) = state.tick.as_mut().and_then(|tick| tick.take(now)) {
                drop(state);
                // SAFETY: by this function's contract.
                unsafe { slot.write(Active::instant(due)) };
                return EndWord::ended(Ended::Done);
            }
            if limit.is_some_and(|limit| limit <= now) {
                return EndWord::ended(Ended::TimedOut);
            }
            let opened = match Wait::try_open() {
                Some(opened) => opened,
                None => {
                    // May park for a P, without the lock. What has become due meanwhile ends the wait.
                    drop(state);
                    let opened = Wait::open();
                    state = self.state.lock();
                    opened
                }
            };
            let mut wait = Wait::<Active>::of(opened);
            let mut how = How::new(WaitReason::ChanReceive).until(earlier(limit, state.due())).looking();
            mutant!(TickReceiveQueuesLate: drop(state); state = self.state.lock());
            let record = Record::new(wait.waiter(), slot.cast(), Kind::Alone);
            let node = NonNull::from(&record);
            // SAFETY: a new record is in no queue. It leaves this one below, before the frame goes: `park` returns once the
            // wait is over, or never.
            unsafe {
                state.give_place(node);
                state.receivers.push_back(node);
            }
            let mut woke = wait.park(how, move || {
                drop(state);
                Commit::Park
            });
            while woke == Woke::Nudged {
                // `Chan::set_tick` nudges: the channel tells another time now.
                how = how.until(earlier(limit, self.state.lock().due()));
                woke = wait.park_again(how);
            }
            state = self.state.lock();
            // SAFETY: the record lies in this frame, and stands in this queue: a record that no counterpart claims is taken out
            // by its owner alone.
            unsafe { state.receivers.remove(node) };
            debug_assert_eq!(record.value.wait_result(), WaitResult::Open, "recv_tick: no counterpart");
            if let Woke::Interrupted(why) = woke {
                return EndWord::interrupted(why);
            }
            // The clock is read again: the limit of the wait would bring the beats that were missed until here. Another
            // receiver may have taken the message meanwhile.
            now = Active::now();
        }
    }
}
