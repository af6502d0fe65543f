//! The context switch of x86-64: one goroutine's stack, and the M that resumes it.
//!
//! resume, on g0:     R1 push rbp, rbx, own label · R2 home.g0 = rsp · R3 rsp = coro.sp · R4 jump to the label there
//! suspend, on a G's: S1 push rbp, rbx, own label · S2 rsi = rsp · S3 rsp = home.g0 · S4 jump to the label there
//! At either label:   drop the label, pop rbx, rbp; `resume` then stores rsi in coro.sp.
//! One word travels in rdi, both ways. The M writes a goroutine's stack pointer, after the save, in `resume`; so a checker that
//! guards the cell in which the Coro lies sees every use of its stack. `resume` has the Coro by a shared reference, because a
//! goroutine that runs looks where its stack lies (`host/native/overflow/`).
//!
//! ```text
//!            never ran                suspended
//!   top - 8  | 0                  |   | 0                       |   top: here `StackMem::start`
//!   top - 16 | 0                  |   | 0                       |   where a caller's address would lie
//!   top - 24 | rbp: 0             |   | return into trampoline  |
//!   top - 32 | rbx: the entry     |   | frame of the entry      |
//!   top - 40 | label: trampoline  |<- |  ..                     |   <- coro.sp
//!            | untouched          |   | frame that suspends     |
//!            |                    |   | rbp                     |
//!            |                    |   | rbx                     |
//!            |                    |   | label: after its jump   |<- coro.sp
//!            |  ..                |   |  ..                     |
//!   bottom   | guard page         |   | guard page              |
//! ```
//!
//! What is saved: rbp and rbx by hand, since LLVM reserves both and takes neither as an operand. r12-r15 and all that a call
//! may destroy (the other general registers, xmm/ymm/zmm 0-31, k0-k7, mm, st, tmm: `clobber_abi("sysv64")`) are declared as
//! lost, so the compiler saves those that it uses and no others. rustc has no names for r16-r31: `apx.rs` refuses builds that
//! use them. The direction flag is clear and the x87 stack empty at the edges of every asm block, by Rust's rules.
//!
//! What is not: mxcsr and the x87 control word (storing and loading them costs 126 ns). Code that changes the rounding mode or
//! unmasks exceptions, which Rust does not allow anyway, must restore them before it suspends: the fourth clause of
//! `migration`.
//!
//! Red zone: neither block is `nostack`, so the compiler assumes that the block pushes, keeps nothing below rsp, and
//! has rsp 16-aligned there.
//!
//! Walks from a signal handler (profilers, crash reporters) come at any instruction. The compiler's unwind tables know nothing
//! of the pushes here, nor of the change of stacks, so each block declares that the frame has no caller, and such a walk ends
//! there. A walk that begins at a saved context (`traceback.rs`, a debugger) takes the label for a return address, and looks up
//! the byte before the label: that byte is the `int3`, which is never executed, and for which the function's own tables hold
//! again.
//!
//! Jumps only: a `ret` to an address that no `call` pushed is mispredicted, and so is each later one. Under a shadow stack
//! (CET) a goroutine's calls and the M's would pop each other's addresses; programs built by rustc do not ask for a shadow
//! stack.
//!
//! Invariants: `Coro.sp` is null exactly when the entry has returned; a stack whose coroutine is suspended is
//! never freed or reused.

use std::arch::{asm, naked_asm};
use std::cell::Cell;
use std::io;
use std::ptr;

use super::{Entry, annotate, traceback};
use crate::host::Frames;
use crate::prim::prefetch;
use crate::stack::pool::{StackCache, StackMem, StackPool};

/// A saved stack pointer. At that address lie the label to jump to, rbx and rbp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Sp(*mut usize);

/// Where an M's own context waits while a goroutine runs there; one for each M.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Home {
    g0: Cell<Sp>,
    told: annotate::Home,
}

impl Home {
    pub(crate) const fn new() -> Home {
        Home { g0: Cell::new(Sp(ptr::null_mut())), told: annotate::Home::new() }
    }

    /// The first act of a goroutine on a new stack.
    #[inline(always)]
    pub(crate) fn begun() {
        annotate::begun();
    }

    /// The last act before the return from the entry, whose `End` has this home.
    #[inline(always)]
    pub(crate) fn end(&self) {
        annotate::end(&self.told);
    }
}

