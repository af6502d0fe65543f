//! [`Watched`]: how goroutines wait for a descriptor of another library.

use crate::goroutine::blocking;
use crate::goroutine::own_frame::in_own_frame;
use crate::net::desc::Direction;
use crate::net::methods::{limits, with_a_frame};
use crate::net::socket::Socket;
use crate::net::sys;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

/// A value with a descriptor for which goroutines wait, as Go's `RawConn` and tokio's `AsyncFd`: a pipe, a terminal, a device,
/// a socket of another library.
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
/// On one in blocking mode the call is made once the descriptor is ready, as a [`blocking`] one: should another
/// reader be faster, the call blocks its thread, and no other goroutine. So does a write of more than `PIPE_BUF` (4096) bytes
/// to a pipe, until all of it is written: no limit ends such a call, which is why [`copy`](super::copy()) writes no more at once.
///
/// *A file on a disk* can't be watched, and is always ready to the kernel: its calls are [`blocking`] ones, whatever the mode;
/// so are those of a directory and of the disk itself. Files that tell of changes, as some of `/proc` and `/sys`, and message
/// queues can be watched.
///
/// *`Sync`* only if the value is `Send`, too: [`close`](Self::close) drops the value on the thread of its caller.
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
pub struct Watched<T: AsFd>(Socket<T>, Kind);

#[derive(Copy, Clone, Eq, PartialEq)]
enum Kind {
    /// The kernel tells when a call is worth a try.
    Waits,
    /// Calls take as long as the disk does, also in non-blocking mode, and the kernel tells nothing.
    OnDisk,
}

impl<T: AsFd> Watched<T> {
    /// Makes a value that can be waited for. Two of them must not be in use in one runtime for the same descriptor: the
    /// second wait is refused. A duplicate is another descriptor.
    ///
    /// `inner` is to keep its descriptor open, under the same number. Where the descriptor is closed underneath, as by the
    /// [`close`](crate::net::UdpSocket::close) of the socket in a `Watched<Arc<UdpSocket>>`, nothing tells those that wait here:
    /// they wait on, until a limit or a [`close`](Self::close) of this value. Close this value first. What has the number by then
    /// is left alone.
    pub fn new(inner: T) -> Self {
        Self::of(inner, Socket::of_borrowed)
    }

    /// As `new`, for a descriptor that [`close`](Self::close) leaves open.
    pub(super) fn lent(inner: T) -> Self {
        Self::of(inner, Socket::of_lent)
    }

    fn of(inner: T, socket: fn(T) -> Socket<T>) -> Self {
        let kind = if sys::is_on_disk(inner.as_fd()) { Kind::OnDisk } else { Kind::Waits };
        Watched(socket(inner), kind)
    }

    /// Calls `read`, as often as `read` returns `WouldBlock`, each time after the descriptor may have become readable. Blocks
    /// the goroutine, or the plain thread, meanwhile; at most until the read deadline or timeout. Of several callers one reads
    /// at a time, in the order in which they came.
    ///
    /// `read` itself should not wait: no limit of this descriptor ends that, and [`close`](Self::close) waits until `read` has
    /// returned, or its runtime has ended and left its goroutine behind. Then the value stays until the `Watched` is dropped,
    /// also after `close`.
    ///
    /// `read` reads from the descriptor itself: of the bytes in a buffer, as a `BufReader` and std's `Stdin` have, the kernel
    /// does not know.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// Those of `read`; `TimedOut` after a limit; `AlreadyExists` if another value watches the
    /// descriptor in this runtime; `Unsupported` if `read` returns `WouldBlock` for a file on a disk, of which no
    /// event will tell; `NotFound` if the descriptor was closed underneath, and its number is another one's.
    pub fn read_with<R>(&self, read: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        with_a_frame(self.call(Direction::Read, read))
    }

    /// As [`read_with`](Self::read_with), for a call that writes.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`read_with`](Self::read_with).
    pub fn write_with<R>(&self, write: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        with_a_frame(self.call(Direction::Write, write))
    }

    pub(super) fn call<R>(
        &self,
        direction: Direction,
        mut call: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        // The user's function, which may wait, and hold other locks.
        let mut call = |inner: &T| self.0.apart(direction, || in_own_frame(|| call(inner)));
        self.0.run(direction, |inner| {
            let fd = inner.as_fd();
            if self.1 == Kind::OnDisk {
                return blocking(|| call(inner)).map_err(|refused| match refused.kind() {
                    io::ErrorKind::WouldBlock => no_event(fd),
                    _ => refused,
                });
            }
            // Looked up for each try: a process that shares the open file may change the mode, also during the wait.
            if !sys::is_blocking(fd)? {
                return call(inner);
            }
            match sys::is_ready(fd, direction)? {
                true => blocking(|| call(inner)),
                false => Err(io::ErrorKind::WouldBlock.into()),
            }
        })
    }

    /// Calls `look` with the value, without waiting.
    ///
    /// # Errors
    /// Those of `look`; and if the value was closed.
    pub fn with<R>(&self, look: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.0.with(look)
    }

    /// Returns the value, whose descriptor no poller watches any more.
    ///
    /// # Panics
    /// When it was closed.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

#[cold]
fn no_event(fd: BorrowedFd<'_>) -> io::Error {
    let why = format!("descriptor {} is a file on a disk, which no poller can watch", fd.as_raw_fd());
    io::Error::new(io::ErrorKind::Unsupported, why)
}

limits!([T: AsFd] Watched<T>);

impl<T: AsFd + fmt::Debug> fmt::Debug for Watched<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: AsFd> AsFd for Watched<T> {
    /// A descriptor that was lent out stays open until the value is dropped, also after `close`.
    ///
    /// # Panics
    /// When the value was closed.
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
