//! The types of the futures that [`recv_async`](super::Receiver::recv_async) and [`send_async`](super::Sender::send_async)
//! return, for use as a field of a struct, or as the future type of a trait. The futures of the other channels are in
//! [`broadcast::futures`](super::broadcast::futures) and [`watch::futures`](super::watch::futures).
//!
//! No poll of these futures blocks, and each can be dropped at any time, as its method says. To limit the wait of a future,
//! wrap it in [`time::timeout_async`](crate::time::timeout_async). None of them is `Unpin`, as the place in the channel's queue
//! lies in the future.
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
use crate::impls::future;

future!(
    /// Receives a message, as a future; made by [`Receiver::recv_async`].
    ['a, T] Recv<'a, T> { &'a Receiver<T>, TaskReceive } -> Result<T, RecvError>,
    |receiver| receiver.chan()
);
future!(
    /// Sends a message, as a future; made by [`Sender::send_async`].
    ['a, T] Send<'a, T> { &'a Sender<T>, TaskSend<T> } -> Result<(), SendError<T>>,
    |sender| sender.chan()
);
