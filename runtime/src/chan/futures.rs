//! The futures of channels, by name: what [`recv_async`](super::Receiver::recv_async) and
//! [`send_async`](super::Sender::send_async) return. So a future can be a field of a struct, or the future type of a trait. Those
//! of the other channels are in [`broadcast::futures`](super::broadcast::futures) and
//! [`watch::futures`](super::watch::futures).
//!
//! No poll of these futures blocks, and each may be dropped at any time, as its method says. To limit the wait of one,
//! put [`time::timeout_async`](crate::time::timeout_async) around it. None of them is `Unpin`, as the place in the
//! channel's queue lies in the future.
//!
//! ```
//! use gmp::chan::{self, RecvError, futures::Recv};
//! use std::future::Future;
//! use std::pin::Pin;
//! use std::task::{Context, Poll, ready};
//!
//! /// The sum of two messages.
//! struct Both<'a>(Pin<Box<Recv<'a, u32>>>, Option<u32>);
//!
//! impl Future for Both<'_> {
//!     type Output = Result<u32, RecvError>;
//!
//!     fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
//!         loop {
//!             let next = ready!(self.0.as_mut().poll(cx))?;
//!             match self.1.take() {
//!                 Some(first) => return Poll::Ready(Ok(first + next)),
//!                 None => self.1 = Some(next),
//!             }
//!         }
//!     }
//! }
//!
//! let (sender, receiver) = chan::unbounded();
//! let both = Both(Box::pin(receiver.recv_async()), None);
//! (1..=2).for_each(|n| sender.send(n).unwrap());
//! assert_eq!(gmp::block_on(both), Ok(3));
//! ```

use super::flow::{TaskReceive, TaskSend};
use super::{Receiver, RecvError, SendError, Sender};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Receives a message, as a future; made by [`Receiver::recv_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Recv<'a, T> {
    receiver: &'a Receiver<T>,
    receive: TaskReceive,
}

impl<'a, T> Recv<'a, T> {
    pub(super) fn new(receiver: &'a Receiver<T>) -> Self {
        Recv { receiver, receive: TaskReceive::new() }
    }

    fn project(self: Pin<&mut Self>) -> (&Receiver<T>, Pin<&mut TaskReceive>) {
        // SAFETY: the receive is pinned with this value: it is reached by this function alone, and not moved.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.receiver, Pin::new_unchecked(&mut this.receive))
        }
    }
}

impl<T> Future for Recv<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (receiver, receive) = self.project();
        receiver.chan().map_or(Poll::Pending, |chan| receive.poll(chan, cx))
    }
}

impl<T> Drop for Recv<'_, T> {
    fn drop(&mut self) {
        // SAFETY: not moved any more.
        let (receiver, receive) = unsafe { Pin::new_unchecked(self) }.project();
        if let Some(chan) = receiver.chan() {
            receive.leave(chan);
        }
    }
}

impl<T> fmt::Debug for Recv<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Recv { .. }")
    }
}

/// Sends a message, as a future; made by [`Sender::send_async`].
#[must_use = "a future does nothing unless it is polled"]
pub struct Send<'a, T> {
    sender: &'a Sender<T>,
    send: TaskSend<T>,
}

impl<'a, T> Send<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>, message: T) -> Self {
        Send { sender, send: TaskSend::new(message) }
    }

    fn project(self: Pin<&mut Self>) -> (&Sender<T>, Pin<&mut TaskSend<T>>) {
        // SAFETY: as in `Recv`.
        unsafe {
            let this = self.get_unchecked_mut();
            (this.sender, Pin::new_unchecked(&mut this.send))
        }
    }
}

impl<T> Future for Send<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let (sender, send) = self.project();
        sender.chan().map_or(Poll::Pending, |chan| send.poll(chan, cx))
    }
}

impl<T> Drop for Send<'_, T> {
    fn drop(&mut self) {
        // SAFETY: not moved any more.
        let (sender, send) = unsafe { Pin::new_unchecked(self) }.project();
        drop(send.take_back(sender.chan()));
    }
}

impl<T> fmt::Debug for Send<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad("Send { .. }")
    }
}
