//! Options, `--name value` and `--flag`, and the message of a program that fails.

use std::io;
use std::process::{ExitCode, exit};
use std::str::FromStr;

/// The options that the program was started with.
pub struct Args {
    given: Vec<String>,
    help: &'static str,
    wrong: Option<String>,
}

impl Args {
    pub fn new(help: &'static str) -> Self {
        let given = std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned());
        Args { given: given.collect(), help, wrong: None }
    }

    /// Returns the value after `name`. The option can be given several times: each call takes the first value that is left.
    pub fn value<T: FromStr>(&mut self, name: &str) -> Option<T> {
        let at = self.given.iter().position(|arg| arg == name)?;
        let value = self.given.drain(at..(at + 2).min(self.given.len())).nth(1);
        let Some(text) = value else {
            self.wrong.get_or_insert(format!("{name} needs a value"));
            return None;
        };
        let parsed = text.parse().ok();
        if parsed.is_none() {
            self.wrong.get_or_insert(format!("{name}: {text:?} is no such value"));
        }
        parsed
    }

    /// Returns `true` if `name` was given.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.given.len();
        self.given.retain(|arg| arg != name);
        self.given.len() < before
    }

    /// Returns the arguments that are not options.
    pub fn rest(&mut self) -> Vec<String> {
        let (options, rest) =
            std::mem::take(&mut self.given).into_iter().partition(|arg| arg.starts_with("--"));
        self.given = options;
        rest
    }

    /// Ends the process if the arguments ask for help or hold an unknown option.
    pub fn finish(mut self) {
        if self.flag("--help") {
            print!("{}", self.help);
            exit(0);
        }
        let unknown = self.given.first().map(|arg| format!("unknown argument {arg:?}"));
        if let Some(wrong) = self.wrong.or(unknown) {
            eprintln!("{wrong}; --help tells which there are");
            exit(2);
        }
    }
}

/// Runs the program called `name`, and prints the error if it fails.
pub fn main(name: &str, run: impl FnOnce() -> io::Result<()>) -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{name}: {wrong}");
            ExitCode::FAILURE
        }
    }
}
