//! The first page of many stacks in one call.
//!
//! A goroutine's first touch of a fresh stack is a page fault, of which a quarter is the way into the kernel and back. In
//! a storm, where many stacks are out and fresh ones are taken a batch at a time, `MADV_POPULATE_WRITE` (Linux 5.14)
//! gives the top pages of the batch their memory. `process_madvise` takes them all in one call (from 6.14 on, where a
//! number stands for the calling process); where the kernel refuses that, the pages come one by one as they are touched,
//! and the process does not ask again. The call is outside of the pool's lock.
//!
//! *Beside a thread that changes mappings.* The call holds the lock of the process's mappings, which most faults do not take.
//! So the call and a thread that maps memory, or whose heap grows, hold each other up: while a goroutine spawns a million
//! others on one thread, and another thread runs them, glibc grows the spawner's heap by an `mprotect` for each page. The
//! kernel counts how often a thread had to wait. After a call in which the thread had to, the next [`PAUSE`] batches go
//! without, and their pages come one by one.
//!
//! Nothing depends on the advice: a page that the kernel did not give is given at its first touch. At the limit of a memory
//! cgroup the kernel may refuse the advice, or may reclaim memory, or kill, earlier by as many pages as a batch has.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use super::guard::PIDFD_SELF;
use super::{HAND, PAGE, StackMem};

/// How many batches go without after a call that had to wait.
const PAUSE: u32 = 32;

/// The kernel has refused once.
static REFUSED: AtomicBool = AtomicBool::new(false);
static TURNS: Turns = Turns { left: AtomicU32::new(0) };

/// Which batches are populated.
struct Turns {
    /// How many batches still go without.
    left: AtomicU32,
}

impl Turns {
    /// Makes the call, unless this batch goes without. `waits` returns how often the calling thread has had to wait so far.
    fn take(&self, waits: impl Fn() -> libc::c_long, call: impl FnOnce()) {
        // Relaxed, here and below: a count that another thread's store overwrites makes a pause shorter or longer.
        let left = self.left.load(Relaxed);
        if left > 0 {
            self.left.store(left - 1, Relaxed);
            return;
        }
        let before = waits();
        call();
        if waits() != before {
            self.left.store(PAUSE, Relaxed);
        }
    }
}

/// Returns how often the calling thread has slept in the kernel.
fn waits() -> libc::c_long {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the call writes the struct, all of whose bytes are valid as they are, too: a refusal leaves zeros.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nvcsw
    }
}

/// Gives the top pages of these stacks their memory, or leaves that to the first touch; at most `HAND` stacks.
pub(super) fn tops<'a>(stacks: impl Iterator<Item = &'a StackMem>) {
    // Relaxed: a thread that misses the store is refused, too.
    if !REFUSED.load(Relaxed) {
        TURNS.take(waits, || populate(stacks));
    }
}

fn populate<'a>(stacks: impl Iterator<Item = &'a StackMem>) {
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

/// Returns `true` if the next batch goes without.
#[cfg(all(test, not(gmp_loom)))]
pub(super) fn leaves_out() -> bool {
    TURNS.left.load(Relaxed) > 0
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// Fails if a batch is populated in a pause, or if batches go without although no call had to wait.
    #[test]
    fn batches_go_without_for_a_while_after_a_call_that_had_to_wait() {
        let (turns, waited, calls) = (Turns { left: AtomicU32::new(0) }, Cell::new(7), Cell::new(0));
        let take = |waits: bool| {
            turns.take(
                || waited.get(),
                || {
                    calls.set(calls.get() + 1);
                    waited.set(waited.get() + libc::c_long::from(waits));
                },
            );
            calls.get()
        };
        assert_eq!((1..=3).map(|_| take(false)).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(take(true), 4);
        assert!((0..PAUSE).all(|_| take(true) == 4));
        assert_eq!(take(false), 5);
        assert_eq!(take(false), 6);
    }
}
