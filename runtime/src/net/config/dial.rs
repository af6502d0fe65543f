//! [`DialConfig`].

use super::{Options, bind, options};
use crate::context::Context;
use crate::host::{Active, Clock};
use crate::net::methods::with_a_frame;
use crate::net::tcp::race::{self, NotBegun, Pace, STAGGER};
use crate::net::{TcpStream, limit, lookup, sys};
use socket2::Type;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How a connection is made: options that are set before the first packet is sent, and how long the call waits. With the
/// feature `net-config`.
///
/// Without options it connects as [`TcpStream::connect`] does, by Happy Eyeballs (RFC 8305); options hold for each attempt.
///
/// ```
/// use gmp::context::Context;
/// use gmp::net::{DialConfig, TcpListener};
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| -> std::io::Result<()> {
///         let listener = TcpListener::bind("127.0.0.1:0")?;
///         let (context, cancel) = Context::background().with_cancel();
///         let config = DialConfig::new()
///             .local_addr("127.0.0.2:0".parse().unwrap())
///             .nodelay(true)
///             .keepalive(Duration::from_secs(60), Duration::from_secs(10), 3)
///             .timeout(Duration::from_secs(60))
///             .context(&context);
///         let stream = config.connect(listener.local_addr()?)?;
///         assert_eq!(listener.accept()?.1.ip().to_string(), "127.0.0.2");
///         assert!(stream.nodelay()?);
///
///         cancel.cancel();
///         assert!(config.connect(listener.local_addr()?).is_err());
///         Ok(())
///     })
/// }
/// # .unwrap();
/// ```
#[must_use = "nothing is dialled before `connect`"]
#[derive(Clone, Debug, Default)]
#[doc(alias = "Dialer")]
pub struct DialConfig {
    options: Options,
    local: Option<SocketAddr>,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    stagger: Option<Duration>,
    context: Option<Context>,
}

options!(
    DialConfig,
    r#"use gmp::net::DialConfig;
use std::io::{Error, ErrorKind};

// A name that a client has given may lead anywhere: each address is asked, after the name was looked up.
let config = DialConfig::new().control(|_socket, addr| {
    let ip = addr.ip().to_canonical();
    match ip.is_loopback() || ip.is_unspecified() {
        true => Err(Error::new(ErrorKind::PermissionDenied, "it is this machine's own")),
        false => Ok(()),
    }
});
let refused = config.connect("127.0.0.1:80").unwrap_err();
assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
assert_eq!(refused.to_string(), "the control function for 127.0.0.1:80: it is this machine's own");"#
);

impl DialConfig {
    /// Makes a configuration without options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the [local address](Self::local_addr) may be bound while the kernel still keeps a closed connection of that
    /// address, and while other attempts of the call have it (`SO_REUSEADDR`). Default: `false`.
    pub fn reuse_addr(mut self, reuse: bool) -> Self {
        self.options.reuse_addr = Some(reuse);
        self
    }

    /// Sets the address from which to connect; port 0: the system chooses one. The attempt at a peer's address of the other
    /// family fails, and the next address is tried, if there is one. Default: the system chooses.
    ///
    /// With a port other than 0 one attempt at a time has the address, so the peer's next address is tried only when the
    /// attempt before has failed: at an address that does not answer that takes minutes, unless there is a
    /// [timeout](Self::timeout). With [`reuse_addr`](Self::reuse_addr) the attempts share the address.
    pub fn local_addr(mut self, addr: SocketAddr) -> Self {
        self.local = Some(addr);
        self
    }

    /// Sets how long each [`connect`](Self::connect) waits, for all addresses together; with a [deadline](Self::deadline) as
    /// well, the earlier end counts. The time that a name's resolution takes counts. The end of the time ends the wait for a
    /// turn to resolve the name ([`max_lookups`](crate::RuntimeBuilder::max_lookups)), but not a resolution that is under way.
    /// Default: for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets until when [`connect`](Self::connect) waits; see [`timeout`](Self::timeout).
    pub fn deadline(mut self, at: Instant) -> Self {
        self.deadline = Some(at);
        self
    }

    /// Sets how long the call waits for an attempt before it begins the one at the next address; zero: not at all. Default: 250
    /// ms. At most eight attempts are under way; the next one begins when one has failed, or takes the place of the oldest,
    /// which is given two seconds at least.
    #[doc(alias = "FallbackDelay")]
    pub fn stagger(mut self, time: Duration) -> Self {
        self.stagger = Some(time);
        self
    }

    /// Sets a context that ends [`connect`](Self::connect) when the context is done, with the context's error.
    pub fn context(mut self, context: &Context) -> Self {
        self.context = Some(context.clone());
        self
    }

    /// Connects to `addr`, or, if `addr` has several addresses, to the first that answers, as [`TcpStream::connect`]. Blocks
    /// the goroutine, or the plain thread, also while a name is looked up.
    ///
    /// ```
    /// use gmp::net::DialConfig;
    ///
    /// # let listener = gmp::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let address = listener.local_addr()?;
    /// let refused = DialConfig::new().device("no-such-0").connect(address).unwrap_err();
    /// assert_eq!(refused.to_string(), r#"the device "no-such-0": No such device (os error 19)"#);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`TcpStream::connect`]; the error names the option or step that was refused, and has the error of the kernel, or of
    /// [`control`](Self::control), as its source. `TimedOut` after the timeout or the deadline, with every descriptor closed.
    /// An error with a [`ContextError`](crate::context::ContextError) inside if the context is done. `InvalidInput` for a
    /// timeout of zero.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpStream> {
        let Some(context) = &self.context else {
            return with_a_frame(self.race(addr));
        };
        // A connect that never waits would not look at the context.
        if let Some(done) = context.err() {
            return Err(done.into());
        }
        with_a_frame(context.run(|| self.race(addr)).unwrap_or_else(|done| Err(done.into())))
    }

    fn race<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpStream> {
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(limit::no_time_to_connect());
        }
        let timeout = self.timeout.map(Active::after);
        let until = timeout.into_iter().chain(self.deadline.map(Active::nanos)).min();
        let mut addrs = lookup::resolve_until(&addr, until)?;
        let pace = Pace { stagger: self.stagger.unwrap_or(STAGGER), until };
        race::connect(&mut addrs, pace, &mut |addr| self.begin(addr))
    }

    /// Makes a socket and begins to connect.
    fn begin(&self, addr: &SocketAddr) -> Result<OwnedFd, NotBegun> {
        if let Some(local) = self.local.filter(|local| local.is_ipv4() != addr.is_ipv4()) {
            let refused = format!("the local address {local} and the peer's {addr} are of two families");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused).into());
        }
        let socket = self.options.socket(addr, Type::STREAM)?;
        if let Some(local) = &self.local {
            bind(&socket, local).map_err(|why| NotBegun {
                // Another attempt may have the port.
                for_want_of_room: why.kind() == io::ErrorKind::AddrInUse,
                why,
            })?;
        }
        Ok(sys::connect_in_background(socket.into(), addr)?)
    }
}
