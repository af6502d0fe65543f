//! Guards, many at a time.
//!
//! `MADV_GUARD_INSTALL` (Linux 6.13) marks page-table entries: no mapping is split, so their number is not limited.
//! `process_madvise` makes the marks for a batch in one call (from 6.14 on, where a number stands for the calling process); on
//! older kernels each guard takes a call of its own. If the kernel refuses the guard itself, because the advice is unknown or
//! the memory is locked (EINVAL for both), or if a sandbox does, with any error, `mprotect` makes the guard. Each such guard
//! takes two mappings out of `vm.max_map_count`, of which an eighth is left to the rest of the process.
//!
//! A kernel may ignore advice and report success: emulators and sandboxes answer 0 to any `madvise`. So a light guard is
//! *proved*, once in a process for each of the two calls: `rt_sigprocmask` gets a set of signals to read there, with an
//! operation that does not exist. For a set in the guard the call returns EFAULT; for a set in the page above, which the kernel
//! can read, it returns EINVAL. A call that has lied is not made again. If the kernel looks at the operation first, nothing is
//! proved, and `mprotect` makes the guards. (A `write` to a pipe proves the same in twice as many calls, if there are
//! descriptors.)

use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize};
use std::time::Duration;

use super::{BATCH, PAGE};

/// Neither is in libc 0.2 yet.
const MADV_GUARD_INSTALL: libc::c_int = 102;
pub(super) const PIDFD_SELF: libc::c_int = -10000;

/// Guards made by `mprotect` in this process, two mappings each.
static MPROTECTED: AtomicUsize = AtomicUsize::new(0);

/// Whether guards by `process_madvise`, and by `madvise`, have an effect.
static BY_BATCH: Proof = Proof::new();
static BY_ONE: Proof = Proof::new();

/// How a guard is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// By `MADV_GUARD_INSTALL`, and by `Mprotect` if the kernel refuses that or does nothing.
    Light,
    Mprotect,
}

/// Places for guards of `bytes` each: at most a batch, from the first on, `apart` from each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    pub(super) first: NonNull<u8>,
    pub(super) bytes: usize,
    pub(super) apart: usize,
    pub(super) count: usize,
}

impl Row {
    fn at(&self, index: usize) -> *mut u8 {
        self.first.as_ptr().wrapping_add(index * self.apart)
    }
}

/// Guards made in one call of `install`, from the first place on.
pub(super) struct Made {
    pub(super) guards: usize,
    /// How many of them by `mprotect`, for `forget`.
    pub(super) mprotected: usize,
}

impl Guard {
    /// Makes guards. Makes fewer if the kernel stops midway, and returns an error if the kernel refuses the first.
    ///
    /// # Safety
    /// The places are the caller's, in one mapping, as is the page above the first; they hold nothing that is needed.
    pub(super) unsafe fn install(self, row: Row) -> io::Result<Made> {
        let mut made = Made { guards: 0, mprotected: 0 };
        let mut how = self;
        if how == Guard::Light && BY_BATCH.is_open() {
            // SAFETY: by this function's contract.
            let claimed = unsafe { light_batch(row) };
            // SAFETY: by this function's contract; a guard was claimed there.
            if claimed > 0 && unsafe { BY_BATCH.holds(row, 0) } {
                made.guards = claimed;
            }
        }
        while made.guards < row.count {
            let place = row.at(made.guards);
            let one = match how {
                // SAFETY: by this function's contract.
                Guard::Light => unsafe { light(place, row.bytes) },
                // SAFETY: by this function's contract.
                Guard::Mprotect => unsafe { mprotect(place, row.bytes) }.inspect(|()| made.mprotected += 1),
            };
            match one {
                // SAFETY: by this function's contract.
                Ok(()) if how == Guard::Light && !unsafe { BY_ONE.holds(row, made.guards) } => {
                    how = Guard::Mprotect;
                }
                Ok(()) => made.guards += 1,
                // A shortage of memory now is no reason to spend `mprotect`'s budget.
                Err(error) if how == Guard::Light && error.raw_os_error() != Some(libc::ENOMEM) => {
                    how = Guard::Mprotect;
                }
                // The slots with a guard can be used; the next call meets the error again.
                Err(_) if made.guards > 0 => break,
                Err(error) => return Err(io::Error::other(format!("{how:?}: {error}"))),
            }
        }
        Ok(made)
    }
}

