//! The frames of a suspended goroutine, read from outside: for x86-64, beside `switch.rs`.
//!
//! The unwinder can only begin at its caller. So the walk calls the unwinder beneath a frame whose unwind table is wrong on
//! purpose: that the frame was called from the place where the goroutine has suspended.
//!
//! ```text
//!   dumper's stack                             goroutine's stack, suspended
//!     walk                                       ..
//!     beneath      table: CFA = rbp + 24    ┌──▶ frame that suspends        CFA of `beneath`
//!       rbp = sp ───────────────────────────┼──▶   rbp                      CFA - 8
//!     begin              "its caller" ──────┘      rbx                      CFA - 16
//!     _Unwind_Backtrace                            label: after its jump    CFA - 24, "the return address"
//! ```
//! The switch declares all other registers as lost, so the frames that need r12 to r15 have them where their own tables say.
//! The walk ends at the trampoline, as each walk on that stack does; it goes by the tables alone, and does not check whether an
//! address lies on this stack.
//!
//! The walk writes nothing to the goroutine's stack, and some 1.6 KB to the dumper's. The walk takes no lock and allocates
//! nothing if the unwinder finds the tables by `_dl_find_object` of glibc 2.35 and later; with an older glibc, and with musl,
//! the unwinder locks the list of loaded objects. `frames::prepare` has done at the start what a process does only once.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use super::unwind::{_Unwind_Backtrace, _Unwind_GetIPInfo, Context, ENOUGH, ON};
use crate::host::Frames;

/// One walk.
struct Walk<'a> {
    /// Where the goroutine goes on. The frames before that are our own.
    label: usize,
    there: bool,
    frames: &'a mut Frames,
}

/// Reads the frames of a goroutine.
///
/// # Safety
/// `sp` is where `suspend` has left a context, which is not resumed meanwhile.
pub(crate) unsafe fn walk(sp: *const usize, frames: &mut Frames) {
    // SAFETY: by this function's contract: the label lies there.
    let mut walk = Walk { label: unsafe { *sp }, there: false, frames };
    // SAFETY: by this function's contract, and `begin` gets the expected walk.
    unsafe { beneath(sp, begin, (&raw mut walk).cast()) };
}

/// Calls `callee` with `arg`, as if called by the frame that has suspended at `sp`.
///
/// # Safety
/// As `walk`. `callee` does not unwind.
#[unsafe(naked)]
unsafe extern "C" fn beneath(sp: *const usize, callee: unsafe extern "C" fn(*mut c_void), arg: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        ".cfi_undefined rip", // a walk from a signal handler ends here, but for the call
        "push rbp",
        "mov rbp, rdi",
        "mov rdi, rdx",
        ".cfi_def_cfa rbp, 24",
        ".cfi_offset rip, -24",
        ".cfi_offset rbx, -16",
        ".cfi_offset rbp, -8",
        "call rsi",
        ".cfi_undefined rip",
        "pop rbp",
        "ret",
        ".cfi_endproc",
    )
}

/// # Safety
/// `walk` points to a `Walk`.
unsafe extern "C" fn begin(walk: *mut c_void) {
    // SAFETY: `note` gets the expected walk. The unwinder only reads.
    unsafe { _Unwind_Backtrace(note, walk) };
}

extern "C" fn note(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: `begin` passed the walk, and waits.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let mut before = 0;
    // SAFETY: a context of the unwinder, within its callback.
    let pc = unsafe { _Unwind_GetIPInfo(context, &raw mut before) };
    walk.there |= pc == walk.label;
    if pc == 0 {
        // The caller of the outermost frame, as some unwinders show it.
        return ENOUGH;
    }
    // A frame that a signal has interrupted stands at an instruction, the others after a call. Addresses of the first kind are
    // made to look like the others.
    let goes_on = !walk.there || walk.frames.push(pc + usize::from(before != 0));
    if goes_on { ON } else { ENOUGH }
}

