//! Reading: from the page cache at once, and else by a call that waits.

use crate::host::Active;
use crate::net::methods::with_a_frame;
use crate::os::fs::File;
use crate::os::fs::kind::Try;
use crate::os::fs::sys::{self, At};
use crate::sched::Sched;
use std::io::{self, IoSliceMut, Read};
use std::mem::MaybeUninit;
use std::os::unix::fs::FileExt;

/// A read of more bytes is not tried: copying them takes longer than giving the thread to the call.
const MOST_AT_ONCE: usize = 256 << 10;
/// As in std: room for a read that looks for the end, before a buffer that is full and may be complete grows.
const PROBE: usize = 32;
/// The least bytes by which a buffer grows.
const STEP: usize = 8 << 10;

impl File {
    /// Reads `len` bytes at most. `cached` reads without waiting; `waits` reads as std does.
    #[inline]
    fn read_by(
        &self,
        at: At,
        len: usize,
        cached: impl FnOnce(Try) -> io::Result<usize>,
        waits: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(sched) = Sched::<Active>::current() else { return waits() };
        let mut refused = None;
        if len <= MOST_AT_ONCE
            && let Some(how) = self.kind.tries()
            && !(at == At::Position && self.is_moving())
        {
            match cached(how) {
                Ok(0) if len > 0 && !sys::an_end_is_one() => {}
                Err(why) => refused = why.raw_os_error(),
                read => return read,
            }
        }
        self.read_waiting(sched, at, refused, waits)
    }

    /// The rest of a read for which nothing was at hand, or whose try was refused.
    #[cold]
    fn read_waiting(
        &self,
        sched: &Sched<Active>,
        at: At,
        refused: Option<i32>,
        waits: impl FnOnce() -> io::Result<usize>,
    ) -> io::Result<usize> {
        let waits = || {
            let read = waits();
            // A kernel that refuses the try but not the read will refuse the next try, too. `EPERM` is a sandbox's.
            let again = [libc::EOPNOTSUPP, libc::ENOSYS, libc::EINVAL, libc::EPERM];
            if let (Ok(_), Some(why)) = (&read, refused)
                && again.contains(&why)
            {
                self.kind.refuses(&self.inner, why);
            }
            read
        };
        match at {
            At::Position => self.wait_moving(sched, waits),
            At::Offset(_) => self.wait(sched, waits),
        }
    }

    /// Reads through the position into memory that need not be initialised.
    fn read_uninit(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        let part = sys::part(buf);
        self.read_by(
            At::Position,
            buf.len(),
            // SAFETY: the part is `buf`.
            |how| unsafe { sys::read_cached(&self.inner, &[part], At::Position, how) },
            || sys::read(&self.inner, buf),
        )
    }

    /// Does the same as `read_uninit`, and makes the call again when a signal has ended it.
    fn read_some(&self, buf: &mut [MaybeUninit<u8>]) -> io::Result<usize> {
        loop {
            match self.read_uninit(buf) {
                Err(signal) if signal.kind() == io::ErrorKind::Interrupted => {}
                read => return read,
            }
        }
    }

    /// Appends what follows the position.
    fn read_rest(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let before = buf.len();
        if !self.is_moving() {
            buf.try_reserve(sys::rest(&self.inner))?;
        }
        let given = buf.capacity();
        loop {
            if buf.len() == buf.capacity() {
                // Mostly the file has as many bytes as it said.
                if buf.capacity() == given {
                    let mut probe = [MaybeUninit::uninit(); PROBE];
                    let read = self.read_some(&mut probe)?;
                    if read == 0 {
                        return Ok(buf.len() - before);
                    }
                    buf.try_reserve(STEP)?;
                    // SAFETY: `read_some` has written so many.
                    buf.extend(probe[..read].iter().map(|byte| unsafe { byte.assume_init() }));
                    continue;
                }
                buf.try_reserve(STEP)?;
            }
            let read = self.read_some(buf.spare_capacity_mut())?;
            if read == 0 {
                return Ok(buf.len() - before);
            }
            // SAFETY: `read_some` has written so many behind the others.
            unsafe { buf.set_len(buf.len() + read) };
        }
    }
}

