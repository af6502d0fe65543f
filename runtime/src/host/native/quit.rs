//! SIGQUIT, as the kernel sends it.

use super::end::end_by;
use super::shared::shared_if_made;
use crate::host::handler::keeping_errno;
use crate::m::note::Note;
use crate::sched::watch::quit::Heard;

/// Returns the address of the handler, which reads the values of the process if they are there, and never makes them. A forked
/// child has its parent's handler, and at first no values.
pub(super) fn handler() -> usize {
    on_quit as *const () as usize
}

/// Does only what a signal handler may: atomics, a futex wake, and the end of the process.
extern "C" fn on_quit(signal: libc::c_int) {
    keeping_errno(|| {
        if shared_if_made().is_none_or(|shared| shared.quit.ask(Note::alarm) == Heard::No) {
            end_by(signal);
        }
    });
}
