//! Reading a child's output, from both of its streams at once.
//!
//! *The problem.* A child whose output is not read waits for room in a pipe, and keeps the other pipe open: a reader that reads
//! one pipe to the end first may wait for ever.
//!
//! *The obvious way* is a second goroutine, or a second thread, for the second pipe. A context or an unwinding that ends the
//! caller's wait would have to end the second one's wait, too; and the system may refuse a second thread.
//!
//! *Here* the caller waits for a set, as a dial of several addresses does: an epoll descriptor of this call that has both
//! pipes. The set reports an event of a pipe once, so a pipe counts as ready from its event until it has nothing to read.
//!
//! *A pipe without an end.* A process that the child has started may have the pipes, too, and keep them open for as long as it
//! likes. With a delay (`Command::wait_delay`) the set has the child's pidfd as well:
//!
//! ```text
//!   D1  the child has ended: from now on the time runs
//!   D2  ask how many bytes each pipe holds; the child has written none behind these
//!   D3  read on, as before D1, until both pipes have ended or the time is over
//!   D4  read what is left of the bytes of D2
//! ```

use super::{ChildStderr, ChildStdout};
use crate::host::{Active, Clock};
use crate::net::desc::Direction;
use crate::net::limit::Begun;
use crate::net::methods::with_a_frame;
use crate::net::socket::Socket;
use crate::net::{check_contexts, is_canceled, sys};
use gmp_timers::Nanos;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// As much as a pipe mostly holds.
const PART: usize = 64 << 10;

/// The members of the set.
const STDOUT: u64 = 0;
const STDERR: u64 = 1;
const CHILD: u64 = 2;

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Now {
    Ready,
    Waits,
    Ended,
}

/// A pipe, and what was read from it.
struct Reader<S: AsFd> {
    /// `None` if the child has no such pipe, which then counts as ended.
    pipe: Option<Socket<S>>,
    bytes: Vec<u8>,
    now: Now,
    /// How many of the bytes of D2 are still to be read.
    owed: usize,
}

impl<S: AsFd> Reader<S> {
    fn new(pipe: Option<Socket<S>>, set: &Socket<OwnedFd>, key: u64) -> io::Result<Self> {
        if let Some(pipe) = &pipe {
            add(set, pipe, key)?;
        }
        let now = if pipe.is_some() { Now::Ready } else { Now::Ended };
        Ok(Reader { pipe, bytes: Vec::new(), now, owed: 0 })
    }

    /// Makes one read, if there may be bytes.
    fn read(&mut self, part: &mut [u8]) -> io::Result<()> {
        let Some(pipe) = self.pipe.as_ref().filter(|_| self.now == Now::Ready) else { return Ok(()) };
        match pipe.with(|pipe| sys::read(pipe.as_fd(), part)) {
            Ok(0) => (self.now, self.owed) = (Now::Ended, 0),
            Ok(read) => {
                self.owed = self.owed.saturating_sub(read);
                append(&mut self.bytes, &part[..read])?;
            }
            Err(nothing) if nothing.kind() == ErrorKind::WouldBlock => {
                (self.now, self.owed) = (Now::Waits, 0);
            }
            Err(signal) if signal.kind() == ErrorKind::Interrupted => {}
            Err(refused) => return Err(refused),
        }
        Ok(())
    }

    /// Returns the limits of a wait for the pipe.
    fn limits(&self) -> Begun {
        match &self.pipe {
            Some(pipe) if self.now != Now::Ended => pipe.limits_of_a_read(),
            _ => Begun::until(None),
        }
    }

    /// An event has come: the other end has written, or is closed.
    fn comes(&mut self) {
        if self.now == Now::Waits {
            self.now = Now::Ready;
        }
    }

    /// D2.
    fn child_ends(&mut self) {
        if let Some(pipe) = self.pipe.as_ref().filter(|_| self.now != Now::Ended) {
            // What is no pipe or socket, and came here by `From`, may refuse the question.
            self.owed = pipe.with(|pipe| sys::unread(pipe.as_fd())).unwrap_or(0);
            self.comes();
        }
    }
}

