//! Sockets with options that have to be set before they listen or connect: [`ListenConfig`] and [`DialConfig`].
//!
//! The system calls are those of the crate `socket2`, none of whose types is in this library's API.

mod dial;
mod listen;

pub use dial::DialConfig;
pub use listen::ListenConfig;

use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The options that both kinds of configurations have.
#[derive(Clone, Debug, Default)]
struct Options {
    /// `None`: what std does with such a socket.
    reuse_addr: Option<bool>,
    reuse_port: bool,
    only_v6: Option<bool>,
    device: Option<String>,
    nodelay: bool,
    keepalive: Option<Keepalive>,
}

#[derive(Copy, Clone, Debug)]
struct Keepalive {
    idle: Duration,
    interval: Duration,
    count: u32,
}

/// Implements the setters of the options.
macro_rules! options {
    ($name:ident) => {
        impl $name {
            /// Sets whether several sockets may be bound to the same address if each of them sets this (`SO_REUSEPORT`): the
            /// kernel deals connections and datagrams out among those that listen. The processes must belong to
            /// the same user. Default: `false`.
            pub fn reuse_port(mut self, reuse: bool) -> Self {
                self.options.reuse_port = reuse;
                self
            }

            /// Sets the network interface, such as `"eth0"`, through which alone the socket sends and receives
            /// (`SO_BINDTODEVICE`). Default: any.
            pub fn device(mut self, name: &str) -> Self {
                self.options.device = Some(name.to_owned());
                self
            }

            /// Sets whether small writes are sent at once (`TCP_NODELAY`); see
            /// [`TcpStream::set_nodelay`](crate::net::TcpStream::set_nodelay). Default: `false`.
            pub fn nodelay(mut self, nodelay: bool) -> Self {
                self.options.nodelay = nodelay;
                self
            }

            /// Has the kernel ask whether the peer is still there when a connection has been idle for `idle`, and then
            /// each `interval`; after `count` questions without an answer the connection fails with `TimedOut`
            /// (`SO_KEEPALIVE`). Times are rounded up to seconds. The kernel takes up to 32,767 s and 127 questions.
            /// Default: no questions.
            pub fn keepalive(
                mut self,
                idle: std::time::Duration,
                interval: std::time::Duration,
                count: u32,
            ) -> Self {
                self.options.keepalive = Some(super::Keepalive { idle, interval, count });
                self
            }
        }
    };
}
use options;

/// Rounds up to seconds: the kernel counts no less, and `socket2` rounds down.
fn whole_seconds(time: Duration) -> Duration {
    let more = u64::from(time.subsec_nanos() > 0);
    Duration::from_secs(time.as_secs().saturating_add(more))
}

impl Options {
    /// Makes a socket for `addr`, non-blocking and closed on exec, with the options set, and bound to `local`.
    ///
    /// # Errors
    /// The kernel's for the socket itself; otherwise one that says which step was refused.
    fn socket(&self, addr: &SocketAddr, kind: Type, local: Option<&SocketAddr>) -> io::Result<Socket> {
        let socket = Socket::new_raw(Domain::for_address(*addr), kind.nonblocking().cloexec(), None)?;
        if let Some(reuse) = self.reuse_addr {
            told(socket.set_reuse_address(reuse), || "SO_REUSEADDR".to_owned())?;
        }
        if self.reuse_port {
            told(socket.set_reuse_port(true), || "SO_REUSEPORT".to_owned())?;
        }
        if let (Some(only), SocketAddr::V6(_)) = (self.only_v6, addr) {
            told(socket.set_only_v6(only), || "IPV6_V6ONLY".to_owned())?;
        }
        if let Some(device) = &self.device {
            told(socket.bind_device(Some(device.as_bytes())), || format!("the device {device:?}"))?;
        }
        if self.nodelay {
            told(socket.set_tcp_nodelay(true), || "TCP_NODELAY".to_owned())?;
        }
        if let Some(keepalive @ Keepalive { idle, interval, count }) = self.keepalive {
            let values = TcpKeepalive::new()
                .with_time(whole_seconds(idle))
                .with_interval(whole_seconds(interval))
                .with_retries(count);
            told(socket.set_tcp_keepalive(&values), || format!("{keepalive:?}"))?;
        }
        if let Some(local) = local {
            told(socket.bind(&SockAddr::from(*local)), || format!("binding to {local}"))?;
        }
        Ok(socket)
    }
}

/// Returns `result`; an error says what was refused.
fn told<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> io::Result<T> {
    result.map_err(|source| io::Error::new(source.kind(), Step { what: what(), source }))
}

/// A step in the making of a socket that was refused.
#[derive(Debug)]
struct Step {
    what: String,
    source: io::Error,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.source)
    }
}

impl Error for Step {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}
