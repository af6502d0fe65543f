//! The system calls on sockets and other descriptors that std does not make, or not in the form that a non-blocking descriptor
//! needs.

use crate::net::desc::Direction;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::time::Duration;

/// Makes a system call that moves bytes by its number. The wrapper of the C library is a point of cancellation
/// (`pthread_cancel(3)`): with several threads glibc's makes two atomic exchanges for each call. No thread is cancelled in this
/// library's calls. The sanitizers learn by the wrappers what the kernel writes.
///
/// An argument after a semicolon is an int of the wrapper's and a word of the kernel's.
macro_rules! by_number {
    ($wrapper:ident, $number:ident: $($argument:expr),* $(; $count:expr)?) => {
        if cfg!(any(gmp_asan, gmp_tsan)) {
            libc::$wrapper($($argument),* $(, $count as libc::c_int)?)
        } else {
            libc::syscall(libc::$number, $($argument),* $(, $count)?) as libc::ssize_t
        }
    };
}

/// Turns a result of -1 into the error in `errno`; here and below.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn check_len(result: libc::ssize_t) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// Takes over the descriptor that a call has made.
///
/// # Safety
/// `result` comes from a call that makes a descriptor, or returns -1, and no other code knows it.
pub(crate) unsafe fn new_fd(result: libc::c_int) -> io::Result<OwnedFd> {
    let fd = check(result)?;
    // SAFETY: by this function's contract.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a socket that is non-blocking and closed on exec.
pub(super) fn socket(family: libc::c_int, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the call makes a descriptor.
    unsafe { new_fd(libc::socket(family, kind | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0)) }
}

/// Accepts a connection as a descriptor that is non-blocking and closed on exec, in one system call.
pub(super) fn accept(listener: BorrowedFd<'_>) -> io::Result<(OwnedFd, SocketAddr)> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    let addr = storage.as_mut_ptr().cast();
    // SAFETY: the storage is as long as `len` says, and both live through the call, which makes a descriptor.
    let fd = unsafe { new_fd(libc::accept4(listener.as_raw_fd(), addr, &raw mut len, flags)) }?;
    // SAFETY: zeroed and then filled by the kernel; all bit patterns are valid.
    Ok((fd, to_addr(unsafe { storage.assume_init_ref() })?))
}

/// Listens with the longest queue that the kernel allows (`net.core.somaxconn`), as Go does. A burst overflows std's
/// queue of 128 connections, and a client that is dropped there tries again only after a second.
pub(crate) fn lengthen_queue(listener: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no pointers.
    check(unsafe { libc::listen(listener.as_raw_fd(), libc::c_int::MAX) }).map(drop)
}

/// Begins to connect. The outcome comes as writability.
pub(super) fn begin_connect(addr: &SocketAddr) -> io::Result<OwnedFd> {
    let family = match addr {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    };
    connect_in_background(socket(family, libc::SOCK_STREAM)?, addr)
}

/// Begins to connect `fd`, which is non-blocking; as `begin_connect`.
pub(super) fn connect_in_background(fd: OwnedFd, addr: &SocketAddr) -> io::Result<OwnedFd> {
    match connect(fd.as_raw_fd(), addr) {
        Ok(()) => Ok(fd),
        // After EINTR the connect goes on in the background as well.
        Err(begun) if matches!(begun.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => Ok(fd),
        Err(refused) => Err(refused),
    }
}

fn connect(fd: RawFd, addr: &SocketAddr) -> io::Result<()> {
    with_raw(addr, |raw, len| {
        // SAFETY: the address has the length that is given, and lives through the call.
        check(unsafe { libc::connect(fd, raw, len) }).map(drop)
    })
}

/// Calls `f` with the address as the kernel takes it, and its length.
fn with_raw<R>(addr: &SocketAddr, f: impl FnOnce(*const libc::sockaddr, libc::socklen_t) -> R) -> R {
    match addr {
        SocketAddr::V4(v4) => {
            let raw = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            f((&raw const raw).cast(), size_of_val(&raw) as libc::socklen_t)
        }
        SocketAddr::V6(v6) => {
            let raw = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            f((&raw const raw).cast(), size_of_val(&raw) as libc::socklen_t)
        }
    }
}

/// Receives from a stream into bytes that may be uninitialised, and initialises as many as it returns.
pub(super) fn recv(socket: BorrowedFd<'_>, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
    // SAFETY: the buffer lives through the call.
    unsafe { recv_raw(socket, buf.as_mut_ptr().cast(), buf.len()) }
}

/// Receives from a stream, or a datagram without its sender.
pub(super) fn recv_bytes(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer lives through the call.
    unsafe { recv_raw(socket, buf.as_mut_ptr().cast(), buf.len()) }
}

/// # Safety
/// `len` bytes at `at` may be written during the call.
unsafe fn recv_raw(socket: BorrowedFd<'_>, at: *mut libc::c_void, len: usize) -> io::Result<usize> {
    let (no_sender, no_len) = (ptr::null_mut::<libc::sockaddr>(), ptr::null_mut::<libc::socklen_t>());
    // SAFETY: by this function's contract; the kernel writes no sender to null.
    check_len(unsafe {
        by_number!(recvfrom, SYS_recvfrom: socket.as_raw_fd(), at, len, 0, no_sender, no_len)
    })
}

/// Receives a datagram, and returns its length and its sender.
pub(super) fn recv_from(socket: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
    let mut storage = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut len = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    let (at, sender) =
        (buf.as_mut_ptr().cast::<libc::c_void>(), storage.as_mut_ptr().cast::<libc::sockaddr>());
    // SAFETY: the buffer and the storage are as long as told, and live through the call.
    let got = check_len(unsafe {
        by_number!(recvfrom, SYS_recvfrom: socket.as_raw_fd(), at, buf.len(), 0, sender, &raw mut len)
    })?;
    // SAFETY: zeroed and then filled by the kernel; all bit patterns are valid.
    Ok((got, to_addr(unsafe { storage.assume_init_ref() })?))
}

/// Sends a datagram to `addr`.
pub(super) fn send_to(socket: BorrowedFd<'_>, buf: &[u8], addr: &SocketAddr) -> io::Result<usize> {
    let (at, flags) = (buf.as_ptr().cast::<libc::c_void>(), libc::MSG_NOSIGNAL);
    with_raw(addr, |to, to_len| {
        // SAFETY: the buffer and the address are as long as told, and live through the call.
        check_len(unsafe {
            by_number!(sendto, SYS_sendto: socket.as_raw_fd(), at, buf.len(), flags, to, to_len)
        })
    })
}

/// Receives a message into the buffers that `message` names.
///
/// # Safety
/// The buffers may be written during the call.
pub(super) unsafe fn recv_message(
    socket: BorrowedFd<'_>,
    message: &mut libc::msghdr,
    flags: libc::c_int,
) -> io::Result<usize> {
    // SAFETY: by this function's contract.
    check_len(unsafe { by_number!(recvmsg, SYS_recvmsg: socket.as_raw_fd(), ptr::from_mut(message), flags) })
}

/// Sends the message, without a signal if the peer has gone.
///
/// # Safety
/// The buffers that `message` names may be read during the call.
pub(super) unsafe fn send_message(socket: BorrowedFd<'_>, message: &libc::msghdr) -> io::Result<usize> {
    let (message, flags) = (ptr::from_ref(message), libc::MSG_NOSIGNAL);
    // SAFETY: by this function's contract.
    check_len(unsafe { by_number!(sendmsg, SYS_sendmsg: socket.as_raw_fd(), message, flags) })
}

/// Returns how many bytes one call reads into `bufs` at most: the kernel takes no more than `UIO_MAXIOV` of them.
pub(crate) fn len_of_call(bufs: &[IoSliceMut<'_>]) -> usize {
    bufs.iter().take(libc::UIO_MAXIOV as usize).map(|buf| buf.len()).sum()
}

/// Reads from any descriptor; here and below.
pub(crate) fn read(fd: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as told, and lives through the call.
    check_len(unsafe {
        by_number!(read, SYS_read: fd.as_raw_fd(), buf.as_mut_ptr().cast::<libc::c_void>(), buf.len())
    })
}

pub(crate) fn read_vectored(fd: BorrowedFd<'_>, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let count = bufs.len().min(libc::UIO_MAXIOV as usize);
    // SAFETY: an IoSliceMut has the layout of an iovec, and the buffers live through the call.
    check_len(unsafe {
        by_number!(readv, SYS_readv: fd.as_raw_fd(), bufs.as_mut_ptr().cast::<libc::iovec>(); count)
    })
}

/// Writes to any descriptor; here and below.
pub(crate) fn write(fd: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    // SAFETY: the buffer is as long as told, and lives through the call.
    check_len(unsafe {
        by_number!(write, SYS_write: fd.as_raw_fd(), buf.as_ptr().cast::<libc::c_void>(), buf.len())
    })
}

pub(crate) fn write_vectored(fd: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    let count = bufs.len().min(libc::UIO_MAXIOV as usize);
    // SAFETY: an IoSlice has the layout of an iovec, and the buffers live through the call.
    check_len(unsafe {
        by_number!(writev, SYS_writev: fd.as_raw_fd(), bufs.as_ptr().cast::<libc::iovec>(); count)
    })
}

/// Returns a message of `bufs`, without a name and without control messages.
pub(super) fn message(bufs: *mut libc::iovec, count: usize) -> libc::msghdr {
    // SAFETY: all zeros is a valid message, of nothing.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = bufs;
    // More than the kernel takes at once is left for the next call, as with std.
    message.msg_iovlen = count.min(libc::UIO_MAXIOV as usize) as _;
    message
}

/// Writes `buf` to a socket. If the peer has gone, returns an error, without a signal; here and below.
pub(crate) fn send(socket: BorrowedFd<'_>, buf: &[u8]) -> io::Result<usize> {
    let (at, flags) = (buf.as_ptr().cast::<libc::c_void>(), libc::MSG_NOSIGNAL);
    let (to_the_peer, no_len) = (ptr::null::<libc::sockaddr>(), 0 as libc::socklen_t);
    // SAFETY: the buffer is as long as told, and lives through the call.
    check_len(unsafe {
        by_number!(sendto, SYS_sendto: socket.as_raw_fd(), at, buf.len(), flags, to_the_peer, no_len)
    })
}

/// Writes `bufs` to a stream.
pub(super) fn send_vectored(socket: BorrowedFd<'_>, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
    // An IoSlice has the layout of an iovec; the kernel only reads.
    let message = message(bufs.as_ptr().cast_mut().cast(), bufs.len());
    // SAFETY: the buffers live through the call.
    unsafe { send_message(socket, &message) }
}

/// Makes a set of descriptors, which is readable when one of them has an event: an epoll descriptor.
pub(crate) fn new_set() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the call makes a descriptor.
    unsafe { new_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) }
}

/// Has `set` report `key` once each time that `fd` becomes ready in this direction: for writing, also when its connect has
/// ended. Closing the descriptor takes it out of the set.
pub(crate) fn add_to_set(
    set: BorrowedFd<'_>,
    fd: BorrowedFd<'_>,
    direction: Direction,
    key: u64,
) -> io::Result<()> {
    let ready = match direction {
        Direction::Read => libc::EPOLLIN,
        Direction::Write => libc::EPOLLOUT,
    };
    let mut event = libc::epoll_event { events: (ready | libc::EPOLLET) as u32, u64: key };
    // SAFETY: the event lives through the call.
    let added =
        unsafe { libc::epoll_ctl(set.as_raw_fd(), libc::EPOLL_CTL_ADD, fd.as_raw_fd(), &raw mut event) };
    check(added).map(drop)
}

/// Takes an event out of `set`, and returns its key; `WouldBlock` if there is none.
pub(crate) fn take_from_set(set: BorrowedFd<'_>) -> io::Result<u64> {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event, which lives through the call.
    match check(unsafe { libc::epoll_wait(set.as_raw_fd(), &raw mut event, 1, 0) })? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        _ => Ok(event.u64),
    }
}

