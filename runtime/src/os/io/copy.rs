//! Copies between descriptors, of which the kernel moves the bytes where it can.

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
pub(in crate::os) use relay::look;

use crate::net::methods::with_a_frame;

/// Copies all that `reader` has, to its end, to `writer`, and returns how many bytes these were. Both are sockets, pipes or
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
/// *The other function*, [`std::io::copy`], takes every `Read` and `Write`, ours too, by a buffer of 8 KiB on the stack. What
/// std's does for its own types by specialization, which stable Rust lacks elsewhere, is here a bound: where this function
/// compiles it copies by the kernel. What is in a `BufReader`'s buffer has to be taken out of there before.
///
/// *How.* The first bytes go through a buffer. A source of which two reads in a row have filled the buffer of 32 KiB has more:
/// from then on a file is sent by `sendfile(2)`, and what comes from a socket or a pipe goes through a pipe of the library's by
/// `splice(2)`, without a copy, until little comes at a time. From file to file it is `copy_file_range(2)`. Where the kernel
/// refuses one of these, for a file opened to append or on an odd file system, the buffer does the rest. A copy that waits for
/// its source has neither buffer nor pipe; the process keeps a few of them for the next one, until no copy is under way.
///
/// *Limits* are those of each end: a read timeout bounds each wait for the source, a write timeout each for the sink. Copies
/// share their ends with other readers and writers, as each piece is one read and one write. A file is read and
/// written where it stands, by one copy at a time; a file that others change while it is sent is sent changed.
/// Descriptors that come beside the bytes of a Unix socket are dropped, as by `read`.
///
/// # Unwinds
/// When a wait is ended from outside, except by a context, which gives an error here; and when the wait for another reader of
/// [`stdin`](super::stdin) is ended, also by a context. See [`migration`](crate::migration#what-may-unwind). Bytes on their way,
/// at most 64 KiB, are lost then.
///
/// # Errors
/// Those of reading and writing. [`CopyError`] knows how many bytes were copied before, and has those that were taken from the
/// source and could not be written.
pub fn copy<R: Source + ?Sized, W: Sink + ?Sized>(reader: &R, writer: &W) -> Result<u64, CopyError> {
    with_a_frame(relay::Relay::new(reader.source(), writer.sink()).run())
}
