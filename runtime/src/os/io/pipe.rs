//! Pipes.
//!
//! An end has the limits of its direction alone:
//!
//! ```compile_fail,E0599
//! fn limits(input: &gmp::process::ChildStdin) {
//!     let _ = input.set_read_timeout(None);
//! }
//! ```
//! ```compile_fail,E0599
//! fn limits(reader: &gmp::io::PipeReader) {
//!     let _ = reader.set_write_deadline(None);
//! }
//! ```

use crate::net::desc::Direction;
use crate::net::socket::Socket;
use crate::net::sys;
use crate::os::io::copy::copy_end;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Makes a pipe. Bytes written to the second end are read from the first; when no writer is left, a reader gets the end.
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
    Ok((reader.into(), writer.into()))
}

/// Implements the traits and `close` that both kinds of ends have, for a type of std's.
macro_rules! pipe_end {
    ($name:ident, $std:ty) => {
        impl From<$std> for $name {
            /// Puts the end into non-blocking mode, which holds for all duplicates of this end.
            ///
            /// # Panics
            /// If the kernel refuses that, as it does for a descriptor of `O_PATH`; for none that can be read or written.
            fn from(inner: $std) -> Self {
                sys::set_blocking(inner.as_fd(), false).expect("from: the descriptor's mode can't be changed");
                $name(Socket::of_shared(inner))
            }
        }

        impl From<$name> for $std {
            /// Puts the end back into blocking mode, as other programs expect.
            ///
            /// # Panics
            /// If the descriptor's mode can't be changed, and if the end is closed.
            fn from(end: $name) -> Self {
                let inner = end.0.into_inner();
                sys::set_blocking(inner.as_fd(), true).expect("from: the descriptor's mode can't be changed");
                inner
            }
        }

        impl From<$name> for std::process::Stdio {
            /// Puts this end, and its duplicates, back into blocking mode, for a child, which expects an end that blocks.
            ///
            /// # Panics
            /// If the descriptor's mode can't be changed, and if the end is closed.
            fn from(end: $name) -> Self {
                <$std>::from(end).into()
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

        crate::net::traits::handle_traits!($name, $std);
        crate::net::methods::closes!(
            [] $name, "this end",
            "Other handles of this end, here or in another process, live on; the other end of the pipe is told when the last one",
            "is closed or dropped. Blocks the goroutine, or the plain thread, until system calls of other goroutines on this end",
            "have returned; then the descriptor's number is free, unless the descriptor was lent out by `AsFd`."
        );
    };
}
pub(crate) use pipe_end;

/// Implements reading, with its limits.
macro_rules! pipe_reads {
    ($name:ident) => {
        crate::net::methods::read_limits!([] $name);
        impl $name {
            /// Does the same as [`set_read_deadline`](Self::set_read_deadline): an end has one direction.
            ///
            /// # Errors
            /// If this is closed.
            pub fn set_deadline(&self, at: Option<std::time::Instant>) -> io::Result<()> {
                self.0.set_deadline(Direction::Read, at)
            }
        }
        crate::net::methods::reads!(
            $name,
            |pipe, buf| crate::net::socket::Rest::Unknown.after(sys::read(AsFd::as_fd(pipe), buf)),
            |pipe, bufs| crate::net::socket::Rest::Unknown.after(sys::read_vectored(AsFd::as_fd(pipe), bufs))
        );
    };
}
pub(crate) use pipe_reads;

/// Implements writing, with its limits. A write to a pipe without a reader fails; a Rust program ignores the signal that comes
/// with the error.
macro_rules! pipe_writes {
    ($name:ident) => {
        crate::net::methods::write_limits!([] $name);
        impl $name {
            /// Does the same as [`set_write_deadline`](Self::set_write_deadline): an end has one direction.
            ///
            /// # Errors
            /// If this is closed.
            pub fn set_deadline(&self, at: Option<std::time::Instant>) -> io::Result<()> {
                self.0.set_deadline(Direction::Write, at)
            }
        }
        crate::net::methods::writes!($name, |pipe, buf| sys::write(AsFd::as_fd(pipe), buf), |pipe, bufs| {
            sys::write_vectored(AsFd::as_fd(pipe), bufs)
        });
    };
}
pub(crate) use pipe_writes;

/// The reading end of a pipe; see [`pipe`].
pub struct PipeReader(Socket<io::PipeReader>);

/// The writing end of a pipe; see [`pipe`].
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

/// Implements `FromRawFd`, which std's pipes to a child do not have either.
macro_rules! from_raw_fd {
    ($name:ident, $std:ty) => {
        impl FromRawFd for $name {
            /// # Safety
            /// As [`FromRawFd::from_raw_fd`].
            ///
            /// # Panics
            /// If the descriptor is not open, or was opened with `O_PATH`.
            unsafe fn from_raw_fd(fd: RawFd) -> Self {
                // SAFETY: by this function's contract.
                unsafe { <$std>::from_raw_fd(fd) }.into()
            }
        }
    };
}

pipe_end!(PipeReader, io::PipeReader);
from_raw_fd!(PipeReader, io::PipeReader);
pipe_reads!(PipeReader);
copy_end!(PipeReader, Pipe, Unknown: Source);
pipe_end!(PipeWriter, io::PipeWriter);
from_raw_fd!(PipeWriter, io::PipeWriter);
pipe_writes!(PipeWriter);
copy_end!(PipeWriter, Pipe, Unknown: Sink);
