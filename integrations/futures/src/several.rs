//! Streams of channels in which all receivers see the same: each message (broadcast), or the latest value (watch).

use futures_core::{FusedStream, Stream};
use gmp::chan::{broadcast, watch};
use std::fmt;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::thread;

/// A wait that owns the receiver, and returns it: with the item that was found, or with the panic of a function that the wait
/// has called, or with `None` if there may be something to see.
type Wait<R, T> = Pin<Box<dyn Future<Output = (R, Option<thread::Result<T>>)> + Send>>;

/// Where the receiver is.
enum Place<R, T> {
    Here(R),
    Waits(Wait<R, T>),
    /// Dropped: the channel is closed, and there is nothing more to see.
    Gone,
}

impl<R, T> fmt::Debug for Place<R, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Place::Here(_) => "at rest",
            Place::Waits(_) => "waits",
            Place::Gone => "ended",
        })
    }
}

impl<R, T> Place<R, T> {
    /// Returns what `look` finds. If `look` finds nothing, `wait` turns the receiver into a wait for it. Neither blocks. After
    /// a panic the receiver is where it was.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        look: impl Fn(&mut R, &mut Context<'_>) -> Poll<T>,
        wait: impl Fn(R) -> Wait<R, T>,
    ) -> Poll<Option<T>> {
        loop {
            match self {
                Place::Here(receiver) => {
                    if let Poll::Ready(found) = look(receiver, cx) {
                        return Poll::Ready(Some(found));
                    }
                }
                Place::Waits(waits) => {
                    let (receiver, found) = ready!(waits.as_mut().poll(cx));
                    *self = Place::Here(receiver);
                    match found {
                        Some(Ok(found)) => return Poll::Ready(Some(found)),
                        Some(Err(panic)) => resume_unwind(panic),
                        None => continue,
                    }
                }
                Place::Gone => return Poll::Ready(None),
            }
            if let Place::Here(receiver) = std::mem::replace(self, Place::Gone) {
                *self = Place::Waits(wait(receiver));
            }
        }
    }
}

/// The number of messages that a stream has missed: the stream was further behind than the channel's capacity, and they are
/// gone. The stream goes on with the oldest message that is there.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct Lagged(pub u64);

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "messages that the stream has missed: {}", self.0)
    }
}

impl std::error::Error for Lagged {}

/// A receiver of a broadcast channel as a stream of its messages, which ends when the channel is closed, and the last message
/// was seen. An item is an error when the stream has missed messages.
///
/// No poll blocks: while another receiver clones the message, the task waits. A wait takes an allocation; a message that is
/// there takes none. A panic of the message's `clone` leaves the poll, and the message is the item of the next poll.
///
/// ```
/// use futures_util::StreamExt;
/// use gmp::chan::broadcast;
/// use gmp_futures::{BroadcastStream, Lagged};
///
/// let (sender, receiver) = broadcast::channel(2);
/// for n in 1..=3 {
///     sender.send(n).unwrap();
/// }
/// drop(sender);
/// let all = gmp::block_on(BroadcastStream::new(receiver).collect::<Vec<_>>());
/// assert_eq!(all, [Err(Lagged(1)), Ok(2), Ok(3)]);
/// ```
#[derive(Debug)]
pub struct BroadcastStream<T> {
    place: Place<broadcast::Receiver<T>, Result<T, broadcast::RecvError>>,
}

impl<T> BroadcastStream<T> {
    /// Makes a stream of a receiver; the stream begins with the messages that the receiver has not seen.
    pub fn new(receiver: broadcast::Receiver<T>) -> Self {
        BroadcastStream { place: Place::Here(receiver) }
    }
}

impl<T> From<broadcast::Receiver<T>> for BroadcastStream<T> {
    fn from(receiver: broadcast::Receiver<T>) -> Self {
        BroadcastStream::new(receiver)
    }
}

