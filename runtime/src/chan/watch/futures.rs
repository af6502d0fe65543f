//! The types of the futures of [`watch`](super). See [`chan::futures`](crate::chan::futures) for their common properties.

use super::shared::{Shared, State};
use super::{Receiver, RecvError, Ref, Sender};
use crate::chan::several::{self, Bell, Deserted, Side, poll_for};
use crate::impls::{future, opaque};
use crate::sync::futures::Read;
use crate::sync::wait_queue::TaskIn;
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
        // SAFETY: the future is dropped where it was pinned, if polled, and is never moved again.
        let (receiver, task) = unsafe { Pin::new_unchecked(self) }.parts();
        several::leave(task, &receiver.shared.state);
        receiver.shared.ring_for_the_rest(receiver.bell.as_ref(), receiver.seen);
    }
}

opaque!([T] Changed<'_, T>);

/// Waits for a value for which the condition holds, as a future; made by [`Receiver::wait_for_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct WaitFor<'a, T, F> {
    asks: Asks<'a, T, F>,
    /// `Some` while the future has to look at a value; otherwise it waits for a change.
    reads: Option<Read<'a, T>>,
    task: TaskIn<State>,
}

/// The parts of a receiver, and the condition. Apart, since the value is returned while the count is written.
struct Asks<'a, T, F> {
    shared: &'a Shared<T>,
    bell: Option<&'a Bell>,
    seen: &'a mut u64,
    is_right: F,
}

/// The condition with its receiver, the read, and the place in the queue.
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
                // For a poll after the end, also after a panic of the condition, which begins again.
                reads.set(Some(shared.value.read_async()));
                if (asks.is_right)(&value) {
                    return Poll::Ready(Ok(value));
                }
                reads.set(None);
            }
            let seen = *asks.seen;
            let look = |state: &mut State| state.changed_since(seen);
            let changed = ready!(poll_for(task.as_mut(), &shared.state, Side::Receivers, cx, look));
            reads.set(Some(shared.value.read_async()));
            changed?;
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

opaque!([T, F] WaitFor<'_, T, F>);

future!(
    /// Waits until there is no receiver, or the channel is closed, as a future; made by [`Sender::closed_async`].
    ['a, T] Closed<'a, T> { &'a Sender<T>, Deserted<State> } -> (),
    |sender| &sender.shared.state
);
