//! The process's standard input, with one buffer for all its readers.

use super::Watched;
use crate::net::desc::Direction;
use crate::net::methods::with_a_frame;
use crate::sync::{Mutex, MutexGuard};
use crate::wait::abandon::{AbandonHook, StandingHook};
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSliceMut, IsTerminal, Lines, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, RawFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::OnceLock;

fn watched() -> &'static Watched<File> {
    static WATCHED: OnceLock<Watched<File>> = OnceLock::new();
    // SAFETY: std keeps the descriptor open as long as the process lives. The file is never dropped: statics are not dropped,
    // and a close does not drop a value that is lent out.
    WATCHED.get_or_init(|| Watched::lent(unsafe { File::from_raw_fd(libc::STDIN_FILENO) }))
}

fn buffer() -> &'static Mutex<BufReader<Unbuffered>> {
    static BUFFER: OnceLock<Mutex<BufReader<Unbuffered>>> = OnceLock::new();
    BUFFER.get_or_init(|| Mutex::new(BufReader::new(Unbuffered)))
}

/// Locks the input for `read`. A goroutine that its runtime leaves behind while it waits for input in `read` gives the lock up;
/// the bytes that it has taken are lost.
fn with_the_input<R>(read: impl FnOnce(&mut StdinLock<'static>) -> R) -> R {
    unsafe fn give_up(_hook: *const AbandonHook) {
        // SAFETY: the goroutine has locked the buffer, and never runs again. The `BufReader` has no bytes during a read, and is
        // whole.
        unsafe { buffer().force_unlock() };
    }
    let mut input = stdin().lock();
    let hook = StandingHook::new(give_up);
    // SAFETY: `give_up` expects nothing behind the hook, which stays where it is, and is dropped later.
    let _noted = unsafe { StandingHook::note_here(&raw const hook) };
    read(&mut input)
}

/// Reads from the descriptor itself.
struct Unbuffered;

impl Read for Unbuffered {
    /// # Unwinds
    /// As [`Stdin`]'s; see [`migration`](crate::migration#what-may-unwind).
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        with_a_frame(watched().call(Direction::Read, |mut file| file.read(buf)))
    }

    /// # Unwinds
    /// As [`Stdin`]'s; see [`migration`](crate::migration#what-may-unwind).
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        with_a_frame(watched().call(Direction::Read, |mut file| file.read_vectored(bufs)))
    }
}

/// The standard input, for which goroutines wait; made by [`stdin`]. Names and signatures are std's.
///
/// All readers in the process share one buffer, as with std's `Stdin`, and take turns: each operation locks the input, and
/// [`lock`](Self::lock) keeps it locked for several of them. Bytes that std's `Stdin` has in its own buffer are not seen here,
/// so a program uses one of the two. The mode of the descriptor, which a terminal shares with other processes, is left as it
/// is; see [`Watched`].
///
/// If the program puts another file in the place of descriptor 0, as by `dup2`, later calls read that file, after the bytes
/// that the buffer still has. A call that waits meanwhile goes on waiting for the file that it found.
#[derive(Copy, Clone)]
pub struct Stdin(());

/// A locked [`Stdin`], for which other readers wait.
///
/// The value may be kept across calls that park, and dropped on another thread. If a runtime ends and leaves behind a goroutine
/// that has the value, the input stays locked, as any lock does.
pub struct StdinLock<'a>(MutexGuard<'a, BufReader<Unbuffered>>);

// As std's. All that an unwinding leaves in the buffer is bytes that are still to be read.
impl UnwindSafe for StdinLock<'_> {}
impl RefUnwindSafe for StdinLock<'_> {}

/// Returns the process's standard input.
///
/// ```no_run
/// use gmp::io;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         // The goroutine parks until somebody has typed a line.
///         for line in io::stdin().lines() {
///             println!("{}", line.unwrap());
///         }
///     })
/// }
/// ```
pub fn stdin() -> Stdin {
    Stdin(())
}