/// A goroutine's stack and the point at which it goes on.
///
/// Dropping a suspended Coro frees nothing, by design: the frames may be referred to from elsewhere. The stack is
/// leaked, and counts as in use in the pool.
#[derive(Debug)]
#[must_use = "dropping a Coro leaks its stack: retire it"]
pub(crate) struct Coro {
    pub(crate) sp: Cell<Sp>,
    pub(crate) stack: StackMem,
    told: annotate::Stack,
}

// SAFETY: a suspended context belongs to no thread. Whether the frames there may move is the contract under which a
// runtime is started.
unsafe impl Send for Coro {}

/// Words of a fresh stack, downwards from the top: two zeros, rbp, rbx, label.
const FRESH: usize = 5;

impl Coro {
    /// Takes the stack of `size` bytes that was reserved; `entry` runs there at the first resume. Touches the top page only.
    pub(crate) fn new(
        pool: &StackPool,
        cache: &mut StackCache,
        size: usize,
        entry: Entry,
    ) -> io::Result<Coro> {
        let stack = pool.take(cache, size)?;
        let sp = Coro::fresh(&stack);
        let words = [trampoline as *const () as usize, entry as usize, 0, 0, 0];
        // SAFETY: `take` gave us this stack alone, and the smallest size holds FRESH words below the start, which is
        // aligned to a cache line.
        unsafe { sp.0.cast::<[usize; FRESH]>().write(words) };
        let told = annotate::Stack::new(stack.top(), stack.bytes());
        Ok(Coro { sp: Cell::new(sp), stack, told })
    }

    /// Runs the goroutine until it suspends or the entry returns, and returns the word of either. Called on the M's own stack.
    ///
    /// # Safety
    /// The entry has not returned yet. `home` is the calling M's own. Meanwhile nothing else is resumed with that home, no
    /// other M resumes this coroutine, and nobody reads its saved context.
    #[inline(always)]
    pub(crate) unsafe fn resume(&self, home: &Home, word: usize) -> usize {
        let Sp(saved) = self.sp.get();
        debug_assert!(!saved.is_null(), "Coro::resume: its entry has returned");
        let (answer, sp);
        let away = annotate::enter(&self.told, &home.told);
        // SAFETY: `new` or the last `resume` wrote `self.sp`: a saved context on a stack that is the caller's, by this
        // function's contract. That context comes back by a jump to label 2 with rsp as stored in `home`, with rbp and rbx
        // still on this stack, and with every other register declared lost.
        unsafe {
            asm!(
                ".cfi_remember_state",
                ".cfi_undefined rip",
                "push rbp",
                "push rbx",
                "lea rax, [rip + 2f]",
                "push rax",
                "mov [rdx], rsp",
                "mov rsp, rsi",
                "jmp [rsp]",
                ".cfi_restore_state",
                "int3",
                "2:",
                ".cfi_remember_state",
                ".cfi_undefined rip",
                "add rsp, 8",
                "pop rbx",
                "pop rbp",
                ".cfi_restore_state",
                inout("rdi") word => answer,
                inout("rsi") saved => sp,
                in("rdx") home.g0.as_ptr(),
                out("r12") _,
                out("r13") _,
                out("r14") _,
                out("r15") _,
                clobber_abi("sysv64"),
            );
        }
        annotate::back(away, &self.told);
        self.sp.set(Sp(sp));
        answer
    }

    /// Prefetches the innermost frames of a suspended context: those of a wait for a socket, and the beginning of the caller's
    /// buffer.
    #[inline(always)]
    pub(crate) fn fetch(&self) {
        const FRAMES: usize = 768;
        let Sp(saved) = self.sp.get();
        (0..FRAMES).step_by(64).for_each(|at| prefetch(saved.wrapping_byte_add(at)));
    }

    /// Returns how many bytes of the stack are in use during a suspension, with those above the start; `None` while the
    /// goroutine runs on another stack (`host/native/segment.rs`).
    pub(crate) fn depth(&self) -> Option<usize> {
        let (extent, sp) = (self.stack.extent(), self.sp.get().0.addr());
        extent.holds(sp).then(|| extent.top - sp)
    }

    /// Returns how many bytes were touched since `forget`, down to the lowest page that is in memory.
    pub(crate) fn touched(&self) -> Option<usize> {
        self.stack.extent().touched()
    }

    /// Gives the pages that were touched before back to the kernel. Nothing has run on the stack yet: the words that `new` has
    /// written are in the top page.
    pub(crate) fn forget(&self) {
        self.stack.extent().forget();
    }

