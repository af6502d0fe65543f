//! Why a message was not sent, or not received. Names and shapes are those of crossbeam-channel 0.5.

use std::error::Error;
use std::fmt;

/// The channel is closed. The error holds the message. After a select with a limit there is another reason: the
/// receiver for which the send was chosen has left, and no other receiver came within the limit.
#[derive(PartialEq, Eq, Clone, Copy)]
pub struct SendError<T>(pub T);

/// Why a message could not be sent at once; with the message.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum TrySendError<T> {
    /// The buffer is full; or, without a buffer, no receiver waits.
    Full(T),
    /// The channel is closed.
    Disconnected(T),
}

/// Why a message could not be sent in time; with the message.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The time has passed.
    Timeout(T),
    /// The channel is closed.
    Disconnected(T),
}

/// The channel is closed, and all its messages have been received.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct RecvError;

/// Why no message could be received at once.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum TryRecvError {
    /// There is no message yet.
    Empty,
    /// The channel is closed, and all its messages have been received.
    Disconnected,
}

/// Why no message could be received in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum RecvTimeoutError {
    /// The time has passed.
    Timeout,
    /// The channel is closed, and all its messages have been received.
    Disconnected,
}

/// No operation is ready.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TrySelectError;

/// No operation was ready in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct SelectTimeoutError;

/// No operation is ready.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct TryReadyError;

/// No operation was ready in time.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub struct ReadyTimeoutError;

const CLOSED: &str = "the channel is closed";
const DRAINED: &str = "the channel is closed and empty";
const TIMEOUT: &str = "timed out waiting on a channel";

/// Implements `Debug` without a bound on the message, `Display`, and `Error`.
macro_rules! with_message {
    ($name:ident, $($variant:pat => $debug:literal, $text:expr;)+) => {
        impl<T> fmt::Debug for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($variant => f.write_str($debug),)+
                }
            }
        }
        impl<T> fmt::Display for $name<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($variant => f.write_str($text),)+
                }
            }
        }
        impl<T: Send> Error for $name<T> {}
    };
}

with_message!(SendError, SendError(_) => "SendError(..)", CLOSED;);
with_message!(TrySendError,
    TrySendError::Full(_) => "Full(..)", "the channel is full";
    TrySendError::Disconnected(_) => "Disconnected(..)", CLOSED;
);
with_message!(SendTimeoutError,
    SendTimeoutError::Timeout(_) => "Timeout(..)", TIMEOUT;
    SendTimeoutError::Disconnected(_) => "Disconnected(..)", CLOSED;
);

macro_rules! without_message {
    ($name:ident, $($variant:pat => $text:expr;)+) => {
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $($variant => f.write_str($text),)+
                }
            }
        }
        impl Error for $name {}
    };
}

without_message!(RecvError, RecvError => DRAINED;);
without_message!(TryRecvError,
    TryRecvError::Empty => "the channel is empty";
    TryRecvError::Disconnected => DRAINED;
);
without_message!(RecvTimeoutError,
    RecvTimeoutError::Timeout => TIMEOUT;
    RecvTimeoutError::Disconnected => DRAINED;
);
without_message!(TrySelectError, TrySelectError => "no operation is ready";);
without_message!(SelectTimeoutError, SelectTimeoutError => "no operation was ready in time";);
without_message!(TryReadyError, TryReadyError => "no operation is ready";);
without_message!(ReadyTimeoutError, ReadyTimeoutError => "no operation was ready in time";);

impl<T> SendError<T> {
    /// The message.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// The message.
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
    /// The message.
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
