//! Stacks and the switch between them, on which both hosts run.
//!
//! The system's host and that of the models use the same stacks and the same switch; a build has one of the hosts. The backend
//! `generator` has a `switch` of its own, with its own stacks.

#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
pub(crate) mod annotate;
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
mod apx;
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
pub(crate) mod pool;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
#[path = "generator.rs"]
pub(crate) mod switch;
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
pub(crate) mod switch;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
pub(crate) use switch as pool;
#[cfg(all(test, not(gmp_loom)))]
pub(crate) mod tests;
#[cfg(all(target_arch = "x86_64", not(feature = "generator")))]
pub(crate) mod traceback;
pub(crate) mod unwind;

use switch::Home;

/// The smallest stack; smaller requests are rounded up.
pub(crate) const MIN_STACK: usize = 16 << 10;
/// The biggest stack; larger requests are an error.
pub(crate) const MAX_STACK: usize = 64 << 20;
/// The largest guard for which a program may ask.
pub(crate) const MAX_GUARD: usize = 1 << 20;

/// How a goroutine ends: the home of the M on which the goroutine ends, and the word of the last resume.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct End {
    pub(crate) home: *const Home,
    pub(crate) word: usize,
}

/// Runs on the new stack at the first resume, with that resume's word. A panic that reaches the edge of the entry
/// aborts the process, as in every `extern` function.
pub(crate) type Entry = unsafe extern "C" fn(word: usize) -> End;
