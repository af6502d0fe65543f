//! Forked children that never call exec.

use crate::{other_threads_sleep, until};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

/// A forked child; the drop kills it, and waits for its end.
pub struct Forked(libc::pid_t);

/// Forks a child that ends with status 0 if `f` returns `true`, else 1. No other thread holds a lock of the library's.
pub fn fork(f: impl FnOnce() -> bool) -> Forked {
    // SAFETY: the child may allocate, as the C library's fork sees to, and finds the library's locks free.
    match unsafe { libc::fork() } {
        0 => {
            let fails = !catch_unwind(AssertUnwindSafe(f)).unwrap_or(false);
            // SAFETY: ends the child without its parent's exit handlers.
            unsafe { libc::_exit(i32::from(fails)) }
        }
        child => {
            assert!(child > 0, "{}", io::Error::last_os_error());
            Forked(child)
        }
    }
}

/// Forks such a child when all other threads sleep, and returns how the child ends.
pub fn ends(f: impl FnOnce() -> bool) -> ExitStatus {
    until(other_threads_sleep);
    fork(f).wait()
}

impl Forked {
    /// Waits for the child's end.
    pub fn wait(self) -> ExitStatus {
        let mut status = 0;
        // SAFETY: the word is ours.
        assert_eq!(unsafe { libc::waitpid(self.0, &raw mut status, 0) }, self.0);
        std::mem::forget(self);
        ExitStatus::from_raw(status)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        // SAFETY: the child's status was not taken; no pointers but null.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}
