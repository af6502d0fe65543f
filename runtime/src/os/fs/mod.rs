//! Files and directories, with std's names and signatures: a call that waits for a disk stalls no other goroutine.
//!
//! ```
//! use gmp::fs::{self, File};
//! use std::io::{Read, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! let dir = std::env::temp_dir().join(format!("gmp-fs-{}", std::process::id()));
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! unsafe {
//!     gmp::run(|| {
//!         fs::create_dir_all(&dir)?;
//!         let path = dir.join("greeting");
//!         File::create(&path)?.write_all(b"hello")?;
//!         let mut text = String::new();
//!         File::open(&path)?.read_to_string(&mut text)?;
//!         assert_eq!(text, "hello");
//!         fs::remove_dir_all(&dir)
//!     })
//! }
//! # }
//! ```
//!
//! # What blocks
//!
//! No event says that a disk has answered, so a goroutine that waits for a disk keeps a thread. The goroutine gives its P to
//! another thread first, as in [`blocking`](crate::blocking), so that other goroutines run on. A plain thread just makes the
//! call.
//!
//! *Reads whose data are in the page cache* block nothing, with a buffer of up to 256 KiB: they are tried with `RWF_NOWAIT`
//! first, and the thread is given to the call only if the kernel would have to wait for the disk. A longer read gives the
//! thread to the call at once, and counts in [the line](#the-line): copying that much takes longer than giving the thread away.
//! A read through the file's position may be short where the cache ends, also before the file's end, as `Read` allows; a read
//! by [`read_at`](FileExt::read_at) is not. Whether a file system knows `RWF_NOWAIT` is asked once: on overlayfs (of
//! containers), FUSE, procfs and sysfs each read gives the thread to the call, as does each read with `O_DIRECT`. Files of
//! tmpfs and ramfs are in memory, and are read at once; if the kernel has swapped their bytes out, such a read waits as an
//! access to the program's own memory does. Writes have no such way: few file systems write without waiting, and if an entry of
//! a log were written in parts, another's entry could come in its middle.
//!
//! *[`File::open`] of a regular file whose path is in the kernel's cache* blocks nothing either (Linux 5.12), on a file system
//! that has not refused `RWF_NOWAIT` yet. The exceptions are a program that permits each open by fanotify, and a FUSE server
//! until its first refusal: while the open waits for these, the monitor gives the P to another thread.
//!
//! A function of this module that makes several system calls, like [`read`] or [`remove_dir_all`], gives the thread to all of
//! them at once. Calls that only look at what the kernel has at hand block nothing: `try_lock`, `unlock`, a
//! [`seek`](std::io::Seek::seek) from the start or the position, `try_clone`. The drop of a [`File`] closes the descriptor, on
//! the calling thread; if that waits for a server, the monitor gives the P to another thread.
//!
//! # The line
//!
//! At most [`max_file_calls`](crate::RuntimeBuilder::max_file_calls) calls of a runtime's goroutines are under way at once. The
//! other goroutines are parked in line, first come first served, and take no threads. A [`dump`](crate::dump) shows them with
//! the reason `file call, in line`, and says how many calls are under way.
//!
//! A call that may wait for another process, for as long as that process likes, does not wait in line, and does not count:
//! opening, reading and writing a FIFO, a terminal or another character device, and [`File::lock`]. Each of these takes a
//! thread. To look at the file that a path names may need a disk, and so a turn. If the line is full, a call that opens such a
//! file does not wait in line if the kernel has the path in its cache (Linux 5.12). That is usual for devices in use, but never
//! so for a path through `/proc`, such as `/dev/stdin`. For pipes and terminals [`io`](crate::io) has types that wait without a
//! thread.
//!
//! A call that is made within another one, by a destructor or by an argument (an `AsRef<Path>` of the program's own), needs no
//! second turn.
//!
//! # Ending a call
//!
//! A call on a file that is under way can't be ended: std has no deadlines for files, and the kernel knows of none. The wait in
//! line can be ended: a [`Context`](crate::context::Context) under which the caller runs gives the call an error, with the
//! context's error inside, and `goexit` and the end of the runtime unwind the call. In each case nothing was done.
//!
//! # What differs from std
//!
//! | std | here |
//! | --- | --- |
//! | `impl Read for Arc<File>` | `&File` reads and writes, so `&*arc` does; a foreign type can't have the impl |
//! | [`read_dir`] reads an entry a step | several hundred at once, and the kinds of files with them |
//! | `std::os::unix::fs` | [`unix`], with the same traits |
//! | what is unstable | is not there |

mod dir;
mod file;
mod kind;
mod options;
mod remove;
mod sys;
pub mod unix;

pub use dir::{DirEntry, ReadDir, read_dir};
pub use file::File;
pub use options::{DirBuilder, OpenOptions};
pub use std::fs::{FileTimes, FileType, Metadata, Permissions, TryLockError};
pub(in crate::os) use sys::{an_end_is_one, is_direct, preadv2};
// For the links above.
#[cfg(doc)]
use std::os::unix::fs::FileExt;

use crate::host::Active;
use crate::sched::Sched;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Makes a call that waits for a disk and for nothing else, when it is the calling goroutine's turn.
fn in_line<R>(call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    match Sched::<Active>::current() {
        Some(sched) => sched.lines.files.call(|_turn| call()),
        None => call(),
    }
}

/// Does the same as `in_line`, for a call that opens these paths. The call does not go in line if another process can keep a
/// call on one of the paths waiting.
fn opening<R>(paths: &[&Path], call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
    let Some(sched) = Sched::<Active>::current() else { return call() };
    let is_out_of_line = || paths.iter().any(|path| kind::is_known_as_endless(path));
    sched.lines.files.call_unless(is_out_of_line, |turn| {
        if paths.iter().any(|path| kind::of(path).is_endless()) {
            *turn = None;
        }
        call()
    })
}

/// Functions of a module of std's, which is `fs` here, whose calls wait for the paths' file systems alone.
macro_rules! of_std {
    ($std:literal: $($(#[$doc:meta])* $name:ident $([$($of:tt)*])? ($($arg:ident: $ty:ty),*) -> $result:ty;)+) => {
        $(
            $(#[$doc])*
            ///
            /// Blocks the goroutine, or the plain thread.
            ///
            /// # Unwinds
            /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here;
            /// see [`migration`](crate::migration#what-may-unwind).
            ///
            /// # Errors
            #[doc = concat!("As [`", $std, "::", stringify!($name), "`].")]
            pub fn $name $(<$($of)*>)? ($($arg: $ty),*) -> io::Result<$result> {
                in_line(|| fs::$name($($arg),*))
            }
        )+
    };
}
use of_std;

of_std! {
    "std::fs":
    /// Returns the path without symbolic links and dots, from the root on.
    ///
    /// ```
    /// assert_eq!(gmp::fs::canonicalize("/proc/..")?, std::path::Path::new("/"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    canonicalize[P: AsRef<Path>](path: P) -> PathBuf;

    /// Makes a directory in an existing parent.
    ///
    /// ```
    /// let dir = std::env::temp_dir().join(format!("gmp-create-dir-{}", std::process::id()));
    /// gmp::fs::create_dir(&dir)?;
    /// assert!(gmp::fs::metadata(&dir)?.is_dir());
    /// gmp::fs::remove_dir(&dir)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    create_dir[P: AsRef<Path>](path: P) -> ();

    /// Makes a directory, and those of its parents that do not exist.
    ///
    /// ```
    /// let dir = std::env::temp_dir().join(format!("gmp-create-dir-all-{}", std::process::id()));
    /// gmp::fs::create_dir_all(dir.join("a/b"))?;
    /// assert!(gmp::fs::exists(dir.join("a/b"))?);
    /// gmp::fs::remove_dir_all(&dir)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    create_dir_all[P: AsRef<Path>](path: P) -> ();

    /// Returns `true` if the path, its symbolic links followed, names something.
    ///
    /// ```
    /// assert!(gmp::fs::exists("/proc/self")?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    exists[P: AsRef<Path>](path: P) -> bool;

    /// Makes `link` another name of the file `original`.
    ///
    /// ```
    /// let at = |name| std::env::temp_dir().join(format!("gmp-hard-link-{name}-{}", std::process::id()));
    /// gmp::fs::write(at("a"), "one")?;
    /// gmp::fs::hard_link(at("a"), at("b"))?;
    /// gmp::fs::remove_file(at("a"))?;
    /// assert_eq!(gmp::fs::read_to_string(at("b"))?, "one");
    /// gmp::fs::remove_file(at("b"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    hard_link[P: AsRef<Path>, Q: AsRef<Path>](original: P, link: Q) -> ();

    /// Returns what the file system says of the file, symbolic links followed.
    ///
    /// ```
    /// assert!(gmp::fs::metadata("/proc/self")?.is_dir());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    metadata[P: AsRef<Path>](path: P) -> Metadata;

    /// Returns where a symbolic link points to.
    ///
    /// ```
    /// let own = std::process::id().to_string();
    /// assert_eq!(gmp::fs::read_link("/proc/self")?, std::path::Path::new(&own));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    read_link[P: AsRef<Path>](path: P) -> PathBuf;

    /// Removes an empty directory.
    ///
    /// ```
    /// let dir = std::env::temp_dir().join(format!("gmp-remove-dir-{}", std::process::id()));
    /// gmp::fs::create_dir(&dir)?;
    /// gmp::fs::remove_dir(&dir)?;
    /// assert!(!gmp::fs::exists(&dir)?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    remove_dir[P: AsRef<Path>](path: P) -> ();

    /// Removes a name of a file.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("gmp-remove-file-{}", std::process::id()));
    /// gmp::fs::write(&path, "")?;
    /// gmp::fs::remove_file(&path)?;
    /// assert!(!gmp::fs::exists(&path)?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    remove_file[P: AsRef<Path>](path: P) -> ();

    /// Gives a file or directory another name, and replaces the file that had that name.
    ///
    /// ```
    /// let at = |name| std::env::temp_dir().join(format!("gmp-rename-{name}-{}", std::process::id()));
    /// gmp::fs::write(at("new"), "new")?;
    /// gmp::fs::write(at("old"), "old")?;
    /// gmp::fs::rename(at("new"), at("old"))?;
    /// assert_eq!(gmp::fs::read_to_string(at("old"))?, "new");
    /// gmp::fs::remove_file(at("old"))?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    rename[P: AsRef<Path>, Q: AsRef<Path>](from: P, to: Q) -> ();

    /// Sets the permissions of a file or directory.
    ///
    /// ```
    /// use std::os::unix::fs::PermissionsExt;
    ///
    /// let path = std::env::temp_dir().join(format!("gmp-set-permissions-{}", std::process::id()));
    /// gmp::fs::write(&path, "")?;
    /// gmp::fs::set_permissions(&path, gmp::fs::Permissions::from_mode(0o600))?;
    /// assert_eq!(gmp::fs::metadata(&path)?.permissions().mode() & 0o777, 0o600);
    /// gmp::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    set_permissions[P: AsRef<Path>](path: P, perm: Permissions) -> ();

    /// Returns what the file system says of the file, or of the symbolic link itself.
    ///
    /// ```
    /// assert!(gmp::fs::symlink_metadata("/proc/self")?.is_symlink());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    symlink_metadata[P: AsRef<Path>](path: P) -> Metadata;
}

/// Removes a directory and all in it. Follows no symbolic link. Blocks the goroutine, or the plain thread.
///
/// A descriptor is open for each level of the tree, as with std; the stack does not grow with the levels, so a tree may be as
/// deep as the process may have descriptors.
///
/// ```
/// let dir = std::env::temp_dir().join(format!("gmp-remove-dir-all-{}", std::process::id()));
/// gmp::fs::create_dir_all(dir.join("a/b"))?;
/// gmp::fs::remove_dir_all(&dir)?;
/// assert!(!gmp::fs::exists(&dir)?);
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](self#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`std::fs::remove_dir_all`].
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    in_line(|| remove::remove_dir_all(path.as_ref()))
}

/// Reads a whole file. Blocks the goroutine, or the plain thread.
///
/// ```
/// let text = gmp::fs::read("/proc/self/cmdline")?;
/// assert!(text.ends_with(b"\0"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](self#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`std::fs::read`].
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let path = path.as_ref();
    opening(&[path], || fs::read(path))
}

/// Reads a whole file that is UTF-8. Blocks the goroutine, or the plain thread.
///
/// ```
/// assert!(gmp::fs::read_to_string("/proc/self/status")?.starts_with("Name:"));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](self#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`std::fs::read_to_string`].
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let path = path.as_ref();
    opening(&[path], || fs::read_to_string(path))
}

/// Writes a whole file, which is made or replaced. Blocks the goroutine, or the plain thread.
///
/// ```
/// let path = std::env::temp_dir().join(format!("gmp-write-{}", std::process::id()));
/// gmp::fs::write(&path, "hello")?;
/// assert_eq!(gmp::fs::read(&path)?, b"hello");
/// gmp::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](self#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`std::fs::write`].
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    let path = path.as_ref();
    opening(&[path], || fs::write(path, contents))
}

/// Copies a file with its permissions, and returns how many bytes it has. Blocks the goroutine, or the plain thread; takes one
/// turn in line, however long the file is.
///
/// ```
/// let at = |name| std::env::temp_dir().join(format!("gmp-copy-{name}-{}", std::process::id()));
/// gmp::fs::write(at("from"), "hello")?;
/// assert_eq!(gmp::fs::copy(at("from"), at("to"))?, 5);
/// assert_eq!(gmp::fs::read(at("to"))?, b"hello");
/// gmp::fs::remove_file(at("from"))?;
/// gmp::fs::remove_file(at("to"))?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](self#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`std::fs::copy`].
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    let (from, to) = (from.as_ref(), to.as_ref());
    opening(&[from, to], || fs::copy(from, to))
}
