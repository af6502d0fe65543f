//! Errors of [`broadcast`](super).

use crate::impls::error_with_message;
use std::error::Error;
use std::fmt;

/// There is no receiver, or the channel is closed; with the message.
///
/// ```
/// use gmp::chan::broadcast;
///
/// let (sender, receiver) = broadcast::channel(4);
/// drop(receiver);
/// assert_eq!(sender.send("hello").unwrap_err().0, "hello");
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// Why no message was received.
///
/// ```
/// use gmp::chan::broadcast::{self, RecvError};
///
/// let (sender, mut receiver) = broadcast::channel(2);
/// (1..=3).for_each(|n| drop(sender.send(n).unwrap()));
/// assert_eq!(receiver.recv(), Err(RecvError::Lagged(1)));
/// assert_eq!((receiver.recv(), receiver.recv()), (Ok(2), Ok(3)));
/// drop(sender);
/// assert_eq!(receiver.recv(), Err(RecvError::Closed));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvError {
    /// The channel is closed, and this receiver has seen all its messages.
    Closed,
    /// This receiver has missed this many messages. The next call continues with the oldest message in the channel.
    Lagged(u64),
}

/// Why no message was received at once.
///
/// ```
/// use gmp::chan::broadcast::{self, TryRecvError};
///
/// let (sender, mut receiver) = broadcast::channel::<u32>(2);
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
/// drop(sender);
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Closed));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// There is no message yet that this receiver has not seen.
    Empty,
    /// As [`RecvError::Closed`].
    Closed,
    /// As [`RecvError::Lagged`].
    Lagged(u64),
}

/// Why no message was received in time.
///
/// ```
/// use gmp::chan::broadcast::{self, RecvTimeoutError};
/// use std::time::Duration;
///
/// let (_sender, mut receiver) = broadcast::channel::<u32>(2);
/// assert_eq!(receiver.recv_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The time has passed.
    Timeout,
    /// As [`RecvError::Closed`].
    Closed,
    /// As [`RecvError::Lagged`].
    Lagged(u64),
}

impl<T> SendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        self.0
    }
}

error_with_message!(SendError, SendError(_) => "SendError(..)", "the channel is closed, or has no receiver";);

/// `Display` and `Error` for the errors of receives.
macro_rules! tells {
    ($error:ident $(, $other:ident => $text:literal)?) => {
        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($error::$other => f.write_str($text),)?
                    $error::Closed => f.write_str("the channel is closed"),
                    $error::Lagged(missed) => write!(f, "the receiver has missed {missed} messages"),
                }
            }
        }
        impl Error for $error {}
    };
}

tells!(RecvError);
tells!(TryRecvError, Empty => "the channel is empty");
tells!(RecvTimeoutError, Timeout => "timed out waiting on a channel");
