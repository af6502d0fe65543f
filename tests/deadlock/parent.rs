//! The parent's side: starts children and looks at their ends.

use common::child::under_policy;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// The environment variable that names the child's part.
pub const CHILD: &str = "GMP_TEST_CHILD";

/// The numbers of Ps with which each case is tried.
pub const PROCS: [usize; 4] = [1, 2, 4, 8];
/// As `PROCS`, for a case that is about one kind of wait: the kind is judged alike at each number of Ps, once without another P
/// and once beside Ps that are idle.
const PROCS_OF_A_WAIT: [usize; 2] = [1, 4];

/// Longer than the monitor looks for a deadlock.
pub const LONG: Duration = Duration::from_millis(1300);

/// The last look is 1 s after the end of all work. The rest is for machines on which twenty other processes compute.
const SOON: Duration = Duration::from_secs(10);
/// A child that hangs is killed after this.
const CHILD_LIMIT: Duration = Duration::from_secs(60);

/// How a child has ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub took: Duration,
}

fn start(child: &str, procs: usize, debug: &str) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("the test binary has a path"));
    command.env(CHILD, child).env("GMPMAXPROCS", procs.to_string()).env("GMPDEBUG", under_policy(debug));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("the test binary starts")
}

/// Reads what the child says until its end, for at most `limit`; then kills it.
fn attend(mut child: Child, limit: Duration) -> Ended {
    let began = Instant::now();
    let [stdout, stderr] = [
        Box::new(child.stdout.take().expect("piped")) as Box<dyn Read + Send>,
        Box::new(child.stderr.take().expect("piped")),
    ]
    .map(|mut pipe| {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            pipe.read_to_end(&mut bytes).expect("a pipe can be read");
            String::from_utf8_lossy(&bytes).into_owned()
        })
    });
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if began.elapsed() > limit {
            child.kill().expect("it is our child");
            break child.wait().expect("it is our child");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let took = began.elapsed();
    let [stdout, stderr] = [stdout, stderr].map(|reader| reader.join().expect("it only reads"));
    Ended { status, stdout, stderr, took }
}

/// Runs a child to its end.
pub fn run(child: &str, procs: usize, debug: &str) -> Ended {
    attend(start(child, procs, debug), CHILD_LIMIT)
}

/// Runs a child for longer than the monitor looks for a deadlock, and kills it.
pub fn watch(child: &str, procs: usize, debug: &str) -> Ended {
    attend(start(child, procs, debug), LONG + Duration::from_millis(300))
}

/// Asserts that at each number of Ps the child is reported as dead, with these texts, in time.
#[track_caller]
pub fn dies(child: &str, texts: &[&str]) {
    dies_under(child, "", texts);
}

#[track_caller]
pub fn dies_under(child: &str, debug: &str, texts: &[&str]) {
    dies_within(SOON, &PROCS, child, debug, texts);
}

/// The same for a child that falls asleep only after `LONG`.
#[track_caller]
pub fn dies_late(child: &str, texts: &[&str]) {
    dies_within(LONG + SOON, &PROCS, child, "", texts);
}

/// The same for a child whose case is one kind of wait. The report's child takes most of its CPU time to find the lines of the
/// frames in an unoptimised program.
#[track_caller]
pub fn dies_waiting(child: &str, texts: &[&str]) {
    dies_within(SOON, &PROCS_OF_A_WAIT, child, "", texts);
}

#[track_caller]
fn dies_within(limit: Duration, sizes: &[usize], child: &str, debug: &str, texts: &[&str]) {
    for &procs in sizes {
        // A loaded machine may take as much longer than the limit as it adds to the start of any process; and it may be loaded
        // just in one of the tries.
        let in_time = (0..3).any(|_| {
            let ended = run(child, procs, debug);
            assert_eq!(ended.status.code(), Some(2), "{child} at {procs}: {ended:?}");
            for text in ["fatal error: ", " - deadlock!\n\n"].iter().chain(texts) {
                assert!(ended.stderr.contains(text), "{child} at {procs} lacks {text:?}: {}", ended.stderr);
            }
            ended.took < limit || ended.took < limit + 4 * run("returns", procs, "").took
        });
        assert!(in_time, "{child} at {procs}: three times it was not reported within {limit:?}");
    }
}

/// Asserts that at each number of Ps the child ends well and nothing is reported.
#[track_caller]
pub fn lives(child: &str) {
    lives_under(child, "");
}

#[track_caller]
pub fn lives_under(child: &str, debug: &str) {
    for procs in PROCS {
        let ended = run(child, procs, debug);
        assert!(ended.status.success() && ended.stderr.is_empty(), "{child} at {procs}: {ended:?}");
    }
}

/// Asserts that the child ends well, and has said this line, once, and nothing else.
#[track_caller]
pub fn lives_and_says(child: &str, debug: &str, line: &str) {
    for procs in PROCS {
        let ended = run(child, procs, debug);
        let said = ended.stderr.lines().count() == 1 && ended.stderr.contains(line);
        assert!(ended.status.success() && said, "{child} at {procs}: {ended:?}");
    }
}

/// Asserts that the child goes on doing nothing, and nothing is reported.
#[track_caller]
pub fn stays(child: &str) {
    for procs in PROCS {
        let ended = watch(child, procs, "");
        assert!(ended.status.code().is_none() && ended.stderr.is_empty(), "{child} at {procs}: {ended:?}");
    }
}
