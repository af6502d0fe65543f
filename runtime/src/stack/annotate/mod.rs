//! Reports of the library's stacks to tools that watch a program's memory. There are none unless a cfg names the tool.
//!
//! | cfg | tool | is told |
//! | --- | --- | --- |
//! | `gmp_valgrind` | valgrind | where each stack begins and ends |
//! | `gmp_asan` | AddressSanitizer | every switch, and the bounds of the stack that is switched to |
//! | `gmp_tsan` | ThreadSanitizer | every switch; each goroutine is a fiber of its own |
//!
//! In the order of a goroutine's life, on the M's stack and on the goroutine's:
//!
//! ```text
//!   M:           Stack::new · enter ──┐      ┌── back · enter ──┐      ┌── back · Stack::retire
//!   goroutine:                        begun ... leave           arrive ... end
//! ```
//!
//! `with_stack` makes a call on another stack: a `Call` lives on the outer stack as long as the call takes. A goroutine leaves
//! and arrives on any of its stacks.
//!
//! One tool at a time, and only with the switch of `stack/switch.rs`: the `generator` backend reports to no tool. Without a
//! tool all of this is empty. How to build and run with each: `docs/stacks.md`.

#[cfg(any(all(gmp_valgrind, gmp_asan), all(gmp_valgrind, gmp_tsan), all(gmp_asan, gmp_tsan)))]
compile_error!("one of the cfgs gmp_valgrind, gmp_asan and gmp_tsan at a time");

#[cfg(gmp_asan)]
mod asan;
#[cfg(gmp_asan)]
pub(crate) use asan::*;

#[cfg(gmp_tsan)]
mod tsan;
#[cfg(gmp_tsan)]
pub(crate) use tsan::*;

#[cfg(gmp_valgrind)]
mod valgrind;
#[cfg(gmp_valgrind)]
pub(crate) use valgrind::Stack;

#[cfg(not(any(gmp_valgrind, gmp_asan, gmp_tsan)))]
pub(crate) use nobody::Stack;
#[cfg(not(any(gmp_asan, gmp_tsan)))]
pub(crate) use nobody::{Home, arrive, back, begun, end, enter, leave};
#[cfg(not(gmp_asan))]
#[allow(unused_imports, reason = "the model's host calls on no other stack")]
pub(crate) use same_stack::Call;

/// A call on another stack concerns only a tool that must know the bounds of the running stack.
#[cfg(not(gmp_asan))]
#[allow(dead_code, reason = "the model's host calls on no other stack")]
mod same_stack {
    /// A call on another stack, by the same goroutine or thread.
    #[derive(Debug)]
    pub(crate) struct Call;

    impl Call {
        /// Called on the outer stack, right before the call. The value is dropped there, when the call has returned or unwound.
        #[inline(always)]
        #[must_use]
        pub(crate) fn begin(_stack: &super::Stack) -> Call {
            Call
        }
    }
}

/// For builds that report switches to no tool. Valgrind sees switches by itself.
#[cfg(not(any(gmp_asan, gmp_tsan)))]
mod nobody {
    /// What is kept for a goroutine's stack: nothing.
    #[cfg(not(gmp_valgrind))]
    #[derive(Debug)]
    pub(crate) struct Stack;

    #[cfg(not(gmp_valgrind))]
    impl Stack {
        /// A stack of so many bytes below `top` was taken.
        #[inline(always)]
        pub(crate) fn new(_top: *mut u8, _bytes: usize) -> Stack {
            Stack
        }

        /// The stack is given back: nothing runs there any more.
        #[inline(always)]
        pub(crate) fn retire(self) {}
    }

    /// What is kept for an M's own stack: nothing.
    #[derive(Debug)]
    pub(crate) struct Home;

    impl Home {
        pub(crate) const fn new() -> Home {
            Home
        }
    }

    /// What is kept on a stack that is left: nothing.
    pub(crate) struct Away;

    /// Called on the M's stack, right before the switch to a goroutine's. The result is for `back`.
    #[inline(always)]
    pub(crate) fn enter(_stack: &super::Stack, _home: &Home) -> Away {
        Away
    }

    /// Called on the M's stack, right after the switch back.
    #[inline(always)]
    pub(crate) fn back(_: Away, _stack: &super::Stack) {}

    /// Called on the goroutine's stack, right before the switch to the M's. The result is for `arrive`.
    #[inline(always)]
    pub(crate) fn leave(_home: &Home) -> Away {
        Away
    }

    /// Called on the goroutine's stack, right after the switch back, perhaps on another thread.
    #[inline(always)]
    pub(crate) fn arrive(_: Away) {}

    /// The first act of a goroutine on a new stack.
    #[inline(always)]
    pub(crate) fn begun() {}

    /// The last act of a goroutine on its stack.
    #[inline(always)]
    pub(crate) fn end(_home: &Home) {}
}
