//! Programs of others: where they are, and what a program prints from its start to its end.

use common::example::{Guard, LIMIT};
use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// A program that exists on this machine.
#[derive(Clone, Debug)]
pub struct Program(PathBuf);

impl Program {
    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn command(&self) -> Command {
        Command::new(&self.0)
    }
}

/// Finds the program of this name in `PATH`, or in the folders where Debian keeps servers, which `PATH` can lack.
pub fn find(name: &str) -> Option<Program> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).collect();
    folders.extend(["/usr/sbin", "/usr/local/sbin", "/sbin"].map(PathBuf::from));
    // There is one folder for each version. The newest comes first.
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut versions: Vec<_> = versions.map(|version| version.path().join("bin")).collect();
    versions.sort();
    folders.extend(versions.into_iter().rev());
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
    };
    folders.into_iter().map(|folder| folder.join(name)).find(runs).map(Program)
}

/// Finds a Python that has the module: that of `GMP_INTEROP_PYTHON`, the first of `PATH`, or Debian's.
pub fn python_with(module: &str) -> Option<Program> {
    let named = std::env::var_os("GMP_INTEROP_PYTHON").map(|path| Program(path.into()));
    let debian = Program("/usr/bin/python3".into());
    [named, find("python3"), Some(debian)].into_iter().flatten().find(|python| {
        let import = format!("import {module}");
        let tried =
            python.command().args(["-c", &import]).stdout(Stdio::null()).stderr(Stdio::null()).status();
        tried.is_ok_and(|status| status.success())
    })
}

/// Prints that the calling test is skipped because `program` is missing. It bypasses the capture of the test harness, which
/// would hide the output of a test that passes.
pub fn skipped(program: &str) {
    let test = thread::current();
    // The text is on a line of its own, whatever line the harness has begun.
    let line = format!("\nskipped: no {program}\n  by the test {}\n", test.name().unwrap_or("?"));
    std::io::stderr().write_all(line.as_bytes()).expect("stderr is open");
}

/// The output of a program, and its status, which is `None` if a signal ended it.
#[derive(Debug)]
pub struct Done {
    pub status: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl Done {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Returns what the program printed. Panics if it has failed.
    #[track_caller]
    pub fn good(self) -> String {
        assert_eq!(self.status, Some(0), "{}{}", self.text(), self.stderr);
        self.text()
    }
}

/// Runs `command` to its end, with empty input.
#[track_caller]
pub fn run(command: &mut Command) -> Done {
    run_with_input(command, b"")
}

/// Runs `command` to its end, with `input` on its stdin. Panics if that takes longer than `LIMIT`.
#[track_caller]
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Done {
    let name = command.get_program().to_owned();
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = Guard(child.unwrap_or_else(|refused| panic!("cannot start {name:?}: {refused}")));
    let mut stdin = child.0.stdin.take().expect("piped");
    let input = input.to_vec();
    thread::spawn(move || stdin.write_all(&input));
    let [stdout, stderr] = [whole(child.0.stdout.take()), whole(child.0.stderr.take())];
    let start = Instant::now();
    let status = loop {
        match child.0.try_wait().expect("it is our child") {
            Some(status) => break status,
            None if start.elapsed() > LIMIT => panic!("{command:?} does not end within {LIMIT:?}"),
            None => thread::sleep(Duration::from_millis(2)),
        }
    };
    let stderr = stderr.join().expect("a pipe can be read");
    let stderr = String::from_utf8_lossy(&stderr).into_owned();
    Done { status: status.code(), stdout: stdout.join().expect("a pipe can be read"), stderr }
}

fn whole(pipe: Option<impl Read + Send + 'static>) -> thread::JoinHandle<Vec<u8>> {
    let mut pipe = pipe.expect("piped");
    thread::spawn(move || {
        let mut all = Vec::new();
        // On an error, the thread returns the bytes that came before it.
        let _broken = pipe.read_to_end(&mut all);
        all
    })
}
