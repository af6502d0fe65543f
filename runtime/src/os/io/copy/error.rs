//! The error of a copy that could not be finished.

use std::error::Error;
use std::fmt;
use std::io;

/// The error of a [`copy`](super::copy): why, how far the copy came, and the bytes on their way.
///
/// ```
/// use gmp::io;
/// use std::io::Write;
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (reader, mut writer) = io::pipe().unwrap();
///         let (left, pipe) = io::pipe().unwrap();
///         writer.write_all(b"hello").unwrap();
///         drop((writer, left));
///         let error = io::copy(&reader, &pipe).unwrap_err();
///         assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
///         assert_eq!((error.copied(), error.undelivered()), (0, &b"hello"[..]));
///     })
/// }
/// ```
#[derive(Debug)]
pub struct CopyError {
    pub(super) copied: u64,
    pub(super) undelivered: Vec<u8>,
    pub(super) error: io::Error,
}

impl CopyError {
    /// Returns how many bytes the sink had taken.
    pub fn copied(&self) -> u64 {
        self.copied
    }

    /// Returns the bytes that were taken from the source after those, and that the sink did not take. There are none if the
    /// source has failed.
    pub fn undelivered(&self) -> &[u8] {
        &self.undelivered
    }

    /// Returns the same bytes as [`undelivered`](Self::undelivered), by value.
    pub fn into_undelivered(self) -> Vec<u8> {
        self.undelivered
    }

    /// Returns all three: how many bytes the sink had taken, the bytes that it did not take, and the error.
    ///
    /// ```
    /// use gmp::io;
    /// use std::io::Write;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (reader, mut writer) = io::pipe().unwrap();
    ///         let (left, pipe) = io::pipe().unwrap();
    ///         writer.write_all(b"hello").unwrap();
    ///         drop((writer, left));
    ///         let (copied, undelivered, error) = io::copy(&reader, &pipe).unwrap_err().into_parts();
    ///         assert_eq!((copied, undelivered), (0, b"hello".to_vec()));
    ///         assert_eq!(error.kind(), std::io::ErrorKind::BrokenPipe);
    ///     })
    /// }
    /// ```
    pub fn into_parts(self) -> (u64, Vec<u8>, io::Error) {
        (self.copied, self.undelivered, self.error)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> io::ErrorKind {
        self.error.kind()
    }

    /// Returns the error of the read or write that failed.
    pub fn error(&self) -> &io::Error {
        &self.error
    }
}

/// How far the copy came. The reason is the source, [`error`](CopyError::error).
impl fmt::Display for CopyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the copy failed after {} bytes", self.copied)?;
        match self.undelivered.len() {
            0 => Ok(()),
            left => write!(f, "; {left} more were not delivered"),
        }
    }
}

impl Error for CopyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

impl From<CopyError> for io::Error {
    /// The error of the read or write, by itself.
    fn from(failed: CopyError) -> io::Error {
        failed.error
    }
}
