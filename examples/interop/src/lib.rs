//! Shared code of the programs: their options, a server that stops on a signal, and a connector for ureq.

mod args;
mod lines;
mod serve;
pub mod transport;

pub use args::{Args, main};
pub use lines::answer_lines;
pub use serve::{Served, serve, serve_in};
