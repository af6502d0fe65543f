//! Sockets with std's names and signatures that park the goroutine, not the thread.
//!
//! Every operation may be called by goroutines of any runtime, and by plain threads, which block as with std. Several
//! callers may use one socket through `&self`: each direction serves one call at a time, in the order in which the
//! calls came. Two concurrent `write_all` interleave, but only at the boundaries of their single writes.
//!
//! The addresses are std's own types. The calls here that take a name block the goroutine, and so does [`lookup`]; std's
//! `to_socket_addrs` blocks the thread.
//!
//! ```
//! use gmp::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
//! let answer = unsafe {
//!     gmp::run(|| -> std::io::Result<String> {
//!         let listener = TcpListener::bind("127.0.0.1:0")?;
//!         let addr = listener.local_addr()?;
//!         let server = gmp::go(move || -> std::io::Result<()> {
//!             let (mut stream, _) = listener.accept()?;
//!             let mut buf = [0; 5];
//!             stream.read_exact(&mut buf)?;
//!             stream.write_all(&buf)
//!         });
//!         let mut stream = TcpStream::connect(addr)?;
//!         stream.write_all(b"hello")?;
//!         let mut echo = String::new();
//!         stream.read_to_string(&mut echo)?;
//!         server.join().expect("the server does not panic")?;
//!         Ok(echo)
//!     })
//! };
//! assert_eq!(answer.unwrap(), "hello");
//! ```

#[cfg(feature = "net-config")]
mod config;
pub(crate) mod desc;
mod fd;
pub(crate) mod io_lock;
pub(crate) mod limit;
pub(crate) mod lookup;
pub(crate) mod methods;
mod poll_stream;
pub(crate) mod socket;
pub(crate) mod sys;
mod tcp;
pub(crate) mod traits;
mod udp;
pub mod unix;
mod wake_fd;

#[cfg(feature = "net-config")]
pub use config::{DialConfig, ListenConfig};
pub use lookup::{lookup, lookup_deadline};
pub use poll_stream::PollStream;
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};

use crate::context::{ContextError, interrupted};
use crate::host::Active;
use crate::wait::interrupt::{Interrupt, first_done_here};
use std::fmt;
use std::io;

/// The error of every call on a socket, an end of a pipe or another handle that was closed.
#[derive(Debug)]
struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the handle was closed")
    }
}

impl std::error::Error for Closed {}

#[cold]
fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, Closed)
}

/// Returns `true` if an error says that the socket, the end of a pipe, or the [`Watched`](crate::io::Watched) value was closed
/// by its own `close`: every later call returns such an error, and so do the calls that waited then. The error's kind is
/// [`NotConnected`](io::ErrorKind::NotConnected), which other errors have as well.
///
/// ```
/// let listener = gmp::net::TcpListener::bind("127.0.0.1:0")?;
/// listener.close()?;
/// assert!(gmp::net::is_closed(&listener.accept().unwrap_err()));
/// assert!(gmp::net::is_closed(&listener.close().unwrap_err()));
/// # std::io::Result::Ok(())
/// ```
#[doc(alias = "ErrClosed")]
pub fn is_closed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Closed>())
}

/// Returns an error if a context under which the caller runs is done: for loops in which no call waits, or only in ways that a
/// context does not end.
pub(crate) fn check_contexts() -> io::Result<()> {
    match first_done_here::<Active>() {
        Some(done) => Err(interrupted::<Active>(Interrupt::Context(done)).into()),
        None => Ok(()),
    }
}

/// Returns `true` if a context has ended the call.
pub(crate) fn is_canceled(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<ContextError>())
}
