//! The two halves of a channel: the sender and the receiver.

use super::flow::{Abandoned, Chan, Ended, Owned, Party};
use super::{RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError, Woken};
use crate::host::{Active, Clock};
use crate::impls::{opaque, unwind_safe};
use crate::sched::park::{Commit, WaitReason};
use crate::wait::waiter::{How, Wait, Woke};
use gmp_timers::Nanos;
use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

/// The half that sends. Clones send to the same channel; when the last one is dropped, the channel closes.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (sender, receiver) = gmp::chan::bounded(1);
///         let others = sender.clone();
///         let worker = gmp::go(move || others.send("theirs"));
///         sender.send("ours").unwrap();
///         let mut got = [receiver.recv().unwrap(), receiver.recv().unwrap()];
///         got.sort();
///         assert_eq!(got, ["ours", "theirs"]);
///         worker.join().unwrap().unwrap();
///     })
/// }
/// ```
pub struct Sender<T> {
    pub(super) chan: Option<Owned<T>>,
}

/// The half that receives. Clones receive from the same channel, and each message goes to one of them; when the last one is
/// dropped, the channel closes.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (sender, receiver) = gmp::chan::bounded(8);
///         gmp::go(move || (0..3).for_each(|n| sender.send(n).unwrap()));
///         // Ends when the last sender was dropped.
///         assert_eq!(receiver.into_iter().sum::<i32>(), 3);
///     })
/// }
/// ```
pub struct Receiver<T> {
    pub(super) chan: Option<Owned<T>>,
}

// SAFETY: a half of a channel moves messages in and out, each to one thread, and gives no reference to a message in the
// channel.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Sender<T> {}
// SAFETY: as for `Sender`.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as for `Send`.
unsafe impl<T: Send> Sync for Receiver<T> {}
unwind_safe!([T] Sender<T>, [T] Receiver<T>);

/// Waits until `limit`; only an interrupt ends the wait earlier.
fn wait_for_nothing(limit: Option<Nanos>) {
    let how = How::new(WaitReason::Never).until(limit);
    let woke = Wait::<Active>::begin().park(how, || Commit::Park);
    if let Woke::Interrupted(why) = woke {
        why.throw::<Active>();
    }
}

impl<T> Sender<T> {
    pub(crate) fn chan(&self) -> Option<&Chan<T>> {
        self.chan.as_deref()
    }

    /// Sends the message. The message is moved out if and only if the result is Done.
    ///
    /// # Safety
    /// `message` is initialised.
    unsafe fn send_until(&self, message: &mut MaybeUninit<T>, limit: Option<Nanos>) -> Ended {
        match self.chan() {
            // SAFETY: by this function's contract.
            Some(chan) => unsafe { chan.send(message.as_mut_ptr(), limit) },
            None => {
                let goes_with_an_unwinding = Abandoned(message.as_mut_ptr());
                wait_for_nothing(limit);
                std::mem::forget(goes_with_an_unwinding);
                Ended::TimedOut
            }
        }
    }

