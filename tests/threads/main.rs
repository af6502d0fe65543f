#![cfg(not(gmp_loom))]
//! Threads and Ps: how a runtime begins and ends, how many of them there are, and what happens when a goroutine keeps its
//! thread.

mod blocking;
mod bound;
mod handoff;
mod kept_calls;
mod left_behind;
mod lifecycle;
mod locked;
mod machine;
mod migrate;
mod own_frame;
mod procs;
mod refused;
mod refused_threads;
mod shutdown;
mod thread_ends;
mod thread_start;
