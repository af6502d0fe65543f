//! SIGQUIT, as the kernel sends it.

use super::Native;
use super::end::end_by;
use crate::host::Process;
use crate::host::handler::keeping_errno;
use crate::m::note::Note;
use crate::sched::watch::quit::Heard;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The process that has the runtimes. A forked child has a copy of their memory, and none of their monitors.
static PROCESS: AtomicI32 = AtomicI32::new(0);

fn own() -> libc::pid_t {
    // SAFETY: no preconditions; allowed in a handler.
    unsafe { libc::getpid() }
}

/// Notes that this process has a runtime.
pub(super) fn note_process() {
    // Relaxed: the handler runs in this process, and is installed after this.
    PROCESS.store(own(), Relaxed);
}

/// Returns the address of the handler. `Native::shared()` is made before the handler is installed, which then only reads it.
pub(super) fn handler() -> usize {
    on_quit as *const () as usize
}

/// Does only what a signal handler may: atomics, a futex wake, and the end of the process.
extern "C" fn on_quit(signal: libc::c_int) {
    keeping_errno(|| {
        let is_forked = PROCESS.load(Relaxed) != own();
        if is_forked || Native::shared().quit.ask(Note::alarm) == Heard::No {
            end_by(signal);
        }
    });
}
