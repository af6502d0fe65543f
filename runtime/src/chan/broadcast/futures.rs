//! The types of the futures of [`broadcast`](super). See [`chan::futures`](crate::chan::futures) for their common properties.

use super::ring::{Found, State};
use super::{Receiver, RecvError, Sender};
use crate::chan::several::{self, Deserted, Side, poll_for};
use crate::impls::{future, opaque};
use crate::sync::ArcMutexGuard;
use crate::sync::futures::LockArc;
use crate::sync::wait_queue::TaskIn;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Receives the next message, as a future; made by [`Receiver::recv_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Recv<'a, T> {
    receiver: &'a mut Receiver<T>,
    /// `Some` from the poll that finds a message to the poll that clones it.
    turn: Option<LockArc<T>>,
    task: TaskIn<State<T>>,
}

/// The receiver, its turn to clone the message, and its place in the queue.
type Parts<'p, T> = (&'p mut Receiver<T>, Pin<&'p mut Option<LockArc<T>>>, Pin<&'p mut TaskIn<State<T>>>);

impl<'a, T> Recv<'a, T> {
    pub(super) fn new(receiver: &'a mut Receiver<T>) -> Self {
        Recv { receiver, turn: None, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> Parts<'_, T> {
        // SAFETY: `turn` and `task` are pinned with the future; nothing moves them.
        unsafe {
            let this = self.get_unchecked_mut();
            let turn = Pin::new_unchecked(&mut this.turn);
            (&mut *this.receiver, turn, Pin::new_unchecked(&mut this.task))
        }
    }
}

impl<T: Clone> Future for Recv<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (receiver, mut turn, task) = self.parts();
        if turn.is_none() {
            if let Some(message) = receiver.take_kept_alone() {
                return Poll::Ready(Ok(message));
            }
            let message = match &receiver.kept {
                Some(kept) => kept.lock_arc_async(),
                None => {
                    let (shared, next) = (&receiver.shared, &mut receiver.next);
                    let look = |state: &mut State<T>| state.look(next);
                    match ready!(poll_for(task, &shared.state, Side::Receivers, cx, look)) {
                        Found::Message(message) => message.lock_arc_async(),
                        Found::Closed => return Poll::Ready(Err(RecvError::Closed)),
                        Found::Lagged(missed) => {
                            shared.bells.ring(receiver.bell.as_ref());
                            return Poll::Ready(Err(RecvError::Lagged(missed)));
                        }
                    }
                }
            };
            turn.set(Some(message));
        }
        let message = ready!(turn.as_mut().as_pin_mut().expect("poll: the turn was set").poll(cx));
        turn.set(None);
        // After a clone that panics the next call finds the same message.
        let clone = T::clone(&message);
        let message = ArcMutexGuard::into_arc(message);
        if receiver.kept.is_some() {
            drop(message);
            return Poll::Ready(Ok(receiver.took_kept(clone)));
        }
        Poll::Ready(Ok(receiver.took(message, clone)))
    }
}

impl<T> Drop for Recv<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the future is dropped where it was pinned, if polled, and is never moved again.
        let (receiver, _, task) = unsafe { Pin::new_unchecked(self) }.parts();
        several::leave(task, &receiver.shared.state);
        receiver.ring_for_the_rest();
    }
}

opaque!([T] Recv<'_, T>);

future!(
    /// Waits until there is no receiver, or the channel is closed, as a future; made by [`Sender::closed_async`].
    ['a, T] Closed<'a, T> { &'a Sender<T>, Deserted<State<T>> } -> (),
    |sender| &sender.shared.state
);
