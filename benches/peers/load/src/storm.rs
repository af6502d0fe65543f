//! Clients that come, have one message echoed, and go: so many altogether, and no more than some at once. They come from many
//! addresses, as one has no more than 28,000 ports, and each of them rests for a minute.

use crate::process::Process;
use crate::{Epoll, Events, SIZE};
use peer_common::Found;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::time::{Duration, Instant};

/// They come from 127.0.0.1, 127.0.0.2 and so on.
const SOURCES: usize = 32;
/// Who has no answer by then is lost.
const LIMIT: Duration = Duration::from_secs(10);
/// Since Linux 4.2, and not among libc's names: the port is chosen when the peer is known.
const IP_BIND_ADDRESS_NO_PORT: libc::c_int = 24;

struct Client {
    socket: File,
    number: usize,
    begun: Instant,
    connected: bool,
    got: usize,
}

struct Storm {
    port: u16,
    epoll: Epoll,
    /// Those under way; a place is free or taken.
    clients: Vec<Option<Client>>,
    free: Vec<usize>,
    connects: Vec<Duration>,
    answers: Vec<Duration>,
    lost: usize,
}

pub fn run(address: &str, server: &Process, count: usize, most: usize) -> Found {
    let port = address.strip_prefix("tcp:").and_then(|port| port.parse().ok());
    let mut storm = Storm {
        port: port.expect("a port of TCP"),
        epoll: Epoll::new(),
        clients: (0..most).map(|_| None).collect(),
        free: (0..most).collect(),
        connects: Vec::new(),
        answers: Vec::new(),
        lost: 0,
    };
    // The server has begun to accept, and its first pages are there.
    (0..100).for_each(|number| storm.begin(number));
    storm.go_on(|storm| storm.free.len() == most);
    assert_eq!(storm.lost, 0, "connections of the warm-up");
    storm.connects.clear();
    storm.answers.clear();
    let (overflows, used, start) = (Overflows::now(), server.cpu_time(), Instant::now());
    let mut begun = 0;
    storm.go_on(|storm| {
        while begun < count && !storm.free.is_empty() {
            storm.begin(begun);
            begun += 1;
        }
        begun == count && storm.free.len() == most
    });
    let (took, used) = (start.elapsed(), server.cpu_time() - used);
    let overflows = Overflows::now().0 - overflows.0;
    let answered = storm.answers.len();
    assert_eq!(answered + storm.lost, count, "each is answered or lost");
    assert!(answered > 1000, "{answered} of {count} were answered");
    let [connects, answers] = [&mut storm.connects, &mut storm.answers].map(|times| {
        times.sort();
        let at = |share: f64| times[(times.len() as f64 * share) as usize].as_secs_f64() * 1e3;
        [at(0.5), at(0.999)]
    });
    Found::new(answers[1] / answers[0])
        .with("lost", (storm.lost as u64 + overflows) as f64)
        .with("unanswered", storm.lost as f64)
        .with("overflows", overflows as f64)
        .with("connected_p50", connects[0])
        .with("connected_p999", connects[1])
        .with("answered_p50", answers[0])
        .with("answered_p999", answers[1])
        .with("rate", answered as f64 / took.as_secs_f64())
        // As of echo: ns each are thousandths of seconds for 10^6.
        .with("cpu", used as f64 / answered as f64 / 1e3)
}

/// How often a listener's queue was full, of all listeners of this machine.
struct Overflows(u64);

impl Overflows {
    fn now() -> Overflows {
        let text = fs::read_to_string("/proc/self/net/netstat").expect("/proc is mounted");
        let mut lines = text.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
        let (names, values) = (lines.next().expect("the names"), lines.next().expect("the values"));
        let found = names.zip(values).find(|(name, _)| *name == "ListenOverflows");
        Overflows(found.and_then(|(_, value)| value.parse().ok()).expect("a number"))
    }
}

impl Storm {
    fn begin(&mut self, number: usize) {
        let place = self.free.pop().expect("a place is free");
        let begun = Instant::now();
        let socket = connecting(self.port, number).expect("a socket, and a port of its address");
        self.epoll.watch(&socket, libc::EPOLLOUT, place);
        self.clients[place] = Some(Client { socket, number, begun, connected: false, got: 0 });
    }

