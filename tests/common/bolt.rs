//! A call through which nothing unwinds.

use std::ffi::c_void;
use std::hint::black_box;

/// Calls `f` below a function of the C ABI, which ends the process when a panic reaches it. So a goroutine that parks in `f`
/// can't be unwound, and the end of its runtime leaves it there.
pub fn bolted<R>(f: impl FnOnce() -> R) -> R {
    extern "C" fn call(f: *mut c_void) {
        // SAFETY: `bolted` passes a pointer to this type, and waits.
        let f = unsafe { &mut *f.cast::<&mut dyn FnMut()>() };
        f();
    }
    let (mut f, mut value) = (Some(f), None);
    let mut run = || value = f.take().map(|f| f());
    let mut erased: &mut dyn FnMut() = &mut run;
    let call: extern "C" fn(*mut c_void) = black_box(call);
    call((&raw mut erased).cast());
    value.expect("the closure was called")
}
