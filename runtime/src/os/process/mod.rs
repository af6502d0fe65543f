//! Child processes, with std's names and signatures: [`Command`], [`Child`].
//!
//! A goroutine that waits for a child, or for a child's output, parks: many children take no thread each. Starting one blocks
//! the thread, but no other goroutine. The kernel reports a child's end by a descriptor (`pidfd_open(2)`, Linux 5.3), so no
//! signal handler is installed and no other library's children are reaped. If the kernel refuses that call, a wait takes a
//! thread, and [`Refused::child_waits`](crate::Refused::child_waits) counts it; a wait with a limit asks again after pauses
//! instead. From Linux 5.4 on the status is taken by that descriptor, too, unless a sandbox refuses that: if other code has
//! taken the status before, another child may have the number, and the wait returns an error, never the other child's status.
//!
//! Unlike std's, a [`Child`] that is dropped before a call has waited for it is reaped when it ends.
//!
//! ```
//! use gmp::process::Command;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let output = Command::new("echo").arg("hello").output().unwrap();
//!         assert!(output.status.success());
//!         assert_eq!(output.stdout, b"hello\n");
//!     })
//! }
//! ```
//!
//! *A child that ends with a context*, as by Go's `exec.CommandContext`: wait for the child under the context, with
//! [`kill_on_drop`](Command::kill_on_drop). Without that setting only the wait ends, and the child goes on.
//!
//! ```
//! use gmp::{context::ContextError, process::Command, time};
//! use std::time::Duration;
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         let sleeps = || Command::new("sleep").arg("3600").kill_on_drop(true).output();
//!         let error = time::timeout(Duration::from_millis(5), sleeps).unwrap().unwrap_err();
//!         assert_eq!(ContextError::of(&error), Some(ContextError::DeadlineExceeded));
//!     })
//! }
//! ```

mod child;
mod command;
mod outcome;
mod output;
mod reaper;
mod streams;
mod sys;

pub use child::Child;
pub use command::Command;
pub use std::process::{CommandArgs, CommandEnvs, ExitCode, ExitStatus, Output, Stdio, abort, exit, id};
pub use streams::{ChildStderr, ChildStdin, ChildStdout};
