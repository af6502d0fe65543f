//! Pipes, the standard input, and any other descriptor for which a goroutine can wait.
//!
//! [`pipe`] makes the two ends of a pipe. [`stdin`] is the process's standard input. [`Watched`] is for a descriptor that
//! another library has made. [`copy`] and [`copy_bidirectional`] copy between sockets, pipes and files. A goroutine that waits
//! parks; a plain thread blocks.

pub(crate) mod copy;
pub(crate) mod pipe;
mod stdin;
mod watched;

pub use crate::net::is_closed;
pub use copy::{BidirectionalError, CopyError, Duplex, Sink, Source, copy, copy_bidirectional};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use stdin::{Stdin, StdinLock, stdin};
pub use watched::Watched;