#[cfg(all(test, not(gmp_loom)))]
mod tests {
    use super::super::End;
    use super::super::switch::{Coro, Home, suspend};
    use super::*;
    use crate::stack::pool::{GUARD, StackCache, StackPool};
    use std::hint::black_box;

    /// What a coroutine sees of itself.
    #[derive(Default)]
    struct Inside(Vec<usize>);

    extern "C" fn collect(context: *mut Context, inside: *mut c_void) -> c_int {
        // SAFETY: `descend` passed it; a context of the unwinder, within its callback.
        let (inside, pc) = unsafe { (&mut *inside.cast::<Inside>(), _Unwind_GetIPInfo(context, &mut 0)) };
        inside.0.extend((pc != 0).then_some(pc));
        ON
    }

    /// Frames of several kinds: with many registers in use, and aligned by hand.
    #[inline(never)]
    fn descend(home: usize, depth: usize, inside: &mut Inside) -> usize {
        #[repr(align(64))]
        struct Wide([usize; 8]);
        let wide = black_box(Wide([depth; 8]));
        if depth > 0 {
            let below = if depth.is_multiple_of(2) {
                descend(home, depth - 1, inside)
            } else {
                let registers: [usize; 8] = black_box(std::array::from_fn(|i| i * depth));
                let [a, b, c, d, ..] = registers;
                descend(home, depth - 1, inside) + (a ^ b) + (c ^ d)
            };
            return below + wide.0[depth % 8];
        }
        // SAFETY: `collect` gets what it expects.
        unsafe { _Unwind_Backtrace(collect, (&raw mut *inside).cast()) };
        // SAFETY: the test resumes with the address of its home.
        unsafe { suspend(home as *const Home, (&raw const *inside).expose_provenance()) }
    }

    extern "C" fn entry(home: usize) -> End {
        let home = descend(home, 9, &mut Inside::default()) - black_box(extra());
        End { home: home as *const Home, word: 0 }
    }

    /// What `descend` adds to the word.
    fn extra() -> usize {
        let more =
            |depth: usize| if depth.is_multiple_of(2) { 0 } else { depth + ((2 * depth) ^ (3 * depth)) };
        (1..=9).map(|depth| depth + more(depth)).sum()
    }

    /// Fails by another frame than the coroutine has seen itself, by one too many or too few, or by a crash in the unwinder.
    #[test]
    fn the_frames_are_those_that_a_goroutine_sees_itself() {
        let (pool, mut cache, home) = (StackPool::new(None, GUARD), StackCache::default(), Home::new());
        pool.reserve(None, 64 << 10).unwrap();
        let coro = Coro::new(&pool, &mut cache, 64 << 10, entry).unwrap();
        let frames = |coro: &Coro| {
            let mut frames = Frames::new();
            // SAFETY: this thread alone has the coroutine, and does not resume that meanwhile.
            unsafe { coro.frames(&mut frames) };
            frames.pcs().to_vec()
        };
        assert_eq!(frames(&coro), [], "before the first resume");
        // SAFETY: resumed to its end and no further.
        let word = unsafe { coro.resume(&home, (&raw const home).addr()) };
        // SAFETY: `inside` lies on the stack of the coroutine, which is suspended.
        let inside = unsafe { &(*std::ptr::with_exposed_provenance::<Inside>(word)).0 };
        let outside = frames(&coro);
        // The innermost frame goes on at another place of the same function.
        assert_eq!(outside[1..], inside[1..]);
        assert!(outside.len() >= 11, "{outside:x?}");
        // SAFETY: this test resumes the coroutine, always with this home.
        assert_eq!(unsafe { coro.resume(&home, (&raw const home).addr()) }, 0);
        assert_eq!(frames(&coro), [], "after its end");
        coro.retire(&pool, &mut cache);
        pool.empty(&mut cache);
    }
}
