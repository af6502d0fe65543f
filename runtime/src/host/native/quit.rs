//! SIGQUIT, as the kernel sends it.

use super::Native;
use super::end::end_by;
use crate::host::Process;
use crate::host::handler::{Server, keeping_errno};
use crate::m::note::Note;
use crate::sched::watch::quit::Heard;

/// The process that has the monitors.
pub(super) static MONITORS: Server = Server::new();

/// Returns the address of the handler. `Native::shared()` is made before the handler is installed, which then only reads it.
pub(super) fn handler() -> usize {
    on_quit as *const () as usize
}

/// Does only what a signal handler may: atomics, a futex wake, and the end of the process.
extern "C" fn on_quit(signal: libc::c_int) {
    keeping_errno(|| {
        if MONITORS.is_forked() || Native::shared().quit.ask(Note::alarm) == Heard::No {
            end_by(signal);
        }
    });
}
