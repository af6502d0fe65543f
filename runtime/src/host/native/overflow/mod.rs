//! The handler of SIGSEGV, which reports a stack overflow by the goroutine's name.
//!
//! ```text
//!   fault ──▶ in the guard of the stack that runs here, and the stack pointer has come down to it?
//!               yes: message, frames (`report.rs`), SIGABRT
//!               no:  the handler from before, as if this one were not there
//! ```
//! The stack on which the faulting code runs is the current M's goroutine's own, or its innermost segment (`segment.rs`), or
//! the segment of a plain thread. The handler finds all of them without a lock: the M by the thread-local; the rest belongs to
//! the goroutine, which stands still while its thread handles a signal. std reports the overflow of a thread's own stack, also
//! an M's.
//!
//! Rust functions with frames of more than a page touch each page of the frame on the way down, so they meet the guard. A C
//! function that was not compiled to do so (`-fstack-clash-protection`) meets the guard if its frame is no larger than the
//! guard; with a larger frame the function may step over the guard, and the overflow is not seen.
//!
//! The previous handler gets every other fault: this handler calls it with the kernel's arguments, under the signal mask with
//! which it was installed. A disposition that can't be called, above all the default action, is put back, and the fault repeats
//! itself there. The kernel raises no SIGBUS for a page of a stack, so that signal is left alone.
//!
//! std's handler, and many handlers that report crashes, set the default action and return, so that the fault repeats itself. A
//! signal that a process has sent does not repeat itself. So this handler then ends the process by that signal, as the sender
//! wants (`native/end.rs`). Without a runtime, std's handler loses the first such signal, and the second one ends the process.
//! Two other ways are wrong:
//!
//! * *To return*, with the default action set: the process goes on without this handler, and the next overflow is not reported.
//! * *To put this handler back*: a process with std's handler survives any number of such signals, and one whose handler sets
//!   the default action and raises the signal itself never ends.
//!
//! Everything the handler does is async-signal-safe: it takes no lock, allocates nothing, and calls `write`, `poll` and
//! `readlink`. The second of two threads that overflow waits for the end of the process.
//!
//! Invariants: the handler is installed once in a process, before any goroutine has a stack. A fault that is not reported
//! goes on to the previous handler exactly once.

mod report;

use super::Native;
use super::end::end_by;
use super::segment;
use crate::g::GRef;
use crate::host::handler::{self, call};
use crate::m::M;
use crate::stack::pool::Extent;
use std::ffi::{c_int, c_void};
use std::sync::{Once, OnceLock};

/// How far below the stack pointer an instruction may touch the stack: a red zone of 128 bytes, a push.
const BELOW: usize = 256;

/// How much of a signal stack the handler needs besides the kernel's frame, including its walk over the frames.
pub(super) const HANDLER: usize = 6 << 10;

/// The disposition of SIGSEGV that was seen before ours was installed: for a fault that comes before `REPLACED` is known.
static SEEN: OnceLock<libc::sigaction> = OnceLock::new();
/// The disposition of SIGSEGV that ours has replaced.
static REPLACED: OnceLock<libc::sigaction> = OnceLock::new();

fn before() -> &'static libc::sigaction {
    REPLACED.get().or_else(|| SEEN.get()).expect("before: seen before the handler is installed")
}

/// Installs the handler, once in the process. A handler that the program installs later replaces ours.
pub(super) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        report::prepare();
        let seen = *SEEN.get_or_init(|| exchange(libc::SIGSEGV, None));
        let mut ours = seen;
        ours.sa_sigaction = on_fault as *const () as usize;
        // The previous handler's mask, and the flags that it asked for.
        let kept = seen.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | kept;
        // If the program has installed a handler since the look, that handler came before ours all the same.
        REPLACED.get_or_init(|| exchange(libc::SIGSEGV, Some(&ours)));
    });
}

/// `sigaction`: sets a disposition and returns the previous one, or the default action if a sandbox refuses the call.
fn exchange(signal: c_int, next: Option<&libc::sigaction>) -> libc::sigaction {
    handler::exchange(signal, next).unwrap_or_else(|_| handler::action(libc::SIG_DFL, 0))
}

/// A fault, as the kernel describes it.
#[derive(Clone, Copy, Debug)]
struct Fault {
    address: usize,
    pc: usize,
    sp: usize,
    /// The lower end of the signal stack on which the handler runs; 0 without one.
    signal_stack: usize,
}

