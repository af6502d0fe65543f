//! Streams.

use gmp::net::PollStream;
use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

/// A stream of gmp for tokio's crates: [`AsyncRead`] and [`AsyncWrite`] over [`TcpStream`](gmp::net::TcpStream) or
/// [`UnixStream`](gmp::net::UnixStream).
///
/// The polls never block. Make the first ones in a goroutine, within [`gmp::block_on`]: the poller of its runtime wakes the
/// task from then on. After that a task of tokio may poll the stream; [`TcpStream::poll_read`](gmp::net::TcpStream::poll_read)
/// says what a thread outside may do. No reactor is needed. In a task of tokio a poll takes its part of the task's budget, as
/// those of tokio's own sockets do. The deadlines and timeouts of the stream are for calls that block, and end no wait here:
/// put [`gmp::time::sleep_async`] or tokio's `timeout` around it.
///
/// One task at a time is woken for each direction: the one that polled last. A future that is dropped between two polls has
/// taken nothing; bytes that `write_all` or `read_exact` had written or read before the drop stay written or read.
///
/// *Both directions at once* by [`split`](Self::split) or [`into_split`](Self::into_split), which need no lock, unlike
/// `tokio::io::split`. [`poll_shutdown`](AsyncWrite::poll_shutdown) ends the writing side, and the peer reads what was
/// written, and then the end; the reading side goes on.
///
/// ```
/// use gmp::net::{TcpListener, TcpStream};
/// use gmp_tokio::GmpIo;
/// use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| -> std::io::Result<()> {
///         let listener = TcpListener::bind("127.0.0.1:0")?;
///         let address = listener.local_addr()?;
///         let server = gmp::go(move || {
///             let mut stream = GmpIo::new(listener.accept()?.0);
///             let (mut input, mut output) = stream.split();
///             gmp::block_on(copy(&mut input, &mut output))
///         });
///         let mut client = GmpIo::new(TcpStream::connect(address)?);
///         let text = gmp::block_on(async {
///             client.write_all(b"hello").await?;
///             client.shutdown().await?;
///             let mut text = String::new();
///             client.read_to_string(&mut text).await?;
///             std::io::Result::Ok(text)
///         })?;
///         assert_eq!((text.as_str(), server.join().unwrap()?), ("hello", 5));
///         Ok(())
///     })
/// }
/// # .unwrap();
/// ```
#[derive(Debug)]
pub struct GmpIo<S>(S);

impl<S: PollStream> GmpIo<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        GmpIo(stream)
    }

    /// Returns the stream, whose own methods block the goroutine.
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// Takes the stream out. The wrapper keeps no bytes that were read.
    pub fn into_inner(self) -> S {
        self.0
    }

    /// Lends the two directions to two futures of one task.
    pub fn split(&mut self) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
        (ReadHalf(&self.0), WriteHalf(&self.0))
    }

    /// Gives the two directions to two tasks. The socket is closed when both are dropped. Dropping the writing half ends the
    /// writing side: the peer reads the end of the stream.
    ///
    /// ```
    /// use gmp::net::UnixStream;
    /// use gmp_tokio::GmpIo;
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (near, far) = UnixStream::pair().unwrap();
    ///         let (mut input, mut output) = GmpIo::new(near).into_split();
    ///         let sends = gmp::go(move || gmp::block_on(output.write_all(b"all of it")));
    ///         let mut text = String::new();
    ///         gmp::block_on(GmpIo::new(far).read_to_string(&mut text)).unwrap();
    ///         assert_eq!(text, "all of it");
    ///         sends.join().unwrap().unwrap();
    ///         assert_eq!(gmp::block_on(input.read(&mut [0])).unwrap(), 0, "far is dropped");
    ///     })
    /// }
    /// ```
    pub fn into_split(self) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
        let stream = Arc::new(self.0);
        (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream, ends: true })
    }
}

impl<S: PollStream> From<S> for GmpIo<S> {
    fn from(stream: S) -> Self {
        GmpIo(stream)
    }
}

/// The reading direction of a [`GmpIo`]; made by [`split`](GmpIo::split).
#[derive(Debug)]
pub struct ReadHalf<'a, S>(&'a S);

/// The writing direction of a [`GmpIo`]; made by [`split`](GmpIo::split). The drop ends nothing.
#[derive(Debug)]
pub struct WriteHalf<'a, S>(&'a S);

