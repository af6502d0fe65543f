//! Why a semaphore grants no permits.

use crate::context::ContextError;
use crate::impls::error;
use std::error::Error;
use std::fmt;

/// The semaphore is closed.
///
/// ```
/// use gmp::sync::{AcquireError, Semaphore};
///
/// let permits = Semaphore::new(1);
/// permits.close();
/// assert_eq!(permits.acquire_guard(1).unwrap_err(), AcquireError);
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct AcquireError;

/// Why [`Semaphore::try_acquire_guard`](super::Semaphore::try_acquire_guard) grants nothing.
///
/// ```
/// use gmp::sync::{Semaphore, TryAcquireError};
///
/// let permits = Semaphore::new(1);
/// let held = permits.try_acquire_guard(1).unwrap();
/// assert_eq!(permits.try_acquire_guard(1).unwrap_err(), TryAcquireError::NoPermits);
/// drop(held);
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum TryAcquireError {
    /// The semaphore is closed.
    Closed,
    /// Too few permits are free, or a request waits.
    NoPermits,
}

impl TryAcquireError {
    /// Returns `true` if the semaphore is closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, TryAcquireError::Closed)
    }
}

/// Why [`Semaphore::acquire_guard_timeout`](super::Semaphore::acquire_guard_timeout) grants nothing.
///
/// ```
/// use gmp::sync::Semaphore;
/// use std::time::Duration;
///
/// let permits = Semaphore::new(1);
/// let _held = permits.acquire_guard(1).unwrap();
/// let late = permits.acquire_guard_timeout(1, Duration::from_millis(1));
/// assert!(late.unwrap_err().is_timeout());
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum AcquireTimeoutError {
    /// The semaphore is closed.
    Closed,
    /// The time has passed.
    Timeout,
}

impl AcquireTimeoutError {
    /// Returns `true` if the time has passed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, AcquireTimeoutError::Timeout)
    }
}

/// Why [`Semaphore::acquire_guard_ctx`](super::Semaphore::acquire_guard_ctx) grants nothing.
///
/// ```
/// use gmp::context::{Context, ContextError};
/// use gmp::sync::{AcquireContextError, Semaphore};
///
/// let (context, cancel) = Context::background().with_cancel();
/// cancel.cancel();
/// let refused = Semaphore::new(1).acquire_guard_ctx(&context, 1).map(drop);
/// assert_eq!(refused.unwrap_err(), AcquireContextError::Context(ContextError::Canceled));
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub enum AcquireContextError {
    /// The semaphore is closed.
    Closed,
    /// The context is done, or another one under which the caller runs.
    Context(ContextError),
}

impl From<ContextError> for AcquireContextError {
    fn from(error: ContextError) -> Self {
        AcquireContextError::Context(error)
    }
}

const CLOSED: &str = "the semaphore is closed";

error!(AcquireError, AcquireError => CLOSED;);
error!(TryAcquireError,
    TryAcquireError::Closed => CLOSED;
    TryAcquireError::NoPermits => "no permits are free";
);
error!(AcquireTimeoutError,
    AcquireTimeoutError::Closed => CLOSED;
    AcquireTimeoutError::Timeout => "timed out waiting for permits";
);

impl fmt::Display for AcquireContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AcquireContextError::Closed => f.write_str(CLOSED),
            AcquireContextError::Context(error) => error.fmt(f),
        }
    }
}

impl Error for AcquireContextError {}
