//! Waiting for the first of several channels.
//!
//! ```text
//!   lock all channels, by address · look at the arms in random order: one is ready? take it, unlock all
//!   else: a record into each queue · park, unlocking all · a counterpart claims the wait through one of the records
//!         and deals with that arm · leave the other queues, one lock each
//! ```
//! All are locked at once, so that an arm is chosen from one snapshot of all channels (Go's `selectgo`, and its order of
//! locks). The records of one wait carry one number, so one counterpart wins, in whichever queue it found it; two selects
//! that meet each other do so under the locks of the channels between them.
//!
//! The hook that unlocks reads the arms, which lie on the goroutine's stack, after the first lock is free. That is sound,
//! as the goroutine can't be done with the arms before it has had each lock once more, except that of the channel through
//! which it was claimed, which the hook had let go by then.
//!
//! The arm's message is moved without its type: into a *space* of the arm, or a box where it is too large, by functions
//! that the channel's end brings along (`select/arm.rs`).

mod arm;

pub use arm::Arm;
pub(crate) use arm::{Chosen, Direction, Operation, Selected};

use crate::chan::flow::{Patience, Promised, Taken, earlier, has_passed, keep_promise};
use crate::chan::state::{Deal, Message, Offer, Record, RecordPtr, Seat, Woken};
use crate::debt::Debt;
use crate::host::{Active, Host};
use crate::prim::{Mutant, mutated};
use crate::sched::park::{Commit, WaitReason};
use crate::waiter::{How, Wait, Woke};
use gmp_timers::Nanos;

/// What a goroutine owes that waits in a select: a send that is chosen has promised its message.
#[repr(C)]
struct Owed {
    debt: Debt,
    arms: *const Arm<'static>,
    count: usize,
}

impl Owed {
    /// # Safety
    /// `debt` is that of an `Owed` whose goroutine never runs again.
    unsafe fn pay(debt: *const Debt) {
        // SAFETY: by this function's contract; the arms lie on the goroutine's stack, or are what it keeps.
        let arms = unsafe {
            let owed = &*debt.cast::<Self>();
            std::slice::from_raw_parts(owed.arms, owed.count)
        };
        for arm in arms {
            let promised = match arm.deal() {
                Deal::Partner(receiver) => Promised::Partner(receiver),
                Deal::Reserved => Promised::Reserved,
                _ => continue,
            };
            if let Some((_, chan, ops)) = arm.chan {
                // SAFETY: the channel is of this type, and the goroutine has it borrowed for good.
                unsafe { (ops.withdraw)(chan, promised) };
            }
        }
    }
}

/// What a select does when an arm is ready.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Intent {
    Operate,
    /// Only tells which.
    Watch,
}

/// How long a select waits.
#[derive(Copy, Clone, Debug)]
pub(crate) enum Limit {
    /// Not at all; its thread may wait for a message that was promised.
    Now,
    /// Until then, or for ever.
    Until(Option<Nanos>),
}

/// Which of several ready arms is chosen.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Choice {
    Uniform,
    /// The first one.
    InOrder,
}

/// Arms in some order.
enum Order {
    Short([u16; Order::SHORT], usize),
    Long(Vec<u16>),
}

impl Order {
    const SHORT: usize = 16;

    fn new(count: usize) -> Self {
        assert!(count <= usize::from(u16::MAX), "select: {count} operations are more than {}", u16::MAX);
        if count <= Self::SHORT {
            Order::Short(std::array::from_fn(|index| index as u16), count)
        } else {
            Order::Long((0..count as u16).collect())
        }
    }

    fn get(&mut self) -> &mut [u16] {
        match self {
            Order::Short(array, count) => &mut array[..*count],
            Order::Long(vec) => vec,
        }
    }

    fn shuffle(&mut self) {
        let order = self.get();
        for last in (1..order.len()).rev() {
            // The high half of a product: uniform to one in 2^32 / len.
            let other = (u64::from(Active::random()) * (last as u64 + 1)) >> 32;
            order.swap(last, other as usize);
        }
    }

