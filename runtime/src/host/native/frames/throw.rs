//! The throw that a look has allowed: one walk over the frames instead of two.
//!
//! A panic is thrown in two phases. The first one searches for a frame that catches, and changes nothing, so that the process
//! can end with all frames in place if there is none; the second one walks the same frames again, and stops at each landing
//! pad. A look has already found the frame that catches. So the unwinder is asked for the second phase alone, which it calls
//! *forced unwinding* (`_Unwind_ForcedUnwind`; Itanium C++ ABI, "Exception Handling", 1.3). Landing pads go on from there by
//! `_Unwind_Resume` as ever, which finds in the exception that the unwinding is forced, and does not search either.
//!
//! ```text
//!   user .. our functions .. from_here    begin, resume_unwind, .. _Unwind_RaiseException
//!                                   ^------------------------------ search phase: up to `take_exception`, the
//!                                   |                               personality of `from_here`, which goes back there
//!   <------------------------------ go_on: _Unwind_ForcedUnwind
//! ```
//! *The exception is std's own*: class, canary and payload are what `catch_unwind` expects, and the count of panics, by which
//! `std::thread::panicking` answers, is right. Only std can make one, and std throws it at once. So std throws, from a frame
//! with a personality of ours. The search phase asks that personality first, before any frame of the caller's, and hands it
//! the exception. The personality takes the stack back to that frame, as if the call of `begin` had returned the exception.
//! The frames between, of std's throw and the unwinder's, are given up; std has moved the payload into the exception by then,
//! and what is left in these frames is a box of `()`. *The obvious way* is to call `_Unwind_ForcedUnwind` in the
//! personality, with these frames below: the walk begins with the unwinder's own and std's, and takes more than both phases
//! (`docs/performance.md`, "A goroutine that is unwound").
//!
//! *What differs from a panic's second phase* is what Rust's personality does at an `extern "C"` function without live values
//! (Filter): it passes on, where a panic ends the process. The look says no for these; so this throw is made where a look has
//! said yes, and nowhere else. `goexit` does not look, and throws as a panic does. A Catch is honoured, which the ABI
//! does not ask for: `prepare` tries it, once in a process, and where it fails each throw is a plain one. The same holds
//! where the unwinder refuses to begin.
//!
//! What the user throws, a caught payload that is raised again included, is thrown as ever.
//!
//! Not used under ThreadSanitizer, which follows calls and returns: the frames that are given up would pile up there.

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

/// Is asked about each frame before the frame is left: version, actions, class, exception, frame, and the argument that was
/// given with it. All values but `ON` end the unwinding.
pub(super) type Stop = extern "C" fn(c_int, c_int, u64, *mut c_void, *mut Context, *mut c_void) -> c_int;

// `C-unwind`: they throw.
unsafe extern "C-unwind" {
    fn _Unwind_ForcedUnwind(exception: *mut c_void, stop: Stop, arg: *mut c_void) -> c_int;
    fn _Unwind_RaiseException(exception: *mut c_void) -> c_int;
}

/// Whether one walk is enough in this process, as far as `prepare` has tried it.
static ONE_WALK: AtomicBool = AtomicBool::new(false);

/// Throws `payload`. Inlined, since the unwinder comes to each frame on the way.
///
/// The caller is where a look from below has said yes.
#[inline(always)]
pub(crate) fn throw<T: Any + Send>(payload: Box<T>) -> ! {
    // Relaxed: the flag publishes nothing.
    if !ONE_WALK.load(Relaxed) {
        resume_unwind(payload)
    }
    throw_to(payload, pass, std::ptr::null_mut())
}

/// As `throw`: `stop` is asked about each frame.
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

/// The frame from which std throws, and to which `take_exception` comes back. All registers that a callee keeps are saved, as
/// the functions that are given up have changed them; the rules are those of `go_on`, too.
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

/// What `from_here` goes on with, in the same frame: without a personality, so that a plain throw can leave from here.
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
        // It came back: no landing pad has run.
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

/// The rules name the personality by a word that holds its address, as compilers write it.
static TAKE_EXCEPTION: unsafe extern "C-unwind" fn() = take_exception;

/// The personality of `from_here`: version, actions, class, exception, frame. Comes back in the search phase, with the
/// exception as the result of the call at which `from_here` stands. That frame has no other call.
///
/// Not by `ret`, which the processor would take for that of another call.
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
    /// The walk came past that function.
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
    /// `_URC_FATAL_PHASE2_ERROR`, as any value but `ON`.
    const NO: c_int = 2;
    // SAFETY: `prepare` passed the probe, and waits; a context of the unwinder, within its callback.
    let (probe, low) = unsafe { (&*probe.cast::<Probe>(), _Unwind_GetCFA(frame)) };
    if low <= probe.mark {
        return ON;
    }
    probe.passed.set(true);
    NO
}

/// Tries a throw, which arrives in any case: if a Catch does not end forced unwinding, `not_beyond` does.
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
        // Relaxed: the flag publishes nothing. Where it is not seen yet a throw is a plain one.
        ONE_WALK.store(super::CAN_UNWIND && cfg!(not(gmp_tsan)) && arrives(), Relaxed);
    });
}
