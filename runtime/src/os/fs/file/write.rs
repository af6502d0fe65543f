//! Writing, by calls that wait.

use crate::host::Active;
use crate::net::methods::with_a_frame;
use crate::os::fs::File;
use crate::sched::Sched;
use std::io::{self, IoSlice, Write};

impl File {
    /// Writes at the position, or at the end of a file that was opened to append.
    fn write_by(&self, call: impl FnOnce() -> io::Result<usize>) -> io::Result<usize> {
        match Sched::<Active>::current() {
            Some(sched) => self.wait_moving(sched, call),
            None => call(),
        }
    }
}

impl Write for &File {
    /// Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        with_a_frame(self.write_by(|| (&self.inner).write(buf)))
    }

    /// Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        with_a_frame(self.write_by(|| (&self.inner).write_vectored(bufs)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
