//! The process's standard input.

use super::Watched;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut, Read};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd};
use std::sync::OnceLock;

/// The standard input, for which goroutines wait; made by [`stdin`].
///
/// It has no buffer: a `BufReader` around it has lines. Bytes that std's `Stdin` has in its buffer are not seen here, so a
/// program uses one of the two. The mode of the descriptor, which a terminal shares with other processes, is left as it is; see
/// [`Watched`].
#[derive(Copy, Clone)]
pub struct Stdin(&'static Watched<File>);

/// Returns the process's standard input.
///
/// ```no_run
/// use std::io::{BufRead, BufReader};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         // The goroutine parks until somebody has typed a line.
///         for line in BufReader::new(gmp::io::stdin()).lines() {
///             println!("{}", line.unwrap());
///         }
///     })
/// }
/// ```
pub fn stdin() -> Stdin {
    static STDIN: OnceLock<Watched<File>> = OnceLock::new();
    // SAFETY: std keeps the descriptor open as long as the process lives, and the file is never dropped.
    Stdin(STDIN.get_or_init(|| Watched::new(unsafe { File::from_raw_fd(libc::STDIN_FILENO) })))
}

impl Stdin {
    /// Returns the descriptor's own value, for its deadlines.
    pub fn watched(&self) -> &'static Watched<File> {
        self.0
    }
}

impl Read for Stdin {
    /// Blocks the goroutine, or the plain thread, until there is input or the end.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read_with(|mut file| file.read(buf))
    }

    /// Blocks the goroutine as [`read`](Read::read).
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_with(|mut file| file.read_vectored(bufs))
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stdin")
    }
}

impl AsFd for Stdin {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
