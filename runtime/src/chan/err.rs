//! Why a message was not sent, or not received. Names and shapes are those of crossbeam-channel 0.5.

use crate::impls::{error, error_with_message};

/// The channel is closed. The error holds the message. After a select with a limit there is another reason: the receiver for
/// which the send was chosen has left, and no other receiver has come within the limit.
///
/// ```
/// use gmp::chan;
///
/// let (sender, receiver) = chan::bounded(1);
/// drop(receiver);
/// let error = sender.send("hello").unwrap_err();
/// assert_eq!(error.into_inner(), "hello");
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// Why a message could not be sent at once; with the message.
///
/// ```
/// use gmp::chan::{self, TrySendError};
///
/// let (sender, receiver) = chan::bounded(1);
/// assert_eq!(sender.try_send(1), Ok(()));
/// assert_eq!(sender.try_send(2), Err(TrySendError::Full(2)));
/// drop(receiver);
/// assert_eq!(sender.try_send(3), Err(TrySendError::Disconnected(3)));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum TrySendError<T> {
    /// The buffer is full; or, without a buffer, no receiver waits.
    Full(T),
    /// The channel is closed.
    Disconnected(T),
}

/// Why a message could not be sent in time; with the message.
///
/// ```
/// use gmp::chan;
/// use std::time::Duration;
///
/// let (sender, _receiver) = chan::bounded(0);
/// let error = sender.send_timeout("hello", Duration::from_millis(1)).unwrap_err();
/// assert!(error.is_timeout());
/// assert_eq!(error.into_inner(), "hello");
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The time has passed.
    Timeout(T),
    /// The channel is closed.
    Disconnected(T),
}

/// The channel is closed, and all its messages have been received.
///
/// ```
/// use gmp::chan::{self, RecvError};
///
/// let (sender, receiver) = chan::unbounded();
/// sender.send(1).unwrap();
/// drop(sender);
/// assert_eq!(receiver.recv(), Ok(1));
/// assert_eq!(receiver.recv(), Err(RecvError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// Why no message could be received at once.
///
/// ```
/// use gmp::chan::{self, TryRecvError};
///
/// let (sender, receiver) = chan::unbounded::<u32>();
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
/// drop(sender);
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Disconnected));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// There is no message yet.
    Empty,
    /// The channel is closed, and all its messages have been received.
    Disconnected,
}

/// Why no message could be received in time.
///
/// ```
/// use gmp::chan::{self, RecvTimeoutError};
/// use std::time::Duration;
///
/// let (sender, receiver) = chan::unbounded::<u32>();
/// let soon = Duration::from_millis(1);
/// assert_eq!(receiver.recv_timeout(soon), Err(RecvTimeoutError::Timeout));
/// drop(sender);
/// assert_eq!(receiver.recv_timeout(soon), Err(RecvTimeoutError::Disconnected));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The time has passed.
    Timeout,
    /// The channel is closed, and all its messages have been received.
    Disconnected,
}

/// No operation is ready.
///
/// ```
/// use gmp::chan::{self, Select, TrySelectError};
///
/// let (_sender, receiver) = chan::unbounded::<u32>();
/// let mut select = Select::new();
/// select.recv(&receiver);
/// assert_eq!(select.try_select().unwrap_err(), TrySelectError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// No operation was ready in time.
///
/// ```
/// use gmp::chan::{self, Select, SelectTimeoutError};
/// use std::time::Duration;
///
/// let (_sender, receiver) = chan::unbounded::<u32>();
/// let mut select = Select::new();
/// select.recv(&receiver);
/// let late = select.select_timeout(Duration::from_millis(1));
/// assert_eq!(late.unwrap_err(), SelectTimeoutError);
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// No operation is ready.
///
/// ```
/// use gmp::chan::{self, Select, TryReadyError};
///
/// let (sender, receiver) = chan::unbounded();
/// let mut select = Select::new();
/// let arm = select.recv(&receiver);
/// assert_eq!(select.try_ready(), Err(TryReadyError));
/// sender.send(1).unwrap();
/// assert_eq!(select.try_ready(), Ok(arm));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// No operation was ready in time.
///
/// ```
/// use gmp::chan::{self, ReadyTimeoutError, Select};
/// use std::time::Duration;
///
/// let (_sender, receiver) = chan::unbounded::<u32>();
/// let mut select = Select::new();
/// select.recv(&receiver);
/// assert_eq!(select.ready_timeout(Duration::from_millis(1)), Err(ReadyTimeoutError));
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

const CLOSED: &str = "the channel is closed";
const DRAINED: &str = "the channel is closed and empty";
const TIMEOUT: &str = "timed out waiting on a channel";

error_with_message!(SendError, SendError(_) => "SendError(..)", CLOSED;);
error_with_message!(TrySendError,
    TrySendError::Full(_) => "Full(..)", "the channel is full";
    TrySendError::Disconnected(_) => "Disconnected(..)", CLOSED;
);
error_with_message!(SendTimeoutError,
    SendTimeoutError::Timeout(_) => "Timeout(..)", TIMEOUT;
    SendTimeoutError::Disconnected(_) => "Disconnected(..)", CLOSED;
);

error!(RecvError, RecvError => DRAINED;);
error!(TryRecvError,
    TryRecvError::Empty => "the channel is empty";
    TryRecvError::Disconnected => DRAINED;
);
error!(RecvTimeoutError,
    RecvTimeoutError::Timeout => TIMEOUT;
    RecvTimeoutError::Disconnected => DRAINED;
);
error!(TrySelectError, TrySelectError => "no operation is ready";);
error!(SelectTimeoutError, SelectTimeoutError => "no operation was ready in time";);
error!(TryReadyError, TryReadyError => "no operation is ready";);
error!(ReadyTimeoutError, ReadyTimeoutError => "no operation was ready in time";);

impl<T> SendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(message) | TrySendError::Disconnected(message) => message,
        }
    }

    /// Returns `true` if there was no room.
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Returns `true` if the channel is closed.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// Returns the message.
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(message) | SendTimeoutError::Disconnected(message) => message,
        }
    }

    /// Returns `true` if the time has passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Returns `true` if the channel is closed.
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl TryRecvError {
    /// Returns `true` if there was no message yet.
    pub fn is_empty(&self) -> bool {
        *self == TryRecvError::Empty
    }

    /// Returns `true` if the channel is closed and drained.
    pub fn is_disconnected(&self) -> bool {
        *self == TryRecvError::Disconnected
    }
}

impl RecvTimeoutError {
    /// Returns `true` if the time has passed.
    pub fn is_timeout(&self) -> bool {
        *self == RecvTimeoutError::Timeout
    }

    /// Returns `true` if the channel is closed and drained.
    pub fn is_disconnected(&self) -> bool {
        *self == RecvTimeoutError::Disconnected
    }
}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(SendError(message): SendError<T>) -> Self {
        TrySendError::Disconnected(message)
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(SendError(message): SendError<T>) -> Self {
        SendTimeoutError::Disconnected(message)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> Self {
        TryRecvError::Disconnected
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(_: RecvError) -> Self {
        RecvTimeoutError::Disconnected
    }
}
