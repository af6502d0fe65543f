//! Options with which files are opened, and directories made.

use super::{File, in_line, kind};
use crate::host::Active;
use crate::sched::Sched;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// How a file is opened. Like [`std::fs::OpenOptions`], with the same methods.
///
/// ```
/// use gmp::fs::OpenOptions;
/// use std::io::Write;
///
/// let path = std::env::temp_dir().join(format!("gmp-open-options-{}", std::process::id()));
/// let mut log = OpenOptions::new().append(true).create(true).open(&path)?;
/// log.write_all(b"first\n")?;
/// assert!(OpenOptions::new().write(true).create_new(true).open(&path).is_err());
/// gmp::fs::remove_file(&path)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

/// Methods of std's that set an option.
macro_rules! sets {
    ($($(#[$doc:meta])* $method:ident;)+) => {
        $(
            $(#[$doc])*
            pub fn $method(&mut self, $method: bool) -> &mut Self {
                self.0.$method($method);
                self
            }
        )+
    };
}

impl OpenOptions {
    /// Returns options, none of which is set.
    #[expect(clippy::new_without_default, reason = "std's has none")]
    pub fn new() -> Self {
        OpenOptions(fs::OpenOptions::new())
    }

    sets! {
        /// Sets whether the file is read.
        read;
        /// Sets whether the file is written.
        write;
        /// Sets whether each write goes to the file's end.
        append;
        /// Sets whether the file is truncated.
        truncate;
        /// Sets whether a file that does not exist is made.
        create;
        /// Sets whether the file is made, and must not exist before.
        create_new;
    }

    /// Opens a file. Blocks the goroutine, or the plain thread; for a FIFO or a device, until the other side is there.
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`].
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        let path = path.as_ref();
        let Some(sched) = Sched::<Active>::current() else { return Ok(self.0.open(path)?.into()) };
        let is_out_of_line = || kind::is_known_as_endless(path);
        sched.lines.files.call_unless(is_out_of_line, |turn| {
            let kind = kind::of(path);
            if kind.is_endless() {
                *turn = None;
            }
            let file = self.0.open(path)?;
            kind.look_for_direct(&file);
            kind.opened(&file);
            Ok(File::new(file, kind))
        })
    }
}

impl From<fs::OpenOptions> for OpenOptions {
    fn from(options: fs::OpenOptions) -> Self {
        OpenOptions(options)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut Self {
        self.0.mode(mode);
        self
    }

    fn custom_flags(&mut self, flags: i32) -> &mut Self {
        self.0.custom_flags(flags);
        self
    }
}

/// How directories are made. Like [`std::fs::DirBuilder`].
///
/// ```
/// use gmp::fs::DirBuilder;
/// use gmp::fs::unix::{DirBuilderExt, PermissionsExt};
///
/// let dir = std::env::temp_dir().join(format!("gmp-dir-builder-{}", std::process::id()));
/// DirBuilder::new().recursive(true).mode(0o700).create(dir.join("inner"))?;
/// assert_eq!(gmp::fs::metadata(&dir)?.permissions().mode() & 0o777, 0o700);
/// gmp::fs::remove_dir_all(&dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirBuilder(fs::DirBuilder);

impl DirBuilder {
    /// Returns a builder that makes one directory in an existing parent.
    #[expect(clippy::new_without_default, reason = "std's has none")]
    pub fn new() -> Self {
        DirBuilder(fs::DirBuilder::new())
    }

    /// Sets whether missing parents are made, too; then a directory that exists is no error.
    pub fn recursive(&mut self, recursive: bool) -> &mut Self {
        self.0.recursive(recursive);
        self
    }

    /// Makes the directory. Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the [wait in line](super#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`std::fs::DirBuilder::create`].
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        in_line(|| self.0.create(path))
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut Self {
        self.0.mode(mode);
        self
    }
}
