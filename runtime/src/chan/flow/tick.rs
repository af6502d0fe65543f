//! Receiving from a channel that tells the time: there a receiver waits for a time, and not for a sender.
//!
//! Such a channel has neither senders nor messages, and no receiver sees the channel closed. So the record of a wait is never
//! claimed: it keeps the owner's place, and the owner takes the message itself.
//!
//! *Turns.* The obvious way has each receiver wait until the message is due. Then all wake at each beat, and the one that
//! runs first takes the message, and stands behind the others; the next beat finds them in the same order, and the same one
//! takes the next message. *Here* the first receiver of the queue has the turn. It alone waits until the message is due, and
//! it alone may take the message (`State::turn_of`); the others wait for their limits.
//!
//! ```text
//!   the first, under the lock                        one behind it, under the lock
//!
//!   A1  woken by the beat: the message is due        B1  it is another's turn: waits without the beat
//!       takes it, leaves the queue, which names the next
//!   A2  or woken by its limit, an interrupt, a drop, or left behind by its runtime:
//!       leaves the queue, which names the next
//!   A3  after the lock: nudges the next              B2  nudged: looks whose turn it is, and when
//! ```
//! * *No turn is lost.* A record leaves the queue by `Raw::leave_turn` alone, whatever has woken its owner: also a record whose
//!   owner was woken by the beat and finds that its limit has passed, or that it is interrupted, and one of a goroutine that is
//!   left behind, by the abandon hook. B1 reads the queue under the lock under which A1 and A2 change it: B1 comes before, and
//!   A3 finds B's record, or B1 sees that it is first.
//! * *A receiver that does not wait*, and one that has just come, takes a message only where no receiver has the turn; one
//!   that waits takes it with its record in its place.
//! * *A task* may never be polled again. It is woken at its turn, and holds a message back from the others for `TASK_GRACE`; a
//!   receiver behind tasks alone waits until then, and passes them: they are Held, and hold back nothing until they are polled.
//!   A task that is polled, and finds nothing, keeps its place.
//! * *A watcher* (`Select::ready`) is woken where a receiver that does not wait could take the message.
//! * `Chan::set_tick` nudges all under the lock under which they have read the time and queued their records: it finds a
//!   record, or the receiver has read the new time.
//!
//! The record of a wait leaves the queue in the critical section in which the message that was due is taken.
//!
//! Checked by `models/timer.rs`.

use crate::chan::flow::{EndWord, Ended, Raw, earlier};
use crate::chan::state::{Kind, QueueState, Record, RecordPtr, State};
use crate::host::{Active, Clock};
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::abandon::AbandonHook;
use crate::wait::waiter::{How, UpgradedWaiter, Wait, Woke};
use gmp_timers::Nanos;
use std::cell::OnceCell;
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// A task that has the turn, and is not polled, holds a message back from the others for so long.
const TASK_GRACE: Duration = Duration::from_millis(10);

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
        let (record, mut queued) = (OnceCell::new(), None);
        let mut now = Active::now();
        loop {
            let due = state.take_tick(queued, now);
            if due.is_some() || limit.is_some_and(|limit| limit <= now) {
                match queued {
                    // SAFETY: the record lies in this frame, and stands in this queue.
                    Some(node) => unsafe { self.leave_turn(state, node) },
                    None => drop(state),
                }
                let Some(due) = due else { return EndWord::ended(Ended::TimedOut) };
                // SAFETY: by this function's contract.
                unsafe { slot.write(Active::instant(due)) };
                return EndWord::ended(Ended::Done);
            }
            let opened = match Wait::try_open() {
                Some(opened) => opened,
                None => {
                    // May park for a P, without the lock. What has become due meanwhile ends the wait. No receiver waits for
                    // the turn of one that may be left behind there, without a hook.
                    match queued.take() {
                        // SAFETY: as above.
                        Some(node) => unsafe { self.leave_turn(state, node) },
                        None => drop(state),
                    }
                    let opened = Wait::open();
                    state = self.state.lock();
                    opened
                }
            };
            let mut wait = Wait::<Active>::of(opened);
            let how = How::new(WaitReason::ChanReceive).looking();
            let mut how = how.until(earlier(limit, state.turn_of(queued)));
            mutant!(TickReceiveQueuesLate: drop(state); state = self.state.lock());
            let node = match record.get() {
                None => {
                    NonNull::from(record.get_or_init(|| Record::new(wait.waiter(), slot.cast(), Kind::Alone)))
                }
                Some(record) => {
                    record.value.renew(wait.waiter());
                    NonNull::from(record)
                }
            };
            if queued.is_none() {
                // SAFETY: the record is in no queue. It leaves this one before the frame goes: `park` returns once the wait is
                // over, or never.
                unsafe {
                    state.give_place(node);
                    state.receivers.push_back(node);
                }
                queued = Some(node);
            }
            let turn_hook = TurnHook { hook: AbandonHook::new(TurnHook::run), raw: self, node };
            wait.on_abandon(&raw const turn_hook.hook);
            let mut woke = wait.park(how, move || {
                drop(state);
                Commit::Park
            });
            while woke == Woke::Nudged {
                // The channel tells another time now, or the turn is this receiver's.
                how = how.until(earlier(limit, self.state.lock().turn_of(queued)));
                woke = wait.park_again(how);
            }
            wait.on_abandon(std::ptr::null());
            state = self.state.lock();
            if let Woke::Interrupted(why) = woke {
                // SAFETY: the record lies in this frame, and stands in this queue.
                unsafe { self.leave_turn(state, node) };
                return EndWord::interrupted(why);
            }
            // The clock is read again: the limit of the wait would bring the beats that were missed until here.
            now = Active::now();
        }
    }

    /// Takes the record of a receiver out of the queue, and nudges those whose turn may come earlier by that.
    ///
    /// # Safety
    /// The state is this channel's; the record is a receiver's that stands in this queue, or in none.
    #[inline(always)]
    pub(crate) unsafe fn leave_turn(&self, mut state: MutexGuard<'_, State>, node: RecordPtr) {
        if state.receivers.is_alone(node) && state.receive_watchers.is_empty() || state.tick.is_none() {
            // SAFETY: by this function's contract.
            unsafe { state.receivers.remove(node) };
            return;
        }
        // SAFETY: by this function's contract.
        let next = unsafe { state.leave_to_next(node) };
        drop(state);
        // Without the lock: as in `Chan::set_tick`. From behind, where those stand that are no tasks: a waker may wait.
        unless!(TurnEndsInSilence, next.iter().rev().for_each(UpgradedWaiter::nudge));
    }
}

