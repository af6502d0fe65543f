//! TCP: [`TcpListener`] and [`TcpStream`].

use crate::host::{Active, Host};
use crate::net::desc::Direction;
use crate::net::limit;
use crate::net::socket::{ShortRead, Socket};
use crate::net::sys;
use crate::net::traits::socket_traits;
use gmp_timers::Nanos;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::iter::FusedIterator;
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// Gives `result`. Without something to do after it an optimised build makes a jump of the caller's last call, and a dump shows
/// the library's inner function in place of the caller, which the user has called. No instruction.
#[inline(always)]
fn with_a_frame<T>(result: T) -> T {
    // SeqCst: for the compiler, without a partner.
    compiler_fence(Ordering::SeqCst);
    result
}

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
    /// Listens on the first of `addr`'s addresses that can be bound, with as long a queue of connections as the
    /// system allows. Resolving a name blocks the thread.
    ///
    /// # Errors
    /// The last address's, when none can be bound.
    pub fn bind<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let listener = net::TcpListener::bind(addr)?;
        sys::lengthen_queue(listener.as_fd())?;
        listener.set_nonblocking(true)?;
        Ok(TcpListener(Socket::new(listener)))
    }

    /// Waits for a connection. Blocks the goroutine; several may wait, and are served in the order in which
    /// they came.
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `TimedOut` when the [deadline](Self::set_deadline) has passed; after [`close`](Self::close) the error of which
    /// [`is_closed`](super::is_closed) is true; else what `accept(2)` says. A full table of descriptors (`EMFILE`) is an
    /// error of this call; the connection stays in the kernel's queue, for a call that comes when there is room again.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, addr) = self.0.run(Direction::Read, |listener| sys::accept(listener.as_fd()))?;
        Ok((TcpStream(Socket::new(fd.into())), addr))
    }

    /// Connections, one after the other, until the listener is closed. Each step is an [`accept`](Self::accept), and unwinds as
    /// that does.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self, ended: false }
    }

    /// Ends the listener. Whoever waits in [`accept`](Self::accept), here or on another goroutine or thread, gets the
    /// error of which [`is_closed`](super::is_closed) is true, and so does every later call. Connections that the kernel
    /// has taken and nobody has accepted are reset. A [`try_clone`](Self::try_clone) lives on. Blocks the goroutine until
    /// system calls that others are making have come back; then the port is free, and the descriptor's number, unless
    /// it was lent out by `AsFd`.
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
    /// Never: its wait is not ended from outside.
    ///
    /// # Errors
    /// As every call on a closed socket, when it was closed already: of several calls one is `Ok`.
    pub fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    /// Until when [`accept`](Self::accept) waits; `None` for ever. Holds for all calls until it is set again. Whoever waits
    /// already goes by the new one. With a time that has passed they give `TimedOut`, also when there is a
    /// connection to accept.
    ///
    /// # Errors
    /// When the listener is closed.
    pub fn set_deadline(&self, at: Option<Instant>) -> io::Result<()> {
        self.0.set_deadline(Direction::Read, at)
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// As std's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.with(|socket| socket.local_addr())
    }

    /// A second handle to the same socket.
    ///
    /// # Errors
    /// When the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(TcpListener(self.0.try_clone(net::TcpListener::try_clone)?))
    }

    /// The value of `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.with(|socket| socket.ttl())
    }

    /// Sets `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.with(|socket| socket.set_ttl(ttl))
    }

    /// Takes the socket's pending error.
    ///
    /// # Errors
    /// As std's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.with(|socket| socket.take_error())
    }
}

/// The connections of a listener; made by [`TcpListener::incoming`]. After [`TcpListener::close`] it gives the error of
/// which [`is_closed`](super::is_closed) is true, once, and then ends. Other errors do not end it.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
    ended: bool,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let accepted = self.listener.accept().map(|(stream, _)| stream);
        self.ended = accepted.as_ref().is_err_and(super::is_closed);
        Some(accepted)
    }
}

impl FusedIterator for Incoming<'_> {}

