//! How the status of a child is taken.
//!
//! *The problem.* Other code may take the status before this library does: a loop around `waitpid(-1)`, or the kernel, if
//! `SIGCHLD` is ignored. The child's number is free then, and the next child of this process may get it. A question by number
//! takes the status of that child, or waits for its end.
//!
//! *Here* the question uses the pidfd, which means this child for good: `waitid(P_PIDFD)`, Linux 5.4. As in std, the question
//! uses the number if there is no pidfd, or if the kernel, or a sandbox, does not answer for a pidfd.

use super::ExitStatus;
use super::sys;
use crate::os::signal::Signal;
use std::io;
use std::os::fd::BorrowedFd;
use std::process;

/// What is known of the end of a child.
pub(super) struct Outcome {
    /// The child without its pipes. Not asked once something is known.
    by_number: process::Child,
    known: Known,
}

enum Known {
    Nothing,
    Status(ExitStatus),
    /// Other code has taken the status.
    Gone,
}

impl Outcome {
    pub(super) fn new(by_number: process::Child) -> Self {
        Outcome { by_number, known: Known::Nothing }
    }

    pub(super) fn id(&self) -> u32 {
        self.by_number.id()
    }

    /// Returns `true` if a call has found that the child has ended.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.known, Known::Nothing)
    }

    /// Other code has taken the status.
    pub(super) fn note_gone(&mut self) {
        self.known = Known::Gone;
    }

    /// Sends a signal by number, which may be another process's if other code has taken the status.
    pub(super) fn signal_by_number(&self, signal: Signal) -> io::Result<()> {
        match sys::kill(self.id(), signal.as_raw()) {
            // The child has ended, and other code has taken the status.
            Err(gone) if gone.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            sent => sent,
        }
    }

    /// Returns how the child has ended, if it has. Never blocks.
    ///
    /// # Errors
    /// `ECHILD` if other code has taken the status.
    pub(super) fn ask(&mut self, pidfd: Option<BorrowedFd<'_>>) -> io::Result<Option<ExitStatus>> {
        self.asked(pidfd, libc::WNOHANG, process::Child::try_wait)
    }

    /// Blocks the thread until the child has ended, and returns how.
    ///
    /// # Errors
    /// As `ask`.
    pub(super) fn wait(&mut self, pidfd: Option<BorrowedFd<'_>>) -> io::Result<ExitStatus> {
        let status = self.asked(pidfd, 0, |child| child.wait().map(Some))?;
        Ok(status.expect("Outcome::wait: the call waits for a status"))
    }

    fn asked(
        &mut self,
        pidfd: Option<BorrowedFd<'_>>,
        options: libc::c_int,
        by_number: impl FnOnce(&mut process::Child) -> io::Result<Option<ExitStatus>>,
    ) -> io::Result<Option<ExitStatus>> {
        match self.known {
            Known::Nothing => {}
            Known::Status(status) => return Ok(Some(status)),
            Known::Gone => return Err(gone()),
        }
        let answer = match pidfd.map(|pidfd| sys::wait_by_pidfd(pidfd, options)) {
            Some(Ok(status)) => Ok(status),
            Some(Err(error)) if is_gone(&error) => Err(error),
            // No pidfd, or a pidfd that can't be asked.
            None | Some(Err(_)) => by_number(&mut self.by_number),
        };
        match &answer {
            Ok(Some(status)) => self.known = Known::Status(*status),
            Err(error) if is_gone(error) => self.known = Known::Gone,
            Ok(None) | Err(_) => {}
        }
        answer
    }
}

fn gone() -> io::Error {
    io::Error::from_raw_os_error(libc::ECHILD)
}

fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ECHILD)
}
