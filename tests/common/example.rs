//! An example as a child process: where it is, and what it says until it ends.

use std::io::{ErrorKind, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The longest that any one step may take on the slowest machine. A test that hangs fails after it.
pub const LIMIT: Duration = Duration::from_secs(30);

/// Returns a command for an example of this package, built into the directory above the one of this test.
pub fn example(name: &str) -> Command {
    let test = std::env::current_exe().expect("a test knows its path");
    let path: PathBuf =
        test.parent().and_then(|deps| deps.parent()).expect("in deps/").join("examples").join(name);
    assert!(
        path.exists(),
        "{} is not there: `cargo test` builds it, with `--test` or `--tests` it does not; \
         `cargo build --example {name}` does",
        path.display()
    );
    Command::new(path)
}

/// Runs `command` to its end, and returns its status, stdout and stderr.
pub fn output(command: &mut Command) -> (Option<i32>, String, String) {
    let name = command.get_program().to_owned();
    let mut child = Guard(match command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(refused) if refused.kind() == ErrorKind::NotFound => panic!("{name:?} is needed for this test"),
        Err(refused) => panic!("cannot start {name:?}: {refused}"),
    });
    let [out, err] = [whole(child.0.stdout.take()), whole(child.0.stderr.take())];
    let status = child.wait();
    let text = |of: Receiver<String>| of.recv_timeout(LIMIT).expect("a pipe ends with its process");
    (status.code(), text(out), text(err))
}

/// Plays the test with each number of Ps at the same time: an example that waits for the end of a limit leaves the cores to
/// others.
pub fn at_once<T: Send, const COUNT: usize>(procs: [T; COUNT], test: impl Fn(T) + Sync) {
    let test = &test;
    thread::scope(|s| procs.into_iter().for_each(|procs| drop(s.spawn(move || test(procs)))));
}

/// Runs an example that is to fail, and returns its one line on stderr.
#[track_caller]
pub fn refusal(name: &str, args: &[&str], expected: i32) -> String {
    let (status, stdout, stderr) = output(example(name).args(args));
    assert_eq!((status, stderr.lines().count()), (Some(expected), 1), "{args:?}: {stdout}{stderr}");
    stderr
}

fn whole(pipe: Option<impl Read + Send + 'static>) -> Receiver<String> {
    let (text, texts) = mpsc::channel();
    let mut pipe = pipe.expect("piped");
    thread::spawn(move || {
        let mut all = String::new();
        let _nobody_waits = pipe.read_to_string(&mut all).map(|_| text.send(all));
    });
    texts
}

/// A child process that does not outlive its test.
pub struct Guard(pub Child);

impl Guard {
    /// Waits for the end of the child, at most for `LIMIT`.
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            match self.0.try_wait().expect("it is our child") {
                Some(status) => return status,
                None if start.elapsed() > LIMIT => panic!("process {} does not end", self.0.id()),
                None => thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _it_has_ended_already = self.0.kill();
        let _reaped = self.0.wait();
    }
}
