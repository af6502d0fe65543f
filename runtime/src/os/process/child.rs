//! A child process.

use super::outcome::Outcome;
use super::output::read_both;
use super::reaper;
use super::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use crate::goroutine::blocking;
use crate::host::Active;
use crate::m::Window;
use crate::net::desc::Direction;
use crate::net::methods::with_a_frame;
use crate::net::socket::Socket;
use crate::net::sys;
use crate::os::signal::{SIGKILL, Signal};
use crate::sched::watch::told::Refusal;
use std::fmt;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::process;

/// A child process, and the pipes to it; made by [`Command::spawn`](super::Command::spawn).
///
/// Like [`std::process::Child`], except that a goroutine that waits parks, and that a child for which no call has waited is
/// reaped after the drop: no zombie stays. The drop does not end the child, unless
/// [`kill_on_drop`](super::Command::kill_on_drop) was set.
///
/// ```
/// use gmp::process::{Command, Stdio};
/// use std::io::{Read, Write};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let mut child = Command::new("tr")
///             .args(["a-z", "A-Z"])
///             .stdin(Stdio::piped())
///             .stdout(Stdio::piped())
///             .spawn()
///             .unwrap();
///         child.stdin.take().unwrap().write_all(b"hello").unwrap();
///         let mut text = String::new();
///         child.stdout.take().unwrap().read_to_string(&mut text).unwrap();
///         assert_eq!(text, "HELLO");
///         assert!(child.wait().unwrap().success());
///     })
/// }
/// ```
pub struct Child {
    /// The pipe to the child's standard input, if it has one.
    pub stdin: Option<ChildStdin>,
    /// The pipe from the child's standard output, if it has one.
    pub stdout: Option<ChildStdout>,
    /// The pipe from the child's standard error, if it has one.
    pub stderr: Option<ChildStderr>,
    /// `None` after the drop has given it away.
    process: Option<Process>,
    kill_on_drop: bool,
}

/// A child whose end no call has seen.
pub(super) struct Process {
    pub(super) outcome: Outcome,
    /// An error where the kernel refuses one.
    pub(super) ends: io::Result<Socket<OwnedFd>>,
}

impl Process {
    /// Asks for the pidfd again if there was no descriptor or no memory for it. The number is the child's as long as its status
    /// has not been taken; if other code has taken that, the number means no more than it does in the calls by number.
    fn look_for_descriptor(&mut self) {
        let is_short = |refused: &io::Error| {
            matches!(refused.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
        };
        if self.ends.as_ref().is_err_and(is_short) && !self.outcome.is_known() {
            self.ends = sys::pidfd_open(self.outcome.id()).map(Socket::new);
        }
    }

    /// Sends a signal to the child. Where it has a pidfd, never to another process that has its number now: another library may
    /// have waited for the child.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        if self.outcome.is_known() {
            return Ok(());
        }
        self.look_for_descriptor();
        let Ok(ends) = &self.ends else { return self.outcome.signal_by_number(signal) };
        match ends.with(|ends| sys::kill_by_pidfd(ends.as_fd(), signal.as_raw())) {
            Err(gone) if gone.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            // Kernels before 5.1, and sandboxes.
            Err(_) => self.outcome.signal_by_number(signal),
            Ok(()) => Ok(()),
        }
    }

    fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.look_for_descriptor();
        match &self.ends {
            Ok(ends) => ends.with(|ends| self.outcome.ask(Some(ends.as_fd()))),
            Err(_) => self.outcome.ask(None),
        }
    }

    /// Takes a thread, and says so, unless the child has ended.
    #[cold]
    fn wait_without_descriptor(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.outcome.ask(None)? {
            return Ok(status);
        }
        if let (Err(refused), Some(window)) = (&self.ends, Window::<Active>::enter()) {
            window.m().sched().tell_refused(Refusal::ChildEnd, || {
                format!("a child has no descriptor that tells of its end: its wait takes a thread (pidfd_open: {refused})")
            });
        }
        blocking(|| self.outcome.wait(None))
    }
}

