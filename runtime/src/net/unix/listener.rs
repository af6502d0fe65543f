//! The listening Unix socket.

use super::{SocketAddr, UnixStream};
use crate::net::desc::Direction;
use crate::net::methods::{closes, error_option, incoming, listens, with_a_frame};
use crate::net::socket::Socket;
use crate::net::sys;
use crate::net::traits::socket_traits;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net;
use std::path::Path;
use std::task::{Context, Poll};

/// A Unix socket that listens for connections.
///
/// Like [`std::os::unix::net::UnixListener`], except that a goroutine that waits in [`accept`](Self::accept) parks and its
/// thread runs others. A plain thread blocks. The file of the address stays when the listener is dropped, as with std.
///
/// ```
/// use gmp::net::unix::{SocketAddr, UnixListener, UnixStream};
/// use std::io::{Read, Write};
/// use std::os::linux::net::SocketAddrExt;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let name = format!("gmp-example-{}", std::process::id());
///         let address = SocketAddr::from_abstract_name(name).unwrap();
///         let listener = UnixListener::bind_addr(&address).unwrap();
///         let greets = gmp::go(move || listener.accept().unwrap().0.write_all(b"hello"));
///         let mut text = String::new();
///         UnixStream::connect_addr(&address).unwrap().read_to_string(&mut text).unwrap();
///         assert_eq!(text, "hello");
///         greets.join().unwrap().unwrap();
///     })
/// }
/// ```
pub struct UnixListener(Socket<net::UnixListener>);

impl UnixListener {
    /// Listens at `path`, with the longest queue of connections that the system allows.
    ///
    /// # Errors
    /// As with std: `AddrInUse` if there is a file at `path`.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::listening(net::UnixListener::bind(path)?)
    }

    /// Listens at `addr`, which may be an abstract one; otherwise as [`bind`](Self::bind).
    ///
    /// # Errors
    /// As with std.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::listening(net::UnixListener::bind_addr(addr)?)
    }

    fn listening(listener: net::UnixListener) -> io::Result<Self> {
        sys::lengthen_queue(listener.as_fd())?;
        listener.set_nonblocking(true)?;
        Ok(UnixListener(Socket::new(listener)))
    }

    /// Waits for a connection. Blocks the goroutine, or the plain thread; several callers may wait, and are served in the
    /// order in which they came. The address of a peer that has bound none is unnamed.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `TimedOut` if the [deadline](Self::set_deadline) has passed; after [`close`](Self::close) an error for which
    /// [`is_closed`](crate::net::is_closed) returns `true`; otherwise the error of `accept(2)`: `EINVAL` once another holder of
    /// the socket has shut its reads down. If the table of descriptors is full (`EMFILE`), the connection stays in the kernel's
    /// queue for a later call; a call that follows at once fails again, so a loop that goes on after such an error should pause
    /// first.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, addr) =
            with_a_frame(self.0.run_receive(|listener| super::accept(listener.as_fd()), shut_down))?;
        Ok((UnixStream(Socket::of_accepted(&self.0, stream)), addr))
    }

    /// Accepts a connection, or has the task woken when there may be one. Never blocks, and the deadline does not end a task's
    /// wait. The task that was last told `Pending` is woken; a goroutine may wait in [`accept`](Self::accept) meanwhile.
    /// [`UnixStream::poll_read`] says whose poller wakes the task.
    ///
    /// ```
    /// use gmp::net::unix::{SocketAddr, UnixListener, UnixStream};
    /// use std::future::poll_fn;
    /// use std::os::linux::net::SocketAddrExt;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let name = format!("gmp-poll-accept-{}", std::process::id());
    ///         let address = SocketAddr::from_abstract_name(name).unwrap();
    ///         let listener = UnixListener::bind_addr(&address).unwrap();
    ///         let client = gmp::go(move || UnixStream::connect_addr(&address).unwrap());
    ///         let (_stream, peer) = gmp::block_on(poll_fn(|cx| listener.poll_accept(cx))).unwrap();
    ///         assert!(peer.is_unnamed());
    ///         client.join().unwrap();
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`accept`](Self::accept); `Unsupported` as [`UnixStream::poll_read`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(UnixStream, SocketAddr)>> {
        let accepted = self.0.poll_receive(cx, |listener| super::accept(listener.as_fd()), shut_down);
        accepted.map_ok(|(stream, addr)| (UnixStream(Socket::of_accepted(&self.0, stream)), addr))
    }
}

closes!(
    [] UnixListener, "the listener",
    "Connections in the kernel's queue are reset. A [`try_clone`](Self::try_clone) lives on. Blocks the goroutine, or the plain",
    "thread, until system calls of other goroutines on this listener have returned; then the descriptor's number is free, unless",
    "the descriptor was lent out by `AsFd`. The file of the address stays."
);

/// The error by which the kernel reports the end to a call that waits.
#[cold]
fn shut_down<R>() -> io::Result<R> {
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

incoming!(
    Incoming of UnixListener gives UnixStream,
    /// An iterator over the connections of a listener; made by [`UnixListener::incoming`]. After [`UnixListener::close`] the
    /// iterator returns an error for which [`is_closed`](crate::net::is_closed) returns `true`, once, and then ends. The
    /// iterator does the same with the [error](crate::context::ContextError) of the context under which the caller runs, unless
    /// that context was for one step only, as in a [`timeout`](crate::time::timeout) around `next`. Other errors, that of a
    /// deadline among them, do not end the iterator: a loop that goes on after each error of a deadline that has passed never
    /// waits.
);
error_option!(UnixListener);
listens!(UnixListener, net::UnixListener, SocketAddr);
socket_traits!(UnixListener, net::UnixListener, sys::is_unix_stream);
