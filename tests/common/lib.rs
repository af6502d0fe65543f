//! What the whole-system tests share: a fresh runtime for each number of Ps, an end for tests that hang, and helpers by
//! subject.

pub mod bolt;
pub mod child;
pub mod cpu;
pub mod crew;
pub mod descriptors;
pub mod dns;
pub mod dumps;
pub mod example;
pub mod foreign;
pub mod forked;
pub mod futures;
pub mod gate;
pub mod history;
pub mod loopback;
pub mod mappings;
pub mod mask;
pub mod policies;
pub mod probe;
pub mod random;
pub mod room;
pub mod seccomp;
pub mod slow_disk;
pub mod stderr;
pub mod talk;
mod waits;
mod watch;
pub mod within;
pub mod writer;

use gmp::Runtime;
pub use waits::other_threads_sleep;
pub use watch::*;

/// Checks that the property holds in a fresh runtime of each size.
#[track_caller]
pub fn everywhere(property: impl Fn(Runtime)) {
    in_each_size(&property);
}

/// Not generic: one loop for all properties.
#[track_caller]
fn in_each_size(property: &dyn Fn(Runtime)) {
    for procs in PROCS {
        watched(procs, || property(runtime(procs)));
    }
}
