//! ureq over our sockets, by its own traits: a goroutine that waits for a server, or for a connection, parks. ureq's own TLS is
//! on top.

use gmp::net::TcpStream;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Weak};
use std::time::Duration;
use ureq::config::Config;
use ureq::http::{Uri, uri::Scheme};
use ureq::unversioned::resolver::{ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, RustlsConnector, ShutdownHandle,
    Transport,
};
use ureq::{Agent, Error};

/// Makes an agent like ureq's own, over our sockets.
pub fn agent(config: Config) -> Agent {
    Agent::with_parts(config, ().chain(Goroutines).chain(RustlsConnector::default()), Names)
}

/// Opens our sockets.
#[derive(Debug)]
struct Goroutines;

impl Connector for Goroutines {
    type Out = Stream;

    fn connect(&self, details: &ConnectionDetails<'_>, _: Option<()>) -> Result<Option<Stream>, Error> {
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        let deadline = limit(details.timeout).map(|limit| std::time::Instant::now() + limit);
        for addr in &details.addrs {
            let connected = match deadline {
                Some(deadline) => TcpStream::connect_deadline(addr, deadline),
                None => TcpStream::connect(addr),
            };
            match connected {
                Ok(stream) => {
                    stream.set_nodelay(details.config.no_delay())?;
                    let socket = Arc::new(Socket(stream));
                    let handle: Weak<Socket> = Arc::downgrade(&socket);
                    (details.register_shutdown)(handle)?;
                    let (input, output) =
                        (details.config.input_buffer_size(), details.config.output_buffer_size());
                    return Ok(Some(Stream { socket, buffers: LazyBuffers::new(input, output) }));
                }
                Err(refused) => last = refused,
            }
        }
        Err(told(last, details.timeout))
    }
}

/// A socket that is shared with the agent, which can end a wait on it.
#[derive(Debug)]
struct Socket(TcpStream);

impl ShutdownHandle for Socket {
    fn shutdown(&self) {
        let _it_is_gone_already = self.0.shutdown(Shutdown::Both);
    }
}

#[derive(Debug)]
struct Stream {
    socket: Arc<Socket>,
    buffers: LazyBuffers,
}

impl Transport for Stream {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        let mut stream = &self.socket.0;
        stream.set_write_timeout(limit(timeout))?;
        stream.write_all(&self.buffers.output()[..amount]).map_err(|broken| told(broken, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        let mut stream = &self.socket.0;
        stream.set_read_timeout(limit(timeout))?;
        let got = stream.read(self.buffers.input_append_buf()).map_err(|broken| told(broken, timeout))?;
        self.buffers.input_appended(got);
        Ok(got > 0)
    }

    /// Returns `true` if the connection is open and silent. Asks the kernel without a wait, because ureq holds a lock of std
    /// meanwhile.
    fn is_open(&mut self) -> bool {
        let mut byte = 0_u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        // SAFETY: our own socket, and one byte to write to.
        let got = unsafe { libc::recv(self.socket.0.as_raw_fd(), (&raw mut byte).cast(), 1, flags) };
        got == -1 && io::Error::last_os_error().kind() == io::ErrorKind::WouldBlock
    }
}

/// Returns the limit, or `None` if there is no limit. A limit of zero, which a socket does not accept, becomes one that is over
/// at once.
fn limit(timeout: NextTimeout) -> Option<Duration> {
    (!timeout.after.is_not_happening()).then(|| (*timeout.after).max(Duration::from_nanos(1)))
}

fn told(broken: io::Error, timeout: NextTimeout) -> Error {
    match broken.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::Timeout(timeout.reason),
        _ => Error::Io(broken),
    }
}

/// std's look-up of names, in the runtime's line. ureq's own resolver would start a thread for each look-up, and leave it when
/// the time is over.
#[derive(Debug)]
struct Names;

impl Resolver for Names {
    fn resolve(&self, uri: &Uri, _: &Config, _: NextTimeout) -> Result<ResolvedSocketAddrs, Error> {
        let host = uri.host().ok_or(Error::HostNotFound)?.trim_matches(['[', ']']);
        let port = if uri.scheme() == Some(&Scheme::HTTPS) { 443 } else { 80 };
        let port = uri.port_u16().unwrap_or(port);
        let mut found = self.empty();
        let addrs = gmp::net::lookup((host, port))?;
        addrs.take(16).for_each(|addr| found.push(addr));
        if found.is_empty() { Err(Error::HostNotFound) } else { Ok(found) }
    }
}
