//! The system calls that move bytes between descriptors.

use crate::host::handler::exchange;
use crate::net::sys::check_len;
use crate::os::fs::preadv2;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr;

/// Asks whether a socket is at its urgent byte; not among the constants of `libc`.
const SIOCATMARK: libc::Ioctl = 0x8905;

/// Returns `true` if the kernel refuses this way to move bytes, of which it has moved none.
pub(super) fn is_refusal(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EINVAL
                | libc::ENOSYS
                | libc::EOPNOTSUPP
                | libc::EXDEV
                | libc::EPERM
                | libc::EBADF
                | libc::ESPIPE
        )
    )
}

/// Does the same as `is_refusal`, for a copy from file to file. CIFS may answer `EIO` to a length beyond the file's end. If
/// a file can't be read or written at all, the calls by the buffer say so.
pub(super) fn is_refusal_of_files(error: &io::Error) -> bool {
    is_refusal(error) || error.raw_os_error() == Some(libc::EIO)
}

/// Whether a call may wait: never, or if the descriptor's own mode makes it wait.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Waits {
    Never,
    AsItsMode,
}

/// Moves bytes from or to a pipe.
pub(super) fn splice(
    from: BorrowedFd<'_>,
    to: BorrowedFd<'_>,
    len: usize,
    waits: Waits,
) -> io::Result<usize> {
    let flags = match waits {
        // Between two pipes the flag is about both.
        Waits::Never => libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK,
        Waits::AsItsMode => libc::SPLICE_F_MOVE,
    };
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: no pointers.
    check_len(unsafe { libc::splice(from, ptr::null_mut(), to, ptr::null_mut(), len, flags) })
}

/// Sends at most `len` bytes of a file, from its position on.
pub(super) fn sendfile(file: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    // SAFETY: no pointers.
    check_len(unsafe { libc::sendfile(to.as_raw_fd(), file.as_raw_fd(), ptr::null_mut(), len) })
}

/// Copies at most `len` bytes of a file to another one, from the position of the first to that of the second.
pub(super) fn copy_range(from: BorrowedFd<'_>, to: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: no pointers.
    check_len(unsafe { libc::copy_file_range(from, ptr::null_mut(), to, ptr::null_mut(), len, 0) })
}

/// Reads bytes of a file for which the kernel need not wait for a disk: `WouldBlock` if there are none.
pub(super) fn read_cached(file: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    let buf = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    // SAFETY: the buffer is as long as told, and lives through the call.
    unsafe { preadv2(file.as_raw_fd(), &[buf], -1, libc::RWF_NOWAIT) }
}

/// Returns `true` if the next `len` bytes of the file, or as many as it has, seem to need no wait for a disk: the first and the
/// last one are in memory. The kernel reads ahead, so the bytes between are mostly in memory, too.
///
/// # Errors
/// `ESPIPE` for a descriptor without a position: a socket, a pipe, a terminal.
pub(super) fn is_cached(file: BorrowedFd<'_>, len: usize) -> io::Result<bool> {
    // SAFETY: no pointers.
    let at = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) };
    if at < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeros is a valid answer, which the call fills in.
    let mut about: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the answer lives through the call.
    let told = unsafe { libc::fstat(file.as_raw_fd(), &raw mut about) } == 0;
    // A device, or a file of `/proc`, has no length here.
    let end = if told && about.st_size > at { about.st_size } else { libc::off_t::MAX };
    let last = at.saturating_add(len as libc::off_t).min(end) - 1;
    Ok(is_byte_cached(file, at) && is_byte_cached(file, last))
}

/// Returns `true` if a read of the byte at `at` needs no wait for a disk; the read may find the end there.
fn is_byte_cached(file: BorrowedFd<'_>, at: libc::off_t) -> bool {
    let mut byte = 0_u8;
    let buf = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: a byte, which lives through the call.
    unsafe { preadv2(file.as_raw_fd(), &[buf], at, libc::RWF_NOWAIT) }.is_ok()
}

/// Returns `true` if the socket's next byte is an urgent one. `splice` stops there, as if the socket were empty, or at its
/// end, until a reader has read; `read` goes on behind that byte.
pub(super) fn is_at_urgent(socket: BorrowedFd<'_>) -> bool {
    let mut is_there: libc::c_int = 0;
    // SAFETY: an int, which lives through the call. A socket that knows no urgent bytes refuses.
    let asked = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCATMARK, &raw mut is_there) };
    asked == 0 && is_there != 0
}

/// Returns `true` if SIGPIPE is ignored, as in every Rust program that does not change that. `splice` and `sendfile` have no
/// flag against this signal, which the kernel sends when the socket has no peer.
pub(super) fn sigpipe_is_ignored() -> bool {
    exchange(libc::SIGPIPE, None).is_ok_and(|action| action.sa_sigaction == libc::SIG_IGN)
}
