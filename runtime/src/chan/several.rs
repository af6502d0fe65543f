//! The common part of [`broadcast`](super::broadcast) and [`watch`](super::watch): the counts of senders and receivers, their
//! waits, and the bell for an arm of a `select!`.
//!
//! Both keep their state under one lock, with two wait queues: receivers wait for news, senders for the drop of the last
//! receiver. A waiter looks under the lock before each wait and after the last one, so it finds a message that comes together
//! with a limit. No waiter is counted, so a waiter that is interrupted, or left behind by its runtime, holds no other back. No
//! user code runs under the lock: a value to be dropped is taken out, and dropped after the lock.
//!
//! *A future* waits in the same queues, a poll at a time ([`poll_for`]). News notifies every waiter of a side. The obvious
//! saving is to notify one waiter, which passes the news on; but then each drop of a future would have to decide whether the
//! others know. Here a dropped future has nothing to pass on, notified or not. Messages that it has not seen stay for its own
//! receiver, whose next call looks.
//!
//! A select waits for channels. So a receiver that is to be an arm gets a *bell*: a channel for one message, which says that
//! there may be news. A sender rings after its lock; a receiver that leaves messages behind rings its own bell. The bells are
//! closed with their channel, and are always ready from then on.
//!
//! Checked by `models/several.rs`.

use crate::chan::{self, Receiver, Sender};
use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Mutex, MutexGuard, Rank};
use crate::sched::park::WaitReason;
use crate::sync::wait_queue::{HasWaitQueue, Left, Notified, Position, TaskIn, WaitQueue, wait_in};
use crate::wait::task::TaskWait;
use crate::wait::waiter::{How, Wait};
use gmp_timers::Nanos;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The side to which a queue belongs.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Side {
    /// Waiters for news, or for the close.
    Receivers,
    /// Waiters until there is no receiver.
    Senders,
}

/// The numbers of senders and receivers, and the waiters among them.
pub(super) struct Parties {
    pub(super) senders: usize,
    pub(super) receivers: usize,
    pub(super) closed: bool,
    /// Set once there was a bell.
    has_bells: bool,
    waiting_receivers: WaitQueue<Side>,
    waiting_senders: WaitQueue<Side>,
}

/// A state with its parties.
pub(super) trait HasParties {
    fn parties(&mut self) -> &mut Parties;
}

impl Parties {
    pub(super) fn new(receivers: usize) -> Self {
        Parties {
            senders: 1,
            receivers,
            closed: false,
            has_bells: false,
            waiting_receivers: WaitQueue::new(),
            waiting_senders: WaitQueue::new(),
        }
    }

    pub(super) fn queue(&mut self, side: Side) -> &mut WaitQueue<Side> {
        match side {
            Side::Receivers => &mut self.waiting_receivers,
            Side::Senders => &mut self.waiting_senders,
        }
    }

    /// Returns `true` if no receiver would see a message that is sent.
    pub(super) fn is_deserted(&self) -> bool {
        self.closed || self.receivers == 0
    }

    /// Notifies the receivers of news. Returns whether the caller must ring bells after the lock.
    #[must_use]
    pub(super) fn tell_receivers(&mut self, notified: &mut Notified<Side>) -> bool {
        mutant!(SeveralTellsOne: { self.waiting_receivers.notify(notified); return self.has_bells });
        self.waiting_receivers.notify_all(notified);
        self.has_bells
    }

    /// Counts a receiver off; the last one notifies the senders.
    pub(super) fn receiver_goes(&mut self, notified: &mut Notified<Side>) {
        self.receivers -= 1;
        if self.receivers == 0 {
            self.waiting_senders.notify_all(notified);
        }
    }
}

