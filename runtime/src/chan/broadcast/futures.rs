//! The types of the futures of [`broadcast`](super). See [`chan::futures`](crate::chan::futures) for their common properties.

use super::ring::{Block, Found, State};
use super::{Receiver, RecvError, Sees, Sender};
use crate::chan::several::{self, Deserted, Side, poll_for};
use crate::impls::{future, opaque};
use crate::prim::Arc;
use crate::sync::Mutex;
use crate::sync::futures::{Lock, LockArc};
use crate::sync::wait_queue::TaskIn;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Receives the next message, as a future; made by [`Receiver::recv_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Recv<'a, T> {
    receiver: &'a mut Receiver<T>,
    /// `Some` from the poll that finds a message to the poll that clones it.
    turn: Option<Turn<'a, T>>,
    task: TaskIn<State<T>>,
}

/// The wait for the lock of a message.
enum Turn<'a, T> {
    /// Of one that an earlier call has kept.
    Kept(LockArc<T>),
    /// Of the next one. The lock is in the block.
    Next(Lock<'a, Option<T>>, Arc<Block<T>>),
}

/// The receiver, its turn to clone the message, and its place in the queue.
type Parts<'p, 'a, T> =
    (&'p mut Receiver<T>, Pin<&'p mut Option<Turn<'a, T>>>, Pin<&'p mut TaskIn<State<T>>>);

/// Returns the turn at the message `next`, which is in this block.
fn turn_in<'a, T: 'a>(block: Arc<Block<T>>, next: u64) -> Turn<'a, T> {
    let value = &raw const block.node(next).expect("turn_in: the message is in the block").value;
    // SAFETY: the turn has the block, which does not move its nodes. The lock is dropped before the block, as the field before
    // it; a guard that comes of it is dropped before a clone of the `Arc` that `poll` takes.
    let value: &'a Mutex<Option<T>> = unsafe { &*value };
    Turn::Next(value.lock_async(), block)
}

impl<'a, T> Recv<'a, T> {
    pub(super) fn new(receiver: &'a mut Receiver<T>) -> Self {
        Recv { receiver, turn: None, task: TaskIn::new() }
    }

    fn parts(self: Pin<&mut Self>) -> Parts<'_, 'a, T> {
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
        let (receiver, mut turn, mut task) = self.parts();
        loop {
            if turn.is_none() {
                if let Some(message) = receiver.take_kept_alone() {
                    return Poll::Ready(Ok(message));
                }
                let at = match &receiver.kept {
                    Some(kept) => Turn::Kept(kept.lock_arc_async()),
                    None => {
                        let (shared, next) = (&receiver.shared, &mut receiver.next);
                        let look = |state: &mut State<T>| state.look(next, None);
                        match ready!(poll_for(task.as_mut(), &shared.state, Side::Receivers, cx, look)) {
                            Found::Message(block) => {
                                turn_in(block.expect("poll: a look without a block gives one"), receiver.next)
                            }
                            Found::Closed => return Poll::Ready(Err(RecvError::Closed)),
                            Found::Lagged(missed) => {
                                shared.bells.ring(receiver.bell.as_ref());
                                return Poll::Ready(Err(RecvError::Lagged(missed)));
                            }
                        }
                    }
                };
                turn.set(Some(at));
            }
            // SAFETY: the turn is pinned with the future: the locks, which are polled, don't move.
            let at = unsafe { turn.as_mut().get_unchecked_mut() }.as_mut().expect("poll: the turn was set");
            match at {
                Turn::Kept(lock) => {
                    // SAFETY: as above.
                    let message = ready!(unsafe { Pin::new_unchecked(lock) }.poll(cx));
                    turn.set(None);
                    // After a clone that panics the next call finds the same message.
                    let clone = T::clone(&message);
                    drop(message);
                    return Poll::Ready(Ok(receiver.took_kept(clone)));
                }
                Turn::Next(lock, block) => {
                    // Dropped after the guard.
                    let block = Arc::clone(block);
                    // SAFETY: as above.
                    let value = ready!(unsafe { Pin::new_unchecked(lock) }.poll(cx));
                    turn.set(None);
                    let node = block.node(receiver.next).expect("poll: the message is in the block");
                    let Receiver { shared, next, kept, bell, .. } = &mut *receiver;
                    let sees = Sees { shared, bell: bell.as_ref(), kept, next };
                    if let Some(message) = sees.see(node, value) {
                        return Poll::Ready(Ok(message));
                    }
                }
            }
        }
    }
}

impl<T> Drop for Recv<'_, T> {
    fn drop(&mut self) {
        // SAFETY: the future is dropped where it was pinned, if polled, and is never moved again.
        let (receiver, mut turn, task) = unsafe { Pin::new_unchecked(self) }.parts();
        several::leave(task, &receiver.shared.state);
        let block = match &*turn {
            Some(Turn::Next(_, block)) => Some(Arc::clone(block)),
            _ => None,
        };
        turn.set(None);
        receiver.ring_for_the_rest();
        // The lock may have been notified, and so held, for a moment. Last, as the `drop` of a message may unwind.
        if let Some(node) = block.as_ref().and_then(|block| block.node(receiver.next)) {
            node.tidy();
        }
    }
}

opaque!([T] Recv<'_, T>);

future!(
    /// Waits until there is no receiver, or the channel is closed, as a future; made by [`Sender::closed_async`].
    ['a, T] Closed<'a, T> { &'a Sender<T>, Deserted<State<T>> } -> (),
    |sender| &sender.shared.state
);
