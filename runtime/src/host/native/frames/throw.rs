//! The throw that a look has allowed: one walk over the frames instead of two.
//!
//! A panic is thrown in two phases. The first one searches for a frame that catches, and changes nothing, so that the process
//! can end with all frames in place if there is none; the second one walks the same frames again, and stops at each landing
//! pad. A look has already found the frame that catches. So this throw asks the unwinder only for the second phase, which the
//! unwinder calls *forced unwinding* (`_Unwind_ForcedUnwind`; Itanium C++ ABI, "Exception Handling", 1.3). Landing pads go on
//! from there by `_Unwind_Resume` as always. It finds in the exception that the unwinding is forced, and does not search
//! either.
//!
//! ```text
//!   user .. our functions .. from_here    begin, resume_unwind, .. _Unwind_RaiseException
//!                                   ^------------------------------ search phase: up to `take_exception`, the
//!                                   |                               personality of `from_here`, which goes back there
//!   <------------------------------ go_on: _Unwind_ForcedUnwind
//! ```
//! *The exception is std's own*: class, canary and payload are those that `catch_unwind` expects, and the count of panics, from
//! which `std::thread::panicking` answers, is right. Only std can make such an exception, and std throws it at once. So std
//! throws, from a frame with a personality of ours. The search phase asks that personality first, before any frame of the
//! caller's, and hands it the exception. The personality takes the stack back to that frame, as if the call of `begin` had
//! returned the exception. The frames between, those of std's throw and the unwinder's, are given up. By then std has moved the
//! payload into the exception, and only a box of `()` is left in these frames. *The obvious way* is to call
//! `_Unwind_ForcedUnwind` in the personality, with these frames below: the walk then begins with the unwinder's own frames and
//! std's, and takes longer than both phases (`docs/performance.md`, "A goroutine that is unwound").
//!
//! *What differs from a panic's second phase* is what Rust's personality does at an `extern "C"` function without live values
//! (Filter): the throw passes on, where a panic ends the process. The look says no for these functions, so the runtime makes
//! this throw only where a look has said yes. `goexit` does not look, and throws as a panic does. A Catch is honoured, which
//! the ABI does not ask for: `prepare` tries that, once in a process, and if it fails, each throw is a plain one. A throw is
//! also a plain one if the unwinder refuses to begin.
//!
//! A panic of the user, including a caught payload that is raised again, is thrown as always.
//!
//! This throw is not used under ThreadSanitizer, which follows calls and returns: the frames that are given up would pile up
//! there.

use super::_Unwind_GetCFA;
use crate::host::Process;
use crate::host::native::Native;
use crate::stack::unwind::{Context, ON};
use std::any::Any;
use std::arch::naked_asm;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

/// A function that the unwinder asks about each frame before it leaves the frame. Its arguments are version, actions, class,
/// exception, frame, and the argument that was given with the function. All values except `ON` end the unwinding.
pub(super) type Stop = extern "C" fn(c_int, c_int, u64, *mut c_void, *mut Context, *mut c_void) -> c_int;

// The ABI is `C-unwind` because these functions throw.
unsafe extern "C-unwind" {
    fn _Unwind_ForcedUnwind(exception: *mut c_void, stop: Stop, arg: *mut c_void) -> c_int;
    fn _Unwind_RaiseException(exception: *mut c_void) -> c_int;
}

/// Whether one walk is enough in this process, according to the trial of `prepare`.
static ONE_WALK: AtomicBool = AtomicBool::new(false);

/// Throws `payload`. It is inlined because the unwinder visits each frame on the way.
///
/// A look from below the caller must have said yes.
#[inline(always)]
pub(crate) fn throw<T: Any + Send>(payload: Box<T>) -> ! {
    // Relaxed: the flag publishes nothing.
    if !ONE_WALK.load(Relaxed) {
        resume_unwind(payload)
    }
    throw_to(payload, pass, std::ptr::null_mut())
}

/// Does the same as `throw`, and the unwinder asks `stop` about each frame.
#[inline(always)]
pub(super) fn throw_to<T: Any + Send>(payload: Box<T>, stop: Stop, arg: *mut c_void) -> ! {
    // SAFETY: `begin` gets the box that it takes.
    unsafe { from_here(Box::into_raw(payload).cast(), begin::<T>, stop, arg) }
}

extern "C" fn pass(_: c_int, _: c_int, _: u64, _: *mut c_void, _: *mut Context, _: *mut c_void) -> c_int {
    ON
}

/// # Safety
/// `payload` is a `Box<T>`, which this function takes.
unsafe extern "C-unwind" fn begin<T: Any + Send>(payload: *mut c_void) -> ! {
    // SAFETY: by this function's contract.
    resume_unwind(unsafe { Box::from_raw(payload.cast::<T>()) })
}

type Begin = unsafe extern "C-unwind" fn(*mut c_void) -> !;

