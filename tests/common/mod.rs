//! What the whole-system tests share: a fresh runtime for each number of Ps, and an end for what hangs.

mod watch;

use gmp::Runtime;
pub use watch::*;

/// The property holds in a fresh runtime of each size.
#[track_caller]
pub fn everywhere(property: impl Fn(Runtime)) {
    for procs in PROCS {
        watched(procs, || property(runtime(procs)));
    }
}
