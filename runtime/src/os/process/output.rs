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

use super::{ChildStderr, ChildStdout};
use crate::net::check_contexts;
use crate::net::desc::Direction;
use crate::net::limit::Begun;
use crate::net::methods::with_a_frame;
use crate::net::socket::Socket;
use crate::net::sys;
use std::io::{self, ErrorKind, Read};
use std::os::fd::{AsFd, OwnedFd};

/// As much as a pipe mostly holds.
const PART: usize = 64 << 10;

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Now {
    Ready,
    Waits,
    Ended,
}

/// A pipe, and what was read from it.
struct Reader<S: AsFd> {
    pipe: Socket<S>,
    bytes: Vec<u8>,
    now: Now,
}

impl<S: AsFd> Reader<S> {
    fn new(pipe: Socket<S>, set: &Socket<OwnedFd>, key: u64) -> io::Result<Self> {
        pipe.with(|pipe| set.with(|set| sys::add_to_set(set.as_fd(), pipe.as_fd(), Direction::Read, key)))?;
        Ok(Reader { pipe, bytes: Vec::new(), now: Now::Ready })
    }

    /// Makes one read, if there may be bytes.
    fn read(&mut self, part: &mut [u8]) -> io::Result<()> {
        if self.now != Now::Ready {
            return Ok(());
        }
        match self.pipe.with(|pipe| sys::read(pipe.as_fd(), part)) {
            Ok(0) => self.now = Now::Ended,
            Ok(read) => append(&mut self.bytes, &part[..read])?,
            Err(nothing) if nothing.kind() == ErrorKind::WouldBlock => self.now = Now::Waits,
            Err(signal) if signal.kind() == ErrorKind::Interrupted => {}
            Err(refused) => return Err(refused),
        }
        Ok(())
    }

    /// Returns the limits of a wait for the pipe.
    fn limits(&self) -> Begun {
        match self.now {
            Now::Ended => Begun::until(None),
            Now::Ready | Now::Waits => self.pipe.limits_of_a_read(),
        }
    }

    /// An event has come: the other end has written, or is closed.
    fn comes(&mut self) {
        if self.now == Now::Waits {
            self.now = Now::Ready;
        }
    }
}

fn append(bytes: &mut Vec<u8>, part: &[u8]) -> io::Result<()> {
    bytes.try_reserve(part.len())?;
    bytes.extend_from_slice(part);
    Ok(())
}

/// Reads a pipe, if there is one, to its end.
pub(super) fn read_one(pipe: Option<impl Read>) -> io::Result<Vec<u8>> {
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

/// Reads both to their ends. The earlier deadline ends calls; the shorter timeout begins anew with each wait.
pub(super) fn read_both(stdout: ChildStdout, stderr: ChildStderr) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let set = sys::new_set().map_err(|refused| {
        io::Error::new(
            refused.kind(),
            format!("wait_with_output: no descriptor to wait for both pipes: {refused}"),
        )
    })?;
    let set = Socket::new(set);
    let mut out = Reader::new(stdout.0, &set, 0)?;
    let mut err = Reader::new(stderr.0, &set, 1)?;
    let mut part = vec![0; PART];
    loop {
        // If the child always has more output, the caller never waits.
        check_contexts()?;
        out.read(&mut part)?;
        err.read(&mut part)?;
        let now = [out.now, err.now];
        if now == [Now::Ended; 2] {
            return Ok((out.bytes, err.bytes));
        }
        let limits = out.limits().and(err.limits());
        // Called even if more can be read at once: a deadline ends that, too. A timeout ends waits alone.
        let came = with_a_frame(set.run_within((Direction::Read, limits), |set| {
            match sys::take_from_set(set.as_fd()) {
                Err(none) if none.kind() == ErrorKind::WouldBlock && now.contains(&Now::Ready) => Ok(None),
                came => came.map(Some),
            }
        }))?;
        match came {
            Some(0) => out.comes(),
            Some(_) => err.comes(),
            None => {}
        }
    }
}
