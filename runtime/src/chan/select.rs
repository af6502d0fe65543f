//! Waiting for the first of several channels.
//!
//! ```text
//!   lock all channels, by address · is an arm ready? take one of the ready arms, unlock all
//!   otherwise: queue a record for each arm · park, unlocking all · a counterpart claims the wait by one of the records
//!         and serves that arm · leave the other queues, one lock each
//! ```
//! All channels are locked at once, so that an arm is chosen from one snapshot of them (Go's `selectgo`, and its order of
//! locks). The records of one wait carry one wait number, so one counterpart wins the claim, in whatever queue it found the
//! select. Two selects that are each other's counterparts meet under the locks of the channels that they share.
//!
//! *A glance.* If all arms are receives and a message lies in a buffer before the select begins, the locks of the other
//! channels would add no information. So a select first looks at all channels without their locks (`Raw::glance`), draws one of
//! the channels that have messages, locks that channel, and takes a message, if one is still there. A snapshot taken under that
//! lock allows this outcome: the message is there. If no other thread touches the channels, the glance is such a snapshot, and
//! each ready arm is equally likely.
//!
//! The glance sees a message whose send happens before the select begins, by coherence of the two flags alone. The flags are
//! std's atomics in the models too, so no model shows a stale flag. A wrong answer costs a lock, and decides nothing. A glance
//! never decides that nothing is ready: for that the select locks all channels. Nor does a glance choose for a select that
//! prefers the first arm: it would miss a message that comes to the first arm after the glance at that arm, and before a
//! message that comes to the second. With a send, or with a channel that was closed, is a timer channel, or has neither a
//! buffer nor an end, there is no glance: the select locks all channels at once.
//!
//! The commit hook takes the lock guards out of the arms, which lie on the goroutine's stack, and still reads the arms after it
//! has released the first lock. That is sound: before the goroutine drops the arms it takes each lock once more, except the
//! lock of the channel through which the select was claimed, and the hook had released that lock before the claim.
//!
//! The select moves a message without knowing the type, by functions that the sender or receiver supplies (`select/erased.rs`):
//! into the *space* of the select (a single one, as a select gets one message at most), or into a box if the message is too
//! large.

mod arm;
mod erased;
mod order;
mod promise_hook;
mod selected;
mod wait;

pub use arm::Arm;
pub(crate) use arm::{Direction, Operation};
pub(crate) use erased::Inline;
pub use erased::Space;
pub(crate) use selected::Chosen;
pub use selected::Selected;

use crate::chan::flow::{Glance, LastAsk};
use crate::chan::select::promise_hook::PromiseHook;
use crate::chan::state::{Promised, QueueState, RecordPtr, State, Woken};
use crate::host::{Active, Threads};
use crate::prim::MutexGuard;
use crate::prim::hooks::*;
use crate::wait::interrupt::Interrupt;
use crate::wait::waiter::Opened;
use gmp_timers::Nanos;

/// The intent of a select with a ready arm.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Intent {
    Operate,
    /// Returns the number of the arm, and leaves the operation to the caller.
    Watch,
}

/// How long a select waits.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Limit {
    /// Not at all; but the caller's thread may wait for a promised message.
    Now,
    /// Until this time, or without a limit.
    Until(Option<Nanos>),
}

/// The rule by which one of several ready arms is chosen.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Choice {
    Uniform,
    /// The first one.
    InOrder,
}

/// Releases all locks of the select. Touches no arm after the last lock is free.
#[inline(always)]
fn unlock_all(arms: *const Arm<'_>, count: usize) {
    let mut held = None;
    for index in 0..count {
        // SAFETY: there are `count` arms, and they stay as long as one of the locks is held; see the header.
        let guard = unsafe { (*arms.add(index)).let_go() };
        // A guard is dropped only after the next guard was taken out of its arm.
        if guard.is_some() {
            drop(std::mem::replace(&mut held, guard));
        }
    }
    drop(held);
}

/// Waits until an arm is ready and commits to it: receives the message, or, for a send, obtains a promise to be kept.
/// Returns the arm with the rest of the operation, or [`Selected::none`] once `limit` has passed.
pub(crate) fn select<'a>(
    space: &'a mut Space,
    arms: &mut [Arm<'a>],
    limit: Limit,
    choice: Choice,
) -> Selected<'a> {
    if choice == Choice::Uniform
        && let Some(selected) = take_at_a_glance(space, arms)
    {
        return selected;
    }
    select_locked(space, arms, limit, choice)
}