impl Read for &File {
    /// Blocks the goroutine, or the plain thread, unless the bytes are in the page cache, and
    /// `buf` has no more than 256 KiB.
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        // SAFETY: the same bytes, to which the call writes initialised ones alone.
        let buf = unsafe { std::slice::from_raw_parts_mut(buf.as_mut_ptr().cast(), buf.len()) };
        with_a_frame(self.read_uninit(buf))
    }

    /// Blocks the goroutine, or the plain thread, as [`read`](Read::read).
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let len = bufs.iter().map(|buf| buf.len()).sum();
        // SAFETY: an IoSliceMut has the layout of an iovec.
        let parts = unsafe { std::slice::from_raw_parts(bufs.as_ptr().cast::<libc::iovec>(), bufs.len()) };
        with_a_frame(self.read_by(
            At::Position,
            len,
            // SAFETY: the parts are `bufs`, which are borrowed for writing.
            |how| unsafe { sys::read_cached(&self.inner, parts, At::Position, how) },
            || (&self.inner).read_vectored(bufs),
        ))
    }

    /// Blocks the goroutine, or the plain thread, as [`read`](Read::read). The buffer first gets room for as many bytes as
    /// follow the position.
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        with_a_frame(match Sched::<Active>::current() {
            Some(_) => self.read_rest(buf),
            None => (&self.inner).read_to_end(buf),
        })
    }

    /// Blocks as [`read_to_end`](Read::read_to_end). After an error the text is as it was; on a plain thread, as std
    /// leaves it.
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        if Sched::<Active>::current().is_none() {
            return (&self.inner).read_to_string(buf);
        }
        let mut bytes = Vec::new();
        self.read_rest(&mut bytes)?;
        let text = String::from_utf8(bytes)
            .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "read_to_string: not UTF-8"))?;
        let len = text.len();
        match buf.is_empty() {
            true => *buf = text,
            false => buf.push_str(&text),
        }
        Ok(len)
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }
}

impl FileExt for File {
    /// Blocks the goroutine, or the plain thread, unless all of the bytes are in the page cache, and
    /// `buf` has no more than 256 KiB.
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut read = self.read_part_at(buf, offset)?;
        let mut more = read;
        // The cache has no more, or the file; a part that others have brought into the cache meanwhile may be short again. The
        // bytes that were read count, whatever becomes of the rest.
        while more > 0 && read < buf.len() {
            more = self.read_more_at(&mut buf[read..], offset + read as u64);
            read += more;
        }
        Ok(read)
    }

    /// Blocks the goroutine, or the plain thread.
    ///
    /// # Unwinds
    /// When the [wait in line](crate::fs#the-line) is ended from outside, except by a context, which gives an error here; see
    /// [`migration`](crate::migration#what-may-unwind).
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        with_a_frame(self.call(|file| file.write_at(buf, offset)))
    }
}

impl File {
    /// Reads the bytes that a short read has left. On a plain thread there are none: the kernel gave all there were.
    #[cold]
    fn read_more_at(&self, buf: &mut [u8], offset: u64) -> usize {
        if Sched::<Active>::current().is_none() || self.kind.tries() != Some(Try::NoWait) {
            return 0;
        }
        self.read_part_at(buf, offset).unwrap_or(0)
    }

    #[inline]
    fn read_part_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let parts = [libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() }];
        let at = At::Offset(offset);
        // SAFETY: the part is `buf`.
        let cached = |how| unsafe { sys::read_cached(&self.inner, &parts, at, how) };
        self.read_by(at, buf.len(), cached, || self.inner.read_at(buf, offset))
    }
}
