//! The listening socket.

use super::TcpStream;
use crate::net::desc::Direction;
use crate::net::lookup;
use crate::net::methods::{incoming, ip_options, listens};
use crate::net::socket::Socket;
use crate::net::sys;
use crate::net::traits::socket_traits;
use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll};

/// A socket that listens for connections.
///
/// Like [`std::net::TcpListener`], except that a goroutine that waits in [`accept`](Self::accept) parks and its
/// thread runs others. A plain thread blocks.
///
/// ```
/// use gmp::net::{TcpListener, TcpStream};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let listener = TcpListener::bind("127.0.0.1:0").unwrap();
///         let address = listener.local_addr().unwrap();
///         let client = gmp::go(move || TcpStream::connect(address).unwrap().local_addr().unwrap());
///         let (_stream, peer) = listener.accept().unwrap();
///         assert_eq!(client.join().unwrap(), peer);
///     })
/// }
/// ```
pub struct TcpListener(Socket<net::TcpListener>);

impl TcpListener {
    /// Listens on the first of `addr`'s addresses that can be bound, with the longest queue of connections that the system
    /// allows; no further address is asked for then. Looking a name up blocks the goroutine, or the plain thread.
    ///
    /// ```
    /// use gmp::net::TcpListener;
    ///
    /// // Port 0: the system chooses a free one.
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// assert_ne!(listener.local_addr()?.port(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The error of the last address, if none can be bound; that of a context that is done, for which the call looks between
    /// two addresses; `InvalidInput` if `addr` has no address.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let listener = lookup::first_of(addr, |addr| net::TcpListener::bind(addr))?;
        sys::lengthen_queue(listener.as_fd())?;
        listener.set_nonblocking(true)?;
        Ok(Self::of_new(listener))
    }

    /// Makes a listener of a new descriptor in non-blocking mode.
    pub(in crate::net) fn of_new(listener: net::TcpListener) -> Self {
        TcpListener(Socket::new(listener))
    }

    /// Waits for a connection. Blocks the goroutine, or the plain thread; several callers may wait, and are served in
    /// the order in which they came.
    ///
    /// ```
    /// use gmp::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let client = std::thread::spawn(move || TcpStream::connect(address)?.write_all(b"hello"));
    /// let (mut stream, peer) = listener.accept()?;
    /// assert!(peer.ip().is_loopback());
    /// let mut text = String::new();
    /// stream.read_to_string(&mut text)?;
    /// assert_eq!(text, "hello");
    /// client.join().unwrap()?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `TimedOut` if the [deadline](Self::set_deadline) has passed; after [`close`](Self::close) an error for which
    /// [`is_closed`](crate::net::is_closed) returns `true`; otherwise the error of `accept(2)`. If the table of descriptors is
    /// full (`EMFILE`), the connection stays in the kernel's queue for a later call; a call that follows at once fails again,
    /// so a loop that goes on after such an error should pause first.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, addr) = self.0.run(Direction::Read, |listener| sys::accept(listener.as_fd()))?;
        Ok((TcpStream(Socket::of_accepted(&self.0, fd.into())), addr))
    }

    /// Accepts a connection, or has the task woken when there may be one. Never blocks, and the deadline does not end a task's
    /// wait. The task that was last told `Pending` is woken; a goroutine may wait in [`accept`](Self::accept) meanwhile.
    /// [`TcpStream::poll_read`] says whose poller wakes the task.
    ///
    /// ```
    /// use gmp::net::{TcpListener, TcpStream};
    /// use std::future::poll_fn;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ///         let address = listener.local_addr().unwrap();
    ///         let client = gmp::go(move || TcpStream::connect(address).unwrap().local_addr().unwrap());
    ///         let (_stream, peer) = gmp::block_on(poll_fn(|cx| listener.poll_accept(cx))).unwrap();
    ///         assert_eq!(client.join().unwrap(), peer);
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`accept`](Self::accept); `Unsupported` as [`TcpStream::poll_read`].
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(TcpStream, SocketAddr)>> {
        let accepted = self.0.poll(cx, Direction::Read, |listener| sys::accept(listener.as_fd()));
        accepted.map_ok(|(fd, addr)| (TcpStream(Socket::of_accepted(&self.0, fd.into())), addr))
    }

    /// Closes the listener. Every call that waits in [`accept`](Self::accept), on any goroutine or thread, and every
    /// later call returns an error for which [`is_closed`](crate::net::is_closed) returns `true`. Connections in the
    /// kernel's queue are reset. A [`try_clone`](Self::try_clone) lives on. Blocks the goroutine, or the plain
    /// thread, until system calls of other goroutines on this listener have returned; then the port is free, and so
    /// is the descriptor's number, unless the descriptor was lent out by `AsFd`.
    ///
    /// ```
    /// use gmp::net::{TcpListener, is_closed};
    /// use std::sync::Arc;
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    ///         let same = Arc::clone(&listener);
    ///         let accepting = gmp::go(move || loop {
    ///             match same.accept() {
    ///                 Ok((_stream, _addr)) => {}
    ///                 Err(refused) if is_closed(&refused) => return "closed",
    ///                 Err(refused) => eprintln!("{refused}"),
    ///             }
    ///         });
    ///         listener.close().unwrap();
    ///         assert_eq!(accepting.join().unwrap(), "closed");
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// Never: an interrupt does not end the wait.
    ///
    /// # Errors
    /// If the socket was closed before, as every call on a closed socket: one of several calls returns `Ok`.
    pub fn close(&self) -> io::Result<()> {
        self.0.close()
    }
}

incoming!(
    Incoming of TcpListener gives TcpStream,
    /// An iterator over the connections of a listener; made by [`TcpListener::incoming`]. After [`TcpListener::close`] the
    /// iterator returns an error for which [`is_closed`](crate::net::is_closed) returns `true`, once, and then ends. The
    /// iterator does the same with the [error](crate::context::ContextError) of the context under which the caller runs, unless
    /// that context was for one step only, as in a [`timeout`](crate::time::timeout) around `next`:
    /// [`ContextError::of`](crate::context::ContextError::of) recognises that error. Other errors, that of a deadline among
    /// them, do not end the iterator: a loop that goes on after each error of a deadline that has passed never waits.
    ///
    /// ```
    /// use gmp::net::{self, TcpListener, TcpStream};
    /// use std::sync::Arc;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    ///         let server = Arc::clone(&listener);
    ///         let serves = gmp::go(move || {
    ///             let (mut served, mut end) = (0, None);
    ///             for stream in server.incoming() {
    ///                 match stream {
    ///                     Ok(_stream) => served += 1,
    ///                     Err(error) => end = Some(error),
    ///                 }
    ///                 if served == 1 && end.is_none() {
    ///                     server.close().unwrap();
    ///                 }
    ///             }
    ///             (served, end.is_some_and(|error| net::is_closed(&error)))
    ///         });
    ///         TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    ///         assert_eq!(serves.join().unwrap(), (1, true));
    ///     })
    /// }
    /// ```
);
ip_options!(TcpListener);
listens!(TcpListener, net::TcpListener, SocketAddr);
socket_traits!(TcpListener, net::TcpListener, sys::is_tcp);
