//! Connecting to one of several addresses: Happy Eyeballs (RFC 8305).
//!
//! *The problem.* A name has several addresses, and one of them does not answer: a connect to that address ends after
//! minutes, while the next address would answer at once.
//!
//! *The obvious way* is a goroutine for each address. A plain thread has no goroutines, and each loser would have to be
//! stopped and waited for.
//!
//! *Here* every attempt is a descriptor of the caller's. The descriptors are in a *set*, an epoll descriptor of this call,
//! and the caller waits for the set as for any socket: a goroutine in its runtime's poller, a plain thread in `poll(2)`.
//!
//! ```text
//!   R1  begin an attempt at the next address; refused: note that, and the next one
//!   R2  has the kernel answered already? the winner
//!   R3  put the descriptor into the set, and wait for an event there: at most for the stagger if there is a next address
//!   R4  the stagger is over: R1 · an attempt was refused: close it, R1 · an attempt is connected: the winner
//! ```
//! The families of the addresses take turns, beginning with that of the first address. The race is a value on the caller's
//! stack, and the winner leaves that value: whatever ends the call, also an unwinding, closes all other attempts and the
//! set. No attempt is registered in a runtime's poller; the set is, and deregisters when it is dropped.
//!
//! *A full table of descriptors.* If there is no descriptor for the set, the attempt that needs it is waited for alone. If
//! there is none for the next attempt while others are under way, R1 is repeated when one of those has ended, or after
//! another stagger.
//!
//! One address, and a first address that answers at once, need no set.

use super::TcpStream;
use crate::context::ContextError;
use crate::host::{Active, Clock};
use crate::net::desc::Direction;
use crate::net::limit::timed_out;
use crate::net::socket::Socket;
use crate::net::sys;
use gmp_timers::Nanos;
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::vec;

/// How long an attempt is waited for before the next one begins, as RFC 8305 recommends.
pub(in crate::net) const STAGGER: Duration = Duration::from_millis(250);

/// The time that a call has.
#[derive(Copy, Clone)]
pub(in crate::net) struct Pace {
    pub(in crate::net) stagger: Duration,
    pub(in crate::net) until: Option<Nanos>,
}

impl Pace {
    /// As the RFC has it, and no longer than `until`.
    pub(in crate::net) fn until(until: Option<Nanos>) -> Self {
        Pace { stagger: STAGGER, until }
    }

    fn is_over(self) -> bool {
        self.until.is_some_and(|until| until <= Active::now())
    }
}

/// Makes a socket and begins to connect.
pub(in crate::net) type Begin<'a> = &'a mut dyn FnMut(&SocketAddr) -> io::Result<OwnedFd>;

/// Connects to the first of `addrs` that answers. One address costs no more than its connect, and has the kernel's error.
pub(in crate::net) fn connect(
    addrs: &mut dyn Iterator<Item = SocketAddr>,
    pace: Pace,
    begin: Begin<'_>,
) -> io::Result<TcpStream> {
    let Some(first) = addrs.next() else {
        return Err(io::Error::new(ErrorKind::InvalidInput, "connect: no address to try"));
    };
    match addrs.next() {
        None if pace.is_over() => Err(timed_out()),
        None => finish(begin(&first)?.into(), pace.until),
        Some(second) => {
            let addrs = [first, second].into_iter().chain(addrs).collect();
            Race::new(by_turns(addrs), pace, begin).run()
        }
    }
}

/// Waits until `stream`, whose connect has begun, is connected.
fn finish(stream: net::TcpStream, until: Option<Nanos>) -> io::Result<TcpStream> {
    let stream = TcpStream(Socket::new(stream));
    stream.0.run_until(Direction::Write, until, answer)?;
    Ok(stream)
}

/// Returns how the connect of `stream` has ended; `WouldBlock` if it has not.
fn answer(stream: &net::TcpStream) -> io::Result<()> {
    // On loopback the connection is mostly made at once. One that is made has no error of its connect.
    let not_yet = match stream.peer_addr() {
        // The kernel has taken the port that was asked for as the caller's own, and so the stream is connected to itself:
        // nobody listens there.
        Ok(peer) if stream.local_addr()? == peer => {
            return Err(io::Error::from_raw_os_error(libc::ECONNREFUSED));
        }
        Ok(_) => return Ok(()),
        Err(not_yet) => not_yet,
    };
    if not_yet.kind() != ErrorKind::NotConnected {
        return Err(not_yet);
    }
    match stream.take_error()? {
        Some(refused) => Err(refused),
        None => Err(ErrorKind::WouldBlock.into()),
    }
}

