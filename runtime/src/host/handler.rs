//! Helpers that signal handlers share.

use std::ffi::{c_int, c_void};

/// Calls `f`, and leaves the calling thread's `errno` as it was: the code that a signal has interrupted may be about to read
/// it.
pub(crate) fn keeping_errno(f: impl FnOnce()) {
    // SAFETY: the address is this thread's errno.
    let (errno, before) = unsafe { (libc::__errno_location(), *libc::__errno_location()) };
    f();
    // SAFETY: a handler ends on the thread on which it has begun.
    unsafe { *errno = before };
}

/// Calls the handler of `action`.
///
/// # Safety
/// `action` is that of a handler of this signal, and the arguments are those of the handler.
pub(crate) unsafe fn call(
    action: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) {
    if action.sa_flags & libc::SA_SIGINFO != 0 {
        type Full = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
        // SAFETY: by the flag, the installer of the handler has said that the handler has this type.
        let handler = unsafe { std::mem::transmute::<usize, Full>(action.sa_sigaction) };
        // SAFETY: by this function's contract.
        unsafe { handler(signal, info, context) };
    } else {
        type Short = unsafe extern "C" fn(c_int);
        // SAFETY: without the flag, the installer of the handler has said that the handler has this type.
        let handler = unsafe { std::mem::transmute::<usize, Short>(action.sa_sigaction) };
        // SAFETY: the signal is the one for which the handler was installed.
        unsafe { handler(signal) };
    }
}
