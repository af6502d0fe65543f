//! The entries of a directory.

use super::in_line;
use crate::impls::unwind_safe;
use std::collections::VecDeque;
use std::ffi::OsString;
use std::fmt;
use std::fs::{self, FileType, Metadata};
use std::io;
use std::iter::FusedIterator;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

/// How many entries are read at once: about as many as the kernel gives in one answer.
const BATCH: usize = 512;

/// Returns the entries of a directory, in no order, without `.` and `..`. Blocks the goroutine, or the plain thread, until the
/// directory is open and the first entries are there.
///
/// ```
/// let dir = std::env::temp_dir().join(format!("gmp-read-dir-{}", std::process::id()));
/// gmp::fs::create_dir_all(dir.join("inner"))?;
/// gmp::fs::write(dir.join("file"), "")?;
/// let mut names = Vec::new();
/// for entry in gmp::fs::read_dir(&dir)? {
///     names.push(entry?.file_name());
/// }
/// names.sort();
/// assert_eq!(names, ["file", "inner"]);
/// gmp::fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Unwinds
/// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
/// [`migration`](crate::migration#what-may-unwind).
///
/// # Errors
/// As [`std::fs::read_dir`].
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    in_line(|| {
        let mut entries = ReadDir { inner: fs::read_dir(path)?, batch: VecDeque::new(), ended: false };
        entries.fill();
        Ok(entries)
    })
}

/// The entries of a directory; made by [`read_dir`]. Several hundred are read at once, so some steps block the goroutine, or
/// the plain thread, and most do not.
pub struct ReadDir {
    inner: fs::ReadDir,
    batch: VecDeque<io::Result<DirEntry>>,
    ended: bool,
}

// As std's. A step that is unwound was waiting for its turn, and has read nothing yet.
unwind_safe!(ReadDir);

impl ReadDir {
    /// Reads the next entries, up to an error.
    fn fill(&mut self) {
        while self.batch.len() < BATCH {
            let next = self.inner.next();
            self.ended = next.is_none();
            let Some(next) = next else { return };
            let failed = next.is_err();
            self.batch.push_back(next.map(DirEntry::new));
            if failed {
                return;
            }
        }
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    /// Blocks the goroutine, or the plain thread, when none of the entries that were read is left. After an error of a context
    /// the iterator has ended.
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn next(&mut self) -> Option<Self::Item> {
        if self.batch.is_empty()
            && !self.ended
            && let Err(refused) = in_line(|| {
                self.fill();
                Ok(())
            })
        {
            // The next step would meet the same end of the same context.
            self.ended = true;
            return Some(Err(refused));
        }
        self.batch.pop_front()
    }
}

impl FusedIterator for ReadDir {}

impl fmt::Debug for ReadDir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// An entry of a directory, as [`ReadDir`] gives them. Like [`std::fs::DirEntry`].
pub struct DirEntry {
    inner: fs::DirEntry,
    /// Read with the entry: if the file system does not give the type with the entry, it is asked then. `None` if that failed.
    kind: Option<FileType>,
}

impl DirEntry {
    fn new(inner: fs::DirEntry) -> Self {
        let kind = inner.file_type().ok();
        DirEntry { inner, kind }
    }

    /// Returns the directory's path, as it was given, with the entry's name.
    pub fn path(&self) -> PathBuf {
        self.inner.path()
    }

    /// Returns the name, without the directory.
    pub fn file_name(&self) -> OsString {
        self.inner.file_name()
    }

    /// Returns the metadata of the file, or of a symbolic link itself. Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`std::fs::DirEntry::metadata`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        in_line(|| self.inner.metadata())
    }

    /// Returns the type of the file, or of a symbolic link itself. Blocks the goroutine only if the type could not be read with
    /// the entry.
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`std::fs::DirEntry::file_type`].
    pub fn file_type(&self) -> io::Result<FileType> {
        self.kind.map_or_else(|| in_line(|| self.inner.file_type()), Ok)
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.inner.ino()
    }
}

impl fmt::Debug for DirEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}
