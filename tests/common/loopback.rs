//! Connections over the loopback.

use gmp::net::{TcpListener, TcpStream};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU16, Ordering::Relaxed};

pub fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let addr = listener.local_addr().expect("it is bound");
    (listener, addr)
}

/// Returns both ends of a connection.
pub fn pair() -> (TcpStream, TcpStream) {
    let (listener, addr) = listen();
    let near = TcpStream::connect(addr).expect("the kernel takes the connection");
    let far = listener.accept().expect("it is there").0;
    for end in [&near, &far] {
        // Without this an answer in two parts waits 40 ms for the delayed ACK of its first part.
        end.set_nodelay(true).expect("it is a TCP stream");
    }
    (near, far)
}

/// An address that does not answer: a listener whose queue is full, so the kernel drops requests for a connection. A client
/// asks again a second later.
pub struct Hole {
    pub listener: TcpListener,
    pub queued: std::net::TcpStream,
    pub addr: SocketAddr,
}

impl Hole {
    #[track_caller]
    pub fn new() -> Self {
        let (listener, addr) = listen();
        // SAFETY: no pointers.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let queued = std::net::TcpStream::connect(addr).expect("there is room for one");
        Hole { listener, queued, addr }
    }

    /// Returns how many clients ask now.
    pub fn asking(&self) -> usize {
        asking(self.addr)
    }
}

impl Default for Hole {
    fn default() -> Self {
        Hole::new()
    }
}

/// Returns how many sockets, of any process, ask for a connection with this address.
pub fn asking(addr: SocketAddr) -> usize {
    let SocketAddr::V4(addr) = addr else { panic!("{addr} is not of IPv4") };
    let ip = u32::from_ne_bytes(addr.ip().octets());
    // The peer's address, and the state SYN_SENT.
    let row = format!(" {ip:08X}:{:04X} 02 ", addr.port());
    fs::read_to_string("/proc/self/net/tcp")
        .expect("it is there")
        .lines()
        .filter(|line| line.contains(&row))
        .count()
}

/// Returns an address that refuses, a different one each time for a while: ports of services that are never installed. (The
/// kernel may give a port that was free a moment ago to the very socket that connects, which then has itself as its peer.)
pub fn refusing() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    (Ipv4Addr::LOCALHOST, 1 + NEXT.fetch_add(1, Relaxed) % 6).into()
}
