//! UDP: [`UdpSocket`].

use crate::net::desc::Direction;
use crate::net::lookup;
use crate::net::methods::{ip_options, limits, options, with_a_frame};
use crate::net::socket::{Socket, WaitsForName};
use crate::net::sys;
use crate::net::traits::socket_traits;
use std::io;
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::task::{Context, Poll};

/// A UDP socket.
///
/// Like [`std::net::UdpSocket`], except that a goroutine that waits for the socket parks and its thread runs others. A
/// plain thread blocks. One goroutine may receive while another sends; several that receive each get whole datagrams.
///
/// ```
/// use gmp::net::UdpSocket;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let server = UdpSocket::bind("127.0.0.1:0").unwrap();
///         let address = server.local_addr().unwrap();
///         gmp::go(move || {
///             let mut buffer = [0; 1500];
///             let (len, from) = server.recv_from(&mut buffer).unwrap();
///             server.send_to(&buffer[..len], from).unwrap();
///         });
///         let client = UdpSocket::bind("127.0.0.1:0").unwrap();
///         client.connect(address).unwrap();
///         client.send(b"hello").unwrap();
///         let mut buffer = [0; 16];
///         assert_eq!(client.recv(&mut buffer).unwrap(), 5);
///     })
/// }
/// ```
///
/// An error that the network reports for a datagram that was sent, such as `ConnectionRefused` for a port that no socket
/// has, is the result of a later call on a connected socket.
pub struct UdpSocket(Socket<net::UdpSocket>);

