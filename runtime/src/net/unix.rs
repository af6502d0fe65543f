//! Unix sockets, as in [`std::os::unix::net`]: [`UnixStream`], [`UnixListener`], [`UnixDatagram`].
//!
//! An address is a path, or a name that is in no file system (std's `SocketAddrExt::from_abstract_name`). A goroutine that
//! waits parks; a plain thread blocks.
//!
//! *Descriptors* can be sent beside the bytes: [`UnixStream::send_with_fds`] and [`UnixStream::recv_with_fds`].

mod cred;
mod datagram;
mod listener;
mod pass;
mod stream;

pub use cred::UCred;
pub use datagram::UnixDatagram;
pub use listener::{Incoming, UnixListener};
pub use pass::Passed;
pub use std::os::unix::net::SocketAddr;
pub use stream::UnixStream;

use crate::net::sys::new_fd;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;
use std::path::Path;

/// Accepts a connection as a descriptor that is non-blocking and closed on exec, in one system call.
fn accept(listener: BorrowedFd<'_>) -> io::Result<(net::UnixStream, SocketAddr)> {
    // SAFETY: all zeros is a valid address, of no family.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&addr) as libc::socklen_t;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let at = (&raw mut addr).cast();
    // SAFETY: the address is as long as `len` says, and both live through the call, which makes a descriptor.
    let fd = unsafe { new_fd(libc::accept4(listener.as_raw_fd(), at, &raw mut len, flags)) }?;
    let stream = net::UnixStream::from(fd);
    // std does not make an address of the longest path, but returns such an address when it gets it from the kernel.
    let addr = to_addr(&addr, len as usize).or_else(|_| stream.peer_addr())?;
    Ok((stream, addr))
}

/// Returns the kernel's address, of which `len` bytes count, as std's type.
///
/// # Errors
/// For the longest path.
fn to_addr(addr: &libc::sockaddr_un, len: usize) -> io::Result<SocketAddr> {
    let path = addr.sun_path.map(|byte| byte as u8);
    let path = &path[..len.saturating_sub(std::mem::offset_of!(libc::sockaddr_un, sun_path)).min(path.len())];
    match path {
        // The socket was not bound. std takes an empty path for the unnamed address.
        [] => SocketAddr::from_pathname(Path::new("")),
        [0, name @ ..] => SocketAddr::from_abstract_name(name),
        path => {
            // The kernel counts the zero at the end. A path that fills the field has none, and is refused here.
            let end = path.iter().position(|&byte| byte == 0).unwrap_or(path.len());
            SocketAddr::from_pathname(<std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(
                &path[..end],
            ))
        }
    }
}
