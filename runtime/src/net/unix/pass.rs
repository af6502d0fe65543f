//! Messages with descriptors (`SCM_RIGHTS`).

use crate::net::socket::Rest;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// As many descriptors as the kernel takes in one message (`SCM_MAX_FD`).
const MOST: usize = 253;

/// Room for the control message of `MOST` descriptors, aligned as its header.
#[repr(C)]
struct Control {
    _align: [libc::cmsghdr; 0],
    bytes: [MaybeUninit<u8>; ROOM],
}

// SAFETY: arithmetic on its argument only.
const ROOM: usize = unsafe { libc::CMSG_SPACE((MOST * size_of::<RawFd>()) as u32) } as usize;

impl Control {
    fn new() -> Self {
        Control { _align: [], bytes: [MaybeUninit::zeroed(); ROOM] }
    }
}

/// What a message with descriptors brought; made by [`UnixStream::recv_with_fds`](super::UnixStream::recv_with_fds) and
/// [`UnixDatagram::recv_with_fds`](super::UnixDatagram::recv_with_fds), where the example is.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub struct Passed {
    len: usize,
    is_cut: bool,
    lost_fds: bool,
}

#[expect(clippy::len_without_is_empty, reason = "an empty datagram is a datagram")]
impl Passed {
    /// Returns how many bytes were read.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the datagram was longer than the buffers, so that its end is lost.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns `true` if the kernel closed descriptors of the message, having no room for them in the process's table.
    pub fn lost_fds(&self) -> bool {
        self.lost_fds
    }
}

/// Returns a message of `bufs`, without a name and without control messages.
fn message(bufs: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all zeros is a valid message, of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = bufs;
    // More than the kernel takes at once is left for the next call, as with std.
    message.msg_iovlen = count.min(libc::UIO_MAXIOV as usize) as _;
    message
}

/// Reads into `bufs`, and drops the descriptors that come with the bytes.
///
/// The kernel ends a read short, with more behind, at a message with descriptors, and, on a socket that asks for the
/// senders' names (`SO_PASSCRED`), where the sender changes. A call without room for control messages is told of both by
/// `MSG_CTRUNC`, which `read(2)` does not report.
pub(super) fn read_vectored(
    socket: BorrowedFd<'_>,
    bufs: &mut [IoSliceMut<'_>],
) -> io::Result<(usize, Rest)> {
    // An IoSliceMut has the layout of an iovec.
    let mut message = message(bufs.as_mut_ptr().cast(), bufs.len());
    // SAFETY: the buffers of the message live through the call.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, 0) };
    let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    let rest = if message.msg_flags & libc::MSG_CTRUNC == 0 { Rest::AsTold } else { Rest::Unknown };
    Ok((got, rest))
}

/// Writes `buf`. A peer that has gone is an error, without a signal; here and below.
pub(super) fn send(socket: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer lives through the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), buf.as_ptr().cast(), buf.len(), libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Writes `bufs`.
pub(super) fn send_vectored(socket: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    // An IoSlice has the layout of an iovec; the kernel only reads.
    send_message(socket, &message(bufs.as_ptr().cast_mut().cast(), bufs.len()))
}

/// Sends `bufs` with duplicates of `fds`.
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
    // SAFETY: arithmetic only; and there is room for the most descriptors, so the first header lies within it.
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
    send_message(socket, &message)
}

/// Sends `message`. The caller keeps the buffers and the control messages alive through the call.
fn send_message(socket: BorrowedFd<'_>, message: &libc::msghdr) -> io::Result<usize> {
    // SAFETY: both callers have the buffers and the control messages until this returns.
    let sent = unsafe { libc::sendmsg(socket.as_raw_fd(), message, libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Receives into `bufs`; appends what descriptors there are to `fds`.
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
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    let len = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
    // SAFETY: the kernel has written whole control messages, and how long they are.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
    while !header.is_null() {
        // SAFETY: the header is one of those that the kernel has written, and the data are as long as the header says.
        unsafe {
            if ((*header).cmsg_level, (*header).cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                let count = ((*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize) / size_of::<RawFd>();
                let first = libc::CMSG_DATA(header).cast::<RawFd>();
                // The descriptors are new, and only this function knows them.
                fds.extend((0..count).map(|at| OwnedFd::from_raw_fd(first.add(at).read_unaligned())));
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
