//! A copy under way.
//!
//! The copy takes one piece after the other from the source and gives it to the sink: through a buffer, or, once the source has
//! shown that it has much (`FULL` reads in a row have filled the buffer), by a call in which the kernel moves the bytes:
//!
//! | from | to | by |
//! | --- | --- | --- |
//! | file | file | `copy_file_range`, from the first byte on |
//! | file | socket, pipe | `sendfile` |
//! | socket, pipe | any | `splice` into a pipe of the library's, and out of it |
//!
//! The state of the pipe in between says which end has to be waited for: the pipe is empty when bytes are taken from the
//! source, so `EAGAIN` is the source's, and not empty when bytes are given to the sink, so `EAGAIN` is the sink's. The copy
//! waits for each end under that end's own I/O lock and limit, and holds no lock of one end while it waits for the other. An
//! urgent byte of a socket stops `splice`, which then answers as if the socket were empty, or at its end, even if more follows
//! that byte; so after such an answer the copy asks the socket.
//!
//! A way that the kernel refuses has moved nothing. The bytes that the pipe then holds are read out of it, and go on through a
//! buffer: no byte is lost, and none goes twice. A piece is given to the sink before the next one is taken: when the source
//! fails, nothing is on its way, and the error of a sink carries the bytes on their way (`CopyError`).

use super::end::{End, Form};
use super::error::CopyError;
use super::load::{BUFFER, Buffer, Pipe, UnderWay};
use super::moves::{self, Waits};
use crate::goroutine::blocking;
use crate::net::{check_contexts, sys};
use crate::os::fs::{an_end_is_one, is_direct};
use std::io;
use std::os::fd::BorrowedFd;

/// How many reads in a row fill the buffer before the kernel moves the rest.
const FULL: u32 = 2;
/// A piece of less than this goes through the buffer again.
const FEW: usize = 8 << 10;
/// How much goes from file to file between two looks whether a context is done.
const RANGE: usize = 16 << 20;
/// How much one `sendfile` sends at most: a sink that always has room ends no call early, and a context, a limit or a close
/// waits for the call.
const SENT: usize = 1 << 20;
/// How much is sent from memory at most while the P is kept: a longer copy costs more than a hand-off.
const SENT_CACHED: usize = 256 << 10;

/// How the kernel moves the bytes.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum Way {
    Ranges,
    SendFile,
    Splice,
    /// Not at all.
    Refused,
}

/// What became of the attempt to move a piece.
enum Moved {
    Piece,
    End,
    /// Nothing was moved, nor will be.
    Refused,
}

pub(super) struct Relay<'a> {
    source: &'a dyn End,
    sink: &'a dyn End,
    way: Way,
    /// How many pieces in a row were whole.
    full: u32,
    copied: u64,
    /// Kept from one piece to the next while the copy does not wait for its source.
    buffer: Option<Buffer>,
    pipe: Option<Pipe>,
    _under_way: UnderWay,
}

impl<'a> Relay<'a> {
    pub(super) fn new(source: &'a dyn End, sink: &'a dyn End) -> Self {
        let way = match (source.form(), sink.form()) {
            (Form::File, Form::File) => Way::Ranges,
            (Form::Other, _) | (_, Form::Other) => Way::Refused,
            (Form::File, _) => Way::SendFile,
            _ => Way::Splice,
        };
        let full = if way == Way::Ranges { FULL } else { 0 };
        let (buffer, pipe) = (None, None);
        Relay { source, sink, way, full, copied: 0, buffer, pipe, _under_way: UnderWay::new() }
    }

    pub(super) fn run(mut self) -> Result<u64, CopyError> {
        self.give(&self.source.take_buffered(), None)?;
        loop {
            check_contexts().map_err(|done| self.failed(done))?;
            let moved = match self.way {
                Way::Ranges => self.range(),
                Way::Refused => self.piece(),
                _ if self.full < FULL => self.piece(),
                _ if self.full == FULL && (self.may_be_signalled() || self.goes_by_blocks()) => {
                    Ok(Moved::Refused)
                }
                Way::SendFile => self.send_file(),
                Way::Splice => self.splice(),
            }?;
            match moved {
                Moved::Piece => {}
                Moved::End => return Ok(self.copied),
                Moved::Refused => {
                    self.way = Way::Refused;
                    self.full = 0;
                }
            }
        }
    }

