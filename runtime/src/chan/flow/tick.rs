//! Receiving from a timer channel: there a receiver waits for a time, not for a sender.
//!
//! Such a channel has neither senders nor messages, and no receiver sees the channel closed. So no counterpart ever claims a
//! wait there. A wait ends by its own timer, at the beat or at the receiver's limit, or by an interrupt. The record only keeps
//! its owner's place, and the owner takes the message itself.
//!
//! *Turns.* In the obvious way each receiver waits until the message is due. Then all receivers wake at each beat. The receiver
//! that runs first takes the message, and queues again behind the others. The next beat wakes them in the same order as before,
//! and the same receiver takes the next message. *Here* the first receiver of the queue has the turn. Only this receiver waits
//! until the message is due, and only it may take the message (`State::turn_of`); the others wait for their limits.
//!
//! ```text
//!   the first receiver, under the lock               a later receiver, under the lock
//!
//!   A1  woken by the beat: the message is due        B1  not its turn: waits for its own limit only
//!       takes it, leaves the queue, which returns the next
//!   A2  or woken by its limit or an interrupt, or dropped, or left behind by its runtime:
//!       leaves the queue, which returns the next
//!   A3  after the lock: nudges the next              B2  nudged: looks who has the turn, and until when to wait
//! ```
//! * *No turn is lost.* A record leaves the queue only by `Raw::leave_turn`, whatever has woken its owner. That includes an
//!   owner that the beat has woken and that finds its limit passed, or itself interrupted; for a goroutine that is left behind,
//!   the abandon hook calls `leave_turn`. B1 reads the queue under the lock under which A1 and A2 change it. Either B1 comes
//!   first, and A3 finds B's record; or B1 sees that its own record is the first.
//! * *A receiver without a record in the queue*, which has just come or does not wait, takes a message only if no receiver has
//!   the turn. A waiting receiver takes the message while its record is in its place.
//! * *A task* may never be polled again. A task is woken at its turn, and holds a message back from the others for
//!   `TASK_GRACE`. A receiver with only tasks before it waits until then, and passes them. Passing makes those tasks Held: they
//!   hold back no message until they are polled, and nobody's turn comes earlier when they leave. A task that is polled, and
//!   finds no message, keeps its place.
//! * *A watcher* (`Select::ready`) is woken when a receiver that does not wait could take the message.
//! * `Chan::set_tick` collects the records under the lock under which receivers read the time and queue their records, and
//!   nudges their owners: either it finds a receiver's record, or the receiver has read the new time.
//!
//! The record of a wait leaves the queue in the critical section in which its owner takes the message.
//!
//! Checked by `models/timer.rs`.

use crate::chan::flow::{EndWord, Ended, Raw, earlier};
use crate::chan::state::{Kind, QueueState, Record, RecordPtr, State};
use crate::host::{Active, Clock};
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::abandon::AbandonHook;
use crate::wait::task::{wake, wake_elsewhere};
use crate::wait::waiter::{How, UpgradedWaiter, Wait, Woke};
use gmp_timers::Nanos;
use std::cell::OnceCell;
use std::ptr::NonNull;
use std::task::Waker;
use std::time::{Duration, Instant};

/// The time for which a task that has the turn, and is not polled, holds a message back from the others.
const TASK_GRACE: Duration = Duration::from_millis(10);
/// A look for the turn ends after this many tasks that hold the message back, as long as they still may ([`TASK_GRACE`]).
/// Without this bound the looks of many tasks in one queue would take quadratic time.
const MOST_LOOKS: usize = 64;

impl Raw {
    /// Receives a time into `slot`, and throws the interrupt that has ended the wait: in a frame of its own, as
    /// `recv_or_throw`.
    ///
    /// # Safety
    /// The channel is a timer channel, and the caller has a receiver of it. `slot` is valid for a write.
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
                    Some(node) => unsafe { self.leave_turn(state, node, wake::<Active>) },
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
                    // `Wait::open` may park for a P, so the lock is released. A message that becomes due meanwhile ends the
                    // receive. The record leaves the queue first: without an abandon hook, a goroutine that is left behind
                    // there would keep the turn for ever.
                    match queued.take() {
                        // SAFETY: as above.
                        Some(node) => unsafe { self.leave_turn(state, node, wake::<Active>) },
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
                // `set` writes the record in place. For `get_or_init` the compiler puts the record together in another frame,
                // and loads bytes there that were just stored in parts. Such a load waits until all stores before it are in the
                // cache, and a goroutine that has slept for long stores to lines that are not there.
                None => {
                    drop(record.set(Record::new(wait.waiter(), slot.cast(), Kind::Alone)));
                    NonNull::from(record.get().expect("recv_tick: made just now"))
                }
                Some(record) => {
                    record.value.renew(wait.waiter());
                    NonNull::from(record)
                }
            };
            if queued.is_none() {
                // SAFETY: the record is in no queue. The record leaves this queue before the frame ends: `park` returns once
                // the wait is over, or never.
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
                // The channel has another due time now, or this receiver has the turn.
                how = how.until(earlier(limit, self.state.lock().turn_of(queued)));
                woke = wait.park_again(how);
            }
            wait.on_abandon(std::ptr::null());
            state = self.state.lock();
            if let Woke::Interrupted(why) = woke {
                // SAFETY: the record lies in this frame, and stands in this queue.
                unsafe { self.leave_turn(state, node, wake::<Active>) };
                return EndWord::interrupted(why);
            }
            // The clock is read again: more beats than the one in the wait's limit may have passed by now.
            now = Active::now();
        }
    }

    /// Takes the record of a receiver out of the queue, and nudges the waiters whose turn may come earlier because of that.
    /// `wake` calls the waker of a task.
    ///
    /// # Safety
    /// The state is this channel's; the record belongs to a receiver, and stands in this queue or in none.
    #[inline(always)]
    pub(crate) unsafe fn leave_turn(
        &self,
        mut state: MutexGuard<'_, State>,
        node: RecordPtr,
        wake: fn(Waker),
    ) {
        if state.receivers.is_alone(node) && state.receive_watchers.is_empty() || state.tick.is_none() {
            // SAFETY: by this function's contract.
            unsafe { state.receivers.remove(node) };
            return;
        }
        // SAFETY: by this function's contract.
        let next = unsafe { state.leave_to_next(node) };
        drop(state);
        // Without the lock, as in `Chan::set_tick`. In reverse order, so that the wakers of tasks, which may block, come last.
        unless!(TurnEndsInSilence, next.iter().rev().for_each(|waiter| waiter.nudge_by(wake)));
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
    /// `hook` is the hook of a `TurnHook` whose goroutine never runs again.
    unsafe fn run(hook: *const AbandonHook) {
        mutant!(TurnLeftBehind: return);
        // SAFETY: by this function's contract. The record lies on the stack of a goroutine that never runs again, which borrows
        // the channel for good.
        unsafe {
            let it = &*hook.cast::<Self>();
            // No user code may run where a hook is run (`sched/stop.rs`).
            it.raw.leave_turn(it.raw.state.lock(), it.node, wake_elsewhere::<Active>);
        }
    }
}

