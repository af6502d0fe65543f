//! What the programs share.

pub mod signals;
