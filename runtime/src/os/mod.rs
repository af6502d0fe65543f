//! The operating system's services beside sockets and clocks: descriptors of any kind, pipes, child processes, files, signals.

pub mod fs;
pub mod io;
pub mod process;
pub mod signal;