/// Takes a message under the lock of its channel alone, if all arms are receives of which a glance tells.
#[inline(always)]
fn take_at_a_glance<'a>(space: *mut Space, arms: &mut [Arm<'a>]) -> Option<Selected<'a>> {
    let (mut chosen, mut ready) = (0, 0_u64);
    for (index, arm) in arms.iter().enumerate() {
        match arm.glance() {
            Glance::Messages => {
                ready += 1;
                if draw(ready) {
                    chosen = index;
                }
            }
            Glance::Nothing => {}
            Glance::Unclear => return None,
        }
    }
    if ready == 0 {
        return None;
    }
    let arm = &mut arms[chosen];
    // Read before the call: as far as the compiler knows, the call may write anything in pinned memory.
    let (_, chan, ops) = arm.chan?;
    let taken = arm.take_message(space);
    let outcome = Chosen::Received;
    mutant!(SelectTrustsItsGlance: let outcome = if taken { outcome } else { Chosen::Drained });
    mutant!(SelectTrustsItsGlance: let taken = true);
    // SAFETY: a received message lies in the arm's slot.
    taken.then(|| unsafe { Selected::of((chan, ops), arm.boxed.take(), space, chosen, outcome) })
}

/// Reservoir sampling: the `ready`th of the ready arms replaces the choice with probability 1 / `ready`. The high half of the
/// product is uniform up to an error of `ready` / 2^32.
#[inline(always)]
fn draw(ready: u64) -> bool {
    ready == 1 || (u64::from(Active::random()) * ready) >> 32 == 0
}

#[inline(never)]
fn select_locked<'a>(
    space: &'a mut Space,
    arms: &mut [Arm<'a>],
    limit: Limit,
    choice: Choice,
) -> Selected<'a> {
    let mut search = Search::new(arms, space, Intent::Operate, limit, choice);
    // Not by `run`: the compiler would carry the chosen operation in its result through memory, 31 instructions more.
    loop {
        let (index, chosen) = match search.round() {
            Round::Chosen(index, chosen) => (index, chosen),
            Round::Late => return Selected::none(),
            Round::Again => continue,
            Round::Promise(index, sender) => match search.keep(index, sender) {
                Kept::Came(index) => (index, Chosen::Received),
                Kept::Again => continue,
                Kept::Late => match search.last_round() {
                    Some(last) => last,
                    None => return Selected::none(),
                },
                Kept::Interrupted(why) => why.throw::<Active>(),
            },
            Round::Interrupted(why) => why.throw::<Active>(),
        };
        if let Chosen::Sends(promised) = chosen {
            search.note_promise(index, promised);
        }
        // SAFETY: a received message lies in the arm's slot; the hook of a promise lies in the space, which is
        // borrowed for `'a`.
        return unsafe { Selected::new(&mut search.arms[index], search.space, index, chosen) };
    }
}

