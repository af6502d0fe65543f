//! Channels for tasks: receives and sends as futures, and halves of a channel that a task polls.

use super::flow::{TaskReceive, TaskSend};
use super::futures::{Recv, Send};
use super::{Receiver, RecvError, SendError, Sender};
use crate::impls::{opaque, unwind_safe};
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

impl<T> Receiver<T> {
    /// As [`recv`](Self::recv), as a future, whose polls do not block: any task may poll it, on goroutines
    /// ([`block_on`](crate::block_on)) and under other executors. The future waits from its first poll on, in one queue with
    /// the receivers that block: none overtakes it. Polled again after its end, the future receives another message. No runtime
    /// is needed.
    ///
    /// *Cancel safety*: a future that is dropped has taken no message. A future for which there was a message leaves the
    /// message, in its place, for the next receive; on a channel without a buffer, where the sender counts that message as
    /// received, the channel keeps the message for that receive. As with a blocking receive that is interrupted, a `select!`
    /// that was chosen for the future, and is about to evaluate its message, sends the message to another receiver.
    ///
    /// From the wake on a message is kept for this future: other receivers wait for it if they find no other. So poll a future
    /// that was woken, or drop it. A timer channel, such as [`tick`](crate::chan::tick)'s, keeps its message for 10 ms only.
    ///
    /// ```
    /// use gmp::{block_on, chan, go};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (sender, receiver) = chan::bounded(0);
    ///         go(move || sender.send("hello").unwrap());
    ///         block_on(async {
    ///             assert_eq!(receiver.recv_async().await, Ok("hello"));
    ///             // The sender was dropped with its goroutine.
    ///             assert!(receiver.recv_async().await.is_err());
    ///         });
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The output is an error if the channel is closed, and no message is left.
    pub fn recv_async(&self) -> Recv<'_, T> {
        Recv::new(self, TaskReceive::new())
    }
}

impl<T> Sender<T> {
    /// As [`send`](Self::send), as a future, whose polls do not block: any task may poll it, like the future of
    /// [`recv_async`](Receiver::recv_async). The future waits from its first poll on, in one queue with the senders that block.
    ///
    /// *Cancel safety*: a future that is dropped before it was ready has sent the message if a receiver or the buffer has taken
    /// the message meanwhile; otherwise the message is dropped. A message is never sent twice. To keep a message that is not
    /// sent, race [`PollSender`]s or [`try_send`](Self::try_send).
    ///
    /// ```
    /// use gmp::{block_on, chan, go};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (sender, receiver) = chan::bounded(1);
    ///         let adds = go(move || receiver.iter().take(3).sum::<i32>());
    ///         block_on(async {
    ///             for n in 1..=3 {
    ///                 sender.send_async(n).await.unwrap();
    ///             }
    ///             assert_eq!(adds.join().unwrap(), 6);
    ///             // The other half was dropped by now.
    ///             assert_eq!(sender.send_async(4).await.unwrap_err().into_inner(), 4);
    ///         });
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// The output is an error if the channel is closed. The error holds the message.
    ///
    /// # Panics
    /// If the future is polled after it was ready.
    pub fn send_async(&self, message: T) -> Send<'_, T> {
        Send::new(self, TaskSend::new(message))
    }
}

/// A [`Receiver`] that a task polls, from which a `Stream` can be made (`gmp-futures` has one). Dereferences to the receiver,
/// whose blocking calls can be used, too. After a poll that returned `Pending`, call [`stop`](Self::stop) before one of these:
/// until then the poll's place in the queue remains, and the next message may be kept for the poll, so that a blocking receive
/// would wait in vain.
///
/// ```
/// use gmp::{block_on, chan};
/// use std::future::poll_fn;
///
/// let (sender, receiver) = chan::unbounded();
/// let mut receiver = chan::PollReceiver::new(receiver);
/// sender.send(1).unwrap();
/// drop(sender);
/// assert_eq!(block_on(poll_fn(|cx| receiver.poll_recv(cx))), Ok(1));
/// assert!(block_on(poll_fn(|cx| receiver.poll_recv(cx))).is_err());
/// ```
pub struct PollReceiver<T> {
    receiver: Receiver<T>,
    /// Made at the first poll.
    receive: Option<Pin<Box<TaskReceive>>>,
}

impl<T> PollReceiver<T> {
    /// Wraps a receiver.
    pub fn new(receiver: Receiver<T>) -> Self {
        PollReceiver { receiver, receive: None }
    }

