//! What the programs share: their options, and a server that stops when it is told to.

mod args;
mod serve;
pub mod signals;

pub use args::{Args, main};
pub use serve::{Served, serve};
