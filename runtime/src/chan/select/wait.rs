//! A select that waits: the records in all queues, and what ends the wait.

use super::arm::{Arm, Direction};
use super::selected::Chosen;
use super::{Choice, Intent, Kept, Limit, Round, Search, draw, unlock_all};
use crate::chan::flow::{Ask, Outcome, WaitBy, await_promise, earlier, has_passed};
use crate::chan::state::{Kind, Promised, QueueState, Record, RecordPtr, WaitResult, Woken};
use crate::host::{Active, Clock};
use crate::prim::hooks::*;
use crate::sched::park::{Commit, WaitReason};
use crate::wait::abandon::AbandonHook;
use crate::wait::task::{wake, wake_elsewhere};
use crate::wait::waiter::{How, Wait, Woke};

/// The abandon hook of a goroutine that waits in a select: withdraws the promise of a send that a counterpart has chosen, and
/// leaves the queues in which others would wait for the select to use its turn. Another thread calls the wakers of tasks: no
/// user code may run where a hook is run (`sched/stop.rs`).
#[repr(C)]
struct SelectHook {
    hook: AbandonHook,
    arms: *const Arm<'static>,
    count: usize,
    /// As `Queued::turns`.
    turns: bool,
}

impl SelectHook {
    /// # Safety
    /// `hook` is the hook of a `SelectHook` whose goroutine never runs again.
    unsafe fn run(hook: *const AbandonHook) {
        // SAFETY: by this function's contract. The arms lie on the stack of a goroutine that never runs again, or in
        // memory that the goroutine borrows for good.
        let (arms, turns) = unsafe {
            let select_hook = &*hook.cast::<Self>();
            (std::slice::from_raw_parts(select_hook.arms, select_hook.count), select_hook.turns)
        };
        for arm in arms {
            let promised = match arm.wait_result() {
                WaitResult::Open if turns => {
                    arm.leave_turn(wake_elsewhere::<Active>);
                    continue;
                }
                WaitResult::Partner(ticket) => Promised::To(ticket),
                WaitResult::Reserved => Promised::Reserved,
                _ => continue,
            };
            if let Some((_, chan, ops)) = arm.chan {
                // SAFETY: `ops` are those of the channel, which the goroutine borrows for good, as it never runs again.
                unsafe { (ops.withdraw)(chan, promised) }.ready_elsewhere();
            }
        }
    }
}

/// The state of a select that has queued its records.
struct Queued {
    /// Watchers that were claimed, and are readied when the locks are free.
    told: Woken,
    /// Set if an arm has a channel, so that a lock is held.
    locked: bool,
    /// Set if a send is among the arms.
    sends: bool,
    /// Set if a receive from a timer channel is among the arms, and has a place in the order of turns there.
    turns: bool,
}

impl Search<'_, '_> {
    /// Waits once, with all channels locked and no arm ready.
    #[inline(never)]
    pub(super) fn wait(&mut self) -> Round {
        let limit = match self.limit {
            Limit::Until(limit) if !has_passed(limit) => limit,
            _ => return self.give_up(),
        };
        let Some(opened) = self.early.take().or_else(Wait::try_open) else { return self.open_early() };
        let mut wait = Wait::of(opened);
        mutant!(SelectQueuesLate: { self.choose_again(); });
        let mut how = How::new(WaitReason::Select).until(limit);
        let Queued { told, locked, sends, turns } = self.queue_all(&wait, &mut how);
        let (arms, count) = (self.arms.as_ptr(), self.arms.len());
        let select_hook =
            SelectHook { hook: AbandonHook::new(SelectHook::run), arms: arms.cast(), count, turns };
        if sends || turns {
            wait.on_abandon(&raw const select_hook.hook);
        }
        let woke = wait.park(how, move || {
            // Without any lock (all arms disabled) the arms may be gone: the wait's timer may have woken the owner already, and
            // no lock delays the owner.
            if locked {
                unlock_all(arms, count);
            }
            told.ready();
            Commit::Park
        });
        self.settle(&mut wait, how, woke, sends || turns)
    }