impl Fault {
    /// Returns `None` if a process has sent the signal, which is no fault then.
    ///
    /// # Safety
    /// The arguments of a handler of SIGSEGV.
    unsafe fn of(info: *const libc::siginfo_t, context: *const c_void) -> Option<Fault> {
        // SAFETY: by this function's contract.
        let (info, context) = unsafe { (&*info, &*context.cast::<libc::ucontext_t>()) };
        let register = |name: c_int| context.uc_mcontext.gregs[name as usize] as usize;
        let signal_stack = match context.uc_stack.ss_flags & libc::SS_DISABLE {
            0 => context.uc_stack.ss_sp.addr(),
            _ => 0,
        };
        (info.si_code > 0).then(|| Fault {
            // SAFETY: the kernel sets the field for a fault.
            address: unsafe { info.si_addr() }.addr(),
            pc: register(libc::REG_RIP),
            sp: register(libc::REG_RSP),
            signal_stack,
        })
    }

    /// Returns `true` if the fault means that `stack` is full. A function with room left that uses a wild pointer into a guard
    /// does not count.
    fn fills(&self, stack: Extent) -> bool {
        let guard = stack.guard..stack.usable();
        guard.contains(&self.address) && self.sp <= self.address + BELOW
    }
}

/// The stack on which the interrupted code runs.
struct Runs {
    stack: Extent,
    /// Whether the stack is a segment of `with_stack`.
    is_segment: bool,
    g: Option<GRef<Native>>,
}

impl Runs {
    fn here() -> Option<Runs> {
        let g = M::<Native>::current().and_then(M::g);
        if let Some(segment) = segment::chain().next() {
            return Some(Runs { stack: segment.extent, is_segment: true, g });
        }
        Some(Runs { stack: own_stack(g)?, is_segment: false, g })
    }
}

/// Returns the extent of the first stack of `g`, the caller.
pub(super) fn own_stack(g: Option<GRef<Native>>) -> Option<Extent> {
    // SAFETY: this M runs the goroutine, which keeps its stack until it leaves the M. Meanwhile `resume` has a shared
    // reference, as this function has, and writes only the saved stack pointer, which is a cell.
    g?.stack.with(|stack| unsafe { (*stack).as_ref() }.map(|it| it.coro.stack.extent()))
}

/// Returns how many bytes are left of the stack on which the caller runs; `None` on a thread's own stack.
pub(super) fn left() -> Option<usize> {
    let frame = 0_u8;
    Runs::here().map(|runs| (&raw const frame).addr().saturating_sub(runs.stack.usable()))
}

#[inline(never)] // One address, which is compared.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this function as a handler of SIGSEGV; so does a handler that chains to it.
    let fault = unsafe { Fault::of(info, context) };
    if let Some(fault) = fault
        && let Some(runs) = Runs::here()
        && fault.fills(runs.stack)
    {
        report::tell_and_abort(&fault, &runs);
    }
    // SAFETY: the arguments are those with which the kernel, or a chaining handler, has called this.
    unsafe { pass_on(signal, info, context, fault.is_some()) };
}

/// Hands the signal to the previous handler.
///
/// # Safety
/// The arguments of a handler of this signal.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, is_fault: bool) {
    let before = before();
    let now = || exchange(signal, None).sa_sigaction;
    // If a handler that the program has installed later calls ours, that handler decides what follows a signal that was sent.
    let was_ours = !is_fault && now() == on_fault as *const () as usize;
    match before.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        handler
            if handler != libc::SIG_DFL
                && handler != libc::SIG_IGN
                && before.sa_flags & libc::SA_RESETHAND == 0 =>
        {
            // SAFETY: by this function's contract, and the action is one of a handler.
            unsafe { call(before, signal, info, context) };
            if was_ours && now() == libc::SIG_DFL {
                end_by(signal);
            }
        }
        libc::SIG_DFL if was_ours => end_by(signal),
        // The default action, or that of an ignored fault, as the kernel does not let a program ignore faults; or a handler for
        // one call only. The fault repeats itself, so nothing else would end it.
        _ if is_fault => {
            exchange(signal, Some(before));
        }
        _ if was_ours => {
            exchange(signal, Some(before));
            // SAFETY: no pointers. The signal is delivered when this handler returns.
            unsafe { libc::raise(signal) };
        }
        _ => {}
    }
}
