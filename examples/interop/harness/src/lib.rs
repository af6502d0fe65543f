//! Shared code of the tests of the interop programs. It runs peers, which others have written, and examples of this package, as
//! child processes that do not outlive their test. A test begins with the programs that it needs, `peer!("curl")`. If a program
//! is missing, the test is skipped, and the skip is printed and counted. README.md in the folder above shows a whole test.

mod certificate;
mod example;
mod peer;
mod postgres;
mod program;
mod scratch;

pub use certificate::certificate;
pub use common::descriptors::allow_descriptors;
pub use common::dns;
pub use common::example::LIMIT;
pub use example::{Example, STOP_LIMIT};
pub use peer::Peer;
pub use postgres::postgres;
pub use program::{Done, Program, find, python_with, run, run_with_input, skipped};
pub use scratch::Scratch;
use std::time::{Duration, Instant};

/// The numbers of Ps with which each example is run.
pub const PROCS: [usize; 2] = [1, 4];

/// Checks that the property holds with each number of Ps.
#[track_caller]
pub fn everywhere(property: impl Fn(usize)) {
    PROCS.into_iter().for_each(property);
}

/// Polls `done` until it returns `true`, for a condition that no event reports.
#[track_caller]
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < LIMIT, "not within {LIMIT:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Makes the command that runs an example of the package of the calling test.
#[macro_export]
macro_rules! example {
    ($name:literal) => {
        ::std::process::Command::new(env!(concat!("CARGO_BIN_EXE_", $name)))
    };
}

/// Finds a program of others by its name, or a Python that has the module. If it is missing, the test ends here and says so.
#[macro_export]
macro_rules! peer {
    (python $module:literal) => {
        match $crate::python_with($module) {
            Some(program) => program,
            None => return $crate::skipped(concat!("python3 with ", $module)),
        }
    };
    ($name:expr) => {
        match $crate::find($name) {
            Some(program) => program,
            None => return $crate::skipped($name),
        }
    };
}
