//! Sockets with options that have to be set before they listen or connect: [`ListenConfig`] and [`DialConfig`].
//!
//! ```text
//!   a socket ─▶ the options ─▶ the user's control function ─▶ bind ─▶ connect, or listen
//! ```
//! The control function may park: it is called through `dyn`, so not in a frame of the library that parks, and while it runs
//! the call holds no lock of the library and no place in a poller. The socket is a value on the caller's stack, and an
//! unwinding closes it.
//!
//! The system calls are those of the crate `socket2`, none of whose types is in this library's API.

mod dial;
mod listen;

pub use dial::DialConfig;
pub use listen::ListenConfig;

use crate::impls::{opaque, unwind_safe};
use crate::net::check_contexts;
use socket2::{Domain, SockAddr, Socket, TcpKeepalive, Type};
use std::error::Error;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
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
    control: Option<Control>,
}

type ControlFn = dyn Fn(BorrowedFd<'_>, &SocketAddr) -> io::Result<()> + Send + Sync;

/// The user's function that sees each socket before it has an address.
#[derive(Clone)]
struct Control(Arc<ControlFn>);

// Only the function itself sees what it had changed before it panicked.
unwind_safe!(Control);
opaque!(Control);

#[derive(Copy, Clone, Debug)]
struct Keepalive {
    idle: Duration,
    interval: Duration,
    count: u32,
}

/// Implements the setters of the options.
macro_rules! options {
    ($name:ident, $example:literal) => {
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

            /// Has `f` called with each socket that is made, and with the address for which it is made, after the options above
            /// are set, and before the socket is bound or connects: for options that have no method here. An error of `f`, of
            /// whatever kind, refuses that address for good, and the socket is closed; the next address is tried, if there is
            /// one. If a context of the call is done by then, the call ends with the context's error. Go's `Control`. A later
            /// call of `control` replaces `f`. Default: none.
            ///
            /// `f` runs on the calling goroutine, or the plain thread, once for each socket that is made: again for an address
            /// whose bind has to wait for a port of the caller's own. `f` may park. The timeout and the deadline of a dial do
            /// not end a wait in `f`, and the call looks at attempts that are under way meanwhile only when `f` has returned. A
            /// panic of `f`, and an unwinding of a wait in `f`, close the socket and go on.
            ///
            /// The library goes on with the socket. So `f` must not bind it, connect it, listen on it, make it blocking
            /// (`O_NONBLOCK` off), close it, or keep its number: the call would fail, or a wait for the socket would block its
            /// thread.
            ///
            /// ```
            #[doc = $example]
            /// ```
            #[doc(alias = "Control")]
            pub fn control<F>(mut self, f: F) -> Self
            where
                F: Fn(std::os::fd::BorrowedFd<'_>, &std::net::SocketAddr) -> std::io::Result<()>
                    + Send
                    + Sync
                    + 'static,
            {
                self.options.control = Some(super::Control(std::sync::Arc::new(f)));
                self
            }
        }
    };
}
use options;

/// Rounds up to seconds: the kernel counts in whole seconds, and `socket2` rounds down.
fn whole_seconds(time: Duration) -> Duration {
    let more = u64::from(time.subsec_nanos() > 0);
    Duration::from_secs(time.as_secs().saturating_add(more))
}

impl Options {
    /// Makes a socket for `addr`, non-blocking and closed on exec, with the options set.
    ///
    /// # Errors
    /// The kernel's error for the socket itself; that of a context that is done, if the control function refuses; otherwise an
    /// error that says which step was refused.
    fn socket(&self, addr: &SocketAddr, kind: Type) -> io::Result<Socket> {
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
        if let Some(Control(control)) = &self.control
            && let Err(refused) = control(socket.as_fd(), addr)
        {
            // The context may have ended a wait of the function, and ends the call.
            check_contexts()?;
            told(Err(refused), || format!("the control function for {addr}"))?;
        }
        Ok(socket)
    }
}

/// # Errors
/// An error that says what was refused, and has the kernel's kind.
fn bind(socket: &Socket, local: &SocketAddr) -> io::Result<()> {
    told(socket.bind(&SockAddr::from(*local)), || format!("binding to {local}"))
}

/// Returns `result`; its error then says what was refused.
fn told<T>(result: io::Result<T>, what: impl FnOnce() -> String) -> io::Result<T> {
    result.map_err(|source| io::Error::new(source.kind(), Step { what: what(), source }))
}

/// A refused step in the making of a socket.
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