/// The frame from which std throws, and to which `take_exception` comes back. It saves all registers that a callee keeps,
/// because the functions that are given up have changed them. Its unwind rules are also those of `go_on`.
///
/// # Safety
/// `begin` may be called with `payload`, and throws what std makes.
#[unsafe(naked)]
unsafe extern "C-unwind" fn from_here(_: *mut c_void, _: Begin, _: Stop, _: *mut c_void) -> ! {
    naked_asm!(
        ".cfi_startproc",
        // Encoded as an indirect distance from here, in four bytes.
        ".cfi_personality 0x9b, {personality}",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        "push r15",
        ".cfi_def_cfa_offset 24",
        "push r14",
        ".cfi_def_cfa_offset 32",
        "push r13",
        ".cfi_def_cfa_offset 40",
        "push r12",
        ".cfi_def_cfa_offset 48",
        "push rbx",
        ".cfi_def_cfa_offset 56",
        ".cfi_offset rbx, -56",
        ".cfi_offset r12, -48",
        ".cfi_offset r13, -40",
        ".cfi_offset r14, -32",
        ".cfi_offset r15, -24",
        ".cfi_offset rbp, -16",
        "sub rsp, 24",
        ".cfi_def_cfa_offset 80",
        // The stop and its argument.
        "mov [rsp], rdx",
        "mov [rsp + 8], rcx",
        "call rsi",
        // rax: the exception.
        "jmp {go_on}",
        ".cfi_endproc",
        personality = sym TAKE_EXCEPTION,
        go_on = sym go_on,
    )
}

/// The rest of `from_here`, in the same frame. It has no personality, so that a plain throw can leave from here.
#[unsafe(naked)]
unsafe extern "C-unwind" fn go_on() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_def_cfa_offset 80",
        ".cfi_offset rbx, -56",
        ".cfi_offset r12, -48",
        ".cfi_offset r13, -40",
        ".cfi_offset r14, -32",
        ".cfi_offset r15, -24",
        ".cfi_offset rbp, -16",
        "mov rbx, rax",
        "mov rdi, rax",
        "mov rsi, [rsp]",
        "mov rdx, [rsp + 8]",
        "call {forced}",
        // The call came back, so no landing pad has run.
        "mov rdi, rbx",
        "call {raise}",
        "call {nowhere}",
        "ud2",
        ".cfi_endproc",
        forced = sym _Unwind_ForcedUnwind,
        raise = sym _Unwind_RaiseException,
        nowhere = sym nowhere,
    )
}

extern "C" fn nowhere() -> ! {
    Native::fatal("throw: no frame catches it")
}

/// The word with the address of the personality. The unwind rules name the personality by such a word, as compilers do.
static TAKE_EXCEPTION: unsafe extern "C-unwind" fn() = take_exception;

/// The personality of `from_here`, with the arguments version, actions, class, exception and frame. In the search phase it
/// comes back to `from_here` with the exception as the result of the call at which `from_here` stands. That frame has no other
/// call.
///
/// It does not come back by `ret`, which the processor would predict as the return of another call.
#[unsafe(naked)]
unsafe extern "C-unwind" fn take_exception() {
    naked_asm!(
        ".cfi_startproc",
        // _UA_SEARCH_PHASE
        "test sil, 1",
        "jz 2f",
        "push rcx",
        ".cfi_def_cfa_offset 16",
        // Where the stack pointer of `from_here` is: just above the return address of its call.
        "mov rdi, r8",
        "call {cfa}",
        "pop rcx",
        ".cfi_def_cfa_offset 8",
        ".cfi_remember_state",
        "mov rsp, rax",
        // The return address of that call, which comes next, still lies just below.
        ".cfi_def_cfa_offset 0",
        "mov rax, rcx",
        "jmp qword ptr [rsp - 8]",
        ".cfi_restore_state",
        // _URC_CONTINUE_UNWIND
        "2: mov eax, 8",
        "ret",
        ".cfi_endproc",
        cfa = sym _Unwind_GetCFA,
    )
}

struct Probe {
    /// The address of a local variable of the function that catches.
    mark: usize,
    /// Whether the walk came past that function.
    passed: Cell<bool>,
}

extern "C" fn not_beyond(
    _: c_int,
    _: c_int,
    _: u64,
    _: *mut c_void,
    frame: *mut Context,
    probe: *mut c_void,
) -> c_int {
    /// `_URC_FATAL_PHASE2_ERROR`. Any value except `ON` would do.
    const NO: c_int = 2;
    // SAFETY: `prepare` passed the probe and waits. The context is the unwinder's, within its callback.
    let (probe, low) = unsafe { (&*probe.cast::<Probe>(), _Unwind_GetCFA(frame)) };
    if low <= probe.mark {
        return ON;
    }
    probe.passed.set(true);
    NO
}

/// Tries a throw, which arrives in any case: if a Catch does not end the forced unwinding, `not_beyond` ends it.
pub(super) fn prepare() {
    #[inline(never)]
    fn arrives() -> bool {
        let mark = 0_u8;
        let probe = Probe { mark: (&raw const mark).addr(), passed: Cell::new(false) };
        let arg = (&raw const probe).cast_mut().cast();
        let caught = catch_unwind(AssertUnwindSafe(|| throw_to(Box::new(7_u8), not_beyond, arg)));
        caught.is_err_and(|payload: Box<dyn Any + Send>| payload.is::<u8>()) && !probe.passed.get()
    }
    static TRIED: Once = Once::new();
    // In a panic hook the trial would end std's count of panics of this thread. The next runtime tries again.
    if std::thread::panicking() {
        return;
    }
    TRIED.call_once(|| {
        // Relaxed: the flag publishes nothing. A thread that does not see it yet makes plain throws.
        ONE_WALK.store(super::CAN_UNWIND && cfg!(not(gmp_tsan)) && arrives(), Relaxed);
    });
}
