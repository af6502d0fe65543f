//! A scene of the table: one operation, ready to be played once, with the socket, the peer, and the peer's possible actions.

use gmp::io::Watched;
use gmp::net::unix::SocketAddr as UnixAddr;
use gmp::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use std::fs;
use std::io::{self, ErrorKind, PipeReader, PipeWriter};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(super) const SHORT: Duration = Duration::from_millis(2);
/// Longer than any test, so that this limit ends no wait.
pub(super) const LONG: Duration = Duration::from_secs(3600);
pub(super) const HELLO: &[u8] = b"hello";
/// The bytes that fill a socket.
pub(super) const FILL: &[u8] = &[7; 1 << 16];
pub(super) const CHUNK: &[u8] = FILL.split_at(4 << 10).0;

/// The reasons why a cell is not played.
pub(super) const NEVER: &str = "the loopback takes every datagram at once";
pub(super) const NO_SOCKET: &str =
    "the caller has none while it connects; the time and the context are in dial.rs and config.rs";
pub(super) const NO_RESET: &str = "there is no connection to reset";
pub(super) const NO_HALF: &str = "the peer is no stream with two halves";
pub(super) const NO_CLONE: &str = "the value inside has clones, if any, and `Watched` has none";

#[derive(Clone, Copy)]
pub(super) enum Direction {
    Reads,
    Writes,
}

/// Changes to a socket, from outside, while a call waits for the socket.
pub(super) trait Limits: AsFd + AsRawFd + Send + Sync {
    fn shut(&self) -> io::Result<()>;
    fn limit(&self, direction: Direction, at: Option<Instant>);
    /// Returns another handle to the same socket, or why there is none.
    fn duplicate(&self) -> Result<Arc<dyn Limits>, &'static str>;
}

macro_rules! cloned {
    () => {
        fn duplicate(&self) -> Result<Arc<dyn Limits>, &'static str> {
            Ok(Arc::new(self.try_clone().unwrap()))
        }
    };
    (none) => {
        fn duplicate(&self) -> Result<Arc<dyn Limits>, &'static str> {
            Err(NO_CLONE)
        }
    };
}

macro_rules! limits {
    ($($socket:ty $(: $clones:ident)?),*) => {$(
        impl Limits for $socket {
            cloned!($($clones)?);
            fn shut(&self) -> io::Result<()> {
                self.close()
            }
            fn limit(&self, direction: Direction, at: Option<Instant>) {
                match direction {
                    Direction::Reads => self.set_read_deadline(at),
                    Direction::Writes => self.set_write_deadline(at),
                }.unwrap();
            }
        }
    )*};
}
limits!(TcpStream, UdpSocket, UnixStream, UnixDatagram);
limits!(Watched<PipeReader>: none, Watched<PipeWriter>: none);

macro_rules! limits_of_one {
    ($($socket:ty: $set:ident),*) => {$(
        impl Limits for $socket {
            cloned!();
            fn shut(&self) -> io::Result<()> {
                self.close()
            }
            fn limit(&self, _: Direction, at: Option<Instant>) {
                self.$set(at).unwrap();
            }
        }
    )*};
}
limits_of_one!(TcpListener: set_deadline, UnixListener: set_deadline);
limits_of_one!(gmp::io::PipeReader: set_read_deadline, gmp::io::PipeWriter: set_write_deadline);

