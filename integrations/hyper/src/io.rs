//! Streams.

use gmp::net::{TcpStream, UnixStream};
use hyper::rt::{Read, ReadBufCursor, Write};
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

mod sealed {
    pub trait Sealed {}
    impl Sealed for gmp::net::TcpStream {}
    impl Sealed for gmp::net::UnixStream {}
}

/// The streams of gmp that [`GmpIo`] can be made of. Implemented for [`TcpStream`] and [`UnixStream`], and for nothing else.
pub trait Socket: sealed::Sealed + Send + Sync + 'static {
    #[doc(hidden)]
    fn poll_read_uninit(&self, cx: &mut Context<'_>, buf: &mut [MaybeUninit<u8>]) -> Poll<io::Result<usize>>;
    #[doc(hidden)]
    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;
    #[doc(hidden)]
    fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
    #[doc(hidden)]
    fn end_writes(&self) -> io::Result<()>;
}

macro_rules! socket {
    ($name:ident) => {
        impl Socket for $name {
            #[inline]
            fn poll_read_uninit(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [MaybeUninit<u8>],
            ) -> Poll<io::Result<usize>> {
                $name::poll_read_uninit(self, cx, buf)
            }
            #[inline]
            fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                $name::poll_write(self, cx, buf)
            }
            #[inline]
            fn poll_write_vectored(
                &self,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                $name::poll_write_vectored(self, cx, bufs)
            }
            fn end_writes(&self) -> io::Result<()> {
                match self.shutdown(Shutdown::Write) {
                    // The connection has ended already, in both directions.
                    Err(refused) if refused.kind() == io::ErrorKind::NotConnected => Ok(()),
                    outcome => outcome,
                }
            }
        }
    };
}
socket!(TcpStream);
socket!(UnixStream);

/// A stream of gmp as hyper wants it: [`hyper::rt::Read`] and [`hyper::rt::Write`].
///
/// The polls never block. They are to be made on goroutines, within [`gmp::block_on`], as those of hyper's connections are;
/// what a thread outside may do is told at [`TcpStream::poll_read`]. The deadlines and timeouts of the stream are for calls
/// that block, and end no wait here: hyper has its own timeouts, by [`GmpTimer`](crate::GmpTimer).
///
/// TCP_NODELAY is as the stream has it. A server that answers requests one by one wants it set
/// ([`TcpStream::set_nodelay`]): hyper writes a large answer in several pieces.
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

impl<S: Socket> GmpIo<S> {
    /// Wraps a stream.
    pub fn new(stream: S) -> Self {
        GmpIo(stream)
    }

    /// Returns the stream. What is read or written there is not seen by hyper.
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// Takes the stream out. After an upgrade hyper may have read more than it used: `hyper::upgrade::Parts` has that.
    pub fn into_inner(self) -> S {
        self.0
    }
}

impl<S: Socket> From<S> for GmpIo<S> {
    fn from(stream: S) -> Self {
        GmpIo(stream)
    }
}

impl<S: Socket> Read for GmpIo<S> {
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

impl<S: Socket> Write for GmpIo<S> {
    #[inline]
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(cx, buf)
    }

    /// Returns at once: nothing is kept back here.
    #[inline]
    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    /// Ends the writing side. Does not wait for what was written to arrive.
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
