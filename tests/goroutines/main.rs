#![cfg(not(gmp_loom))]
//! Goroutines: how one starts, what it has of its own, and how it ends.

mod awaits;
mod backend_smoke;
mod block_on;
mod block_on_ends;
mod ends;
mod fork;
mod fork_attacks;
mod goexit;
mod handle;
mod handles;
mod local;
mod panics;
mod park;
mod scope;
mod spawn;
mod unwinding;
mod unwinding_shapes;