/// The outcome of a wait.
pub(super) enum Ends {
    Answer(&'static [u8]),
    /// One of these errors.
    Error(&'static [ErrorKind]),
    /// The wait goes on, and is answered once the peer does its part.
    Unmoved,
}

pub(super) type Call = Arc<dyn Fn() -> io::Result<Vec<u8>> + Send + Sync>;
/// The peer's action, and the outcome of the wait; or why there is none.
pub(super) type Event = Result<(Box<dyn FnOnce() + Send>, Ends), &'static str>;

/// One operation, ready to be played once.
pub(super) struct Scene {
    /// The socket that a caller has while the call waits.
    pub(super) socket: Result<(Arc<dyn Limits>, Direction), &'static str>,
    pub(super) call: Call,
    pub(super) answer: &'static [u8],
    /// Plays the peer's part, after which the call is answered.
    pub(super) feed: Box<dyn Fn() + Send>,
    /// The bytes that the peer has received, if its part is to receive.
    pub(super) heard: Option<Arc<Mutex<Vec<u8>>>>,
    /// `Ok` if the call waits for the peer's part, else why it never waits.
    pub(super) waits: Result<(), &'static str>,
    pub(super) reset: Event,
    pub(super) half_close: Event,
    /// The inode of the socket, or of the file that stands in for one.
    pub(super) inode: u64,
}

/// A scene with a socket and its peer.
pub(super) struct Pair<N, F> {
    near: Arc<N>,
    far: Arc<Mutex<Option<F>>>,
    pub(super) scene: Scene,
}

impl<N: Limits + 'static, F: AsRawFd + Send + 'static> Pair<N, F> {
    pub(super) fn new(
        (near, far): (N, F),
        direction: Direction,
        answer: &'static [u8],
        call: fn(&N) -> io::Result<Vec<u8>>,
        feed: impl Fn(&N, &F) + Send + 'static,
    ) -> Self {
        let inode = inode(near.as_raw_fd()).unwrap();
        let (near, far) = (Arc::new(near), Arc::new(Mutex::new(Some(far))));
        let (caller, feeder, peer) = (Arc::clone(&near), Arc::clone(&near), Arc::clone(&far));
        let scene = Scene {
            socket: Ok((Arc::clone(&near) as _, direction)),
            call: Arc::new(move || call(&caller)),
            answer,
            feed: Box::new(move || feed(&feeder, peer.lock().unwrap().as_ref().expect("the peer is there"))),
            heard: None,
            waits: Ok(()),
            reset: Err(NO_RESET),
            half_close: Err(NO_HALF),
            inode,
        };
        Pair { near, far, scene }
    }

    /// Makes the scene of a call that sends HELLO to a peer that receives all that is there.
    pub(super) fn says(ends: (N, F), call: fn(&N) -> io::Result<Vec<u8>>) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let feed = move |_: &N, far: &F| hears.lock().unwrap().extend(drain(far.as_raw_fd()));
        let mut pair = Pair::new(ends, Direction::Writes, HELLO, call, feed);
        pair.scene.heard = Some(heard);
        pair
    }

    fn event(&self, happens: fn(&N, F), ends: Ends) -> Event {
        let (near, far) = (Arc::clone(&self.near), Arc::clone(&self.far));
        Ok((Box::new(move || happens(&near, far.lock().unwrap().take().unwrap())), ends))
    }

    /// The peer resets the connection, or closes its end.
    pub(super) fn reset(mut self, happens: fn(&N, F), ends: Ends) -> Self {
        self.scene.reset = self.event(happens, ends);
        self
    }

    /// The peer has no more to send, but continues to read.
    pub(super) fn half_close(mut self, happens: fn(&F), ends: Ends) -> Self {
        let far = Arc::clone(&self.far);
        self.scene.half_close = Ok((Box::new(move || happens(far.lock().unwrap().as_ref().unwrap())), ends));
        self
    }

    pub(super) fn never_waits(mut self, why: &'static str) -> Scene {
        self.scene.waits = Err(why);
        self.scene
    }
}

/// Returns the inode of a socket or pipe, which is new for each.
pub(super) fn inode(fd: RawFd) -> Option<u64> {
    let link = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let link = link.to_str()?;
    let inode = link.strip_prefix("socket:[").or_else(|| link.strip_prefix("pipe:["))?;
    inode.strip_suffix(']')?.parse().ok()
}

pub(super) fn names() -> UnixAddr {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = format!("gmp-table-{}-{}", std::process::id(), MADE.fetch_add(1, SeqCst));
    UnixAddr::from_abstract_name(name).unwrap()
}

pub(super) fn tcp() -> (TcpStream, TcpStream) {
    let (near, far) = common::loopback::pair();
    (near, far)
}

pub(super) fn udp() -> (UdpSocket, UdpSocket) {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    (near, far)
}

pub(super) fn unix() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

pub(super) fn dgram() -> (UnixDatagram, UnixDatagram) {
    let ends = [UnixDatagram::bind_addr(&names()).unwrap(), UnixDatagram::bind_addr(&names()).unwrap()];
    for (end, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        end.connect_addr(&other.local_addr().unwrap()).unwrap();
    }
    ends.into()
}

/// Calls `write` until nothing more fits.
pub(super) fn fill<N: Limits + AsRawFd>(near: &N, write: impl Fn() -> io::Result<usize>) {
    loop {
        near.limit(Direction::Writes, Some(Instant::now() + SHORT));
        if let Err(full) = write() {
            assert_eq!(full.kind(), ErrorKind::TimedOut);
            if is_settled(near.as_raw_fd()) && is_full(near.as_raw_fd()) {
                return near.limit(Direction::Writes, None);
            }
        }
    }
}

/// Receives all that is there, and returns the bytes that are not of those that filled the socket. Never waits: every
/// descriptor of the library is non-blocking.
pub(super) fn drain(far: RawFd) -> Vec<u8> {
    let (mut buffer, mut heard) = (vec![0; 1 << 16], Vec::new());
    loop {
        // SAFETY: the buffer is as long as told, and lives through the call.
        let got = unsafe { libc::read(far, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(got) {
            Ok(0) => return heard,
            // Skips the whole piece: there are megabytes of it.
            Ok(len) if buffer[..len] == FILL[..len] => {}
            Ok(len) => heard.extend(buffer[..len].iter().filter(|&byte| *byte != FILL[0])),
            Err(_) => match io::Error::last_os_error().kind() {
                ErrorKind::WouldBlock => return heard,
                // The kernel reports the reset once, and then returns the data that came before the reset.
                gone => assert_eq!(gone, ErrorKind::ConnectionReset),
            },
        }
    }
}

/// Returns `true` if no data is on its way to the peer, whose acknowledgement would make room. Only TCP has data that is on its
/// way.
pub(super) fn is_settled(fd: RawFd) -> bool {
    const SIOCOUTQNSD: libc::c_ulong = 0x894B;
    let (mut unsent, mut unheard): (libc::c_int, libc::c_int) = (0, 0);
    // SAFETY: room for the answer, which lives through the call.
    if unsafe { libc::ioctl(fd, SIOCOUTQNSD, &raw mut unsent) } != 0 {
        return true;
    }
    // SAFETY: an int, which lives through the call.
    assert_eq!(unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut unheard) }, 0);
    unsent == unheard
}

/// Sends what fits, and returns `true` if nothing fits. A write that timed out is no proof: the time limit also ends a call
/// that was preempted before it began.
pub(super) fn is_full(fd: RawFd) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the chunk lives through the call.
    let sent = unsafe { libc::send(fd, CHUNK.as_ptr().cast(), CHUNK.len(), flags) };
    match io::Error::last_os_error().raw_os_error() {
        _ if sent >= 0 => false,
        // `poll(2)` says whether a pipe has room.
        Some(libc::ENOTSOCK) => !is_ready(fd, libc::POLLOUT),
        // The socket is full, or has no peer and sends only to an address.
        _ => true,
    }
}

pub(super) fn is_open(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

pub(super) fn is_ready(fd: RawFd, events: i16) -> bool {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    ready > 0 && entry.revents & events != 0
}

/// Closes a TCP stream by a reset.
pub(super) fn reset(stream: TcpStream) {
    set_option(&stream, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
}

pub(super) fn set_option<T>(stream: &TcpStream, name: libc::c_int, value: &T) {
    let (at, len) = (ptr::from_ref(value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the option's value lives through the call.
    assert_eq!(unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, name, at, len) }, 0);
}

pub(super) fn bytes(read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 64];
    let len = read(&mut buffer)?;
    Ok(buffer[..len].to_vec())
}

/// Returns the part of HELLO that was taken.
pub(super) fn written(result: io::Result<usize>) -> io::Result<Vec<u8>> {
    result.map(|len| HELLO[..len].to_vec())
}
