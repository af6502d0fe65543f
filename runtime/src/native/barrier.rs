//! `membarrier`: a full barrier on every running thread of the process, asked for by one of them.
//!
//! It makes a plain store and a load enough on the side that runs all the time (`m.rs`). A process registers once for the
//! expedited form (Linux 4.14), which interrupts only the CPUs that run its threads. Sandboxes may refuse it.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

fn membarrier(command: libc::c_int) -> bool {
    // SAFETY: takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) == 0 }
}

static REGISTERED: OnceLock<bool> = OnceLock::new();

/// Registers the process, before its first M enters a window.
pub(crate) fn register() {
    REGISTERED.get_or_init(|| membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED));
}

/// Whether the kernel has it for us.
#[inline]
pub(crate) fn exists() -> bool {
    REGISTERED.get() == Some(&true)
}

/// Has all threads pass a full barrier, or this one where there is none for all.
pub(crate) fn heavy() -> bool {
    if exists() {
        return membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
    }
    fence(Ordering::SeqCst);
    true
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_works_here_or_says_that_it_does_not() {
        super::register();
        assert!(super::heavy());
    }
}
