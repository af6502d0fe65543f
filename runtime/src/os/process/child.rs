//! A child process.

use super::outcome::Outcome;
use super::output;
use super::reaper;
use super::sys;
use super::{ChildStderr, ChildStdin, ChildStdout, ExitStatus, Output};
use crate::goroutine::blocking;
use crate::host::{Active, Clock};
use crate::impls::unwind_safe;
use crate::m::Window;
use crate::net::desc::Direction;
use crate::net::is_canceled;
use crate::net::methods::with_a_frame;
use crate::net::socket::Socket;
use crate::os::signal::{SIGKILL, Signal};
use crate::sched::watch::told::Refusal;
use crate::time::pause_until;
use gmp_timers::Nanos;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::process;
use std::time::{Duration, Instant};

/// A child process, and the pipes to it; made by [`Command::spawn`](super::Command::spawn).
///
/// Like [`std::process::Child`], except that a goroutine that waits parks, and that the library reaps a child which is dropped
/// before a call has waited for it: no zombie stays. The drop does not end the child, unless
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
    /// `None` after the drop has taken it.
    process: Option<Process>,
    kill_on_drop: bool,
    wait_delay: Option<Duration>,
}

/// The pauses between two questions if no descriptor reports the end: each is twice as long as the one before.
const SHORTEST_PAUSE: Duration = Duration::from_micros(100);
const LONGEST_PAUSE: Duration = Duration::from_millis(10);

/// A child whose end no call has seen.
pub(super) struct Process {
    pub(super) outcome: Outcome,
    /// The pidfd, or the kernel's refusal.
    pub(super) ends: io::Result<Socket<OwnedFd>>,
}

// As std's. A wait that was unwound can be repeated.
unwind_safe!(Child);

