//! Ctrl-C without a handler and without polling: the signals are blocked in every thread, and one waits for them.

use std::mem::MaybeUninit;

/// SIGINT and SIGTERM, blocked.
pub struct Signals(libc::sigset_t);

impl Signals {
    /// Blocks them in the calling thread and in those that it starts from now on: call it before a runtime is
    /// built.
    pub fn block() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: `sigemptyset` makes it a set; the others read it, or change it as the set that it is. The
        // numbers are valid, so none of them fails.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            Signals(set.assume_init())
        }
    }

    /// Blocks the calling thread until one of them comes.
    pub fn wait(&self) {
        let mut which = 0;
        // SAFETY: a valid set, and a number to write to.
        unsafe { libc::sigwait(&raw const self.0, &raw mut which) };
    }
}
