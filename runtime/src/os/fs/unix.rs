//! The functions and traits of `std::os::unix::fs`: links, owners.

use super::{File, in_line, of_std};
use std::io;
use std::os::unix::fs;
use std::path::Path;

pub use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};

of_std! {
    "std::os::unix::fs":
    /// Makes `link` a symbolic link to `original`.
    ///
    /// ```
    /// let link = std::env::temp_dir().join(format!("gmp-symlink-{}", std::process::id()));
    /// gmp::fs::unix::symlink("/proc", &link)?;
    /// assert_eq!(gmp::fs::read_link(&link)?, std::path::Path::new("/proc"));
    /// gmp::fs::remove_file(&link)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    symlink[P: AsRef<Path>, Q: AsRef<Path>](original: P, link: Q) -> ();

    /// Sets the owner and the group of a file, symbolic links followed; `None` leaves the owner or group as it is.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("gmp-chown-{}", std::process::id()));
    /// gmp::fs::write(&path, "")?;
    /// gmp::fs::unix::chown(&path, None, None)?;
    /// gmp::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    chown[P: AsRef<Path>](dir: P, uid: Option<u32>, gid: Option<u32>) -> ();

    /// Does the same as [`chown`], for an open file.
    ///
    /// ```
    /// let path = std::env::temp_dir().join(format!("gmp-fchown-{}", std::process::id()));
    /// gmp::fs::unix::fchown(&gmp::fs::File::create(&path)?, None, None)?;
    /// gmp::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    fchown(file: &File, uid: Option<u32>, gid: Option<u32>) -> ();

    /// Does the same as [`chown`], for a symbolic link itself.
    ///
    /// ```
    /// let link = std::env::temp_dir().join(format!("gmp-lchown-{}", std::process::id()));
    /// gmp::fs::unix::symlink("nowhere", &link)?;
    /// gmp::fs::unix::lchown(&link, None, None)?;
    /// gmp::fs::remove_file(&link)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    lchown[P: AsRef<Path>](dir: P, uid: Option<u32>, gid: Option<u32>) -> ();

    /// Changes the root directory of the process, where an absolute path begins, for all its threads; the caller needs the
    /// privilege for it. The working directory stays where it is, also outside of the new root, until the program changes it.
    ///
    /// ```
    /// assert!(gmp::fs::unix::chroot("/no/such/directory").is_err());
    /// ```
    chroot[P: AsRef<Path>](dir: P) -> ();
}
