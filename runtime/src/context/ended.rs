//! The end of a context as a future.

use super::ContextError;
use super::tree::{Dependent, DependentNode, Node};
use crate::host::Active;
use crate::impls::opaque;
use crate::prim::Arc;
use crate::wait::queue;
use crate::wait::task::TaskWait;
use std::future::Future;
use std::marker::PhantomPinned;
use std::pin::Pin;
use std::ptr::NonNull;
use std::task::{Context, Poll};

/// Waits for the end of a context, as a future; made by [`Context::ended`](super::Context::ended).
#[must_use = "a future does nothing unless it is polled"]
pub struct Ended {
    /// `None` if the context is never done.
    node: Option<Arc<Node>>,
    /// `Some` from the first poll that finds the node open. The place stands in the node's list.
    waiting: Option<Waiting>,
    _pinned: PhantomPinned,
}

struct Waiting {
    wait: TaskWait<Active>,
    place: DependentNode,
}

// SAFETY: the place's links are touched under the node's lock; the ender reads the Waiter there, under that lock.
unsafe impl Send for Ended {}
// SAFETY: a shared reference has no operations.
unsafe impl Sync for Ended {}

impl Ended {
    pub(super) fn new(node: Option<Arc<Node>>) -> Self {
        Ended { node, waiting: None, _pinned: PhantomPinned }
    }

    /// Takes the place out of the list, when the wait is over.
    fn leave(&mut self) {
        if let (Some(waiting), Some(node)) = (&self.waiting, &self.node) {
            // SAFETY: the place stands in this list.
            unsafe { node.remove(NonNull::from(&waiting.place)) };
            self.waiting = None;
        }
    }
}

impl Future for Ended {
    type Output = ContextError;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ContextError> {
        // SAFETY: the place is not moved from the poll that puts it into the list until `leave`.
        let this = unsafe { self.get_unchecked_mut() };
        if let Some(waiting) = &this.waiting {
            if !waiting.wait.is_over(cx.waker()) {
                return Poll::Pending;
            }
            this.leave();
        }
        let Some(node) = &this.node else { return Poll::Pending };
        if let Some(error) = node.err() {
            return Poll::Ready(error);
        }
        let wait = TaskWait::open(cx.waker());
        let place = queue::Node::new(Dependent::Task(wait.waiter()));
        let Waiting { wait, place } = this.waiting.insert(Waiting { wait, place });
        // SAFETY: the place is pinned, and leaves the list in `leave`, before it is dropped.
        if let Err(verdict) = unsafe { node.add(NonNull::from(&*place)) } {
            wait.withdraw();
            this.waiting = None;
            return Poll::Ready(verdict.error);
        }
        Poll::Pending
    }
}

impl Drop for Ended {
    fn drop(&mut self) {
        // The ender claims and readies the wait under the list's lock. Every task is told of the end, so there is nothing to
        // pass on.
        self.leave();
    }
}

opaque!(Ended);