    fn sort(&mut self, arms: &[Arm<'_>]) {
        // Insertion: few, and nearly sorted more often than not.
        let order = self.get();
        for end in 1..order.len() {
            let mut at = end;
            while at > 0 && arms[usize::from(order[at - 1])].rank() > arms[usize::from(order[at])].rank() {
                order.swap(at - 1, at);
                at -= 1;
            }
        }
    }
}

/// Locks each channel once, in the order of their addresses.
fn lock_all(arms: &mut [Arm<'_>], order: &[u16]) {
    let (mut last, mut state) = (std::ptr::null(), std::ptr::null_mut());
    for &index in order {
        let arm = &mut arms[usize::from(index)];
        let Some((raw, chan, _)) = arm.chan else { continue };
        if chan != last {
            let guard = arm.guard.insert(raw.state.lock());
            (last, state) = (chan, &raw mut **guard);
        }
        arm.state = state;
    }
}

/// Unlocks what `lock_all` has locked. Touches no arm after the last lock is free.
fn unlock_all(arms: *mut Arm<'_>, order: &[u16]) {
    let mut held = None;
    for &index in order {
        // SAFETY: the order names arms of the slice, and these stay as long as one of the locks is held; see the header.
        let guard = unsafe { (*arms.add(usize::from(index))).guard.take() };
        // The one before is let go only when the next one is in hand.
        if guard.is_some() {
            drop(std::mem::replace(&mut held, guard));
        }
    }
    drop(held);
}

/// Waits until one of the arms is ready, takes it or brings its counterpart to a halt, and gives its number with what is
/// left to do. `None`: the limit came first.
pub(crate) fn select<'a>(arms: &mut [Arm<'a>], limit: Limit, choice: Choice) -> Option<Selected<'a>> {
    let mut search = Search::new(arms, Intent::Operate, limit, choice);
    loop {
        match search.round() {
            Round::Chosen(index, chosen) => {
                return Some(Selected::new(&mut search.arms[index], index, chosen));
            }
            Round::Promise(index, sender) => {
                let patience = match limit {
                    Limit::Now => Patience::Thread,
                    Limit::Until(_) => Patience::Parks,
                };
                let slot = search.arms[index].slot();
                // SAFETY: `round` has claimed it, for this arm.
                let came = unsafe { keep_promise(sender, slot, patience, search.held_on(index)) };
                search.end_hold(came);
                if came {
                    return Some(Selected::new(&mut search.arms[index], index, Chosen::Received));
                }
            }
            Round::Late => return None,
            Round::Again => {}
        }
    }
}

/// As `select`, and leaves it to the caller to try the operation.
pub(crate) fn ready(arms: &mut [Arm<'_>], limit: Limit, choice: Choice) -> Option<usize> {
    let mut search = Search::new(arms, Intent::Watch, limit, choice);
    loop {
        match search.round() {
            Round::Chosen(index, _) => return Some(index),
            Round::Late => return None,
            Round::Promise(..) | Round::Again => {}
        }
    }
}

enum Round {
    Chosen(usize, Chosen),
    Promise(usize, RecordPtr),
    Late,
    Again,
}

struct Search<'s, 'a> {
    arms: &'s mut [Arm<'a>],
    intent: Intent,
    limit: Limit,
    /// In which order they are looked at, and locked.
    looks: Order,
    locks: Order,
    early: Option<Wait<Active>>,
}

