//! A connection of two Unix sockets.

use super::{Passed, SocketAddr, UCred, cred, pass};
use crate::net::desc::Direction;
use crate::net::methods::{error_option, limits, reads, stream_polls, with_a_frame, writes};
use crate::net::socket::Socket;
use crate::net::sys;
use crate::net::traits::socket_traits;
use crate::os::io::copy::{copy_end, duplex_end};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::Shutdown;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net;
use std::path::Path;
use std::time::Instant;

/// A connection of two Unix sockets.
///
/// Like [`std::os::unix::net::UnixStream`], except that a goroutine that waits for the stream parks and its thread runs
/// others. A plain thread blocks. `UnixStream` and `&UnixStream` implement `Read` and `Write`, so one goroutine may read
/// while another writes.
///
/// ```
/// use gmp::net::UnixStream;
/// use std::io::{Read, Write};
/// use std::net::Shutdown;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| {
///         let (mut near, far) = UnixStream::pair().unwrap();
///         // Sends back what comes, until the peer has no more.
///         let echo = gmp::go(move || std::io::copy(&mut &far, &mut &far).unwrap());
///         near.write_all(b"hello").unwrap();
///         near.shutdown(Shutdown::Write).unwrap();
///         let mut text = String::new();
///         near.read_to_string(&mut text).unwrap();
///         assert_eq!((text.as_str(), echo.join().unwrap()), ("hello", 5));
///     })
/// }
/// ```
pub struct UnixStream(pub(super) Socket<net::UnixStream>);

impl UnixStream {
    /// Connects to the listener at `path`. Blocks the goroutine, or the plain thread, while the listener's queue of connections
    /// is full: the kernel does not report when there is room again, so the call tries again after pauses of 50 µs to 10 ms.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std.
    pub fn connect<P: AsRef<Path>>(path: P) -> io::Result<Self> {
        Self::connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Connects to the listener at `addr`, which may be an abstract one; otherwise as [`connect`](Self::connect).
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with std.
    pub fn connect_addr(addr: &SocketAddr) -> io::Result<Self> {
        with_a_frame(Self::connect_until(addr, None))
    }

    /// Connects as [`connect`](Self::connect), and gives up at `deadline`.
    ///
    /// ```
    /// use gmp::net::{UnixListener, UnixStream};
    /// use std::io::ErrorKind;
    /// use std::time::{Duration, Instant};
    ///
    /// let path = std::env::temp_dir().join(format!("gmp-connect-deadline-{}", std::process::id()));
    /// let listener = UnixListener::bind(&path)?;
    /// UnixStream::connect_deadline(&path, Instant::now() + Duration::from_secs(60))?;
    /// let late = UnixStream::connect_deadline(&path, Instant::now()).unwrap_err();
    /// assert_eq!(late.kind(), ErrorKind::TimedOut);
    /// std::fs::remove_file(&path)?;
    /// # drop(listener);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// `TimedOut` after `deadline`; otherwise as [`connect`](Self::connect).
    pub fn connect_deadline<P: AsRef<Path>>(path: P, deadline: Instant) -> io::Result<Self> {
        Self::connect_addr_deadline(&SocketAddr::from_pathname(path)?, deadline)
    }

    /// Connects as [`connect_addr`](Self::connect_addr), and gives up at `deadline`.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`connect_deadline`](Self::connect_deadline).
    pub fn connect_addr_deadline(addr: &SocketAddr, deadline: Instant) -> io::Result<Self> {
        with_a_frame(Self::connect_until(addr, Some(deadline)))
    }

    fn connect_until(addr: &SocketAddr, deadline: Option<Instant>) -> io::Result<Self> {
        // std has the system call for a datagram socket; the kernel looks at the socket, not at the type that holds it.
        let socket = Socket::new(net::UnixDatagram::from(sys::socket(libc::AF_UNIX, libc::SOCK_STREAM)?));
        if deadline.is_some() {
            socket.set_deadline(Direction::Write, deadline)?;
        }
        socket.run_unannounced(|socket| socket.connect_addr(addr))?;
        Ok(UnixStream(Socket::new(OwnedFd::from(socket.into_inner()).into())))
    }

    /// Makes two streams that are connected with each other.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (one, other) = net::UnixStream::pair()?;
        for end in [&one, &other] {
            end.set_nonblocking(true)?;
        }
        Ok((UnixStream(Socket::new(one)), UnixStream(Socket::new(other))))
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    /// As with std.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.with(|socket| socket.peer_addr())
    }

    /// Returns the user and the process at the other end: the process that has called `connect` or `listen`, or has made the
    /// [`pair`](Self::pair), as it was then. Later holders of the peer's descriptor are not reported. Does not block.
    ///
    /// ```
    /// let (near, _far) = gmp::net::UnixStream::pair()?;
    /// let peer = near.peer_cred()?;
    /// assert_eq!(peer.pid(), Some(std::process::id()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// `NotConnected` if the socket was made outside, and has no peer; and if it is closed. No error for a listener that was
    /// made outside and is taken for a stream: the result is the process that has called `listen`.
    pub fn peer_cred(&self) -> io::Result<UCred> {
        self.0.with(|socket| cred::of_peer(socket.as_fd()))
    }

