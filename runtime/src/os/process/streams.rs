//! The pipes to a child.

use crate::net::desc::Direction;
use crate::net::socket::Socket;
use crate::net::sys;
use crate::os::io::copy::copy_end;
use crate::os::io::pipe::{pipe_end, pipe_reads, pipe_writes};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::process;

/// The pipe to a child's standard input. The child gets the end of its input once this is closed or dropped. The example is at
/// [`Child`](super::Child).
pub struct ChildStdin(Socket<process::ChildStdin>);

/// The pipe from a child's standard output. The example is at [`Child`](super::Child).
pub struct ChildStdout(pub(super) Socket<process::ChildStdout>);

/// The pipe from a child's standard error. The example is at [`Child`](super::Child).
pub struct ChildStderr(pub(super) Socket<process::ChildStderr>);

pipe_end!(ChildStdin, process::ChildStdin);
pipe_writes!(ChildStdin);
copy_end!(ChildStdin, Pipe, Unknown: Sink);
pipe_end!(ChildStdout, process::ChildStdout);
pipe_reads!(ChildStdout);
copy_end!(ChildStdout, Pipe, Unknown: Source);
pipe_end!(ChildStderr, process::ChildStderr);
pipe_reads!(ChildStderr);
copy_end!(ChildStderr, Pipe, Unknown: Source);