/// Takes guards by `mprotect` off the count, after their mapping was unmapped.
pub(super) fn forget(mprotected: usize) {
    // Relaxed: a count, it orders nothing.
    MPROTECTED.fetch_sub(mprotected, Relaxed);
}

/// What is known of one way to make guards.
struct Proof(AtomicU8);

impl Proof {
    const OPEN: u8 = 0;
    const TRUE: u8 = 1;
    const FALSE: u8 = 2;

    const fn new() -> Proof {
        Proof(AtomicU8::new(Proof::OPEN))
    }

    /// Returns `true` if this way was not found to do nothing.
    fn is_open(&self) -> bool {
        // Relaxed, here and below: each look finds the same, no matter whose result is kept.
        self.0.load(Relaxed) != Proof::FALSE
    }

    /// Returns `true` if the guards that were just made in this way have an effect; tests one of them, unless that is known.
    ///
    /// # Safety
    /// As `Guard::install`; a guard was made at this place of the row, and the page above that guard is not in use.
    unsafe fn holds(&self, row: Row, index: usize) -> bool {
        match self.0.load(Relaxed) {
            Proof::OPEN => {}
            known => return known == Proof::TRUE,
        }
        // SAFETY: by this function's contract.
        let holds = unsafe { is_guard(row.at(index), row.bytes) };
        self.0.store(if holds { Proof::TRUE } else { Proof::FALSE }, Relaxed);
        holds
    }
}

/// Returns `true` if the kernel can't read the first and the last bytes of the guard, and can read those after it.
///
/// # Safety
/// The bytes and the page after them are the caller's; that page holds nothing.
pub(super) unsafe fn is_guard(at: *mut u8, bytes: usize) -> bool {
    let behind = at.wrapping_add(bytes);
    let reads = [at, behind.wrapping_sub(SET), behind].map(read_of);
    // The read has mapped a page there. SAFETY: by this function's contract.
    unsafe { libc::madvise(behind.cast(), PAGE, libc::MADV_DONTNEED) };
    reads == [Read::Faults, Read::Faults, Read::Done]
}

/// The bytes of the kernel's set of signals.
const SET: usize = 8;

/// The result of the kernel's attempt to read a set of signals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Read {
    Done,
    Faults,
    /// The kernel refused the call before it read the set.
    NotTried,
}

fn read_of(set: *mut u8) -> Read {
    const NO_ORDER: libc::c_int = -1;
    let none = ptr::null_mut::<u8>();
    // SAFETY: the kernel reads the set, if it can, and does nothing with it, as the operation does not exist.
    let done = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NO_ORDER, set, none, SET) };
    match (done, io::Error::last_os_error().raw_os_error()) {
        (-1, Some(libc::EFAULT)) => Read::Faults,
        (-1, Some(libc::EINVAL)) => Read::Done,
        _ => Read::NotTried,
    }
}

/// Makes many guards in one call. Returns how many were made, from the first on; 0 if the kernel can't make many at once.
///
/// # Safety
/// As `Guard::install`.
unsafe fn light_batch(row: Row) -> usize {
    let mut places = [libc::iovec { iov_base: ptr::null_mut(), iov_len: row.bytes }; BATCH];
    for (index, at) in places[..row.count].iter_mut().enumerate() {
        at.iov_base = row.at(index).cast();
    }
    // SAFETY: advice on pages that the caller owns; the kernel reads the array.
    let advised = unsafe {
        libc::syscall(
            libc::SYS_process_madvise,
            PIDFD_SELF,
            places.as_ptr(),
            row.count,
            MADV_GUARD_INSTALL,
            0,
        )
    };
    // The kernel returns how many bytes it has advised on.
    usize::try_from(advised).map_or(0, |bytes| bytes / row.bytes)
}

