//! Stacks and the switch between them: what both hosts run on.
//!
//! The system's host and that of the models stand on the same stacks and the same switch; a build has one of the hosts. The
//! backend `generator` has a `switch` of its own, which brings stacks along.

#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
pub(crate) mod annotate;
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
pub(crate) mod pool;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
#[path = "generator.rs"]
pub(crate) mod switch;
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
pub(crate) mod switch;
#[cfg(all(test, not(gmp_loom)))]
mod tests;
#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
pub(crate) mod traceback;
pub(crate) mod unwind;
