//! Channels of [`gmp`] as [`Stream`] and [`Sink`] of the `futures` crates, and its sockets as
//! [`AsyncRead`](futures_io::AsyncRead) and [`AsyncWrite`](futures_io::AsyncWrite).
//!
//! gmp's own channels have futures already: [`recv_async`](gmp::chan::Receiver::recv_async) and
//! [`send_async`](gmp::chan::Sender::send_async). Code that takes a stream or a sink (combinators, `forward`, the bodies of
//! HTTP crates) gets one of these:
//!
//! | gmp | here | is a |
//! | --- | --- | --- |
//! | [`Receiver`] | [`ReceiverStream`] | [`Stream`], which ends when the channel is closed and empty |
//! | [`Sender`] | [`SenderSink`] | [`Sink`], whose error gives the message back |
//! | [`broadcast::Receiver`](gmp::chan::broadcast::Receiver) | [`BroadcastStream`] | [`Stream`] of each message, or of what was missed |
//! | [`watch::Receiver`](gmp::chan::watch::Receiver) | [`WatchStream`] | [`Stream`] of the latest values |
//! | [`TcpStream`](gmp::net::TcpStream), [`UnixStream`](gmp::net::UnixStream) | [`GmpIo`] | reader and writer of bytes |
//!
//! The ends of a channel may be polled by any task: on a goroutine ([`gmp::block_on`]), and under every executor. The other
//! end may block, in a goroutine or a plain thread. No runtime is needed for that. A socket needs a runtime's poller: see
//! [`GmpIo`].
//!
//! ```
//! use futures_util::{SinkExt, StreamExt};
//! use gmp::{block_on, chan, go};
//! use gmp_futures::{ReceiverStream, SenderSink};
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let (numbers, taken) = chan::bounded(4);
//!         let (squares, results) = chan::bounded(0);
//!         go(move || (1..=10).for_each(|n: u64| numbers.send(n).unwrap()));
//!         go(move || {
//!             let squared = ReceiverStream::new(taken).map(|n| Ok(n * n));
//!             block_on(squared.forward(SenderSink::new(squares))).unwrap();
//!         });
//!         assert_eq!(results.iter().sum::<u64>(), 385);
//!     })
//! }
//! ```

mod several;
mod stream;

pub use several::{BroadcastStream, Lagged, WatchStream};
pub use stream::GmpIo;

use futures_core::{FusedStream, Stream};
use futures_sink::Sink;
use gmp::chan::{PollReceiver, PollSender, Receiver, SendError, Sender};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A receiver as a stream of its messages, which ends when the channel is closed, and no message is left.
///
/// The stream waits in one queue with the receivers that block, from a poll that finds nothing to the poll that gets a message;
/// a message that comes for the stream is kept for it meanwhile. So poll a stream whose task was woken, or
/// [`stop`](PollReceiver::stop) or drop it: then the message goes to the next receiver. No message is lost with a stream.
#[derive(Debug)]
pub struct ReceiverStream<T> {
    receiver: PollReceiver<T>,
    ended: bool,
}

impl<T> ReceiverStream<T> {
    /// Makes a stream of a receiver. If a clone of the receiver receives as well, each message goes to one of the two.
    pub fn new(receiver: Receiver<T>) -> Self {
        ReceiverStream { receiver: PollReceiver::new(receiver), ended: false }
    }

    /// Ends the wait that a poll has begun. A later poll begins another wait.
    pub fn stop(&mut self) {
        self.receiver.stop();
    }

    /// Returns the receiver.
    pub fn into_inner(self) -> Receiver<T> {
        self.receiver.into_inner()
    }
}

impl<T> From<Receiver<T>> for ReceiverStream<T> {
    fn from(receiver: Receiver<T>) -> Self {
        ReceiverStream::new(receiver)
    }
}

impl<T> Deref for ReceiverStream<T> {
    type Target = Receiver<T>;

    fn deref(&self) -> &Receiver<T> {
        &self.receiver
    }
}

impl<T> Stream for ReceiverStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let polled = self.receiver.poll_recv(cx).map(Result::ok);
        self.ended = matches!(polled, Poll::Ready(None));
        polled
    }
}

impl<T> FusedStream for ReceiverStream<T> {
    fn is_terminated(&self) -> bool {
        self.ended
    }
}

/// A sender as a sink.
///
/// The sink holds one message on its way to the channel. [`poll_ready`](Sink::poll_ready) and [`poll_flush`](Sink::poll_flush)
/// wait until that message is in the channel's buffer, or, without a buffer, was received. A message on its way waits in one
/// queue with the senders that block. Dropping the sink drops the message if it was not sent by then;
/// [`take_back`](Self::take_back) returns it.
///
/// [`poll_close`](Sink::poll_close) flushes and drops the sender: the channel closes if it was the last one.
///
/// # Errors
/// The sink's operations fail if the channel is closed. The error has the message that was not sent, which may be the message
/// of an earlier call.
#[derive(Debug)]
pub struct SenderSink<T> {
    /// `None`: closed.
    sender: Option<PollSender<T>>,
}

impl<T> SenderSink<T> {
    /// Makes a sink of a sender.
    pub fn new(sender: Sender<T>) -> Self {
        SenderSink { sender: Some(PollSender::new(sender)) }
    }

    /// Returns the sender; `None` once the sink is closed.
    pub fn sender(&self) -> Option<&Sender<T>> {
        self.sender.as_deref()
    }

    /// Takes back the message that is on its way, if it was not sent by now.
    pub fn take_back(&mut self) -> Option<T> {
        self.sender.as_mut()?.take_back()
    }
}

impl<T> From<Sender<T>> for SenderSink<T> {
    fn from(sender: Sender<T>) -> Self {
        SenderSink::new(sender)
    }
}

impl<T> Sink<T> for SenderSink<T> {
    type Error = SendError<T>;

    fn poll_ready(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        self.sender.as_mut().map_or(Poll::Ready(Ok(())), |sender| sender.poll_ready(cx))
    }

    fn start_send(mut self: Pin<&mut Self>, message: T) -> Result<(), SendError<T>> {
        match &mut self.sender {
            Some(sender) => sender.start_send(message),
            None => Err(SendError(message)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        self.poll_ready(cx)
    }

    fn poll_close(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let flushed = self.as_mut().poll_ready(cx);
        if flushed.is_ready() {
            self.sender = None;
        }
        flushed
    }
}
