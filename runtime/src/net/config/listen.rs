//! [`ListenConfig`].

use super::{Options, bind, options, told};
use crate::net::lookup::first_of;
use crate::net::methods::with_a_frame;
use crate::net::{TcpListener, UdpSocket};
use socket2::Type;
use std::io;
use std::net::ToSocketAddrs;

/// How a socket listens: options that are set before the socket is bound. With the feature `net-config`.
///
/// Without options it binds as [`TcpListener::bind`] and [`UdpSocket::bind`] do. An accepted connection has the listener's
/// `nodelay` and `keepalive`: Linux hands them on.
///
/// ```
/// use gmp::net::{ListenConfig, TcpStream};
/// use std::time::Duration;
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// unsafe {
///     gmp::run(|| -> std::io::Result<()> {
///         let config = ListenConfig::new()
///             .reuse_port(true)
///             .nodelay(true)
///             .keepalive(Duration::from_secs(60), Duration::from_secs(10), 3);
///         let one = config.listen("127.0.0.1:0")?;
///         // The kernel deals the connections out among both.
///         let two = config.listen(one.local_addr()?)?;
///         assert_eq!(one.local_addr()?, two.local_addr()?);
///         drop(one);
///
///         let _client = TcpStream::connect(two.local_addr()?)?;
///         assert!(two.accept()?.0.nodelay()?);
///         Ok(())
///     })
/// }
/// # .unwrap();
/// ```
#[must_use = "nothing listens before `listen`"]
#[derive(Clone, Debug, Default)]
pub struct ListenConfig {
    options: Options,
    backlog: Option<u32>,
}

options!(
    ListenConfig,
    r#"use gmp::net::ListenConfig;
use socket2::SockRef;

let config = ListenConfig::new().control(|socket, _addr| {
    let socket = SockRef::from(&socket);
    // A connection inherits this from its listener, so it is set before the listener listens.
    socket.set_recv_buffer_size(1 << 16)
});
let listener = config.listen("127.0.0.1:0")?;
assert!(SockRef::from(&listener).recv_buffer_size()? >= 1 << 16);
# Ok::<(), std::io::Error>(())"#
);

impl ListenConfig {
    /// Makes a configuration without options.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets whether the address may be bound while the kernel still keeps closed connections of an earlier listener
    /// (`SO_REUSEADDR`); several UDP sockets that set this may have one address. Default: as with std, `true` for TCP,
    /// `false` for UDP.
    pub fn reuse_addr(mut self, reuse: bool) -> Self {
        self.options.reuse_addr = Some(reuse);
        self
    }

    /// Sets how many connections the kernel keeps for [`accept`](TcpListener::accept); more are made to wait. Default: as
    /// many as the system allows (`net.core.somaxconn`), which bounds every number.
    pub fn backlog(mut self, connections: u32) -> Self {
        self.backlog = Some(connections);
        self
    }

    /// Sets whether a socket on an IPv6 address takes IPv6 alone (`IPV6_V6ONLY`). With `false` a socket on `[::]` takes IPv4
    /// as well: the *dual stack*. Has no meaning for an IPv4 address. Default: the system's (`net.ipv6.bindv6only`), which
    /// mostly is both.
    pub fn only_v6(mut self, only: bool) -> Self {
        self.options.only_v6 = Some(only);
        self
    }

    /// Listens on the first of `addr`'s addresses that can be bound. Looking a name up blocks the goroutine, or the plain
    /// thread.
    ///
    /// ```
    /// use gmp::net::ListenConfig;
    ///
    /// let listener = ListenConfig::new().backlog(16).listen("127.0.0.1:0")?;
    /// let address = listener.local_addr()?;
    /// let refused = ListenConfig::new().listen(address).unwrap_err();
    /// assert_eq!(refused.to_string(), format!("binding to {address}: Address already in use (os error 98)"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// If no address can be bound: the error of the last one, which says which option or step was refused. Its source is the
    /// error of the kernel, or of [`control`](Self::control), whose kind it has. `InvalidInput` if `addr` has no address.
    pub fn listen<A: ToSocketAddrs>(&self, addr: A) -> io::Result<TcpListener> {
        let mut options = self.options.clone();
        options.reuse_addr.get_or_insert(true);
        let backlog =
            self.backlog.map_or(libc::c_int::MAX, |most| most.try_into().unwrap_or(libc::c_int::MAX));
        with_a_frame(first_of(addr, |addr| {
            let socket = options.socket(addr, Type::STREAM)?;
            bind(&socket, addr)?;
            told(socket.listen(backlog), || format!("listening on {addr}"))?;
            Ok(TcpListener::of_new(socket.into()))
        }))
    }

    /// Makes a UDP socket with the first of `addr`'s addresses that can be bound. Looking a name up blocks the goroutine, or
    /// the plain thread.
    ///
    /// ```
    /// use gmp::net::ListenConfig;
    ///
    /// let config = ListenConfig::new().reuse_port(true);
    /// let one = config.bind_udp("127.0.0.1:0")?;
    /// let two = config.bind_udp(one.local_addr()?)?;
    /// assert_eq!(one.local_addr()?, two.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Unwinds
    /// When the wait is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    ///
    /// # Errors
    /// As [`listen`](Self::listen); `InvalidInput` if an option of TCP alone is set: `backlog`, `keepalive`, `nodelay`.
    #[doc(alias = "ListenPacket")]
    pub fn bind_udp<A: ToSocketAddrs>(&self, addr: A) -> io::Result<UdpSocket> {
        let of_tcp = [
            ("backlog", self.backlog.is_some()),
            ("keepalive", self.options.keepalive.is_some()),
            ("nodelay", self.options.nodelay),
        ];
        if let Some((name, _)) = of_tcp.iter().find(|option| option.1) {
            let refused = format!("bind_udp: the option {name} is for TCP only");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
        }
        with_a_frame(first_of(addr, |addr| {
            let socket = self.options.socket(addr, Type::DGRAM)?;
            bind(&socket, addr)?;
            Ok(UdpSocket::of_new(socket.into()))
        }))
    }
}