/// Waits until `look` finds something, until `until` at most. An interrupt unwinds.
pub(super) fn wait_for<S, R>(
    lock: &Mutex<S>,
    side: Side,
    until: Option<Nanos>,
    mut look: impl FnMut(&mut S) -> Option<R>,
) -> Option<R>
where
    S: HasWaitQueue<Want = Side>,
{
    let found = look(&mut lock.lock());
    if found.is_some() {
        return found;
    }
    let reason = match side {
        Side::Receivers => WaitReason::ChanReceive,
        Side::Senders => WaitReason::ChanSend,
    };
    loop {
        let wait = Wait::begin();
        let mut state = lock.lock();
        let found = look(&mut state);
        mutant!(SeveralLooksOnce: let found = None);
        if found.is_some() {
            drop(state);
            wait.withdraw();
            return found;
        }
        let how = How::new(reason).until(until);
        if let Err(Left { mut state, by }) = wait_in(wait, lock, state, (side, Position::Back), how) {
            let Some(interrupt) = by else { return look(&mut state) };
            drop(state);
            interrupt.throw::<Active>();
        }
    }
}

/// As `wait_for`, for one poll of a future, whose place in the queue of that side is `task`. `leave` comes before the drop.
pub(super) fn poll_for<S, R>(
    mut task: Pin<&mut TaskIn<S>>,
    lock: &Mutex<S>,
    side: Side,
    cx: &Context<'_>,
    mut look: impl FnMut(&mut S) -> Option<R>,
) -> Poll<R>
where
    S: HasWaitQueue<Want = Side>,
{
    if task.is_waiting() && task.as_mut().poll(cx).is_pending() {
        return Poll::Pending;
    }
    let found = look(&mut lock.lock());
    if let Some(found) = found {
        return Poll::Ready(found);
    }
    // Before the lock, as foreign code clones the waker.
    let wait = TaskWait::open(cx.waker());
    let mut state = lock.lock();
    let found = look(&mut state);
    mutant!(SeveralTaskLooksOnce: let found = None);
    if let Some(found) = found {
        drop(state);
        wait.withdraw();
        return Poll::Ready(found);
    }
    task.join(wait, &mut state, (side, Position::Back));
    Poll::Pending
}

fn deserted<S: HasParties>(state: &mut S) -> Option<()> {
    state.parties().is_deserted().then_some(())
}

/// Waits until no receiver would see a message that is sent.
pub(super) fn wait_deserted<S: HasParties + HasWaitQueue<Want = Side>>(lock: &Mutex<S>) {
    wait_for(lock, Side::Senders, None, deserted);
}

/// As `wait_deserted`, for a future.
pub(super) struct Deserted<S: HasWaitQueue>(TaskIn<S>);

impl<S: HasParties + HasWaitQueue<Want = Side>> Deserted<S> {
    pub(super) fn new() -> Self {
        Deserted(TaskIn::new())
    }

    fn task(self: Pin<&mut Self>) -> Pin<&mut TaskIn<S>> {
        // SAFETY: the task is pinned with this value; nothing moves it.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }
    }

    pub(super) fn poll(self: Pin<&mut Self>, lock: &Mutex<S>, cx: &Context<'_>) -> Poll<()> {
        poll_for(self.task(), lock, Side::Senders, cx, deserted)
    }

    pub(super) fn leave(self: Pin<&mut Self>, lock: &Mutex<S>) {
        leave(self.task(), lock);
    }
}

/// Ends the wait of a future. If the future was notified, so were all others.
pub(super) fn leave<S: HasWaitQueue<Want = Side>>(task: Pin<&mut TaskIn<S>>, lock: &Mutex<S>) {
    let _gone = task.leave(lock);
}

/// Counts a party that comes. Returns the locked state, to note what the party sees from here on.
pub(super) fn join<S: HasParties>(lock: &Mutex<S>, side: Side) -> MutexGuard<'_, S> {
    let mut state = lock.lock();
    match side {
        Side::Receivers => state.parties().receivers += 1,
        Side::Senders => state.parties().senders += 1,
    }
    state
}

/// Closes the channel. Returns `false` if it was closed already.
pub(super) fn close<S: HasParties>(lock: &Mutex<S>, bells: &Bells) -> bool {
    let mut notified = Notified::new();
    let mut state = lock.lock();
    let parties = state.parties();
    let closes = !std::mem::replace(&mut parties.closed, true);
    unless!(SeveralEndTellsNoReceiver, _ = parties.waiting_receivers.notify_all(&mut notified));
    unless!(SeveralEndTellsNoSender, _ = parties.waiting_senders.notify_all(&mut notified));
    drop(state);
    notified.ready();
    unless!(BellsOutliveTheEnd, bells.close());
    closes
}