    /// Queues a record for each arm, and makes `how` heed the ticks of the channels. All channels are locked.
    #[inline(always)]
    fn queue_all(&mut self, wait: &Wait<Active>, how: &mut How) -> Queued {
        let kept = self.kept.take();
        let mut queued = Queued { told: Woken::new(), locked: false, sends: false, turns: false };
        for (index, arm) in self.arms.iter_mut().enumerate() {
            if arm.chan.is_none() {
                continue;
            }
            // SAFETY: the channel is locked.
            let state = unsafe { &mut *arm.state };
            if kept == Some(index) {
                arm.record.as_ref().expect("queue_all: it was queued").value.renew(wait.waiter());
            } else {
                let slot = arm.slot(self.space);
                // Only for a channel with a tick: otherwise a whole record would be copied for nothing.
                let before = arm.record.take_if(|_| state.tick.is_some() && self.intent == Intent::Operate);
                arm.record = Some(Record::new(wait.waiter(), slot, Kind::OfSelect));
                let node = arm.node().expect("queue_all: made just now");
                // SAFETY: the record is taken out of the queue before this select returns.
                unsafe {
                    match before {
                        // The turn had not come when the last wait ended.
                        Some(before) => state.wait_in_place_of(&before.value, node),
                        None => {
                            state.give_place(node);
                            arm.queue(state, self.intent).push_back(node);
                        }
                    }
                }
            }
            queued.locked = true;
            match arm.direction {
                Direction::Receive => {
                    if state.tick.is_some() {
                        let own = arm.node().filter(|_| self.intent == Intent::Operate);
                        how.until = earlier(how.until, state.turn_of(own));
                        how.looks = true;
                        queued.turns |= own.is_some();
                    }
                    if self.intent == Intent::Operate {
                        unless!(SelectAsksInSilence, state.tell_of_receiver(&mut queued.told));
                    }
                }
                Direction::Send => {
                    queued.sends = true;
                    if self.intent == Intent::Operate {
                        unless!(SelectOffersInSilence, state.tell_of_sender(&mut queued.told));
                    }
                }
            }
        }
        queued
    }

    /// Leaves all queues after the wait, and finds the arm that a counterpart has served.
    #[inline]
    pub(super) fn settle(
        &mut self,
        wait: &mut Wait<Active>,
        mut how: How,
        mut woke: Woke,
        hooked: bool,
    ) -> Round {
        while woke == Woke::Nudged {
            let limit = match self.limit {
                Limit::Until(limit) => limit,
                Limit::Now => unreachable!("settle: it does not wait"),
            };
            how = how.until(earlier(self.turn(), limit));
            woke = wait.park_again(how);
        }
        if hooked {
            wait.on_abandon(std::ptr::null());
        }
        let turns = how.looks && self.intent == Intent::Operate;
        let tick = if turns && woke == Woke::Readied { self.take_tick() } else { None };
        let mut ended = None;
        for (index, arm) in self.arms.iter().enumerate() {
            match arm.wait_result() {
                WaitResult::Open if turns => arm.leave_turn(wake::<Active>),
                WaitResult::Open => arm.leave(self.intent),
                wait_result => ended = Some((index, wait_result)),
            }
        }
        if let Some(index) = tick {
            return Round::Chosen(self.any_alike(index), Chosen::Received);
        }
        if let Woke::Interrupted(why) = woke {
            return Round::Interrupted(why);
        }
        // No counterpart ended the wait: the limit has passed, a channel's tick is due, or a receiver has claimed a send and
        // asks for no message. The next round finds out which.
        let Some((index, wait_result)) = ended else { return Round::Again };
        let chosen = match (wait_result, self.arms[index].direction) {
            (WaitResult::Withdrawn, _) => {
                self.kept = Some(index);
                return Round::Again;
            }
            (WaitResult::Promised, _) => {
                self.kept = Some(index);
                return Round::Promise(index, None);
            }
            (WaitResult::Done, Direction::Receive) => Chosen::Received,
            (WaitResult::Closed, Direction::Receive) => Chosen::Drained,
            (WaitResult::Closed, Direction::Send) => Chosen::Sends(Promised::Closed),
            (WaitResult::Partner(ticket), _) => Chosen::Sends(Promised::To(ticket)),
            (WaitResult::Reserved, _) => Chosen::Sends(Promised::Reserved),
            (WaitResult::Done, Direction::Send) if self.intent == Intent::Watch => Chosen::Drained,
            (WaitResult::Open | WaitResult::Done | WaitResult::Granted, _) => {
                unreachable!("settle: an arm was dealt with by {wait_result:?}")
            }
        };
        Round::Chosen(if self.alike { self.any_alike(index) } else { index }, chosen)
    }