impl UdpSocket {
    /// Makes a socket with the first of `addr`'s addresses that can be bound; no further address is asked for then. Looking a
    /// name up blocks the goroutine, or the plain thread.
    ///
    /// ```
    /// use gmp::net::UdpSocket;
    ///
    /// // Port 0: the system chooses a free one.
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// assert_ne!(socket.local_addr()?.port(), 0);
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
        let socket = lookup::first_of(addr, |addr| net::UdpSocket::bind(addr))?;
        socket.set_nonblocking(true)?;
        Ok(Self::of_new(socket))
    }

    /// Makes a socket of a new descriptor in non-blocking mode.
    #[inline]
    pub(in crate::net) fn of_new(socket: net::UdpSocket) -> Self {
        UdpSocket(Socket::new(socket))
    }

    /// Receives a datagram, and returns its length and its sender. Bytes that do not fit into `buf` are lost. Blocks the
    /// goroutine, or the plain thread, until a datagram is there; at most until the read deadline or timeout.
    ///
    /// ```
    /// use gmp::net::UdpSocket;
    ///
    /// let (one, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    /// one.send_to(b"hello", other.local_addr()?)?;
    /// let mut buf = [0; 100];
    /// let (len, from) = other.recv_from(&mut buf)?;
    /// assert_eq!((&buf[..len], from), (&b"hello"[..], one.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; an expired limit is `TimedOut`. `InvalidInput` if another holder of the socket has shut its reads down;
    /// [`recv`](Self::recv) returns 0 then.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        with_a_frame(self.0.run_receive(|socket| sys::recv_from(socket.as_fd(), buf), nobody))
    }

    /// Receives as [`recv_from`](Self::recv_from), but leaves the datagram in the socket.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        with_a_frame(self.0.run_receive(|socket| socket.peek_from(buf), nobody))
    }

    /// Sends a datagram to the first of `addr`'s addresses. Blocks the goroutine, or the plain thread, while the socket's
    /// buffer is full, and while a name is looked up. The write deadline and timeout count from the call on. They end the wait
    /// in line for a look-up, as a close does, but not a look-up that is under way.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; `InvalidInput` if `addr` has no address; an expired limit is `TimedOut`.
    pub fn send_to<A: ToSocketAddrs>(&self, buf: &[u8], addr: A) -> io::Result<usize> {
        let find = |waits: WaitsForName<'_>| {
            lookup::resolve_behind(&addr, waits)?
                .next()
                .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "send_to: no address to send to"))
        };
        with_a_frame(self.0.run_to(find, |socket, addr| sys::send_to(socket.as_fd(), buf, addr)))
    }

    /// Receives a datagram, as [`recv_from`](Self::recv_from); on a connected socket from the peer only.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        with_a_frame(self.0.run_receive(|socket| sys::recv_bytes(socket.as_fd(), buf), || Ok(0)))
    }

    /// Receives as [`recv`](Self::recv), but leaves the datagram in the socket.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        with_a_frame(self.0.run_receive(|socket| socket.peek(buf), || Ok(0)))
    }

    /// Sends a datagram to the connected peer. Blocks as [`send_to`](Self::send_to).
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std; an expired limit is `TimedOut`.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        with_a_frame(self.0.run(Direction::Write, |socket| sys::send(socket.as_fd(), buf)))
    }

    /// Receives a datagram, and returns its length and its sender, or has the task woken when there may be one. Bytes that do
    /// not fit into `buf` are lost. Never blocks, and the read deadline and timeout do not end a task's wait. The task that was
    /// last told `Pending` is woken, one for receiving and one for sending; a goroutine may wait in
    /// [`recv_from`](Self::recv_from) meanwhile. [`TcpStream::poll_read`](super::TcpStream::poll_read) says whose poller wakes
    /// the task.
    ///
    /// ```
    /// use gmp::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    ///         let address = far.local_addr().unwrap();
    ///         let receives = gmp::go(move || {
    ///             let mut buf = [0; 16];
    ///             let (len, from) = gmp::block_on(poll_fn(|cx| far.poll_recv_from(cx, &mut buf))).unwrap();
    ///             (buf[..len].to_vec(), from)
    ///         });
    ///         gmp::block_on(poll_fn(|cx| near.poll_send_to(cx, b"hello", address))).unwrap();
    ///         assert_eq!(receives.join().unwrap(), (b"hello".to_vec(), near.local_addr().unwrap()));
    ///     })
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from); `Unsupported` as [`TcpStream::poll_read`](super::TcpStream::poll_read).
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0.poll_receive(cx, |socket| sys::recv_from(socket.as_fd(), buf), nobody)
    }

    /// Receives a datagram, as [`poll_recv_from`](Self::poll_recv_from); on a connected socket from the peer only.
    ///
    /// # Errors
    /// As [`poll_recv_from`](Self::poll_recv_from).
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0.poll_receive(cx, |socket| sys::recv_bytes(socket.as_fd(), buf), || Ok(0))
    }

    /// Sends a datagram to the connected peer, or has the task woken when there may be room; otherwise as
    /// [`poll_recv_from`](Self::poll_recv_from).
    ///
    /// # Errors
    /// As [`send`](Self::send); `Unsupported` as [`poll_recv_from`](Self::poll_recv_from).
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll(cx, Direction::Write, |socket| sys::send(socket.as_fd(), buf))
    }

    /// Does the same as [`poll_send`](Self::poll_send), to `addr`.
    ///
    /// # Errors
    /// As [`poll_send`](Self::poll_send).
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        self.0.poll(cx, Direction::Write, |socket| sys::send_to(socket.as_fd(), buf, &addr))
    }

    /// Sets the peer to the first of `addr`'s addresses for which that succeeds. Looking a name up blocks the goroutine, or the
    /// plain thread; the call does not block otherwise, as it sends nothing.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<()> {
        // The socket is in use for one address after the other, so that a `close` does not wait for a look-up.
        lookup::first_of(addr, |addr| self.0.with(|socket| socket.connect(addr)))
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

    /// Makes a second handle to the same socket, with limits of its own.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(UdpSocket(self.0.try_clone(net::UdpSocket::try_clone)?))
    }

    /// Joins the IPv4 group `group` on the interface with the address `interface`; unspecified: the system chooses one.
    ///
    /// # Errors
    /// As with std.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.with(|socket| socket.join_multicast_v4(group, interface))
    }

    /// Joins the IPv6 group `group` on the interface with the index `interface`; 0: any.
    ///
    /// # Errors
    /// As with std.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.with(|socket| socket.join_multicast_v6(group, interface))
    }

    /// Leaves a group, see [`join_multicast_v4`](Self::join_multicast_v4).
    ///
    /// # Errors
    /// As with std.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.0.with(|socket| socket.leave_multicast_v4(group, interface))
    }

    /// Leaves a group, see [`join_multicast_v6`](Self::join_multicast_v6).
    ///
    /// # Errors
    /// As with std.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.0.with(|socket| socket.leave_multicast_v6(group, interface))
    }
}

/// The result of a receive that returns the sender, when reads were shut down: std finds no address in the kernel's answer.
#[cold]
fn nobody() -> io::Result<(usize, SocketAddr)> {
    let why = "the socket's reads were shut down: there is no datagram, and no sender";
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

options! {
    UdpSocket:
    "SO_BROADCAST": broadcast set_broadcast bool,
    "IP_MULTICAST_LOOP": multicast_loop_v4 set_multicast_loop_v4 bool,
    "IP_MULTICAST_TTL": multicast_ttl_v4 set_multicast_ttl_v4 u32,
    "IPV6_MULTICAST_LOOP": multicast_loop_v6 set_multicast_loop_v6 bool,
}
limits!(UdpSocket);
ip_options!(UdpSocket);
socket_traits!(UdpSocket, net::UdpSocket, |_| true);
