//! The upstream resolver: asks it, and checks that an answer is its own.

use super::message::{Answer, Heard, Key};
use gmp::net::{TcpStream, UdpSocket};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Longer than the length that we announce, as not every server respects that.
const MOST_ANSWER: usize = 4 << 10;
/// So many messages that are not the answer are an attacker's guesses: then the question is asked over TCP, which can't be
/// guessed.
const MOST_STRANGE: u32 = 20;

pub struct Upstream {
    pub addr: SocketAddr,
    /// The limit of one try.
    pub timeout: Duration,
    pub tries: usize,
    /// How many messages were rejected.
    pub strange: AtomicU64,
}

/// Returns a number that nobody can guess.
fn random() -> io::Result<u16> {
    let mut number = [0; 2];
    // SAFETY: the kernel writes two bytes.
    match unsafe { libc::getrandom(number.as_mut_ptr().cast(), number.len(), 0) } {
        2 => Ok(u16::from_ne_bytes(number)),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Upstream {
    /// Blocks the goroutine until the answer is there, or all tries have failed.
    pub fn ask(&self, key: &Key) -> io::Result<Answer> {
        for edns in [true, false] {
            match self.over_udp(key, edns)? {
                Heard::Answer(answer) => return Ok(answer),
                Heard::WithoutEdns => {}
                Heard::Truncated | Heard::Strange => return self.over_tcp(key, edns),
            }
        }
        Err(io::Error::new(ErrorKind::InvalidData, "it does not understand the question"))
    }

    /// Each question has a socket of its own, and so a port that the kernel has chosen. The socket is connected: the kernel
    /// drops datagrams from elsewhere.
    fn over_udp(&self, key: &Key, edns: bool) -> io::Result<Heard> {
        let any = match self.addr {
            SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
            SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(self.addr)?;
        let id = random()?;
        let query = key.query(id, edns);
        let mut buffer = vec![0; MOST_ANSWER];
        let (mut failed, mut strange) = (io::Error::from(ErrorKind::TimedOut), 0);
        for _ in 0..self.tries {
            // With one id for all tries, a late answer to an earlier try is an answer.
            socket.set_read_deadline(Some(Instant::now() + self.timeout))?;
            let mut heard = socket.send(&query).and_then(|_| socket.recv(&mut buffer));
            failed = loop {
                match heard {
                    Ok(length) => match Heard::of(&buffer[..length], key, id, edns) {
                        Heard::Strange => {
                            self.strange.fetch_add(1, Relaxed);
                            strange += 1;
                            if strange == MOST_STRANGE {
                                return Ok(Heard::Strange);
                            }
                        }
                        heard => return Ok(heard),
                    },
                    // No socket has the port, perhaps for a moment; or there was no answer.
                    Err(none)
                        if matches!(none.kind(), ErrorKind::ConnectionRefused | ErrorKind::TimedOut) =>
                    {
                        break none;
                    }
                    Err(broken) => return Err(broken),
                }
                heard = socket.recv(&mut buffer);
            };
        }
        Err(failed)
    }

    fn over_tcp(&self, key: &Key, edns: bool) -> io::Result<Answer> {
        let mut stream = TcpStream::connect_timeout(&self.addr, self.timeout)?;
        stream.set_deadline(Some(Instant::now() + self.timeout))?;
        let id = random()?;
        write_message(&mut stream, &key.query(id, edns))?;
        match Heard::of(&read_message(&mut stream)?, key, id, false) {
            Heard::Answer(answer) => Ok(answer),
            _ => {
                self.strange.fetch_add(1, Relaxed);
                Err(io::Error::new(ErrorKind::InvalidData, "what it says over TCP is not the answer"))
            }
        }
    }
}

/// A message over TCP has its length before it.
pub fn read_message(stream: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    stream.read_exact(&mut message)?;
    Ok(message)
}

/// Writes a message in one piece: two segments would wait for each other.
pub fn write_message(stream: &mut impl Write, message: &[u8]) -> io::Result<()> {
    let length = u16::try_from(message.len()).expect("an answer or query is made to fit");
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}
