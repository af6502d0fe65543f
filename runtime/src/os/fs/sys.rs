//! The system calls that std does not make.

use super::kind::Try;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

/// Where a read or write begins.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum At {
    /// At the file's position, which moves.
    Position,
    /// There; the position stays.
    Offset(u64),
}

fn check(result: libc::c_long) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A part of memory to read into.
pub(super) fn part(buf: &mut [MaybeUninit<u8>]) -> libc::iovec {
    libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() }
}

/// Reads as much as is there without waiting for a disk.
///
/// # Safety
/// The parts may be written to.
///
/// # Errors
/// `EAGAIN` if there is nothing at hand. `EOPNOTSUPP`, `ENOSYS` or `EINVAL` where the kernel does not know how.
#[inline]
pub(super) unsafe fn read_cached(file: &File, parts: &[libc::iovec], at: At, how: Try) -> io::Result<usize> {
    let (fd, offset) = (
        file.as_raw_fd(),
        match at {
            At::Position => -1,
            // An offset that is none is refused like any negative one but -1.
            At::Offset(at) => libc::c_long::try_from(at).unwrap_or(libc::c_long::MIN),
        },
    );
    let flags = match (how, parts, at) {
        (Try::NoWait, ..) => libc::RWF_NOWAIT,
        // The kernel takes 65 ns less for these two than for the one below.
        (Try::Plain, &[part], At::Offset(_)) => {
            // SAFETY: by this function's contract.
            return check(unsafe { libc::pread(fd, part.iov_base, part.iov_len, offset) } as libc::c_long);
        }
        (Try::Plain, &[part], At::Position) => {
            // SAFETY: by this function's contract.
            return check(unsafe { libc::read(fd, part.iov_base, part.iov_len) } as libc::c_long);
        }
        (Try::Plain, ..) => 0,
    };
    let count = parts.len().min(libc::UIO_MAXIOV as usize);
    // Not libc's function, which is a point where threads are cancelled, and replaces what a kernel refuses.
    // SAFETY: by this function's contract. The upper half of the offset, here 0, is not read by a 64-bit kernel.
    check(unsafe { libc::syscall(libc::SYS_preadv2, fd, parts.as_ptr(), count, offset, 0, flags) })
}

/// Reads into memory that need not be initialised, and waits for the disk.
pub(super) fn read(file: &File, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as told, and lives through the call.
    check(unsafe { libc::read(file.as_raw_fd(), buf.as_mut_ptr().cast(), buf.len()) } as libc::c_long)
}

/// Returns `true` for a file that was opened with `O_DIRECT`.
pub(super) fn is_direct(file: &File) -> bool {
    // SAFETY: no pointers.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    flags != -1 && flags & libc::O_DIRECT != 0
}

/// Returns `true` for a regular file whose file system keeps it in memory and nowhere else. A disk's node may lie there, too.
pub(super) fn is_in_memory(file: &File) -> bool {
    /// Of linux/magic.h.
    const RAMFS_MAGIC: libc::c_long = 0x8584_58f6;
    let mut found = MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: room for the answer, for which zeros do as well.
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

/// Returns `true` if an end that a read without waiting reports is one. Linux 5.9 and 5.10 report one before the end, too:
/// preadv2(2).
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