/// A TCP connection.
///
/// Like [`std::net::TcpStream`], except that a goroutine that waits for it parks and its thread runs others. A
/// plain thread blocks. `Read` and `Write` are there for `TcpStream` and for `&TcpStream`, so one goroutine may
/// read while another writes.
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
    /// Connects to the first of `addr`'s addresses that answers. Blocks the goroutine; resolving a name blocks
    /// the thread.
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// The last address's, when none answers; `InvalidInput` when there is none.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let mut last = None;
        for addr in addr.to_socket_addrs()? {
            match Self::connect_one(&addr, None) {
                Ok(stream) => return Ok(stream),
                Err(refused) => last = Some(refused),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "connect: no address to try")))
    }

    /// Connects to `addr`, and gives up after `timeout`. Blocks the goroutine.
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `TimedOut` after that time, with the descriptor closed; `InvalidInput` for a time of zero, as in std; else as
    /// [`connect`](Self::connect).
    pub fn connect_timeout(addr: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            return Err(limit::no_zero());
        }
        Self::connect_one(addr, Some(Active::now().saturating_add(timeout)))
    }

    fn connect_one(addr: &SocketAddr, until: Option<Nanos>) -> io::Result<Self> {
        let stream = TcpStream(Socket::new(net::TcpStream::from(sys::begin_connect(addr)?)));
        stream.0.run_until(until, |socket| {
            // On loopback the outcome is there at once, mostly.
            if let Some(refused) = socket.take_error()? {
                return Err(refused);
            }
            socket.peer_addr().map(drop).map_err(|not_yet| match not_yet.kind() {
                io::ErrorKind::NotConnected => io::ErrorKind::WouldBlock.into(),
                _ => not_yet,
            })
        })?;
        Ok(stream)
    }

    /// Ends the connection at this end. Whoever waits to read or write, on any goroutine or thread, gets the error of
    /// which [`is_closed`](super::is_closed) is true, and so does every later call. A [`try_clone`](Self::try_clone)
    /// lives on; the peer sees an end when the last handle is closed or dropped. Blocks the goroutine until system calls
    /// that others are making have come back; then the descriptor's number is free, unless it was lent out by
    /// `AsFd`.
    ///
    /// # Unwinds
    /// Never: its wait is not ended from outside.
    ///
    /// # Errors
    /// As every call on a closed socket, when it was closed already: of several calls one is `Ok`.
    pub fn close(&self) -> io::Result<()> {
        self.0.close()
    }

    /// Until when reads wait; `None` for ever. Holds for all reads, and for `peek`, until it is set again. Whoever waits
    /// already goes by the new one. With a time that has passed they give `TimedOut`, also when there is data. With
    /// a [timeout](Self::set_read_timeout) as well, the earlier end counts.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn set_read_deadline(&self, at: Option<Instant>) -> io::Result<()> {
        self.0.set_deadline(Direction::Read, at)
    }

    /// Until when writes wait; else as [`set_read_deadline`](Self::set_read_deadline). A `write_all` that times out may
    /// have written a part.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn set_write_deadline(&self, at: Option<Instant>) -> io::Result<()> {
        self.0.set_deadline(Direction::Write, at)
    }

    /// Both deadlines.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn set_deadline(&self, at: Option<Instant>) -> io::Result<()> {
        self.0.set_deadline(Direction::Read, at)?;
        self.0.set_deadline(Direction::Write, at)
    }

    /// How long a read waits, from its beginning; `None` for ever. Counts for reads that begin after this. Time spent
    /// behind other readers of the same socket counts too. Of this handle: a `try_clone` has timeouts of its own.
    ///
    /// # Errors
    /// `InvalidInput` for zero, as in std; and when the socket is closed.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Direction::Read, timeout)
    }

    /// How long a write waits; else as [`set_read_timeout`](Self::set_read_timeout).
    ///
    /// # Errors
    /// As there.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.0.set_timeout(Direction::Write, timeout)
    }

    /// How long a read waits.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        self.0.timeout(Direction::Read)
    }

    /// How long a write waits.
    ///
    /// # Errors
    /// When the socket is closed.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        self.0.timeout(Direction::Write)
    }

    /// The peer's address.
    ///
    /// # Errors
    /// As std's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.with(|socket| socket.peer_addr())
    }

    /// This end's address.
    ///
    /// # Errors
    /// As std's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.with(|socket| socket.local_addr())
    }

    /// Ends one or both directions. Whoever waits in one of them wakes.
    ///
    /// # Errors
    /// As std's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.with(|socket| socket.shutdown(how))
    }

    /// A second handle to the same connection. It has I/O locks of its own: operations through both are ordered by
    /// the kernel alone. To share a stream between goroutines an `Arc` and `Read for &TcpStream` are enough.
    ///
    /// # Errors
    /// When the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(TcpStream(self.0.try_clone(net::TcpStream::try_clone)?))
    }

    /// Reads without taking the data out. Blocks the goroutine until there is some, or the end.
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As std's.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        with_a_frame(self.0.run(Direction::Read, |stream| stream.peek(buf)))
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    /// As std's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.with(|socket| socket.nodelay())
    }

    /// Sets whether small writes are sent at once.
    ///
    /// # Errors
    /// As std's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.with(|socket| socket.set_nodelay(nodelay))
    }

    /// The value of `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.with(|socket| socket.ttl())
    }

    /// Sets `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.with(|socket| socket.set_ttl(ttl))
    }

    /// Takes the socket's pending error.
    ///
    /// # Errors
    /// As std's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.with(|socket| socket.take_error())
    }
}

impl Read for &TcpStream {
    /// Blocks the goroutine until there is data, or the end; at most until the read deadline or timeout.
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        with_a_frame(self.0.run_read(ShortRead::Drained, buf.len(), |mut stream| stream.read(buf)))
    }

    /// Blocks the goroutine as [`read`](Read::read).
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        with_a_frame(self.0.run_read(ShortRead::Drained, len, |mut stream| stream.read_vectored(bufs)))
    }
}

impl Write for &TcpStream {
    /// Blocks the goroutine until at least a part of `buf` was taken; at most until the write deadline or timeout.
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        with_a_frame(self.0.run(Direction::Write, |mut stream| stream.write(buf)))
    }

    /// Blocks the goroutine as [`write`](Write::write).
    ///
    /// # Unwinds
    /// When its wait is ended from outside, but by a context, which is an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        with_a_frame(self.0.run(Direction::Write, |mut stream| stream.write_vectored(bufs)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for TcpStream {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

socket_traits!(TcpListener, net::TcpListener);
socket_traits!(TcpStream, net::TcpStream);
