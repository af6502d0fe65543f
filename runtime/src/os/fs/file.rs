//! An open file.

mod read;
mod write;

use super::OpenOptions;
use super::kind::{self, Kind};
use super::{FileTimes, Metadata, Permissions, TryLockError};
use crate::goroutine::blocking;
use crate::host::Active;
use crate::sched::Sched;
use std::fmt;
use std::fs;
use std::io::{self, IsTerminal, Seek, SeekFrom};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::SystemTime;

/// An open file. Like [`std::fs::File`], except that a goroutine that waits for the disk keeps no other goroutine waiting: see
/// [the module](super) for the means and their cost.
///
/// Several goroutines may use one file. Reads and writes through the position take turns in the kernel. Those of
/// [`FileExt`](super::unix::FileExt), which name an offset, take no turns, and do not move the position.
///
/// ```
/// use gmp::fs::{File, unix::FileExt};
/// use std::sync::Arc;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let program = Arc::new(File::open("/proc/self/exe").unwrap());
///         let readers = (0..4_u64).map(|part| {
///             let program = Arc::clone(&program);
///             gmp::go(move || {
///                 let mut bytes = [0; 1];
///                 program.read_exact_at(&mut bytes, part).unwrap();
///                 bytes[0]
///             })
///         });
///         let bytes: Vec<u8> = readers.collect::<Vec<_>>().into_iter().map(|it| it.join().unwrap()).collect();
///         assert_eq!(bytes, b"\x7fELF");
///     })
/// }
/// ```
///
/// There are no deadlines, as with std.
pub struct File {
    inner: fs::File,
    kind: Kind,
    /// How many calls through the position, of this handle and its clones, wait for the disk. The kernel lets one such call on
    /// an open file run at a time, so a call that finds all in the page cache would wait for them. Relaxed: a hint; a caller
    /// that misses such a call blocks the thread unannounced.
    moving: Arc<AtomicU32>,
}

/// Counts a call through the position, as long as that is under way.
struct Moving<'a>(&'a AtomicU32);

impl<'a> Moving<'a> {
    fn begin(count: &'a AtomicU32) -> Self {
        count.fetch_add(1, Relaxed);
        Moving(count)
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

impl File {
    pub(super) fn new(inner: fs::File, kind: Kind) -> Self {
        File { inner, kind, moving: Arc::default() }
    }

    /// Makes a call on this file that may wait, as a goroutine of `sched`.
    fn wait<R>(&self, sched: &Sched<Active>, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        if self.kind.is_endless() {
            return blocking(call);
        }
        let is_out_of_line = || self.kind.looks_endless(&self.inner);
        sched.lines.files.call_unless(is_out_of_line, |turn| {
            if self.kind.look(&self.inner) {
                *turn = None;
            }
            call()
        })
    }

    /// Does the same as `wait`, for a call that moves the file's position.
    fn wait_moving<R>(&self, sched: &Sched<Active>, call: impl FnOnce() -> io::Result<R>) -> io::Result<R> {
        self.wait(sched, || {
            let _moving = Moving::begin(&self.moving);
            call()
        })
    }

    /// Makes a call for [`copy`](crate::io::copy()). The call moves the file's position, and gives the P away by itself.
    pub(in crate::os) fn copies<R>(&self, call: impl FnOnce(&fs::File) -> io::Result<R>) -> io::Result<R> {
        let _moving = Moving::begin(&self.moving);
        call(&self.inner)
    }

    /// Makes a call on this file that may wait, on a goroutine or a plain thread.
    fn call<R>(&self, call: impl FnOnce(&fs::File) -> io::Result<R>) -> io::Result<R> {
        match Sched::<Active>::current() {
            Some(sched) => self.wait(sched, || call(&self.inner)),
            None => call(&self.inner),
        }
    }

    /// Opens a file for reading. Blocks the goroutine, or the plain thread, as [`OpenOptions::open`].
    ///
    /// ```
    /// use std::io::Read;
    ///
    /// let mut text = String::new();
    /// gmp::fs::File::open("/proc/self/comm")?.read_to_string(&mut text)?;
    /// assert!(text.ends_with('\n'));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`std::fs::File::open`].
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        let path = path.as_ref();
        if Sched::<Active>::current().is_some()
            && let Some((file, kind)) = kind::open_cached(path)
        {
            return Ok(File::new(file, kind));
        }
        OpenOptions::new().read(true).open(path)
    }

    /// Opens a file for writing: makes it, or truncates it if it exists. Blocks the goroutine, or the plain thread, as
    /// [`OpenOptions::open`].
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`std::fs::File::create`].
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).open(path)
    }

    /// Makes a file for reading and writing. Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `AlreadyExists` if the name exists; otherwise as [`std::fs::File::create_new`].
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).create_new(true).open(path)
    }

    /// Returns options of which none is set.
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes an exclusive lock on the file (`flock(2)`), which every handle to the same open file then holds. Blocks the
    /// goroutine, or the plain thread, until no other open file has a lock. The wait takes a thread, is not bounded by [the
    /// line](super#the-line), and can't be ended.
    ///
    /// ```
    /// use gmp::fs::{File, TryLockError};
    ///
    /// let path = std::env::temp_dir().join(format!("gmp-lock-{}", std::process::id()));
    /// let (first, second) = (File::create(&path)?, File::create(&path)?);
    /// first.lock()?;
    /// assert!(matches!(second.try_lock(), Err(TryLockError::WouldBlock)));
    /// first.unlock()?;
    /// second.lock()?;
    /// gmp::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// Never: nothing from outside ends the wait.
    ///
    /// # Errors
    /// As [`std::fs::File::lock`].
    pub fn lock(&self) -> io::Result<()> {
        wait_unless(self.inner.try_lock(), || self.inner.lock())
    }

    /// Takes a shared lock, as [`lock`](Self::lock): other open files may have shared locks at the same time.
    ///
    /// # Unwinds
    /// Never, as [`lock`](Self::lock).
    ///
    /// # Errors
    /// As [`std::fs::File::lock_shared`].
    pub fn lock_shared(&self) -> io::Result<()> {
        wait_unless(self.inner.try_lock_shared(), || self.inner.lock_shared())
    }

    /// Takes an exclusive lock, as [`lock`](Self::lock), if no other open file has a lock. Does not block.
    ///
    /// # Errors
    /// As [`std::fs::File::try_lock`].
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.inner.try_lock()
    }

    /// Takes a shared lock, as [`lock_shared`](Self::lock_shared), if no other open file has an exclusive lock. Does not block.
    ///
    /// # Errors
    /// As [`std::fs::File::try_lock_shared`].
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.inner.try_lock_shared()
    }

    /// Gives the lock back. Does not block.
    ///
    /// # Errors
    /// As [`std::fs::File::unlock`].
    pub fn unlock(&self) -> io::Result<()> {
        self.inner.unlock()
    }

    /// Returns `true` if the file is a terminal. Does not block.
    ///
    /// ```
    /// assert!(!gmp::fs::File::open("/dev/null")?.is_terminal());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn is_terminal(&self) -> bool {
        self.inner.is_terminal()
    }

    /// Makes a second handle to the same open file: both have one position. Does not block.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<File> {
        Ok(File { inner: self.inner.try_clone()?, kind: self.kind.clone(), moving: Arc::clone(&self.moving) })
    }
}