fn add<S: AsFd>(set: &Socket<OwnedFd>, member: &Socket<S>, key: u64) -> io::Result<()> {
    member.with(|member| set.with(|set| sys::add_to_set(set.as_fd(), member.as_fd(), Direction::Read, key)))
}

fn append(bytes: &mut Vec<u8>, part: &[u8]) -> io::Result<()> {
    bytes.try_reserve(part.len())?;
    bytes.extend_from_slice(part);
    Ok(())
}

/// Reads a pipe, if there is one, to its end.
fn read_one(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let Some(mut pipe) = pipe else { return Ok(bytes) };
    let mut part = vec![0; PART];
    loop {
        // If the child always has more output, the caller never waits.
        check_contexts()?;
        match pipe.read(&mut part)? {
            0 => return Ok(bytes),
            read => append(&mut bytes, &part[..read])?,
        }
    }
}

/// Reads both pipes to their ends. If `delay` is the child's pidfd and a time, at most until that time after the child's end.
pub(super) fn read(
    (stdout, stderr): (Option<ChildStdout>, Option<ChildStderr>),
    delay: Option<(&Socket<OwnedFd>, Duration)>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    match (stdout, stderr) {
        (None, None) => Ok((Vec::new(), Vec::new())),
        (stdout @ Some(_), None) if delay.is_none() => Ok((read_one(stdout)?, Vec::new())),
        (None, stderr @ Some(_)) if delay.is_none() => Ok((Vec::new(), read_one(stderr)?)),
        (stdout, stderr) => read_by_set(stdout, stderr, delay),
    }
}

/// The earlier deadline ends calls; the shorter timeout begins anew with each wait.
fn read_by_set(
    stdout: Option<ChildStdout>,
    stderr: Option<ChildStderr>,
    delay: Option<(&Socket<OwnedFd>, Duration)>,
) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let set = sys::new_set().map_err(|refused| {
        io::Error::new(
            refused.kind(),
            format!("wait_with_output: no descriptor to wait for the pipes: {refused}"),
        )
    })?;
    let set = Socket::new(set);
    let mut out = Reader::new(stdout.map(|it| it.0), &set, STDOUT)?;
    let mut err = Reader::new(stderr.map(|it| it.0), &set, STDERR)?;
    if let Some((child, _)) = delay {
        add(&set, child, CHILD)?;
    }
    let mut part = vec![0; PART];
    // Set by D1.
    let mut end: Option<Nanos> = None;
    let mut is_over = false;
    loop {
        // If the child always has more output, the caller never waits.
        check_contexts()?;
        out.read(&mut part)?;
        err.read(&mut part)?;
        let now = [out.now, err.now];
        if now == [Now::Ended; 2] || is_over && out.owed == 0 && err.owed == 0 {
            return Ok((out.bytes, err.bytes));
        }
        let limits = out.limits().and(err.limits());
        // Called even if more can be read at once: a deadline ends that, too. A timeout ends waits alone.
        let came = with_a_frame(set.run_within((Direction::Read, limits.and(Begun::until(end))), |set| {
            match sys::take_from_set(set.as_fd()) {
                Err(none) if none.kind() == ErrorKind::WouldBlock && now.contains(&Now::Ready) => Ok(None),
                came => came.map(Some),
            }
        }));
        match came {
            Ok(None) => {}
            Ok(Some(STDOUT)) => out.comes(),
            Ok(Some(STDERR)) => err.comes(),
            // Once: the kernel reports the descriptor again when the status is taken elsewhere.
            Ok(Some(_)) if end.is_some() => {}
            Ok(Some(_)) => {
                end = delay.map(|(_, delay)| Active::after(delay));
                out.child_ends();
                err.child_ends();
            }
            // The time is over, and not a limit of the pipes.
            Err(late)
                if late.kind() == ErrorKind::TimedOut
                    && !is_canceled(&late)
                    && end.is_some_and(|end| end <= Active::now() && limits.end_after(end)) =>
            {
                is_over = true;
            }
            Err(failed) => return Err(failed),
        }
    }
}
