//! The system calls that std does not make.

use super::kind::Try;
use crate::net::sys::{check_len, new_fd};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// Where a read or write begins.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum At {
    /// At the file's position, which moves.
    Position,
    /// At this offset; the position stays.
    Offset(u64),
}

/// A part of memory to read into.
pub(super) fn part(buf: &mut [MaybeUninit<u8>]) -> libc::iovec {
    libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() }
}

/// Reads as many bytes as need no wait for a disk.
///
/// # Safety
/// The parts may be written to.
///
/// # Errors
/// `EAGAIN` if no bytes are at hand. `EOPNOTSUPP`, `ENOSYS` or `EINVAL` if the kernel can't read so.
#[inline]
pub(super) unsafe fn read_cached(file: &File, parts: &[libc::iovec], at: At, how: Try) -> io::Result<usize> {
    let (fd, offset) = (
        file.as_raw_fd(),
        match at {
            At::Position => -1,
            // An offset that is too large is refused, as is any negative one but -1.
            At::Offset(at) => libc::c_long::try_from(at).unwrap_or(libc::c_long::MIN),
        },
    );
    let flags = match (how, parts, at) {
        (Try::NoWait, ..) => libc::RWF_NOWAIT,
        // The kernel takes 65 ns less for these two than for the one below.
        (Try::Plain, &[part], At::Offset(_)) => {
            // SAFETY: by this function's contract.
            return check_len(unsafe { libc::pread(fd, part.iov_base, part.iov_len, offset) });
        }
        (Try::Plain, &[part], At::Position) => {
            // SAFETY: by this function's contract.
            return check_len(unsafe { libc::read(fd, part.iov_base, part.iov_len) });
        }
        (Try::Plain, ..) => 0,
    };
    // SAFETY: by this function's contract.
    unsafe { preadv2(fd, parts, offset, flags) }
}

/// `preadv2(2)`; an `offset` of -1 stands for the file's position. Not libc's function, which is a cancellation point, and
/// which emulates a call that the kernel refuses.
///
/// # Safety
/// The parts may be written to.
pub(in crate::os) unsafe fn preadv2(
    file: RawFd,
    parts: &[libc::iovec],
    offset: libc::c_long,
    flags: libc::c_int,
) -> io::Result<usize> {
    let count = parts.len().min(libc::UIO_MAXIOV as usize);
    // SAFETY: by this function's contract. The upper half of the offset, here 0, is not read by a 64-bit kernel.
    let read = unsafe { libc::syscall(libc::SYS_preadv2, file, parts.as_ptr(), count, offset, 0, flags) };
    check_len(read as libc::ssize_t)
}

/// Reads into memory that need not be initialised, and waits for the disk.
pub(super) fn read(file: &File, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as told, and lives through the call.
    check_len(unsafe { libc::read(file.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) })
}

/// Returns `true` for a file that was opened with `O_DIRECT`.
pub(in crate::os) fn is_direct(file: BorrowedFd<'_>) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags != -1 && flags & libc::O_DIRECT != 0
}

/// Returns `true` for a regular file whose file system keeps it in memory and nowhere else. The node of a disk may be in such a
/// file system, too.
pub(super) fn is_in_memory(file: &File) -> bool {
    /// The number is that of linux/magic.h.
    const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: room for the answer, for which zeros are valid, too.
    let kind = unsafe {
        match libc::fstatfs(file.as_raw_fd(), found.as_mut_ptr()) {
            0 => found.assume_init().f_type,
            _ => return false,
        }
    };
    [libc::TMPFS_MAGIC, RAMFS_MAGIC].contains(&kind) && file.metadata().is_ok_and(|file| file.is_file())
}

/// Returns how many bytes follow the file's position, as far as the kernel knows without a request to a server; 0 if it does
/// not.
pub(super) fn rest(file: &File) -> usize {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path, and room for the answer.
    let size = unsafe {
        match libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_SIZE, found.as_mut_ptr()) {
            0 => found.assume_init().stx_size,
            _ => return 0,
        }
    };
    // SAFETY: no pointers.
    let position = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_CUR) };
    u64::try_from(position).map_or(0, |position| size.saturating_sub(position) as usize)
}

/// Opens the file that the path names, with `O_PATH` as a descriptor for questions alone, if the kernel finds the whole path in
/// its cache (Linux 5.12).
pub(super) fn cached(path: &Path, flags: libc::c_int) -> Option<OwnedFd> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: zeros are no flags.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = (flags | libc::O_CLOEXEC) as u64;
    how.resolve = libc::RESOLVE_CACHED;
    let (at, size) = (&raw const how, size_of_val(&how));
    // SAFETY: the path ends with a zero byte, and both live through the call, which makes a descriptor.
    unsafe {
        let opened = libc::syscall(libc::SYS_openat2, libc::AT_FDCWD, path.as_ptr(), at, size);
        new_fd(opened as libc::c_int).ok()
    }
}

/// Clears the flags that can be set for an open file, such as `O_NONBLOCK`; `None` if the kernel refuses that.
pub(super) fn clear_flags(file: BorrowedFd<'_>) -> Option<()> {
    // SAFETY: no pointers.
    (unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, 0) } == 0).then_some(())
}

/// Returns the file's mode, whose type is right, and its device, as far as the kernel knows without a request to a server.
pub(super) fn mode_and_device(file: BorrowedFd<'_>) -> Option<(u32, u64)> {
    let mut found = MaybeUninit::<libc::statx>::zeroed();
    let flags = libc::AT_EMPTY_PATH | libc::AT_STATX_DONT_SYNC;
    // SAFETY: an empty path, and room for the answer.
    let found = unsafe {
        match libc::statx(file.as_raw_fd(), c"".as_ptr(), flags, libc::STATX_TYPE, found.as_mut_ptr()) {
            0 => found.assume_init(),
            _ => return None,
        }
    };
    Some((found.stx_mode.into(), libc::makedev(found.stx_dev_major, found.stx_dev_minor)))
}

/// Returns `true` if the end that a read without waiting reports is the file's end. Linux 5.9 and 5.10 also report an end
/// before that: preadv2(2).
pub(in crate::os) fn an_end_is_one() -> bool {
    static HONEST: OnceLock<bool> = OnceLock::new();
    *HONEST.get_or_init(|| {
        let mut system = MaybeUninit::<libc::utsname>::zeroed();
        // SAFETY: room for the answer, which ends with a zero byte.
        let release = unsafe {
            libc::uname(system.as_mut_ptr());
            system.assume_init().release
        };
        let release: String = release.iter().take_while(|&&c| c != 0).map(|&c| c as u8 as char).collect();
        is_honest(&release)
    })
}

fn is_honest(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    !matches!((numbers.next(), numbers.next()), (Some("5"), Some("9" | "10")))
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_two_kernels_are_known() {
        for release in ["5.9.0", "5.9", "5.10.0-28-amd64", "5.10.197+"] {
            assert!(!is_honest(release), "{release}");
        }
        for release in ["5.8.1", "5.11.0", "5.100.1", "6.9.3", "6.10.1", "4.5.9", ""] {
            assert!(is_honest(release), "{release}");
        }
    }
}
