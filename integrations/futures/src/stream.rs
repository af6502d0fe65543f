//! Streams of bytes.

use futures_io::{AsyncRead, AsyncWrite};
use gmp::net::PollStream;
use std::io::{self, IoSlice, IoSliceMut};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A stream of gmp for the futures crates: [`AsyncRead`] and [`AsyncWrite`] over [`TcpStream`](gmp::net::TcpStream) or
/// [`UnixStream`](gmp::net::UnixStream).
///
/// The polls never block. Make the first ones in a goroutine, within [`gmp::block_on`]: the poller of its runtime wakes the
/// task from then on. After that a task of another executor may poll the stream;
/// [`TcpStream::poll_read`](gmp::net::TcpStream::poll_read) says what a thread outside may do. The deadlines and timeouts of
/// the stream are for calls that block, and end no wait here: use [`gmp::time::sleep_async`] beside it.
///
/// One task at a time is woken for each direction: the one that polled last. A future that is dropped between two polls has
/// taken nothing; bytes that `write_all` or `read_exact` had written or read before the drop stay written or read.
///
/// *Both directions at once:* `&GmpIo` reads and writes, too, and so does a clone, which is another handle to the same stream.
/// Unlike with `AsyncReadExt::split`, neither needs a lock. The socket is closed when the last handle is dropped.
/// [`poll_close`](AsyncWrite::poll_close) ends the writing side, for all handles: the peer reads what was written, and then the
/// end; the reading side goes on.
///
/// ```
/// use futures_util::{AsyncReadExt, AsyncWriteExt, io::copy};
/// use gmp::net::{TcpListener, TcpStream};
/// use gmp_futures::GmpIo;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| -> std::io::Result<()> {
///         let listener = TcpListener::bind("127.0.0.1:0")?;
///         let address = listener.local_addr()?;
///         let server = gmp::go(move || {
///             let stream = GmpIo::new(listener.accept()?.0);
///             gmp::block_on(copy(&stream, &mut &stream))
///         });
///         let mut client = GmpIo::new(TcpStream::connect(address)?);
///         let text = gmp::block_on(async {
///             client.write_all(b"hello").await?;
///             client.close().await?;
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
pub struct GmpIo<S>(Arc<S>);

impl<S: PollStream> GmpIo<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        GmpIo(Arc::new(stream))
    }

    /// Returns the stream, whose own methods block the goroutine.
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// Takes the stream out. The wrapper keeps no bytes that were read.
    ///
    /// # Errors
    /// If there are other handles; the error gives this one back.
    pub fn into_inner(self) -> Result<S, Self> {
        Arc::try_unwrap(self.0).map_err(GmpIo)
    }
}

impl<S: PollStream> From<S> for GmpIo<S> {
    fn from(stream: S) -> Self {
        GmpIo::new(stream)
    }
}

impl<S> Clone for GmpIo<S> {
    fn clone(&self) -> Self {
        GmpIo(Arc::clone(&self.0))
    }
}

macro_rules! stream {
    ($name:ty) => {
        impl<S: PollStream> AsyncRead for $name {
            #[inline]
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                PollStream::poll_read(&*self.0, cx, buf)
            }

            #[inline]
            fn poll_read_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &mut [IoSliceMut<'_>],
            ) -> Poll<io::Result<usize>> {
                PollStream::poll_read_vectored(&*self.0, cx, bufs)
            }
        }

        impl<S: PollStream> AsyncWrite for $name {
            #[inline]
            fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                PollStream::poll_write(&*self.0, cx, buf)
            }

            #[inline]
            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                PollStream::poll_write_vectored(&*self.0, cx, bufs)
            }

            /// Returns at once: the wrapper keeps no bytes.
            #[inline]
            fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            /// Ends the writing side. Does not wait until the peer has received the bytes that were written.
            fn poll_close(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.0.end_writes())
            }
        }
    };
}
stream!(GmpIo<S>);
stream!(&GmpIo<S>);