/// Orders the addresses so that the families take turns; within a family the order stays.
fn by_turns(addrs: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let count = addrs.len();
    let first = addrs.first().map(SocketAddr::is_ipv4);
    let (same, other): (Vec<_>, Vec<_>) = addrs.into_iter().partition(|addr| Some(addr.is_ipv4()) == first);
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    let mut ordered = Vec::with_capacity(count);
    while ordered.len() < count {
        ordered.extend(same.next());
        ordered.extend(other.next());
    }
    ordered
}

/// Returns `true` if there is no descriptor left.
fn is_full(refused: &io::Error) -> bool {
    matches!(refused.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

/// Returns `true` if the time of a wait is over, and it was not a context that ended the wait.
fn is_over(ended: &io::Error) -> bool {
    let by_a_context = || ended.get_ref().is_some_and(|why| why.is::<ContextError>());
    ended.kind() == ErrorKind::TimedOut && ended.raw_os_error().is_none() && !by_a_context()
}

/// Returns the last refusal of an address that was asked; if none was, the last refusal of an address that could not be asked,
/// such as one of another family than the caller's own address.
fn decisive(refused: &[(SocketAddr, io::Error)]) -> Option<&io::Error> {
    let asked = |refused: &&(SocketAddr, io::Error)| refused.1.kind() != ErrorKind::InvalidInput;
    refused.iter().rfind(asked).or(refused.last()).map(|refused| &refused.1)
}

/// The attempts of one call.
struct Race<'a> {
    untried: vec::IntoIter<SocketAddr>,
    pace: Pace,
    begin: Begin<'a>,
    /// Those that are under way, by their keys in the set.
    attempts: Vec<Option<(SocketAddr, net::TcpStream)>>,
    refused: Vec<(SocketAddr, io::Error)>,
    /// Made for the first attempt that has to be waited for.
    set: Option<Socket<OwnedFd>>,
}

/// What comes next. One value on the stack, which is never stored.
#[expect(clippy::large_enum_variant)]
enum Step {
    Done(TcpStream),
    Begin,
    /// Wait for what is under way, at most until then.
    Wait(Option<Nanos>),
}

impl<'a> Race<'a> {
    fn new(addrs: Vec<SocketAddr>, pace: Pace, begin: Begin<'a>) -> Self {
        Race { untried: addrs.into_iter(), pace, begin, attempts: Vec::new(), refused: Vec::new(), set: None }
    }

    fn run(mut self) -> io::Result<TcpStream> {
        let mut step = Step::Begin;
        loop {
            step = match step {
                Step::Done(stream) => return Ok(stream),
                Step::Begin => self.begin_next()?,
                Step::Wait(due) => self.wait(due)?,
            }
        }
    }

    fn is_under_way(&self) -> bool {
        self.attempts.iter().any(Option::is_some)
    }

    fn is_too_late(&self) -> bool {
        self.pace.is_over()
    }

    /// R1 and R2.
    fn begin_next(&mut self) -> io::Result<Step> {
        let Some(&addr) = self.untried.as_slice().first() else {
            return match self.is_under_way() {
                true => Ok(Step::Wait(None)),
                false => Err(self.failure(Failed::Refused)),
            };
        };
        if self.is_too_late() {
            return Err(self.failure(Failed::TooLate(None)));
        }
        let begun = (self.begin)(&addr);
        if begun.as_ref().is_err_and(is_full) && self.is_under_way() {
            // Not the caller's stagger, which may be zero.
            return Ok(Step::Wait(Some(Active::now().saturating_add(STAGGER))));
        }
        self.untried.next();
        match begun.map(net::TcpStream::from) {
            Ok(stream) => match answer(&stream) {
                Err(not_yet) if not_yet.kind() == ErrorKind::WouldBlock => self.enter(addr, stream),
                answered => Ok(self.judge(addr, stream, answered)),
            },
            Err(refused) => Ok(self.refuse(addr, refused)),
        }
    }

    fn judge(&mut self, addr: SocketAddr, stream: net::TcpStream, answered: io::Result<()>) -> Step {
        match answered {
            Ok(()) => Step::Done(TcpStream(Socket::new(stream))),
            Err(refused) => self.refuse(addr, refused),
        }
    }

    fn refuse(&mut self, addr: SocketAddr, refused: io::Error) -> Step {
        self.refused.push((addr, refused));
        Step::Begin
    }

    /// R3: puts an attempt into the set, which is made if there is none.
    fn enter(&mut self, addr: SocketAddr, stream: net::TcpStream) -> io::Result<Step> {
        let set = match &self.set {
            Some(set) => set,
            None => match sys::new_set() {
                Ok(set) => self.set.insert(Socket::new(set)),
                Err(_no_set) => return self.alone(addr, stream),
            },
        };
        let key = self.attempts.len();
        if let Err(refused) =
            set.with(|set| sys::add_to_set(set.as_fd(), stream.as_fd(), Direction::Write, key as u64))
        {
            return Ok(self.refuse(addr, refused));
        }
        self.attempts.push(Some((addr, stream)));
        let more = !self.untried.as_slice().is_empty();
        Ok(Step::Wait(more.then(|| Active::now().saturating_add(self.pace.stagger))))
    }

    /// Waits for the only attempt that is under way, without a set.
    fn alone(&mut self, addr: SocketAddr, stream: net::TcpStream) -> io::Result<Step> {
        match finish(stream, self.pace.until) {
            Ok(stream) => Ok(Step::Done(stream)),
            // The kernel's, so it is the address that failed, and not the wait that was ended.
            Err(refused) if refused.raw_os_error().is_some() => Ok(self.refuse(addr, refused)),
            Err(over) if is_over(&over) => Err(self.failure(Failed::TooLate(Some(addr)))),
            Err(ended) => Err(ended),
        }
    }

    /// R3 and R4: waits for an event in the set, at most until `due`.
    fn wait(&mut self, due: Option<Nanos>) -> io::Result<Step> {
        let set = self.set.as_ref().expect("wait: an attempt is under way, and in the set");
        let end = due.into_iter().chain(self.pace.until).min();
        let key = match set.run_until(Direction::Read, end, |set| sys::take_from_set(set.as_fd())) {
            Ok(key) => key as usize,
            Err(over) if is_over(&over) => {
                return match self.is_too_late() {
                    true => Err(self.failure(Failed::TooLate(None))),
                    false => Ok(Step::Begin),
                };
            }
            Err(ended) => return Err(ended),
        };
        // A descriptor that was closed may be in the set while a child of this process, between fork and exec, has it too.
        let Some((addr, stream)) = self.attempts[key].take() else {
            return Ok(Step::Wait(due));
        };
        match answer(&stream) {
            Err(not_yet) if not_yet.kind() == ErrorKind::WouldBlock => {
                self.attempts[key] = Some((addr, stream));
                Ok(Step::Wait(due))
            }
            answered => Ok(self.judge(addr, stream, answered)),
        }
    }

    /// Returns the error of the whole call, which says what became of each address.
    #[cold]
    fn failure(&mut self, how: Failed) -> io::Error {
        let (kind, alone) = match how {
            Failed::Refused => (decisive(&self.refused).map_or(ErrorKind::Other, io::Error::kind), None),
            Failed::TooLate(alone) => (ErrorKind::TimedOut, alone),
        };
        let under_way = self.attempts.iter().flatten().map(|attempt| attempt.0).chain(alone).collect();
        let untried = std::mem::take(&mut self.untried).collect();
        let refused = std::mem::take(&mut self.refused);
        io::Error::new(kind, NoAnswer { refused, under_way, untried })
    }
}

/// Why no attempt is waited for any more.
enum Failed {
    Refused,
    /// The time is over; with the attempt that is not in the set.
    TooLate(Option<SocketAddr>),
}

/// What became of each address of a call that has failed.
#[derive(Debug)]
struct NoAnswer {
    refused: Vec<(SocketAddr, io::Error)>,
    under_way: Vec<SocketAddr>,
    untried: Vec<SocketAddr>,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all_refused = self.under_way.is_empty() && self.untried.is_empty();
        f.write_str(if all_refused { "connect: every address failed" } else { "connect: the time is over" })?;
        self.refused.iter().try_for_each(|(addr, refused)| write!(f, "; {addr}: {refused}"))?;
        self.under_way.iter().try_for_each(|addr| write!(f, "; {addr}: no answer"))?;
        self.untried.iter().try_for_each(|addr| write!(f, "; {addr}: not tried"))
    }
}

impl Error for NoAnswer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        decisive(&self.refused).map(|refused| refused as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered(addrs: &[&str]) -> Vec<String> {
        by_turns(addrs.iter().map(|addr| addr.parse().unwrap()).collect())
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn families_take_turns_and_keep_their_order() {
        assert_eq!(
            ordered(&["[::1]:1", "[::2]:1", "[::3]:1", "1.0.0.1:1", "1.0.0.2:1"]),
            ["[::1]:1", "1.0.0.1:1", "[::2]:1", "1.0.0.2:1", "[::3]:1"]
        );
        assert_eq!(ordered(&["1.0.0.1:1", "1.0.0.2:1", "[::1]:1"]), ["1.0.0.1:1", "[::1]:1", "1.0.0.2:1"]);
        assert_eq!(ordered(&["1.0.0.2:1", "1.0.0.1:1"]), ["1.0.0.2:1", "1.0.0.1:1"]);
        assert!(ordered(&[]).is_empty());
    }
}
