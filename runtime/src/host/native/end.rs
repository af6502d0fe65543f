//! The end of the process by a signal, from that signal's handler.

use super::mask::unblock;
use std::ffi::c_int;

/// Ends the process by the default action of `signal`; if the kernel takes none, as for the first process of a PID namespace,
/// with the exit status that a shell gives for such an end. A signal handler may call this.
pub(super) fn end_by(signal: c_int) -> ! {
    // SAFETY: no pointers; allowed in a handler.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
    // The handler's own signal is blocked.
    unblock(signal);
    // SAFETY: no pointers; both are allowed in a handler, and the second does not return.
    unsafe {
        libc::raise(signal);
        libc::_exit(128 + signal)
    }
}
