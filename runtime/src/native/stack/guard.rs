//! Guard pages, many at a time.
//!
//! `MADV_GUARD_INSTALL` (Linux 6.13) marks page-table entries: no mapping is split, so their number is not limited.
//! `process_madvise` makes it for a batch in one call (from 6.14 on, which knows the calling process by a number); where
//! the kernel has that not, one call each. Where it refuses the guard itself, because it does not know it or the
//! memory is locked (EINVAL to both), `mprotect`: two mappings each, out of `vm.max_map_count`, of which an eighth is
//! left to the rest of the process.

use std::io;
use std::ptr::{self, NonNull};
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::{BATCH, PAGE};

/// Not in libc 0.2 yet, both.
const MADV_GUARD_INSTALL: libc::c_int = 102;
const PIDFD_SELF: libc::c_int = -10000;

/// Guards made by `mprotect` in this process, two mappings each.
static MPROTECTED: AtomicUsize = AtomicUsize::new(0);

/// How a guard page is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Guard {
    /// `MADV_GUARD_INSTALL`, and `Mprotect` where the kernel refuses it.
    Light,
    Mprotect,
}

/// Guards made in one call of `install`, from the first page on.
pub(super) struct Made {
    pub(super) pages: usize,
    /// So many of them by `mprotect`, for `forget`.
    pub(super) mprotected: usize,
}

impl Guard {
    /// Guards `count` pages, which lie `apart` bytes from each other; at most a batch. Fewer when the kernel stops midway,
    /// and an error when it refuses the first.
    ///
    /// # Safety
    /// They are the caller's, in one mapping, and hold nothing that anybody needs.
    pub(super) unsafe fn install(self, first: NonNull<u8>, apart: usize, count: usize) -> io::Result<Made> {
        let page = |index: usize| first.as_ptr().wrapping_add(index * apart);
        let mut made = Made { pages: 0, mprotected: 0 };
        let mut how = self;
        if how == Guard::Light {
            // SAFETY: by this function's contract.
            made.pages = unsafe { light_batch(page, count) };
        }
        while made.pages < count {
            let one = match how {
                // SAFETY: by this function's contract.
                Guard::Light => unsafe { light(page(made.pages)) },
                // SAFETY: as above.
                Guard::Mprotect => unsafe { mprotect(page(made.pages)) }.inspect(|()| made.mprotected += 1),
            };
            match one {
                Ok(()) => made.pages += 1,
                Err(error) if how == Guard::Light && error.raw_os_error() == Some(libc::EINVAL) => {
                    how = Guard::Mprotect;
                }
                // What has its guard can be used; the next call meets the error again.
                Err(_) if made.pages > 0 => break,
                Err(error) => return Err(io::Error::other(format!("{how:?}: {error}"))),
            }
        }
        Ok(made)
    }
}

/// So many guards by `mprotect` went with their mapping.
pub(super) fn forget(mprotected: usize) {
    // Relaxed: a count, it orders nothing.
    MPROTECTED.fetch_sub(mprotected, Relaxed);
}

/// How many of the pages it guarded, from the first on; none where the kernel can't do it for many.
///
/// # Safety
/// As `Guard::install`.
unsafe fn light_batch(page: impl Fn(usize) -> *mut u8, count: usize) -> usize {
    let mut pages = [libc::iovec { iov_base: ptr::null_mut(), iov_len: PAGE }; BATCH];
    for (index, at) in pages[..count].iter_mut().enumerate() {
        at.iov_base = page(index).cast();
    }
    // SAFETY: advice on pages that the caller owns; the kernel reads the array.
    let advised = unsafe {
        libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, pages.as_ptr(), count, MADV_GUARD_INSTALL, 0)
    };
    // It says how many bytes it came through.
    usize::try_from(advised).map_or(0, |bytes| bytes / PAGE)
}

/// A guard that splits no mapping.
///
/// # Safety
/// As `Guard::install`.
unsafe fn light(page: *mut u8) -> io::Result<()> {
    // SAFETY: by this function's contract.
    match unsafe { libc::madvise(page.cast(), PAGE, MADV_GUARD_INSTALL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A guard that splits its mapping, within the budget of the process.
///
/// # Safety
/// As `Guard::install`.
unsafe fn mprotect(page: *mut u8) -> io::Result<()> {
    let max = max_map_count();
    let budget = budget();
    // Relaxed: a count, it orders nothing.
    if MPROTECTED.fetch_add(1, Relaxed) >= budget {
        MPROTECTED.fetch_sub(1, Relaxed);
        return Err(io::Error::other(format!(
            "{budget} guards, of two mappings each, are all that vm.max_map_count = {max} allows; \
             from Linux 6.13 on a guard needs no mapping"
        )));
    }
    // SAFETY: by this function's contract.
    if unsafe { libc::mprotect(page.cast(), PAGE, libc::PROT_NONE) } != 0 {
        let error = io::Error::last_os_error();
        MPROTECTED.fetch_sub(1, Relaxed);
        return Err(io::Error::other(format!("{error}; vm.max_map_count = {max}")));
    }
    Ok(())
}

/// The most guards by `mprotect` in this process.
pub(super) fn budget() -> usize {
    let max = max_map_count();
    (max - max / 8) / 2
}

pub(super) fn max_map_count() -> usize {
    static MAX: OnceLock<usize> = OnceLock::new();
    // Without /proc: the kernel's default.
    *MAX.get_or_init(|| {
        let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap_or_default();
        text.trim().parse().unwrap_or(65530)
    })
}
