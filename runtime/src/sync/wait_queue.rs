//! Wait queues: what the types of this folder share.
//!
//! A [`WaitQueue`] lies in a state under a `prim::Mutex`. A waiter queues a record that lies on its own stack; the
//! waiter's commit hook releases the lock once the waiter is saved ([`wait_in`]). A *notifier* takes the first record
//! out under the lock, claims the wait, and readies the waiter after the lock.
//!
//! Exactly one of two parties claims a wait, and so ends the wait:
//! * A notifier: the notifier's writes to the record and the state belong to the waiter.
//! * The waiter's time limit, or an interrupt. Then no notification can reach the waiter any more, and [`wait_in`]
//!   returns with the lock held and the record out of the queue: under that lock the waiter lets the waiters go on that
//!   the record held back.
//!
//! A waiter that can't be notified was interrupted, has timed out, or was left behind by its runtime: the notifier
//! tries the next one. A waiter that was left behind never leaves the queue itself; the waiter's abandon hook does
//! ([`HasWaitQueue::settle`]).
//!
//! A future stands in the queue by a record of its own ([`TaskIn`]), which the drop takes out, or whose notification the drop
//! passes on.

mod future;

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Mutex, MutexGuard};
use crate::sched::park::Commit;
use crate::sched::run::wake::goready;
use crate::wait::abandon::AbandonHook;
use crate::wait::interrupt::Interrupt;
use crate::wait::queue::{Node, Queue};
use crate::wait::task::Readied;
use crate::wait::waiter::{How, Wait, Waiter, Woke};
pub(crate) use future::{Gone, TaskIn};
use std::cell::Cell;
use std::ptr::NonNull;

/// A waiter, and what the waiter wants.
#[repr(C)]
pub(crate) struct Record<W> {
    hook: AbandonHook,
    pub(crate) want: W,
    waiter: Waiter<Active>,
    notified: Cell<bool>,
}

/// Waiters, first come first served.
pub(crate) struct WaitQueue<W>(Queue<Record<W>>);

impl<W> WaitQueue<W> {
    pub(crate) const fn new() -> Self {
        WaitQueue(Queue::new())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().count()
    }

    /// Returns what the first waiter wants that might be notified. Removes the records before that, which can't be
    /// notified.
    pub(crate) fn first(&mut self) -> Option<&W> {
        while let Some(first) = self.0.front() {
            // SAFETY: the queue is locked, and has the record.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.is_open() {
                return Some(&record.want);
            }
            self.0.pop_front();
        }
        None
    }

    /// Notifies the first waiter that can be notified; `notified` readies that waiter later.
    pub(crate) fn notify<'a>(&mut self, notified: &'a mut Notified<W>) -> Option<&'a Record<W>> {
        self.notify_if(notified, |_want| true)
    }

    /// As `notify`, if what that waiter wants is right; otherwise notifies no waiter.
    pub(crate) fn notify_if<'a>(
        &mut self,
        notified: &'a mut Notified<W>,
        right: impl Fn(&W) -> bool,
    ) -> Option<&'a Record<W>> {
        while self.first().is_some_and(&right) {
            let first = self.0.pop_front()?;
            // SAFETY: as in `first`. Once the wait is claimed the record stays, until the owner is readied.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.claim() {
                record.notified.set(true);
                // SAFETY: the record stands in no queue, and stays until `Notified::ready` has taken it out and readied
                // the owner.
                unsafe { notified.0.push_back(first) };
                return Some(record);
            }
        }
        None
    }

    /// Moves the waiters whose want is right to the end of another queue under the same lock, in their order.
    pub(crate) fn move_if(&mut self, to: &mut WaitQueue<W>, right: impl Fn(&W) -> bool) {
        let mut at = self.0.front();
        while let Some(record) = at {
            at = self.0.next(record);
            // SAFETY: the record stands in this queue, whose lock is held; then in the other one, until its owner or a
            // notifier takes it out.
            unsafe {
                if right(&record.as_ref().value.want) {
                    self.0.remove(record);
                    to.0.push_back(record);
                }
            }
        }
    }

    /// Notifies all waiters, and returns their number.
    pub(crate) fn notify_all(&mut self, notified: &mut Notified<W>) -> usize {
        std::iter::from_fn(|| self.notify(notified).map(|_record| ())).count()
    }
}

/// Waiters that were notified, and are to be readied after the lock.
#[must_use]
pub(crate) struct Notified<W>(Queue<Record<W>>);

