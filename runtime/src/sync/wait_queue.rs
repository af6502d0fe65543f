//! Wait queues, which the types of this folder share.
//!
//! A [`WaitQueue`] lies in a state under a `prim::Mutex`. A waiter queues a record on the waiter's stack; the commit hook
//! releases the lock once the waiter is saved ([`wait_in`]). A *notifier* takes the first record out under the lock, claims the
//! wait, and readies the waiter after the lock.
//!
//! Exactly one of two parties claims a wait, which ends the wait:
//! * A notifier: the notifier's writes to the record and the state belong to the waiter.
//! * The waiter's time limit, or an interrupt. Then no notification can reach the waiter any more, and [`wait_in`] returns with
//!   the lock held and the record out of the queue: under that lock the waiter serves the waiters that its record held back.
//!
//! A waiter that can't be notified was interrupted, has timed out, or was left behind by its runtime: the notifier tries the
//! next one. The abandon hook of a waiter that was left behind acts for that waiter, which never leaves the queue itself
//! ([`HasWaitQueue::settle`]).
//!
//! A future stands in the queue by a record, too ([`TaskIn`]). The drop of the future takes the record out, or passes the
//! notification on.

mod future;

use crate::host::Active;
use crate::prim::hooks::*;
use crate::prim::{Mutex, MutexGuard, UnsafeCell};
use crate::sched::park::Commit;
use crate::sched::run::wake::goready;
use crate::wait::abandon::AbandonHook;
use crate::wait::interrupt::Interrupt;
use crate::wait::queue::{Node, Queue};
use crate::wait::task::Readied;
use crate::wait::waiter::{Claimed, How, Wait, Waiter, Woke};
pub(crate) use future::{Gone, TaskIn};
use std::ptr::NonNull;

/// A waiter and the request.
#[repr(C)]
pub(crate) struct Record<W> {
    hook: AbandonHook,
    pub(crate) want: W,
    waiter: Waiter<Active>,
    /// Written by the notifier that has claimed the wait; then read by the waiter, or by its abandon hook.
    notified: UnsafeCell<bool>,
}

impl<W> Record<W> {
    #[inline(always)]
    fn new<S: HasWaitQueue<Want = W>>(want: W, waiter: Waiter<Active>) -> Node<Self> {
        let hook = AbandonHook::new(run::<S>);
        Node::new(Record { hook, want, waiter, notified: UnsafeCell::new(false) })
    }

    /// Called by the notifier that has claimed the wait.
    #[inline(always)]
    fn set_notified(&self) {
        // SAFETY: the claim was won, so no other thread uses the cell until the notifier readies the waiter.
        self.notified.with_mut(|notified| unsafe { *notified = true });
    }

    /// Called when the wait is over, by the waiter or by its abandon hook.
    #[inline(always)]
    fn is_notified(&self) -> bool {
        // SAFETY: the wait is claimed, and a notifier that has claimed it has readied the waiter, and writes no more.
        self.notified.with(|notified| unsafe { *notified })
    }
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

    /// # Safety
    /// As [`Queue::push_back`].
    #[inline(always)]
    unsafe fn insert(&mut self, node: NonNull<Node<Record<W>>>, position: Position) {
        // SAFETY: by this function's contract.
        unsafe {
            match position {
                Position::Front => self.0.push_front(node),
                Position::Back => self.0.push_back(node),
            }
        }
    }

    /// Returns the request of the first waiter that might be notified. Removes the records before it, which can't be notified.
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

    /// Notifies the first waiter that can be notified.
    #[inline(always)]
    pub(crate) fn notify_one(&mut self) -> Option<NotifiedOne<W>> {
        loop {
            let first = self.0.pop_front()?;
            // SAFETY: the queue is locked, and had the record. Once the wait is claimed the record stays, until the owner is
            // readied.
            let record = unsafe { &first.as_ref().value };
            if record.waiter.claim() {
                record.set_notified();
                return Some(NotifiedOne(first));
            }
        }
    }

    /// As `notify_one`; adds the waiter to `notified`, which readies it later, with others.
    pub(crate) fn notify<'a>(&mut self, notified: &'a mut Notified<W>) -> Option<&'a Record<W>> {
        let NotifiedOne(first) = self.notify_one()?;
        // SAFETY: the record stands in no queue, and stays until `Notified::ready` has taken it out and readied the owner.
        unsafe {
            notified.0.push_back(first);
            Some(&first.as_ref().value)
        }
    }

    /// As `notify`, if `right` returns `true` for that waiter's request; otherwise notifies no waiter.
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
                record.set_notified();
                // SAFETY: the record stands in no queue, and stays until `Notified::ready` has taken it out and readied
                // the owner.
                unsafe { notified.0.push_back(first) };
                return Some(record);
            }
        }
        None
    }

    /// Moves the waiters of other queues under the same lock to the end of this one, in the order of `number`.
    pub(crate) fn append(&mut self, others: Vec<WaitQueue<W>>, number: impl Fn(&W) -> u64) {
        let mut records = Vec::new();
        for mut other in others {
            records.extend(std::iter::from_fn(|| other.0.pop_front()));
        }
        // SAFETY: the record stood in a queue whose lock is held, and so stays until that lock is free.
        records.sort_unstable_by_key(|record| number(unsafe { &record.as_ref().value.want }));
        for record in records {
            // SAFETY: as above; the record stands in no queue, and then in this one until its owner or a notifier takes it out.
            unsafe { self.0.push_back(record) };
        }
    }

    /// Notifies all waiters, and returns their number.
    pub(crate) fn notify_all(&mut self, notified: &mut Notified<W>) -> usize {
        std::iter::from_fn(|| self.notify(notified).map(|_record| ())).count()
    }
}

