//! What is known of an open file: whether it may be waited for in line, and whether its reads can be tried without waiting.
//!
//! Both are hints. A file that is taken for another kind still gives the right bytes: its call holds a turn in line for longer
//! than it should, or asks once more for what is refused. So what is known lies in words that threads write as they learn it.

use std::fs::{self, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Somebody has looked at the file's type.
const KNOWN: u8 = 1;
/// Another process may keep a call waiting for as long as it likes.
const ENDLESS: u8 = 2;
/// The kernel refuses reads that do not wait.
const REFUSES: u8 = 4;

/// What is known of a file; see the module's header. Relaxed, all of it: hints.
#[derive(Debug, Default)]
pub(super) struct Kind(AtomicU8);

/// What is known of the file with this name, before it is opened. A name may come to mean another file.
pub(super) fn of(path: &Path) -> Kind {
    fs::metadata(path).map_or_else(|_| Kind::default(), |file| Kind::from(&file))
}

impl From<&Metadata> for Kind {
    fn from(file: &Metadata) -> Self {
        let kind = file.file_type();
        let mut known = KNOWN;
        if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
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

    /// Returns `true` if a read that does not wait is worth a try.
    #[inline]
    pub(super) fn may_be_tried(&self) -> bool {
        self.0.load(Relaxed) & REFUSES == 0
    }

    /// Looks at the type of a file that was not looked at. Returns `true` if the file is endless.
    pub(super) fn look(&self, file: &fs::File) -> bool {
        if self.0.load(Relaxed) & KNOWN == 0
            && let Ok(file) = file.metadata()
        {
            self.0.fetch_or(Kind::from(&file).0.load(Relaxed), Relaxed);
        }
        self.is_endless()
    }

    /// The kernel refuses reads of this file that do not wait, and so of all regular files of its file system if that knows of
    /// none.
    #[cold]
    pub(super) fn refuses(&self, file: &fs::File, why: i32) {
        self.0.fetch_or(REFUSES, Relaxed);
        if why == libc::EOPNOTSUPP
            && let Ok(file) = file.metadata()
            && file.is_file()
        {
            REFUSING.insert(file.dev());
        }
    }
}

/// File systems whose files are not tried, by their devices. With more of them the others are asked once a file.
struct Refusing([AtomicU64; 16]);

static REFUSING: Refusing = Refusing([const { AtomicU64::new(0) }; 16]);

impl Refusing {
    /// Zero is no device, and a free place.
    fn contains(&self, device: u64) -> bool {
        device != 0 && self.0.iter().any(|place| place.load(Relaxed) == device)
    }

    fn insert(&self, device: u64) {
        if self.contains(device) {
            return;
        }
        // Relaxed: the exchange decides who has the place. Two places for one device are one place lost.
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