    /// Until `done` says so, which is asked after each round of events.
    fn go_on(&mut self, mut done: impl FnMut(&mut Storm) -> bool) {
        let (mut looked, mut events) = (Instant::now(), Events::new());
        while !done(self) {
            for place in self.epoll.wait(&mut events) {
                let client = self.clients[place].as_mut().expect("a taken place");
                match client.step(&self.epoll, place) {
                    Ok(Step::Waits) => continue,
                    Ok(Step::Connected(after)) => {
                        self.connects.push(after);
                        continue;
                    }
                    Ok(Step::Answered(after)) => self.answers.push(after),
                    Err(lost) => self.lose(place, &lost.to_string()),
                }
                self.leave(place);
            }
            if looked.elapsed() > LIMIT / 10 {
                looked = Instant::now();
                let late =
                    |client: &Option<Client>| client.as_ref().is_some_and(|one| one.begun.elapsed() > LIMIT);
                for place in
                    (0..self.clients.len()).filter(|&place| late(&self.clients[place])).collect::<Vec<_>>()
                {
                    self.lose(place, "no answer in time");
                    self.leave(place);
                }
            }
        }
    }

    fn lose(&mut self, place: usize, why: &str) {
        if self.lost == 0 {
            let number = self.clients[place].as_ref().expect("a taken place").number;
            eprintln!("the first that was lost, client {number}: {why}");
        }
        self.lost += 1;
    }

    fn leave(&mut self, place: usize) {
        self.clients[place] = None;
        self.free.push(place);
    }
}

enum Step {
    Waits,
    Connected(Duration),
    Answered(Duration),
}

impl Client {
    fn step(&mut self, epoll: &Epoll, place: usize) -> io::Result<Step> {
        let message = [self.number as u8; SIZE];
        if !self.connected {
            // It fails with what has come of the connection; 64 bytes fit into a socket that is new.
            self.socket.write_all(&message)?;
            self.connected = true;
            epoll.change(&self.socket, libc::EPOLLIN, place);
            return Ok(Step::Connected(self.begun.elapsed()));
        }
        let mut buffer = [0; SIZE];
        match self.socket.read(&mut buffer[self.got..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(got) if buffer[self.got..][..got] != message[..got] => {
                return Err(ErrorKind::InvalidData.into());
            }
            Ok(got) => self.got += got,
            Err(none) if none.kind() == ErrorKind::WouldBlock => {}
            Err(lost) => return Err(lost),
        }
        Ok(if self.got == SIZE { Step::Answered(self.begun.elapsed()) } else { Step::Waits })
    }
}

/// A socket that is on its way to this port.
fn connecting(port: u16, number: usize) -> io::Result<File> {
    let kind = libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: no pointers.
    let socket = match unsafe { libc::socket(libc::AF_INET, kind, 0) } {
        -1 => return Err(io::Error::last_os_error()),
        // SAFETY: new, and nobody else's.
        fd => unsafe { File::from_raw_fd(fd) },
    };
    let address = |host: usize, port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes([127, 0, 0, host as u8]) },
        sin_zero: [0; 8],
    };
    let (source, to) = (address(1 + number % SOURCES, 0), address(1, port));
    let (fd, on, length) = (socket.as_raw_fd(), 1_i32, size_of::<libc::sockaddr_in>() as libc::socklen_t);
    // SAFETY: the value is an int, and the address as long as it says; both live through their calls.
    let bound = unsafe {
        libc::setsockopt(fd, libc::IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, (&raw const on).cast(), 4) == 0
            && libc::bind(fd, (&raw const source).cast(), length) == 0
    };
    if !bound {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    match unsafe { libc::connect(fd, (&raw const to).cast(), length) } {
        0 => Ok(socket),
        _ => match io::Error::last_os_error() {
            begun if begun.raw_os_error() == Some(libc::EINPROGRESS) => Ok(socket),
            refused => Err(refused),
        },
    }
}
