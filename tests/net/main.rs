#![cfg(not(gmp_loom))]
//! Sockets: streams, deadlines, contexts, `close`, and one socket used by several callers.

mod beside_std;
mod close;
mod config;
mod connects;
mod context;
mod deadline;
mod dial;
mod lookup;
mod polls;
mod polls_dropped;
mod polls_foreign;
mod polls_wakers;
mod shared;
mod socket;
mod stream;
mod table;
mod udp;
mod unix;
mod unix_messages;
