#![cfg(not(gmp_loom))]
//! What the operating system has beside sockets: descriptors of others, pipes, child processes.

mod pipe;
mod process;
mod watched;
