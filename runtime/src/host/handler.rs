//! The actions of signals, and what handlers share. A signal handler may call all of this.

use std::ffi::{c_int, c_void};
use std::io;
use std::ptr;

/// Returns the action of a signal; with `next`, sets that action and returns the one before.
pub(crate) fn exchange(signal: c_int, next: Option<&libc::sigaction>) -> io::Result<libc::sigaction> {
    let mut before = action(libc::SIG_DFL, 0);
    let next = next.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the call reads and writes the actions that we pass. A handler in `next` is one of this library's, or one that the
    // program has set.
    match unsafe { libc::sigaction(signal, next, &raw mut before) } {
        0 => Ok(before),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Makes an action that blocks no signal but its own.
pub(crate) fn action(handler: usize, flags: c_int) -> libc::sigaction {
    // SAFETY: a struct of integers.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (handler, flags);
    action
}

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
