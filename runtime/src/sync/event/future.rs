//! The wait for an event as a future.

use super::{Event, Record};
use crate::host::Active;
use crate::prim::hooks::*;
use crate::wait::queue::Node;
use crate::wait::task::TaskWait;
use std::fmt;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Waits for a notification, as a future; made by [`Event::wait_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct EventWait<'a> {
    event: &'a Event,
    /// From the first poll that finds no permit on. The record stands in the event's queue, or a notifier has taken it out.
    waiting: Option<Waiting>,
    _pinned: PhantomPinned,
}

struct Waiting {
    wait: TaskWait<Active>,
    record: Node<Record>,
}

// SAFETY: the record's links are touched under the event's lock, its other fields by the one that has claimed the wait.
unsafe impl Send for EventWait<'_> {}
// SAFETY: nothing can be done with a shared reference.
unsafe impl Sync for EventWait<'_> {}

impl<'a> EventWait<'a> {
    pub(super) fn new(event: &'a Event) -> Self {
        EventWait { event, waiting: None, _pinned: PhantomPinned }
    }
}

impl Future for EventWait<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // SAFETY: the record is not moved from the poll that queues it to the one that finds the wait over, or the drop.
        let this = unsafe { self.get_unchecked_mut() };
        if let Some(waiting) = &this.waiting {
            if !waiting.wait.is_over(cx.waker()) {
                return Poll::Pending;
            }
            this.waiting = None;
            return Poll::Ready(());
        }
        if this.event.state.lock().take_permit() {
            return Poll::Ready(());
        }
        // Foreign code clones the waker, so before the lock.
        let wait = TaskWait::open(cx.waker());
        let record = Node::new(Record::new(wait.waiter()));
        let waiting = this.waiting.insert(Waiting { wait, record });
        let mut state = this.event.state.lock();
        if state.take_permit() {
            drop(state);
            waiting.wait.withdraw();
            this.waiting = None;
            return Poll::Ready(());
        }
        // SAFETY: the record is pinned, and leaves the queue before it is dropped: by the notifier that claims the wait, or
        // by the drop of this future.
        unsafe { state.waiters.push_back(NonNull::from(&waiting.record)) };
        Poll::Pending
    }
}

impl Drop for EventWait<'_> {
    fn drop(&mut self) {
        let Some(waiting) = &self.waiting else { return };
        if waiting.wait.leave() {
            // SAFETY: the record stands in this queue, or a notifier has found the wait claimed and taken the record out.
            unsafe { self.event.state.lock().waiters.remove(NonNull::from(&waiting.record)) };
        } else if waiting.record.value.is_the_only_one() {
            unless!(EventForgetsItsNotification, self.event.notify_one());
        }
    }
}

impl fmt::Debug for EventWait<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventWait").finish_non_exhaustive()
    }
}