    /// Returns `true` if the kernel would send this process a signal when the sink has no peer.
    fn may_be_signalled(&self) -> bool {
        self.sink.form() == Form::Socket && !moves::sigpipe_is_ignored()
    }

    /// Returns `true` for a file that bypasses the kernel's cache. The kernel reads it from the beginning of a block on: not
    /// where a sink without room has ended a `sendfile`.
    fn goes_by_blocks(&self) -> bool {
        let asks = |source: &dyn End| source.read(None, &mut |fd| Ok(usize::from(is_direct(fd))));
        self.way == Way::SendFile && asks(self.source).is_ok_and(|is| is == 1)
    }

    fn failed(&mut self, error: io::Error) -> CopyError {
        self.failed_with(error, Vec::new())
    }

    fn failed_with(&mut self, error: io::Error, undelivered: Vec<u8>) -> CopyError {
        CopyError { copied: self.copied, undelivered, error }
    }

    /// Counts a piece: after enough whole ones in a row the next is worth more than a buffer.
    fn count(&mut self, whole: bool) -> Moved {
        self.full = if whole { self.full.saturating_add(1) } else { 0 };
        Moved::Piece
    }

    /// Moves a piece through the buffer.
    fn piece(&mut self) -> Result<Moved, CopyError> {
        let (source, is_file) = (self.source, self.source.form() == Form::File);
        let kept = &mut self.buffer;
        let got = source.read(Some(BUFFER), &mut |fd| {
            let mut buffer = kept.take().unwrap_or_else(Buffer::take);
            let got = if is_file { read_file(fd, buffer.bytes()) } else { sys::read(fd, buffer.bytes()) };
            // A read that has to wait puts its buffer back.
            if got.is_ok() {
                *kept = Some(buffer);
            }
            got
        });
        let got = got.map_err(|failed| self.failed(failed))?;
        let Some(mut buffer) = self.buffer.take().filter(|_| got > 0) else { return Ok(Moved::End) };
        self.give(&buffer.bytes()[..got], None)?;
        let whole = got == BUFFER;
        if whole || is_file {
            self.buffer = Some(buffer);
        }
        Ok(self.count(whole))
    }

    /// Gives `bytes` to the sink. The bytes that the sink does not take go into the error, with those that `behind` holds.
    fn give(&mut self, bytes: &[u8], behind: Option<&mut Pipe>) -> Result<(), CopyError> {
        let (sink, form, mut at) = (self.sink, self.sink.form(), 0);
        while at < bytes.len() {
            let wrote = sink.write(&mut |fd| match form {
                Form::Socket => sys::send(fd, &bytes[at..]),
                Form::Pipe => sys::write(fd, &bytes[at..]),
                Form::Other => sys::write(fd, &bytes[at..][..at_once(fd, bytes.len() - at)?]),
                Form::File => blocking(|| sys::write(fd, &bytes[at..])),
            });
            match wrote {
                Ok(wrote @ 1..) => {
                    at += wrote;
                    self.copied += wrote as u64;
                }
                Ok(_) | Err(_) => {
                    let mut left = bytes[at..].to_vec();
                    if let Some(behind) = behind {
                        left.append(&mut behind.read_all());
                    }
                    let full = || io::Error::new(io::ErrorKind::WriteZero, "copy: the sink takes no more");
                    return Err(self.failed_with(wrote.err().unwrap_or_else(full), left));
                }
            }
        }
        Ok(())
    }

    /// Moves a piece from file to file.
    fn range(&mut self) -> Result<Moved, CopyError> {
        let (source, sink) = (self.source, self.sink);
        let copied = source
            .read(None, &mut |from| sink.write(&mut |to| blocking(|| moves::copy_range(from, to, RANGE))));
        match copied {
            // Files of `/proc` seem to be empty; a read shows whether they are.
            Ok(0) if self.copied == 0 => Ok(Moved::Refused),
            Ok(0) => Ok(Moved::End),
            Ok(len) => {
                self.copied += len as u64;
                Ok(Moved::Piece)
            }
            Err(refused) if moves::is_refusal_of_files(&refused) => Ok(Moved::Refused),
            Err(failed) => Err(self.failed(failed)),
        }
    }