    /// Sends a message. Blocks the goroutine, or the plain thread, until there is room in the buffer; without a
    /// buffer, until a receiver takes the message.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (sender, receiver) = gmp::chan::bounded(0);
    ///         gmp::go(move || {
    ///             sender.send("hello").unwrap();
    ///             // The other half was dropped by then.
    ///             assert_eq!(sender.send("world").unwrap_err().into_inner(), "world");
    ///         });
    ///         assert_eq!(receiver.recv(), Ok("hello"));
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the channel is closed. The error holds the message.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut message = MaybeUninit::new(message);
        // SAFETY: `message` is initialised, and was moved out if and only if the result is Done.
        unsafe {
            match self.send_until(&mut message, None) {
                Ended::Done => Ok(()),
                _ => Err(SendError(message.assume_init())),
            }
        }
    }

    /// Sends a message if that is possible at once. Does not block.
    ///
    /// # Errors
    /// If there is no room, or, without a buffer, no waiting receiver; or if the channel is closed. The error holds the
    /// message.
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let Some(chan) = self.chan() else { return Err(TrySendError::Full(message)) };
        let mut message = MaybeUninit::new(message);
        // SAFETY: `message` is initialised, and was moved out if and only if the result is Done.
        unsafe {
            match chan.try_send(message.as_mut_ptr()) {
                Ended::Done => Ok(()),
                Ended::Closed => Err(TrySendError::Disconnected(message.assume_init())),
                Ended::TimedOut => Err(TrySendError::Full(message.assume_init())),
            }
        }
    }

    /// Sends a message, unless an equal one lies in the buffer, or the channel is closed. For a channel of `once_each`. Does
    /// not block.
    pub(crate) fn send_absent(&self, message: T)
    where
        T: Copy + PartialEq,
    {
        if let Some(chan) = self.chan() {
            chan.send_absent(message);
        }
    }

    /// As [`send`](Self::send), for at most `timeout`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the time has passed, or the channel is closed. The error holds the message.
    pub fn send_timeout(&self, message: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_in_time(message, Some(Active::after(timeout)))
    }

    /// As [`send`](Self::send), until `deadline` at most.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`send_timeout`](Self::send_timeout).
    pub fn send_deadline(&self, message: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_in_time(message, Some(Active::nanos(deadline)))
    }

    fn send_in_time(&self, message: T, limit: Option<Nanos>) -> Result<(), SendTimeoutError<T>> {
        let mut message = MaybeUninit::new(message);
        // SAFETY: as in `send`.
        unsafe {
            match self.send_until(&mut message, limit) {
                Ended::Done => Ok(()),
                Ended::Closed => Err(SendTimeoutError::Disconnected(message.assume_init())),
                Ended::TimedOut => Err(SendTimeoutError::Timeout(message.assume_init())),
            }
        }
    }
}

impl<T> Receiver<T> {
    pub(crate) fn chan(&self) -> Option<&Chan<T>> {
        self.chan.as_deref()
    }

    /// Closes the channel, even one that users can't close. The caller readies the waiters in `woken`, without a lock.
    pub(crate) fn shut_and_tell(&self, woken: &mut Woken) {
        self.chan().map(|chan| chan.shut_and_tell(woken));
    }

    fn recv_until(&self, limit: Option<Nanos>) -> Result<T, Ended> {
        let Some(chan) = self.chan() else {
            wait_for_nothing(limit);
            return Err(Ended::TimedOut);
        };
        let mut slot = MaybeUninit::uninit();
        // SAFETY: the slot is valid for a write of a `T`, and holds a `T` when the result is Done.
        unsafe {
            match chan.recv(slot.as_mut_ptr(), limit) {
                Ended::Done => Ok(slot.assume_init()),
                ended => Err(ended),
            }
        }
    }

    /// Receives a message. Blocks the goroutine, or the plain thread, until there is one.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (sender, receiver) = gmp::chan::bounded(0);
    ///         gmp::go(move || sender.send(6 * 7));
    ///         assert_eq!(receiver.recv(), Ok(42));
    ///         // The sender was dropped with its goroutine.
    ///         assert!(receiver.recv().is_err());
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the channel is closed, and no message is left.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_until(None).map_err(|_| RecvError)
    }

    /// Receives a message that is there. Does not block, except in one case: another goroutine's `select!` is about to send,
    /// and has yet to evaluate the message. For that message `try_recv` blocks the thread, with the P handed off, for some 10
    /// ms at most; or 20 ms, if that `select!` sends no message after all, and `try_recv` asks other senders. The end of a
    /// context does not unwind `try_recv`.
    ///
    /// # Errors
    /// If no message is there. The error tells whether the channel is closed.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let Some(chan) = self.chan() else { return Err(TryRecvError::Empty) };
        let mut slot = MaybeUninit::uninit();
        // SAFETY: as in `recv_until`.
        unsafe {
            match chan.try_recv(slot.as_mut_ptr()) {
                Ended::Done => Ok(slot.assume_init()),
                Ended::Closed => Err(TryRecvError::Disconnected),
                Ended::TimedOut => Err(TryRecvError::Empty),
            }
        }
    }

    /// As [`recv`](Self::recv), for at most `timeout`; or some 10 ms longer, if this call has chosen an arm of a `select!`
    /// whose message is still being evaluated; or 20 ms longer, as in [`try_recv`](Self::try_recv).
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If the time has passed, or the channel is closed and drained.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_until(Some(Active::after(timeout))).map_err(Self::in_time)
    }

    /// As [`recv`](Self::recv), until `deadline` at most; or some 10 ms longer, as in [`recv_timeout`](Self::recv_timeout).
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`recv_timeout`](Self::recv_timeout).
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_until(Some(Active::nanos(deadline))).map_err(Self::in_time)
    }

    fn in_time(ended: Ended) -> RecvTimeoutError {
        match ended {
            Ended::Closed => RecvTimeoutError::Disconnected,
            _ => RecvTimeoutError::Timeout,
        }
    }
}

