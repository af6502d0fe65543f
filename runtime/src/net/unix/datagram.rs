//! Unix sockets for datagrams.

use super::{Passed, SocketAddr, pass};
use crate::net::desc::Direction;
use crate::net::methods::{error_option, limits, with_a_frame};
use crate::net::socket::Socket;
use crate::net::traits::socket_traits;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net;
use std::path::Path;
use std::task::{Context, Poll};

/// A Unix socket for datagrams. The kernel keeps their order, and loses none.
///
/// Like [`std::os::unix::net::UnixDatagram`], except that a goroutine that waits for the socket parks and its thread runs
/// others. A plain thread blocks.
///
/// ```
/// use gmp::net::UnixDatagram;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (near, far) = UnixDatagram::pair().unwrap();
///         let echo = gmp::go(move || {
///             let mut buffer = [0; 16];
///             let len = far.recv(&mut buffer).unwrap();
///             far.send(&buffer[..len]).unwrap();
///         });
///         near.send(b"hello").unwrap();
///         let mut buffer = [0; 16];
///         assert_eq!(near.recv(&mut buffer).unwrap(), 5);
///         echo.join().unwrap();
///     })
/// }
/// ```
pub struct UnixDatagram(Socket<net::UnixDatagram>);

impl UnixDatagram {
    /// Makes a socket at `path`. The file stays when the socket is dropped, as with std.
    ///
    /// # Errors
    /// As with std: `AddrInUse` if there is a file at `path`.
    pub fn bind<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::of(net::UnixDatagram::bind(path)?)
    }

    /// Makes a socket at `addr`, which may be an abstract one.
    ///
    /// # Errors
    /// As with std.
    pub fn bind_addr(addr: &SocketAddr) -> io::Result<Self> {
        Self::of(net::UnixDatagram::bind_addr(addr)?)
    }

    /// Makes a socket without an address, to which no peer can answer.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn unbound() -> io::Result<Self> {
        Self::of(net::UnixDatagram::unbound()?)
    }

    /// Makes two sockets that are connected with each other.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = net::UnixDatagram::pair()?;
        Ok((Self::of(one)?, Self::of(other)?))
    }

    fn of(socket: net::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(UnixDatagram(Socket::new(socket)))
    }

    /// Sets the peer to the socket at `path`. Never blocks.
    ///
    /// # Errors
    /// As with std.
    pub fn connect<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        self.0.with(|socket| socket.connect(path))
    }

    /// Sets the peer to the socket at `addr`, which may be an abstract one. Never blocks.
    ///
    /// # Errors
    /// As with std.
    pub fn connect_addr(&self, addr: &SocketAddr) -> io::Result<()> {
        self.0.with(|socket| socket.connect_addr(addr))
    }

    /// Receives a datagram, and returns its length and its sender. Bytes that do not fit into `buf` are lost. Blocks the
    /// goroutine, or the plain thread, until a datagram is there; at most until the read deadline or timeout.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; an expired limit is `TimedOut`.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        with_a_frame(self.0.run_receive(|socket| socket.recv_from(buf), nobody))
    }

    /// Receives a datagram, as [`recv_from`](Self::recv_from).
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        with_a_frame(self.0.run_receive(|socket| socket.recv(buf), || Ok(0)))
    }

    /// Sends a datagram to the connected peer. Blocks the goroutine, or the plain thread, while the peer's queue of datagrams
    /// is full; at most until the write deadline or timeout.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; an expired limit is `TimedOut`.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        with_a_frame(self.0.run(Direction::Write, |socket| socket.send(buf)))
    }

    /// Sends a datagram to the socket at `path`. Blocks as [`send`](Self::send). The kernel does not report when a receiver
    /// that is not the peer has room again, so the call tries again after pauses of 50 µs to 10 ms.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; an expired limit is `TimedOut`.
    pub fn send_to<P: AsRef<Path>>(&self, buf: &[u8], path: P) -> io::Result<usize> {
        let path = path.as_ref();
        with_a_frame(self.0.run_unannounced(|socket| socket.send_to(buf, path)))
    }

    /// Sends a datagram to the socket at `addr`, which may be an abstract one; otherwise as [`send_to`](Self::send_to).
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub fn send_to_addr(&self, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
        with_a_frame(self.0.run_unannounced(|socket| socket.send_to_addr(buf, addr)))
    }

    /// Sends a datagram of the bytes of `bufs` to the connected peer, with duplicates of `fds`; see
    /// [`UnixStream::send_with_fds`](super::UnixStream::send_with_fds). Blocks as [`send`](Self::send).
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`send`](Self::send); `InvalidInput` for more descriptors or buffers than the kernel takes in one message: 253 and
    /// 1024.
    pub fn send_with_fds(&self, bufs: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        pass::check_count("send_with_fds", bufs.len())?;
        with_a_frame(self.0.run(Direction::Write, |socket| pass::send_with_fds(socket.as_fd(), bufs, fds)))
    }

    /// Receives a datagram into `bufs`, and appends the descriptors that came with that datagram to `fds`, closed on exec.
    /// Blocks as [`recv`](Self::recv). Other receives drop the descriptors that come with their datagrams.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from); `InvalidInput` for more than 1024 buffers. If the table of descriptors is full,
    /// [`Passed::lost_fds`] of the result returns `true`.
    pub fn recv_with_fds(&self, bufs: &mut [IoSliceMut<'_>], fds: &mut Vec<OwnedFd>) -> io::Result<Passed> {
        pass::check_count("recv_with_fds", bufs.len())?;
        let receives = |socket: &net::UnixDatagram| pass::receive(socket.as_fd(), bufs, fds);
        with_a_frame(self.0.run_receive(receives, || Ok(Passed::NOTHING)))
    }

    /// Receives a datagram, and returns its length and its sender, or has the task woken when there may be one. Bytes that do
    /// not fit into `buf` are lost. Never blocks, and the read deadline and timeout do not end a task's wait. The task that was
    /// last told `Pending` is woken, one for receiving and one for sending; a goroutine may wait in
    /// [`recv_from`](Self::recv_from) meanwhile. [`UnixStream::poll_read`](super::UnixStream::poll_read) says whose poller
    /// wakes the task.
    ///
    /// ```
    /// use gmp::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (near, far) = UnixDatagram::pair().unwrap();
    ///         let receives = gmp::go(move || {
    ///             let mut buf = [0; 16];
    ///             let (len, _from) = gmp::block_on(poll_fn(|cx| far.poll_recv_from(cx, &mut buf))).unwrap();
    ///             buf[..len].to_vec()
    ///         });
    ///         gmp::block_on(poll_fn(|cx| near.poll_send(cx, b"hello"))).unwrap();
    ///         assert_eq!(receives.join().unwrap(), b"hello");
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from); `Unsupported` as [`UnixStream::poll_read`](super::UnixStream::poll_read).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_receive(cx, |socket| socket.recv_from(buf), nobody)
    }

    /// Receives a datagram, as [`poll_recv_from`](Self::poll_recv_from).
    ///
    /// # Errors
    /// As [`poll_recv_from`](Self::poll_recv_from).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_receive(cx, |socket| socket.recv(buf), || Ok(0))
    }

    /// Sends a datagram to the connected peer, or has the task woken when there may be room; otherwise as
    /// [`poll_recv_from`](Self::poll_recv_from). There is no such poll for a receiver other than the peer: the kernel does not
    /// report when that receiver has room again.
    ///
    /// # Errors
    /// As [`send`](Self::send); `Unsupported` as [`poll_recv_from`](Self::poll_recv_from).
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll(cx, Direction::Write, |socket| socket.send(buf))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// As with std: `NotConnected` without a peer.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.with(|socket| socket.peer_addr())
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// As with std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.with(|socket| socket.local_addr())
    }

    /// Shuts one or both directions down. Calls that wait in them return: a receive returns no bytes once all datagrams that
    /// came before are received. A send that waits through another handle to the same socket sees [`Shutdown::Write`] only when
    /// there is room.
    ///
    /// # Errors
    /// As with std.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shut_down(how, |socket| socket.shutdown(how))
    }

    /// Makes a second handle to the same socket, with I/O locks and limits of its own.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(UnixDatagram(self.0.try_clone(net::UnixDatagram::try_clone)?))
    }
}

/// The result of a receive at the end: no bytes, of a sender without an address.
fn nobody() -> io::Result<(usize, SocketAddr)> {
    Ok((0, SocketAddr::from_pathname("")?))
}

limits!(UnixDatagram);
error_option!(UnixDatagram);
socket_traits!(UnixDatagram, net::UnixDatagram, |_| true);

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails by the end: the datagram came after the call that found none, and before reads were shut down.
    #[test]
    fn a_datagram_that_comes_before_the_end_is_received() {
        let (near, far) = UnixDatagram::pair().unwrap();
        let mut calls = 0;
        let receives = |socket: &net::UnixDatagram| {
            let got = socket.recv(&mut [0; 8]);
            calls += 1;
            if calls == 1 {
                far.send(b"one")?;
                near.shutdown(Shutdown::Read)?;
            }
            got
        };
        let got = near.0.run_receive(receives, || Ok(0));
        assert_eq!((got.unwrap(), calls), (3, 2));
    }
}
