//! [`Watched`]: how goroutines wait for a descriptor of another library.

use crate::goroutine::blocking;
use crate::goroutine::own_frame::in_own_frame;
use crate::net::desc::Direction;
use crate::net::methods::{both_limits, closes, with_a_frame};
use crate::net::socket::Socket;
use crate::net::sys;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// A value with a descriptor for which goroutines wait, like Go's `RawConn` and tokio's `AsyncFd`: a pipe, a terminal, a
/// device, a socket of another library.
///
/// The value's own functions make the system calls, within [`read_with`](Self::read_with) and
/// [`write_with`](Self::write_with). A goroutine parks until the descriptor is ready; a plain thread blocks.
///
/// ```
/// use gmp::io::Watched;
/// use std::io::{Read, Write};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (reader, mut writer) = std::io::pipe().unwrap();
///         let reader = Watched::new(reader);
///         let reads = gmp::go(move || {
///             let mut buffer = [0; 16];
///             let len = reader.read_with(|mut pipe| pipe.read(&mut buffer)).unwrap();
///             buffer[..len].to_vec()
///         });
///         writer.write_all(b"hello").unwrap();
///         assert_eq!(reads.join().unwrap(), b"hello");
///     })
/// }
/// ```
///
/// *The descriptor's mode* is left as it is: the mode belongs to the open file, which other processes may share, as they share
/// a terminal. On a descriptor in non-blocking mode a call is made, and made again after an event if it returned `WouldBlock`.
/// On a descriptor in blocking mode the call is made once the descriptor is ready, as a [`blocking`] one: if another reader is
/// faster, the call blocks its thread, and no other goroutine. So does a write of more than `PIPE_BUF` (4096) bytes to a pipe,
/// until all of it is written: no limit ends such a call, so [`copy`](super::copy()) writes no more at once.
///
/// *A file on a disk* can't be watched, and the kernel calls it always ready: calls on it are [`blocking`] ones in either mode,
/// and so are calls on a directory and on the disk itself. Message queues can be watched, and so can files that report changes,
/// such as some of `/proc` and `/sys`.
///
/// *`Sync`* only if the value is `Send`, too: [`close`](Self::close) drops the value on its caller's thread.
///
/// ```compile_fail,E0277
/// struct Locked(std::os::fd::OwnedFd, std::sync::MutexGuard<'static, ()>);
/// impl std::os::fd::AsFd for Locked {
///     fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
///         self.0.as_fd()
///     }
/// }
/// fn close(watched: &gmp::io::Watched<Locked>) {
///     std::thread::scope(|threads| threads.spawn(|| watched.close()).join().unwrap().unwrap());
/// }
/// ```
pub struct Watched<T: AsFd>(Socket<T>, Kind, Number);

#[derive(Copy, Clone, Eq, PartialEq)]
enum Kind {
    /// The kernel reports when a call is worth a try.
    Waits,
    /// Calls take as long as the disk does, also in non-blocking mode, and the kernel reports nothing.
    OnDisk,
}

/// Whether the descriptor's number goes on naming the same file.
#[derive(Copy, Clone, Eq, PartialEq)]
enum Number {
    Stays,
    /// Others may put another file there, by `dup2`.
    MayChange,
}

impl<T: AsFd> Watched<T> {
    /// Makes a value for which goroutines can wait. Two such values must not be in use in one runtime for the same descriptor:
    /// the second wait is refused. A duplicate is another descriptor.
    ///
    /// `inner` must keep its descriptor open, under the same number. If the descriptor is closed underneath, as by the
    /// [`close`](crate::net::UdpSocket::close) of the socket in a `Watched<Arc<UdpSocket>>`, nothing wakes the callers that
    /// wait here: they wait on, until a limit or a [`close`](Self::close) of this value. Close this value first. A descriptor
    /// that has got the same number by then is left alone.
    pub fn new(inner: T) -> Self {
        Self::of(inner, Socket::of_borrowed, Number::Stays)
    }

    /// Does the same as `new`, for a descriptor that [`close`](Self::close) leaves open, and whose number may come to name
    /// another file.
    pub(super) fn lent(inner: T) -> Self {
        Self::of(inner, Socket::of_lent, Number::MayChange)
    }

    fn of(inner: T, socket: fn(T) -> Socket<T>, number: Number) -> Self {
        let kind = if sys::is_on_disk(inner.as_fd()) { Kind::OnDisk } else { Kind::Waits };
        Watched(socket(inner), kind, number)
    }