    /// Returns the local address.
    ///
    /// # Errors
    /// As with std.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.with(|socket| socket.local_addr())
    }

    /// Shuts one or both directions down. Calls that wait in them return. A write that waits through another handle to the same
    /// connection sees [`Shutdown::Write`] only when there is room. A waiting write of the *peer* does not see
    /// [`Shutdown::Read`]: it waits on until this end is closed, though a write that begins later fails.
    ///
    /// # Errors
    /// As with std.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shut_down(how, |socket| socket.shutdown(how))
    }

    /// Makes a second handle to the same connection, with I/O locks and limits of its own.
    ///
    /// # Errors
    /// If the table of descriptors is full.
    pub fn try_clone(&self) -> io::Result<Self> {
        Ok(UnixStream(self.0.try_clone(net::UnixStream::try_clone)?))
    }

    /// Writes the bytes of `bufs`, or a part of them, with duplicates of `fds`, which the peer gets with the first byte. Blocks
    /// the goroutine, or the plain thread, until the kernel has taken a part of the bytes; at most until the write deadline or
    /// timeout.
    ///
    /// ```
    /// use gmp::net::UnixStream;
    /// use std::io::{IoSlice, IoSliceMut, Read};
    /// use std::os::fd::AsFd;
    ///
    /// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    /// unsafe {
    ///     gmp::run(|| {
    ///         let (near, far) = UnixStream::pair().unwrap();
    ///         let file = std::fs::File::open("/proc/self/cmdline").unwrap();
    ///         near.send_with_fds(&[IoSlice::new(b"a file")], &[file.as_fd()]).unwrap();
    ///
    ///         let (mut bytes, mut fds) = ([0; 16], Vec::new());
    ///         let got = far.recv_with_fds(&mut [IoSliceMut::new(&mut bytes)], &mut fds).unwrap();
    ///         assert_eq!(&bytes[..got.len()], b"a file");
    ///         let mut line = Vec::new();
    ///         std::fs::File::from(fds.pop().unwrap()).read_to_end(&mut line).unwrap();
    ///         assert!(!line.is_empty());
    ///     })
    /// }
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with `write`; `InvalidInput` for more than 253 descriptors, the kernel's bound for one message, and for descriptors
    /// without a byte in the first 1024 buffers, the bound for one message.
    pub fn send_with_fds(&self, bufs: &[IoSlice<'_>], fds: &[BorrowedFd<'_>]) -> io::Result<usize> {
        // The buffers beyond the kernel's bound are for another call.
        if !fds.is_empty() && bufs.iter().take(libc::UIO_MAXIOV as usize).all(|buf| buf.is_empty()) {
            let refused =
                "send_with_fds: a stream carries descriptors with a byte at least, in its first 1024 buffers";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
        }
        with_a_frame(self.0.run(Direction::Write, |socket| pass::send_with_fds(socket.as_fd(), bufs, fds)))
    }

    /// Reads into `bufs`, and appends the descriptors that came with these bytes to `fds`, closed on exec. Blocks the
    /// goroutine, or the plain thread, as `read`. Other reads drop the descriptors that come with their bytes.
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As with `read`. If the table of descriptors is full, [`Passed::lost_fds`] of the result returns `true`.
    pub fn recv_with_fds(&self, bufs: &mut [IoSliceMut<'_>], fds: &mut Vec<OwnedFd>) -> io::Result<Passed> {
        with_a_frame(self.0.run(Direction::Read, |socket| pass::receive(socket.as_fd(), bufs, fds)))
    }
}

limits!(UnixStream);
error_option!(UnixStream);
// A short read says that the socket is empty, with these exceptions: a message that the kernel does not join with the next one,
// which it reports to `pass::read_vectored`; urgent data, as on TCP; and a socket of another kind (SOCK_SEQPACKET), whose
// messages stay apart, and which can only have been made outside, or accepted by such a listener.
reads!(
    UnixStream,
    |stream: &net::UnixStream, buf: &mut [u8]| pass::read_vectored(
        stream.as_fd(),
        &mut [IoSliceMut::new(buf)]
    ),
    |stream: &net::UnixStream, bufs| pass::read_vectored(stream.as_fd(), bufs)
);
writes!(
    UnixStream,
    |stream: &net::UnixStream, buf| sys::send(stream.as_fd(), buf),
    |stream: &net::UnixStream, bufs| sys::send_vectored(stream.as_fd(), bufs)
);
stream_polls!(
    UnixStream,
    |stream: &net::UnixStream, buf| pass::read(stream.as_fd(), buf),
    |stream: &net::UnixStream, bufs| pass::read_vectored(stream.as_fd(), bufs),
    |stream: &net::UnixStream, buf| sys::send(stream.as_fd(), buf),
    |stream: &net::UnixStream, bufs| sys::send_vectored(stream.as_fd(), bufs)
);
socket_traits!(UnixStream, net::UnixStream, sys::is_unix_stream);
copy_end!(UnixStream, Socket, Unknown: Source Sink);
// A read reports a reset even after a write, except after a write that was under way when the peer went.
duplex_end!(UnixStream, |_| Ok(false), |_| Ok(false));
