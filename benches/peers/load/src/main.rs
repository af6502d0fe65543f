//! The clients of the echo rows, against a server in a process of its own.
//!
//! `peer-load --to ADDRESS --server PID --connections C --seconds S` prints a line of JSON: requests, their times, and the
//! CPU time that the server's process has used for them. An address is a kind of socket, a colon, and a port or a path. What
//! the clients do:
//!
//! * nothing else said: each has one message of 64 bytes under way (`echo.rs`);
//! * `--idle`: they only stand there, and the server's CPU time is looked at;
//! * `--resident`: they only stand there, and the server's memory is looked at (`resident.rs`);
//! * `--storm MOST`: they come, have one message echoed, and go, so many at once (`storm.rs`);
//! * `--every US`: they send the time, one each so often, and read nothing (`probe.rs`);
//! * `--slow N`: as without, beside N more who send and do not read, or hardly (`slow.rs`).

mod echo;
mod probe;
mod process;
mod resident;
mod slow;
mod storm;

use process::Process;
use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The bytes of a message.
const SIZE: usize = 64;

/// A connection, for `read` and `write`; of UDP, a socket of its own with the server as its peer.
fn connect(address: &str) -> File {
    let (kind, place) = address.split_once(':').expect("a kind of socket, and the place");
    let at = || ("127.0.0.1", place.parse::<u16>().expect("a port"));
    let socket: OwnedFd = match kind {
        "tcp" => {
            let stream = TcpStream::connect(at()).expect("the server listens");
            stream.set_nodelay(true).expect("a TCP socket");
            stream.into()
        }
        "udp" => {
            let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
            socket.connect(at()).expect("the server is there");
            socket.into()
        }
        "unix" => UnixStream::connect(place).expect("the server listens").into(),
        _ => panic!("{kind}: no such kind of socket"),
    };
    socket.into()
}

fn set_nonblocking(socket: &File) {
    // SAFETY: no pointers.
    let done = unsafe { libc::fcntl(socket.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
}

/// One message there and back, on a socket that blocks.
fn exchange(mut stream: &File, number: usize) {
    let (sent, mut got) = ([number as u8; SIZE], [0; SIZE]);
    stream.write_all(&sent).expect("64 bytes fit into an empty socket");
    stream.read_exact(&mut got).expect("the server answers");
    assert_eq!(got, sent, "a wrong answer");
}

/// An epoll whose events carry a number of the caller's.
struct Epoll(i32);

impl Epoll {
    fn new() -> Epoll {
        // SAFETY: it takes a number.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        assert!(epoll >= 0, "{}", std::io::Error::last_os_error());
        Epoll(epoll)
    }

    fn watch(&self, socket: &impl AsRawFd, events: i32, number: usize) {
        self.control(libc::EPOLL_CTL_ADD, socket, events, number);
    }

    fn change(&self, socket: &impl AsRawFd, events: i32, number: usize) {
        self.control(libc::EPOLL_CTL_MOD, socket, events, number);
    }

    fn control(&self, what: i32, socket: &impl AsRawFd, events: i32, number: usize) {
        let mut event = libc::epoll_event { events: events as u32, u64: number as u64 };
        // SAFETY: both descriptors are open, the event is ours.
        let done = unsafe { libc::epoll_ctl(self.0, what, socket.as_raw_fd(), &mut event) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// The numbers of those with an event, after a tenth of a second at the latest.
    fn wait<'e>(&self, events: &'e mut Events) -> impl Iterator<Item = usize> + use<'e> {
        let most = events.0.len() as i32;
        // SAFETY: there is room for as many events.
        let count = unsafe { libc::epoll_wait(self.0, events.0.as_mut_ptr(), most, 100) };
        events.0.iter().take(count.max(0) as usize).map(|event| event.u64 as usize)
    }
}

/// Room for the events of one call.
struct Events([libc::epoll_event; 256]);

impl Events {
    fn new() -> Events {
        Events([libc::epoll_event { events: 0, u64: 0 }; 256])
    }
}

fn main() {
    peer_common::many_descriptors();
    let mut args = std::env::args().skip(1);
    let (mut numbers, mut flags, mut address) = (HashMap::new(), Vec::new(), String::new());
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--to" => address = args.next().expect("an address after --to"),
            "--idle" | "--resident" => flags.push(arg),
            _ => {
                let value = args.next().and_then(|value| value.parse::<u64>().ok());
                numbers.insert(arg, value.expect("a number after each option"));
            }
        }
    }
    let number = |name: &str| *numbers.get(name).unwrap_or_else(|| panic!("{name} is missing"));
    let (server, count) = (Process(number("--server")), number("--connections") as usize);
    let seconds = Duration::from_secs(number("--seconds"));
    let has = |flag: &str| flags.iter().any(|given| given == flag);
    let found = if has("--idle") {
        idle(&address, &server, count, seconds)
    } else if has("--resident") {
        resident::run(&address, &server, count)
    } else if numbers.contains_key("--every") {
        probe::run(&address, count, Duration::from_micros(number("--every")), number("--messages"))
    } else if numbers.contains_key("--storm") {
        storm::run(&address, &server, count, number("--storm") as usize)
    } else if numbers.contains_key("--slow") {
        slow::run(&address, &server, count, number("--slow") as usize, seconds)
    } else {
        echo::run(&address, &server, count, seconds)
    };
    found.print();
}

fn idle(address: &str, server: &Process, count: usize, seconds: Duration) -> peer_common::Found {
    let _streams: Vec<_> = (0..count).map(|_| connect(address)).collect();
    // Until the last accept is over, and what a runtime may do once after it, as giving memory back.
    std::thread::sleep(Duration::from_secs(3));
    let before = server.cpu_time();
    std::thread::sleep(seconds);
    peer_common::Found::new((server.cpu_time() - before) as f64 / 1e6)
}
