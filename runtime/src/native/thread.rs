//! Threads and futexes.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Starts an M's thread. A panic that leaves its body is a broken invariant of the scheduler: goroutines catch
/// theirs. It ends the process, after the hook has told what it was.
pub(crate) fn start(
    name: &str,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        // Timed waits are to end when they are due; by default the kernel may be 50 µs late to save power.
        // SAFETY: no pointers. A refusal leaves the default.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            super::say(format_args!("fatal error: the scheduler panicked"));
            std::process::abort();
        }
    })
}

/// Sleeps while `*word == expected`, at most for `limit`. Returns early at a signal.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| &raw const *limit);
    // SAFETY: the word and the limit live through the call; the kernel only compares the word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            limit,
        );
    }
}

/// Wakes the one thread that sleeps on `word`. The word may be gone: then nobody sleeps there.
pub(crate) fn futex_wake(word: &AtomicU32) {
    // SAFETY: the kernel uses the address as a name only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}
