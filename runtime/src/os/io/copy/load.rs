//! The carriers of bytes from one end to the other: a buffer, or a pipe. A copy has one while there are bytes on their way. The
//! process keeps a few for the next copy, as long as a copy is under way.

use super::moves::{self, Waits};
use crate::net::sys;
use gmp_netpoll::ProcessMark;
use std::io;
use std::mem;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The length of a buffer.
pub(super) const BUFFER: usize = 32 << 10;
/// Where a buffer begins: a file that bypasses the kernel's cache (`O_DIRECT`) is read only into blocks of memory.
const BLOCK: usize = 4 << 10;
/// What a pipe holds at most, unless a program lengthens it.
const PIPE: usize = 64 << 10;
/// How many buffers, and how many pipes, are kept.
const KEPT: usize = 16;

struct Shelf {
    copies: usize,
    buffers: Vec<Box<[u8]>>,
    pipes: Vec<(io::PipeReader, io::PipeWriter)>,
}

impl Shelf {
    const EMPTY: Shelf = Shelf { copies: 0, buffers: Vec::new(), pipes: Vec::new() };
}

static SHELF: Mutex<Shelf> = Mutex::new(Shelf::EMPTY);
/// The process whose copies the shelf counts.
static KEEPER: ProcessMark = ProcessMark::none();

fn shelf() -> MutexGuard<'static, Shelf> {
    // No code panics under this lock.
    SHELF.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A copy that is under way.
pub(super) struct UnderWay;

impl UnderWay {
    pub(super) fn new() -> Self {
        let mut shelf = shelf();
        // What is kept, and what is under way, is the parent's: the two processes would mix their bytes in one pipe.
        if !KEEPER.is_of_this_process() {
            *shelf = Shelf::EMPTY;
            KEEPER.renew();
        }
        shelf.copies += 1;
        UnderWay
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut shelf = shelf();
        shelf.copies -= 1;
        if shelf.copies == 0 {
            let (buffers, pipes) = (mem::take(&mut shelf.buffers), mem::take(&mut shelf.pipes));
            drop(shelf);
            drop((buffers, pipes));
        }
    }
}

/// A buffer; the drop puts it back.
pub(super) struct Buffer(Box<[u8]>);

impl Buffer {
    pub(super) fn take() -> Self {
        let kept = shelf().buffers.pop();
        Buffer(kept.unwrap_or_else(|| vec![0; BUFFER + BLOCK].into()))
    }

    pub(super) fn bytes(&mut self) -> &mut [u8] {
        let begins = self.0.as_ptr().align_offset(BLOCK);
        &mut self.0[begins..][..BUFFER]
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let buffer = mem::take(&mut self.0);
        let mut shelf = shelf();
        if shelf.buffers.len() < KEPT {
            shelf.buffers.push(buffer);
        }
    }
}

/// A pipe, both ends of which never block; the drop puts it back if empty.
pub(super) struct Pipe {
    /// `None` once the drop has taken it.
    ends: Option<(io::PipeReader, io::PipeWriter)>,
    pub(super) held: usize,
}

impl Pipe {
    /// # Errors
    /// If the table of descriptors is full.
    pub(super) fn take() -> io::Result<Self> {
        let kept = shelf().pipes.pop();
        let ends = match kept {
            Some(ends) => ends,
            // In blocking mode: each `splice` says by a flag whether it may wait, and it may wait only where the pipe holds
            // bytes.
            None => io::pipe()?,
        };
        Ok(Pipe { ends: Some(ends), held: 0 })
    }

    fn ends(&self) -> &(io::PipeReader, io::PipeWriter) {
        self.ends.as_ref().expect("the drop alone takes them")
    }

    /// Moves bytes from `source` into the pipe, which is empty.
    pub(super) fn fill(&mut self, source: BorrowedFd<'_>) -> io::Result<usize> {
        debug_assert!(self.held == 0, "fill: the pipe holds {} bytes", self.held);
        self.held = moves::splice(source, self.ends().1.as_fd(), PIPE, Waits::Never)?;
        Ok(self.held)
    }

    /// Moves bytes of the pipe, which is not empty, to `sink`.
    pub(super) fn empty(&mut self, sink: BorrowedFd<'_>, waits: Waits) -> io::Result<usize> {
        let moved = moves::splice(self.ends().0.as_fd(), sink, self.held, waits)?;
        self.held -= moved;
        Ok(moved)
    }

    /// Reads what the pipe holds, at most as much as `buf` takes.
    pub(super) fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.held == 0 {
            return Ok(0);
        }
        let got = sys::read(self.ends().0.as_fd(), buf)?;
        self.held -= got;
        Ok(got)
    }

    /// Reads all that the pipe holds.
    pub(super) fn read_all(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; self.held];
        let mut len = 0;
        while let Ok(got @ 1..) = self.read(&mut bytes[len..]) {
            len += got;
        }
        bytes.truncate(len);
        bytes
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if self.held > 0 {
            return;
        }
        let ends = self.ends.take();
        let mut shelf = shelf();
        if shelf.pipes.len() < KEPT {
            shelf.pipes.extend(ends);
        }
    }
}
