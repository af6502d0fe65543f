//! What the tests of both ways to switch, and of the pool, share.

#[cfg(not(any(feature = "generator", not(target_arch = "x86_64"))))]
use super::pool::StackPool;
#[cfg(any(feature = "generator", not(target_arch = "x86_64")))]
use super::switch::StackPool;
use super::switch::{Coro, End, Entry, Home, suspend};
use std::process::Command;
use std::{env, io, ptr};

const CHILD: &str = "GMP_TEST_CHILD";

/// In these tests the word of every resume is the address of the M's home.
pub(super) fn resume_from(coro: &mut Coro, home: &Home) -> usize {
    // SAFETY: the tests resume each Coro to the end and no further, one at a time for a home.
    unsafe { coro.resume(home, ptr::from_ref(home).addr()) }
}

pub(super) fn started(pool: &StackPool, size: usize, entry: Entry) -> io::Result<Coro> {
    pool.reserve(None, size)?;
    Coro::new(pool, &mut Default::default(), size, entry)
}

/// Suspends with `word`, and gives the home of the next resume.
pub(super) fn leave(home: usize, word: usize) -> usize {
    // SAFETY: `home` is the word of the latest resume.
    unsafe { suspend(home as *const Home, word) }
}

pub(super) fn end(home: usize, word: usize) -> End {
    End { home: home as *const Home, word }
}

/// The command that runs `test` of the module `of` (`module_path!()`) alone, in a child process, told by the variable.
pub(super) fn child(of: &str, test: &str) -> Command {
    let (_crate, path) = of.split_once("::").expect("a module of tests lies in a crate");
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([&format!("{path}::{test}"), "--exact", "--nocapture"]).env(CHILD, "1");
    command
}

pub(super) fn is_child() -> bool {
    env::var_os(CHILD).is_some()
}
