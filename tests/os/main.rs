#![cfg(not(gmp_loom))]
//! The parts of the operating system beside sockets: descriptors that other libraries made, pipes, child processes, files,
//! signals.

mod bidirectional;
mod copy;
mod copy_edges;
mod forked;
mod fs;
mod fs_cached;
mod fs_files;
mod fs_line;
mod fs_odd;
mod fs_positions;
mod pipe;
mod process;
mod process_delay;
mod process_edges;
mod process_ends;
mod process_numbers;
mod signal;
mod watched;
mod watched_input;
