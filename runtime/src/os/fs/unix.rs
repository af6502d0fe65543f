//! The functions and traits of `std::os::unix::fs`: links, owners.

use super::File;
use super::in_line;
use std::io;
use std::os::unix::fs;
use std::path::Path;

pub use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};

/// Makes `link` a symbolic link to `original`. Blocks the goroutine, or the plain thread.
///
/// ```
/// let link = std::env::temp_dir().join(format!("gmp-symlink-{}", std::process::id()));
/// gmp::fs::unix::symlink("/proc", &link)?;
/// assert_eq!(gmp::fs::read_link(&link)?, std::path::Path::new("/proc"));
/// gmp::fs::remove_file(&link)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As with std.
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    in_line(|| fs::symlink(original, link))
}

/// Sets the owner and the group of a file, symbolic links followed; `None` leaves the owner or group as it is. Blocks the
/// goroutine, or the plain thread.
///
/// ```
/// let path = std::env::temp_dir().join(format!("gmp-chown-{}", std::process::id()));
/// gmp::fs::write(&path, "")?;
/// gmp::fs::unix::chown(&path, None, None)?;
/// gmp::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As with std.
pub fn chown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    in_line(|| fs::chown(dir, uid, gid))
}

/// Does the same as [`chown`], for an open file.
///
/// ```
/// let path = std::env::temp_dir().join(format!("gmp-fchown-{}", std::process::id()));
/// gmp::fs::unix::fchown(&gmp::fs::File::create(&path)?, None, None)?;
/// gmp::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As with std.
pub fn fchown(file: &File, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    in_line(|| fs::fchown(file, uid, gid))
}

/// Does the same as [`chown`], for a symbolic link itself.
///
/// ```
/// let link = std::env::temp_dir().join(format!("gmp-lchown-{}", std::process::id()));
/// gmp::fs::unix::symlink("nowhere", &link)?;
/// gmp::fs::unix::lchown(&link, None, None)?;
/// gmp::fs::remove_file(&link)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As with std.
pub fn lchown<P: AsRef<Path>>(dir: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    in_line(|| fs::lchown(dir, uid, gid))
}

/// Changes the root directory of the process, where an absolute path begins, for all its threads. The working directory stays
/// where it is, also outside of the new root, until the program changes it. Blocks the goroutine, or the plain thread.
///
/// ```
/// assert!(gmp::fs::unix::chroot("/no/such/directory").is_err());
/// ```
///
/// # Unwinds
/// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As with std: the caller needs the privilege for it.
pub fn chroot<P: AsRef<Path>>(dir: P) -> io::Result<()> {
    in_line(|| fs::chroot(dir))
}
