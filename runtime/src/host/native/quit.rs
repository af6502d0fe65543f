//! SIGQUIT, as the kernel sends it.

use super::Native;
use crate::host::Process;
use crate::m::note::Note;
use crate::sched::watch::quit::Heard;
use std::sync::Once;

/// Has the signal ask for a dump, if the program has not said yet what it is to do. The first call decides.
pub(super) fn catch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // Made before a handler asks for it: then that only reads.
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
            // On the thread's stack for signals, where it has one: a goroutine's may be nearly full. System calls go on.
            new.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
            libc::sigaction(libc::SIGQUIT, &raw const new, std::ptr::null_mut());
        }
    });
}

/// Does what a handler may: atomics, a wake by futex, and the way out.
extern "C" fn on_quit(signal: libc::c_int) {
    // SAFETY: the address of this thread's errno, which the interrupted code may be about to read.
    let errno = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *errno };
    if Native::shared().quit.ask(Note::alarm) == Heard::No {
        // SAFETY: both are allowed in a handler. It comes when this one has returned.
        unsafe {
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    // SAFETY: as above.
    unsafe { *errno = before };
}
