//! Any descriptor that can be waited for: [`Watched`]; and the standard input, [`stdin`].

mod stdin;
mod watched;

pub use stdin::{Stdin, stdin};
pub use watched::Watched;
