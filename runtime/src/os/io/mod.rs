//! Pipes, the standard input, and any other descriptor that can be waited for.
//!
//! [`pipe`] makes the two ends of a pipe. [`stdin`] is the process's standard input. [`Watched`] is for a descriptor that
//! another library has made. A goroutine that waits parks; a plain thread blocks.

pub(crate) mod pipe;
mod stdin;
mod watched;

pub use pipe::{PipeReader, PipeWriter, pipe};
pub use stdin::{Stdin, stdin};
pub use watched::Watched;