impl Process {
    /// Asks for the pidfd again if there was no descriptor or no memory for it. The number is the child's as long as the
    /// child's status has not been taken; if other code has taken the status, this call is as wrong as the calls by number are.
    fn look_for_descriptor(&mut self) {
        let is_short = |refused: &io::Error| {
            matches!(refused.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
        };
        if self.ends.as_ref().is_err_and(is_short) && !self.outcome.is_known() {
            self.ends = sys::pidfd_open(self.outcome.id()).map(Socket::new);
            self.note_if_gone();
        }
    }

    /// Notes that the status was taken if no process has the number: the number is free (`ESRCH`), or a thread has it
    /// (`ENOENT`, in older kernels `EINVAL`). A child that has ended keeps its number until its status is taken; so other code
    /// has taken the status, and the number may become another child's. A signal by a thread's number goes to the whole
    /// process, which may be this one.
    fn note_if_gone(&mut self) {
        let is_no_process = |refused: &io::Error| {
            matches!(refused.raw_os_error(), Some(libc::ESRCH | libc::ENOENT | libc::EINVAL))
        };
        if self.ends.as_ref().is_err_and(is_no_process) {
            self.outcome.note_gone();
        }
    }

    /// Sends a signal to the child. If there is a pidfd, the signal never goes to another process that has the number by now
    /// because another library has waited for the child.
    fn signal(&mut self, signal: Signal) -> io::Result<()> {
        self.look_for_descriptor();
        if self.outcome.is_known() {
            return Ok(());
        }
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

    /// Takes a thread for the wait, which is counted, unless the child has ended.
    #[cold]
    fn wait_without_descriptor(&mut self) -> io::Result<ExitStatus> {
        if let Some(status) = self.outcome.ask(None)? {
            return Ok(status);
        }
        if let (Err(refused), Some(window)) = (&self.ends, Window::<Active>::enter()) {
            window.m().sched().tell_refused(Refusal::ChildEnd, || {
                format!("a child has no descriptor that reports its end: a wait for the child takes a thread (pidfd_open: {refused})")
            });
        }
        blocking(|| self.outcome.wait(None))
    }

    /// Asks again and again, without a descriptor that would report the end.
    #[cold]
    fn ask_until(&mut self, until: Nanos) -> io::Result<Option<ExitStatus>> {
        let mut pause = SHORTEST_PAUSE;
        loop {
            let (status, now) = (self.outcome.ask(None)?, Active::now());
            if status.is_some() || now >= until {
                return Ok(status);
            }
            pause_until(now.saturating_add(pause).min(until))?;
            pause = (2 * pause).min(LONGEST_PAUSE);
        }
    }
}

impl Child {
    /// Makes a child of std's child, and of the descriptor that reports its end, or the refusal.
    pub(super) fn new(
        mut inner: process::Child,
        ends: io::Result<OwnedFd>,
        kill_on_drop: bool,
        wait_delay: Option<Duration>,
    ) -> Self {
        let stdin = inner.stdin.take().map(ChildStdin::from);
        let stdout = inner.stdout.take().map(ChildStdout::from);
        let stderr = inner.stderr.take().map(ChildStderr::from);
        let mut process = Process { outcome: Outcome::new(inner), ends: ends.map(Socket::new) };
        process.note_if_gone();
        Child { stdin, stdout, stderr, process: Some(process), kill_on_drop, wait_delay }
    }

    fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the drop alone takes it")
    }

    /// Returns the process's number.
    pub fn id(&self) -> u32 {
        self.process.as_ref().expect("the drop alone takes it").outcome.id()
    }

    /// Kills the child (`SIGKILL`). Returns `Ok` if the child has ended, even if other code has waited for it. Never blocks.
    ///
    /// # Errors
    /// As with std.
    pub fn kill(&mut self) -> io::Result<()> {
        self.process().signal(SIGKILL)
    }

    /// Sends a signal to the child: `SIGTERM`, say, so that it can end in order. Returns `Ok` if the child has ended, even if
    /// other code has waited for it. Never blocks. The signal never goes to another process that has got the number of a child
    /// that has ended, except if there is no pidfd for the child (before Linux 5.3, or the kernel refused one) and other code
    /// has waited for it.
    ///
    /// ```
    /// use gmp::process::Command;
    /// use gmp::signal::SIGTERM;
    /// use std::os::unix::process::ExitStatusExt;
    /// use std::time::Duration;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let mut child = Command::new("sleep").arg("3600").spawn()?;
    ///         child.signal(SIGTERM)?;
    ///         let status = match child.wait_timeout(Duration::from_secs(10))? {
    ///             Some(status) => status,
    ///             // It does not listen.
    ///             None => {
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

    /// Waits until the child has ended. Closes [`stdin`](Self::stdin) first, so that a child that reads its input gets to the
    /// end. Blocks the goroutine, or the plain thread. A wait that ended early can be repeated.
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

    /// Does the same as [`wait`](Self::wait), for at most `timeout`. Returns `None` if the child has not ended by then; the
    /// limit does not end the child. Blocks the goroutine, or the plain thread.
    ///
    /// If there is no descriptor that reports the child's end (see [the module](super)), the call asks again after pauses of up
    /// to 10 ms, and takes no thread.
    ///
    /// ```
    /// use gmp::process::Command;
    /// use std::time::Duration;
    ///
    /// let mut child = Command::new("sleep").arg("3600").spawn()?;
    /// assert_eq!(child.wait_timeout(Duration::from_millis(1))?, None);
    /// child.kill()?;
    /// let status = child.wait_timeout(Duration::from_secs(60))?.expect("it was killed");
    /// assert!(!status.success());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`wait`](Self::wait). An error of kind `TimedOut` is that of a context under which the caller runs.
    pub fn wait_timeout(&mut self, timeout: Duration) -> io::Result<Option<ExitStatus>> {
        with_a_frame(self.wait_until(Active::after(timeout)))
    }

    /// Does the same as [`wait_timeout`](Self::wait_timeout), until `deadline`.
    ///
    /// ```
    /// use gmp::process::Command;
    /// use std::time::{Duration, Instant};
    ///
    /// let limit = Instant::now() + Duration::from_secs(60);
    /// let mut children = [Command::new("true").spawn()?, Command::new("true").spawn()?];
    /// for child in &mut children {
    ///     assert!(child.wait_deadline(limit)?.expect("both end soon").success());
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`wait_timeout`](Self::wait_timeout).
    pub fn wait_deadline(&mut self, deadline: Instant) -> io::Result<Option<ExitStatus>> {
        with_a_frame(self.wait_until(Active::nanos(deadline)))
    }

    fn wait_until(&mut self, until: Nanos) -> io::Result<Option<ExitStatus>> {
        drop(self.stdin.take());
        let process = self.process();
        process.look_for_descriptor();
        let Ok(ends) = &process.ends else { return process.ask_until(until) };
        let outcome = &mut process.outcome;
        let waited =
            ends.run_until(Direction::Read, Some(until), |ends| match outcome.ask(Some(ends.as_fd()))? {
                Some(status) => Ok(status),
                None => Err(io::ErrorKind::WouldBlock.into()),
            });
        match waited {
            // The last look: a limit that has passed before the call ends the wait before the first.
            Err(late) if late.kind() == io::ErrorKind::TimedOut && !is_canceled(&late) => process.try_wait(),
            waited => waited.map(Some),
        }
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
    /// While another process has one of the pipes, that pipe has no end, and the call goes on, also after the child's end:
    /// [`Command::wait_delay`](super::Command::wait_delay) says for how long.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; the limits of the pipes (`TimedOut`) and a context that is done; and if both pipes are left, or one and a
    /// [delay](super::Command::wait_delay), and there is no descriptor for the wait for several. The child is reaped all the same.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (pipes, delay) = ((self.stdout.take(), self.stderr.take()), self.wait_delay);
        let delay = delay.and_then(|delay| {
            let process = self.process();
            process.look_for_descriptor();
            Some((process.ends.as_ref().ok()?, delay))
        });
        let (stdout, stderr) = output::read(pipes, delay)?;
        Ok(Output { status: self.wait()?, stdout, stderr })
    }
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
            // The child may have ended since.
            let _ended = process.signal(SIGKILL);
        }
        reaper::adopt(process);
    }
}
