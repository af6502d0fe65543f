//! Facts about a TCP connection that the kernel knows, and for which std has no stable call.

use gmp::net::TcpStream;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::AsRawFd;

/// The state in which a connection is over for the kernel: a reset has come, or nothing for too long.
const CLOSED: u8 = 7;

fn info(stream: &TcpStream) -> io::Result<libc::tcp_info> {
    let mut info = MaybeUninit::<libc::tcp_info>::zeroed();
    let mut length = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes of `info`.
    let asked = unsafe {
        let info = info.as_mut_ptr().cast();
        libc::getsockopt(stream.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, info, &raw mut length)
    };
    if asked != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: a struct of numbers, which are zero where the kernel has not written.
    Ok(unsafe { info.assume_init() })
}

/// Returns how many bytes the peer has sent, plus how many of ours it has taken. Only the kernel counts a copy that the kernel
/// makes.
pub fn progress(stream: &TcpStream) -> u64 {
    info(stream).map_or(0, |info| info.tcpi_bytes_received.wrapping_add(info.tcpi_bytes_acked))
}

/// Returns `true` if no more will come from the peer than the kernel has received already.
pub fn is_broken(stream: &TcpStream) -> bool {
    info(stream).is_ok_and(|info| info.tcpi_state == CLOSED)
}

/// Returns `true` if bytes of ours are on their way to the peer, and may still arrive.
pub fn is_under_way(stream: &TcpStream) -> bool {
    info(stream)
        .is_ok_and(|info| info.tcpi_state != CLOSED && (info.tcpi_unacked > 0 || info.tcpi_notsent_bytes > 0))
}

/// Makes the close of `stream` tell its peer by a reset that this is no proper end; bytes that are not sent yet are dropped.
pub fn reset_on_close(stream: &TcpStream) {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    // SAFETY: the kernel reads a whole `linger`.
    let _closed_by_its_peer_already = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
}
