//! ThreadSanitizer: each goroutine is a fiber, with a shadow stack and a clock of its own. A switch orders what both sides do,
//! as on one thread; goroutines that follow each other on an M are ordered only by the M's own steps.

use std::cell::Cell;
use std::ffi::{c_uint, c_void};
use std::ptr;

type Fiber = *mut c_void;

unsafe extern "C" {
    fn __tsan_get_current_fiber() -> Fiber;
    fn __tsan_create_fiber(flags: c_uint) -> Fiber;
    fn __tsan_destroy_fiber(fiber: Fiber);
    fn __tsan_switch_to_fiber(fiber: Fiber, flags: c_uint);
    fn __tsan_func_entry(caller: *const c_void);
}

/// A goroutine's fiber.
#[derive(Debug)]
pub(crate) struct Stack(Fiber);

impl Stack {
    /// A stack of so many bytes below `top` was taken.
    pub(crate) fn new(_top: *mut u8, _bytes: usize) -> Stack {
        // SAFETY: it has no preconditions.
        Stack(unsafe { __tsan_create_fiber(0) })
    }

    /// The stack is given back: nothing runs there any more.
    pub(crate) fn retire(self) {
        // SAFETY: `new` has made the fiber, which is not the current one.
        unsafe { __tsan_destroy_fiber(self.0) };
    }
}

/// The fiber of an M's thread, while a goroutine runs there.
#[derive(Debug)]
pub(crate) struct Home(Cell<Fiber>);

impl Home {
    pub(crate) const fn new() -> Home {
        Home(Cell::new(ptr::null_mut()))
    }
}

/// What is kept on a stack that is left: nothing.
pub(crate) struct Away;

/// Called on the M's stack, right before the switch to a goroutine's. The result is for `back`.
#[inline(always)]
pub(crate) fn enter(stack: &Stack, home: &Home) -> Away {
    // SAFETY: the switch to that goroutine follows, in the same function.
    unsafe {
        home.0.set(__tsan_get_current_fiber());
        __tsan_switch_to_fiber(stack.0, 0);
    }
    Away
}

/// Called on the M's stack, right after the switch back.
#[inline(always)]
pub(crate) fn back(_: Away, _stack: &Stack) {}

/// Called on the goroutine's stack, right before the switch to the M's. The result is for `arrive`.
#[inline(always)]
pub(crate) fn leave(home: &Home) -> Away {
    // SAFETY: the switch to the M that resumed this goroutine follows, in the same function.
    unsafe { __tsan_switch_to_fiber(home.0.get(), 0) };
    Away
}

/// Called on the goroutine's stack, right after the switch back, perhaps on another thread.
#[inline(always)]
pub(crate) fn arrive(_: Away) {}

/// The first act of a goroutine on a new stack.
#[inline(always)]
pub(crate) fn begun() {}

/// The last act before the return. At the return, compiled code leaves the shadow stack of the fiber that is current by then,
/// which is the M's: so this function enters that shadow stack first.
#[inline(always)]
pub(crate) fn end(home: &Home) {
    let Away = leave(home);
    // SAFETY: it has no preconditions.
    unsafe { __tsan_func_entry(ptr::null()) };
}
