//! The wait of a future in a wait queue: the counterpart of [`wait_in`](super::wait_in).
//!
//! The record lies in the pinned future, from the poll that queues it to the poll that finds the future notified, or to the
//! drop. The future's type decides what becomes of a notification that a dropped future has not used ([`Gone`]).

use super::{HasWaitQueue, Position, Record};
use crate::host::Active;
use crate::prim::{Mutex, MutexGuard};
use crate::wait::queue::Node;
use crate::wait::task::TaskWait;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// A future's place in a queue of `S`. The future calls `leave` before the drop.
pub(crate) struct TaskIn<S: HasWaitQueue> {
    waiting: Option<Waiting<S::Want>>,
    _pinned: PhantomPinned,
}

struct Waiting<W> {
    wait: TaskWait<Active>,
    record: Node<Record<W>>,
}

// SAFETY: the record's links are touched under the lock of the queue, its other fields by the party that has claimed the wait
// or knows that the wait is over; that party's thread gets the want.
unsafe impl<S: HasWaitQueue<Want: Send>> Send for TaskIn<S> {}
// SAFETY: a shared reference only tells whether there is a wait.
unsafe impl<S: HasWaitQueue<Want: Send>> Sync for TaskIn<S> {}

/// How a future that waited has left its queue.
pub(crate) enum Gone<'a, S: HasWaitQueue> {
    /// The future was notified; the future's owner passes the notification on.
    Notified(S::Want),
    /// The future was not notified, and is out of the queue, whose lock is held: the owner serves the waiters that the record
    /// held back.
    Left(MutexGuard<'a, S>),
}

impl<S: HasWaitQueue> TaskIn<S> {
    /// Returns a place that is in no queue.
    pub(crate) fn new() -> Self {
        TaskIn { waiting: None, _pinned: PhantomPinned }
    }

    /// Returns `true` from `join` until the poll that finds the wait over, or until `leave`.
    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.is_some()
    }

    fn waiting(self: Pin<&mut Self>) -> &mut Option<Waiting<S::Want>> {
        // SAFETY: the record is moved only after the wait is over, or when the record has left the queue.
        unsafe { &mut self.get_unchecked_mut().waiting }
    }

    /// Queues the future. `wait` was opened before the queue's lock was taken, since foreign code clones the waker.
    pub(crate) fn join(
        self: Pin<&mut Self>,
        wait: TaskWait<Active>,
        state: &mut S,
        (want, position): (S::Want, Position),
    ) {
        // A task belongs to no runtime that could leave it behind: the record's hook is never run.
        let record = Record::new::<S>(want, wait.waiter());
        let waiting = self.waiting();
        debug_assert!(waiting.is_none(), "join: the future waits already");
        let Waiting { record, .. } = waiting.insert(Waiting { wait, record });
        let node = NonNull::from(&*record);
        // SAFETY: the record is pinned, and leaves the queue before it is dropped or moved: the notifier that claims the wait
        // takes it out, or `leave` does.
        unsafe { state.waiters(&record.value.want).insert(node, position) };
    }

    /// Ready when the future was notified, with the want, into which the notifier may have written; the future is then in no
    /// queue. If pending, the waker of this poll is called.
    pub(crate) fn poll(self: Pin<&mut Self>, cx: &Context<'_>) -> Poll<S::Want> {
        let waiting = self.waiting();
        let over = waiting.as_ref().is_some_and(|waiting| waiting.wait.is_over(cx.waker()));
        match waiting.take_if(|_| over) {
            Some(waiting) => Poll::Ready(waiting.record.value.want),
            None => Poll::Pending,
        }
    }

    /// Ends the wait, once, for the drop of the future; returns `None` if the future is in no queue. `lock` is the lock of the
    /// queue.
    pub(crate) fn leave<'a>(self: Pin<&mut Self>, lock: &'a Mutex<S>) -> Option<Gone<'a, S>> {
        let waiting = self.waiting();
        let Waiting { wait, record } = waiting.as_ref()?;
        if !wait.leave() {
            let Waiting { record, .. } = waiting.take()?;
            return Some(Gone::Notified(record.value.want));
        }
        let mut state = lock.lock();
        // SAFETY: the record stands in this queue, or a notifier has found the wait claimed and taken the record out.
        unsafe { state.waiters(&record.value.want).0.remove(NonNull::from(record)) };
        Some(Gone::Left(state))
    }
}