impl<T: Clone + Send + 'static> Stream for BroadcastStream<T> {
    type Item = Result<T, Lagged>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let look = |receiver: &mut broadcast::Receiver<T>, cx: &mut Context<'_>| {
            pin!(receiver.recv_async()).poll(cx)
        };
        // A receiver clones a message in its turn. Another receiver may be cloning, so the wait queues for that turn as well.
        let wait = |mut receiver: broadcast::Receiver<T>| -> Wait<_, _> {
            Box::pin(async move {
                let found = {
                    let mut finds = pin!(receiver.recv_async());
                    // The receiver must survive a panic of the clone.
                    poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| finds.as_mut().poll(cx))) {
                        Ok(found) => found.map(Ok),
                        Err(panic) => Poll::Ready(Err(panic)),
                    })
                    .await
                };
                (receiver, Some(found))
            })
        };
        let item = match ready!(self.place.poll(cx, look, wait)) {
            Some(Ok(message)) => Some(Ok(message)),
            Some(Err(broadcast::RecvError::Lagged(missed))) => Some(Err(Lagged(missed))),
            Some(Err(broadcast::RecvError::Closed)) | None => {
                self.place = Place::Gone;
                None
            }
        };
        Poll::Ready(item)
    }
}

impl<T: Clone + Send + 'static> FusedStream for BroadcastStream<T> {
    fn is_terminated(&self) -> bool {
        matches!(self.place, Place::Gone)
    }
}

/// A receiver of a watch channel as a stream of clones of its value, which ends when the channel is closed, and the last value
/// was seen. If several values are sent between two polls, only the last one is an item.
///
/// No poll blocks: while a sender changes the value, the task waits. A wait takes an allocation; a change that is there takes
/// none. A panic of the value's `clone` leaves the poll, and the value is the item of the next poll.
///
/// ```
/// use futures_util::StreamExt;
/// use gmp::chan::watch;
/// use gmp_futures::WatchStream;
///
/// let (level, receiver) = watch::channel(1);
/// let mut levels = WatchStream::new(receiver);
/// gmp::block_on(async {
///     assert_eq!(levels.next().await, Some(1));
///     (2..=5).for_each(|n| level.send(n).unwrap());
///     assert_eq!(levels.next().await, Some(5));
///     drop(level);
///     assert_eq!(levels.next().await, None);
/// });
/// ```
#[derive(Debug)]
pub struct WatchStream<T> {
    place: Place<watch::Receiver<T>, Option<T>>,
}

impl<T> WatchStream<T> {
    /// Makes a stream of a receiver; the first item is the present value.
    pub fn new(mut receiver: watch::Receiver<T>) -> Self {
        receiver.mark_changed();
        Self::of_changes(receiver)
    }

    /// Makes a stream of a receiver; the first item is the next value that the receiver has not seen.
    pub fn of_changes(receiver: watch::Receiver<T>) -> Self {
        WatchStream { place: Place::Here(receiver) }
    }
}

impl<T> From<watch::Receiver<T>> for WatchStream<T> {
    fn from(receiver: watch::Receiver<T>) -> Self {
        WatchStream::new(receiver)
    }
}

impl<T: Clone + Send + Sync + 'static> Stream for WatchStream<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let look = |receiver: &mut watch::Receiver<T>, cx: &mut Context<'_>| {
            if ready!(pin!(receiver.changed_async()).poll(cx)).is_err() {
                return Poll::Ready(None);
            }
            let unseen = Unseen(receiver);
            let mut value = None;
            let look_at = |present: &T| {
                value = Some(present.clone());
                true
            };
            let is_seen = pin!(unseen.0.wait_for_async(look_at)).poll(cx).is_ready();
            if !is_seen {
                return Poll::Pending;
            }
            std::mem::forget(unseen);
            Poll::Ready(value)
        };
        let wait = |mut receiver: watch::Receiver<T>| -> Wait<_, _> {
            Box::pin(async move {
                if receiver.changed_async().await.is_ok() {
                    // A sender may be changing the value.
                    let unseen = Unseen(&mut receiver);
                    let _ready = unseen.0.wait_for_async(|_| true).await.is_ok();
                }
                (receiver, None)
            })
        };
        let item = ready!(self.place.poll(cx, look, wait)).flatten();
        if item.is_none() {
            self.place = Place::Gone;
        }
        Poll::Ready(item)
    }
}

/// A receiver that has consumed a change, but has not seen the value yet. The drop marks the value as changed again.
struct Unseen<'a, T>(&'a mut watch::Receiver<T>);

impl<T> Drop for Unseen<'_, T> {
    fn drop(&mut self) {
        self.0.mark_changed();
    }
}

impl<T: Clone + Send + Sync + 'static> FusedStream for WatchStream<T> {
    fn is_terminated(&self) -> bool {
        matches!(self.place, Place::Gone)
    }
}
