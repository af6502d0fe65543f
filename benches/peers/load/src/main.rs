//! The load of the echo rows: one thread, one epoll, a closed loop. Each connection has one message of 64 bytes under way.
//!
//! `peer-load --to ADDRESS --server PID --connections C --seconds S` prints a line of JSON: requests, their times, and the
//! CPU time that the server's process has used for them. An address is a kind of socket, a colon, and a port or a path. With
//! `--idle` the connections only stand there.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

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

fn main() {
    peer_common::many_descriptors();
    let mut args = std::env::args().skip(1).peekable();
    let (mut numbers, mut address, mut idle) = (HashMap::new(), String::new(), false);
    while let Some(arg) = args.next() {
        if arg == "--idle" {
            idle = true;
        } else if arg == "--to" {
            address = args.next().expect("an address after --to");
        } else {
            let value = args.next().and_then(|value| value.parse::<u64>().ok());
            numbers.insert(arg, value.expect("a number after each option"));
        }
    }
    let number = |name: &str| *numbers.get(name).unwrap_or_else(|| panic!("{name} is missing"));
    let streams: Vec<_> = (0..number("--connections")).map(|_| connect(&address)).collect();
    let (server, seconds) = (number("--server"), Duration::from_secs(number("--seconds")));
    if idle {
        // Until the last accept is over, and what a runtime may do once after it, as giving memory back.
        std::thread::sleep(Duration::from_secs(3));
        let before = cpu_time(server);
        std::thread::sleep(seconds);
        println!("{{\"value\": {}}}", (cpu_time(server) - before) as f64 / 1e6);
        return;
    }
    Load::new(streams).run(server, seconds);
}

/// What all threads of a process have used of a CPU, in nanoseconds; those that have ended, too.
fn cpu_time(process: u64) -> u64 {
    let (mut clock, mut time) = (0, libc::timespec { tv_sec: 0, tv_nsec: 0 });
    // SAFETY: it writes the clock's number.
    let found = unsafe { libc::clock_getcpuclockid(process as libc::pid_t, &raw mut clock) };
    // SAFETY: it writes the time.
    let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
    assert!(found == 0 && read == 0, "the server, process {process}, does not run");
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

struct Load {
    streams: Vec<File>,
    sent: Vec<Instant>,
    got: Vec<usize>,
    took: Vec<u32>,
    epoll: i32,
}

impl Load {
    fn new(streams: Vec<File>) -> Load {
        // SAFETY: it takes a number.
        let epoll = unsafe { libc::epoll_create1(0) };
        for (at, stream) in streams.iter().enumerate() {
            set_nonblocking(stream);
            let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: at as u64 };
            // SAFETY: both descriptors are open, the event is ours.
            let added =
                unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, stream.as_raw_fd(), &mut event) };
            assert_eq!(added, 0, "{}", std::io::Error::last_os_error());
        }
        let (sent, got) = (vec![Instant::now(); streams.len()], vec![0; streams.len()]);
        Load { streams, sent, got, took: Vec::new(), epoll }
    }

    fn run(mut self, server: u64, seconds: Duration) {
        for at in 0..self.streams.len() {
            self.send(at);
        }
        self.drive(Instant::now() + seconds / 5);
        self.took.clear();
        let (before, start) = (cpu_time(server), Instant::now());
        self.drive(start + seconds);
        let (used, took) = (cpu_time(server) - before, start.elapsed());
        let silent = self.sent.iter().filter(|sent| sent.elapsed() > seconds).count();
        assert_eq!(silent, 0, "so many connections had no answer all the time");
        let times = &mut self.took;
        times.sort_unstable();
        let count = times.len();
        assert!(count > 100, "{count} answers in {took:?}");
        let micros = |at: usize| f64::from(times[at]) / 1e3;
        println!(
            "{{\"value\": {}, \"rate\": {}, \"p50\": {}, \"p99\": {}}}",
            // ns a request are CPU seconds for a milliard: s for 10^6 requests are thousandths of that.
            used as f64 / count as f64 / 1e3,
            count as f64 / took.as_secs_f64(),
            micros(count / 2),
            micros(count * 99 / 100),
        );
    }

    fn send(&mut self, at: usize) {
        self.sent[at] = Instant::now();
        self.streams[at].write_all(&[at as u8; SIZE]).expect("64 bytes fit into an empty socket");
    }

    fn drive(&mut self, until: Instant) {
        let mut events = vec![libc::epoll_event { events: 0, u64: 0 }; 256];
        while Instant::now() < until {
            // SAFETY: room for 256 events.
            let count = unsafe { libc::epoll_wait(self.epoll, events.as_mut_ptr(), 256, 100) };
            for event in events.iter().take(count.max(0) as usize) {
                self.receive(event.u64 as usize);
            }
        }
    }

    fn receive(&mut self, at: usize) {
        let mut buffer = [0; SIZE];
        let got = self.streams[at].read(&mut buffer[self.got[at]..]).expect("the server answers");
        assert!(got > 0, "the server closed connection {at}");
        assert!(buffer[self.got[at]..][..got].iter().all(|&byte| byte == at as u8), "a wrong answer");
        self.got[at] += got;
        if self.got[at] == SIZE {
            self.got[at] = 0;
            self.took.push(self.sent[at].elapsed().as_nanos() as u32);
            self.send(at);
        }
    }
}
