//! Connecting to one of several addresses: Happy Eyeballs (RFC 8305).
//!
//! *The problem.* A name has several addresses, and one of them does not answer: a connect to that address fails after minutes,
//! while the next address would answer at once.
//!
//! *The obvious way* is a goroutine for each address. But a plain thread has no goroutines, and the caller would have to stop
//! each loser and wait for it.
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
//! R1 may take long, in the user's control function. So R4 comes before each further R1, also after a refusal, and before the
//! call gives up: a connection that was made meanwhile counts.
//!
//! The families of the addresses take turns, beginning with that of the first address. For that, up to `AHEAD` addresses are
//! taken out of the caller's iterator before the first attempt; no name has as many. An iterator that has more, or no end, is
//! asked for the next `AHEAD` when these have been tried.
//!
//! The race is a value on the caller's stack, and the winner leaves that value: whatever ends the call, also an unwinding,
//! closes all other attempts and the set. No attempt is registered in a runtime's poller; the set is, and deregisters when
//! dropped.
//!
//! *No more than `MOST` are under way.* A name server may give hundreds of addresses where nobody answers, and an attempt at
//! such an address lasts for two minutes: the attempts would fill the table of descriptors, with a stagger of zero at once, and
//! send as many packets. So one attempt more takes the place of the oldest, which had `PATIENCE` at least: with the stagger of
//! the RFC each attempt begins when it would have begun without the bound.
//!
//! * *The alternative*, to wait until one of them ends: an address that answers, behind eight that do not, would be tried after
//!   two minutes.
//!
//! *A full table of descriptors.* If there is no descriptor for the set, the caller waits for the attempt that needs it alone.
//! If there is none for the next attempt while others are under way, R1 is repeated when one of those has ended, or after
//! another stagger. The same holds for *a port of the caller's own*, which only one attempt at a time can have.
//!
//! One address, and a first address that answers at once, need no set.
//!
//! *A connect that is made at once*, as on loopback, yields once. Otherwise a goroutine that connects again and again would
//! never park, and would fill the listener's queue while the goroutine that accepts waits for the P. The kernel drops what a
//! full queue can't take, and the client's kernel sends its SYN again only after a second. An attempt that the kernel refuses
//! at its `connect` does not yield. As any `yield_now`, the yield unwinds a goroutine whose runtime has begun to end: where the
//! listener keeps up, such a goroutine waits for nothing but its turn, and would outlive its runtime.

use super::TcpStream;
use crate::goroutine::yield_now;
use crate::host::{Active, Clock};
use crate::net::desc::Direction;
use crate::net::limit::timed_out;
use crate::net::socket::Socket;
use crate::net::sys;
use crate::net::{check_contexts, is_canceled};
use crate::sched::Sched;
use gmp_timers::Nanos;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{self, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;
use std::vec;

/// How long the caller waits for an attempt before the next one begins, as RFC 8305 recommends.
pub(in crate::net) const STAGGER: Duration = Duration::from_millis(250);

/// How many attempts are under way at once. Resolvers put the addresses that they think best in front.
const MOST: usize = 8;

/// How long an attempt lasts at least before it makes way for another one: `MOST` staggers. By then the kernel has asked twice.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many addresses are taken out of the caller's iterator at once.
const AHEAD: usize = 4096;

/// How many refusals the error of a call names, of the first ones and of the last ones: an iterator may have no end.
const NAMED: usize = 64;

/// The time that a call has.
#[derive(Copy, Clone)]
pub(in crate::net) struct Pace {
    pub(in crate::net) stagger: Duration,
    pub(in crate::net) until: Option<Nanos>,
}

impl Pace {
    /// The pace of the RFC, until `until` at most.
    pub(in crate::net) fn until(until: Option<Nanos>) -> Self {
        Pace { stagger: STAGGER, until }
    }

    fn is_over(self) -> bool {
        self.until.is_some_and(|until| until <= Active::now())
    }
}

/// Makes a socket and begins to connect.
pub(in crate::net) type Begin<'a> = &'a mut dyn FnMut(&SocketAddr) -> Result<OwnedFd, NotBegun>;

/// An attempt that was refused before it was under way.
pub(in crate::net) struct NotBegun {
    pub(in crate::net) why: io::Error,
    /// Whether the attempt can begin when another one has ended, which holds the last descriptor or the caller's own port.
    pub(in crate::net) for_want_of_room: bool,
}

impl From<io::Error> for NotBegun {
    /// Only an error of the kernel's own is a want of room: a function of the user's may refuse an address by an error of any
    /// kind.
    fn from(why: io::Error) -> Self {
        let room = [libc::EMFILE, libc::ENFILE, libc::EADDRINUSE];
        NotBegun { for_want_of_room: why.raw_os_error().is_some_and(|code| room.contains(&code)), why }
    }
}

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
        None => finish(begin(&first).map_err(|not_begun| not_begun.why)?.into(), pace.until),
        Some(second) => {
            let mut addrs = [first, second].into_iter().chain(addrs).fuse();
            Race::new(&mut addrs, pace, begin).run()
        }
    }
}

