//! Copies between descriptors; where it can, the kernel moves the bytes.

mod bidirectional;
pub(crate) mod end;
mod error;
mod load;
mod moves;
mod relay;

pub use bidirectional::{BidirectionalError, copy_bidirectional};
pub use end::{Duplex, Sink, Source};
pub(crate) use end::{copy_end, duplex_end};
pub use error::CopyError;

use crate::net::methods::with_a_frame;

/// Copies all bytes from `reader`, up to its end, to `writer`, and returns how many there were. Both are sockets, pipes or
/// files: see [`Source`] and [`Sink`]. Blocks the goroutine, or the plain thread.
///
/// ```
/// use gmp::io;
/// use gmp::net::{TcpListener, TcpStream};
/// use std::fs::File;
/// use std::io::Read;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| -> std::io::Result<()> {
///         let listener = TcpListener::bind("127.0.0.1:0")?;
///         let mut stream = TcpStream::connect(listener.local_addr()?)?;
///         let server = gmp::go(move || -> std::io::Result<u64> {
///             let file = File::open("/proc/self/comm")?;
///             let (stream, _) = listener.accept()?;
///             // A `CopyError` turns into an `io::Error`.
///             Ok(io::copy(&file, &stream)?)
///         });
///         let mut text = Vec::new();
///         stream.read_to_end(&mut text)?;
///         assert_eq!(server.join()??, text.len() as u64);
///         Ok(())
///     })
///     .unwrap();
/// }
/// ```
///
/// *The other function*, [`std::io::copy`], takes every `Read` and `Write`, those of this library too, and copies through a
/// buffer of 8 KiB on the stack. For its own types std's function uses the kernel, by specialization, which stable Rust lacks
/// elsewhere; here bounds on the types take its place: a call that compiles copies by the kernel. Bytes in a `BufReader`'s
/// buffer must be taken out before.
///
/// *How.* The first bytes go through a buffer. When two reads in a row have filled the buffer of 32 KiB, the source has more:
/// from then on a file is sent by `sendfile(2)`, and the bytes of a socket or a pipe go through a pipe of the library's by
/// `splice(2)`, without a copy, until little comes at a time. From file to file the kernel copies by `copy_file_range(2)`.
/// Where the kernel refuses one of these, for a file opened to append or on an odd file system, the buffer does the rest, and
/// all of a file that bypasses the kernel's cache (`O_DIRECT`) on its way to a socket or a pipe. A copy that waits for its
/// source has neither buffer nor pipe; the process keeps a few of them for the next copy, until no copy is under way. A copy
/// that its runtime has left behind counts as under way.
///
/// *Files*, also those of [`fs`](crate::fs), are read and written by calls that give the P away where they may wait, and that
/// do not wait in [the line](crate::fs#the-line).
///
/// *Limits* are those of each end: a read timeout bounds each wait for the source, a write timeout each wait for the sink.
/// Copies share their ends with other readers and writers, as each piece is one read and one write. A file is read and written
/// at its position, by one copy at a time; a file that others change while it is sent is sent changed. Descriptors that come
/// beside the bytes of a Unix socket are dropped, as by `read`.
///
/// # Unwinds
/// When a wait is ended from outside, except by a context, which gives an error here; and when the wait for another reader of
/// [`stdin`](super::stdin) is ended, also by a context. See [`migration`](crate::migration#what-may-unwind). Bytes on their way,
/// at most 64 KiB, are lost then.
///
/// # Errors
/// Those of reading and writing. [`CopyError`] says how many bytes were copied before, and has the bytes that were taken from
/// the source and could not be written.
pub fn copy<R: Source + ?Sized, W: Sink + ?Sized>(reader: &R, writer: &W) -> Result<u64, CopyError> {
    with_a_frame(relay::Relay::new(reader.source(), writer.sink()).run())
}
