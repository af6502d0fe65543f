//! A test that needs a process of its own: it runs itself there. The test tells the name of its function; the module is that of
//! the calling file.

use crate::skipped;
use std::io;
use std::os::unix::process::CommandExt;
use std::panic::Location;
use std::path::PathBuf;
use std::process::{Command, Output};

/// The environment variable that is set in the child.
pub const CHILD: &str = "GMP_TEST_CHILD";

/// Returns `true` if this is the process in which the test is to do its work.
pub fn is_child() -> bool {
    std::env::var_os(CHILD).is_some()
}

/// Returns the test's name in the harness: after the modules of the calling file, which lies in the folder of its binary.
#[track_caller]
pub fn full_name(test: &str) -> String {
    let file = Location::caller().file();
    let path = file.strip_prefix("tests/").and_then(|path| path.strip_suffix(".rs"));
    let (_binary, modules) = path.and_then(|path| path.split_once('/')).expect("a test's file is a module");
    format!("{}::{test}", modules.trim_end_matches("/mod").replace('/', "::"))
}

/// Returns a command that runs this program as a child process, which runs the test of this name alone.
#[track_caller]
pub fn command(test: &str) -> Command {
    let mut command = Command::new(own_path());
    command.args([&full_name(test), "--exact", "--nocapture"]).env(CHILD, "1").env_remove("GMPMAXPROCS");
    // A shell's background job ignores this signal, and so would its children.
    // SAFETY: `signal` may be called between fork and exec.
    unsafe {
        command.pre_exec(|| {
            libc::signal(libc::SIGQUIT, libc::SIG_DFL);
            Ok(())
        })
    };
    command
}

fn own_path() -> PathBuf {
    std::env::current_exe().expect("the test binary has a path")
}

/// Runs the test of this name alone in a child process, with these variables in its environment.
#[track_caller]
pub fn run(test: &str, env: &[(&str, &str)]) -> Output {
    let mut command = command(test);
    for &(name, value) in env {
        command.env(name, if name == DEBUG { under_policy(value) } else { value.to_owned() });
    }
    command.output().expect("the test binary starts")
}

const DEBUG: &str = "GMPDEBUG";

/// Returns `knobs`, and the policy that the environment's `GMPDEBUG` names, if it names one and `knobs` do not: for
/// `./test policies`.
pub fn under_policy(knobs: &str) -> String {
    let own = std::env::var(DEBUG).unwrap_or_default();
    let names_policy = |knob: &&str| knob.starts_with("policy=");
    let policy =
        own.split(',').find(names_policy).filter(|_| !knobs.split(',').any(|knob| names_policy(&knob)));
    Vec::from_iter([knobs].into_iter().filter(|knobs| !knobs.is_empty()).chain(policy)).join(",")
}

/// As `run`, for a child that must pass.
#[track_caller]
pub fn passes(test: &str, env: &[(&str, &str)]) -> String {
    has_passed(test, run(test, env))
}

/// As `passes`, in the grandchild of a process that has called `prepare` between fork and exec. Returns `None` if `prepare`
/// failed: it may make calls that are not allowed everywhere.
#[track_caller]
pub fn passes_where(
    test: &str,
    prepare: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
) -> Option<String> {
    let mut command = Command::new("sh");
    // The shell waits, so the test is a process of its own.
    command.args(["-c", r#""$@"; exit $?"#, "sh"]).arg(own_path()).args([
        &full_name(test),
        "--exact",
        "--nocapture",
    ]);
    // SAFETY: `prepare` makes only system calls, which may be made between fork and exec.
    unsafe { command.pre_exec(prepare) };
    command.env(CHILD, "1").env_remove("GMPMAXPROCS");
    command.output().ok().map(|output| has_passed(test, output))
}

/// Checks that a child that has run this test has passed, and returns what it wrote to standard error.
#[track_caller]
pub fn has_passed(test: &str, output: Output) -> String {
    let [stdout, stderr] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    assert!(
        output.status.success() && stdout.contains("1 passed"),
        "{test} in a child: {}\n{stdout}\n{stderr}",
        output.status
    );
    // What the child leaves out, the parent leaves out.
    stderr.lines().filter_map(|line| line.strip_prefix("skipped: ")).for_each(skipped);
    stderr.into_owned()
}

/// Runs `f` in a process whose goroutines keep their Ps for as long as they run: on a slow machine they would lose them to
/// others.
#[track_caller]
pub fn without_retakes(test: &str, f: impl FnOnce()) {
    if is_child() {
        f();
    } else {
        passes(test, &[("GMPDEBUG", "handoff=0")]);
    }
}

/// As `without_retakes`, and no M looks at the clock between goroutines: a visit that came by time would change their order.
#[track_caller]
pub fn in_order(test: &str, f: impl FnOnce()) {
    if is_child() {
        f();
    } else {
        passes(test, &[("GMPDEBUG", "handoff=0,helping=0")]);
    }
}

/// Makes the child the first process of a PID namespace of its own; the process in between ends as the child does.
pub fn as_init(command: &mut Command) -> io::Result<Output> {
    let enter = || {
        // SAFETY: this process has one thread, between fork and exec; all are system calls.
        unsafe {
            if libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) != 0 {
                return Err(io::Error::last_os_error());
            }
            let init = libc::fork();
            if init == 0 {
                return Ok(());
            }
            if init < 0 {
                return Err(io::Error::last_os_error());
            }
            // Closes the pipe on which the caller waits for the exec: this process never makes one.
            libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
            let mut status = 0;
            if libc::waitpid(init, &raw mut status, 0) != init {
                libc::_exit(99);
            }
            let is_exit = libc::WIFEXITED(status);
            libc::_exit(if is_exit { libc::WEXITSTATUS(status) } else { 100 + libc::WTERMSIG(status) })
        }
    };
    // SAFETY: the function may be called between fork and exec.
    unsafe { command.pre_exec(enter) }.output()
}