    /// Reads the frames of a suspended coroutine; there are none before the first resume.
    ///
    /// # Safety
    /// The caller has the coroutine for itself meanwhile: no M resumes it.
    pub(crate) unsafe fn frames(&self, frames: &mut Frames) {
        let sp = self.sp.get();
        if !sp.0.is_null() && sp != Coro::fresh(&self.stack) {
            // SAFETY: the last `resume` stored what `suspend` had left there.
            unsafe { traceback::walk(sp.0, frames) };
        }
    }

    /// Gives the stack back: the entry has returned, or never began.
    #[inline(always)]
    pub(crate) fn retire(self, pool: &StackPool, cache: &mut StackCache) {
        let sp = self.sp.get();
        let idle = sp.0.is_null() || sp == Coro::fresh(&self.stack);
        assert!(idle, "Coro::retire: it is suspended (sp {:p})", sp.0);
        self.told.retire();
        // SAFETY: no frame is left on the stack, see the assertion.
        unsafe { pool.give(cache, self.stack) };
    }

    /// Does the same as `retire`, for a stack on which nothing has run: the reservation remains.
    pub(crate) fn put_back(self, pool: &StackPool) {
        let sp = self.sp.get();
        assert!(sp == Coro::fresh(&self.stack), "Coro::put_back: it has run (sp {:p})", sp.0);
        self.told.retire();
        // SAFETY: there was never a frame on the stack, see the assertion.
        unsafe { pool.put_back(self.stack) };
    }

    /// Returns the stack pointer of a coroutine that has not run yet; that of a suspended coroutine is lower.
    fn fresh(stack: &StackMem) -> Sp {
        Sp(stack.start().cast::<usize>().wrapping_sub(FRESH))
    }
}

/// Goes back to the M that resumed this goroutine, whose `resume` returns `word`. Returns the word of the next
/// resume, possibly on another thread.
///
/// # Safety
/// Called on a goroutine's stack; `home` is the one of the M that runs it now, and is not used after the
/// switch: that M may be gone by then. What the frames here keep across the call may be used on another thread.
#[inline(always)]
pub(crate) unsafe fn suspend(home: *const Home, word: usize) -> usize {
    let answer;
    // SAFETY: the caller's M waits in `resume`, with the M's context in `home`.
    let away = annotate::leave(unsafe { &(*home).told });
    // SAFETY: the caller's M waits in `resume` with the M's context in `home`. The next `resume` comes back by a jump
    // to label 2 with the rsp that is handed over here, with rbp and rbx still on this stack, and with every other
    // register declared lost. The context is the first word of `Home`.
    unsafe {
        asm!(
            ".cfi_remember_state",
            ".cfi_undefined rip",
            "push rbp",
            "push rbx",
            "lea rax, [rip + 2f]",
            "push rax",
            "mov rsi, rsp",
            "mov rsp, [rdx]",
            "jmp [rsp]",
            ".cfi_restore_state",
            "int3",
            "2:",
            ".cfi_remember_state",
            ".cfi_undefined rip",
            "add rsp, 8",
            "pop rbx",
            "pop rbp",
            ".cfi_restore_state",
            inout("rdi") word => answer,
            in("rdx") home,
            out("r12") _,
            out("r13") _,
            out("r14") _,
            out("r15") _,
            clobber_abi("sysv64"),
        );
    }
    annotate::arrive(away);
    answer
}

/// The first and outermost frame of every goroutine: calls the entry, then leaves this stack for good.
///
/// A walk over the stack ends here: the tables tell an unwinder that this frame has no caller, and an unwinder without the
/// tables finds zero in rbp and in the place of the caller's address. (With neither, the walk reads beyond the slot, and
/// faults.)
#[unsafe(naked)]
pub(crate) unsafe extern "C" fn trampoline() {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip",
        "mov rax, [rsp + 8]", // the entry; rdi is the word of this resume
        "xor ebp, ebp",       // ends the chain of frame pointers
        "add rsp, 24",        // top - 16
        "call rax",
        "mov rdi, rdx",   // End.word
        "xor esi, esi",   // no stack pointer: it has ended
        "mov rsp, [rax]", // End.home.g0
        "jmp [rsp]",
        ".cfi_endproc",
    )
}

#[cfg(all(test, not(gmp_loom)))]
mod tests;