/// Makes a guard that splits no mapping.
///
/// # Safety
/// As `Guard::install`.
unsafe fn light(place: *mut u8, bytes: usize) -> io::Result<()> {
    // SAFETY: by this function's contract.
    match unsafe { libc::madvise(place.cast(), bytes, MADV_GUARD_INSTALL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes a guard that splits the mapping, within the budget of the process.
///
/// # Safety
/// As `Guard::install`.
unsafe fn mprotect(place: *mut u8, bytes: usize) -> io::Result<()> {
    let count_one = || {
        let below = |guards| (guards < budget()).then_some(guards + 1);
        // Relaxed: a count, it orders nothing.
        MPROTECTED.fetch_update(Relaxed, Relaxed, below).is_ok()
    };
    let fits = count_one() || MAX_MAP_COUNT.reread() && count_one();
    if !fits {
        let (max, budget) = (max_map_count(), budget());
        return Err(io::Error::other(format!(
            "{budget} guards, of two mappings each, are all that vm.max_map_count = {max} allows; \
             from Linux 6.13 on a guard needs no mapping"
        )));
    }
    // SAFETY: by this function's contract.
    if unsafe { libc::mprotect(place.cast(), bytes, libc::PROT_NONE) } != 0 {
        let error = io::Error::last_os_error();
        let max = max_map_count();
        MPROTECTED.fetch_sub(1, Relaxed);
        return Err(io::Error::other(format!("{error}; vm.max_map_count = {max}")));
    }
    Ok(())
}

/// Returns how many guards by `mprotect` this process may have.
pub(super) fn budget() -> usize {
    let max = max_map_count();
    (max - max / 8) / 2
}

pub(super) fn max_map_count() -> usize {
    MAX_MAP_COUNT.get()
}

/// `vm.max_map_count`, as it was when it was last read: an operator may set it while the process runs.
struct MaxMapCount {
    /// Zero before the first time.
    count: AtomicUsize,
    /// When it was read, in milliseconds of the system's monotonic clock.
    read_at: AtomicU64,
}

static MAX_MAP_COUNT: MaxMapCount = MaxMapCount { count: AtomicUsize::new(0), read_at: AtomicU64::new(0) };

impl MaxMapCount {
    /// How long the value counts as fresh when the budget is used up: otherwise each spawn beyond the budget would read the
    /// file.
    const STANDS: Duration = Duration::from_secs(1);

    fn get(&self) -> usize {
        // Relaxed, here and below: whichever of two readers stores last, its value was in the file a moment ago.
        match self.count.load(Relaxed) {
            0 => self.read(),
            count => count,
        }
    }

    fn read(&self) -> usize {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let count = match text.ok().and_then(|text| text.trim().parse::<usize>().ok()) {
            Some(count) => count.max(1),
            None => match self.count.load(Relaxed) {
                // Without /proc: the kernel's default.
                0 => 65530,
                // Perhaps no descriptor is left.
                before => before,
            },
        };
        // Before the time: a reader that finds the new time finds the new count.
        self.count.store(count, Relaxed);
        self.read_at.store(milliseconds(), Relaxed);
        count
    }

    /// Reads the file again, unless it was read just now. Returns `true` if it was read.
    fn reread(&self) -> bool {
        let stale =
            milliseconds().saturating_sub(self.read_at.load(Relaxed)) >= Self::STANDS.as_millis() as u64;
        if stale {
            self.read();
        }
        stale
    }
}

fn milliseconds() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1000 + now.tv_nsec as u64 / 1_000_000
}
