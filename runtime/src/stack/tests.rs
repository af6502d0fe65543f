//! Code that the tests of both ways to switch, and of the pool, share.

use super::pool::StackPool;
use super::switch::{Coro, Home, suspend};
use super::{End, Entry};
use std::process::Command;
use std::{env, io, ptr};

const CHILD: &str = "GMP_TEST_CHILD";

/// Resumes `coro`. In these tests the word of every resume is the address of `home`.
pub(super) fn resume_from(coro: &mut Coro, home: &Home) -> usize {
    // SAFETY: the tests resume each Coro to the end and no further, one at a time for a home.
    unsafe { coro.resume(home, ptr::from_ref(home).addr()) }
}

pub(super) fn started(pool: &StackPool, size: usize, entry: Entry) -> io::Result<Coro> {
    pool.reserve(None, size)?;
    Coro::new(pool, &mut Default::default(), size, entry)
}

/// Suspends with `word`, and returns the home of the next resume.
pub(super) fn leave(home: usize, word: usize) -> usize {
    // SAFETY: `home` is the word of the latest resume.
    unsafe { suspend(home as *const Home, word) }
}

pub(super) fn end(home: usize, word: usize) -> End {
    End { home: home as *const Home, word }
}

/// Makes the command that runs only `test` of the module `of` (`module_path!()`) in a child process, which the variable marks.
pub(crate) fn child(of: &str, test: &str) -> Command {
    let (_crate, path) = of.split_once("::").expect("a module of tests lies in a crate");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&format!("{path}::{test}"), "--exact", "--nocapture"]).env(CHILD, "1");
    command
}

pub(crate) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}
