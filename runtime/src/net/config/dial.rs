//! [`DialConfig`].

use super::{Options, options};
use crate::context::Context;
use crate::host::{Active, Clock};
use crate::net::methods::with_a_frame;
use crate::net::tcp::race::{self, Pace, STAGGER};
use crate::net::{TcpStream, limit, lookup, sys};
use socket2::Type;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// How a connection is made: options that are set before the first packet is sent, and how long the call waits. With the
/// feature `net-config`.
///
/// Without options it does as [`TcpStream::connect`], by Happy Eyeballs (RFC 8305), which the options hold for, too.
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

options!(DialConfig);

impl DialConfig {
    /// Makes a configuration without options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the [local address](Self::local_addr) may be bound while the kernel still keeps an earlier connection of
    /// that address, which was closed (`SO_REUSEADDR`). Default: `false`.
    pub fn reuse_addr(mut self, reuse: bool) -> Self {
        self.options.reuse_addr = Some(reuse);
        self
    }

    /// Sets the address from which to connect; port 0: the system chooses one. An address of the peer that is of the other
    /// family fails, and of several the next one is tried. Default: the system chooses.
    pub fn local_addr(mut self, addr: SocketAddr) -> Self {
        self.local = Some(addr);
        self
    }

    /// Sets how long each [`connect`](Self::connect) waits, for all addresses together; with a
    /// [deadline](Self::deadline) as well, the earlier end counts. The time that a name's resolution takes counts, but a
    /// resolution that is under way is not ended; the wait for a turn to resolve the name is
    /// ([`max_lookups`](crate::RuntimeBuilder::max_lookups)). Default: for ever.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets until when [`connect`](Self::connect) waits; see [`timeout`](Self::timeout).
    pub fn deadline(mut self, at: Instant) -> Self {
        self.deadline = Some(at);
        self
    }

    /// Sets how long an attempt is waited for before the one at the next address begins; zero: at once. Default: 250 ms.
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

    /// Connects to `addr`, and of several addresses to the first that answers, as [`TcpStream::connect`]. Blocks the goroutine,
    /// or the plain thread, and looking a name up does as well.
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
    /// As [`TcpStream::connect`]; an option or a step that was refused is named, with the kernel's error as source. `TimedOut`
    /// after the timeout or the deadline, with every descriptor closed. [`ContextError`](crate::context::ContextError), inside,
    /// if the context is done. `InvalidInput` for a timeout of zero.
    pub fn connect<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpStream> {
        let Some(context) = &self.context else {
            return with_a_frame(self.race(addr));
        };
        // Without a wait no caller would ask.
        if let Some(done) = context.err() {
            return Err(done.into());
        }
        with_a_frame(context.run(|| self.race(addr)).unwrap_or_else(|done| Err(done.into())))
    }

    fn race<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpStream> {
        if self.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(limit::no_zero());
        }
        let timeout = self.timeout.map(|timeout| Active::now().saturating_add(timeout));
        let until = timeout.into_iter().chain(self.deadline.map(Active::nanos)).min();
        let mut addrs = lookup::resolve_until(&addr, until)?;
        let pace = Pace { stagger: self.stagger.unwrap_or(STAGGER), until };
        race::connect(&mut addrs, pace, &mut |addr| self.begin(addr))
    }

    /// Makes a socket and begins to connect.
    fn begin(&self, addr: &SocketAddr) -> io::Result<OwnedFd> {
        if let Some(local) = self.local.filter(|local| local.is_ipv4() != addr.is_ipv4()) {
            let refused = format!("the local address {local} and the peer's {addr} are of two families");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
        }
        let socket = self.options.socket(addr, Type::STREAM, self.local.as_ref())?;
        sys::connect_in_background(socket.into(), addr)
    }
}
