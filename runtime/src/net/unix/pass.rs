//! Messages with descriptors (`SCM_RIGHTS`).

use crate::net::socket::Rest;
use crate::net::sys::{message, recv_message, send_message, send_vectored};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// As many descriptors as the kernel takes in one message (`SCM_MAX_FD`).
const MOST: usize = 253;

/// A control message with a descriptor of the sender's process (`SO_PASSPIDFD`); not among the constants of `libc`.
const SCM_PIDFD: libc::c_int = 4;

/// Room for the control message of `MOST` descriptors, aligned as its header, and for the control messages that a socket made
/// outside may ask for: the sender, and the time.
#[repr(C)]
struct Control {
    _align: [libc::cmsghdr; 0],
    bytes: [MaybeUninit<u8>; ROOM],
}

// SAFETY: arithmetic on its argument only.
const ROOM: usize = unsafe { libc::CMSG_SPACE((MOST * size_of::<RawFd>()) as u32) } as usize + OTHERS;
const OTHERS: usize = 512;

impl Control {
    fn new() -> Self {
        Control { _align: [], bytes: [MaybeUninit::zeroed(); ROOM] }
    }
}

/// What came with a message that can carry descriptors; made by [`UnixStream::recv_with_fds`](super::UnixStream::recv_with_fds)
/// and [`UnixDatagram::recv_with_fds`](super::UnixDatagram::recv_with_fds), where the example is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Passed {
    len: usize,
    is_cut: bool,
    lost_fds: bool,
}

#[expect(clippy::len_without_is_empty, reason = "an empty datagram is a datagram")]
impl Passed {
    /// The result at the end.
    pub(super) const NOTHING: Passed = Passed { len: 0, is_cut: false, lost_fds: false };

    /// Returns how many bytes were read.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the datagram was longer than the buffers: its end is lost.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns `true` if the kernel closed descriptors of the message because the process's table had no room for them.
    pub fn lost_fds(&self) -> bool {
        self.lost_fds
    }
}

/// Reads into `bufs`, and drops the descriptors that come with the bytes.
///
/// The kernel ends a read short although more is there at a message with descriptors, and, on a socket that asks for the
/// senders' names (`SO_PASSCRED`), where the sender changes. The kernel reports both by `MSG_CTRUNC` to a call without room for
/// control messages; `read(2)` does not return that flag.
pub(super) fn read_vectored(
    socket: BorrowedFd<'_>,
    bufs: &mut [IoSliceMut<'_>],
) -> io::Result<(usize, Rest)> {
    // An IoSliceMut has the layout of an iovec.
    receive_bytes(socket, message(bufs.as_mut_ptr().cast(), bufs.len()))
}

/// Does the same as `read_vectored`, into bytes that may be uninitialised; initialises as many as it returns.
pub(super) fn read(socket: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>]) -> io::Result<(usize, Rest)> {
    let mut all = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
    receive_bytes(socket, message(&raw mut all, 1))
}

/// The buffers of the message are the caller's.
fn receive_bytes(socket: BorrowedFd<'_>, mut message: libc::msghdr) -> io::Result<(usize, Rest)> {
    // SAFETY: the buffers of the message live through the call.
    let got = unsafe { recv_message(socket, &mut message, 0) }?;
    let rest = if message.msg_flags & libc::MSG_CTRUNC == 0 { Rest::AsTold } else { Rest::Unknown };
    Ok((got, rest))
}

/// Refuses more buffers than one call takes: a datagram is sent as a whole.
pub(super) fn check_count(call: &str, bufs: usize) -> io::Result<()> {
    let most = libc::UIO_MAXIOV as usize;
    if bufs <= most {
        return Ok(());
    }
    let refused = format!("{call}: {bufs} buffers, a datagram has room for {most}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, refused))
}

/// Sends `bufs` with duplicates of `fds`. If the peer has gone, returns an error, without a signal.
pub(super) fn send_with_fds(
    socket: BorrowedFd<'_>,
    bufs: &[IoSlice<'_>],
    fds: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    if fds.is_empty() {
        return send_vectored(socket, bufs);
    }
    if fds.len() > MOST {
        let refused = format!("send_with_fds: {} descriptors, a message has room for {MOST}", fds.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, refused));
    }
    let len = size_of_val(fds) as u32;
    let mut control = Control::new();
    let mut message = message(bufs.as_ptr().cast_mut().cast(), bufs.len());
    message.msg_control = (&raw mut control).cast();
    // SAFETY: arithmetic only; and the room is enough for `MOST` descriptors, so the first header lies within it.
    unsafe {
        message.msg_controllen = libc::CMSG_SPACE(len) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(len) as _;
        // A BorrowedFd has the layout of its number.
        let numbers = fds.as_ptr().cast::<u8>();
        numbers.copy_to_nonoverlapping(libc::CMSG_DATA(header), size_of_val(fds));
    }
    // SAFETY: the buffers and the control message live through the call.
    unsafe { send_message(socket, &message) }
}

/// Receives into `bufs`; appends the descriptors that were sent to `fds`.
pub(super) fn receive(
    socket: BorrowedFd<'_>,
    bufs: &mut [IoSliceMut<'_>],
    fds: &mut Vec<OwnedFd>,
) -> io::Result<Passed> {
    // An IoSliceMut has the layout of an iovec.
    let mut message = message(bufs.as_mut_ptr().cast(), bufs.len());
    let mut control = Control::new();
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = ROOM as _;
    // SAFETY: the buffers of the message and the room for control messages live through the call.
    let len = unsafe { recv_message(socket, &mut message, libc::MSG_CMSG_CLOEXEC) }?;
    // SAFETY: the kernel has written whole control messages, and how long they are.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: the header is one of those that the kernel has written, and the data are as long as the header says.
        unsafe {
            let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
            let first = libc::CMSG_DATA(header).cast::<RawFd>();
            // The descriptors are new, and only this function knows them. A negative number is the error for a process's
            // descriptor.
            let new = (0..count).map(|at| first.add(at).read_unaligned()).filter(|&fd| fd >= 0);
            let new = new.map(|fd| OwnedFd::from_raw_fd(fd));
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => fds.extend(new),
                // No code here has asked for it.
                (libc::SOL_SOCKET, SCM_PIDFD) => new.for_each(drop),
                _ => {}
            }
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
    }
    Ok(Passed {
        len,
        is_cut: message.msg_flags & libc::MSG_TRUNC != 0,
        lost_fds: message.msg_flags & libc::MSG_CTRUNC != 0,
    })
}
