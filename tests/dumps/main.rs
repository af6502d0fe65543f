#![cfg(not(gmp_loom))]
//! What can be seen of goroutines from outside: dumps, debuggers, profilers.

mod dump;
#[cfg(target_arch = "x86_64")]
mod gdb;
#[cfg(target_arch = "x86_64")]
mod of_running;
#[cfg(target_arch = "x86_64")]
mod profilers;
mod sigquit;
