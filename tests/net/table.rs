//! A table of every operation that may wait for a socket, by what may happen to the wait.
//!
//! A row is an operation, a column is what happens to it; goroutines and plain threads play each cell. A cell checks what the
//! call answers; that a call which gave up has taken and sent no byte; and that no descriptor is left, neither open nor in a
//! poller. A cell that is not played says why, and is counted.

use common::child;
use common::crew::{CREWS, Crew, Member, everyone};
use common::loopback::Hole;
use common::until;
use gmp::context::{Context, ContextError};
use gmp::io::Watched;
use gmp::net::unix::SocketAddr as UnixAddr;
use gmp::net::{
    DialConfig, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, is_closed,
};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, PipeReader, PipeWriter, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const SHORT: Duration = Duration::from_millis(2);
/// Longer than any test, and no end of one.
const LONG: Duration = Duration::from_secs(3600);
const HELLO: &[u8] = b"hello";

#[derive(Clone, Copy)]
enum Direction {
    Reads,
    Writes,
}

/// Why a cell is not played.
const NEVER: &str = "the loopback takes every datagram at once";
const NO_SOCKET: &str =
    "the caller has none while it connects; the time and the context are in dial.rs and config.rs";
const NO_RESET: &str = "there is no connection to reset";
const NO_HALF: &str = "the peer is no stream with two halves";
const NO_CLONE: &str = "the value inside has clones, if any, and `Watched` has none";

