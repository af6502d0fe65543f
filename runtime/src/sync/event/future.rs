//! The wait of a future.

use super::{Ask, Event, State};
use crate::prim::hooks::*;
use crate::sync::wait_queue::{Gone, HasWaitQueue, Position, TaskIn};
use crate::wait::task::TaskWait;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The steps of a future that waits for a notification. All calls are for one event, and `leave` comes before the drop.
pub(in crate::sync) struct Hearing(TaskIn<State>);

impl Hearing {
    pub(super) fn new() -> Self {
        Hearing(TaskIn::new())
    }

    fn task(self: Pin<&mut Self>) -> Pin<&mut TaskIn<State>> {
        // SAFETY: the place in the queue is pinned with this; nothing moves it.
        unsafe { self.map_unchecked_mut(|this| &mut this.0) }
    }

    /// Ready when the future was notified, or has taken the permit. The next poll after that begins anew.
    pub(in crate::sync) fn poll(self: Pin<&mut Self>, event: &Event, cx: &mut Context<'_>) -> Poll<()> {
        let task = self.task();
        if task.is_waiting() {
            return task.poll(cx).map(|_ask| ());
        }
        if event.state.lock().take_permit() {
            return Poll::Ready(());
        }
        // Before the lock, as foreign code clones the waker.
        let wait = TaskWait::open(cx.waker());
        let mut state = event.state.lock();
        if state.take_permit() {
            drop(state);
            wait.withdraw();
            return Poll::Ready(());
        }
        task.join(wait, &mut state, (Ask::new(event), Position::Back));
        Poll::Pending
    }

    /// Ends the wait. Passes on a notification that was for this future alone.
    pub(in crate::sync) fn leave(self: Pin<&mut Self>, event: &Event) {
        if let Some(Gone::Notified(ask)) = self.task().leave(&event.state) {
            unless!(EventForgetsItsNotification, State::settle(&ask, true).call_wakers());
        }
    }
}