/// Returns how many bytes a pipe or a stream holds.
pub(crate) fn unread(fd: BorrowedFd<'_>) -> io::Result<usize> {
    let mut held: libc::c_int = 0;
    // SAFETY: an int, which lives through the call.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::FIONREAD, &raw mut held) })?;
    Ok(held.try_into().unwrap_or(0))
}

/// Makes an eventfd, which ends a thread's wait in `poll`.
pub(crate) fn eventfd() -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the call makes a descriptor.
    unsafe { new_fd(libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC)) }
}

/// Makes an eventfd readable.
pub(crate) fn signal(eventfd: RawFd) {
    let one = 1_u64;
    // SAFETY: eight bytes, which live through the call. The write fails only if the counter is at its maximum of 2^64
    // - 2, and then the eventfd is readable anyway.
    let _rung = unsafe { libc::write(eventfd, (&raw const one).cast(), size_of_val(&one)) };
}

/// Makes an eventfd unreadable.
pub(crate) fn drain(eventfd: RawFd) {
    let mut count = 0_u64;
    // SAFETY: eight bytes, which live through the call. The read fails if the counter is zero.
    let _silent = unsafe { libc::read(eventfd, (&raw mut count).cast(), size_of_val(&count)) };
}

/// Waits until `socket`, if given, is ready or `wake_fd` is readable, for at most `limit`, and returns which of them are. A
/// signal ends the wait early.
pub(super) fn poll(
    socket: Option<RawFd>,
    events: libc::c_short,
    wake_fd: Option<RawFd>,
    limit: Option<Duration>,
) -> io::Result<(bool, bool)> {
    let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
    // The kernel ignores an entry with a negative descriptor.
    let mut entries = [entry(socket.unwrap_or(-1), events), entry(wake_fd.unwrap_or(-1), libc::POLLIN)];
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: limit.as_secs().try_into().unwrap_or(libc::time_t::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let count = if wake_fd.is_some() { 2 } else { 1 };
    // SAFETY: two valid entries, and a time or null, which live through the call.
    let polled = unsafe { libc::ppoll(entries.as_mut_ptr(), count, limit, std::ptr::null()) };
    let polled = match check(polled) {
        Err(refused) if refused.raw_os_error() == Some(libc::EINVAL) => {
            // SAFETY: a time or null, which lives through the call.
            unsafe { select(&mut entries, limit) }
        }
        polled => polled.map(drop),
    };
    match polled {
        Ok(()) => Ok((entries[0].revents != 0, entries[1].revents != 0)),
        Err(refused) if refused.kind() == io::ErrorKind::Interrupted => Ok((false, false)),
        Err(refused) => Err(refused),
    }
}

/// Does the same as `ppoll(2)`, which takes no more entries than the process may have descriptors (`RLIMIT_NOFILE`): none, or
/// one, after the process has given up the right to open any. `pselect(2)` takes all that are open. Any bit of `revents` says
/// that something has happened.
///
/// # Safety
/// `limit` is null or a time.
#[cold]
unsafe fn select(entries: &mut [libc::pollfd; 2], limit: *const libc::timespec) -> io::Result<()> {
    let most = entries.iter().map(|entry| entry.fd).max().unwrap_or(-1) + 1;
    let events = [libc::POLLIN, libc::POLLOUT];
    // For each event the numbers for which the caller waits, a bit for each.
    let mut sets = events.map(|_| vec![0_u64; (most as usize).div_ceil(64)]);
    let place = |fd: RawFd| (fd as usize / 64, 1_u64 << (fd % 64));
    for entry in entries.iter().filter(|entry| entry.fd >= 0) {
        let (word, bit) = place(entry.fd);
        for (set, _) in sets.iter_mut().zip(events).filter(|(_, event)| entry.events & event != 0) {
            set[word] |= bit;
        }
    }
    let [reads, writes] = sets.each_mut().map(|set| set.as_mut_ptr().cast());
    // SAFETY: both sets have a bit for each number below `most`, and live through the call; the time does by this function's
    // contract.
    let selected =
        unsafe { libc::pselect(most, reads, writes, std::ptr::null_mut(), limit, std::ptr::null()) };
    check(selected)?;
    for entry in entries.iter_mut().filter(|entry| entry.fd >= 0) {
        let (word, bit) = place(entry.fd);
        entry.revents = sets.iter().any(|set| set[word] & bit != 0).into();
    }
    Ok(())
}

/// Returns an option of the socket; `None` if there is none, or the descriptor is no socket's.
fn option(socket: BorrowedFd<'_>, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut len = size_of_val(&value) as libc::socklen_t;
    let (at, len) = ((&raw mut value).cast(), &raw mut len);
    // SAFETY: room for the value, which lives through the call.
    let got = unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, name, at, len) };
    (got == 0).then_some(value)
}

