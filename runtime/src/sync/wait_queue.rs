//! Wait queues: what the types of this folder share.
//!
//! A [`WaitQueue`] lies in a state under a `prim::Mutex`. Who has to wait queues a record that lies on its own stack, and
//! the lock is let go once it is saved ([`wait_in`]). Whoever has something to give *notifies*: takes the first record out
//! under the lock, claims its wait, and readies it after the lock.
//!
//! Exactly one of these ends a wait:
//! * it was notified: what the notifier has written into the record or the state is the owner's;
//! * its time limit, or an interrupt, claimed it first. Then no notification can reach it any more, and [`wait_in`] returns
//!   with the lock held and the record out of the queue: the owner passes on, under that lock, what its place held back.
//!
//! A waiter that can't be notified was interrupted, timed out, or left behind by its runtime: the next one is tried. One who
//! is left behind does not come to leave the queue; its abandon hook does that ([`HasWaitQueue::settle`]).

use crate::host::Active;
use crate::prim::{Mutex, MutexGuard};
use crate::sched::park::Commit;
use crate::wait::abandon::AbandonHook;
use crate::wait::interrupt::Interrupt;
use crate::wait::queue::{Node, Queue};
use crate::wait::waiter::{How, Wait, Waiter, Woke};
use std::cell::Cell;
use std::ptr::NonNull;

/// One that waits, and what for.
#[repr(C)]
pub(super) struct Record<W> {
    hook: AbandonHook,
    pub(super) want: W,
    waiter: Waiter<Active>,
    notified: Cell<bool>,
}

/// Those who wait, first come first served.
pub(super) struct WaitQueue<W>(Queue<Record<W>>);

impl<W> WaitQueue<W> {
    pub(super) const fn new() -> Self {
        WaitQueue(Queue::new())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.iter().count()
    }

    /// What the first one wants that might be notified. Takes out those before it who can't be.
    pub(super) fn first(&mut self) -> Option<&W> {
        while let Some(first) = self.0.front() {
            // SAFETY: the queue is locked, and it stands there.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.is_open() {
                return Some(&record.want);
            }
            self.0.pop_front();
        }
        None
    }

    /// Notifies the first one that can be; `notified` readies it later.
    pub(super) fn notify<'a>(&mut self, notified: &'a mut Notified<W>) -> Option<&'a Record<W>> {
        self.notify_if(notified, |_want| true)
    }

    /// The same, if what that one wants is right; nobody is notified before it.
    pub(super) fn notify_if<'a>(
        &mut self,
        notified: &'a mut Notified<W>,
        right: impl Fn(&W) -> bool,
    ) -> Option<&'a Record<W>> {
        while self.first().is_some_and(&right) {
            let first = self.0.pop_front()?;
            // SAFETY: as in `first`. Once it is claimed it stays, until it is readied.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.claim() {
                record.notified.set(true);
                // SAFETY: it stands in no queue, and stays until it is taken out of this one and readied.
                unsafe { notified.0.push_back(first) };
                return Some(record);
            }
        }
        None
    }

    /// Notifies everybody, and says how many that were.
    pub(super) fn notify_all(&mut self, notified: &mut Notified<W>) -> usize {
        std::iter::from_fn(|| self.notify(notified).map(|_record| ())).count()
    }
}

/// Those that were notified and do not know yet.
#[must_use]
pub(super) struct Notified<W>(Queue<Record<W>>);

impl<W> Notified<W> {
    pub(super) fn new() -> Self {
        Notified(Queue::new())
    }

    /// Lets them go on. After the lock.
    pub(super) fn ready(mut self) {
        while let Some(first) = self.0.pop_front() {
            // SAFETY: its wait is claimed, so it stays until it is readied.
            unsafe { &first.as_ref().value }.waiter.ready();
        }
    }
}

/// Where to queue.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Position {
    Front,
    Back,
}

/// A state with a wait queue in it.
pub(super) trait HasWaitQueue {
    type Want;
    /// The queue of those who want this.
    fn waiters(&mut self, want: &Self::Want) -> &mut WaitQueue<Self::Want>;
    /// One who wanted this was left behind by its runtime. `notified`: what it was notified of is to be passed on;
    /// otherwise, what its place held back. By default nothing is.
    fn settle(_want: &Self::Want, _notified: bool) {}
}

/// # Safety
/// `hook` is that of a record of a queue of `S`, whose owner never runs again.
unsafe fn run<S: HasWaitQueue>(hook: *const AbandonHook) {
    // SAFETY: by this function's contract. The record lies on a stack that is left as it is.
    let record = unsafe { &*hook.cast::<Record<S::Want>>() };
    S::settle(&record.want, record.notified.get());
}

/// Left the queue without having been notified.
pub(super) struct Left<'a, S> {
    /// The lock of the queue. Under it, the owner passes on what it held back.
    pub(super) state: MutexGuard<'a, S>,
    /// Nothing: the time limit.
    pub(super) by: Option<Interrupt>,
}

/// Waits in the queue until notified. `state` is the guard of `lock`, taken after `wait` began. Gives back what was wanted,
/// with what the caller has written there.
pub(super) fn wait_in<'a, S: HasWaitQueue>(
    mut wait: Wait<Active>,
    lock: &'a Mutex<S>,
    mut state: MutexGuard<'a, S>,
    (want, position): (S::Want, Position),
    how: How,
) -> Result<S::Want, Left<'a, S>> {
    let hook = AbandonHook::new(run::<S>);
    let record = Node::new(Record { hook, want, waiter: wait.waiter(), notified: Cell::new(false) });
    let node = NonNull::from(&record);
    wait.on_abandon((&raw const record.value).cast());
    let waiters = &mut state.waiters(&record.value.want).0;
    // SAFETY: it is taken out below, or was by whoever has claimed the wait, before this frame goes.
    unsafe {
        match position {
            Position::Front => waiters.insert_before(node, waiters.front()),
            Position::Back => waiters.push_back(node),
        }
    }
    let woke = wait.park(how, move || {
        drop(state);
        Commit::Park
    });
    wait.on_abandon(std::ptr::null());
    if record.value.notified.get() {
        return Ok(record.value.want);
    }
    let mut state = lock.lock();
    // SAFETY: it stands in this queue, or somebody has found it claimed and taken it out.
    unsafe { state.waiters(&record.value.want).0.remove(node) };
    let by = match woke {
        Woke::Interrupted(why) => Some(why),
        _ => None,
    };
    Err(Left { state, by })
}
