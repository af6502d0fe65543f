//! Why a context is done: the error, and the cause.

use crate::impls::error;
use crate::prim::Arc;
use std::error::Error;
use std::io;

/// Why a context is done, in the caller's own terms.
///
/// ```
/// use gmp::context::{Cause, Context};
///
/// let (context, cancel) = Context::background().with_cancel();
/// cancel.cancel_with("the client is gone");
/// let cause: Cause = context.cause().unwrap();
/// assert_eq!(cause.to_string(), "the client is gone");
/// ```
pub type Cause = Arc<dyn Error + Send + Sync>;

/// Returns the cause that a caller gave. A [`Cause`] of another context is not wrapped again.
pub(super) fn cause_of(given: impl Into<Box<dyn Error + Send + Sync>>) -> Cause {
    match given.into().downcast::<Cause>() {
        Ok(cause) => *cause,
        Err(given) => Cause::from(given),
    }
}

/// Why a context is done.
///
/// ```
/// use gmp::context::{Context, ContextError};
/// use std::time::Duration;
///
/// let (context, cancel) = Context::background().with_timeout(Duration::from_secs(60));
/// cancel.cancel();
/// match context.err() {
///     Some(ContextError::Canceled) => {}
///     Some(ContextError::DeadlineExceeded) => unreachable!("a minute has not passed"),
///     None => unreachable!("`cancel` has returned"),
/// }
/// ```
#[derive(Copy, Clone, Debug, Eq, PartialEq, Hash)]
pub enum ContextError {
    /// The context was cancelled.
    Canceled,
    /// The deadline of the context has passed.
    DeadlineExceeded,
}

impl ContextError {
    /// Returns why a context ended the call that returned this error; `None` if no context did.
    ///
    /// ```
    /// use gmp::context::{Context, ContextError};
    /// use gmp::net::TcpListener;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (context, cancel) = Context::background().with_cancel();
    ///         let server = context.go(|| {
    ///             let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ///             listener.accept().map(drop)
    ///         });
    ///         cancel.cancel();
    ///         // An error, which the closure returned, ended the wait, not an unwinding.
    ///         let error = server.join().unwrap().unwrap().unwrap_err();
    ///         assert_eq!(ContextError::of(&error), Some(ContextError::Canceled));
    ///     })
    /// }
    /// ```
    pub fn of(error: &io::Error) -> Option<ContextError> {
        error.get_ref()?.downcast_ref::<ContextError>().copied()
    }
}

error!(ContextError,
    ContextError::Canceled => "context canceled";
    ContextError::DeadlineExceeded => "context deadline exceeded";
);

/// Makes an error of kind `TimedOut` for a deadline, and of kind `Other` for a cancel: not `Interrupted`, after which std's
/// helpers try again.
impl From<ContextError> for io::Error {
    fn from(error: ContextError) -> Self {
        let kind = match error {
            ContextError::Canceled => io::ErrorKind::Other,
            ContextError::DeadlineExceeded => io::ErrorKind::TimedOut,
        };
        io::Error::new(kind, error)
    }
}