/// Counts a sender off; the last one closes the channel.
pub(super) fn sender_goes<S: HasParties>(lock: &Mutex<S>, bells: &Bells) {
    let mut state = lock.lock();
    let parties = state.parties();
    parties.senders -= 1;
    let last = parties.senders == 0;
    drop(state);
    if last {
        close(lock, bells);
    }
}

/// The sender that rings each bell, by the bell's number.
type Ringers = BTreeMap<u64, Sender<()>>;

/// The bells of the receivers that have one; `None` once the channel is closed.
pub(super) struct Bells(Mutex<Option<Ringers>>);

/// The bell of a receiver.
pub(super) struct Bell {
    number: u64,
    rung: Receiver<()>,
}

impl Bells {
    pub(super) fn new() -> Self {
        Bells(Mutex::new(Rank::Bells, Some(BTreeMap::new())))
    }

    /// Returns the bell in `slot`, which is made if necessary. If `news` returns `true` under the lock, the bell rings, even if
    /// another caller has taken an earlier ring.
    pub(super) fn bell<S: HasParties>(
        &self,
        slot: &mut Option<Bell>,
        lock: &Mutex<S>,
        news: impl FnOnce(&mut S) -> bool,
    ) -> Receiver<()> {
        unless!(BellHangsLate, self.hang(slot));
        // After the bell is in the list: news from here on rings it.
        let mut state = lock.lock();
        state.parties().has_bells = true;
        let news = news(&mut state);
        drop(state);
        mutant!(BellHangsLate: self.hang(slot));
        if news {
            self.ring(slot.as_ref());
        }
        slot.as_ref().map_or_else(chan::never, |bell| bell.rung.clone())
    }

    /// Makes the bell, if there is none, and puts it into the list.
    fn hang(&self, slot: &mut Option<Bell>) {
        if slot.is_none() {
            let (rings, rung) = chan::bounded(1);
            let mut number = 0;
            // On a closed channel the bell's sender is dropped here, which closes the bell as well.
            if let Some(bells) = self.0.lock().as_mut() {
                number = bells.last_key_value().map_or(0, |(last, _)| last + 1);
                bells.insert(number, rings);
            }
            *slot = Some(Bell { number, rung });
        }
    }

    pub(super) fn ring_all(&self) {
        // Rung after the lock: a bell may wake a task, whose waker is foreign code.
        let bells: Vec<_> = self.0.lock().iter().flat_map(BTreeMap::values).cloned().collect();
        for bell in bells {
            // An error says that the bell rings already, or that its receiver is gone.
            let _rings = bell.try_send(());
        }
    }

    /// Rings one bell, whose receiver has left messages behind.
    pub(super) fn ring(&self, bell: Option<&Bell>) {
        let Some(bell) = bell else { return };
        let rings = self.0.lock().as_ref().and_then(|bells| bells.get(&bell.number).cloned());
        if let Some(rings) = rings {
            let _rings = rings.try_send(());
        }
    }

    /// For a call that receives a message of which the bell may have told.
    #[inline]
    pub(super) fn leaves<'a>(&'a self, bell: Option<&'a Bell>) -> Leaves<'a> {
        Leaves { bells: self, bell, news: true }
    }

    /// Removes the bell of a receiver that goes.
    pub(super) fn remove(&self, bell: Option<Bell>) {
        let Some(bell) = bell else { return };
        // Dropped after the lock.
        let rings = self.0.lock().as_mut().and_then(|bells| bells.remove(&bell.number));
        drop(rings);
    }

    fn close(&self) {
        let bells = self.0.lock().take();
        drop(bells);
    }
}

/// Rings a receiver's bell when a call ends that leaves messages behind. A call that unwinds counts as leaving some.
pub(super) struct Leaves<'a> {
    bells: &'a Bells,
    bell: Option<&'a Bell>,
    pub(super) news: bool,
}

impl Drop for Leaves<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.news {
            self.bells.ring(self.bell);
        }
    }
}
