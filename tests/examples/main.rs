#![cfg(not(gmp_loom))]
//! The examples, as programs of their own.

mod echo;
mod printed;