    /// Receives a message, or has the task of the last call woken when there may be one. Cancel-safe as
    /// [`recv_async`](Receiver::recv_async): the wait, with the message that is kept for it, continues from call to call, and
    /// ends with [`stop`](Self::stop) or the drop of this value.
    ///
    /// # Errors
    /// If the channel is closed, and no message is left.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, RecvError>> {
        let receive = self.receive.get_or_insert_with(|| Box::pin(TaskReceive::new()));
        receive.as_mut().poll(self.receiver.chan(), cx)
    }

    /// Ends the wait that [`poll_recv`](Self::poll_recv) has begun: leaves the queue, and passes a message that is kept for
    /// this receiver on to the next receive.
    ///
    /// ```
    /// use gmp::chan;
    /// use std::task::{Context, Waker};
    ///
    /// let (sender, receiver) = chan::unbounded();
    /// let mut receiver = chan::PollReceiver::new(receiver);
    /// assert!(receiver.poll_recv(&mut Context::from_waker(Waker::noop())).is_pending());
    /// sender.send(1).unwrap();
    /// assert!(receiver.try_recv().is_err(), "the message is kept for the next poll");
    /// receiver.stop();
    /// assert_eq!(receiver.try_recv(), Ok(1));
    /// ```
    pub fn stop(&mut self) {
        if let Some(receive) = &mut self.receive {
            receive.as_mut().leave(self.receiver.chan());
        }
    }

    /// Ends the wait, as [`stop`](Self::stop) does, and returns the receiver.
    pub fn into_inner(mut self) -> Receiver<T> {
        self.stop();
        std::mem::replace(&mut self.receiver, super::never())
    }
}

impl<T> Drop for PollReceiver<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

impl<T> Deref for PollReceiver<T> {
    type Target = Receiver<T>;

    fn deref(&self) -> &Receiver<T> {
        &self.receiver
    }
}

impl<T> From<Receiver<T>> for PollReceiver<T> {
    fn from(receiver: Receiver<T>) -> Self {
        PollReceiver::new(receiver)
    }
}

/// A [`Sender`] that a task polls, from which a `Sink` can be made (`gmp-futures` has one). Dereferences to the sender.
///
/// A `PollSender` has a place of its own for one message on its way to the channel: so [`start_send`](Self::start_send) after
/// [`poll_ready`](Self::poll_ready) accepts a message whatever others do, also without a buffer. The drop drops a message that
/// was not sent by then.
///
/// ```
/// use gmp::{block_on, chan};
/// use std::future::poll_fn;
///
/// let (sender, receiver) = chan::bounded(1);
/// let mut sender = chan::PollSender::new(sender);
/// for n in 1..=2 {
///     block_on(poll_fn(|cx| sender.poll_ready(cx))).unwrap();
///     sender.start_send(n).unwrap();
/// }
/// assert_eq!((receiver.recv(), receiver.recv()), (Ok(1), Ok(2)));
/// ```
pub struct PollSender<T> {
    sender: Sender<T>,
    /// A message that waits for room.
    send: Option<Pin<Box<TaskSend<T>>>>,
}

impl<T> PollSender<T> {
    /// Wraps a sender.
    pub fn new(sender: Sender<T>) -> Self {
        PollSender { sender, send: None }
    }

    /// Ready when no message is on its way to the channel: the last message that was given to [`start_send`](Self::start_send)
    /// was sent. If not ready, has the task of the last call woken when it may be.
    ///
    /// # Errors
    /// If the channel was closed before the message was sent. The error holds the message.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), SendError<T>>> {
        let chan = self.sender.chan();
        let Some(send) = &mut self.send else {
            return if chan.is_some() { Poll::Ready(Ok(())) } else { Poll::Pending };
        };
        let polled = send.as_mut().poll(chan, cx);
        if polled.is_ready() {
            self.send = None;
        }
        polled
    }

    /// Sends a message, or puts it on its way: then the message stands in the queue of the senders.
    ///
    /// # Errors
    /// If the channel is closed. The error holds the message.
    ///
    /// # Panics
    /// If a message is on its way: the last [`poll_ready`](Self::poll_ready) was not ready, or was followed by another
    /// `start_send`.
    #[track_caller]
    pub fn start_send(&mut self, message: T) -> Result<(), SendError<T>> {
        assert!(self.send.is_none(), "start_send: a message is on its way; poll_ready comes first");
        match self.sender.try_send(message) {
            Ok(()) => Ok(()),
            Err(error) if error.is_disconnected() => Err(SendError(error.into_inner())),
            Err(error) => {
                let send = self.send.insert(Box::pin(TaskSend::new(error.into_inner())));
                match send.as_mut().poll(self.sender.chan(), &mut Context::from_waker(Waker::noop())) {
                    Poll::Pending => Ok(()),
                    Poll::Ready(ended) => {
                        self.send = None;
                        ended
                    }
                }
            }
        }
    }

    /// Returns the sender, and the message on its way, if not sent by now.
    pub fn into_inner(mut self) -> (Sender<T>, Option<T>) {
        let message = self.take_back();
        (std::mem::replace(&mut self.sender, super::never_sender()), message)
    }

    /// Takes back the message on its way, if not sent by now.
    pub fn take_back(&mut self) -> Option<T> {
        self.send.take()?.as_mut().take_back(self.sender.chan())
    }
}

impl<T> Drop for PollSender<T> {
    fn drop(&mut self) {
        drop(self.take_back());
    }
}

impl<T> Deref for PollSender<T> {
    type Target = Sender<T>;

    fn deref(&self) -> &Sender<T> {
        &self.sender
    }
}

impl<T> From<Sender<T>> for PollSender<T> {
    fn from(sender: Sender<T>) -> Self {
        PollSender::new(sender)
    }
}

unwind_safe!([T] PollReceiver<T>, [T] PollSender<T>);
opaque!([T] PollReceiver<T>, [T] PollSender<T>);
