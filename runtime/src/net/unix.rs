//! Unix sockets, as in [`std::os::unix::net`]: [`UnixStream`], [`UnixListener`], [`UnixDatagram`].
//!
//! An address is a path, or a name that stands in no file system (`SocketAddrExt::from_abstract_name` of std). A goroutine that
//! waits parks; a plain thread blocks.
//!
//! *Descriptors* can be sent beside the bytes: [`UnixStream::send_with_fds`] and [`UnixStream::recv_with_fds`].

mod datagram;
mod listener;
mod pass;
mod stream;

pub use datagram::UnixDatagram;
pub use listener::{Incoming, UnixListener};
pub use pass::Passed;
pub use std::os::unix::net::SocketAddr;
pub use stream::UnixStream;

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net;
use std::path::Path;

/// Makes a socket that is non-blocking and closed on exec.
fn new_socket(kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and only this function knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Accepts a connection as a descriptor that is non-blocking and closed on exec, in one system call.
fn accept(listener: BorrowedFd<'_>) -> io::Result<(net::UnixStream, SocketAddr)> {
    // SAFETY: all zeros is a valid address, of no family.
    let mut addr: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let mut len = size_of_val(&addr) as libc::socklen_t;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the address is as long as `len` says, and both live through the call.
    let fd = unsafe { libc::accept4(listener.as_raw_fd(), (&raw mut addr).cast(), &raw mut len, flags) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made the descriptor, and only this function knows it.
    let stream = net::UnixStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    // std makes no address of the longest path, but returns one that the kernel has.
    let addr = to_addr(&addr, len as usize).or_else(|_| stream.peer_addr())?;
    Ok((stream, addr))
}

/// Returns an address of the kernel's, of which `len` bytes count, as std's type.
///
/// # Errors
/// For the longest path.
fn to_addr(addr: &libc::sockaddr_un, len: usize) -> io::Result<SocketAddr> {
    let path = addr.sun_path.map(|byte| byte as u8);
    let path = &path[..len.saturating_sub(std::mem::offset_of!(libc::sockaddr_un, sun_path)).min(path.len())];
    match path {
        // The socket was not bound. To std an empty path is the address without a name.
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
