//! Child processes.

use common::crew::{each, everyone, join_all};
use common::{child, until};
use gmp::context::{Context, ContextError};
use gmp::process::{Command, Stdio};
use gmp::signal::{SIGTERM, SIGUSR1, Signal};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A child that ends when its standard input ends.
fn waiting() -> Command {
    let mut command = Command::new("cat");
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    command
}

/// Returns the state of a process, as `ps` shows it; `None` if the process is gone.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat[stat.rfind(')')? + 2..].chars().next()
}

/// Fails when a status, an argument, a variable or a stream is not the child's.
#[test]
fn a_child_is_what_the_builder_says() {
    everyone(|crew| {
        crew.run(|| {
            assert!(shell("exit 0").status().unwrap().success());
            assert_eq!(shell("exit 7").status().unwrap().code(), Some(7));
            assert_eq!(shell("kill -9 $$").status().unwrap().signal(), Some(9));
            let output = shell("pwd; echo $ONE $TWO $THREE; echo wrong >&2; cat")
                .env("ONE", "1")
                .envs([("TWO", "2"), ("THREE", "3")])
                .env_remove("THREE")
                .current_dir("/")
                .output()
                .unwrap();
            assert_eq!(String::from_utf8(output.stdout).unwrap(), "/\n1 2\n");
            assert_eq!(output.stderr, b"wrong\n");
            assert!(output.status.success());
            let missing = Command::new("/no/such/program").spawn().unwrap_err();
            assert_eq!(missing.kind(), ErrorKind::NotFound);
        });
    });
}

/// Each of the two pipes is full long before the other is read. Fails by a hang.
#[test]
fn output_of_both_streams_is_read_at_once() {
    everyone(|crew| {
        crew.run(|| {
            let both = "head -c 300000 /dev/zero >&2; head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2";
            let output = shell(both).output().unwrap();
            assert_eq!((output.stdout.len(), output.stderr.len()), (300_000, 600_000));
        });
    });
}

/// Fails by a hang at one P, or when there is a thread for each child.
#[test]
fn waiting_for_children_takes_no_threads() {
    const CHILDREN: usize = 20;
    let threads = || fs::read_dir("/proc/self/task").unwrap().count();
    if child::is_child() {
        let rt = common::runtime(1);
        // Starts one child after the other: a start may take a thread, which stays for a while.
        let (pipes, waits): (Vec<_>, Vec<_>) = (0..CHILDREN)
            .map(|_| {
                let starts = rt.go(|| {
                    let mut child = waiting().spawn().unwrap();
                    let stdin = child.stdin.take().unwrap();
                    (stdin, gmp::go(move || child.wait().unwrap()))
                });
                starts.join().unwrap()
            })
            .unzip();
        until(|| {
            let dump = rt.dump();
            common::dumps::read(&dump).iter().filter(|g| g.1.starts_with("IO wait")).count() == CHILDREN
        });
        let many = threads();
        drop(pipes);
        assert!(waits.into_iter().all(|wait| rt.go(move || wait.join()).join().unwrap().unwrap().success()));
        assert!(many < CHILDREN, "{many} threads");
        return;
    }
    child::passes("waiting_for_children_takes_no_threads", &[]);
}

/// Fails when a wait does not end with its context, or when a later wait gets no answer.
#[test]
fn a_context_ends_the_wait_and_not_the_child() {
    everyone(|crew| {
        let mut child = waiting().spawn().unwrap();
        let stdin = child.stdin.take().unwrap();
        let (context, cancel) = Context::background().with_cancel();
        let wait = crew.go(move || {
            let refused = context.run(|| child.wait().unwrap_err()).expect("nothing is unwound");
            (child, refused)
        });
        wait.until_it_waits();
        cancel.cancel();
        let (mut child, refused) = wait.join();
        let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
        assert_eq!(inner, Some(&ContextError::Canceled), "{refused:?}");
        assert!(child.try_wait().unwrap().is_none());
        drop(stdin);
        assert!(crew.run(move || child.wait()).unwrap().success());
    });
}

/// Fails when a zombie stays, or when the drop has ended a child.
#[test]
fn a_dropped_child_is_reaped_when_it_ends() {
    everyone(|crew| {
        let started = each(crew, 3, |_| {
            let mut child = waiting().spawn().unwrap();
            (child.stdin.take().unwrap(), child.id())
        });
        for (stdin, pid) in join_all(started) {
            assert!(matches!(state(pid), Some('R' | 'S' | 'D')), "{:?}", state(pid));
            drop(stdin);
            until(|| state(pid).is_none());
        }
        let ended = crew.run(|| {
            let child = shell("exit 0").spawn().unwrap();
            child.id()
        });
        until(|| state(ended).is_none());
    });
}

