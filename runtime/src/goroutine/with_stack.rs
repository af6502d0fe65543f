//! A function on a larger stack: [`with_stack`].

use crate::host::Active;
use crate::runtime::check_stack_size;
use crate::sched::Sched;

/// Runs `f` on another stack, of `size` bytes, and returns the value of `f`: for a function that needs a deep stack (a
/// recursive parser, a library with large buffers in the frames) in a goroutine that otherwise does with a small one.
///
/// `f` runs as part of the calling goroutine or thread, like any function called there. `f` may do all that the caller may:
/// park, panic, call [`goexit`](crate::goexit), be ended by a [`Context`](crate::context::Context::run) or by the end of the
/// runtime, call `with_stack` again. `f` need be neither `Send` nor `'static`. `with_stack` itself does not park.
///
/// Sizes are those of [`Builder::stack_size`](crate::Builder::stack_size): 16 KiB to 64 MiB, rounded up to a power of two, one
/// page of which belongs to the guard; up to 2 KiB at the top remain unused. A page takes memory once touched. On a goroutine
/// the runtime lends the stack, and gets it back when `f` returns or unwinds; on a plain thread the process lends it, and keeps
/// at most 256 KiB of memory in each such stack. Call `with_stack` once, before a recursion, not on each step: the call costs
/// less than [`go`](crate::go), but far more than a function call.
///
/// An overflow of that stack is reported like one of the goroutine's first stack; see [`go`](crate::go).
///
/// ```
/// fn depth(n: u32) -> u32 {
///     let frame = std::hint::black_box([n; 64]);
///     if n == 0 { 0 } else { depth(n - 1) + frame[7] / n }
/// }
///
/// // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
/// let depth = unsafe { gmp::run(|| gmp::with_stack(32 << 20, || depth(20_000))) };
/// assert_eq!(depth, 20_000);
/// ```
///
/// # Panics
/// When `f` panics; when the size is out of range, or the machine has no memory for the stack. `with_stack` panics instead of
/// returning an error, as [`go`](crate::go) does: most callers could do nothing with the error.
#[track_caller]
pub fn with_stack<R>(size: usize, f: impl FnOnce() -> R) -> R {
    let (mut f, mut value) = (Some(f), None);
    let mut call = || value = f.take().map(|f| f());
    let here = Sched::<Active>::current();
    let called = check_stack_size(size).and_then(|_| Sched::call_on(here, size, &mut call));
    match (called, value) {
        (Ok(()), Some(value)) => value,
        (Ok(()), None) => unreachable!("with_stack: the function was not called"),
        (Err(refused), _) => panic!("with_stack: {refused}"),
    }
}
