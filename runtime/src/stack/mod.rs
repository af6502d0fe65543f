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