/// Returns `true` for a stream of TCP, or a socket that accepts such streams.
pub(super) fn is_tcp(socket: BorrowedFd<'_>) -> bool {
    matches!(option(socket, libc::SO_PROTOCOL), Some(libc::IPPROTO_TCP | libc::IPPROTO_MPTCP))
}

/// Returns `true` for a Unix stream, or a socket that accepts such streams.
pub(super) fn is_unix_stream(socket: BorrowedFd<'_>) -> bool {
    option(socket, libc::SO_DOMAIN) == Some(libc::AF_UNIX)
        && option(socket, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

/// Returns `true` if calls on the descriptor block the thread.
pub(crate) fn is_blocking(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // SAFETY: no pointers.
    Ok(check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })? & libc::O_NONBLOCK == 0)
}

/// Returns `true` for a regular file, a directory or a disk.
pub(crate) fn may_be_on_disk(fd: BorrowedFd<'_>) -> bool {
    let mut found = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: room for the answer, which lives through the call.
    if unsafe { libc::fstat(fd.as_raw_fd(), found.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: zeroed and then filled by the kernel; all bit patterns are valid.
    let mode = unsafe { found.assume_init_ref() }.st_mode;
    matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
}

/// Returns `true` for a regular file, a directory or a disk that epoll does not take. Some files that look regular are taken:
/// message queues, and files of procfs, sysfs and tracefs that tell of changes.
pub(crate) fn is_on_disk(fd: BorrowedFd<'_>) -> bool {
    if !may_be_on_disk(fd) {
        return false;
    }
    // If no descriptor is left for the set, the file is taken to be on disk, as it mostly is.
    let added = new_set().and_then(|set| add_to_set(set.as_fd(), fd, Direction::Read, 0));
    !matches!(added, Ok(()))
}

/// Sets whether calls on the descriptor block the thread: for an open file that no other code shares.
pub(crate) fn set_blocking(fd: BorrowedFd<'_>, blocks: bool) -> io::Result<()> {
    // SAFETY: no pointers.
    let flags = check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) })?;
    let flags = if blocks { flags & !libc::O_NONBLOCK } else { flags | libc::O_NONBLOCK };
    // SAFETY: no pointers.
    check(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }).map(drop)
}

