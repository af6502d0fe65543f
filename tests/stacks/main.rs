#![cfg(not(gmp_loom))]
//! Stacks: their limits and overflow, larger ones, and what cannot be unwound.

mod apx;
mod given;
mod limits;
mod overflow;
mod refusals;
mod short;
mod with_stack;