impl Child {
    pub(super) fn new(mut inner: process::Child, kill_on_drop: bool) -> io::Result<Self> {
        let pipes = (inner.stdin.take(), inner.stdout.take(), inner.stderr.take());
        // The child has not been waited for, so the number is its own.
        let ends = sys::pidfd_open(inner.id()).map(Socket::new);
        let mut child = Child {
            stdin: None,
            stdout: None,
            stderr: None,
            process: Some(Process { outcome: Outcome::new(inner), ends }),
            kill_on_drop,
        };
        let connected = (|| {
            child.stdin = pipes.0.map(ChildStdin::try_from).transpose()?;
            child.stdout = pipes.1.map(ChildStdout::try_from).transpose()?;
            child.stderr = pipes.2.map(ChildStderr::try_from).transpose()?;
            Ok(())
        })();
        child.kill_on_drop |= connected.is_err();
        connected.map(|()| child)
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the drop alone takes it")
    }

    /// Returns the process's number.
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the drop alone takes it").outcome.id()
    }

    /// Kills the child (`SIGKILL`). Returns `Ok` if it has ended, whoever has waited for it. Never blocks.
    ///
    /// # Errors
    /// As with std.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process().signal(SIGKILL)
    }

    /// Sends a signal to the child: `SIGTERM`, say, so that it may end in order. Returns `Ok` if it has ended, whoever has
    /// waited for it. Never blocks. A signal never goes to another process, which may have the number of a child that has
    /// ended; except where the kernel has no pidfds (before Linux 5.3), or there was none for the child, and other code has
    /// waited for it.
    ///
    /// ```
    /// use gmp::process::Command;
    /// use gmp::signal::SIGTERM;
    /// use gmp::time::timeout;
    /// use std::os::unix::process::ExitStatusExt;
    /// use std::time::Duration;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let mut child = Command::new("sleep").arg("3600").spawn()?;
    ///         child.signal(SIGTERM)?;
    ///         let status = match timeout(Duration::from_secs(10), || child.wait()) {
    ///             Ok(Ok(status)) => status,
    ///             // It does not listen.
    ///             _ => {
    ///                 child.kill()?;
    ///                 child.wait()?
    ///             }
    ///         };
    ///         assert_eq!(status.signal(), Some(SIGTERM.as_raw()));
    ///         child.signal(SIGTERM)
    ///     })
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// `EINVAL` if there is no such signal, `EPERM` if the child has become another user's.
    pub fn signal(&mut self, signal: Signal) -> io::Result<()> {
        self.process().signal(signal)
    }

    /// Waits until the child has ended. Closes [`stdin`](Self::stdin) first, so that a child that reads on comes to the end.
    /// Blocks the goroutine, or the plain thread. A wait that ended early can be repeated.
    ///
    /// ```
    /// use gmp::process::Command;
    ///
    /// let mut child = Command::new("sh").args(["-c", "exit 3"]).spawn()?;
    /// assert_eq!(child.wait()?.code(), Some(3));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std. `ECHILD` if other code has taken the child's status: another library that waits for all children, or the
    /// kernel, where `SIGCHLD` is ignored.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        let process = self.process();
        process.look_for_descriptor();
        let Ok(ends) = &process.ends else { return process.wait_without_descriptor() };
        let outcome = &mut process.outcome;
        with_a_frame(ends.run(Direction::Read, |ends| match outcome.ask(Some(ends.as_fd()))? {
            Some(status) => Ok(status),
            None => Err(io::ErrorKind::WouldBlock.into()),
        }))
    }

    /// Returns how the child has ended, if it has. Never blocks.
    ///
    /// # Errors
    /// As with std.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.process().try_wait()
    }

    /// Waits until the child has ended, and reads all that is left in [`stdout`](Self::stdout) and [`stderr`](Self::stderr),
    /// from both at once: a child never waits for a pipe that is not read. Closes [`stdin`](Self::stdin) first. Blocks the
    /// goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; and if both pipes are left and there is no descriptor by which both can be waited for. The child is reaped
    /// all the same.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let (stdout, stderr) = match (stdout, stderr) {
            (Some(stdout), Some(stderr)) => read_both(stdout, stderr)?,
            (stdout, stderr) => (all_of(stdout)?, all_of(stderr)?),
        };
        Ok(Output { status: self.wait()?, stdout, stderr })
    }
}

fn all_of(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        pipe.read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

impl fmt::Debug for Child {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Child").field("id", &self.id()).finish_non_exhaustive()
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let mut process = self.process.take().expect("the drop alone takes it");
        if let Ok(Some(_)) | Err(_) = process.try_wait() {
            return;
        }
        if self.kill_on_drop {
            // It may have ended since.
            let _ended = process.signal(SIGKILL);
        }
        reaper::adopt(process);
    }
}