/// Returns `true` if the descriptor is ready now, or has an error or an end to report.
pub(crate) fn is_ready(fd: BorrowedFd<'_>, direction: Direction) -> io::Result<bool> {
    Ok(poll(Some(fd.as_raw_fd()), events(direction), None, Some(Duration::ZERO))?.0)
}

/// Returns `true` if reads from the socket were shut down.
pub(super) fn has_ended_reads(socket: BorrowedFd<'_>) -> bool {
    let mut entry = libc::pollfd { fd: socket.as_raw_fd(), events: libc::POLLRDHUP, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    let polled = unsafe { libc::poll(&raw mut entry, 1, 0) };
    if polled < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL) {
        // No descriptor may be opened, so `poll` takes none. The caller has found nothing to read: what is readable has ended.
        return is_ready(socket, Direction::Read).unwrap_or(false);
    }
    polled > 0 && entry.revents & libc::POLLRDHUP != 0
}

/// Returns the timeouts that a socket has for calls that wait in the kernel, of reads and of writes.
pub(super) fn timeouts(socket: BorrowedFd<'_>) -> [Option<Duration>; 2] {
    [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO].map(|option| {
        let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
        let mut len = size_of_val(&time) as libc::socklen_t;
        let at = (&raw mut time).cast();
        // SAFETY: the value is as long as `len` says, and both live through the call. The call fails for a descriptor that is
        // no socket, which has no timeouts.
        unsafe { libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, at, &raw mut len) };
        let length = Duration::new(time.tv_sec as u64, 1000 * time.tv_usec as u32);
        (!length.is_zero()).then_some(length)
    })
}

