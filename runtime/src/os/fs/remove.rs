//! The removal of a directory and all in it, without recursion.
//!
//! *Problem.* `std::fs::remove_dir_all` calls itself for each level of the tree. Some hundred levels fill a goroutine's stack,
//! and an overflow ends the process; the creator of the tree has chosen how many levels there are.
//!
//! *Here* the open directories are in a list, the root of the tree first. All else is as in std: each directory is opened by
//! its name in the one above, and no symbolic link is followed, so a name that another process exchanges meanwhile leads to no
//! other tree. An entry that is gone already is not an error. There is a descriptor for each level.

use crate::net::sys::{check, new_fd};
use std::ffi::{CStr, CString, c_int};
use std::fs;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

/// An open directory of the tree, with the name by which it was opened.
struct Level {
    stream: NonNull<libc::DIR>,
    name: CString,
}

impl Level {
    /// # Errors
    /// `ENOTDIR` or `ELOOP` if the name is not a directory's.
    fn open(above: RawFd, name: CString) -> io::Result<Self> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let fd = loop {
            // SAFETY: the name ends with a zero byte; the call makes a descriptor.
            match unsafe { new_fd(libc::openat(above, name.as_ptr(), flags)) } {
                Err(refused) if refused.kind() == io::ErrorKind::Interrupted => {}
                opened => break opened?,
            }
        };
        let fd = fd.into_raw_fd();
        // SAFETY: a descriptor of a directory, which the stream owns from here on.
        match NonNull::new(unsafe { libc::fdopendir(fd) }) {
            Some(stream) => Ok(Level { stream, name }),
            None => {
                let refused = io::Error::last_os_error();
                // SAFETY: there is no stream, so the descriptor is still this function's.
                drop(unsafe { OwnedFd::from_raw_fd(fd) });
                Err(refused)
            }
        }
    }

    fn fd(&self) -> RawFd {
        // SAFETY: the stream is open until the drop.
        unsafe { libc::dirfd(self.stream.as_ptr()) }
    }

    /// Returns the next entry except `.` and `..`, with the type that the file system reports (some report `DT_UNKNOWN`).
    fn next(&mut self) -> io::Result<Option<(CString, u8)>> {
        loop {
            // Only `errno` distinguishes the end from an error. SAFETY: `errno` is the calling thread's own, and the call stays
            // on this thread until it has read `errno`.
            unsafe { *libc::__errno_location() = 0 };
            // SAFETY: the stream is open, and has one user.
            let Some(entry) = NonNull::new(unsafe { libc::readdir(self.stream.as_ptr()) }) else {
                let refused = io::Error::last_os_error();
                return if refused.raw_os_error() == Some(0) { Ok(None) } else { Err(refused) };
            };
            // No reference to the entry is made: the memory may end with the zero byte after the name, before the end of the
            // field. SAFETY: the entry is whole up to the end of its name until the stream's next use.
            let (name, kind) = unsafe {
                let entry = entry.as_ptr();
                (CStr::from_ptr((&raw const (*entry).d_name).cast()), (*entry).d_type)
            };
            if ![c".", c".."].contains(&name) {
                return Ok(Some((name.to_owned(), kind)));
            }
        }
    }
}

impl Drop for Level {
    fn drop(&mut self) {
        // SAFETY: the stream is open, and is not used after this.
        unsafe { libc::closedir(self.stream.as_ptr()) };
    }
}

/// Makes the calls of [`std::fs::remove_dir_all`].
pub(super) fn remove_dir_all(path: &Path) -> io::Result<()> {
    // If `path` is a link, the link is removed, not its target.
    if fs::symlink_metadata(path)?.is_symlink() {
        return fs::remove_file(path);
    }
    let mut open = vec![Level::open(libc::AT_FDCWD, CString::new(path.as_os_str().as_bytes())?)?];
    while let Some(level) = open.last_mut() {
        match level.next()? {
            Some((name, kind)) => {
                if let Some(below) = or_gone(remove_or_open(level.fd(), name, kind))?.flatten() {
                    open.push(below);
                }
            }
            None => {
                let name =
                    open.pop().map(|level| level.name.clone()).expect("remove_dir_all: it was the last");
                let above = open.last().map_or(libc::AT_FDCWD, Level::fd);
                or_gone(unlink(above, &name, libc::AT_REMOVEDIR))?;
            }
        }
    }
    Ok(())
}

/// Removes an entry that is no directory; opens a directory, which must be emptied first.
fn remove_or_open(above: RawFd, name: CString, kind: u8) -> io::Result<Option<Level>> {
    if matches!(kind, libc::DT_DIR | libc::DT_UNKNOWN) {
        let copy = name.clone();
        match Level::open(above, copy) {
            // `ELOOP`: a symbolic link.
            Err(refused) if matches!(refused.raw_os_error(), Some(libc::ENOTDIR | libc::ELOOP)) => {}
            opened => return opened.map(Some),
        }
    }
    unlink(above, &name, 0).map(|()| None)
}

fn unlink(above: RawFd, name: &CStr, flags: c_int) -> io::Result<()> {
    // SAFETY: the name ends with a zero byte.
    check(unsafe { libc::unlinkat(above, name.as_ptr(), flags) }).map(drop)
}

/// Returns `None` if another process was faster.
fn or_gone<R>(outcome: io::Result<R>) -> io::Result<Option<R>> {
    match outcome {
        Err(refused) if refused.kind() == io::ErrorKind::NotFound => Ok(None),
        outcome => outcome.map(Some),
    }
}
