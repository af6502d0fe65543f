//! The operations that can wait: a row for each, and the list of those without a row.

use super::scene::*;
use common::loopback::Hole;
use gmp::io::Watched;
use gmp::net::{DialConfig, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;

fn tcp_reads(call: fn(&TcpStream) -> io::Result<Vec<u8>>) -> Scene {
    Pair::new(tcp(), Direction::Reads, HELLO, call, |_, mut far| far.write_all(HELLO).unwrap())
        .reset(|_, far| reset(far), Ends::Error(&[ErrorKind::ConnectionReset]))
        .half_close(|far| far.shutdown(Shutdown::Write).unwrap(), Ends::Answer(b""))
        .scene
}

fn tcp_writes(call: fn(&TcpStream) -> io::Result<Vec<u8>>) -> Scene {
    let ends = tcp();
    fill(&ends.0, || (&ends.0).write(FILL));
    // Data on its way to the peer makes room later, when the peer acknowledges it. With the smallest buffer there is no such
    // room.
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
    // The next datagram to a closed port is answered by an error, which the next receiver gets.
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
    // A peer that closes its end with bytes unread resets the connection.
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

pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) scene: fn() -> Scene,
}

/// All rows.
pub(super) const TABLE: &[Row] = &[
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

/// Makes the scene of a pipe's reading end, in blocking or non-blocking mode.
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
    let far = gmp::io::PipeReader::from(far);
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

/// The operations that can wait and have no row, with the reason.
pub(super) const NO_ROWS: &[(&str, &str)] = &[
    ("TcpStream::connect_deadline", "as `connect`; the deadline is in dial.rs"),
    ("TcpStream::connect_timeout", "as `connect_deadline` to one address"),
    ("UnixStream::connect", "`connect_addr` of a path"),
    ("UnixStream::connect_deadline", "as `connect`; the deadline is in unix.rs, here and below"),
    ("UnixStream::connect_addr_deadline", ""),
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
    ("Child::wait_timeout", "as `wait`"),
    ("Child::wait_deadline", "as `wait`"),
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

/// Two addresses of one listener, whose queue is full. The second attempt is answered when there is room.
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
            // The listener is in use only while its address is read: a closer would wait for a connect that used the listener.
            UnixStream::connect_addr(&listener.local_addr()?).map(|_| Vec::new())
        },
        |listener, _| drop(listener.accept().unwrap()),
    )
    .scene;
    scene.socket = Err(NO_SOCKET);
    scene
}
