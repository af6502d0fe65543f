//! Pipes.

use crate::net::desc::Direction;
use crate::net::socket::Socket;
use crate::net::sys;
use crate::os::io::copy::copy_end;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

/// Makes a pipe. What is written to the second end is read from the first; the end is read once no writer is left.
///
/// ```
/// use std::io::{Read, Write};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (mut reader, mut writer) = gmp::io::pipe().unwrap();
///         gmp::go(move || writer.write_all(b"hello").unwrap());
///         let mut text = String::new();
///         reader.read_to_string(&mut text).unwrap();
///         assert_eq!(text, "hello");
///     })
/// }
/// ```
///
/// # Errors
/// If the table of descriptors is full.
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    Ok((PipeReader::try_from(reader)?, PipeWriter::try_from(writer)?))
}

/// Implements what both kinds of ends have, for a type of std's.
macro_rules! pipe_end {
    ($name:ident, $std:ty) => {
        impl TryFrom<$std> for $name {
            type Error = io::Error;

            /// Puts the end into non-blocking mode, which is a mode of this end, for all its duplicates.
            ///
            /// # Errors
            /// If the kernel refuses that.
            fn try_from(inner: $std) -> io::Result<Self> {
                sys::set_blocking(inner.as_fd(), false)?;
                Ok($name(Socket::of_shared(inner)))
            }
        }

        impl TryFrom<$name> for $std {
            type Error = io::Error;

            /// Puts the end back into blocking mode, as other programs expect.
            ///
            /// # Errors
            /// If the kernel refuses that.
            ///
            /// # Panics
            /// If the end is closed.
            fn try_from(end: $name) -> io::Result<Self> {
                let inner = end.0.into_inner();
                sys::set_blocking(inner.as_fd(), true)?;
                Ok(inner)
            }
        }

        impl From<$name> for OwnedFd {
            /// The descriptor stays in non-blocking mode.
            ///
            /// # Panics
            /// If the end is closed.
            fn from(end: $name) -> OwnedFd {
                end.0.into_inner().into()
            }
        }

        impl From<$name> for std::process::Stdio {
            /// For a child, which expects an end that blocks: puts this end, and its duplicates, back into blocking mode.
            ///
            /// # Panics
            /// If the end is closed.
            fn from(end: $name) -> Self {
                let blocking = <$std>::try_from(end);
                blocking.expect("fcntl(2) sets the mode of a descriptor that is open").into()
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl AsFd for $name {
            /// As with a socket: see [`TcpStream`](crate::net::TcpStream#impl-AsFd-for-TcpStream).
            ///
            /// # Panics
            /// If the end is closed.
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $name {
            /// -1 if the end is closed.
            fn as_raw_fd(&self) -> RawFd {
                self.0.raw_fd()
            }
        }

        crate::net::methods::limits!($name);
    };
}
pub(crate) use pipe_end;

/// Implements reading.
macro_rules! pipe_reads {
    ($name:ident) => {
        crate::net::methods::reads!(
            $name,
            run_read(crate::net::socket::ShortRead::Unknown),
            |pipe, buf| sys::read(AsFd::as_fd(pipe), buf),
            |pipe, bufs| sys::read_vectored(AsFd::as_fd(pipe), bufs)
        );
    };
}
pub(crate) use pipe_reads;

/// Implements writing. A pipe without a reader is an error; the signal that comes with it is ignored in a Rust program.
macro_rules! pipe_writes {
    ($name:ident) => {
        crate::net::methods::writes!($name, |pipe, buf| sys::write(AsFd::as_fd(pipe), buf), |pipe, bufs| {
            sys::write_vectored(AsFd::as_fd(pipe), bufs)
        });
    };
}
pub(crate) use pipe_writes;

/// The end of a pipe from which one reads; see [`pipe`].
pub struct PipeReader(Socket<io::PipeReader>);

/// The end of a pipe to which one writes; see [`pipe`].
pub struct PipeWriter(Socket<io::PipeWriter>);

impl PipeReader {
    /// Makes a second handle to the same end, with an I/O lock and limits of its own.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(PipeReader(self.0.try_clone(io::PipeReader::try_clone)?))
    }
}

impl PipeWriter {
    /// Makes a second handle to the same end, with an I/O lock and limits of its own.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(PipeWriter(self.0.try_clone(io::PipeWriter::try_clone)?))
    }
}

pipe_end!(PipeReader, io::PipeReader);
pipe_reads!(PipeReader);
copy_end!(PipeReader, Pipe, Unknown: Source);
pipe_end!(PipeWriter, io::PipeWriter);
pipe_writes!(PipeWriter);
copy_end!(PipeWriter, Pipe, Unknown: Sink);
