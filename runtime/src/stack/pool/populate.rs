//! The first page of many stacks in one call.
//!
//! A goroutine's first touch of a fresh stack is a page fault, of which a quarter is the way into the kernel and back. In
//! a storm, where many stacks are out and fresh ones are taken a batch at a time, `MADV_POPULATE_WRITE` (Linux 5.14)
//! gives the top pages of the batch their memory. `process_madvise` takes them all in one call (from 6.14 on, where a
//! number stands for the calling process); where the kernel refuses that, the pages come one by one as they are touched,
//! and the process does not ask again. The call is outside of the pool's lock.
//!
//! Nothing depends on the advice: a page that the kernel did not give is given at its first touch. At the limit of a memory
//! cgroup the kernel may refuse the advice, or may reclaim memory, or kill, earlier by as many pages as a batch has.

use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::guard::PIDFD_SELF;
use super::{HAND, PAGE, StackMem};

/// The kernel has refused once.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Gives the top pages of these stacks their memory; at most `HAND` stacks.
pub(super) fn tops<'a>(stacks: impl Iterator<Item = &'a StackMem>) {
    // Relaxed: a thread that misses the store is refused, too.
    if REFUSED.load(Relaxed) {
        return;
    }
    let mut pages = [libc::iovec { iov_base: ptr::null_mut(), iov_len: PAGE }; HAND];
    let mut count = 0;
    for (page, stack) in pages.iter_mut().zip(stacks) {
        page.iov_base = stack.top().wrapping_sub(PAGE).cast();
        count += 1;
    }
    let advice = libc::MADV_POPULATE_WRITE;
    // SAFETY: pages of stacks that the caller owns, whose content the advice does not change; the kernel reads the array.
    let advised =
        unsafe { libc::syscall(libc::SYS_process_madvise, PIDFD_SELF, pages.as_ptr(), count, advice, 0) };
    if advised < 0 {
        REFUSED.store(true, Relaxed);
    }
}

#[cfg(all(test, not(gmp_loom)))]
pub(super) fn is_refused() -> bool {
    REFUSED.load(Relaxed)
}
