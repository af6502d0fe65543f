//! SIGQUIT, as the kernel sends it.

use super::Native;
use crate::host::Process;
use crate::m::note::Note;
use crate::sched::watch::quit::Heard;
use std::sync::Once;

/// Installs a handler of SIGQUIT that asks for a dump, unless the program has set the signal's action. The first call
/// decides.
pub(super) fn catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Made before the handler can run, which then only reads it.
        Native::shared();
        // SAFETY: both are plain data, for which zero is a value; the kernel writes the old one and reads the new one.
        unsafe {
            let mut old: libc::sigaction = std::mem::zeroed();
            let asked = libc::sigaction(libc::SIGQUIT, std::ptr::null(), &raw mut old);
            if asked != 0 || old.sa_sigaction != libc::SIG_DFL {
                return;
            }
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = on_quit as *const () as libc::sighandler_t;
            // On the thread's signal stack, where it has one: a goroutine's stack may be nearly full. Interrupted system
            // calls are restarted.
            new.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGQUIT, &raw const new, std::ptr::null_mut());
        }
    });
}

/// Returns `true` for the address of this handler.
pub(super) fn is(handler: usize) -> bool {
    handler == on_quit as *const () as usize
}

/// Does what a signal handler may: atomics, a futex wake, and the end of the process.
extern "C" fn on_quit(signal: libc::c_int) {
    // SAFETY: the address of this thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: the address is this thread's errno.
    let before = unsafe { *errno };
    if Native::shared().quit.ask(Note::alarm) == Heard::No {
        // SAFETY: both are allowed in a handler. The signal is delivered when this handler has returned.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    // SAFETY: the address is this thread's errno.
    unsafe { *errno = before };
}