impl<'s, 'a> Search<'s, 'a> {
    fn new(arms: &'s mut [Arm<'a>], intent: Intent, limit: Limit, choice: Choice) -> Self {
        let (mut looks, mut locks) = (Order::new(arms.len()), Order::new(arms.len()));
        if choice == Choice::Uniform {
            looks.shuffle();
        }
        locks.sort(arms);
        Search { arms, intent, limit, looks, locks, early: None }
    }

    /// One look at all arms, and one wait if none is ready.
    fn round(&mut self) -> Round {
        let mut woken = Woken::new();
        lock_all(self.arms, self.locks.get());
        let found = self.served().or_else(|| {
            // Nobody serves it while it takes, nor while it waits for what a sender has promised.
            self.seat_kept(Seat::Held);
            self.look(&mut woken)
        });
        if let Some(found) = found {
            if !matches!(found, Round::Promise(..)) {
                self.forget_kept();
            }
            self.unlock();
            woken.ready();
            let _never_published = self.early.take().map(Wait::withdraw);
            return found;
        }
        if !self.may_wait() {
            self.forget_kept();
            self.unlock();
            let _never_published = self.early.take().map(Wait::withdraw);
            return Round::Late;
        }
        let mut wait: Wait<Active>;
        match self.early.take() {
            Some(begun) => wait = begun,
            None => match Wait::try_open() {
                Some(opened) => wait = Wait::of(opened),
                None => {
                    self.seat_kept(Seat::Returned);
                    self.unlock();
                    self.early = Some(Wait::begin());
                    return Round::Again;
                }
            },
        }
        if mutated(Mutant::SelectQueuesLate) {
            self.unlock();
            lock_all(self.arms, self.locks.get());
        }
        let mut how = How::new(WaitReason::Select);
        for arm in &mut *self.arms {
            if arm.chan.is_none() {
                continue;
            }
            let slot = arm.slot();
            match &arm.record {
                None => arm.record = Some(Record::new(wait.waiter(), slot)),
                Some(record) => record.value.renew(wait.waiter()),
            }
            let node = arm.node().expect("round: made just now");
            // SAFETY: the channel is locked by `lock_all`.
            let state = unsafe { &mut *arm.state };
            if !std::mem::take(&mut arm.kept) {
                // SAFETY: it is taken out before this select returns.
                unsafe {
                    state.give_place(node);
                    arm.queue(state, self.intent).push_back(node);
                }
            }
            if self.intent == Intent::Operate {
                match arm.direction {
                    Direction::Receive => state.tell_send_watchers(&mut woken),
                    Direction::Send => state.tell_receive_watchers(&mut woken),
                }
            }
            how.until = earlier(how.until, state.due().filter(|_| arm.direction == Direction::Receive));
            how.looks |= state.tick.is_some();
        }
        let Limit::Until(limit) = self.limit else { unreachable!("round: it may wait") };
        how = how.until(earlier(how.until, limit));
        // Without a lock nothing holds the owner up, whom its alarm may have woken before the hook runs.
        let locked = self.arms.iter().any(|arm| arm.chan.is_some());
        let owed =
            Owed { debt: Debt::new(Owed::pay), arms: self.arms.as_ptr().cast(), count: self.arms.len() };
        wait.owes(&raw const owed.debt);
        let (arms, order) = (self.arms.as_mut_ptr(), self.locks.get());
        let woke = wait.park(how, move || {
            // The order too is read only while a lock is held.
            if locked {
                unlock_all(arms, order);
            }
            woken.ready();
            Commit::Park
        });
        self.settle(wait, how, limit, woke)
    }

    /// After the wait: leaves all queues, and finds the arm that was dealt with.
    #[inline]
    fn settle(
        &mut self,
        mut wait: Wait<Active>,
        mut how: How,
        limit: Option<Nanos>,
        mut woke: Woke,
    ) -> Round {
        while woke == Woke::Look {
            how = how.until(earlier(self.due(), limit));
            woke = wait.park_again(how);
        }
        wait.owes(std::ptr::null());
        let dealt = self.arms.iter().position(|arm| arm.deal() != Deal::Open);
        for (index, arm) in self.arms.iter().enumerate() {
            if Some(index) != dealt {
                arm.leave(self.intent);
            }
        }
        if let Woke::Interrupted(why) = woke {
            why.throw::<Active>();
        }
        // The limit, or the time that a channel tells: the next round finds out.
        let Some(index) = dealt else { return Round::Again };
        let arm = &mut self.arms[index];
        let chosen = match (arm.deal(), arm.direction) {
            (Deal::Withdrawn, _) => {
                arm.kept = true;
                return Round::Again;
            }
            (Deal::Done, Direction::Receive) => Chosen::Received,
            (Deal::Closed, Direction::Receive) => Chosen::Drained,
            (Deal::Closed, Direction::Send) => Chosen::Sends(Promised::Closed),
            (Deal::Partner(receiver), _) => Chosen::Sends(Promised::Partner(receiver)),
            (Deal::Reserved, _) => Chosen::Sends(Promised::Reserved),
            (Deal::Done, Direction::Send) if self.intent == Intent::Watch => Chosen::Drained,
            (deal @ (Deal::Open | Deal::Done), _) => {
                unreachable!("settle: an arm was dealt with by {deal:?}")
            }
        };
        Round::Chosen(index, chosen)
    }

    fn may_wait(&self) -> bool {
        match self.limit {
            Limit::Now => false,
            Limit::Until(limit) => !has_passed(limit),
        }
    }

    fn unlock(&mut self) {
        unlock_all(self.arms.as_mut_ptr(), self.locks.get());
    }

    /// The records that were put back, when no wait follows. All channels are locked.
    fn forget_kept(&mut self) {
        for arm in &mut *self.arms {
            if std::mem::take(&mut arm.kept)
                && let Some(node) = arm.node()
            {
                // SAFETY: locked; it stands there.
                unsafe { (*arm.state).receivers.remove(node) };
            }
        }
    }

    /// The arm whose record was served while its owner came to look. All channels are locked.
    fn served(&self) -> Option<Round> {
        let served = |arm: &Arm<'_>| {
            arm.kept && arm.record.as_ref().is_some_and(|record| record.value.seat() == Seat::Served)
        };
        self.arms.iter().position(served).map(|index| Round::Chosen(index, Chosen::Received))
    }

    /// All channels are locked.
    fn seat_kept(&mut self, seat: Seat) {
        for record in self.arms.iter().filter(|arm| arm.kept).filter_map(|arm| arm.record.as_ref()) {
            record.value.set_seat(seat);
        }
    }

    /// The record that is held in the queue of this arm's channel.
    fn held_on(&self, index: usize) -> Option<RecordPtr> {
        let chan = self.arms[index].address();
        self.arms.iter().find(|arm| arm.kept && arm.address() == chan).and_then(Arm::node)
    }

    /// The promise is over. If it was kept, a record that was held leaves its queue.
    fn end_hold(&mut self, came: bool) {
        for arm in self.arms.iter_mut().filter(|arm| arm.kept && came) {
            arm.leave(Intent::Operate);
            arm.kept = false;
        }
    }

    /// The earliest time that a channel tells.
    fn due(&self) -> Option<Nanos> {
        let receivers = self.arms.iter().filter(|arm| arm.direction == Direction::Receive);
        receivers.filter_map(|arm| arm.chan).filter_map(|(raw, ..)| raw.state.lock().due()).min()
    }

    /// The first arm that is ready. All channels are locked.
    fn look(&mut self, woken: &mut Woken) -> Option<Round> {
        for &index in self.looks.get() as &[u16] {
            let index = usize::from(index);
            let arm = &mut self.arms[index];
            let Some((_, chan, ops)) = arm.chan else { continue };
            let found = match (self.intent, arm.direction) {
                (Intent::Watch, direction) => {
                    // SAFETY: locked.
                    let state = unsafe { arm.state() };
                    let ready = match direction {
                        Direction::Receive => state.may_receive(),
                        Direction::Send => state.may_send(),
                    };
                    ready.then_some(Round::Chosen(index, Chosen::Drained))
                }
                (Intent::Operate, Direction::Receive) => {
                    let slot = arm.slot();
                    // SAFETY: locked; the slot is good for a message of this channel.
                    match unsafe { (ops.take)(chan, arm.state(), slot, woken) } {
                        Taken::Done => Some(Round::Chosen(index, Chosen::Received)),
                        Taken::Closed => Some(Round::Chosen(index, Chosen::Drained)),
                        Taken::Promise(sender) => Some(Round::Promise(index, sender)),
                        Taken::Nothing => None,
                    }
                }
                (Intent::Operate, Direction::Send) => {
                    // SAFETY: locked.
                    let state = unsafe { arm.state() };
                    let promised = match state.offer(Message::ToCome) {
                        Offer::Receiver(receiver) => Some(Promised::Claimed(receiver)),
                        Offer::Room => {
                            state.reserved += 1;
                            Some(Promised::Reserved)
                        }
                        Offer::Closed => Some(Promised::Closed),
                        Offer::Full => None,
                    };
                    promised.map(|promised| Round::Chosen(index, Chosen::Sends(promised)))
                }
            };
            if found.is_some() {
                return found;
            }
        }
        None
    }
}