/// Fails when a child stays alive.
#[test]
fn a_child_may_be_killed() {
    everyone(|crew| {
        let (pid, stdin) = crew.run(|| {
            let mut child = waiting().kill_on_drop(true).spawn().unwrap();
            (child.id(), child.stdin.take())
        });
        until(|| state(pid).is_none());
        drop(stdin);
        crew.run(|| {
            let mut child = waiting().spawn().unwrap();
            child.kill().unwrap();
            let pipe = child.stdin.take();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
            child.kill().unwrap();
            assert_eq!(child.try_wait().unwrap().unwrap().signal(), Some(libc::SIGKILL));
            drop(pipe);
        });
    });
}

/// Fails when a signal does not come, or is the wrong one; by an error when the child has ended, or when a number that is no
/// signal's is accepted.
#[test]
fn a_child_may_be_sent_a_signal() {
    everyone(|crew| {
        crew.run(|| {
            let mut child = shell("trap 'exit 7' TERM; echo ready; read line; exit 1");
            let mut child = child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (stdin, mut stdout) = (child.stdin.take(), child.stdout.take().unwrap());
            stdout.read_exact(&mut [0; 6]).unwrap();
            assert_eq!(child.signal(Signal::from(1_000)).unwrap_err().raw_os_error(), Some(libc::EINVAL));
            child.signal(Signal::from(0)).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "ended by a signal that there is none of");
            child.signal(SIGTERM).unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(7));
            drop(stdin);
            child.signal(SIGTERM).unwrap();
            let mut child = waiting().spawn().unwrap();
            let stdin = child.stdin.take();
            child.signal(SIGUSR1).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGUSR1));
            drop(stdin);
        });
    });
}

/// Fails when the library reaps a child of std.
#[test]
fn children_of_others_stay_theirs() {
    everyone(|crew| {
        crew.run(|| {
            let mut theirs = std::process::Command::new("sh").args(["-c", "exit 3"]).spawn().unwrap();
            drop(shell("exit 0").spawn().unwrap());
            assert!(shell("exit 0").status().unwrap().success());
            assert_eq!(theirs.wait().unwrap().code(), Some(3));
        });
    });
}

/// Fails when a limit does not end a read, or when the read that it ends loses bytes.
#[test]
fn the_pipes_of_a_child_have_limits() {
    everyone(|crew| {
        crew.run(|| {
            let mut child = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            output.set_read_timeout(Some(Duration::from_millis(2))).unwrap();
            assert_eq!(output.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::TimedOut);
            output.set_read_timeout(None).unwrap();
            input.write_all(b"hello").unwrap();
            input.close().unwrap();
            let mut text = String::new();
            output.read_to_string(&mut text).unwrap();
            assert_eq!(text, "hello");
            assert!(child.wait().unwrap().success());
        });
    });
}

/// Fails when a child gets EAGAIN although it expects to wait, when a byte is lost between two children, or when an end stays
/// open in this process.
#[test]
fn an_end_of_a_pipe_is_a_childs_stream() {
    everyone(|crew| {
        crew.run(|| {
            // The second child waits for the first, which writes late.
            let late = ["-c", "sleep 0.05; echo hello; echo world >&2"];
            let mut first =
                Command::new("sh").args(late).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let [out, err] = [first.stdout.take().unwrap().into(), first.stderr.take().unwrap().into()];
            let shouts =
                |input: Stdio| Command::new("tr").args(["a-z", "A-Z"]).stdin(input).output().unwrap();
            assert_eq!(shouts(out).stdout, b"HELLO\n");
            assert_eq!(shouts(err).stdout, b"WORLD\n");
            assert!(first.wait().unwrap().success());

            let (mut reader, writer) = gmp::io::pipe().unwrap();
            let echo = Command::new("echo").arg("to a pipe").stdout(writer).spawn();
            let mut text = String::new();
            reader.read_to_string(&mut text).unwrap();
            assert_eq!(text, "to a pipe\n");
            assert!(echo.unwrap().wait().unwrap().success());

            let (reader, mut writer) = gmp::io::pipe().unwrap();
            let child = Command::new("cat").stdin(reader).stdout(Stdio::piped()).spawn().unwrap();
            writer.write_all(b"from a pipe").unwrap();
            drop(writer);
            assert_eq!(child.wait_with_output().unwrap().stdout, b"from a pipe");

            let mut last = Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let input = last.stdin.take().unwrap();
            assert!(Command::new("echo").arg("through").stdout(input).status().unwrap().success());
            assert_eq!(last.wait_with_output().unwrap().stdout, b"through\n");
        });
    });
}
