//! A stack overflow with a name: the handler of SIGSEGV.
//!
//! ```text
//!   fault ──▶ in the guard of the stack that runs here, and the stack pointer has come down to it?
//!               yes: message, frames (`report.rs`), SIGABRT
//!               no:  the handler from before, as if ours were not there
//! ```
//! The stack on which the faulting code runs is the current M's goroutine's own, or its innermost segment (`segment.rs`), or
//! the segment of a plain thread. The handler finds all of them without a lock: the M by the thread-local; the rest belongs
//! to the goroutine, which stands still while its thread handles a signal. The overflow of a thread's own stack, an M's too,
//! is none of these: std reports it.
//!
//! Functions of Rust with frames of more than a page touch each page of the frame on the way down, so they meet the
//! guard. A function of C that was not compiled to do so (`-fstack-clash-protection`) meets the guard if its frame is
//! no larger than that; with a larger frame the function may step over the guard, and the overflow is not seen.
//!
//! The previous handler gets every other fault: ours calls it with the kernel's arguments, under the signal mask that it
//! was installed with. A disposition that can't be called, the default action above all, is put back, and the fault repeats
//! itself there. The kernel raises SIGBUS for no page of a stack, so that signal is left alone.
//!
//! std's handler, and many a handler that reports crashes, sets the default action and returns, for the fault to repeat itself.
//! A signal that a process has sent does not repeat itself. So our handler then ends the process by that signal, as the sender
//! wants (`native/end.rs`). Without a runtime std's handler loses the first such signal, and the second one ends the process.
//! Two other ways are wrong:
//!
//! * *To return*, with the default action set: the process goes on without our handler, and the next overflow is not told.
//! * *To put ours back*: a process with std's handler survives any number of such signals, and one whose handler sets the
//!   default action and raises the signal itself never ends.
//!
//! Everything the handler does is async-signal-safe: no lock, no allocation, `write`, `poll` and `readlink`. The second of two
//! threads that overflow waits for the end of the process.
//!
//! Invariants: the handler is installed once in a process, before any goroutine has a stack. A fault that is not reported
//! goes on to the previous handler exactly once.

mod report;

use super::Native;
use super::end::end_by;
use super::segment;
use crate::g::GRef;
use crate::m::M;
use crate::stack::pool::Extent;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::{Once, OnceLock};

/// How far below the stack pointer an instruction may touch the stack: a red zone of 128 bytes, a push.
const BELOW: usize = 256;

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
        // Where the program has installed a handler since the look, that one came before ours all the same.
        REPLACED.get_or_init(|| exchange(libc::SIGSEGV, Some(&ours)));
    });
}

/// `sigaction`: sets a disposition and returns the previous one.
fn exchange(signal: c_int, next: Option<&libc::sigaction>) -> libc::sigaction {
    // SAFETY: a struct of integers, for which zeros are the default action.
    let mut before = unsafe { std::mem::zeroed() };
    let next = next.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the call reads and writes what we pass, and fails only for a signal that can't be caught. A handler that is
    // set is `on_fault`, `report::on_second_fault`, or the previous one.
    unsafe { libc::sigaction(signal, next, &mut before) };
    before
}

/// What the kernel says of a fault.
#[derive(Clone, Copy, Debug)]
struct Fault {
    address: usize,
    pc: usize,
    sp: usize,
    /// The lower end of the signal stack on which the handler runs; 0 without one.
    signal_stack: usize,
}

impl Fault {
    /// Returns `None` if the signal was sent by a process, and is no fault.
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

    /// Returns `true` if the fault means that `stack` is full. A wild pointer into a guard, used by a function with room
    /// left, does not.
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
        // SAFETY: the segment is the interrupted thread's, or goroutine's, own.
        if let Some(segment) = unsafe { segment::innermost().as_ref() } {
            return Some(Runs { stack: segment.extent, is_segment: true, g });
        }
        Some(Runs { stack: own_stack(g)?, is_segment: false, g })
    }
}

/// Returns where the first stack of `g` lies, the caller.
pub(super) fn own_stack(g: Option<GRef<Native>>) -> Option<Extent> {
    // SAFETY: this M runs the goroutine, whose stack stays with it until it leaves the M: only the saved stack pointer is
    // written meanwhile, and this does not read that.
    g?.stack.with(|stack| unsafe { (*stack).as_ref() }.map(|it| it.coro.stack.extent()))
}

/// Returns how many bytes are left of the stack on which the caller runs; `None` on a thread's own stack.
pub(super) fn left() -> Option<usize> {
    let frame = 0_u8;
    Runs::here().map(|runs| (&raw const frame).addr().saturating_sub(runs.stack.usable()))
}

#[inline(never)] // One address, which is compared.
unsafe extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel calls this as a handler of SIGSEGV; so does a handler that chains to it.
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
    // Where ours is called by a handler that the program has installed later, that handler knows what follows a signal that was
    // sent.
    let was_ours = !is_fault && now() == on_fault as *const () as usize;
    match before.sa_sigaction {
        libc::SIG_IGN if !is_fault => {}
        handler
            if handler != libc::SIG_DFL
                && handler != libc::SIG_IGN
                && before.sa_flags & libc::SA_RESETHAND == 0 =>
        {
            if before.sa_flags & libc::SA_SIGINFO != 0 {
                type Full = unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);
                // SAFETY: the installer of the previous handler said by the flag that the handler has this type.
                let handler = unsafe { std::mem::transmute::<usize, Full>(handler) };
                // SAFETY: by this function's contract.
                unsafe { handler(signal, info, context) };
            } else {
                // SAFETY: without the flag the installer of the previous handler said that the handler has this type.
                let handler = unsafe { std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler) };
                // SAFETY: the signal is the one for which the handler was installed.
                unsafe { handler(signal) };
            }
            if was_ours && now() == libc::SIG_DFL {
                end_by(signal);
            }
        }
        libc::SIG_DFL if was_ours => end_by(signal),
        // The default action, or that of an ignored fault, which the kernel does not let a program ignore; or a handler that
        // is to be called once. The fault repeats itself, so nothing else would end it.
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
