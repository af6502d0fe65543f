//! AddressSanitizer: the tool must know the bounds of the running stack; otherwise it takes frames for wild memory, and
//! unpoisons the wrong stack at a throw. Each stack has a fake one beside it, for the frames that the tool watches after their
//! return.

use std::cell::Cell;
use std::ffi::c_void;
use std::ptr;

unsafe extern "C" {
    fn __sanitizer_start_switch_fiber(save: *mut *mut c_void, bottom: *const c_void, size: usize);
    fn __sanitizer_finish_switch_fiber(saved: *mut c_void, bottom: *mut *const c_void, size: *mut usize);
    fn __asan_handle_no_return();
}

/// The bounds of the stack on which a goroutine goes on: its own, or that of `with_stack` on which it parked.
#[derive(Debug)]
pub(crate) struct Stack {
    bottom: Cell<*const c_void>,
    bytes: Cell<usize>,
}

impl Stack {
    /// A stack of so many bytes below `top` was taken.
    pub(crate) fn new(top: *mut u8, bytes: usize) -> Stack {
        Stack { bottom: Cell::new(top.wrapping_sub(bytes).cast()), bytes: Cell::new(bytes) }
    }

    /// The stack is given back: nothing runs there any more.
    pub(crate) fn retire(self) {}
}

/// The bounds of an M's own stack, from the first resume on. An M whose thread has ended gets another thread.
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
        // SAFETY: the calls fill the structure and the two words; the structure is destroyed once, if it was made.
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

/// A fake stack that waits for the real one.
pub(crate) type Away = *mut c_void;

/// Called on the M's stack, right before the switch to a goroutine's. The result is for `back`.
#[inline(always)]
pub(crate) fn enter(stack: &Stack, home: &Home) -> Away {
    // SAFETY: the call has no preconditions. Two threads with one number, one after the other, have had the same stack.
    let thread = unsafe { libc::pthread_self() };
    if home.thread.get() != Some(thread) {
        home.learn(thread);
    }
    let mut fake = ptr::null_mut();
    // SAFETY: the switch follows, to a stack with these bounds.
    unsafe { __sanitizer_start_switch_fiber(&raw mut fake, stack.bottom.get(), stack.bytes.get()) };
    fake
}

/// Called on the M's stack, right after the switch back from `stack`.
#[inline(always)]
pub(crate) fn back(fake: Away, stack: &Stack) {
    // SAFETY: the switch to this stack has begun, and `fake` is what was saved on leaving this stack. The call stores the
    // bounds of the stack that was left now.
    unsafe { __sanitizer_finish_switch_fiber(fake, stack.bottom.as_ptr(), stack.bytes.as_ptr()) };
}

/// Called on the goroutine's stack, right before the switch to the M's. The result is for `arrive`.
#[inline(always)]
pub(crate) fn leave(home: &Home) -> Away {
    let mut fake = ptr::null_mut();
    // SAFETY: the switch follows, to the stack of the M that resumed this goroutine and learned its bounds then.
    unsafe { __sanitizer_start_switch_fiber(&raw mut fake, home.bottom.get(), home.bytes.get()) };
    fake
}

/// Called on the goroutine's stack, right after the switch back, perhaps on another thread.
#[inline(always)]
pub(crate) fn arrive(fake: Away) {
    // SAFETY: the switch to this stack has begun, and `fake` is what was saved on leaving this stack.
    unsafe { __sanitizer_finish_switch_fiber(fake, ptr::null_mut(), ptr::null_mut()) };
}

/// The first act of a goroutine on a new stack.
#[inline(always)]
pub(crate) fn begun() {
    arrive(ptr::null_mut());
}

/// The last act of a goroutine on its stack. Without a place for saving, the tool frees the fake stack.
#[inline(always)]
pub(crate) fn end(home: &Home) {
    // SAFETY: as in `leave`.
    unsafe { __sanitizer_start_switch_fiber(ptr::null_mut(), home.bottom.get(), home.bytes.get()) };
}

/// A call on another stack, by the same goroutine or thread: the fake stack and the bounds of the outer one.
#[derive(Debug)]
pub(crate) struct Call {
    fake: *mut c_void,
    bottom: *const c_void,
    bytes: usize,
}

impl Call {
    /// Called on the outer stack, right before the call. The value is dropped there, when the call has returned or unwound.
    #[inline(always)]
    #[must_use]
    pub(crate) fn begin(stack: &Stack) -> Call {
        let mut call = Call { fake: ptr::null_mut(), bottom: ptr::null(), bytes: 0 };
        // SAFETY: the call follows, on a stack with these bounds, where nothing has run yet. The calls store the fake stack and
        // the bounds of the outer one.
        unsafe {
            __sanitizer_start_switch_fiber(&raw mut call.fake, stack.bottom.get(), stack.bytes.get());
            __sanitizer_finish_switch_fiber(ptr::null_mut(), &raw mut call.bottom, &raw mut call.bytes);
        }
        call
    }
}

impl Drop for Call {
    /// Never inlined: this function's frame, which has no variables, is the last one to run with the fake stack that is freed
    /// here.
    #[inline(never)]
    fn drop(&mut self) {
        // SAFETY: this is the stack from which the call was made, and `fake` is what was saved then. No frame is left on the
        // other stack.
        unsafe {
            __sanitizer_start_switch_fiber(ptr::null_mut(), self.bottom, self.bytes);
            __sanitizer_finish_switch_fiber(self.fake, ptr::null_mut(), ptr::null_mut());
        }
        if std::thread::panicking() {
            // SAFETY: the call has no preconditions. A throw clears the frames of the stack on which it begins, and goes on
            // through the frames of this one.
            unsafe { __asan_handle_no_return() };
        }
    }
}
