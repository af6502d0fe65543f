#![cfg(not(gmp_loom))]
//! `gmp::hooks`: what is registered is registered for the process and for good, so each test has a process of its own.

mod ends;
mod refused;
mod switches;
