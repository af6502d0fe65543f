//! What is known of an open file: whether calls may wait in line, and how reads can be tried without waiting.
//!
//! All of this is a hint. A file that is taken for another kind still gives the right bytes: the call holds a turn in line for
//! longer than needed, or repeats a try that is refused, or keeps the P until the monitor retakes it. So the hints are words
//! that threads write as they learn.
//!
//! *A file in memory* (tmpfs, ramfs) knows no reads that do not wait, and needs none: no disk has its bytes, unless the kernel
//! has swapped them out, as it may swap the program's own memory. So a plain read serves as the try. Files of other file
//! systems that refuse the try are not read that way: overlayfs and FUSE have a disk or a server behind them, and a read of
//! procfs or sysfs waits for whatever the file stands for. A device's number goes to another file system when the first one is
//! gone, so whether a file is in memory is asked for each file.

use super::sys;
use std::fs::{self, Metadata};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// The file's type has been looked at.
const KNOWN: u8 = 1;
/// Another process may keep a call waiting without a limit.
const ENDLESS: u8 = 2;
/// The kernel refuses reads that do not wait.
const REFUSES: u8 = 4;
/// No disk has the file's bytes. Outweighs REFUSES, which another thread may set later.
const MEMORY: u8 = 8;

/// How a goroutine makes a read without giving the P away.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
pub(super) enum Try {
    /// With `RWF_NOWAIT`.
    NoWait,
    /// As any read.
    Plain,
}

/// What is known of a file; see the module's header. Relaxed, all of it: hints.
#[derive(Debug, Default)]
pub(super) struct Kind(AtomicU8);

/// Returns what is known of the file with this name, before the open. The name may mean another file by then.
pub(super) fn of(path: &Path) -> Kind {
    fs::metadata(path).map_or_else(|_| Kind::default(), |file| Kind::from(&file))
}

/// Returns `true` if the kernel has the file with this name cached, and the file is endless. Never waits.
pub(super) fn is_known_as_endless(path: &Path) -> bool {
    let found = sys::cached(path, libc::O_PATH).and_then(|file| sys::mode_and_device(file.as_fd()));
    found.is_some_and(|(mode, _)| is_endless(mode))
}

/// Opens the file with this name for reading if nothing need be waited for: the kernel has the name in its cache, the name
/// means a regular file, of a file system whose reads can be tried, and nobody has a lease on the file. Returns `None`
/// otherwise, and after any error. Waits only for a listener of fanotify that permits opens, and for a FUSE server that has
/// refused no try yet.
pub(super) fn open_cached(path: &Path) -> Option<(fs::File, Kind)> {
    let suits = |file: &OwnedFd| {
        let (mode, device) = sys::mode_and_device(file.as_fd())?;
        (mode & libc::S_IFMT == libc::S_IFREG && !REFUSING.contains(device)).then_some(())
    };
    suits(&sys::cached(path, libc::O_PATH)?)?;
    // By the flag, the open waits for no lease, nor for the writer of a FIFO that has the name now.
    let file = sys::cached(path, libc::O_RDONLY | libc::O_NONBLOCK)?;
    suits(&file)?;
    sys::clear_flags(file.as_fd())?;
    Some((file.into(), Kind(AtomicU8::new(KNOWN))))
}

/// A file whose mode has no type, such as an eventfd, a timer or an inotify, waits for others as a pipe does.
fn is_endless(mode: u32) -> bool {
    !matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR | libc::S_IFLNK | libc::S_IFBLK)
}

impl From<&Metadata> for Kind {
    fn from(file: &Metadata) -> Self {
        let mut known = KNOWN;
        if is_endless(file.mode()) {
            known |= ENDLESS;
        } else if REFUSING.contains(file.dev()) {
            known |= REFUSES;
        }
        Kind(AtomicU8::new(known))
    }
}

impl Clone for Kind {
    fn clone(&self) -> Self {
        Kind(AtomicU8::new(self.0.load(Relaxed)))
    }
}

impl Kind {
    pub(super) fn is_endless(&self) -> bool {
        self.0.load(Relaxed) & ENDLESS != 0
    }

    /// Returns how a read that does not wait is tried, if that is worthwhile.
    #[inline]
    pub(super) fn tries(&self) -> Option<Try> {
        match self.0.load(Relaxed) & (REFUSES | MEMORY) {
            0 => Some(Try::NoWait),
            REFUSES => None,
            _ => Some(Try::Plain),
        }
    }

    /// Looks at the type of the file, if that was not done before. Returns `true` if the file is endless. May wait.
    pub(super) fn look(&self, file: &fs::File) -> bool {
        if self.0.load(Relaxed) & KNOWN == 0
            && let Ok(metadata) = file.metadata()
        {
            self.0.fetch_or(Kind::from(&metadata).0.load(Relaxed), Relaxed);
            self.opened(file);
        }
        self.is_endless()
    }

    /// Returns `true` for an endless file that `look` has not looked at. Never waits.
    pub(super) fn looks_endless(&self, file: &fs::File) -> bool {
        self.0.load(Relaxed) & KNOWN == 0
            && sys::mode_and_device(file.as_fd()).is_some_and(|(mode, _)| is_endless(mode))
    }

    /// Notes whether reads of the file bypass the page cache (`O_DIRECT`): there a read with `RWF_NOWAIT` waits for the disk,
    /// only not for its turn. A flag that is set later is not noticed.
    pub(super) fn look_for_direct(&self, file: &fs::File) {
        if sys::is_direct(file.as_fd()) {
            self.0.fetch_or(REFUSES, Relaxed);
        }
    }

    /// The file of this kind is open: if reads can't be tried, notes whether the file is in memory. May wait.
    pub(super) fn opened(&self, file: &fs::File) {
        if self.tries().is_none() && sys::is_in_memory(file) {
            self.0.fetch_or(MEMORY, Relaxed);
        }
    }

    /// Notes that the kernel refuses reads of this file that do not wait; with `EOPNOTSUPP` the refusal holds for all regular
    /// files of the file system. May wait.
    #[cold]
    pub(super) fn refuses(&self, file: &fs::File, why: i32) {
        self.0.fetch_or(REFUSES, Relaxed);
        if why == libc::EOPNOTSUPP
            && let Ok(metadata) = file.metadata()
            && metadata.is_file()
        {
            REFUSING.insert(metadata.dev());
            self.opened(file);
        }
    }
}

/// File systems on whose files reads are not tried, by their devices. Files of file systems beyond these are asked once each.
struct Refusing([AtomicU64; 16]);

static REFUSING: Refusing = Refusing([const { AtomicU64::new(0) }; 16]);

impl Refusing {
    /// Zero is no device, and marks a free place.
    fn contains(&self, device: u64) -> bool {
        device != 0 && self.0.iter().any(|place| place.load(Relaxed) == device)
    }

    fn insert(&self, device: u64) {
        if self.contains(device) {
            return;
        }
        // Relaxed: the exchange decides which device has the place. Two places for one device are one place lost.
        let _full = self.0.iter().any(|place| place.compare_exchange(0, device, Relaxed, Relaxed).is_ok());
    }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_table_keeps_what_fits_and_each_once() {
        let table = Refusing([const { AtomicU64::new(0) }; 16]);
        for device in (1..=20).flat_map(|device| [device, device]) {
            table.insert(device);
        }
        assert!((1..=16).all(|device| table.contains(device)));
        assert!((17..=20).all(|device| !table.contains(device)) && !table.contains(0));
    }
}
