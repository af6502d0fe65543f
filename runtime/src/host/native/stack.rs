//! A goroutine's stack on the native host.

use super::Local;
use crate::host::Stack;
use crate::stack::switch::Coro;

/// A goroutine's stack.
pub(crate) struct NativeStack {
    pub(super) coro: Coro,
}

// SAFETY: a suspended stack belongs to the owner of this value; the contract of `gmp::migration`, under which the runtime was
// started, says what its frames may keep across a switch.
unsafe impl Send for NativeStack {}

impl Stack<Local> for NativeStack {
    #[inline(always)]
    unsafe fn resume(&self, local: &Local, g: *mut ()) -> usize {
        // The word is for the entry; later resumes ignore it.
        let word = g.expose_provenance();
        // SAFETY: the caller won the right to run this goroutine, which has not ended, on the M of `local`.
        unsafe { self.coro.resume(&local.home, word) }
    }

    #[inline(always)]
    fn coro(&self) -> &Coro {
        &self.coro
    }
}