/// The methods that both halves have.
macro_rules! half {
    ($name:ident, $drop:ident) => {
        impl<T> $name<T> {
            /// Returns `true` if there is no message in the buffer. Without a buffer always returns `true`, unless a future was
            /// dropped for which a message was kept.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Returns `true` if there is no room in the buffer. Without a buffer always returns `true`.
            pub fn is_full(&self) -> bool {
                self.chan().is_none_or(Chan::is_full)
            }

            /// Returns the number of messages in the buffer. A message for which a future was woken does not count; when such a
            /// future is dropped its message counts again, even if the number then exceeds the capacity.
            pub fn len(&self) -> usize {
                self.chan().map_or(0, Chan::len)
            }

            /// Returns the number of messages that the buffer has room for; `None` for any number, as in an unbounded channel.
            /// A [`bounded`](crate::chan::bounded) channel of `usize::MAX`, which only zero-sized messages can have, counts as
            /// unbounded: the number of messages never gets there.
            pub fn capacity(&self) -> Option<usize> {
                let capacity = self.chan().map_or(0, Chan::capacity);
                (capacity != usize::MAX).then_some(capacity)
            }

            /// Returns the number of senders at this moment; 0 for a timer channel and for a disabled one. Does not block. A
            /// [`PollSender`](crate::chan::PollSender) counts as a sender; a future borrows a sender, and does not count.
            ///
            /// ```
            /// let (sender, receiver) = gmp::chan::bounded::<u32>(1);
            /// let another = sender.clone();
            /// assert_eq!((receiver.sender_count(), receiver.receiver_count()), (2, 1));
            /// drop((sender, another));
            /// assert_eq!((receiver.sender_count(), receiver.is_closed()), (0, true));
            /// ```
            pub fn sender_count(&self) -> usize {
                self.chan.as_ref().map_or(0, |chan| chan.ends(Party::Sender))
            }

            /// Returns the number of receivers at this moment; 0 for a disabled channel. Does not block. An iterator that owns
            /// its receiver counts, and so does a [`PollReceiver`](crate::chan::PollReceiver).
            pub fn receiver_count(&self) -> usize {
                self.chan.as_ref().map_or(0, |chan| chan.ends(Party::Receiver))
            }

            /// Returns `true` if both belong to the same channel. All disabled channels count as the same.
            pub fn same_channel(&self, other: &$name<T>) -> bool {
                let address = |chan: Option<&Chan<T>>| chan.map(|chan| &raw const *chan);
                address(self.chan()) == address(other.chan())
            }

            /// Closes the channel: sends fail from now on, also waiting ones, and each gives the message back; messages in the
            /// buffer can still be received, and then receives fail. Returns `true` if this call closed the channel, and
            /// `false` if the channel was closed before, or is a timer channel, which can't be closed. Does not block.
            ///
            /// ```
            /// let (sender, receiver) = gmp::chan::unbounded();
            /// sender.send(1).unwrap();
            /// assert!(sender.close());
            /// assert!(sender.send(2).is_err());
            /// assert_eq!(receiver.iter().collect::<Vec<_>>(), [1]);
            /// ```
            pub fn close(&self) -> bool {
                self.chan().is_some_and(Chan::close)
            }

            /// Returns `true` if the channel is closed, by `close`, or because all senders or all receivers were dropped.
            pub fn is_closed(&self) -> bool {
                self.chan().is_some_and(Chan::is_closed)
            }
        }

        impl<T> Clone for $name<T> {
            fn clone(&self) -> Self {
                $name { chan: self.chan.as_ref().map(|chan| chan.another(Party::$name)) }
            }
        }

        impl<T> Drop for $name<T> {
            fn drop(&mut self) {
                if let Some(chan) = &self.chan {
                    chan.$drop();
                }
            }
        }
    };
}

half!(Sender, drop_sender);
half!(Receiver, drop_receiver);
opaque!([T] Sender<T>, [T] Receiver<T>);