impl Stdin {
    /// Locks the input for several operations. Blocks the calling goroutine, or the plain thread, while another reader has the
    /// input.
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn lock(&self) -> StdinLock<'static> {
        StdinLock(buffer().lock())
    }

    /// Appends a line to `buf`, with the character that ends it, and returns how many bytes were read: 0 at the end of the
    /// input. Blocks the goroutine, or the plain thread, until there is a line, or the end.
    ///
    /// # Unwinds
    /// When the wait for the input is ended from outside, except by a context, which gives an error here; when the wait for
    /// another reader is. See [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// Those of reading; `InvalidData` for bytes that are no UTF-8.
    pub fn read_line(&self, buf: &mut String) -> io::Result<usize> {
        with_the_input(|input| input.read_line(buf))
    }

    /// Locks the input, and returns an iterator over its lines. Blocks as [`lock`](Self::lock); each line as
    /// [`read_line`](Self::read_line).
    ///
    /// # Unwinds
    /// When the wait is ended from outside; see [`migration`](crate::migration#what-may-unwind).
    pub fn lines(self) -> Lines<StdinLock<'static>> {
        self.lock().lines()
    }

    /// Returns `true` if the input is a terminal. Does not block.
    pub fn is_terminal(&self) -> bool {
        self.as_fd().is_terminal()
    }

    /// Returns the descriptor's own value, for its deadlines. Reads through it bypass the buffer. A [`close`](Watched::close)
    /// ends the reads of all of the program's `Stdin`s, for good; the descriptor itself stays open, as std and others use it
    /// too.
    pub fn watched(&self) -> &'static Watched<File> {
        watched()
    }

    /// Takes the bytes that the buffer has.
    pub(super) fn take_buffered(&self) -> Vec<u8> {
        let mut buffer = buffer().lock();
        let bytes = buffer.buffer().to_vec();
        buffer.consume(bytes.len());
        bytes
    }
}

/// Implements `Read`, which locks the input.
macro_rules! reads {
    ($($stdin:ty),*) => {$(
        impl Read for $stdin {
            /// Blocks the goroutine, or the plain thread, until there is input or the end.
            ///
            /// # Unwinds
            /// When the wait for the input is ended from outside, except by a context, which gives an error here; when the
            /// wait for another reader is. See [`migration`](crate::migration#what-may-unwind).
            fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
                with_the_input(|input| input.read(buf))
            }

            /// Blocks as [`read`](Read::read).
            ///
            /// # Unwinds
            /// As [`read`](Read::read); see [`migration`](crate::migration#what-may-unwind).
            fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
                with_the_input(|input| input.read_vectored(bufs))
            }

            /// Reads as [`read`](Read::read) does, to the end, with the input locked.
            ///
            /// # Unwinds
            /// As [`read`](Read::read); see [`migration`](crate::migration#what-may-unwind).
            fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
                with_the_input(|input| input.read_to_end(buf))
            }

            /// Reads as [`read`](Read::read) does, to the end, with the input locked.
            ///
            /// # Unwinds
            /// As [`read`](Read::read); see [`migration`](crate::migration#what-may-unwind).
            fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
                with_the_input(|input| input.read_to_string(buf))
            }

            /// Reads as [`read`](Read::read) does, until `buf` is full, with the input locked.
            ///
            /// # Unwinds
            /// As [`read`](Read::read); see [`migration`](crate::migration#what-may-unwind).
            fn read_exact(&mut self, buf: &mut [u8]) -> io::Result<()> {
                with_the_input(|input| input.read_exact(buf))
            }
        }
    )*};
}
reads!(Stdin, &Stdin);

impl Read for StdinLock<'_> {
    /// Blocks the goroutine, or the plain thread, until there is input or the end.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }

    /// Blocks as [`read`](Read::read).
    ///
    /// # Unwinds
    /// As [`read`](Read::read); see [`migration`](crate::migration#what-may-unwind).
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.0.read_vectored(bufs)
    }
}

impl StdinLock<'_> {
    /// Returns `true` if the input is a terminal. Does not block.
    pub fn is_terminal(&self) -> bool {
        self.as_fd().is_terminal()
    }
}

impl BufRead for StdinLock<'_> {
    /// Blocks as [`read`](Read::read), if the buffer is empty.
    ///
    /// # Unwinds
    /// As [`read`](Read::read); see [`migration`](crate::migration#what-may-unwind).
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        self.0.fill_buf()
    }

    fn consume(&mut self, amount: usize) {
        self.0.consume(amount);
    }
}

impl fmt::Debug for Stdin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Stdin")
    }
}

impl fmt::Debug for StdinLock<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StdinLock")
    }
}

/// Lends the descriptor, whose reads bypass the buffer.
macro_rules! descriptor {
    ($($stdin:ty),*) => {$(
        impl AsFd for $stdin {
            fn as_fd(&self) -> BorrowedFd<'_> {
                // SAFETY: std keeps the descriptor open as long as the process lives.
                unsafe { BorrowedFd::borrow_raw(libc::STDIN_FILENO) }
            }
        }

        impl AsRawFd for $stdin {
            fn as_raw_fd(&self) -> RawFd {
                libc::STDIN_FILENO
            }
        }
    )*};
}
descriptor!(Stdin, StdinLock<'_>);