/// Waits until `stream`, whose connect has begun, is connected.
fn finish(stream: net::TcpStream, until: Option<Nanos>) -> io::Result<TcpStream> {
    let (stream, mut asked) = (TcpStream(Socket::new(stream)), 0);
    let ended = stream.0.run_until(Direction::Write, until, |stream| {
        asked += 1;
        answer(stream)
    });
    // Otherwise the goroutine has parked, or a limit or a context has ended the wait.
    if asked == 1 && ended.is_ok() {
        give_turn();
    }
    ended.map(|()| stream)
}

/// Yields, and unwinds if the caller's runtime has begun to end. A plain thread leaves the choice to the kernel.
fn give_turn() {
    if Sched::<Active>::current().is_some() {
        yield_now();
    }
}

/// Returns how the connect of `stream` has ended; `WouldBlock` if it goes on.
fn answer(stream: &net::TcpStream) -> io::Result<()> {
    // On loopback the connection is mostly made at once, and then its connect has left no error.
    let not_yet = match stream.peer_addr() {
        // The kernel has chosen the port to connect to as the caller's own port, so the stream is connected to itself: nobody
        // listens there.
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

/// Returns `true` if a wait has ended because its time was over, and not by a context.
fn is_over(ended: &io::Error) -> bool {
    ended.kind() == ErrorKind::TimedOut && ended.raw_os_error().is_none() && !is_canceled(ended)
}

/// The addresses that have failed. Keeps `NAMED` of the first ones and as many of the last ones.
#[derive(Debug, Default)]
struct Refusals {
    first: Vec<(SocketAddr, io::Error)>,
    /// How many came between `first` and `last`.
    between: usize,
    last: VecDeque<(SocketAddr, io::Error)>,
    /// Has decided among those that came between.
    decisive: Option<io::Error>,
}

impl Refusals {
    fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    fn add(&mut self, addr: SocketAddr, refused: io::Error) {
        if self.first.len() < NAMED {
            return self.first.push((addr, refused));
        }
        self.last.push_back((addr, refused));
        if self.last.len() > NAMED
            && let Some((_, refused)) = self.last.pop_front()
        {
            self.between += 1;
            if was_asked(&refused) {
                self.decisive = Some(refused);
            }
        }
    }

    /// Returns the last refusal of an address that was asked; if none was, the last refusal of an address that could not be
    /// asked, such as one of another family than the caller's own address.
    fn decisive(&self) -> Option<&io::Error> {
        let last = self.last.iter().rev().map(|refused| &refused.1);
        let all = last.clone().chain(&self.decisive).chain(self.first.iter().rev().map(|refused| &refused.1));
        let mut asked = all.clone().filter(|refused| was_asked(refused));
        asked.next().or(all.clone().next())
    }
}

fn was_asked(refused: &io::Error) -> bool {
    refused.kind() != ErrorKind::InvalidInput
}

/// An attempt that is under way.
struct Attempt {
    addr: SocketAddr,
    stream: net::TcpStream,
    /// From then on the attempt may make way for another one.
    patience: Nanos,
}

/// The attempts of one call.
struct Race<'a> {
    /// The caller's iterator, which goes on returning `None` at its end.
    addrs: &'a mut dyn Iterator<Item = SocketAddr>,
    /// The addresses that were taken out of `addrs`, by turns.
    untried: vec::IntoIter<SocketAddr>,
    pace: Pace,
    begin: Begin<'a>,
    /// The attempts that are under way, by their keys in the set: in the order in which they began.
    attempts: BTreeMap<u64, Attempt>,
    next_key: u64,
    refused: Refusals,
    /// Made for the first attempt that does not end at once.
    set: Option<Socket<OwnedFd>>,
}

/// The next step. A single value on the stack, never stored.
#[expect(clippy::large_enum_variant)]
enum Step {
    Done(TcpStream),
    Begin,
    /// Look at the attempts that are under way, and begin the next one if nothing has happened to them.
    Look,
    /// Wait for the attempts that are under way, at most until then.
    Wait(Option<Nanos>),
}

impl<'a> Race<'a> {
    fn new(addrs: &'a mut dyn Iterator<Item = SocketAddr>, pace: Pace, begin: Begin<'a>) -> Self {
        let untried = Vec::new().into_iter();
        let (attempts, refused) = (BTreeMap::new(), Refusals::default());
        Race { addrs, untried, pace, begin, attempts, next_key: 0, refused, set: None }
    }

    fn run(mut self) -> io::Result<TcpStream> {
        let mut step = Step::Begin;
        loop {
            step = match step {
                Step::Done(stream) => return Ok(stream),
                Step::Begin => self.begin_next()?,
                Step::Look => self.look()?,
                Step::Wait(due) => self.wait(due)?,
            }
        }
    }

    fn is_under_way(&self) -> bool {
        !self.attempts.is_empty()
    }

    /// Returns the next address to try, which stays.
    fn next_untried(&mut self) -> Option<SocketAddr> {
        if self.untried.as_slice().is_empty() {
            self.untried = by_turns((&mut *self.addrs).take(AHEAD).collect()).into_iter();
        }
        self.untried.as_slice().first().copied()
    }

    /// R1 and R2.
    fn begin_next(&mut self) -> io::Result<Step> {
        let Some(addr) = self.next_untried() else {
            if self.is_under_way() {
                return Ok(Step::Wait(None));
            }
            // The context may have ended a wait of the control function for the last address.
            check_contexts()?;
            return Err(self.failure(Failed::Refused));
        };
        if self.pace.is_over() {
            return Err(self.failure(Failed::TooLate(None)));
        }
        if !self.refused.is_empty() {
            // If each address refuses at once, the call never waits, and only this look sees that a context is done.
            check_contexts()?;
        }
        if let Err(until) = self.make_way() {
            return Ok(Step::Wait(Some(until)));
        }
        let begun = (self.begin)(&addr);
        if begun.as_ref().is_err_and(|not_begun| not_begun.for_want_of_room) && self.is_under_way() {
            // Not the caller's stagger, which may be zero.
            return Ok(Step::Wait(Some(Active::after(STAGGER))));
        }
        self.untried.next();
        match begun.map(net::TcpStream::from) {
            Ok(stream) => match answer(&stream) {
                Err(not_yet) if not_yet.kind() == ErrorKind::WouldBlock => self.enter(addr, stream),
                answered => {
                    give_turn();
                    Ok(self.judge(addr, stream, answered))
                }
            },
            Err(not_begun) => Ok(self.refuse(addr, not_begun.why)),
        }
    }

    /// Ends the oldest attempt if `MOST` are under way; the error says until when that attempt has time.
    fn make_way(&mut self) -> Result<(), Nanos> {
        if self.attempts.len() < MOST {
            return Ok(());
        }
        let oldest = self.attempts.first_entry().expect("make_way: some are under way");
        if oldest.get().patience > Active::now() {
            return Err(oldest.get().patience);
        }
        let addr = oldest.remove().addr;
        self.refused.add(addr, made_way());
        Ok(())
    }

    fn judge(&mut self, addr: SocketAddr, stream: net::TcpStream, answered: io::Result<()>) -> Step {
        match answered {
            Ok(()) => Step::Done(TcpStream(Socket::new(stream))),
            Err(refused) => self.refuse(addr, refused),
        }
    }

    fn refuse(&mut self, addr: SocketAddr, refused: io::Error) -> Step {
        self.refused.add(addr, refused);
        Step::Look
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
        let key = self.next_key;
        let added = set.with(|set| sys::add_to_set(set.as_fd(), stream.as_fd(), Direction::Write, key));
        if let Err(refused) = added {
            return Ok(self.refuse(addr, refused));
        }
        self.next_key += 1;
        self.attempts.insert(key, Attempt { addr, stream, patience: Active::after(PATIENCE) });
        let more = self.next_untried().is_some();
        Ok(Step::Wait(more.then(|| Active::after(self.pace.stagger))))
    }

    /// Waits for the only attempt that is under way, without a set.
    fn alone(&mut self, addr: SocketAddr, stream: net::TcpStream) -> io::Result<Step> {
        match finish(stream, self.pace.until) {
            Ok(stream) => Ok(Step::Done(stream)),
            // The kernel's error: the address has failed, rather than the wait was ended.
            Err(refused) if refused.raw_os_error().is_some() => Ok(self.refuse(addr, refused)),
            Err(over) if is_over(&over) => Err(self.failure(Failed::TooLate(Some(addr)))),
            Err(ended) => Err(ended),
        }
    }

    /// R3 and R4: waits for an event in the set, at most until `due`.
    fn wait(&mut self, due: Option<Nanos>) -> io::Result<Step> {
        let set = self.set.as_ref().expect("wait: an attempt is under way, and in the set");
        let end = due.into_iter().chain(self.pace.until).min();
        match set.run_until(Direction::Read, end, |set| sys::take_from_set(set.as_fd())) {
            Ok(key) => Ok(self.take(key, Step::Wait(due))),
            // If the time was over before the wait, the set was not looked at.
            Err(over) if is_over(&over) => self.look(),
            Err(ended) => Err(ended),
        }
    }

    /// R4, without a wait.
    fn look(&mut self) -> io::Result<Step> {
        let look = |set: &Socket<OwnedFd>| set.with(|set| sys::take_from_set(set.as_fd())).ok();
        match self.set.as_ref().and_then(look) {
            Some(key) => Ok(self.take(key, Step::Look)),
            None if self.is_under_way() && self.pace.is_over() => Err(self.failure(Failed::TooLate(None))),
            None => Ok(Step::Begin),
        }
    }

    /// Takes an event of the attempt with this key. Returns the next step, which is `after` if the attempt goes on.
    fn take(&mut self, key: u64, after: Step) -> Step {
        // A closed descriptor stays in the set while a child of this process, between fork and exec, has a copy of it.
        let Some(attempt) = self.attempts.remove(&key) else {
            return after;
        };
        match answer(&attempt.stream) {
            Err(not_yet) if not_yet.kind() == ErrorKind::WouldBlock => {
                self.attempts.insert(key, attempt);
                after
            }
            answered => self.judge(attempt.addr, attempt.stream, answered),
        }
    }

    /// Returns the error of the whole call, which says what became of the addresses: of those that were refused, the first
    /// `NAMED` and the last `NAMED`.
    #[cold]
    fn failure(&mut self, how: Failed) -> io::Error {
        let (kind, alone) = match how {
            Failed::Refused => (self.refused.decisive().map_or(ErrorKind::Other, io::Error::kind), None),
            Failed::TooLate(alone) => (ErrorKind::TimedOut, alone),
        };
        let under_way = self.attempts.values().map(|attempt| attempt.addr).chain(alone).collect();
        let untried = std::mem::take(&mut self.untried).collect();
        let refused = std::mem::take(&mut self.refused);
        io::Error::new(kind, NoAnswer { refused, under_way, untried })
    }
}

#[cold]
fn made_way() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer, so it has made way for another address")
}

/// Why the call has failed.
enum Failed {
    Refused,
    /// The time is over. The address is that of the attempt that is not in the set, if there is one.
    TooLate(Option<SocketAddr>),
}

/// What became of the addresses of a call that has failed.
#[derive(Debug)]
struct NoAnswer {
    refused: Refusals,
    under_way: Vec<SocketAddr>,
    untried: Vec<SocketAddr>,
}

impl fmt::Display for NoAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all_refused = self.under_way.is_empty() && self.untried.is_empty();
        f.write_str(if all_refused {
            "connect: every address failed"
        } else {
            "connect: the time limit has passed"
        })?;
        let Refusals { first, between, last, .. } = &self.refused;
        first.iter().try_for_each(|(addr, refused)| write!(f, "; {addr}: {refused}"))?;
        if *between > 0 {
            write!(f, "; {between} more failed")?;
        }
        last.iter().try_for_each(|(addr, refused)| write!(f, "; {addr}: {refused}"))?;
        self.under_way.iter().try_for_each(|addr| write!(f, "; {addr}: no answer"))?;
        self.untried.iter().try_for_each(|addr| write!(f, "; {addr}: not tried"))
    }
}

impl Error for NoAnswer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.refused.decisive().map(|refused| refused as _)
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
