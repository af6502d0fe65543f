//! The futures of [`watch`](super), by name. See [`chan::futures`](crate::chan::futures) for what holds of all.

use super::shared::{Shared, State};
use super::{Receiver, RecvError, Ref, Sender};
use crate::chan::several::{self, Bell, Side, poll_for};
use crate::sync::futures::Read;
use crate::sync::wait_queue::TaskIn;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Waits for a change that the receiver has not seen, as a future; made by [`Receiver::changed_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Changed<'a, T> {
    receiver: &'a mut Receiver<T>,
    task: TaskIn<State>,
}

impl<'a, T> Changed<'a, T> {
    pub(super) fn new(receiver: &'a mut Receiver<T>) -> Self {
        Changed { receiver, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> (&mut Receiver<T>, Pin<&mut TaskIn<State>>) {
        // SAFETY: `task` is pinned with the future; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (&mut *this.receiver, Pin::new_unchecked(&mut this.task))
        }
    }
}

impl<T> Future for Changed<'_, T> {
    type Output = Result<(), RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (receiver, task) = self.parts();
        let seen = receiver.seen;
        let look = |state: &mut State| state.changed_since(seen);
        let version = ready!(poll_for(task, &receiver.shared.state, Side::Receivers, cx, look));
        Poll::Ready(version.map(|version| receiver.seen = version))
    }
}

impl<T> Drop for Changed<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the future is dropped where it was pinned, if it was polled, and is not moved any more.
        let (receiver, task) = unsafe { Pin::new_unchecked(self) }.parts();
        several::leave(task, &receiver.shared.state);
        receiver.shared.ring_for_the_rest(receiver.bell.as_ref(), receiver.seen);
    }
}

impl<T> fmt::Debug for Changed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").finish_non_exhaustive()
    }
}

/// Waits for a value that is right, as a future; made by [`Receiver::wait_for_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct WaitFor<'a, T, F> {
    asks: Asks<'a, T, F>,
    /// While a value is to be looked at; else the future waits for a change.
    reads: Option<Read<'a, T>>,
    task: TaskIn<State>,
}

/// A receiver, whose value is returned as its count is written, and the question.
struct Asks<'a, T, F> {
    shared: &'a Shared<T>,
    bell: Option<&'a Bell>,
    seen: &'a mut u64,
    is_right: F,
}

/// What is asked, the read, and the place in the queue.
type Parts<'p, 'a, T, F> =
    (&'p mut Asks<'a, T, F>, Pin<&'p mut Option<Read<'a, T>>>, Pin<&'p mut TaskIn<State>>);

impl<'a, T, F> WaitFor<'a, T, F> {
    pub(super) fn new(receiver: &'a mut Receiver<T>, is_right: F) -> Self {
        let Receiver { shared, seen, bell } = receiver;
        let asks = Asks { shared, bell: bell.as_ref(), seen, is_right };
        WaitFor { reads: Some(asks.shared.value.read_async()), asks, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> Parts<'_, 'a, T, F> {
        // SAFETY: `reads` and `task` are pinned with the future; nothing moves them.
        unsafe {
            let this = self.get_unchecked_mut();
            (&mut this.asks, Pin::new_unchecked(&mut this.reads), Pin::new_unchecked(&mut this.task))
        }
    }
}

impl<'a, T, F: FnMut(&T) -> bool> Future for WaitFor<'a, T, F> {
    type Output = Result<Ref<'a, T>, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (asks, mut reads, mut task) = self.parts();
        let shared = asks.shared;
        loop {
            if let Some(read) = reads.as_mut().as_pin_mut() {
                let value = shared.saw(ready!(read.poll(cx)), asks.seen);
                reads.set(None);
                if (asks.is_right)(&value) {
                    reads.set(Some(shared.value.read_async()));
                    return Poll::Ready(Ok(value));
                }
            }
            let seen = *asks.seen;
            let look = |state: &mut State| state.changed_since(seen);
            ready!(poll_for(task.as_mut(), &shared.state, Side::Receivers, cx, look))?;
            reads.set(Some(shared.value.read_async()));
        }
    }
}

impl<T, F> Drop for WaitFor<'_, T, F> {
    fn drop(&mut self) {
        // SAFETY: as in `Changed`.
        let (asks, _, task) = unsafe { Pin::new_unchecked(self) }.parts();
        several::leave(task, &asks.shared.state);
        asks.shared.ring_for_the_rest(asks.bell, *asks.seen);
    }
}

impl<T, F> fmt::Debug for WaitFor<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitFor").finish_non_exhaustive()
    }
}

/// Waits until there is no receiver, or the channel is closed, as a future; made by [`Sender::closed_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Closed<'a, T> {
    sender: &'a Sender<T>,
    task: TaskIn<State>,
}

impl<'a, T> Closed<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>) -> Self {
        Closed { sender, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> (&'a Sender<T>, Pin<&mut TaskIn<State>>) {
        // SAFETY: `task` is pinned with the future; nothing moves it.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.sender, Pin::new_unchecked(&mut this.task))
        }
    }
}

impl<T> Future for Closed<'_, T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let (sender, task) = self.parts();
        let look = |state: &mut State| state.parties.is_deserted().then_some(());
        poll_for(task, &sender.shared.state, Side::Senders, cx, look)
    }
}

impl<T> Drop for Closed<'_, T> {
    fn drop(&mut self) {
        // SAFETY: as in `Changed`.
        let (sender, task) = unsafe { Pin::new_unchecked(self) }.parts();
        several::leave(task, &sender.shared.state);
    }
}

impl<T> fmt::Debug for Closed<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closed").finish_non_exhaustive()
    }
}
