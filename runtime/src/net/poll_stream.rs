//! The common part of TCP and Unix streams for futures: one trait, for code that polls either.

use super::{Shutdown, TcpStream, UnixStream, is_closed};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::task::{Context, Poll};

mod sealed {
    pub trait Sealed {}
    impl Sealed for super::TcpStream {}
    impl Sealed for super::UnixStream {}
}

/// The methods that [`TcpStream`] and [`UnixStream`] have for futures, for code that takes either: adapters to the traits of
/// other libraries. Implemented for these two types only. The methods never block, and do what the stream's methods of the same
/// name do.
///
/// ```
/// use gmp::net::{PollStream, UnixStream};
/// use std::future::poll_fn;
///
/// async fn first_byte(stream: &impl PollStream) -> std::io::Result<u8> {
///     let mut byte = [0];
///     match poll_fn(|cx| stream.poll_read(cx, &mut byte)).await? {
///         0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
///         _ => Ok(byte[0]),
///     }
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (near, far) = UnixStream::pair().unwrap();
///         std::io::Write::write_all(&mut &near, b"!").unwrap();
///         assert_eq!(gmp::block_on(first_byte(&far)).unwrap(), b'!');
///         near.end_writes().unwrap();
///         assert!(gmp::block_on(first_byte(&far)).is_err());
///     })
/// }
/// ```
pub trait PollStream: sealed::Sealed + Send + Sync + 'static {
    /// Does the same as [`TcpStream::poll_read`].
    ///
    /// # Errors
    /// As there.
    fn poll_read(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Does the same as [`TcpStream::poll_read_uninit`].
    ///
    /// # Errors
    /// As there.
    fn poll_read_uninit(&self, cx: &mut Context<'_>, buf: &mut [MaybeUninit<u8>]) -> Poll<io::Result<usize>>;

    /// Does the same as [`TcpStream::poll_read_vectored`].
    ///
    /// # Errors
    /// As there.
    fn poll_read_vectored(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>>;

    /// Does the same as [`TcpStream::poll_write`].
    ///
    /// # Errors
    /// As there.
    fn poll_write(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;

    /// Does the same as [`TcpStream::poll_write_vectored`].
    ///
    /// # Errors
    /// As there.
    fn poll_write_vectored(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;

    /// Ends the writing side, as [`TcpStream::shutdown`] does; does nothing if the connection has ended already, in both
    /// directions. Does not wait until the peer has received what was written.
    ///
    /// # Errors
    /// As there, except for a connection that has ended already.
    fn end_writes(&self) -> io::Result<()>;
}

/// Implements the polls of the trait by those of the type.
macro_rules! polls {
    ($name:ident: $($poll:ident($buf:ty);)+) => {
        $(
            #[inline]
            fn $poll(&self, cx: &mut Context<'_>, buf: $buf) -> Poll<io::Result<usize>> {
                $name::$poll(self, cx, buf)
            }
        )+
    };
}

macro_rules! poll_stream {
    ($name:ident) => {
        impl PollStream for $name {
            polls! {
                $name:
                poll_read(&mut [u8]);
                poll_read_uninit(&mut [MaybeUninit<u8>]);
                poll_read_vectored(&mut [IoSliceMut<'_>]);
                poll_write(&[u8]);
                poll_write_vectored(&[IoSlice<'_>]);
            }

            fn end_writes(&self) -> io::Result<()> {
                match self.shutdown(Shutdown::Write) {
                    Err(refused) if refused.kind() == ErrorKind::NotConnected && !is_closed(&refused) => {
                        Ok(())
                    }
                    outcome => outcome,
                }
            }
        }
    };
}
poll_stream!(TcpStream);
poll_stream!(UnixStream);
