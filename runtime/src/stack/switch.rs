//! The context switch of x86-64: one goroutine's stack, and the M that resumes it.
//!
//! resume, on g0:     R1 push rbp, rbx, own label · R2 home.g0 = rsp · R3 rsp = coro.sp · R4 jump to the label there
//! suspend, on a G's: S1 push rbp, rbx, own label · S2 rsi = rsp · S3 rsp = home.g0 · S4 jump to the label there
//! At either label:   drop the label, pop rbx, rbp; `resume` then stores rsi in coro.sp.
//! One word travels in rdi, both ways. A goroutine's stack pointer is written by the M, after the save, under the
//! `&mut Coro` of `resume`; so a checker that guards the Coro sees every use of its stack.
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
//! What is saved: rbp and rbx by hand, since LLVM keeps them for itself and takes neither as an operand.
//! r12-r15 and all that a call may destroy (the other general registers, xmm/ymm/zmm 0-31, k0-k7, mm, st, tmm:
//! `clobber_abi("sysv64")`) are declared as lost, so the compiler saves those which it uses and no others. The
//! direction flag is clear and the x87 stack empty at the edges of every asm block, by Rust's rules.
//!
//! What is not: mxcsr and the x87 control word (storing and loading them costs 126 ns). Code that changes the
//! rounding mode or unmasks exceptions, which Rust does not allow anyway, must put them back before it
//! suspends: the fourth clause of `migration`.
//!
//! Red zone: neither block is `nostack`, so the compiler assumes that it pushes: it keeps nothing below rsp and
//! has rsp 16-aligned there.
//!
//! Walks from a signal handler (profilers, crash reporters) come at any instruction. The compiler's unwind tables know nothing
//! of the pushes here, nor of the change of stacks, so each block tells them that its frame has no caller: such a walk ends
//! there. A walk that begins at a saved context (`traceback.rs`, a debugger) takes the label for a return address, and looks up
//! the byte before it: that is the `int3`, which nothing executes, and for which the function's own tables hold again.
//!
//! Jumps only: a `ret` to an address that no `call` pushed is mispredicted, and so is each one after it. Under
//! a shadow stack (CET) a goroutine's calls and its M's would pop each other's addresses; programs built by
//! rustc do not ask for one.
//!
//! Invariants: `Coro.sp` is null exactly when the entry has returned; a stack whose coroutine is suspended is
//! never freed or reused.

use std::arch::{asm, naked_asm};
use std::cell::Cell;
use std::io;
use std::ptr;

use super::annotate;
use super::traceback;
use crate::host::Frames;
use crate::stack::pool::{StackCache, StackMem, StackPool};

/// A saved stack pointer. Where it points lie the label to jump to, rbx and rbp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Sp(*mut usize);

/// Where an M's own context waits while a goroutine runs on it; one for each M.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Home {
    g0: Cell<Sp>,
    pub(crate) told: annotate::Home,
}

impl Home {
    pub(crate) const fn new() -> Home {
        Home { g0: Cell::new(Sp(ptr::null_mut())), told: annotate::Home::new() }
    }
}

/// How a goroutine ends: the home of the M on which it does, and the word of its last resume.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct End {
    pub(crate) home: *const Home,
    pub(crate) word: usize,
}

/// Runs on the new stack at the first resume, with that resume's word. A panic that reaches its edge aborts the
/// process, as in every `extern` function.
pub(crate) type Entry = unsafe extern "C" fn(word: usize) -> End;

/// A goroutine's stack and the point at which it goes on.
///
/// Dropping one that is suspended frees nothing, by design: its frames may be referred to from elsewhere. Its
/// stack is leaked, and counts as in use in its pool.
#[derive(Debug)]
#[must_use = "dropping a Coro leaks its stack: retire it"]
pub(crate) struct Coro {
    pub(crate) sp: Sp,
    pub(crate) stack: StackMem,
    told: annotate::Stack,
}

// SAFETY: a suspended context belongs to no thread. Whether the frames on it may move is the contract under
// which a runtime is started.
unsafe impl Send for Coro {}

/// Words of a fresh stack, downwards from its top: two zeros, rbp, rbx, label.
const FRESH: usize = 5;

