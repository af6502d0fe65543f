#![cfg(not(gmp_loom))]
//! The examples, as programs of their own.

mod echo;
mod port_forward;
mod printed;
mod process_pool;
mod program;
mod rate_limit;
mod refused;
mod static_files;
mod stops;
mod udp_dns;