/// The abandon hook of a goroutine that waits for a time.
#[repr(C)]
struct TurnHook<'a> {
    hook: AbandonHook,
    raw: &'a Raw,
    node: RecordPtr,
}

impl TurnHook<'_> {
    /// # Safety
    /// `hook` is that of a `TurnHook` whose goroutine never runs again.
    unsafe fn run(hook: *const AbandonHook) {
        mutant!(TurnLeftBehind: return);
        // SAFETY: by this function's contract. The record lies on the stack of a goroutine that never runs again, which borrows
        // the channel for good.
        unsafe {
            let it = &*hook.cast::<Self>();
            it.raw.leave_turn(it.raw.state.lock(), it.node);
        }
    }
}

impl State {
    /// From when on a receiver may take the next message: one that waits under the record `own`, or does not wait. `None` while
    /// another has the turn.
    #[inline]
    pub(crate) fn turn_of(&self, own: Option<RecordPtr>) -> Option<Nanos> {
        let due = self.due()?;
        if self.receivers.front() == own { Some(due) } else { self.turn_behind(own, due) }
    }

    #[cold]
    #[inline(never)]
    fn turn_behind(&self, own: Option<RecordPtr>, due: Nanos) -> Option<Nanos> {
        let mut behind_tasks = false;
        for record in self.receivers.iter().take_while(|&record| Some(record) != own) {
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            if it.is_left() || it.queue_state() == QueueState::Held {
                continue;
            }
            if it.kind != Kind::OfTask {
                return None;
            }
            behind_tasks = true;
        }
        Some(if behind_tasks { due.saturating_add(TASK_GRACE) } else { due })
    }

    /// Takes the message that is due at `now`, if it is the turn of this receiver, as in `turn_of`.
    #[inline]
    pub(crate) fn take_tick(&mut self, own: Option<RecordPtr>, now: Nanos) -> Option<Nanos> {
        if self.turn_of(own)? > now {
            return None;
        }
        if self.receivers.front() != own {
            self.pass_tasks(own);
        }
        self.tick.as_mut()?.take(now)
    }

    /// The tasks before this receiver have held back a message for long enough.
    #[cold]
    fn pass_tasks(&mut self, own: Option<RecordPtr>) {
        for record in self.receivers.iter().take_while(|&record| Some(record) != own) {
            // SAFETY: the record stands in the queue, which is locked.
            unsafe { record.as_ref() }.value.set_queue_state(QueueState::Held);
        }
    }

    /// Takes a record out, and returns those whose turn may come earlier by that: the receivers behind it, up to the first that
    /// holds back the others; and the watchers, if none holds them back.
    ///
    /// # Safety
    /// As `Raw::leave_turn`.
    #[cold]
    #[inline(never)]
    unsafe fn leave_to_next(&mut self, node: RecordPtr) -> Vec<UpgradedWaiter<Active>> {
        let mut next = Vec::new();
        if !self.receivers.contains(node) {
            return next;
        }
        // SAFETY: by this function's contract.
        let of_task = unsafe { node.as_ref() }.value.kind == Kind::OfTask;
        let mut at = self.receivers.next(node).filter(|_| self.turn_of(Some(node)).is_some());
        while let Some(record) = at {
            at = self.receivers.next(record);
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            if it.is_left() {
                continue;
            }
            next.push(it.upgrade());
            // Behind a task they wait for the beat, or for the end of its grace; the first has the turn now.
            if it.kind != Kind::OfTask || of_task && it.queue_state() != QueueState::Held {
                break;
            }
        }
        // SAFETY: by this function's contract.
        unsafe { self.receivers.remove(node) };
        if self.turn_of(None).is_some() {
            // SAFETY: the records stand in the queue, which is locked.
            next.extend(self.receive_watchers.iter().map(|it| unsafe { it.as_ref() }.value.upgrade()));
        }
        next
    }
}
