//! TCP: [`TcpListener`] and [`TcpStream`].

use crate::net::desc::Direction;
use crate::net::socket::{ShortRead, Socket};
use crate::net::sys;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// A socket that listens for connections.
///
/// Like [`std::net::TcpListener`], except that a goroutine that waits in [`accept`](Self::accept) parks and its
/// thread runs others. A plain thread blocks.
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
    /// # Errors
    /// What `accept(2)` says. A full table of descriptors (`EMFILE`) is an error of this call; the connection
    /// stays in the kernel's queue, for a call that comes when there is room again.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (fd, addr) = self.0.run(Direction::Read, |listener| sys::accept(listener.as_fd()))?;
        Ok((TcpStream(Socket::new(fd.into())), addr))
    }

    /// Connections, one after the other, without an end.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// The address that it listens on.
    ///
    /// # Errors
    /// As std's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// A second handle to the same socket.
    ///
    /// # Errors
    /// When the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(TcpListener(Socket::new(self.0.get().try_clone()?)))
    }

    /// The value of `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }

    /// Takes the socket's pending error.
    ///
    /// # Errors
    /// As std's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get().take_error()
    }
}

/// The connections of a listener; made by [`TcpListener::incoming`]. Never ends.
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

/// A TCP connection.
///
/// Like [`std::net::TcpStream`], except that a goroutine that waits for it parks and its thread runs others. A
/// plain thread blocks. `Read` and `Write` are there for `TcpStream` and for `&TcpStream`, so one goroutine may
/// read while another writes.
pub struct TcpStream(Socket<net::TcpStream>);

impl TcpStream {
    /// Connects to the first of `addr`'s addresses that answers. Blocks the goroutine; resolving a name blocks
    /// the thread.
    ///
    /// # Errors
    /// The last address's, when none answers; `InvalidInput` when there is none.
    pub fn connect<A: ToSocketAddrs>(addr: A) -> io::Result<Self> {
        let mut last = None;
        for addr in addr.to_socket_addrs()? {
            match Self::connect_one(&addr) {
                Ok(stream) => return Ok(stream),
                Err(refused) => last = Some(refused),
            }
        }
        Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "connect: no address to try")))
    }

    fn connect_one(addr: &SocketAddr) -> io::Result<Self> {
        let stream = TcpStream(Socket::new(net::TcpStream::from(sys::begin_connect(addr)?)));
        loop {
            // On loopback the outcome is there at once, mostly.
            if let Some(refused) = stream.take_error()? {
                return Err(refused);
            }
            match stream.peer_addr() {
                Ok(_) => return Ok(stream),
                Err(not_yet) if not_yet.kind() == io::ErrorKind::NotConnected => {}
                Err(refused) => return Err(refused),
            }
            stream.0.wait_connected()?;
        }
    }

    /// The peer's address.
    ///
    /// # Errors
    /// As std's.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// This end's address.
    ///
    /// # Errors
    /// As std's.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Ends one or both directions. Whoever waits in one of them wakes.
    ///
    /// # Errors
    /// As std's.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }

    /// A second handle to the same connection. It has turns of its own: operations through both are ordered by
    /// the kernel alone. To share a stream between goroutines an `Arc` and `Read for &TcpStream` are enough.
    ///
    /// # Errors
    /// When the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(TcpStream(Socket::new(self.0.get().try_clone()?)))
    }

    /// Reads without taking the data out. Blocks the goroutine until there is some, or the end.
    ///
    /// # Errors
    /// As std's.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run(Direction::Read, |stream| stream.peek(buf))
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    /// As std's.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get().nodelay()
    }

    /// Sets whether small writes are sent at once.
    ///
    /// # Errors
    /// As std's.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get().set_nodelay(nodelay)
    }

    /// The value of `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn ttl(&self) -> io::Result<u32> {
        self.0.get().ttl()
    }

    /// Sets `IP_TTL`.
    ///
    /// # Errors
    /// As std's.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.0.get().set_ttl(ttl)
    }

    /// Takes the socket's pending error.
    ///
    /// # Errors
    /// As std's.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.0.get().take_error()
    }
}

impl Read for &TcpStream {
    /// Blocks the goroutine until there is data, or the end.
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.run_read(ShortRead::Drained, buf.len(), |mut stream| stream.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        self.0.run_read(ShortRead::Drained, len, |mut stream| stream.read_vectored(bufs))
    }
}

impl Write for &TcpStream {
    /// Blocks the goroutine until at least a part of `buf` was taken.
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.run(Direction::Write, |mut stream| stream.write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.run(Direction::Write, |mut stream| stream.write_vectored(bufs))
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

/// What every socket type has in the same words: descriptors, std's type and back, `Debug`.
macro_rules! socket_traits {
    ($name:ident, $std:ty) => {
        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl AsFd for $name {
            fn as_fd(&self) -> BorrowedFd<'_> {
                self.0.as_fd()
            }
        }

        impl AsRawFd for $name {
            fn as_raw_fd(&self) -> RawFd {
                self.0.as_fd().as_raw_fd()
            }
        }

        impl IntoRawFd for $name {
            /// The descriptor stays in non-blocking mode.
            fn into_raw_fd(self) -> RawFd {
                self.0.into_inner().into_raw_fd()
            }
        }

        impl FromRawFd for $name {
            /// # Safety
            /// As [`FromRawFd::from_raw_fd`].
            ///
            /// # Panics
            /// If the descriptor is not open.
            unsafe fn from_raw_fd(fd: RawFd) -> Self {
                // SAFETY: by this function's contract.
                unsafe { <$std>::from_raw_fd(fd) }.into()
            }
        }

        impl From<$std> for $name {
            /// Puts std's socket into non-blocking mode.
            ///
            /// # Panics
            /// If the descriptor can't be, which the kernel refuses for none that is open.
            fn from(inner: $std) -> Self {
                inner.set_nonblocking(true).expect("from: the descriptor is not open");
                $name(Socket::new(inner))
            }
        }

        impl From<$name> for $std {
            /// Puts the socket back into blocking mode. That is the mode of the connection, not of the handle: a
            /// `try_clone` that goroutines still use would block their threads.
            ///
            /// # Panics
            /// As the way in.
            fn from(socket: $name) -> Self {
                let inner = socket.0.into_inner();
                inner.set_nonblocking(false).expect("from: the descriptor is not open");
                inner
            }
        }

        impl From<$name> for OwnedFd {
            /// The descriptor stays in non-blocking mode.
            fn from(socket: $name) -> OwnedFd {
                socket.0.into_inner().into()
            }
        }
    };
}

socket_traits!(TcpListener, net::TcpListener);
socket_traits!(TcpStream, net::TcpStream);