/// What a socket is told from outside while a call waits for it.
trait Limits: AsFd + AsRawFd + Send + Sync {
    fn shut(&self) -> io::Result<()>;
    fn limit(&self, direction: Direction, at: Option<Instant>);
    /// Another handle to the same, or why there is none.
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
limits!(TcpStream, UdpSocket, UnixStream, UnixDatagram, gmp::io::PipeReader, gmp::io::PipeWriter);
limits!(Watched<PipeReader>: none, Watched<PipeWriter>: none);

macro_rules! listener_limits {
    ($($socket:ty),*) => {$(
        impl Limits for $socket {
            cloned!();
            fn shut(&self) -> io::Result<()> {
                self.close()
            }
            fn limit(&self, _: Direction, at: Option<Instant>) {
                self.set_deadline(at).unwrap();
            }
        }
    )*};
}
listener_limits!(TcpListener, UnixListener);

/// What becomes of a wait.
enum Ends {
    Answer(&'static [u8]),
    /// One of these errors.
    Error(&'static [ErrorKind]),
    /// It goes on, and is answered once the peer does its part.
    Unmoved,
}

type Call = Arc<dyn Fn() -> io::Result<Vec<u8>> + Send + Sync>;
/// What the peer does, and what becomes of the wait; or why there is no such thing.
type Event = Result<(Box<dyn FnOnce() + Send>, Ends), &'static str>;

/// One operation, ready to be played once.
struct Scene {
    /// The socket that a caller has while the call waits.
    socket: Result<(Arc<dyn Limits>, Direction), &'static str>,
    call: Call,
    answer: &'static [u8],
    /// The peer's part, after which the call is answered.
    feed: Box<dyn Fn() + Send>,
    /// What the peer has heard in its part, if that is to listen.
    heard: Option<Arc<Mutex<Vec<u8>>>>,
    /// Whether the call waits for that.
    waits: Result<(), &'static str>,
    reset: Event,
    half_close: Event,
    /// That of the socket, or of what stands in for one.
    inode: u64,
}

/// A scene with a socket and its peer.
struct Pair<N, F> {
    near: Arc<N>,
    far: Arc<Mutex<Option<F>>>,
    scene: Scene,
}

impl<N: Limits + 'static, F: AsRawFd + Send + 'static> Pair<N, F> {
    fn new(
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

    /// A call that sends HELLO to a peer that takes what there is.
    fn says(ends: (N, F), call: fn(&N) -> io::Result<Vec<u8>>) -> Self {
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

    /// The peer resets the connection, or goes.
    fn reset(mut self, happens: fn(&N, F), ends: Ends) -> Self {
        self.scene.reset = self.event(happens, ends);
        self
    }

    /// The peer has no more to send, but reads on.
    fn half_close(mut self, happens: fn(&F), ends: Ends) -> Self {
        let far = Arc::clone(&self.far);
        self.scene.half_close = Ok((Box::new(move || happens(far.lock().unwrap().as_ref().unwrap())), ends));
        self
    }

    fn never_waits(mut self, why: &'static str) -> Scene {
        self.scene.waits = Err(why);
        self.scene
    }
}

/// The inode of a socket or pipe: the kernel gives each a new one.
fn inode(fd: RawFd) -> Option<u64> {
    let link = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
    let link = link.to_str()?;
    let inode = link.strip_prefix("socket:[").or_else(|| link.strip_prefix("pipe:["))?;
    inode.strip_suffix(']')?.parse().ok()
}

fn names() -> UnixAddr {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let name = format!("gmp-table-{}-{}", std::process::id(), MADE.fetch_add(1, SeqCst));
    UnixAddr::from_abstract_name(name).unwrap()
}

fn tcp() -> (TcpStream, TcpStream) {
    let (near, far) = common::loopback::pair();
    (near, far)
}

fn udp() -> (UdpSocket, UdpSocket) {
    let (near, far) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    (near, far)
}

fn unix() -> (UnixStream, UnixStream) {
    UnixStream::pair().unwrap()
}

fn dgram() -> (UnixDatagram, UnixDatagram) {
    let ends = [UnixDatagram::bind_addr(&names()).unwrap(), UnixDatagram::bind_addr(&names()).unwrap()];
    for (end, other) in [(&ends[0], &ends[1]), (&ends[1], &ends[0])] {
        end.connect_addr(&other.local_addr().unwrap()).unwrap();
    }
    ends.into()
}

/// Calls `write` until nothing more fits.
fn fill<N: Limits + AsRawFd>(near: &N, write: impl Fn() -> io::Result<usize>) {
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

/// Takes all that is there, and returns what is none of the bytes that filled the socket. Never waits: every descriptor of
/// the library's is non-blocking.
fn drain(far: RawFd) -> Vec<u8> {
    let (mut buffer, mut heard) = (vec![0; 1 << 16], Vec::new());
    loop {
        // SAFETY: the buffer is as long as told, and lives through the call.
        let got = unsafe { libc::read(far, buffer.as_mut_ptr().cast(), buffer.len()) };
        match usize::try_from(got) {
            Ok(0) => return heard,
            // At once: there are megabytes of it.
            Ok(len) if buffer[..len] == FILL[..len] => {}
            Ok(len) => heard.extend(buffer[..len].iter().filter(|&byte| *byte != FILL[0])),
            Err(_) => match io::Error::last_os_error().kind() {
                ErrorKind::WouldBlock => return heard,
                // Once, and what had come before stands behind.
                gone => assert_eq!(gone, ErrorKind::ConnectionReset),
            },
        }
    }
}

/// Whether nothing is on its way to the peer, whose acknowledgement would make room. Only TCP has such a thing.
fn is_settled(fd: RawFd) -> bool {
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

/// Whether nothing fits: a limit that ends a call also ends one that was preempted before it began. What fits is sent.
fn is_full(fd: RawFd) -> bool {
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the chunk lives through the call.
    let sent = unsafe { libc::send(fd, CHUNK.as_ptr().cast(), CHUNK.len(), flags) };
    match io::Error::last_os_error().raw_os_error() {
        _ if sent >= 0 => false,
        // A pipe has room when it says so.
        Some(libc::ENOTSOCK) => !is_ready(fd, libc::POLLOUT),
        // It is full, or goes to no one without an address.
        _ => true,
    }
}

fn is_open(fd: RawFd) -> bool {
    // SAFETY: no pointers.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn is_ready(fd: RawFd, events: i16) -> bool {
    let mut entry = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one entry, which lives through the call.
    let ready = unsafe { libc::poll(&raw mut entry, 1, 0) };
    ready > 0 && entry.revents & events != 0
}

/// Closes a TCP stream by a reset.
fn reset(stream: TcpStream) {
    set_option(&stream, libc::SO_LINGER, &libc::linger { l_onoff: 1, l_linger: 0 });
}

fn set_option<T>(stream: &TcpStream, name: libc::c_int, value: &T) {
    let (at, len) = (ptr::from_ref(value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the option's value lives through the call.
    assert_eq!(unsafe { libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, name, at, len) }, 0);
}

fn bytes(read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<Vec<u8>> {
    let mut buffer = [0; 64];
    let len = read(&mut buffer)?;
    Ok(buffer[..len].to_vec())
}

/// What of HELLO was taken.
fn written(result: io::Result<usize>) -> io::Result<Vec<u8>> {
    result.map(|len| HELLO[..len].to_vec())
}
const FILL: &[u8] = &[7; 1 << 16];
const CHUNK: &[u8] = FILL.split_at(4 << 10).0;

fn tcp_reads(call: fn(&TcpStream) -> io::Result<Vec<u8>>) -> Scene {
    Pair::new(tcp(), Direction::Reads, HELLO, call, |_, mut far| far.write_all(HELLO).unwrap())
        .reset(|_, far| reset(far), Ends::Error(&[ErrorKind::ConnectionReset]))
        .half_close(|far| far.shutdown(Shutdown::Write).unwrap(), Ends::Answer(b""))
        .scene
}

fn tcp_writes(call: fn(&TcpStream) -> io::Result<Vec<u8>>) -> Scene {
    let ends = tcp();
    fill(&ends.0, || (&ends.0).write(FILL));
    // What is on its way to the peer makes room when it is acknowledged, later. Not in the smallest buffer there is.
    set_option(&ends.0, libc::SO_SNDBUF, &1);
    Pair::says(ends, call)
        .reset(|_, far| reset(far), Ends::Error(&[ErrorKind::ConnectionReset, ErrorKind::BrokenPipe]))
        .half_close(|far| far.shutdown(Shutdown::Write).unwrap(), Ends::Unmoved)
        .scene
}

fn udp_receives(call: fn(&UdpSocket) -> io::Result<Vec<u8>>) -> Scene {
    Pair::new(udp(), Direction::Reads, HELLO, call, |_, far| {
        assert_eq!(far.send(HELLO).unwrap(), HELLO.len())
    })
    // The next datagram to a port that nobody has is answered by an error, which is told to whoever receives.
    .reset(
        |near, far| {
            far.close().unwrap();
            near.send(b"anybody?").unwrap();
        },
        Ends::Error(&[ErrorKind::ConnectionRefused]),
    )
    .scene
}

fn udp_sends(call: fn(&UdpSocket) -> io::Result<Vec<u8>>) -> Scene {
    Pair::says(udp(), call).never_waits(NEVER)
}

fn unix_reads(call: fn(&UnixStream) -> io::Result<Vec<u8>>) -> Scene {
    let ends = unix();
    // A peer that goes with bytes unread resets the connection.
    (&ends.0).write_all(b"unread").unwrap();
    Pair::new(ends, Direction::Reads, HELLO, call, |_, mut far| far.write_all(HELLO).unwrap())
        .reset(|_, far| drop(far), Ends::Error(&[ErrorKind::ConnectionReset]))
        .half_close(|far| far.shutdown(Shutdown::Write).unwrap(), Ends::Answer(b""))
        .scene
}

fn unix_writes(call: fn(&UnixStream) -> io::Result<Vec<u8>>) -> Scene {
    let ends = unix();
    fill(&ends.0, || (&ends.0).write(CHUNK));
    Pair::says(ends, call)
        .reset(|_, far| drop(far), Ends::Error(&[ErrorKind::ConnectionReset, ErrorKind::BrokenPipe]))
        .half_close(|far| far.shutdown(Shutdown::Write).unwrap(), Ends::Unmoved)
        .scene
}

fn dgram_receives(call: fn(&UnixDatagram) -> io::Result<Vec<u8>>) -> Scene {
    Pair::new(dgram(), Direction::Reads, HELLO, call, |_, far| {
        assert_eq!(far.send(HELLO).unwrap(), HELLO.len())
    })
    .scene
}

fn dgram_sends(call: fn(&UnixDatagram) -> io::Result<Vec<u8>>) -> Scene {
    let ends = dgram();
    fill(&ends.0, || ends.0.send(CHUNK));
    Pair::says(ends, call).reset(|_, far| drop(far), Ends::Error(&[ErrorKind::ConnectionRefused])).scene
}

struct Row {
    name: &'static str,
    scene: fn() -> Scene,
}

/// All of them.
const TABLE: &[Row] = &[
    Row { name: "TcpStream::read", scene: || tcp_reads(|near| bytes(|buf| (&mut &*near).read(buf))) },
    Row {
        name: "TcpStream::read_vectored",
        scene: || tcp_reads(|near| bytes(|buf| (&mut &*near).read_vectored(&mut [IoSliceMut::new(buf)]))),
    },
    Row { name: "TcpStream::peek", scene: || tcp_reads(|near| bytes(|buf| near.peek(buf))) },
    Row { name: "TcpStream::write", scene: || tcp_writes(|near| written((&mut &*near).write(HELLO))) },
    Row {
        name: "TcpStream::write_vectored",
        scene: || tcp_writes(|near| written((&mut &*near).write_vectored(&[IoSlice::new(HELLO)]))),
    },
    Row { name: "UdpSocket::recv", scene: || udp_receives(|near| bytes(|buf| near.recv(buf))) },
    Row {
        name: "UdpSocket::recv_from",
        scene: || udp_receives(|near| bytes(|buf| near.recv_from(buf).map(|got| got.0))),
    },
    Row { name: "UdpSocket::peek", scene: || udp_receives(|near| bytes(|buf| near.peek(buf))) },
    Row {
        name: "UdpSocket::peek_from",
        scene: || udp_receives(|near| bytes(|buf| near.peek_from(buf).map(|got| got.0))),
    },
    Row { name: "UdpSocket::send", scene: || udp_sends(|near| written(near.send(HELLO))) },
    Row {
        name: "UdpSocket::send_to",
        scene: || udp_sends(|near| written(near.send_to(HELLO, near.peer_addr().unwrap()))),
    },
    Row { name: "UnixStream::read", scene: || unix_reads(|near| bytes(|buf| (&mut &*near).read(buf))) },
    Row {
        name: "UnixStream::read_vectored",
        scene: || unix_reads(|near| bytes(|buf| (&mut &*near).read_vectored(&mut [IoSliceMut::new(buf)]))),
    },
    Row {
        name: "UnixStream::recv_with_fds",
        scene: || {
            unix_reads(|near| {
                bytes(|buf| {
                    near.recv_with_fds(&mut [IoSliceMut::new(buf)], &mut Vec::new()).map(|got| got.len())
                })
            })
        },
    },
    Row { name: "UnixStream::write", scene: || unix_writes(|near| written((&mut &*near).write(HELLO))) },
    Row {
        name: "UnixStream::write_vectored",
        scene: || unix_writes(|near| written((&mut &*near).write_vectored(&[IoSlice::new(HELLO)]))),
    },
    Row {
        name: "UnixStream::send_with_fds",
        scene: || {
            unix_writes(|near| written(near.send_with_fds(&[IoSlice::new(HELLO)], &[io::stderr().as_fd()])))
        },
    },
    Row { name: "UnixDatagram::recv", scene: || dgram_receives(|near| bytes(|buf| near.recv(buf))) },
    Row {
        name: "UnixDatagram::recv_from",
        scene: || dgram_receives(|near| bytes(|buf| near.recv_from(buf).map(|got| got.0))),
    },
    Row {
        name: "UnixDatagram::recv_with_fds",
        scene: || {
            dgram_receives(|near| {
                bytes(|buf| {
                    near.recv_with_fds(&mut [IoSliceMut::new(buf)], &mut Vec::new()).map(|got| got.len())
                })
            })
        },
    },
    Row { name: "UnixDatagram::send", scene: || dgram_sends(|near| written(near.send(HELLO))) },
    Row {
        name: "UnixDatagram::send_to_addr",
        scene: || dgram_sends(|near| written(near.send_to_addr(HELLO, &near.peer_addr()?))),
    },
    Row {
        name: "UnixDatagram::send_with_fds",
        scene: || {
            dgram_sends(|near| written(near.send_with_fds(&[IoSlice::new(HELLO)], &[io::stderr().as_fd()])))
        },
    },
    Row {
        name: "TcpListener::accept",
        scene: || {
            let (listener, addr) = common::loopback::listen();
            let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            client.connect(addr).unwrap();
            Pair::new(
                (listener, client),
                Direction::Reads,
                b"",
                |near| near.accept().map(|_| Vec::new()),
                |near, _| drop(std::net::TcpStream::connect(near.local_addr().unwrap()).unwrap()),
            )
            .scene
        },
    },
    Row {
        name: "UnixListener::accept",
        scene: || {
            let listener = UnixListener::bind_addr(&names()).unwrap();
            let client = std::os::unix::net::UnixDatagram::unbound().unwrap();
            Pair::new(
                (listener, client),
                Direction::Reads,
                b"",
                |near| near.accept().map(|_| Vec::new()),
                |near, _| {
                    let addr = near.local_addr().unwrap();
                    drop(std::os::unix::net::UnixStream::connect_addr(&addr).unwrap());
                },
            )
            .scene
        },
    },
    Row { name: "TcpStream::connect", scene: || tcp_connects_by(|addrs| TcpStream::connect(addrs)) },
    Row {
        name: "DialConfig::connect",
        scene: || tcp_connects_by(|addrs| DialConfig::new().stagger(SHORT).nodelay(true).connect(addrs)),
    },
    Row { name: "UnixStream::connect_addr", scene: unix_connects },
    Row { name: "Watched::read_with", scene: || pipe_reads(false) },
    Row { name: "Watched::read_with", scene: || pipe_reads(true) },
    Row { name: "Watched::write_with", scene: || pipe_writes(false) },
    Row { name: "Watched::write_with", scene: || pipe_writes(true) },
    Row { name: "PipeReader::read", scene: || own_pipe_reads(|near| bytes(|buf| (&mut &*near).read(buf))) },
    Row {
        name: "PipeReader::read_vectored",
        scene: || {
            own_pipe_reads(|near| bytes(|buf| (&mut &*near).read_vectored(&mut [IoSliceMut::new(buf)])))
        },
    },
    Row { name: "PipeWriter::write", scene: || own_pipe_writes(|near| written((&mut &*near).write(HELLO))) },
    Row {
        name: "PipeWriter::write_vectored",
        scene: || own_pipe_writes(|near| written((&mut &*near).write_vectored(&[IoSlice::new(HELLO)]))),
    },
];

/// The reading end of a pipe, whose mode is set to blocking or not.
fn pipe_reads(blocks: bool) -> Scene {
    let (near, far) = std::io::pipe().unwrap();
    set_mode(&near, blocks);
    Pair::new(
        (Watched::new(near), far),
        Direction::Reads,
        HELLO,
        |near| bytes(|buf| near.read_with(|mut pipe| pipe.read(buf))),
        |_, mut far| far.write_all(HELLO).unwrap(),
    )
    .reset(|_, far| drop(far), Ends::Answer(b""))
    .scene
}

fn pipe_writes(blocks: bool) -> Scene {
    let (far, near) = std::io::pipe().unwrap();
    set_mode(&near, false);
    while (&near).write(CHUNK).is_ok() {}
    set_mode(&near, blocks);
    let far = gmp::io::PipeReader::try_from(far).unwrap();
    Pair::says((Watched::new(near), far), |near| written(near.write_with(|mut pipe| pipe.write(HELLO))))
        .reset(|_, far| drop(far), Ends::Error(&[ErrorKind::BrokenPipe]))
        .scene
}

fn own_pipe_reads(call: fn(&gmp::io::PipeReader) -> io::Result<Vec<u8>>) -> Scene {
    Pair::new(gmp::io::pipe().unwrap(), Direction::Reads, HELLO, call, |_, mut far| {
        far.write_all(HELLO).unwrap()
    })
    .reset(|_, far| drop(far), Ends::Answer(b""))
    .scene
}

fn own_pipe_writes(call: fn(&gmp::io::PipeWriter) -> io::Result<Vec<u8>>) -> Scene {
    let (far, near) = gmp::io::pipe().unwrap();
    fill(&near, || (&near).write(CHUNK));
    Pair::says((near, far), call).reset(|_, far| drop(far), Ends::Error(&[ErrorKind::BrokenPipe])).scene
}

fn set_mode(fd: &impl AsRawFd, blocks: bool) {
    let flags = if blocks { 0 } else { libc::O_NONBLOCK };
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_SETFL, flags) }, 0);
}

/// What may wait and has no row, with the reason.
const NO_ROWS: &[(&str, &str)] = &[
    ("TcpStream::connect_deadline", "as `connect`; the deadline is in dial.rs"),
    ("TcpStream::connect_timeout", "as `connect_deadline` to one address"),
    ("UnixStream::connect", "`connect_addr` of a path"),
    ("UnixDatagram::send_to", "`send_to_addr` of a path"),
    ("Stdin::read", "`Watched::read_with`; there is one in the process"),
    ("Stdin::read_vectored", "as `read`"),
    ("StdinLock<'_>::read", "as `Stdin::read`"),
    ("Stdin::lock", "`Mutex::lock`"),
    ("Stdin::lines", "as `lock`"),
    ("ChildStdin::write", "`PipeWriter::write` of another type; here and below"),
    ("ChildStdin::write_vectored", ""),
    ("ChildStdout::read", ""),
    ("ChildStdout::read_vectored", ""),
    ("ChildStderr::read", ""),
    ("ChildStderr::read_vectored", ""),
    ("Child::wait", "tests/os/process.rs"),
    ("Child::wait_with_output", "reads, and `wait`"),
    ("Command::status", "`Child::wait`"),
    ("TcpListener::bind", "waits for its turn to look a name up: tests/os/fs_line.rs"),
    ("ListenConfig::listen", "as `TcpListener::bind`; here and below"),
    ("ListenConfig::bind_udp", ""),
    ("UdpSocket::bind", "as `TcpListener::bind`"),
    ("UdpSocket::connect", "as `TcpListener::bind`"),
    ("Receiver::recv", "a channel's wait, for signals: tests/os/signal/receivers.rs"),
    ("Receiver::recv_deadline", "as `recv`"),
    ("Receiver::recv_timeout", "as `recv`"),
    ("Command::output", "`Child::wait_with_output`"),
];

/// Two addresses that are the same listener's, whose queue is full. The second attempt is answered when there is room.
fn tcp_connects_by(connect: fn(&[SocketAddr]) -> io::Result<TcpStream>) -> Scene {
    let hole = Hole::new();
    let addrs = [hole.addr; 2];
    let mut scene = Pair::new(
        (hole.listener, hole.queued),
        Direction::Writes,
        b"",
        |_| Ok(Vec::new()),
        |listener, _| {
            drop(listener.accept().unwrap());
        },
    )
    .scene;
    scene.call = Arc::new(move || connect(&addrs).map(|_| Vec::new()));
    scene.socket = Err(NO_SOCKET);
    scene
}

/// A listener whose queue is full.
fn unix_connects() -> Scene {
    let listener = UnixListener::bind_addr(&names()).unwrap();
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let queued = std::os::unix::net::UnixStream::connect_addr(&listener.local_addr().unwrap()).unwrap();
    let mut scene = Pair::new(
        (listener, queued),
        Direction::Writes,
        b"",
        |listener| {
            // Looked up without the socket: the closer of the listener would wait for this.
            UnixStream::connect_addr(&listener.local_addr()?).map(|_| Vec::new())
        },
        |listener, _| drop(listener.accept().unwrap()),
    )
    .scene;
    scene.socket = Err(NO_SOCKET);
    scene
}

/// What may happen to a wait: the name, and the play; the latter says why the cell is empty.
type Column = (&'static str, fn(&Crew<'_>, Scene) -> Result<(), &'static str>);

const COLUMNS: &[Column] = &[
    ("data", data),
    ("data while waiting", data_while_waiting),
    ("a deadline in the past", deadline_in_the_past),
    ("a deadline while waiting", deadline_while_waiting),
    ("a deadline that is moved", deadline_moved),
    ("close by another", |crew, scene| closed_by_another(crew, scene, false)),
    ("close by another, of one that is lent", |crew, scene| closed_by_another(crew, scene, true)),
    ("close of a clone", clone_closed),
    ("a context that is done", context_done),
    ("a peer that resets", |crew, scene| event(crew, scene, |scene| &mut scene.reset)),
    ("a peer that closes its half", |crew, scene| event(crew, scene, |scene| &mut scene.half_close)),
];

fn call<'a>(crew: &Crew<'a>, scene: &Scene) -> Member<'a, io::Result<Vec<u8>>> {
    let call = Arc::clone(&scene.call);
    crew.go(move || call())
}

/// The call, made while it waits.
fn waiting<'a>(crew: &Crew<'a>, scene: &Scene) -> Result<Member<'a, io::Result<Vec<u8>>>, &'static str> {
    scene.waits?;
    let member = call(crew, scene);
    member.until_it_waits();
    Ok(member)
}

/// After all that happened the operation works.
#[track_caller]
fn works(crew: &Crew<'_>, scene: &Scene) {
    (scene.feed)();
    is_answered(scene, call(crew, scene));
}

/// The peer has begun its part, and goes on with that until the call has ended: there may be no room after a first piece.
#[track_caller]
fn is_answered(scene: &Scene, member: Member<'_, io::Result<Vec<u8>>>) {
    if scene.heard.is_some() {
        until(|| {
            (scene.feed)();
            member.is_finished()
        });
    }
    assert_eq!(member.join().unwrap(), scene.answer);
    is_heard(scene, scene.answer);
}

/// The peer hears this, and no byte more.
#[track_caller]
fn is_heard(scene: &Scene, bytes: &[u8]) {
    let Some(heard) = &scene.heard else { return };
    // What was written is under way.
    until(|| {
        (scene.feed)();
        heard.lock().unwrap().len() >= bytes.len()
    });
    (scene.feed)();
    assert_eq!(*heard.lock().unwrap(), bytes);
}

#[track_caller]
fn times_out(result: io::Result<Vec<u8>>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::TimedOut);
}

fn data(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    works(crew, &scene);
    Ok(())
}

fn data_while_waiting(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let member = waiting(crew, &scene)?;
    (scene.feed)();
    is_answered(&scene, member);
    Ok(())
}

fn deadline_in_the_past(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    socket.limit(*direction, Some(Instant::now()));
    times_out(call(crew, &scene).join());
    socket.limit(*direction, None);
    works(crew, &scene);
    Ok(())
}

fn deadline_while_waiting(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    scene.waits?;
    let begin = Instant::now();
    socket.limit(*direction, Some(begin + SHORT));
    times_out(call(crew, &scene).join());
    assert!(begin.elapsed() >= SHORT, "{:?}", begin.elapsed());
    socket.limit(*direction, None);
    works(crew, &scene);
    Ok(())
}

/// Of two callers one stands in line.
fn deadline_moved(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    socket.limit(*direction, Some(Instant::now() + LONG));
    let members = [waiting(crew, &scene)?, waiting(crew, &scene)?];
    socket.limit(*direction, Some(Instant::now() + 2 * LONG));
    members.iter().for_each(Member::until_it_waits);
    socket.limit(*direction, Some(Instant::now()));
    members.into_iter().for_each(|member| times_out(member.join()));
    socket.limit(*direction, None);
    works(crew, &scene);
    Ok(())
}

/// Of two callers one stands in line.
fn closed_by_another(crew: &Crew<'_>, scene: Scene, lent: bool) -> Result<(), &'static str> {
    let (socket, _) = scene.socket.as_ref().map_err(|why| *why)?;
    let (number, members) = (socket.as_raw_fd(), [waiting(crew, &scene)?, waiting(crew, &scene)?]);
    if lent {
        assert_eq!(socket.as_fd().as_raw_fd(), number);
    }
    let same = Arc::clone(socket);
    crew.run(move || same.shut()).unwrap();
    match lent {
        true => assert!(is_open(number), "the number is taken"),
        false => assert_ne!(inode(number), Some(scene.inode), "the number is free"),
    }
    members.into_iter().for_each(|member| assert!(is_closed(&member.join().unwrap_err())));
    assert!(is_closed(&call(crew, &scene).join().unwrap_err()));
    assert!(is_closed(&socket.shut().unwrap_err()));
    is_heard(&scene, b"");
    Ok(())
}

/// The limits and the end of a clone are its own.
fn clone_closed(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    let (socket, direction) = scene.socket.as_ref().map_err(|why| *why)?;
    let clone = socket.duplicate()?;
    let member = waiting(crew, &scene)?;
    clone.limit(*direction, Some(Instant::now()));
    crew.run(move || clone.shut()).unwrap();
    member.until_it_waits();
    (scene.feed)();
    is_answered(&scene, member);
    // The other way round: what it waited for stays open, and no poller is to know it.
    let _clone = socket.duplicate()?;
    socket.shut().unwrap();
    let entry = format!("{:x} ", scene.inode);
    assert!(!descriptors()[1].iter().any(|watched| watched.starts_with(&entry)), "watched still");
    Ok(())
}

fn context_done(crew: &Crew<'_>, scene: Scene) -> Result<(), &'static str> {
    scene.waits?;
    let (context, cancel) = Context::background().with_cancel();
    let call = Arc::clone(&scene.call);
    let member = crew.go(move || context.run(|| call().unwrap_err()).expect("nothing is unwound"));
    member.until_it_waits();
    cancel.cancel();
    let refused = member.join();
    let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
    assert_eq!(inner, Some(&ContextError::Canceled), "{refused:?}");
    works(crew, &scene);
    Ok(())
}

fn event(crew: &Crew<'_>, mut scene: Scene, which: fn(&mut Scene) -> &mut Event) -> Result<(), &'static str> {
    let (happens, ends) = std::mem::replace(which(&mut scene), Err("it has happened"))?;
    let member = waiting(crew, &scene)?;
    happens();
    match ends {
        Ends::Answer(bytes) => assert_eq!(member.join().unwrap(), bytes),
        Ends::Error(kinds) => {
            let refused = member.join().unwrap_err();
            assert!(kinds.contains(&refused.kind()), "{refused:?}");
        }
        Ends::Unmoved => {
            (scene.feed)();
            is_answered(&scene, member);
        }
    }
    Ok(())
}

/// The sockets, pipes, wake fds and pollers that the process has open, and the entries of its pollers; both in order. What the
/// runtime opens for itself while it runs is a file.
fn descriptors() -> [Vec<String>; 2] {
    let (mut open, mut watched) = (Vec::new(), Vec::new());
    for fd in fs::read_dir("/proc/self/fd").unwrap().map(|entry| entry.unwrap()) {
        // The folder's own is gone by now.
        let Ok(link) = fs::read_link(fd.path()) else { continue };
        let link = link.to_string_lossy().into_owned();
        if link.contains("[eventpoll]") {
            let info = format!("/proc/self/fdinfo/{}", fd.file_name().display());
            let info = fs::read_to_string(info).unwrap_or_default();
            let entries = info.lines().filter(|line| line.starts_with("tfd:"));
            watched.extend(entries.map(|line| line.split("ino:").nth(1).unwrap_or(line).to_owned()));
        }
        if ["socket:", "pipe:", "anon_inode:"].iter().any(|kind| link.starts_with(kind)) {
            open.push(link);
        }
    }
    [&mut open, &mut watched].into_iter().for_each(|list| list.sort());
    [open, watched]
}

/// What is not played: the column, why, and how many rows.
const EMPTY: &[(&str, &str, usize)] = &[
    ("a context that is done", NEVER, 2),
    ("a deadline in the past", NO_SOCKET, 3),
    ("a deadline that is moved", NO_SOCKET, 3),
    ("a deadline that is moved", NEVER, 2),
    ("a deadline while waiting", NO_SOCKET, 3),
    ("a deadline while waiting", NEVER, 2),
    ("a peer that closes its half", NO_HALF, 25),
    ("a peer that resets", NO_RESET, 10),
    ("close by another", NO_SOCKET, 3),
    ("close by another", NEVER, 2),
    ("close by another, of one that is lent", NO_SOCKET, 3),
    ("close by another, of one that is lent", NEVER, 2),
    ("close of a clone", NO_CLONE, 4),
    ("close of a clone", NO_SOCKET, 3),
    ("close of a clone", NEVER, 2),
    ("data while waiting", NEVER, 2),
];

/// Fails by a hang, by another answer or error, by a byte that is lost or sent by a call that gave up, by a descriptor that is
/// left, and by a cell that is no longer played.
#[test]
fn each_operation_in_each_event() {
    // A process of its own, whose descriptors are those of one cell at a time.
    if !child::is_child() {
        let told = child::passes("each_operation_in_each_event", &[]);
        let counts: Vec<_> = told.lines().filter_map(|line| line.split_once("cells: ")).collect();
        assert_eq!(counts.len(), CREWS);
        println!("{}", counts[0].1);
        return;
    }
    // The process's dead socket, which stays.
    let _lent = unix().0.as_fd();
    everyone(|crew| {
        let mut empty = BTreeMap::new();
        for row in TABLE {
            for (column, play) in COLUMNS {
                let cell = TellOnPanic(row.name, column);
                let before = descriptors();
                let scene = (row.scene)();
                if let Err(why) = play(crew, scene) {
                    *empty.entry((*column, why)).or_insert(0) += 1;
                }
                assert_eq!(descriptors(), before, "open, and watched");
                drop(cell);
            }
        }
        let (all, not_played): (_, usize) = (TABLE.len() * COLUMNS.len(), empty.values().sum());
        // Where the parent reads.
        eprintln!("cells: {} played, {not_played} not played: {empty:?}", all - not_played);
        let listed: BTreeMap<_, _> = EMPTY.iter().map(|&(column, why, rows)| ((column, why), rows)).collect();
        assert_eq!(empty, listed);
    });
}

/// Says which cell went wrong.
struct TellOnPanic(&'static str, &'static str);

impl Drop for TellOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("this was {}, {}", self.0, self.1);
        }
    }
}

/// The operations of `net` and `os` whose docs say that they may unwind, which is what every wait does.
fn that_wait() -> Vec<String> {
    let folders = [
        concat!(env!("CARGO_MANIFEST_DIR"), "/runtime/src/net"),
        concat!(env!("CARGO_MANIFEST_DIR"), "/runtime/src/os"),
    ];
    let mut folders = Vec::from(folders.map(|folder| fs::read_dir(folder).unwrap()));
    let (mut found, mut shared, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in folder.map(|entry| entry.unwrap()) {
            if entry.file_type().unwrap().is_dir() {
                folders.push(fs::read_dir(entry.path()).unwrap());
                continue;
            }
            let text = fs::read_to_string(entry.path()).unwrap();
            let (mut of, mut waits) = (String::new(), false);
            let mut lines = text.lines().map(str::trim).peekable();
            while let Some(line) = lines.next() {
                if let Some(name) = line.strip_prefix("impl").and_then(|rest| rest.strip_suffix(" {")) {
                    let name = name.strip_suffix("<T>").unwrap_or(name);
                    of = name.rsplit(['&', ' ']).next().unwrap().to_owned();
                } else if let Some((_, rest)) = line.split_once("reads!(").or(line.split_once("writes!(")) {
                    let name = if rest.is_empty() { lines.peek().unwrap() } else { rest };
                    let is_read = line.contains("reads!(");
                    // A macro within a macro has no type yet.
                    if !name.starts_with('$') {
                        streams.push((name.split([',', ')']).next().unwrap().to_owned(), is_read));
                    }
                } else if line.contains("When the wait is ended from outside") {
                    waits = true;
                } else if let Some(rest) = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("fn ") {
                    let name = &rest[..rest.find(['(', '<']).unwrap()];
                    match (std::mem::take(&mut waits), &of[..]) {
                        (true, "$name") => shared.push(name.to_owned()),
                        (true, of) => found.push(format!("{of}::{name}")),
                        (false, _) => {}
                    }
                }
            }
        }
    }
    for (stream, reads) in streams {
        let of_it = shared.iter().filter(|name| name.starts_with("read") == reads);
        found.extend(of_it.map(|name| format!("{stream}::{name}")));
    }
    found
}

/// Fails by an operation that was written without a row.
#[test]
fn each_that_waits_has_a_row() {
    let mut found = that_wait();
    let mut known: Vec<_> = TABLE.iter().map(|row| row.name).chain(NO_ROWS.iter().map(|row| row.0)).collect();
    found.sort();
    known.sort();
    known.dedup();
    assert_eq!(found, known);
}
