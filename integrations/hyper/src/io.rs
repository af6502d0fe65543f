//! Streams.

use gmp::net::PollStream;
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

/// A stream of gmp for hyper: [`hyper::rt::Read`] and [`hyper::rt::Write`].
///
/// The polls never block. Make them on goroutines, within [`gmp::block_on`], as with hyper's connections;
/// [`TcpStream::poll_read`](gmp::net::TcpStream::poll_read) says what a thread outside may do. The deadlines and timeouts of
/// the stream are for calls that block, and end no wait here: hyper has its own timeouts, by [`GmpTimer`](crate::GmpTimer).
///
/// TCP_NODELAY is as the stream has it. A server that answers requests one by one should set it
/// ([`TcpStream::set_nodelay`](gmp::net::TcpStream::set_nodelay)): hyper writes a large answer in several pieces.
///
/// ```
/// use gmp::net::UnixStream;
/// use gmp_hyper::GmpIo;
///
/// let (near, _far) = UnixStream::pair()?;
/// let io = GmpIo::new(near);
/// assert!(io.inner().peer_addr()?.is_unnamed());
/// let _near: UnixStream = io.into_inner();
/// # std::io::Result::Ok(())
/// ```
#[derive(Debug)]
pub struct GmpIo<S>(S);

impl<S: PollStream> GmpIo<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        GmpIo(stream)
    }

    /// Returns the stream. hyper does not see what is read or written there.
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// Takes the stream out. After an upgrade hyper may have read more than it used: `hyper::upgrade::Parts` has the rest.
    pub fn into_inner(self) -> S {
        self.0
    }
}

impl<S: PollStream> From<S> for GmpIo<S> {
    fn from(stream: S) -> Self {
        GmpIo(stream)
    }
}

impl<S: PollStream> Read for GmpIo<S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: `poll_read_uninit` initialises bytes, and takes no initialised one back.
        let room = unsafe { buf.as_mut() };
        self.0.poll_read_uninit(cx, room).map_ok(|got| {
            // SAFETY: `poll_read_uninit` has initialised the first `got` bytes of the room.
            unsafe { buf.advance(got) }
        })
    }
}

impl<S: PollStream> Write for GmpIo<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, buf)
    }

    /// Returns at once: the wrapper keeps no bytes.
    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the writing side. Does not wait until the peer has received the bytes that were written.
    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.end_writes())
    }

    #[inline]
    fn is_write_vectored(&self) -> bool {
        true
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_vectored(cx, bufs)
    }
}
