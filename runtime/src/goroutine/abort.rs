//! Goroutines that can be ended one by one: [`go_abortable`], [`AbortHandle`].
//!
//! A goroutine that can be aborted runs under a context of its own, which `abort` cancels. So other goroutines pay nothing. The
//! context's unwinding is caught just outside the closure and goes on as an [`Aborted`], which the goroutine's first frame
//! turns into the outcome.

use super::{Builder, JoinHandle};
use crate::Handle;
use crate::context::{Cancel, Context, ContextError};
use crate::g::task::Aborted;
use std::io;
use std::panic::{Location, resume_unwind};

/// Ends a goroutine that was started by [`go_abortable`], [`Builder::go_abortable`] or [`Handle::go_abortable`]. Clones end
/// the same goroutine; dropping them does nothing.
///
/// The handle can only end the goroutine: it holds the context that the goroutine runs under, not the goroutine itself, whose
/// memory another goroutine may have by now. So only the [`JoinHandle`] ([`set_priority`](JoinHandle::set_priority),
/// [`set_affinity`](JoinHandle::set_affinity)) and the goroutine itself change the class and the hint.
///
/// ```
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (computes, abort) = gmp::go_abortable(|| 6 * 7);
///         assert_eq!(computes.join().unwrap(), 42);
///         // The goroutine has ended: nothing happens.
///         abort.abort();
///     })
/// }
/// ```
#[derive(Clone, Debug)]
pub struct AbortHandle {
    cancel: Cancel,
}

impl AbortHandle {
    /// Ends the goroutine while it waits, as the end of a context does ([`Context::run`] says which waits are ended, and how):
    /// the goroutine is unwound, and [`JoinHandle::join`] returns an error for which
    /// [`JoinError::is_aborted`](crate::JoinError::is_aborted) returns `true`. Does not block, and does not wait for the
    /// goroutine's end.
    ///
    /// A wait in a call of [`net`](crate::net), [`fs`](crate::fs), [`io`](crate::io) or [`process`](crate::process) that
    /// returns an [`io::Error`](std::io::Error) is not unwound. That call returns an error, and so do all later ones that have
    /// to wait: a loop that ignores errors of `accept`, or of a read from a pipe, goes on for ever.
    ///
    /// A goroutine that has not begun drops its closure unrun. A goroutine that computes runs on to its next wait; if it
    /// returns before that, `join` returns its value. Goroutines that the aborted one has started are not ended with it.
    ///
    /// With [`panic = "abort"`](crate::migration#panic--abort-and-fork) nothing can be unwound, and `abort` ends no wait: the
    /// goroutine runs to its own end, even if it has not begun, and only calls that return a context's error return that error.
    /// On [the `generator` backend](crate::migration#the-generator-backend) the same holds for a goroutine that has begun; a
    /// goroutine that has not begun drops its closure there, too.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (waits, abort) = gmp::go_abortable(|| gmp::sync::Event::new().wait());
    ///         abort.abort();
    ///         assert!(waits.join().unwrap_err().is_aborted());
    ///     })
    /// }
    /// ```
    pub fn abort(&self) {
        self.cancel.cancel();
    }
}

/// Returns the closure that the goroutine runs, and the handle that ends the goroutine.
fn abortable<F, T>(f: F) -> (impl FnOnce() -> T + Send + 'static, AbortHandle)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (context, cancel) = Context::background().with_cancel();
    let runs = move || {
        let ran = match context.err() {
            // With panic=abort the throw below would end the process, and without a throw the closure must return a value. With
            // panic=abort `run` returns no error either, as it unwinds nothing.
            Some(error) if cfg!(not(panic = "abort")) => {
                drop(f);
                Err(error)
            }
            _ => context.run(f),
        };
        ran.unwrap_or_else(|_: ContextError| resume_unwind(Box::new(Aborted)))
    };
    (runs, AbortHandle { cancel })
}

/// As [`go`](crate::go), and returns a handle that ends the goroutine. Does not block.
///
/// The goroutine runs under a [`Context`] of its own, which is the additional cost over `go`.
///
/// ```
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (mut worker, abort) = gmp::go_abortable(|| gmp::time::sleep(Duration::MAX));
///         if worker.join_timeout(Duration::from_millis(1)).is_none() {
///             abort.abort();
///         }
///         assert!(worker.join().unwrap_err().is_aborted());
///     })
/// }
/// ```
///
/// # Panics
/// As [`go`](crate::go).
#[track_caller]
pub fn go_abortable<F, T>(f: F) -> (JoinHandle<T>, AbortHandle)
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let (runs, abort) = abortable(f);
    (super::go(runs), abort)
}

impl Builder {
    /// Starts the goroutine, as [`go_abortable`] does.
    ///
    /// # Errors
    /// As [`go`](Self::go).
    ///
    /// # Panics
    /// Outside of a goroutine.
    #[track_caller]
    pub fn go_abortable<F, T>(self, f: F) -> io::Result<(JoinHandle<T>, AbortHandle)>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (runs, abort) = abortable(f);
        Ok((self.go(runs)?, abort))
    }
}

impl Handle {
    /// As [`go`](Self::go), and returns a handle that ends the goroutine: [`go_abortable`] in the runtime, from any thread.
    /// Does not block.
    ///
    /// ```
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// let runtime = unsafe { gmp::Runtime::builder().build()? };
    /// // On a plain thread.
    /// let (waits, abort) = runtime.handle().go_abortable(|| gmp::sync::Event::new().wait())?;
    /// abort.abort();
    /// assert!(waits.join().unwrap_err().is_aborted());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`go`](Self::go).
    #[track_caller]
    pub fn go_abortable<F, T>(&self, f: F) -> io::Result<(JoinHandle<T>, AbortHandle)>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (runs, abort) = abortable(f);
        let site = Location::caller();
        let handle = super::spawn_in(&*self.sched("Handle::go_abortable")?, Builder::new(), site, runs)?;
        Ok((handle, abort))
    }
}