/// A waiter that was notified, and that the notifier readies after the lock.
#[must_use]
pub(crate) struct NotifiedOne<W>(NonNull<Node<Record<W>>>);

impl<W> NotifiedOne<W> {
    /// Returns the waiter's request, to which the notifier may write before `ready`.
    pub(crate) fn want(&self) -> &W {
        // SAFETY: the record's wait is claimed, so the record stays until the owner is readied.
        unsafe { &self.0.as_ref().value.want }
    }

    /// Readies the waiter. Called without the lock.
    #[inline(always)]
    pub(crate) fn ready(self) {
        // SAFETY: as in `want`.
        unsafe { &self.0.as_ref().value.waiter }.claimed().ready();
    }

    /// As `ready`, but leaves it to the caller to call the waker, if a task waited.
    pub(crate) fn ready_in_silence(self) -> Readied<Active> {
        let mut readied = Readied::new();
        // SAFETY: as in `want`.
        unsafe { &self.0.as_ref().value.waiter }.claimed().ready_with(&mut readied);
        readied
    }
}

/// Waiters that were notified, and that the notifier readies after the lock.
#[must_use]
pub(crate) struct Notified<W>(Queue<Record<W>>);

impl<W> Notified<W> {
    pub(crate) fn new() -> Self {
        Notified(Queue::new())
    }

    /// Readies the waiters. Called without the lock.
    pub(crate) fn ready(self) {
        self.ready_in_silence().call_wakers();
    }

    /// As `ready`, for an abandon hook, or for a caller whose own wait is open: another thread, or another goroutine, calls the
    /// wakers of tasks.
    pub(crate) fn ready_elsewhere(self) {
        self.ready_in_silence().call_wakers_elsewhere();
    }

    /// As `ready`, but leaves it to the caller to call the wakers of tasks.
    pub(crate) fn ready_in_silence(mut self) -> Readied<Active> {
        let mut readied = Readied::new();
        while let Some(first) = self.0.pop_front() {
            // SAFETY: the record's wait is claimed, so the record stays until the owner is readied.
            let claimed = unsafe { first.as_ref() }.value.waiter.claimed();
            match claimed {
                // Most often there is one waiter.
                Claimed::G(g) if self.0.is_empty() && readied.is_empty() => goready(g),
                claimed => claimed.ready_with(&mut readied),
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
    /// Returns the queue of the waiters with this request.
    fn waiters(&mut self, want: &Self::Want) -> &mut WaitQueue<Self::Want>;
    /// Acts for a waiter that its runtime has left behind. If that waiter was notified, passes the notification on; otherwise
    /// serves the waiters that its record held back. The caller calls the wakers of those that are tasks. By default does
    /// nothing.
    fn settle(_want: &Self::Want, _notified: bool) -> Readied<Active> {
        Readied::new()
    }
}

/// A state that consists of a queue only.
impl<W> HasWaitQueue for WaitQueue<W> {
    type Want = W;
    fn waiters(&mut self, _want: &W) -> &mut WaitQueue<W> {
        self
    }
}

/// # Safety
/// `hook` is the hook of a record in a queue of `S`, and the record's owner never runs again.
unsafe fn run<S: HasWaitQueue>(hook: *const AbandonHook) {
    // SAFETY: by this function's contract. The record lies on a stack that stays as it is.
    let record = unsafe { &*hook.cast::<Record<S::Want>>() };
    // Another thread calls the wakers: no user code may run where a hook is run (`sched/stop.rs`).
    S::settle(&record.want, record.is_notified()).call_wakers_elsewhere();
}

/// The result of a wait whose waiter left the queue without a notification.
pub(crate) struct Left<'a, S> {
    /// The lock of the queue, under which the leaving waiter serves the waiters that it held back.
    pub(crate) state: MutexGuard<'a, S>,
    /// The interrupt that ended the wait; `None` for the time limit.
    pub(crate) by: Option<Interrupt>,
}

/// Waits in the queue until notified. `state` is the guard of `lock`, taken after `wait` began. Returns `want`, into which the
/// notifier may have written.
// Inlined, because a Wait and a How are large to move, and most of a How is known where it is made.
#[inline(always)]
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
#[inline(always)]
pub(crate) fn wait_in_and<'a, S: HasWaitQueue>(
    mut wait: Wait<Active>,
    (lock, mut state): (&'a Mutex<S>, MutexGuard<'a, S>),
    (want, position): (S::Want, Position),
    how: How,
    then: impl FnOnce(),
) -> Result<S::Want, Left<'a, S>> {
    let record = Record::new::<S>(want, wait.waiter());
    let node = NonNull::from(&record);
    wait.on_abandon((&raw const record.value).cast());
    // SAFETY: before this frame ends the record leaves the queue: the notifier that has claimed the wait takes it out, or the
    // code below does.
    unsafe { state.waiters(&record.value.want).insert(node, position) };
    let woke = wait.park(how, move || {
        drop(state);
        then();
        Commit::Park
    });
    wait.on_abandon(std::ptr::null());
    if record.value.is_notified() {
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
