//! AddressSanitizer: it must know the bounds of the stack that runs, or takes frames for wild memory, and unpoisons the
//! wrong stack at a throw. Each stack has a fake one beside it, for the frames that it watches after their return.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

unsafe extern "C" {
    fn __sanitizer_start_switch_fiber(save: *mut *mut c_void, bottom: *const c_void, size: usize);
    fn __sanitizer_finish_switch_fiber(saved: *mut c_void, bottom: *mut *const c_void, size: *mut usize);
}

/// Of a goroutine's stack: its bounds.
#[derive(Debug)]
pub(crate) struct Stack {
    bottom: *const c_void,
    bytes: usize,
}

impl Stack {
    /// A stack of so many bytes below `top` was taken.
    pub(crate) fn new(top: *mut u8, bytes: usize) -> Stack {
        Stack { bottom: top.wrapping_sub(bytes).cast(), bytes }
    }

    /// It is given back: nothing runs on it any more.
    pub(crate) fn retire(self) {}
}

/// Of an M's own stack: its bounds, from the first resume on. An M gets another thread when its own has ended.
#[derive(Debug)]
pub(crate) struct Home {
    thread: Cell<Option<libc::pthread_t>>,
    bottom: Cell<*const c_void>,
    bytes: Cell<usize>,
}

impl Home {
    pub(crate) const fn new() -> Home {
        Home { thread: Cell::new(None), bottom: Cell::new(ptr::null()), bytes: Cell::new(0) }
    }

    /// Asks for the bounds of the calling thread's stack.
    #[cold]
    fn learn(&self, thread: libc::pthread_t) {
        let mut bottom = ptr::null_mut();
        let mut bytes = 0;
        // SAFETY: it fills the structure and the two words; the structure is destroyed once, if it was made.
        unsafe {
            let mut attr = std::mem::zeroed();
            assert_eq!(libc::pthread_getattr_np(thread, &raw mut attr), 0, "learn: no attributes");
            libc::pthread_attr_getstack(&raw const attr, &raw mut bottom, &raw mut bytes);
            libc::pthread_attr_destroy(&raw mut attr);
        }
        self.thread.set(Some(thread));
        self.bottom.set(bottom);
        self.bytes.set(bytes);
    }
}

/// A fake stack that waits for its real one.
pub(crate) type Away = *mut c_void;

/// On the M's stack, right before the switch to a goroutine's. What it gives is for `back`.
#[inline(always)]
pub(crate) fn enter(stack: &Stack, home: &Home) -> Away {
    // SAFETY: it has no preconditions. Two threads with one number, one after the other, have had the same stack.
    let thread = unsafe { libc::pthread_self() };
    if home.thread.get() != Some(thread) {
        home.learn(thread);
    }
    let mut fake = ptr::null_mut();
    // SAFETY: the switch follows, to a stack with these bounds.
    unsafe { __sanitizer_start_switch_fiber(&raw mut fake, stack.bottom, stack.bytes) };
    fake
}

/// On the M's stack, right after the switch back.
#[inline(always)]
pub(crate) fn back(fake: Away) {
    arrive(fake);
}

/// On the goroutine's stack, right before the switch to its M's. What it gives is for `arrive`.
#[inline(always)]
pub(crate) fn leave(home: &Home) -> Away {
    let mut fake = ptr::null_mut();
    // SAFETY: the switch follows, to the stack of the M that resumed this goroutine and learned its bounds then.
    unsafe { __sanitizer_start_switch_fiber(&raw mut fake, home.bottom.get(), home.bytes.get()) };
    fake
}

/// On the goroutine's stack, right after the switch back, perhaps on another thread.
#[inline(always)]
pub(crate) fn arrive(fake: Away) {
    // SAFETY: the switch to this stack has begun, and `fake` is what was saved when it was left.
    unsafe { __sanitizer_finish_switch_fiber(fake, ptr::null_mut(), ptr::null_mut()) };
}

/// The first that a goroutine does on its stack.
#[inline(always)]
pub(crate) fn begun() {
    arrive(ptr::null_mut());
}

/// The last. Without a place to save it, the fake stack goes.
#[inline(always)]
pub(crate) fn end(home: &Home) {
    // SAFETY: as in `leave`.
    unsafe { __sanitizer_start_switch_fiber(ptr::null_mut(), home.bottom.get(), home.bytes.get()) };
}