    /// Takes a time that is due, if no counterpart has ended the wait, and returns its arm. Called while all records still
    /// stand in their queues: once it had left them, this select would stand behind all others.
    #[inline(never)]
    fn take_tick(&mut self) -> Option<usize> {
        if self.arms.iter().any(|arm| arm.wait_result() != WaitResult::Open) {
            return None;
        }
        let (now, mut chosen, mut ready) = (Active::now(), None, 0);
        for (index, arm) in self.arms.iter().enumerate() {
            if arm.turn(self.intent).is_some_and(|turn| turn <= now) {
                ready += 1;
                if ready == 1 || self.choice == Choice::Uniform && draw(ready) {
                    chosen = Some(index);
                }
            }
        }
        // Another time may have been set meanwhile.
        chosen.filter(|&index| self.arms[index].take_tick(self.space, now))
    }

    /// Opens a wait, with all channels unlocked, as the goroutine may have to park for a P first. The next round uses that
    /// wait.
    #[cold]
    fn open_early(&mut self) -> Round {
        if let Some(record) = self.kept.and_then(|kept| self.arms[kept].record.as_ref()) {
            record.value.set_queue_state(QueueState::Returned);
        }
        self.unlock();
        self.early = Some(Wait::open());
        Round::Again
    }

    #[cold]
    pub(super) fn give_up_early(&mut self) {
        if let Some(never_published) = self.early.take() {
            Wait::of(never_published).withdraw();
        }
    }

    /// Ends the select at its limit. All channels are locked before, none after.
    #[cold]
    pub(super) fn give_up(&mut self) -> Round {
        self.forget_kept();
        self.unlock();
        self.give_up_early();
        Round::Late
    }

    /// Removes the kept record from its queue, as no wait follows. All channels are locked.
    pub(super) fn forget_kept(&mut self) {
        if let Some(arm) = self.kept.take().map(|kept| &self.arms[kept])
            && let Some(node) = arm.node()
        {
            // SAFETY: the channel is locked, and the arm's record stands in this queue.
            unsafe { (*arm.state).receivers.remove(node) };
        }
    }

    /// Waits for the message that was promised to this arm: by `sender`, which the arm has claimed, or, if `None`, through the
    /// arm's own record, which keeps its place.
    #[cold]
    pub(super) fn keep(&mut self, index: usize, sender: Option<RecordPtr>) -> Kept {
        let own = || Ask::Own(self.arms[index].node().expect("keep: it was queued"));
        let ask = sender.map_or_else(own, Ask::Sender);
        let how = match self.limit {
            Limit::Now => (WaitBy::Thread, Some(Active::now()), &self.last_ask),
            Limit::Until(limit) => (WaitBy::Parks, limit, &self.last_ask),
        };
        let (raw, chan, _) = self.arms[index].chan.expect("keep: a disabled arm is never ready");
        let kept = self.kept.map(|kept| &self.arms[kept]);
        let holds = kept.filter(|arm| arm.address() == chan).and_then(Arm::node);
        let slot = self.arms[index].slot(self.space);
        // SAFETY: `round` has claimed the sender for this arm, or the arm's record was promised the message.
        let mut outcome = unsafe { await_promise(raw, ask, slot, how, holds) };
        if outcome == Outcome::Withdrawn && self.last_ask.has_passed() {
            outcome = Outcome::TimedOut;
        }
        if outcome != Outcome::Withdrawn
            && let Some(kept) = self.kept.take()
            && self.arms[kept].leave_place()
        {
            return Kept::Came(self.any_alike(kept));
        }
        match outcome {
            Outcome::Came => Kept::Came(self.any_alike(index)),
            Outcome::Withdrawn => Kept::Again,
            Outcome::TimedOut => Kept::Late,
            Outcome::Interrupted(why) => Kept::Interrupted(why),
        }
    }
}