/// The events of `poll(2)` for which an operation in this direction waits.
pub(super) fn events(direction: Direction) -> libc::c_short {
    match direction {
        Direction::Read => libc::POLLIN,
        Direction::Write => libc::POLLOUT,
    }
}

/// The dead socket of the process: connected to nothing, made by the first call that can.
///
/// # Errors
/// If there is no descriptor left for it.
pub(super) fn dead() -> io::Result<BorrowedFd<'static>> {
    static DEAD: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(dead) = DEAD.get() {
        return Ok(dead.as_fd());
    }
    let dead = socket(libc::AF_UNIX, libc::SOCK_STREAM)?;
    Ok(DEAD.get_or_init(|| dead).as_fd())
}

/// Closes what `fd` names, and puts the dead socket there, so that the number stays taken. Needs no new descriptor.
///
/// # Errors
/// If there is no dead socket, and none can be made; nothing has changed then.
pub(super) fn bury(fd: RawFd) -> io::Result<()> {
    let dead = dead()?;
    // SAFETY: no pointers; the caller owns `fd`.
    check(unsafe { libc::dup3(dead.as_raw_fd(), fd, libc::O_CLOEXEC) }).map(drop)
}

// States of a TCP connection, by their numbers in linux/tcp_states.h. In CLOSE all is over.
const FIN_WAIT1: u8 = 4;
const FIN_WAIT2: u8 = 5;
const CLOSE: u8 = 7;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

