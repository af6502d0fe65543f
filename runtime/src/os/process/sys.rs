//! The system calls about a child that std does not make.

use crate::net::sys::{check, new_fd};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Returns a descriptor that is readable once the process `pid` has ended. Without flags: kernels before 5.10 know none, and
/// nothing reads from the descriptor.
pub(super) fn pidfd_open(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the call makes a descriptor.
    unsafe { new_fd(libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) as libc::c_int) }
}

/// Takes the status of the child of `pidfd`, by `waitid(2)` with these options; with `WNOHANG`, `None` if there is no status
/// yet.
///
/// # Errors
/// `ECHILD` if the status was taken before. `EINVAL` by kernels before 5.4.
pub(super) fn wait_by_pidfd(pidfd: BorrowedFd<'_>, options: libc::c_int) -> io::Result<Option<ExitStatus>> {
    let fd = pidfd.as_raw_fd() as libc::id_t;
    let mut told = MaybeUninit::<libc::siginfo_t>::zeroed();
    loop {
        // SAFETY: room for the answer, which lives through the call.
        let waited = unsafe { libc::waitid(libc::P_PIDFD, fd, told.as_mut_ptr(), libc::WEXITED | options) };
        match check(waited) {
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // SAFETY: zeroed and then filled by the kernel; all bit patterns are valid.
    let told = unsafe { told.assume_init_ref() };
    // SAFETY: the kernel has filled in what belongs to SIGCHLD, or has left zeros.
    let (pid, status) = unsafe { (told.si_pid(), told.si_status()) };
    Ok((pid != 0).then(|| exit_status(told.si_code, status)))
}

/// Returns the status that `wait(2)` would have given.
fn exit_status(code: libc::c_int, status: libc::c_int) -> ExitStatus {
    /// The bit of a core dump.
    const DUMPED: libc::c_int = 0x80;
    ExitStatus::from_raw(match code {
        libc::CLD_EXITED => (status & 0xff) << 8,
        libc::CLD_DUMPED => status | DUMPED,
        _ => status,
    })
}

/// Sends a signal to the process of `pidfd`; `ESRCH` if its status was taken.
pub(super) fn kill_by_pidfd(pidfd: BorrowedFd<'_>, signal: libc::c_int) -> io::Result<()> {
    let no_info: *const libc::siginfo_t = std::ptr::null();
    // SAFETY: no information is passed.
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd.as_raw_fd(), signal, no_info, 0) };
    check(sent as libc::c_int).map(drop)
}

/// Sends a signal to the process that has this number.
pub(super) fn kill(pid: u32, signal: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::kill(pid as libc::pid_t, signal) }).map(drop)
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails by a status that says something else than `wait(2)` does.
    #[test]
    fn what_waitid_tells_is_the_status_of_wait() {
        let of = |code, status| {
            let status = exit_status(code, status);
            (status.code(), status.signal(), status.core_dumped())
        };
        assert_eq!(of(libc::CLD_EXITED, 0), (Some(0), None, false));
        assert_eq!(of(libc::CLD_EXITED, 255), (Some(255), None, false));
        assert_eq!(of(libc::CLD_KILLED, libc::SIGKILL), (None, Some(libc::SIGKILL), false));
        assert_eq!(of(libc::CLD_DUMPED, libc::SIGQUIT), (None, Some(libc::SIGQUIT), true));
    }
}
