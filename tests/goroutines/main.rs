#![cfg(not(gmp_loom))]
//! Goroutines: how one starts, what it has of its own, and how it ends.

mod backend_smoke;
mod ends;
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
