//! The process at the other end (`SO_PEERCRED`).

use crate::net::sys::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The process at the other end of a Unix stream; made by [`UnixStream::peer_cred`](super::UnixStream::peer_cred), where the
/// example is.
#[derive(Copy, Clone, Debug, Eq, Hash, PartialEq)]
pub struct UCred {
    uid: u32,
    gid: u32,
    pid: Option<u32>,
}

impl UCred {
    /// Returns the effective user of the process.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns the effective group of the process.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// Returns the number of the process. The process may have ended, and another one may have its number. `None` if the
    /// process is in a namespace whose numbers are not seen here.
    pub fn pid(&self) -> Option<u32> {
        self.pid
    }
}

/// Returns the credentials of the process that has connected the peer of `socket`.
///
/// # Errors
/// `NotConnected` if there is no peer; those of the kernel.
pub(super) fn of_peer(socket: BorrowedFd<'_>) -> io::Result<UCred> {
    // The kernel's answer for a socket without a peer.
    let mut told = libc::ucred { pid: 0, uid: libc::uid_t::MAX, gid: libc::gid_t::MAX };
    let mut len = size_of_val(&told) as libc::socklen_t;
    let (name, at) = (libc::SO_PEERCRED, (&raw mut told).cast());
    // SAFETY: room for the value, which lives through the call.
    check(unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, at, &raw mut len) })?;
    if told.uid == libc::uid_t::MAX {
        return Err(io::Error::new(io::ErrorKind::NotConnected, "peer_cred: the socket has no peer"));
    }
    let pid = u32::try_from(told.pid).ok().filter(|&pid| pid != 0);
    Ok(UCred { uid: told.uid, gid: told.gid, pid })
}