/// As `select`, without the rest: returns the arm and its commitment. A received message lies in the arm's slot; the caller
/// notes a promise at once, which is not noted yet. `claimed` is an arm and the sender that it has claimed; that sender is
/// asked for its message first.
pub(crate) fn choose(
    space: &mut Space,
    arms: &mut [Arm<'_>],
    claimed: Option<(usize, RecordPtr)>,
    limit: Limit,
    choice: Choice,
) -> Option<(usize, Chosen)> {
    let first = claimed.map(|(index, sender)| Round::Promise(index, Some(sender)));
    Search::new(arms, space, Intent::Operate, limit, choice).run(first)
}

/// As `choose`, for one arm alone, without a wait. `state` is the state of the arm's channel.
#[inline]
pub(crate) fn choose_one(
    space: &mut Space,
    arm: &mut Arm<'_>,
    mut state: MutexGuard<'_, State>,
) -> Option<Found> {
    let mut woken = Woken::new();
    arm.state = &raw mut *state;
    let found = arm.take(space, Intent::Operate, &mut woken);
    drop(state);
    woken.ready();
    found
}

/// Waits until an arm is ready, and returns the arm's number; the caller tries the operation.
pub(crate) fn ready(arms: &mut [Arm<'_>], limit: Limit, choice: Choice) -> Option<usize> {
    let mut space = Space::empty();
    let mut search = Search::new(arms, &mut space, Intent::Watch, limit, choice);
    loop {
        match search.round() {
            Round::Chosen(index, _) => return Some(index),
            Round::Late => return None,
            Round::Promise(..) | Round::Again => {}
            Round::Interrupted(why) => why.throw::<Active>(),
        }
    }
}

enum Round {
    Chosen(usize, Chosen),
    /// The arm was promised a message: by this sender, which the arm has claimed, or, if `None`, by a sender that has found the
    /// arm's own record.
    Promise(usize, Option<RecordPtr>),
    Late,
    Again,
    /// This interrupt has ended the wait. The caller throws it, so that the unwinder does not visit the frame of `wait`, whose
    /// table is long.
    Interrupted(Interrupt),
}

/// The end of the wait for a message that was promised to an arm.
enum Kept {
    /// The message lies in this arm's slot.
    Came(usize),
    Again,
    /// The limit has passed: one look remains (`last_round`).
    Late,
    /// This interrupt, which the caller throws, ended the wait.
    Interrupted(Interrupt),
}

/// The commitment of a ready arm.
pub(crate) enum Found {
    Chosen(Chosen),
    /// The arm has claimed this sender, which waits until it is asked for its message.
    Promise(RecordPtr),
}

struct Search<'s, 'a> {
    arms: &'s mut [Arm<'a>],
    space: *mut Space,
    intent: Intent,
    limit: Limit,
    choice: Choice,
    /// The arm whose channel is locked first.
    first: usize,
    /// Set if a channel is in several arms.
    alike: bool,
    /// The arm whose record keeps its place in the queue, after a promise that was withdrawn.
    kept: Option<usize>,
    early: Option<Opened<Active>>,
    last_ask: LastAsk,
}

impl<'s, 'a> Search<'s, 'a> {
    #[inline(always)]
    fn new(arms: &'s mut [Arm<'a>], space: *mut Space, intent: Intent, limit: Limit, choice: Choice) -> Self {
        let all = 0..arms.len();
        let first = order::chain(arms, all);
        Search {
            arms,
            space,
            intent,
            limit,
            choice,
            first,
            alike: false,
            kept: None,
            early: None,
            last_ask: LastAsk::new(),
        }
    }

    /// Waits until an arm is ready and commits to it; `None` once the limit has passed. `first` was the first round.
    fn run(&mut self, mut first: Option<Round>) -> Option<(usize, Chosen)> {
        loop {
            match first.take().unwrap_or_else(|| self.round()) {
                Round::Chosen(index, chosen) => return Some((index, chosen)),
                Round::Late => return None,
                Round::Again => {}
                Round::Promise(index, sender) => match self.keep(index, sender) {
                    Kept::Came(index) => return Some((index, Chosen::Received)),
                    Kept::Again => {}
                    Kept::Late => return self.last_round(),
                    Kept::Interrupted(why) => why.throw::<Active>(),
                },
                Round::Interrupted(why) => why.throw::<Active>(),
            }
        }
    }

    /// Locks each channel once, and chooses one of the ready arms.
    #[inline(always)]
    fn lock(&mut self) -> Option<usize> {
        self.lock_for(Arm::is_ready)
    }

    /// As `lock`, with `is_ready` as the look at each arm.
    #[inline(always)]
    fn lock_for(&mut self, is_ready: impl Fn(&Arm<'a>) -> bool) -> Option<usize> {
        let (mut chosen, mut ready) = (None, 0_u64);
        let (mut last, mut state) = (std::ptr::null(), std::ptr::null_mut());
        let mut index = self.first;
        while let Some(arm) = self.arms.get_mut(index) {
            if let Some((raw, chan, _)) = arm.chan {
                if chan != last {
                    (last, state) = (chan, arm.hold(raw));
                } else {
                    self.alike = true;
                }
                arm.state = state;
                if is_ready(arm) {
                    ready += 1;
                    let replaces = match self.choice {
                        Choice::Uniform => draw(ready),
                        Choice::InOrder => chosen.is_none_or(|before| index < before),
                    };
                    if replaces {
                        chosen = Some(index);
                    }
                }
            }
            index = arm.next;
        }
        chosen
    }

    /// Tries all arms once, and waits once if none is ready.
    #[inline(always)]
    fn round(&mut self) -> Round {
        let mut woken = Woken::new();
        let chosen = self.lock();
        let found = match self.kept {
            None => self.take(chosen, &mut woken),
            Some(kept) => self.take_again(kept, chosen, &mut woken),
        };
        let Some((index, found)) = found else { return self.wait() };
        self.unlock();
        woken.ready();
        if self.early.is_some() {
            self.give_up_early();
        }
        match found {
            Found::Chosen(chosen) => Round::Chosen(index, chosen),
            Found::Promise(sender) => Round::Promise(index, Some(sender)),
        }
    }

    /// Takes the chosen arm. All channels are locked before and after.
    #[inline(always)]
    fn take(&mut self, mut chosen: Option<usize>, woken: &mut Woken) -> Option<(usize, Found)> {
        while let Some(index) = chosen {
            if let Some(found) = self.arms[index].take(self.space, self.intent, woken) {
                return Some((index, found));
            }
            chosen = self.choose_again();
        }
        None
    }

    /// The last round of a select whose wait for a promised message has ended at its limit: another arm may be ready, or the
    /// same arm may have another message. Returns `None` if the limit ends the select.
    #[cold]
    #[inline(never)]
    fn last_round(&mut self) -> Option<(usize, Chosen)> {
        let mut woken = Woken::new();
        let found = loop {
            let Some(index) = self.lock_for(Arm::is_ready_at_once) else { break None };
            if let Some(chosen) = self.arms[index].take_at_once(self.space, &mut woken) {
                break Some((index, chosen));
            }
            // As in `choose_again`.
            self.unlock();
        };
        self.unlock();
        woken.ready();
        self.give_up_early();
        found
    }

    /// Locks and chooses anew: the counterpart that made the arm ready waits in several queues, and was claimed
    /// through another one meanwhile.
    #[cold]
    fn choose_again(&mut self) -> Option<usize> {
        self.unlock();
        mutant!(SelectLooksOnce: return self.lock().filter(|_| false));
        self.lock()
    }

    /// As `take`, for a select with a record that keeps its place and may have been served.
    #[cold]
    fn take_again(
        &mut self,
        kept: usize,
        chosen: Option<usize>,
        woken: &mut Woken,
    ) -> Option<(usize, Found)> {
        let record = &self.arms[kept].record.as_ref().expect("take_again: it was queued").value;
        if record.queue_state() == QueueState::Served {
            self.kept = None;
            return Some((self.any_alike(kept), Found::Chosen(Chosen::Received)));
        }
        // No counterpart serves a Held record: neither while the owner takes an arm here, nor while the owner waits for a
        // promised message.
        record.set_queue_state(QueueState::Held);
        let found = self.take(chosen, woken);
        if matches!(found, Some((_, Found::Chosen(_)))).unless(SelectKeepsItsPlace) {
            self.forget_kept();
        }
        found
    }

    #[inline(always)]
    fn unlock(&mut self) {
        unlock_all(self.arms.as_ptr(), self.arms.len());
    }

    /// Notes the promise of the chosen send.
    #[inline(never)]
    fn note_promise(&mut self, index: usize, promised: Promised) {
        if let Some((_, chan, ops)) = self.arms[index].chan {
            // SAFETY: the space stays for `'a`, and so does the channel; a space that the user leaks stays for good.
            unsafe { PromiseHook::note(self.space, chan, ops, promised, self.limit) };
        }
    }

    /// Returns one of the arms with the operation and channel of `chosen`, each with the same probability: a counterpart always
    /// finds the first of these arms.
    #[cold]
    fn any_alike(&mut self, chosen: usize) -> usize {
        if self.choice == Choice::InOrder || !self.alike {
            return chosen;
        }
        let (direction, chan) = (self.arms[chosen].direction, self.arms[chosen].address());
        let (mut any, mut alike) = (chosen, 0_u64);
        for (index, arm) in self.arms.iter().enumerate() {
            if arm.direction == direction && arm.address() == chan {
                alike += 1;
                if draw(alike) {
                    any = index;
                }
            }
        }
        // A received message may lie in the box.
        let boxed = self.arms[chosen].boxed.take();
        self.arms[any].boxed = boxed;
        any
    }

    /// Returns the earliest time at which a timer channel has a message for this select.
    fn turn(&self) -> Option<Nanos> {
        self.arms.iter().filter_map(|arm| arm.turn(self.intent)).min()
    }
}
