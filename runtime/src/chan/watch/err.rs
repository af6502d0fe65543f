//! Errors of [`watch`](super).

use crate::impls::{error, error_with_message};

/// There is no receiver, or the channel is closed; with the value.
///
/// ```
/// use gmp::chan::watch;
///
/// let (sender, receiver) = watch::channel(0);
/// drop(receiver);
/// assert_eq!(sender.send(1).unwrap_err().0, 1);
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// The channel is closed, and the receiver has seen the last value.
///
/// ```
/// use gmp::chan::watch::{self, RecvError};
///
/// let (sender, mut receiver) = watch::channel(0);
/// sender.send(1).unwrap();
/// drop(sender);
/// assert_eq!((receiver.changed(), *receiver.borrow()), (Ok(()), 1));
/// assert_eq!(receiver.changed(), Err(RecvError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// Why no change was seen in time.
///
/// ```
/// use gmp::chan::watch::{self, RecvTimeoutError};
/// use std::time::Duration;
///
/// let (_sender, mut receiver) = watch::channel(0);
/// assert_eq!(receiver.changed_timeout(Duration::from_millis(1)), Err(RecvTimeoutError::Timeout));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The time has passed.
    Timeout,
    /// As [`RecvError`].
    Closed,
}

const CLOSED: &str = "the channel is closed";

impl<T> SendError<T> {
    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.0
    }
}

error_with_message!(SendError, SendError(_) => "SendError(..)", "the channel is closed, or has no receiver";);
error!(RecvError, RecvError => CLOSED;);
error!(RecvTimeoutError,
    RecvTimeoutError::Timeout => "timed out waiting on a channel";
    RecvTimeoutError::Closed => CLOSED;
);