/// Makes a call that waits for a lock, unless the try has got it.
fn wait_unless(tried: Result<(), TryLockError>, waits: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    match tried {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => blocking(waits),
        Err(TryLockError::Error(refused)) => Err(refused),
    }
}

/// Methods of std's that make one call.
macro_rules! calls {
    ($($(#[$doc:meta])* $method:ident($($arg:ident: $ty:ty),*) -> $result:ty;)+) => {
        impl File {
            $(
                $(#[$doc])*
                /// Blocks the goroutine, or the plain thread.
                ///
                /// # Unwinds
                /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
                /// [`migration`](crate::migration#what-may-unwind).
                ///
                /// # Errors
                #[doc = concat!("As [`std::fs::File::", stringify!($method), "`].")]
                pub fn $method(&self $(, $arg: $ty)*) -> io::Result<$result> {
                    self.call(|file| file.$method($($arg),*))
                }
            )+
        }
    };
}

calls! {
    /// Returns when the disk has the file's data and metadata.
    ///
    /// ```
    /// use std::io::Write;
    ///
    /// let path = std::env::temp_dir().join(format!("gmp-sync-all-{}", std::process::id()));
    /// let mut file = gmp::fs::File::create(&path)?;
    /// file.write_all(b"for good")?;
    /// file.sync_all()?;
    /// gmp::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    sync_all() -> ();

    /// Returns when the disk has the data, and as much of the metadata as is needed to find them.
    sync_data() -> ();

    /// Sets the file's length: bytes beyond it are lost, new bytes are zero.
    set_len(size: u64) -> ();

    /// Returns what the file system says of the file.
    metadata() -> Metadata;

    /// Sets the file's permissions.
    set_permissions(perm: Permissions) -> ();

    /// Sets when the file was accessed and modified.
    set_times(times: FileTimes) -> ();

    /// Sets when the file was modified.
    set_modified(time: SystemTime) -> ();
}

impl Seek for &File {
    /// Moves the position. Blocks the goroutine, or the plain thread, while a call of another goroutine waits for the disk and
    /// holds the position, and when the file's end is asked for.
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        let waits = matches!(pos, SeekFrom::End(_)) || self.is_moving();
        match Sched::<Active>::current() {
            Some(sched) if waits => self.wait_moving(sched, || (&self.inner).seek(pos)),
            _ => (&self.inner).seek(pos),
        }
    }
}

impl Seek for File {
    fn seek(&mut self, pos: SeekFrom) -> io::Result<u64> {
        (&*self).seek(pos)
    }
}

impl File {
    /// Returns `true` if a call through the position waits for the disk.
    #[inline]
    fn is_moving(&self) -> bool {
        self.moving.load(Relaxed) > 0
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl From<fs::File> for File {
    fn from(inner: fs::File) -> Self {
        let kind = Kind::default();
        kind.look_for_direct(&inner);
        File::new(inner, kind)
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> Self {
        file.inner
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> Self {
        fs::File::from(fd).into()
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> Self {
        file.inner.into()
    }
}

impl From<File> for Stdio {
    fn from(file: File) -> Self {
        file.inner.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.inner.into_raw_fd()
    }
}

impl FromRawFd for File {
    /// # Safety
    /// As with std: the descriptor is open, and no other code owns it.
    unsafe fn from_raw_fd(fd: RawFd) -> Self {
        // SAFETY: by this function's contract.
        unsafe { fs::File::from_raw_fd(fd) }.into()
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails if a call on a clone does not know that it would wait for one on the first handle.
    #[test]
    fn a_clone_knows_of_the_calls_through_their_common_position() {
        let file = File::open("/proc/self/exe").unwrap();
        let clone = file.try_clone().unwrap();
        let moving = Moving::begin(&file.moving);
        assert!(clone.is_moving());
        drop(moving);
        assert!(!clone.is_moving());
    }
}
