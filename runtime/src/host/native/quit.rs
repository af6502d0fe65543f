//! SIGQUIT, as the kernel sends it.

use super::Native;
use super::end::end_by;
use crate::host::Process;
use crate::m::note::Note;
use crate::sched::watch::quit::Heard;

/// The address of the handler. `Native::shared()` is made before that is installed, which then only reads it.
pub(super) fn handler() -> usize {
    on_quit as *const () as usize
}

/// Does what a signal handler may: atomics, a futex wake, and the end of the process.
extern "C" fn on_quit(signal: libc::c_int) {
    // SAFETY: the address of this thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is this thread's errno.
    let before = unsafe { *errno };
    if Native::shared().quit.ask(Note::alarm) == Heard::No {
        end_by(signal);
    }
    // SAFETY: the address is this thread's errno.
    unsafe { *errno = before };
}