impl Coro {
    /// Takes the stack of `size` bytes that was reserved; `entry` runs on it at the first resume. Touches the top page only.
    pub(crate) fn new(
        pool: &StackPool,
        cache: &mut StackCache,
        size: usize,
        entry: Entry,
    ) -> io::Result<Coro> {
        let stack = pool.take(cache, size)?;
        let sp = Coro::fresh(&stack);
        let words = [trampoline as *const () as usize, entry as usize, 0, 0, 0];
        // SAFETY: `take` gave us this stack alone, and its smallest size holds FRESH words below the start, which is
        // aligned to a cache line.
        unsafe { sp.0.cast::<[usize; FRESH]>().write(words) };
        let told = annotate::Stack::new(stack.top(), stack.bytes());
        Ok(Coro { sp, stack, told })
    }

    /// Runs the goroutine until it suspends or its entry returns, and gives the word of either. Called on the
    /// M's own stack.
    ///
    /// # Safety
    /// The entry has not returned yet. `home` is the calling M's own, and nothing else is resumed with it meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn resume(&mut self, home: &Home, word: usize) -> usize {
        debug_assert!(!self.sp.0.is_null(), "Coro::resume: its entry has returned");
        let (answer, sp);
        let away = annotate::enter(&self.told, &home.told);
        // SAFETY: `self.sp` was written by `new` or by the last `resume`: a saved context on a stack that is
        // ours (`&mut self`). It comes back by a jump to label 2 with rsp as it was stored in `home`, with rbp
        // and rbx still on this stack, and with every other register declared lost.
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
                inout("rsi") self.sp.0 => sp,
                in("rdx") home.g0.as_ptr(),
                out("r12") _,
                out("r13") _,
                out("r14") _,
                out("r15") _,
                clobber_abi("sysv64"),
            );
        }
        annotate::back(away, &self.told);
        self.sp = Sp(sp);
        answer
    }

    /// Bytes of the stack in use while it is suspended, with those above its start. Not known while it goes on on
    /// another one (`host/native/segment.rs`).
    pub(crate) fn depth(&self) -> Option<usize> {
        let (extent, sp) = (self.stack.extent(), self.sp.0.addr());
        extent.holds(sp).then(|| extent.top - sp)
    }

    /// Reads the frames of a suspended coroutine; there are none before its first resume.
    ///
    /// # Safety
    /// Nobody resumes it meanwhile.
    pub(crate) unsafe fn frames(&self, frames: &mut Frames) {
        if !self.sp.0.is_null() && self.sp != Coro::fresh(&self.stack) {
            // SAFETY: the last `resume` stored what `suspend` had left there.
            unsafe { traceback::walk(self.sp.0, frames) };
        }
    }

    /// Gives the stack back: the entry has returned, or never began.
    pub(crate) fn retire(self, pool: &StackPool, cache: &mut StackCache) {
        let idle = self.sp.0.is_null() || self.sp == Coro::fresh(&self.stack);
        assert!(idle, "Coro::retire: it is suspended (sp {:p})", self.sp.0);
        self.told.retire();
        // SAFETY: no frame is left on it, see the assertion.
        unsafe { pool.give(cache, self.stack) };
    }

    /// The stack pointer of a coroutine that has not run yet; a suspended one lies lower.
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
    // SAFETY: the caller's M waits in `resume`, with its context in `home`.
    let away = annotate::leave(unsafe { &(*home).told });
    // SAFETY: the caller's M waits in `resume` with its context in `home`. The next `resume` comes back by a
    // jump to label 2 with the rsp that is handed over here, with rbp and rbx still on this stack, and with
    // every other register declared lost. The context is Home's first word.
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
/// A walk over the stack ends here: an unwinder is told that this frame has no caller, one without the tables finds
/// zero in rbp and where the caller's address would lie. (With neither the walk reads beyond the slot, and faults.)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::pool::GUARD;
    use std::backtrace::Backtrace;
    use std::hint::black_box;
    use std::os::unix::process::ExitStatusExt;
    use std::panic::{self, AssertUnwindSafe};
    use std::process::{Command, Output};
    use std::thread;

    /// In these tests the word of every resume is the address of the M's home.
    fn resume_from(coro: &mut Coro, home: &Home) -> usize {
        // SAFETY: the tests resume each Coro to its end and no further, one at a time for a home.
        unsafe { coro.resume(home, ptr::from_ref(home).addr()) }
    }

    fn started(pool: &StackPool, size: usize, entry: Entry) -> io::Result<Coro> {
        pool.reserve(None, size)?;
        Coro::new(pool, &mut StackCache::default(), size, entry)
    }

    /// Suspends with `word`, and gives the home of the next resume.
    fn leave(home: usize, word: usize) -> usize {
        // SAFETY: `home` is the word of the latest resume.
        unsafe { suspend(home as *const Home, word) }
    }

    fn end(home: usize, word: usize) -> End {
        End { home: home as *const Home, word }
    }

    /// Runs one of these tests alone, in a process that knows by the variable that it is the child.
    fn in_child(test: &str) -> Output {
        let path = format!("{}::{test}", module_path!().split_once("::").unwrap().1);
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([&path, "--exact", "--nocapture"]).env("GMP_TEST_CHILD", "1").env("RUST_BACKTRACE", "1");
        command.output().unwrap()
    }

    fn is_child() -> bool {
        std::env::var_os("GMP_TEST_CHILD").is_some()
    }

    /// Fails by a wrong word: one is lost, late, or changed by a register that the switch forgot.
    #[test]
    fn words_pass_both_ways_and_the_last_one_too() {
        extern "C" fn echo(mut home: usize) -> End {
            for i in 0..1000 {
                home = leave(home, i * 3);
            }
            end(home, usize::MAX)
        }
        let (pool, homes) = (StackPool::new(None, GUARD), [const { Home::new() }; 7]);
        let mut coro = started(&pool, 0, echo).unwrap();
        for i in 0..1000 {
            assert_eq!(resume_from(&mut coro, &homes[i % 7]), i * 3);
        }
        assert_eq!(resume_from(&mut coro, &homes[3]), usize::MAX);
        coro.retire(&pool, &mut StackCache::default());
    }

    struct CountDrop<'a>(&'a Cell<usize>);

    impl Drop for CountDrop<'_> {
        fn drop(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    /// Suspends once in the deepest of `depth` frames, each of which holds floats; then unwinds or returns
    /// through all.
    #[inline(never)]
    fn descend(home: &Cell<usize>, drops: &Cell<usize>, depth: usize, unwind: bool) -> f64 {
        let _drop = CountDrop(drops);
        let floats: [f64; 8] = black_box(std::array::from_fn(|i| (depth * 8 + i) as f64 / 3.0));
        let (a, b) = (floats[0] * 1.5, floats[7].sqrt());
        let below = if depth > 0 {
            descend(home, drops, depth - 1, unwind)
        } else {
            home.set(leave(home.get(), 1));
            if unwind {
                panic::resume_unwind(Box::new(depth));
            }
            0.0
        };
        below + a * b + floats.iter().sum::<f64>()
    }

    /// Fails by a wrong sum, a missed destructor or a crash: something of a suspended goroutine stayed with its
    /// thread.
    #[test]
    fn a_goroutine_resumed_on_100_threads_keeps_its_floats_its_frames_and_its_unwinding() {
        extern "C" fn wander(home: usize) -> End {
            let (home, drops) = (Cell::new(home), Cell::new(0));
            let expected = expected_sum();
            for i in 0..100 {
                let (unwind, before) = (i % 3 == 0, drops.get());
                let run = || descend(&home, &drops, 60, unwind);
                match panic::catch_unwind(AssertUnwindSafe(run)) {
                    Ok(sum) => assert_eq!((sum, unwind), (expected, false)),
                    Err(payload) => assert_eq!((payload.downcast_ref(), unwind), (Some(&0_usize), true)),
                }
                assert_eq!(drops.get() - before, 61);
            }
            end(home.get(), 0)
        }
        fn expected_sum() -> f64 {
            (0..=60).fold(0.0, |below, depth| {
                let floats: [f64; 8] = std::array::from_fn(|i| (depth * 8 + i) as f64 / 3.0);
                below + floats[0] * 1.5 * floats[7].sqrt() + floats.iter().sum::<f64>()
            })
        }
        let pool = StackPool::new(None, GUARD);
        let mut coro = started(&pool, 64 << 10, wander).unwrap();
        let home = Home::new();
        assert_eq!(resume_from(&mut coro, &home), 1);
        for i in 1..=100 {
            let run = || resume_from(&mut coro, &Home::new());
            let word = thread::scope(|scope| scope.spawn(run).join().unwrap());
            assert_eq!(word, usize::from(i < 100));
        }
        coro.retire(&pool, &mut StackCache::default());
    }

    /// Fails by a crash or a hang in the unwinder, or by a trace that goes on above the trampoline.
    #[test]
    fn a_backtrace_ends_at_the_trampoline_and_a_panic_is_caught_inside() {
        extern "C" fn trace(home: usize) -> End {
            let text = Backtrace::force_capture().to_string();
            let home = leave(home, Box::into_raw(Box::new(text)).addr());
            let caught = panic::catch_unwind(|| panic!("with a backtrace"));
            end(home, usize::from(caught.is_err()))
        }
        if !is_child() {
            let output = in_child("a_backtrace_ends_at_the_trampoline_and_a_panic_is_caught_inside");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("stack backtrace"), "{output:?}");
            return;
        }
        let pool = StackPool::new(None, GUARD);
        let mut coro = started(&pool, 64 << 10, trace).unwrap();
        let text = resume_from(&mut coro, &Home::new()) as *mut String;
        // SAFETY: `trace` made it from a Box and keeps no copy.
        let text = unsafe { Box::from_raw(text) };
        let frames: Vec<&str> = text.lines().filter(|line| !line.trim().starts_with("at ")).collect();
        assert!(frames.iter().any(|frame| frame.contains("trace")), "{text}");
        assert!(frames.last().unwrap().contains("trampoline"), "{text}");
        assert_eq!(resume_from(&mut coro, &Home::new()), 1);
        coro.retire(&pool, &mut StackCache::default());
    }

    /// Fails by another end of the child: a hang, an exit, or a write into the slot below.
    #[test]
    fn an_overflow_meets_the_guard_page() {
        #[inline(never)]
        fn exhaust(depth: usize) -> usize {
            let frame = black_box([depth; 64]);
            if black_box(false) { 0 } else { exhaust(depth + 1) + frame[depth % 64] }
        }
        extern "C" fn overflow(home: usize) -> End {
            end(home, exhaust(0))
        }
        if is_child() {
            let pool = StackPool::new(None, GUARD);
            let mut below = started(&pool, 64 << 10, overflow).unwrap();
            let mut coro = started(&pool, 64 << 10, overflow).unwrap();
            resume_from(&mut coro, &Home::new());
            resume_from(&mut below, &Home::new());
            return;
        }
        let output = in_child("an_overflow_meets_the_guard_page");
        assert_eq!(output.status.signal(), Some(libc::SIGSEGV), "{output:?}");
    }

    /// Fails by another end of the child: a panic that unwinds into the trampoline has no frame to go to.
    #[test]
    fn a_panic_that_leaves_the_entry_aborts() {
        extern "C" fn throw(_home: usize) -> End {
            panic!("uncaught")
        }
        if is_child() {
            let mut coro = started(&StackPool::new(None, GUARD), 64 << 10, throw).unwrap();
            resume_from(&mut coro, &Home::new());
            return;
        }
        let output = in_child("a_panic_that_leaves_the_entry_aborts");
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{output:?}");
    }

    extern "C" fn park_once(home: usize) -> End {
        let value = black_box(Cell::new(7));
        let home = leave(home, ptr::from_ref(&value).addr());
        end(home, value.get())
    }

    /// Fails by a fault or a wrong value: the frame of a dropped goroutine was unmapped, or given to another.
    #[test]
    fn a_suspended_coro_that_is_dropped_leaks_its_stack() {
        let (pool, home) = (StackPool::new(None, GUARD), Home::new());
        let mut coro = started(&pool, 0, park_once).unwrap();
        let value = resume_from(&mut coro, &home) as *const usize;
        drop(coro);
        for _ in 0..100 {
            let mut other = started(&pool, 0, park_once).unwrap();
            resume_from(&mut other, &home);
            assert_eq!(resume_from(&mut other, &home), 7);
            other.retire(&pool, &mut StackCache::default());
        }
        drop(pool);
        // SAFETY: the frame of `park_once` was leaked with its stack.
        assert_eq!(unsafe { value.read_volatile() }, 7);
    }

    /// Fails if frames in use could be handed to the next goroutine.
    #[test]
    #[should_panic(expected = "Coro::retire: it is suspended")]
    fn a_suspended_coro_cannot_be_retired() {
        let pool = StackPool::new(None, GUARD);
        let mut coro = started(&pool, 0, park_once).unwrap();
        resume_from(&mut coro, &Home::new());
        coro.retire(&pool, &mut StackCache::default());
    }

    /// Fails if parking costs more memory than it must: a second page of 4 KiB is touched.
    #[test]
    fn a_goroutine_that_parks_at_once_touches_one_page() {
        let pool = StackPool::new(None, GUARD);
        let mut coro = started(&pool, 64 << 10, park_once).unwrap();
        resume_from(&mut coro, &Home::new());
        let mut resident = [0_u8; 15];
        let bottom = coro.stack.top().wrapping_sub(resident.len() * 4096);
        // SAFETY: it asks about the usable pages of a mapped stack, and writes a byte for each.
        let done = unsafe { libc::mincore(bottom.cast(), resident.len() * 4096, resident.as_mut_ptr()) };
        assert_eq!((done, resident.map(|page| page & 1)), (0, [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]));
    }
}
