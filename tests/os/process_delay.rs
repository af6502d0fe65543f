//! The output of a child whose pipes another process keeps open: `Command::wait_delay`.
//!
//! Properties: a delay of zero ends the reading with the child, whoever has the pipes, and misses nothing that the child has
//! written; a longer delay has what the others write in it; a context and the limits of the pipes still end the reading; where
//! all pipes end, or there is no pidfd, the delay changes nothing.

use common::{child, dumps, runtime, until, watched};
use gmp::Runtime;
use gmp::context::{Context, ContextError};
use gmp::process::{Child, Command, Output, Stdio};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A child with a child of its own, which has the pipes, and writes `late` once `other` is closed, and ends. The child itself
/// runs `script`.
fn with_another(script: &str) -> (Command, gmp::io::PipeWriter) {
    let (input, other) = gmp::io::pipe().unwrap();
    let mut command = shell(&format!("exec 9<&0; {{ cat; echo late; }} <&9 & {script}"));
    command.stdin(input);
    (command, other)
}

/// The child has ended, and no call has waited for it.
fn until_ended(child: &Child) {
    let stat = format!("/proc/{}/stat", child.id());
    until(|| fs::read_to_string(&stat).unwrap().rsplit(") ").next().unwrap().starts_with('Z'));
}

fn until_waits(rt: &Runtime) {
    until(|| dumps::read(&rt.dump()).iter().any(|g| g.1.starts_with("IO wait")));
}

/// Returns the code and the lengths of both outputs.
fn told(output: &Output) -> (Option<i32>, usize, usize) {
    (output.status.code(), output.stdout.len(), output.stderr.len())
}

/// Fails by a hang when the reading goes on as long as the other process has the pipes, and when the last bytes of the child
/// are not read.
#[test]
fn a_delay_of_zero_reads_what_the_child_has_written() {
    // More than a pipe has room for, so the child ends while it is read.
    const SCRIPT: &str = "head -c 300000 /dev/zero; head -c 100000 /dev/zero >&2; exit 3";
    for procs in [1, 4] {
        watched(procs, || {
            let (mut command, other) = with_another(SCRIPT);
            let rt = runtime(procs);
            let output = rt.go(move || command.wait_delay(Duration::ZERO).output().unwrap()).join().unwrap();
            assert_eq!(told(&output), (Some(3), 300_000, 100_000));
            drop(other);
        });
    }
    // On a plain thread.
    watched(1, || {
        let (mut command, other) = with_another(SCRIPT);
        assert_eq!(told(&command.wait_delay(Duration::ZERO).output().unwrap()), (Some(3), 300_000, 100_000));
        drop(other);
    });
}

/// Fails when bytes are lost that lie in the pipe when the child has ended and the time is over, but need several reads.
#[test]
fn what_a_long_pipe_holds_at_the_end_is_read() {
    const LEN: usize = 1 << 20;
    watched(1, || {
        let (mut command, other) = with_another(&format!("read line <&3; head -c {LEN} /dev/zero; exit 4"));
        let (go_on, mut tell) = std::io::pipe().unwrap();
        // The child's descriptor 3.
        let at = go_on.as_raw_fd();
        // SAFETY: the function makes one system call.
        unsafe {
            command.pre_exec(move || match libc::dup2(at, 3) {
                3 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            })
        };
        let child = command.wait_delay(Duration::ZERO).spawn().unwrap();
        let stdout = child.stdout.as_ref().unwrap().as_raw_fd();
        // SAFETY: no pointers.
        assert!(unsafe { libc::fcntl(stdout, libc::F_SETPIPE_SZ, LEN) } >= LEN as i32);
        tell.write_all(b"\n").unwrap();
        until_ended(&child);
        let rt = runtime(1);
        let output = rt.go(move || child.wait_with_output().unwrap()).join().unwrap();
        assert_eq!(told(&output), (Some(4), LEN, 0));
        drop(other);
    });
}

/// Fails when the output ends with the child, or without the last words of the other process, or only after the hour.
#[test]
fn a_long_delay_has_what_others_write_in_it() {
    for procs in [1, 4] {
        watched(procs, || {
            let (mut command, other) = with_another("echo early; exit 5");
            let rt = runtime(procs);
            let child = command.wait_delay(HOUR).spawn().unwrap();
            let pid = child.id();
            let waits = rt.go(move || child.wait_with_output().unwrap());
            until(|| fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z"));
            until_waits(&rt);
            assert!(!waits.is_finished());
            drop(other);
            let output = waits.join().unwrap();
            assert_eq!((output.status.code(), &output.stdout[..]), (Some(5), &b"early\nlate\n"[..]));
        });
    }
}

/// Fails when one stream alone is read to its end.
#[test]
fn one_pipe_alone_has_the_delay_too() {
    watched(1, || {
        let (mut command, other) = with_another("echo out; echo err >&2; exit 6");
        command.stderr(Stdio::null()).wait_delay(Duration::ZERO);
        assert_eq!(told(&command.output().unwrap()), (Some(6), 4, 0));
        let (mut command, other_too) = with_another("echo out; echo err >&2; exit 7");
        command.stdout(Stdio::null()).wait_delay(Duration::ZERO);
        assert_eq!(told(&command.output().unwrap()), (Some(7), 0, 4));
        drop((other, other_too));
    });
}

/// Fails when the reading goes on after the end of the context, or loses a limit of the pipes.
#[test]
fn contexts_and_limits_end_the_delay() {
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            let (mut command, other) = with_another("exit 0");
            let child = command.wait_delay(HOUR).spawn().unwrap();
            until_ended(&child);
            let (context, cancel) = Context::background().with_cancel();
            let waits = rt.go(move || context.run(|| child.wait_with_output().unwrap_err()));
            until_waits(&rt);
            cancel.cancel();
            let refused = waits.join().unwrap().expect("nothing is unwound");
            assert_eq!(ContextError::of(&refused), Some(ContextError::Canceled), "{refused:?}");

            let child = command.stdin(Stdio::null()).spawn().unwrap();
            child.stdout.as_ref().unwrap().set_deadline(Some(Instant::now())).unwrap();
            let late = rt.go(move || child.wait_with_output().unwrap_err()).join().unwrap();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
            drop(other);
        });
    }
}

/// Fails by a hang, or by another output, when a child has ended before the call, or its pipes have ended before it has.
#[test]
fn without_others_the_delay_changes_nothing() {
    watched(1, || {
        for delay in [Duration::ZERO, HOUR, Duration::MAX] {
            let output = shell("echo out; echo err >&2; exit 8").wait_delay(delay).output().unwrap();
            assert_eq!(told(&output), (Some(8), 4, 4));
            let child = shell("echo out; exit 9").wait_delay(delay).spawn().unwrap();
            until_ended(&child);
            assert_eq!(told(&child.wait_with_output().unwrap()), (Some(9), 4, 0));
            let closes = shell("exec >&- 2>&-; exec sleep 0.01").wait_delay(delay).output().unwrap();
            assert_eq!(told(&closes), (Some(0), 0, 0));
        }
    });
}

/// Fails when a child without a pidfd is not read to the end of its pipes.
#[test]
fn without_a_pidfd_the_pipes_are_read_to_their_ends() {
    if !child::is_child() {
        child::passes("without_a_pidfd_the_pipes_are_read_to_their_ends", &[]);
        return;
    }
    common::seccomp::refuse(&[libc::SYS_pidfd_open], libc::ENOSYS);
    watched(1, || {
        let output = shell("(sleep 0.05; echo late) & exit 3").wait_delay(Duration::ZERO).output().unwrap();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"late\n"[..]));
    });
}
