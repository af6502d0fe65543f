//! Futures on goroutines of their own.

use gmp::{JoinError, JoinHandle};
use hyper::rt::Executor;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Runs each future in a goroutine of its own, as hyper's HTTP/2 needs.
///
/// The goroutine belongs to the runtime of the caller of `execute`; outside a runtime `execute` panics, as [`gmp::go`] does.
/// The goroutine drops the future when it is done, or when the runtime ends.
///
/// *If there is no stack for one more goroutine*, `execute` drops the future at once; a panic there would end the whole
/// connection. In a server the future is one stream: its client sees a reset, and the other streams go on. In a client the
/// future may be one request, which then ends with an error; or the connection, whose requests then end with an error; or the
/// sender of the rest of a body: then the server may wait for that rest, and the request with it, up to the limit that the
/// caller has set.
///
/// ```
/// use gmp_hyper::{GmpExecutor, GmpTimer};
/// use hyper::server::conn::http2;
///
/// let mut server = http2::Builder::new(GmpExecutor);
/// server.timer(GmpTimer);
/// ```
///
/// # Panics
/// Outside a goroutine, in `execute`.
#[derive(Copy, Clone, Debug, Default)]
pub struct GmpExecutor;

impl<F> Executor<F> for GmpExecutor
where
    F: Future + Send + 'static,
    F::Output: Send,
{
    #[track_caller]
    fn execute(&self, future: F) {
        // A refusal has dropped the future.
        let _refused = gmp::Builder::new().go(move || drop(gmp::block_on(future)));
    }
}

/// Calls `f` at once in a goroutine of its own, which `f` may block, and returns a future for the result: for code that is
/// polled where it must not park. Panics outside a runtime, as [`gmp::go`] does.
///
/// ```
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let sum = unsafe {
///     gmp::run(|| {
///         let [one, two] = [20, 22].map(|number| gmp_hyper::offload(move || {
///             gmp::time::sleep(Duration::from_millis(5));
///             number
///         }));
///         gmp::block_on(async { one.await.unwrap() + two.await.unwrap() })
///     })
/// };
/// assert_eq!(sum, 42);
/// ```
///
/// Dropping the future does not end the goroutine, which goes on to its end.
///
/// # Errors
/// The future returns the error of [`JoinHandle::join`]: `f` has panicked, the goroutine has called [`gmp::goexit`], or its
/// runtime has ended.
///
/// # Panics
/// As [`gmp::go`]; and in a poll after the future was ready.
#[track_caller]
pub fn offload<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Offload<T> {
    Offload(gmp::go(f))
}

/// A call on a goroutine of its own; made by [`offload`].
#[derive(Debug)]
#[must_use = "a future does nothing unless it is polled; the call goes on without it"]
pub struct Offload<T>(JoinHandle<T>);

impl<T> Future for Offload<T> {
    type Output = Result<T, JoinError>;

    #[track_caller]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}
