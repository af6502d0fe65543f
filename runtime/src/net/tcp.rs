//! TCP: [`TcpListener`] and [`TcpStream`].

use crate::host::{Active, Clock};
use crate::net::desc::Direction;
use crate::net::limit;
use crate::net::lookup;
use crate::net::methods::{ip_options, limits, reads, stream_polls, with_a_frame, writes};
use crate::net::socket::{Rest, Socket};
use crate::net::sys;
use crate::net::traits::socket_traits;
use crate::os::io::copy::{copy_end, duplex_end};
use std::io;
use std::iter;
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::linux::net::TcpStreamExt;
use std::time::{Duration, Instant};

mod listener;
pub(super) mod race;

pub use listener::{Incoming, TcpListener};
use race::{NotBegun, Pace};

/// Begins to connect, without options.
fn begin(addr: &SocketAddr) -> Result<OwnedFd, NotBegun> {
    Ok(sys::begin_connect(addr)?)
}

/// A TCP connection.
///
/// Like [`std::net::TcpStream`], except that a goroutine that waits for the stream parks and its thread runs others.
/// A plain thread blocks. `TcpStream` and `&TcpStream` implement `Read` and `Write`, so one goroutine may read while
/// another writes.
///
/// ```
/// use gmp::net::{TcpListener, TcpStream};
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
/// use std::time::{Duration, Instant};
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let listener = TcpListener::bind("127.0.0.1:0").unwrap();
///         let address = listener.local_addr().unwrap();
///         let server = gmp::go(move || {
///             let (stream, _) = listener.accept().unwrap();
///             // Sends back what comes, until the peer has no more.
///             std::io::copy(&mut &stream, &mut &stream).unwrap()
///         });
///         let mut stream = TcpStream::connect(address).unwrap();
///         stream.set_deadline(Some(Instant::now() + Duration::from_secs(60))).unwrap();
///         stream.write_all(b"hello").unwrap();
///         stream.shutdown(Shutdown::Write).unwrap();
///         let mut text = String::new();
///         stream.read_to_string(&mut text).unwrap();
///         assert_eq!((text.as_str(), server.join().unwrap()), ("hello", 5));
///     })
/// }
/// ```
pub struct TcpStream(Socket<net::TcpStream>);

