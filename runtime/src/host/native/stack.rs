//! A goroutine's stack on the native host.

use super::{Local, Native};
use crate::g::{self, GRef};
use crate::host::{EXIT, Frames, Stack};
use crate::m::Window;
use crate::stack::switch::{Coro, End};

/// A goroutine's stack.
pub(crate) struct NativeStack {
    pub(super) coro: Coro,
}

// SAFETY: a suspended stack belongs to the owner of this value; what its frames may keep across a switch is the
// contract of `gmp::migration`, under which the runtime was started.
unsafe impl Send for NativeStack {}

impl Stack<Local> for NativeStack {
    #[inline(always)]
    unsafe fn resume(&mut self, local: &Local, g: *mut ()) -> usize {
        // The word is for the entry; later resumes ignore it.
        let word = g.expose_provenance();
        // SAFETY: the caller won the right to run this goroutine, which has not ended, on the M of `local`.
        unsafe { self.coro.resume(&local.home, word) }
    }

    #[inline(always)]
    fn fetch(&self) {
        self.coro.fetch();
    }

    fn depth(&self) -> Option<usize> {
        self.coro.depth()
    }

    fn touched(&self) -> Option<usize> {
        self.coro.touched()
    }

    fn forget(&self) {
        self.coro.forget();
    }

    unsafe fn frames(&self, frames: &mut Frames) {
        // SAFETY: by this function's contract.
        unsafe { self.coro.frames(frames) };
    }
}

/// The first code on a goroutine's stack, and the last.
pub(super) unsafe extern "C" fn entry(word: usize) -> End {
    #[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
    crate::stack::annotate::begun();
    // SAFETY: `resume` passed the goroutine, whose M holds it.
    let g = unsafe { GRef::<Native>::from_raw(std::ptr::with_exposed_provenance_mut(word)) };
    g::root(g);
    // The end is inside the runtime, like a park.
    let window = Window::<Native>::enter().expect("entry: a goroutine runs on an M");
    let home = &raw const window.m().local.home;
    #[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
    crate::stack::annotate::end(&window.m().local.home.told);
    std::mem::forget(window);
    End { home, word: EXIT }
}