    /// Calls `read`, and calls it again as long as it returns `WouldBlock`, each time after the descriptor may have become
    /// readable. Blocks the goroutine, or the plain thread, meanwhile; at most until the read deadline or timeout. Several
    /// callers read one at a time, in the order in which they came.
    ///
    /// `read` must return `WouldBlock` only if the descriptor itself has returned that. A goroutine waits for bytes that come
    /// from then on, not for bytes that are there: a goroutine whose `read` leaves bytes in the descriptor sleeps until more
    /// come.
    ///
    /// An `Interrupted` of `read` is returned like any other error: a signal has ended `read`, and the caller may need to know.
    ///
    /// `read` itself should not wait: no limit of this descriptor ends that wait, and [`close`](Self::close) waits until `read`
    /// has returned, or its runtime has ended and left its goroutine behind. In the second case the value stays until the
    /// `Watched` is dropped, also after `close`.
    ///
    /// `read` must read from the descriptor itself: the kernel does not know of bytes in a buffer, such as that of a
    /// `BufReader` or of std's `Stdin`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// Those of `read`; `TimedOut` after a limit; `AlreadyExists` if another value watches the descriptor in this runtime;
    /// `Unsupported` if `read` returns `WouldBlock` for a file on a disk, for which no event will come; `NotFound` if the
    /// descriptor was closed underneath, and its number is another descriptor's.
    pub fn read_with<R>(&self, read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        with_a_frame(self.call_users(Direction::Read, read))
    }

    /// Does the same as [`read_with`](Self::read_with), for a call that writes.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`read_with`](Self::read_with).
    pub fn write_with<R>(&self, write: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        with_a_frame(self.call_users(Direction::Write, write))
    }

    /// Does the same as `call`, for a function of the user's: a call that a signal has ended is not made again.
    fn call_users<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        self.call(direction, |inner| match call(inner) {
            Err(ended) if ended.kind() == io::ErrorKind::Interrupted => Ok(Err(ended)),
            done => done.map(Ok),
        })?
    }

    /// Makes `call`, and makes it again after a signal has ended it, and after each wait.
    pub(super) fn call<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        // The program's function, which may wait, and hold other locks.
        let mut call = |inner: &T| self.0.apart(direction, || in_own_frame(|| call(inner)));
        self.0.run(direction, |inner| {
            let fd = inner.as_fd();
            if self.is_on_disk(fd) {
                return blocking(|| call(inner)).map_err(|refused| match refused.kind() {
                    io::ErrorKind::WouldBlock => no_event(fd),
                    _ => refused,
                });
            }
            // Looked up for each try: a process that shares the open file can change the mode, also during the wait.
            let called = match sys::is_blocking(fd)? {
                false => call(inner),
                true if sys::is_ready(fd, direction)? => blocking(|| call(inner)),
                true => Err(io::ErrorKind::WouldBlock.into()),
            };
            let waits = called.as_ref().is_err_and(|refused| refused.kind() == io::ErrorKind::WouldBlock);
            if waits && self.2 == Number::MayChange {
                self.0.watch_again()?;
            }
            called
        })
    }

    fn is_on_disk(&self, fd: BorrowedFd<'_>) -> bool {
        self.1 == Kind::OnDisk && (self.2 == Number::Stays || sys::may_be_on_disk(fd))
    }

    /// Calls `look` with the value, without waiting for an event or for other callers.
    ///
    /// `look` itself should not wait: [`close`](Self::close) waits until `look` has returned, or its runtime has ended and left
    /// its goroutine behind, as with [`read_with`](Self::read_with). So a `look` that calls `close` waits for itself for ever.
    ///
    /// ```
    /// use gmp::io::Watched;
    /// use std::os::fd::AsRawFd;
    ///
    /// let (reader, _writer) = std::io::pipe()?;
    /// let watched = Watched::new(reader);
    /// assert_eq!(watched.with(|pipe| Ok(pipe.as_raw_fd()))?, watched.as_raw_fd());
    /// watched.close()?;
    /// assert!(gmp::net::is_closed(&watched.with(|_| Ok(())).unwrap_err()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `look`; and if the value was closed.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.lend(look)
    }

    /// Returns the value, whose descriptor no poller watches any more.
    ///
    /// # Panics
    /// If the value was closed.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[cold]
fn no_event(fd: BorrowedFd<'_>) -> io::Error {
    let why = format!("descriptor {} is a file on a disk, which no poller can watch", fd.as_raw_fd());
    io::Error::new(io::ErrorKind::Unsupported, why)
}

closes!(
    [T: AsFd] Watched<T>, "the value",
    "The value is dropped by this call, which closes the descriptor if the value owns it: not where it has borrowed the descriptor,",
    "or shares it, as an `Arc` does. A value whose descriptor was lent out by `AsFd` is dropped with the `Watched`, and that of",
    "[`Stdin::watched`](super::Stdin::watched) never. Blocks the goroutine, or the plain thread, until the functions of",
    "[`read_with`](Self::read_with), [`write_with`](Self::write_with) and [`with`](Self::with) that are under way have",
    "returned: a `close` within one of these waits for itself."
);
both_limits!([T: AsFd] Watched<T>);

impl<T: AsFd + fmt::Debug> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: AsFd> AsFd for Watched<T> {
    /// A descriptor that was lent out stays open until the value is dropped, also after `close`.
    ///
    /// # Panics
    /// If the value was closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl<T: AsFd> AsRawFd for Watched<T> {
    /// -1 if the value was closed.
    fn as_raw_fd(&self) -> RawFd {
        self.0.raw_fd()
    }
}