/// Returns `true` if this side of the TCP connection has ended its writes, or the connection is over.
pub(super) fn has_ended_writes(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let ended = [FIN_WAIT1, FIN_WAIT2, CLOSE, LAST_ACK, CLOSING];
    Ok(tcp_state(fd)?.is_some_and(|state| ended.contains(&state)))
}

/// Returns `true` if the TCP connection is over for the kernel: each side has ended its direction, a reset has come, or no
/// answer has come for too long.
pub(super) fn is_over(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(tcp_state(fd)? == Some(CLOSE))
}

/// Returns `None` for a connection of several paths (MPTCP): the kernel tells the state of its first path, which may be over
/// while the connection goes on.
fn tcp_state(fd: BorrowedFd<'_>) -> io::Result<Option<u8>> {
    if option(fd, libc::SO_PROTOCOL) == Some(libc::IPPROTO_MPTCP) {
        return Ok(None);
    }
    let (mut state, mut len) = (0_u8, 1);
    // SAFETY: the kernel writes at most `len` bytes: the first field of `tcp_info`, which is the state.
    check(unsafe {
        let state = (&raw mut state).cast();
        libc::getsockopt(fd.as_raw_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, state, &raw mut len)
    })?;
    Ok(Some(state))
}

/// Shuts the connection down in both directions, for all its descriptors. Needs no new descriptor.
pub(super) fn end_connection(fd: RawFd) {
    // SAFETY: no pointers; the caller owns `fd`. The kernel refuses a socket that is not connected, which has no peer
    // to tell.
    unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
}

fn to_addr(storage: &libc::sockaddr_storage) -> io::Result<SocketAddr> {
    let at: *const libc::sockaddr_storage = storage;
    match i32::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says which address it is, and the storage is large and aligned enough for any.
            let raw = unsafe { &*at.cast::<libc::sockaddr_in>() };
            let ip = Ipv4Addr::from(raw.sin_addr.s_addr.to_ne_bytes());
            Ok(SocketAddr::V4(SocketAddrV4::new(ip, u16::from_be(raw.sin_port))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that the address is of this type, and the storage is large and aligned enough
            // for any.
            let raw = unsafe { &*at.cast::<libc::sockaddr_in6>() };
            let ip = Ipv6Addr::from(raw.sin6_addr.s6_addr);
            let port = u16::from_be(raw.sin6_port);
            Ok(SocketAddr::V6(SocketAddrV6::new(ip, port, raw.sin6_flowinfo, raw.sin6_scope_id)))
        }
        family => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("the peer's address is of family {family}, neither IPv4 nor IPv6"),
        )),
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    /// Fails by an end that is told of a connection whose first path has gone, or is not there yet.
    #[test]
    fn the_first_of_several_paths_does_not_speak_for_the_connection() {
        let socket = |protocol| {
            // SAFETY: no pointers; the descriptor is new.
            let fd = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, protocol) };
            // SAFETY: as above.
            check(fd).map(|fd| unsafe { OwnedFd::from_raw_fd(fd) })
        };
        let tells = |fd: OwnedFd| [has_ended_writes, is_over].map(|asks| asks(fd.as_fd()).unwrap());
        assert_eq!(tells(socket(libc::IPPROTO_TCP).unwrap()), [true; 2]);
        match socket(libc::IPPROTO_MPTCP) {
            Ok(fd) => assert_eq!(tells(fd), [false; 2]),
            Err(refused) => println!("not tested: {refused}"),
        }
    }
}
