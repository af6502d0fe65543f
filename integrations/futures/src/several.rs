//! Channels whose receivers see the same: each message (broadcast), or the latest value (watch).

use futures_core::{FusedStream, Stream};
use gmp::chan::{broadcast, watch};
use std::fmt;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

/// A wait that owns the receiver, and returns it with what came.
type Waits<R, T> = Pin<Box<dyn Future<Output = (R, T)> + Send>>;

/// Where the receiver is.
enum Place<R, T> {
    Here(R),
    Waits(Waits<R, T>),
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

impl<R: 'static, T: 'static> Place<R, T> {
    /// One look by `look`, which may not block; when there is nothing, the wait that `wait` makes of the receiver, in a box.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        look: impl FnOnce(&mut R, &mut Context<'_>) -> Poll<T>,
        wait: impl FnOnce(R) -> Waits<R, T>,
    ) -> Poll<Option<T>> {
        let mut waits = match std::mem::replace(self, Place::Gone) {
            Place::Gone => return Poll::Ready(None),
            Place::Waits(waits) => waits,
            Place::Here(mut receiver) => match look(&mut receiver, cx) {
                Poll::Ready(found) => {
                    *self = Place::Here(receiver);
                    return Poll::Ready(Some(found));
                }
                Poll::Pending => wait(receiver),
            },
        };
        let Poll::Ready((receiver, found)) = waits.as_mut().poll(cx) else {
            *self = Place::Waits(waits);
            return Poll::Pending;
        };
        *self = Place::Here(receiver);
        Poll::Ready(Some(found))
    }
}

/// So many messages were sent and gone before this stream had them: the channel's capacity is smaller than what the stream is
/// behind. The stream goes on with the oldest message that is there.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct Lagged(pub u64);

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the stream has missed {} messages", self.0)
    }
}

impl std::error::Error for Lagged {}

/// A receiver of a broadcast channel as a stream of its messages, which ends when the channel is closed, and the last message
/// was seen. An item is an error when the stream has missed messages.
///
/// No poll blocks. A wait takes one allocation; a message that is there takes none.
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
    /// Takes a receiver; the stream begins with what that has not seen.
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
        let wait = |mut receiver: broadcast::Receiver<T>| -> Waits<_, _> {
            Box::pin(async move {
                let found = receiver.recv_async().await;
                (receiver, found)
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
/// was seen. Of values that follow each other between two polls only the last one is an item.
///
/// A poll that finds a change blocks its goroutine, or its thread, while a sender changes the value meanwhile. A wait takes
/// one allocation; a change that is there takes none.
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
    place: Place<watch::Receiver<T>, Result<(), watch::RecvError>>,
}

impl<T> WatchStream<T> {
    /// Takes a receiver; the first item is the present value.
    pub fn new(mut receiver: watch::Receiver<T>) -> Self {
        receiver.mark_changed();
        Self::of_changes(receiver)
    }

    /// Takes a receiver; the first item is the next value that it has not seen.
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
        let look =
            |receiver: &mut watch::Receiver<T>, cx: &mut Context<'_>| pin!(receiver.changed_async()).poll(cx);
        let wait = |mut receiver: watch::Receiver<T>| -> Waits<_, _> {
            Box::pin(async move {
                let changed = receiver.changed_async().await;
                (receiver, changed)
            })
        };
        let changed = ready!(self.place.poll(cx, look, wait));
        Poll::Ready(match (changed, &mut self.place) {
            (Some(Ok(())), Place::Here(receiver)) => Some(receiver.borrow_and_update().clone()),
            (_, place) => {
                *place = Place::Gone;
                None
            }
        })
    }
}

impl<T: Clone + Send + Sync + 'static> FusedStream for WatchStream<T> {
    fn is_terminated(&self) -> bool {
        matches!(self.place, Place::Gone)
    }
}