    /// Moves a piece from a file to a socket or pipe.
    fn send_file(&mut self) -> Result<Moved, CopyError> {
        self.buffer = None;
        let source = self.source;
        let sent = self.sink.write(&mut |to| {
            // This look refuses a socket that came as a file, whose `EAGAIN` would be taken for the sink's.
            source.read(None, &mut |file| match moves::is_cached(file, SENT_CACHED)? {
                true => moves::sendfile(file, to, SENT_CACHED),
                false => blocking(|| moves::sendfile(file, to, SENT)),
            })
        });
        match sent {
            Ok(0) => Ok(Moved::End),
            Ok(len) => {
                self.copied += len as u64;
                Ok(self.count(true))
            }
            Err(refused) if moves::is_refusal(&refused) => Ok(Moved::Refused),
            Err(failed) => Err(self.failed(failed)),
        }
    }

    /// Moves a piece through a pipe.
    fn splice(&mut self) -> Result<Moved, CopyError> {
        self.buffer = None;
        let (source, is_socket) = (self.source, self.source.form() == Form::Socket);
        let (kept, mut is_refused, mut is_urgent) = (&mut self.pipe, false, false);
        let got = source.read(None, &mut |fd| {
            let filled = match kept.take().map_or_else(Pipe::take, Ok) {
                Ok(mut pipe) => pipe.fill(fd).map(|got| (pipe, got)),
                // No descriptor is left for a pipe.
                Err(_) => {
                    is_refused = true;
                    return Ok(0);
                }
            };
            let is_none = match &filled {
                Ok((_, got)) => *got == 0,
                Err(refused) => refused.kind() == io::ErrorKind::WouldBlock,
            };
            if is_none && is_socket && moves::is_at_urgent(fd) {
                is_urgent = true;
                return Ok(0);
            }
            match filled {
                Ok((pipe, got)) => {
                    *kept = Some(pipe);
                    Ok(got)
                }
                Err(refused) if moves::is_refusal(&refused) => {
                    is_refused = true;
                    Ok(0)
                }
                // A call that has to wait gives its pipe back.
                Err(failed) => Err(failed),
            }
        });
        let got = got.map_err(|failed| self.failed(failed))?;
        if is_refused {
            return Ok(Moved::Refused);
        }
        if is_urgent {
            // The next piece goes through the buffer, whose read goes past the urgent byte.
            return Ok(self.count(false));
        }
        let Some(mut pipe) = self.pipe.take().filter(|_| got > 0) else { return Ok(Moved::End) };
        while pipe.held > 0 {
            let (form, pipe) = (self.sink.form(), &mut pipe);
            let moved = self.sink.write(&mut |to| match form {
                // The file may be a pipe, or a terminal.
                Form::File => blocking(|| pipe.empty(to, Waits::AsItsMode)),
                _ => pipe.empty(to, Waits::Never),
            });
            match moved {
                Ok(moved @ 1..) => self.copied += moved as u64,
                Ok(_) => return self.unload(pipe),
                Err(refused) if moves::is_refusal(&refused) => return self.unload(pipe),
                Err(failed) => {
                    let left = pipe.read_all();
                    return Err(self.failed_with(failed, left));
                }
            }
        }
        self.pipe = Some(pipe);
        Ok(self.count(got >= FEW))
    }

    /// Gives the bytes in the pipe through a buffer to a sink that takes nothing from a pipe.
    fn unload(&mut self, pipe: &mut Pipe) -> Result<Moved, CopyError> {
        let mut buffer = Buffer::take();
        loop {
            match pipe.read(buffer.bytes()) {
                Ok(0) => return Ok(Moved::Refused),
                Ok(got) => self.give(&buffer.bytes()[..got], Some(pipe))?,
                Err(failed) => return Err(self.failed(failed)),
            }
        }
    }
}

/// Returns how much of `len` bytes one call writes to `fd`. A call on a descriptor in blocking mode returns when all is
/// written, and no limit ends it: so when such a descriptor is ready, it gets only as much as a pipe then has room for.
fn at_once(fd: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    Ok(if len > libc::PIPE_BUF && sys::is_blocking(fd)? { libc::PIPE_BUF } else { len })
}

/// Reads from a file; keeps the P for bytes that the kernel has in memory.
fn read_file(file: BorrowedFd<'_>, buf: &mut [u8]) -> io::Result<usize> {
    match moves::read_cached(file, buf) {
        // Nothing is in memory, the file is at its end, or the file system does not know the question.
        Err(_) => blocking(|| sys::read(file, buf)),
        Ok(0) if !an_end_is_one() => blocking(|| sys::read(file, buf)),
        got => got,
    }
}