impl<W> Notified<W> {
    pub(crate) fn new() -> Self {
        Notified(Queue::new())
    }

    /// Readies them. Called after the lock.
    pub(crate) fn ready(self) {
        self.ready_in_silence().call_wakers();
    }

    /// As `ready`, for a caller whose own wait is open.
    pub(crate) fn ready_beside_a_wait(self) {
        self.ready_in_silence().call_wakers_elsewhere();
    }

    /// As `ready`; the caller calls the wakers of tasks.
    pub(crate) fn ready_in_silence(mut self) -> Readied<Active> {
        let mut readied = Readied::new();
        while let Some(first) = self.0.pop_front() {
            // SAFETY: the record's wait is claimed, so the record stays until the owner is readied.
            let waiter = &unsafe { first.as_ref() }.value.waiter;
            match waiter.g() {
                // Mostly there is one.
                Some(g) if self.0.is_empty() && readied.is_empty() => goready(g),
                _ => waiter.ready_with(&mut readied),
            }
            mutant!(NotifiedCallsInBetween: std::mem::replace(&mut readied, Readied::new()).call_wakers());
        }
        readied
    }
}

/// Where to queue.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(crate) enum Position {
    Front,
    Back,
}

/// A state that has a wait queue.
pub(crate) trait HasWaitQueue {
    type Want;
    /// The queue of the waiters with this want.
    fn waiters(&mut self, want: &Self::Want) -> &mut WaitQueue<Self::Want>;
    /// Acts for a waiter that its runtime has left behind. If that waiter was notified, passes the notification on;
    /// otherwise lets the waiters go on that the record held back. By default there is nothing to do.
    fn settle(_want: &Self::Want, _notified: bool) {}
}

/// # Safety
/// `hook` is that of a record of a queue of `S`, whose owner never runs again.
unsafe fn run<S: HasWaitQueue>(hook: *const AbandonHook) {
    // SAFETY: by this function's contract. The record lies on a stack that stays as it is.
    let record = unsafe { &*hook.cast::<Record<S::Want>>() };
    S::settle(&record.want, record.notified.get());
}

/// The waiter has left the queue without having been notified.
pub(crate) struct Left<'a, S> {
    /// The lock of the queue, under which the leaving waiter lets the waiters go on that it held back.
    pub(crate) state: MutexGuard<'a, S>,
    /// The interrupt that ended the wait; `None` for the time limit.
    pub(crate) by: Option<Interrupt>,
}

/// Waits in the queue until notified. `state` is the guard of `lock`, taken after `wait` began. Returns `want`, with
/// what the notifier has written there.
pub(crate) fn wait_in<'a, S: HasWaitQueue>(
    wait: Wait<Active>,
    lock: &'a Mutex<S>,
    state: MutexGuard<'a, S>,
    place: (S::Want, Position),
    how: How,
) -> Result<S::Want, Left<'a, S>> {
    wait_in_and(wait, (lock, state), place, how, || {})
}

/// As `wait_in`; calls `then` after the lock, before the caller blocks.
#[inline]
pub(crate) fn wait_in_and<'a, S: HasWaitQueue>(
    mut wait: Wait<Active>,
    (lock, mut state): (&'a Mutex<S>, MutexGuard<'a, S>),
    (want, position): (S::Want, Position),
    how: How,
    then: impl FnOnce(),
) -> Result<S::Want, Left<'a, S>> {
    let hook = AbandonHook::new(run::<S>);
    let record = Node::new(Record { hook, want, waiter: wait.waiter(), notified: Cell::new(false) });
    let node = NonNull::from(&record);
    wait.on_abandon((&raw const record.value).cast());
    let waiters = &mut state.waiters(&record.value.want).0;
    // SAFETY: before this frame ends the record is taken out of the queue, by the notifier that has claimed the wait
    // or below.
    unsafe {
        match position {
            Position::Front => waiters.insert_before(node, waiters.front()),
            Position::Back => waiters.push_back(node),
        }
    }
    let woke = wait.park(how, move || {
        drop(state);
        then();
        Commit::Park
    });
    wait.on_abandon(std::ptr::null());
    if record.value.notified.get() {
        return Ok(record.value.want);
    }
    let mut state = lock.lock();
    // SAFETY: the record stands in this queue, or a notifier has found the wait claimed and taken the record out.
    unsafe { state.waiters(&record.value.want).0.remove(node) };
    let by = match woke {
        Woke::Interrupted(why) => Some(why),
        _ => None,
    };
    Err(Left { state, by })
}
