#![cfg(not(gmp_loom))]
//! What the operating system has beside sockets: descriptors of others, pipes, child processes, files, signals.

mod bidirectional;
mod copy;
mod fs;
mod fs_files;
mod fs_line;
mod fs_odd;
mod pipe;
mod process;
mod process_edges;
mod signal;
mod watched;