/// The reading direction of a [`GmpIo`]; made by [`into_split`](GmpIo::into_split).
#[derive(Debug)]
pub struct OwnedReadHalf<S: PollStream>(Arc<S>);

impl<S: PollStream> OwnedReadHalf<S> {
    /// Returns the stream.
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// Puts the two halves together again.
    ///
    /// # Errors
    /// If the halves are not of one stream; the error gives both back.
    pub fn reunite(self, other: OwnedWriteHalf<S>) -> Result<GmpIo<S>, ReuniteError<S>> {
        if !Arc::ptr_eq(&self.0, &other.stream) {
            return Err(ReuniteError(self, other));
        }
        other.forget();
        // `forget` has dropped the other half's reference.
        Ok(GmpIo(Arc::into_inner(self.0).expect("two halves have the stream, and nobody else")))
    }
}

/// The writing direction of a [`GmpIo`]; made by [`into_split`](GmpIo::into_split). Dropping it ends the writing side, unless
/// [`forget`](Self::forget) is called.
#[derive(Debug)]
pub struct OwnedWriteHalf<S: PollStream> {
    stream: Arc<S>,
    ends: bool,
}

impl<S: PollStream> OwnedWriteHalf<S> {
    /// Returns the stream.
    pub fn inner(&self) -> &S {
        &self.stream
    }

    /// Drops the half, and leaves the writing side open until the other half is dropped.
    pub fn forget(mut self) {
        self.ends = false;
    }
}

impl<S: PollStream> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if self.ends {
            // The call is refused for a connection that is already broken.
            let _refused = self.stream.end_writes();
        }
    }
}

/// Two halves that are not of one stream; returned by [`OwnedReadHalf::reunite`].
#[derive(Debug)]
pub struct ReuniteError<S: PollStream>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: PollStream> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("reunite: the two halves are not of one stream")
    }
}

impl<S: PollStream + fmt::Debug> std::error::Error for ReuniteError<S> {}

#[inline]
fn read(stream: &impl PollStream, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
    let budget = ready!(coop::poll_proceed(cx));
    // SAFETY: `poll_read_uninit` initialises bytes, and takes no initialised one back.
    let room = unsafe { buf.unfilled_mut() };
    let got = ready!(stream.poll_read_uninit(cx, room))?;
    budget.made_progress();
    // SAFETY: `poll_read_uninit` has initialised the first `got` bytes of the room.
    unsafe { buf.assume_init(got) };
    buf.advance(got);
    Poll::Ready(Ok(()))
}

#[inline]
fn counted(
    cx: &mut Context<'_>,
    write: impl FnOnce(&mut Context<'_>) -> Poll<io::Result<usize>>,
) -> Poll<io::Result<usize>> {
    let budget = ready!(coop::poll_proceed(cx));
    let outcome = ready!(write(cx));
    budget.made_progress();
    Poll::Ready(outcome)
}

macro_rules! reads {
    (($($of:tt)*) $name:ty, $it:ident => $stream:expr) => {
        impl<$($of)*> AsyncRead for $name {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                let $it = self.get_mut();
                read($stream, cx, buf)
            }
        }
    };
}

macro_rules! writes {
    (($($of:tt)*) $name:ty, $it:ident => $stream:expr) => {
        impl<$($of)*> AsyncWrite for $name {
            #[inline]
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                let $it = self.get_mut();
                counted(cx, |cx| PollStream::poll_write($stream, cx, buf))
            }

            /// Returns at once: the wrapper keeps no bytes.
            #[inline]
            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Ends the writing side. Does not wait until the peer has received the bytes that were written.
            fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                let $it = self.get_mut();
                Poll::Ready(PollStream::end_writes($stream))
            }

            #[inline]
            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let $it = self.get_mut();
                counted(cx, |cx| PollStream::poll_write_vectored($stream, cx, bufs))
            }

            #[inline]
            fn is_write_vectored(&self) -> bool {
                true
            }
        }
    };
}

reads!((S: PollStream) GmpIo<S>, it => &it.0);
reads!(('a, S: PollStream) ReadHalf<'a, S>, it => it.0);
reads!((S: PollStream) OwnedReadHalf<S>, it => &*it.0);
writes!((S: PollStream) GmpIo<S>, it => &it.0);
writes!(('a, S: PollStream) WriteHalf<'a, S>, it => it.0);
writes!((S: PollStream) OwnedWriteHalf<S>, it => &*it.stream);

/// No poll pins the stream.
impl<S> Unpin for GmpIo<S> {}