impl State {
    /// Returns the time from which a receiver that waits under the record `own`, or does not wait, may take the next message;
    /// `None` while another receiver has the turn. Behind more tasks than one look passes, this returns the end of their grace
    /// even if another receiver has the turn. That time is still to come, and the receiver asks again then.
    #[inline]
    pub(crate) fn turn_of(&self, own: Option<RecordPtr>) -> Option<Nanos> {
        let due = self.due()?;
        if self.receivers.front() == own { Some(due) } else { self.turn_behind(own, due) }
    }

    #[cold]
    #[inline(never)]
    fn turn_behind(&self, own: Option<RecordPtr>, due: Nanos) -> Option<Nanos> {
        let (mut looks, behind_tasks) = (0, due.saturating_add(TASK_GRACE));
        for record in self.receivers.iter().take_while(|&record| Some(record) != own) {
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            if it.is_left() || it.queue_state() == QueueState::Held {
                continue;
            }
            if it.kind != Kind::OfTask {
                return None;
            }
            looks += 1;
            if looks == MOST_LOOKS && behind_tasks > Active::now() {
                break;
            }
        }
        Some(if looks > 0 { behind_tasks } else { due })
    }

    /// Takes the message that is due at `now`, if this receiver, as in `turn_of`, has the turn.
    #[inline]
    pub(crate) fn take_tick(&mut self, own: Option<RecordPtr>, now: Nanos) -> Option<Nanos> {
        // The look for the turn can be long, and most calls come before the message is due.
        if self.due()? > now || self.turn_of(own)? > now {
            return None;
        }
        if self.receivers.front() != own {
            self.pass_tasks(own);
        }
        self.tick.as_mut()?.take(now)
    }

    /// Makes the tasks before this receiver Held, as they have held back a message for long enough.
    #[cold]
    fn pass_tasks(&mut self, own: Option<RecordPtr>) {
        for record in self.receivers.iter().take_while(|&record| Some(record) != own) {
            // SAFETY: the record stands in the queue, which is locked.
            unsafe { record.as_ref() }.value.set_queue_state(QueueState::Held);
        }
    }

    /// Takes a record out, and returns the waiters whose turn may come earlier now: the receivers behind the record, up to the
    /// first receiver that holds back the others; and the watchers, if no receiver holds them back.
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
        let own = unsafe { &node.as_ref().value };
        let of_task = own.kind == Kind::OfTask;
        // A Held task holds nobody back, so no turn comes earlier. Without this look the leaves of many such tasks would take
        // quadratic time, as each would walk over all those behind.
        if of_task && own.queue_state() == QueueState::Held {
            // SAFETY: by this function's contract.
            unsafe { self.receivers.remove(node) };
            return next;
        }
        let mut at = self.receivers.next(node).filter(|_| self.turn_of(Some(node)).is_some());
        while let Some(record) = at {
            at = self.receivers.next(record);
            // SAFETY: the record stands in the queue, which is locked.
            let it = unsafe { &record.as_ref().value };
            if it.is_left() {
                continue;
            }
            next.push(it.upgrade());
            // Receivers behind a task wait for the beat, or for the end of the task's grace; the first receiver has the turn
            // now.
            if it.kind != Kind::OfTask || of_task && it.queue_state() != QueueState::Held {
                break;
            }
        }
        // SAFETY: by this function's contract.
        unsafe { self.receivers.remove(node) };
        // Without watchers, no look for the turn: behind many tasks that look is long.
        if !self.receive_watchers.is_empty() && self.turn_of(None).is_some() {
            // SAFETY: the records stand in the queue, which is locked.
            next.extend(self.receive_watchers.iter().map(|it| unsafe { it.as_ref() }.value.upgrade()));
        }
        next
    }
}