impl TcpStream {
    /// Connects to `addr`, or, if `addr` has several addresses, to the first that answers. The attempts begin one after the
    /// other, each 250 ms after the one before, or at once when that one has failed; IPv6 and IPv4 take turns, for which up to
    /// 4096 addresses are asked for before the first attempt, and more when these have been tried. The first connection counts,
    /// and the other attempts are closed: Happy Eyeballs (RFC 8305). When eight attempts are under way, the oldest makes way
    /// for the next one. Blocks the goroutine, or the plain thread, also while a name is looked up.
    ///
    /// ```
    /// use gmp::net::{TcpListener, TcpStream};
    /// use std::io::{Read, Write};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ///         let address = listener.local_addr().unwrap();
    ///         let greets = gmp::go(move || listener.accept().unwrap().0.write_all(b"hello"));
    ///         let mut text = String::new();
    ///         TcpStream::connect(address).unwrap().read_to_string(&mut text).unwrap();
    ///         assert_eq!(text, "hello");
    ///         greets.join().unwrap().unwrap();
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The kernel's error for a single address. If all of several addresses fail, the error says what became of each (of
    /// those that were refused, the first 64 and the last 64), and its kind is that of the last address that could be asked.
    /// `InvalidInput` if `addr` has no address. `ConnectionRefused` also if nobody listens and the kernel has connected the
    /// socket to itself.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let mut addrs = lookup::resolve(&addr)?;
        with_a_frame(race::connect(&mut addrs, Pace::until(None), &mut begin))
    }

    /// Connects as [`connect`](Self::connect), and gives up at `deadline`, which holds for all addresses together. The time
    /// that a name's resolution takes counts. The deadline ends the wait for a turn to resolve the name
    /// ([`max_lookups`](crate::RuntimeBuilder::max_lookups)), but not a resolution that is under way. If the deadline has
    /// passed, no name server is asked.
    ///
    /// ```
    /// use gmp::net::{TcpListener, TcpStream};
    /// use std::time::{Duration, Instant};
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    ///         let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    ///         let addresses = [nobody, listener.local_addr().unwrap()];
    ///         let deadline = Instant::now() + Duration::from_secs(60);
    ///         let stream = TcpStream::connect_deadline(&addresses[..], deadline).unwrap();
    ///         assert_eq!(stream.peer_addr().unwrap(), addresses[1]);
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `TimedOut` after `deadline`, with every descriptor closed; for several addresses the error says what became of each, as
    /// that of [`connect`](Self::connect) does. Otherwise as [`connect`](Self::connect).
    pub fn connect_deadline<A: ToSocketAddrs>(addr: A, deadline: Instant) -> io::Result<Self> {
        let pace = Pace::until(Some(Active::nanos(deadline)));
        let mut addrs = lookup::resolve_until(&addr, pace.until)?;
        with_a_frame(race::connect(&mut addrs, pace, &mut begin))
    }

    /// Connects to `addr`, and gives up after `timeout`. Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `TimedOut` after `timeout`, with the descriptor closed; `InvalidInput` for a timeout of zero, as with std;
    /// otherwise as [`connect`](Self::connect).
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(limit::no_time_to_connect());
        }
        let pace = Pace::until(Some(Active::after(timeout)));
        with_a_frame(race::connect(&mut iter::once(*addr), pace, &mut begin))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// As with std.
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

    /// Shuts one or both directions down. Calls that wait in them return.
    ///
    /// # Errors
    /// As with std.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.with(|socket| socket.shutdown(how))
    }

    /// Makes a second handle to the same connection, with I/O locks of its own: only the kernel orders operations
    /// through different handles. To share a stream between goroutines, an `Arc` and `Read for &TcpStream` are
    /// enough.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(TcpStream(self.0.try_clone(net::TcpStream::try_clone)?))
    }

    /// Reads without taking the data out of the socket. Blocks the goroutine, or the plain thread, until there is
    /// data or the end of the stream.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        with_a_frame(self.0.run(Direction::Read, |stream| stream.peek(buf)))
    }

    /// Returns `true` if small writes are sent at once (TCP_NODELAY).
    ///
    /// # Errors
    /// As with std.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.with(|socket| socket.nodelay())
    }

    /// Sets whether small writes are sent at once (TCP_NODELAY). Default: `false`, as with std: the second of two writes can
    /// then wait for the peer's acknowledgement of the first, for some 40 ms. `writeln!` makes several writes.
    ///
    /// # Errors
    /// As with std.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.with(|socket| socket.set_nodelay(nodelay))
    }

    /// Returns `true` if the kernel, for now, acknowledges incoming data at once (TCP_QUICKACK).
    ///
    /// # Errors
    /// As with std, where the trait `TcpStreamExt` has this call.
    pub fn quickack(&self) -> io::Result<bool> {
        self.0.with(|socket| socket.quickack())
    }

    /// Sets whether the kernel acknowledges incoming data at once rather than with the next segment that is sent
    /// (TCP_QUICKACK). The kernel may change the mode at any time, so a program that needs it sets it before each read.
    ///
    /// # Errors
    /// As with std, where the trait `TcpStreamExt` has this call.
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        self.0.with(|socket| socket.set_quickack(quickack))
    }
}

limits!(TcpStream);
ip_options!(TcpStream);
reads!(
    TcpStream,
    |stream: &net::TcpStream, buf| Rest::AsTold.after(sys::recv_bytes(stream.as_fd(), buf)),
    |stream: &net::TcpStream, bufs| Rest::AsTold.after(sys::read_vectored(stream.as_fd(), bufs))
);
writes!(
    TcpStream,
    |stream: &net::TcpStream, buf| sys::send(stream.as_fd(), buf),
    // std's is `writev`, which has no flag against the signal of a stream without a peer.
    |stream: &net::TcpStream, bufs| sys::send_vectored(stream.as_fd(), bufs)
);
stream_polls!(
    TcpStream,
    |stream: &net::TcpStream, buf| Rest::AsTold.after(sys::recv(stream.as_fd(), buf)),
    |stream: &net::TcpStream, bufs| Rest::AsTold.after(sys::read_vectored(stream.as_fd(), bufs)),
    |stream: &net::TcpStream, buf| sys::send(stream.as_fd(), buf),
    |stream: &net::TcpStream, bufs| sys::send_vectored(stream.as_fd(), bufs)
);
socket_traits!(TcpStream, net::TcpStream, sys::is_tcp);
copy_end!(TcpStream, Socket, AsTold: Source Sink);
duplex_end!(TcpStream, |socket| sys::has_ended_writes(socket.as_fd()), |socket| Ok(sys::is_over(
    socket.as_fd()
)? && socket
    .take_error()?
    .is_none()));
