//! Child processes when things go wrong, and when there are many.
//!
//! Properties: each of many children gets its own status, killed or not, and leaves no zombie, descriptor or thread; a wait
//! without a pidfd ends, and the operator is told once; a status that other code has taken is an error and no hang; the library
//! takes no status of other code's children; the builder's getters, `pre_exec`, `exec`, `arg0`, groups and cleared environments
//! are std's; a text with a NUL is refused, and so is a program that can't be run; a child's closed stdin is `BrokenPipe`.

use common::crew::everyone;
use common::seccomp::{SYS_POLL, precede, refuse};
use common::{child, runtime, until, watched};
use gmp::Runtime;
use gmp::process::{Child, Command, Stdio};
use gmp::signal::SIGTERM;
use std::ffi::OsStr;
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A child that ends when its standard input ends, with this code.
fn waiting(code: usize) -> Child {
    let mut command = shell(&format!("read line; exit {code}"));
    command.stdin(Stdio::piped()).spawn().unwrap()
}

/// Returns how many pipes and pidfds this process has.
fn descriptors() -> usize {
    let all =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    all.filter(|to| ["pipe:", "pidfd"].iter().any(|kind| to.to_string_lossy().contains(kind))).count()
}

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

/// Returns how many children this process has, with the zombies.
fn children() -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists.map(|list| list.split_whitespace().count()).sum()
}

/// Returns how many threads of this process are in one of these system calls.
fn in_calls(numbers: &[libc::c_long]) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let calls = tasks.filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok());
    let number = |call: String| call.split(' ').next().and_then(|number| number.parse().ok());
    calls.filter_map(number).filter(|number| numbers.contains(number)).count()
}

/// Fails by another child's status, by a zombie, when a descriptor stays open, or when there is a thread for each child.
#[test]
fn a_storm_of_children_leaves_nothing() {
    const CHILDREN: usize = 200;
    if !child::is_child() {
        child::passes("a_storm_of_children_leaves_nothing", &[]);
        return;
    }
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            // This makes the files that the process keeps for good.
            rt.go(|| shell("exit 0").status().unwrap()).join().unwrap();
            let before = descriptors();
            let threads = rt
                .go(|| {
                    let all = Vec::from_iter((0..CHILDREN).map(|number| (number, waiting(number % 100))));
                    let waits = Vec::from_iter(all.into_iter().map(|(number, mut child)| {
                        gmp::go(move || {
                            let killed = number % 2 == 0;
                            if killed {
                                child.kill().unwrap();
                            }
                            let stdin = child.stdin.take();
                            drop(stdin.filter(|_| !killed));
                            let status = child.wait().unwrap();
                            let expected =
                                if killed { (None, Some(9)) } else { (Some(number as i32 % 100), None) };
                            assert_eq!((status.code(), status.signal()), expected, "{number}");
                            assert_eq!(child.try_wait().unwrap(), Some(status));
                        })
                    }));
                    let threads = entries("/proc/self/task");
                    waits.into_iter().for_each(|wait| wait.join().unwrap());
                    threads
                })
                .join()
                .unwrap();
            assert_eq!(children(), 0);
            assert_eq!(descriptors(), before);
            assert!(threads < 50, "{threads} threads");
            assert!(rt.shutdown(Duration::from_secs(20)).refused().child_waits() == 0);
        });
    }
}

/// Fails by a hang, when a wait stalls other goroutines at one P, or when the operator is not told, or is told for each wait.
#[test]
fn without_pidfd_a_wait_takes_a_thread_and_the_operator_is_told_once() {
    const NAME: &str = "without_pidfd_a_wait_takes_a_thread_and_the_operator_is_told_once";
    const CHILDREN: usize = 5;
    if !child::is_child() {
        for errno in [libc::ENOSYS, libc::EPERM] {
            let said = child::passes(NAME, &[("ERRNO", &errno.to_string())]);
            assert_eq!(said.matches("gmp: a child has no descriptor").count(), 2, "once a runtime: {said}");
        }
        return;
    }
    let errno = std::env::var("ERRNO").unwrap().parse().unwrap();
    refuse(&[libc::SYS_pidfd_open, libc::SYS_pidfd_send_signal], errno);
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            rt.go(|| {
                let all = Vec::from_iter((0..CHILDREN).map(waiting));
                let (pipes, waits): (Vec<_>, Vec<_>) = all
                    .into_iter()
                    .map(|mut child| (child.stdin.take(), gmp::go(move || child.wait().unwrap().code())))
                    .unzip();
                // The goroutines wait before a child has ended.
                until(|| in_calls(&[libc::SYS_wait4, libc::SYS_waitid]) == CHILDREN);
                drop(pipes);
                let codes = Vec::from_iter(waits.into_iter().map(|wait| wait.join().unwrap().unwrap()));
                assert_eq!(codes, [0, 1, 2, 3, 4]);
                let mut killed = waiting(0);
                killed.kill().unwrap();
                let stdin = killed.stdin.take();
                assert_eq!(killed.wait().unwrap().signal(), Some(9));
                // No signal is sent: the number may be another process's.
                killed.signal(SIGTERM).unwrap();
                drop(stdin);
                drop(shell("exit 0").spawn().unwrap());
            })
            .join()
            .unwrap();
            until(|| children() == 0);
            // A plain thread waits without a pidfd, which is no refusal.
            assert!(shell("exit 0").status().unwrap().success());
            let refused = rt.shutdown(Duration::from_secs(20)).refused();
            // The killed child may have ended before the wait for it.
            assert!((CHILDREN as u64..=CHILDREN as u64 + 1).contains(&refused.child_waits()), "{refused:?}");
        });
    }
}

/// Fails by a hang, or by an error that does not say that the status is gone.
#[test]
fn a_status_that_was_taken_elsewhere_is_an_error() {
    const NAME: &str = "a_status_that_was_taken_elsewhere_is_an_error";
    if !child::is_child() {
        for what in ["thread", "ignored"] {
            for pidfd in ["1", "0"] {
                child::passes(NAME, &[("WHO", what), ("PIDFD", pidfd)]);
            }
        }
        return;
    }
    if std::env::var("PIDFD").unwrap() == "0" {
        refuse(&[libc::SYS_pidfd_open], libc::ENOSYS);
    }
    let theirs = std::env::var("WHO").unwrap() == "thread";
    if !theirs {
        // SAFETY: no handler.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    }
    for procs in [1, 4] {
        watched(procs, || {
            runtime(procs).run(move || {
                let mut first = waiting(3);
                let mut second = waiting(4);
                let (one, other) = (first.stdin.take(), second.stdin.take());
                let pids = [first.id(), second.id()];
                let reaps = theirs.then(|| {
                    drop((one, other));
                    // Both children have ended, and no call has waited for them, when the other library's loop begins.
                    let zombie = |&pid: &u32| {
                        fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") Z ")
                    };
                    until(|| pids.iter().all(zombie));
                    thread::spawn(|| {
                        let mut reaped = 0;
                        // SAFETY: no pointers but null.
                        while unsafe { libc::waitpid(-1, std::ptr::null_mut(), 0) } > 0 {
                            reaped += 1;
                        }
                        reaped
                    })
                });
                if let Some(reaps) = reaps {
                    assert_eq!(reaps.join().unwrap(), 2);
                }
                for mut child in [first, second] {
                    let gone = child.wait().unwrap_err();
                    assert_eq!(gone.raw_os_error(), Some(libc::ECHILD), "{gone}");
                    assert_eq!(child.try_wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
                    if std::env::var("PIDFD").unwrap() == "1" {
                        child.kill().unwrap();
                    }
                }
            });
        });
    }
}

/// Fails when another library's handler is not called, or when the status of its child is lost.
#[test]
fn handlers_and_children_of_others_are_left_alone() {
    const NAME: &str = "handlers_and_children_of_others_are_left_alone";
    static CALLS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn counts(_signal: libc::c_int) {
        CALLS.fetch_add(1, SeqCst);
    }
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    let handler = counts as *const () as libc::sighandler_t;
    // SAFETY: the handler does only what a handler may do.
    unsafe { libc::signal(libc::SIGCHLD, handler) };
    for procs in [1, 4] {
        watched(procs, || {
            runtime(procs).run(move || {
                let theirs: Vec<_> = (0..4)
                    .map(|code| {
                        std::process::Command::new("sh")
                            .args(["-c", &format!("exit {code}")])
                            .spawn()
                            .unwrap()
                    })
                    .collect();
                let before = CALLS.load(SeqCst);
                for code in 0..10 {
                    assert_eq!(shell(&format!("exit {code}")).status().unwrap().code(), Some(code));
                }
                drop(shell("exit 0").spawn().unwrap());
                until(|| CALLS.load(SeqCst) > before);
                for (code, mut child) in theirs.into_iter().enumerate() {
                    assert_eq!(child.wait().unwrap().code(), Some(code as i32));
                }
                // SAFETY: it reads the action.
                let now = unsafe { libc::signal(libc::SIGCHLD, handler) };
                assert_eq!(now, handler);
            });
        });
    }
}

/// Fails by an error of the wrong kind.
#[test]
fn what_cannot_be_started_is_an_error() {
    everyone(|crew| {
        crew.run(|| {
            let kind = |mut command: Command| command.spawn().unwrap_err().kind();
            assert_eq!(kind(Command::new("/no/such/program")), ErrorKind::NotFound);
            assert_eq!(kind(Command::new("no-such-program-in-the-path")), ErrorKind::NotFound);
            assert_eq!(kind(Command::new("")), ErrorKind::NotFound);
            assert_eq!(kind(Command::new("/etc/passwd")), ErrorKind::PermissionDenied);
            assert_eq!(kind(Command::new("a\0b")), ErrorKind::InvalidInput);
            let with = |change: &dyn Fn(&mut Command)| {
                let mut command = Command::new("true");
                change(&mut command);
                kind(command)
            };
            assert_eq!(
                with(&|command| {
                    command.arg("a\0b");
                }),
                ErrorKind::InvalidInput
            );
            assert_eq!(
                with(&|command| {
                    command.env("a\0b", "c");
                }),
                ErrorKind::InvalidInput
            );
            assert_eq!(
                with(&|command| {
                    command.env("a", "b\0c");
                }),
                ErrorKind::InvalidInput
            );
            assert_eq!(
                with(&|command| {
                    command.current_dir("a\0b");
                }),
                ErrorKind::InvalidInput
            );
            assert_eq!(
                with(&|command| {
                    command.current_dir("/no/such/place");
                }),
                ErrorKind::NotFound
            );
            assert_eq!(Command::new("/no/such/program").exec().kind(), ErrorKind::NotFound);
            assert_eq!(Command::new("/no/such/program").output().unwrap_err().kind(), ErrorKind::NotFound);
            let mut refuses = Command::new("true");
            // SAFETY: the function returns an error, and does nothing else.
            unsafe { refuses.pre_exec(|| Err(std::io::Error::from_raw_os_error(libc::EDOM))) };
            assert_eq!(refuses.spawn().unwrap_err().raw_os_error(), Some(libc::EDOM));
        });
    });
}

/// Fails when a setting is lost, or a getter does not return it.
#[test]
fn the_builder_is_std_s() {
    everyone(|crew| {
        crew.run(|| {
            let mut command = Command::new("sh");
            command.args(["-c", "echo $0; pwd; env"]).env("ONE", "1").env_remove("TWO").current_dir("/");
            assert_eq!(command.get_program(), "sh");
            assert_eq!(command.get_args().collect::<Vec<_>>(), ["-c", "echo $0; pwd; env"]);
            let envs = command.get_envs().collect::<Vec<_>>();
            assert_eq!(envs, [(OsStr::new("ONE"), Some(OsStr::new("1"))), (OsStr::new("TWO"), None)]);
            assert_eq!(command.get_current_dir(), Some(Path::new("/")));
            assert!(format!("{command:?}").contains("sh"));
            command.env_clear().env("THREE", "3").arg0("other-name");
            let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
            assert!(text.contains("THREE=3") && !text.contains("ONE=") && !text.contains("HOME="), "{text}");
            // Uses the builder again.
            assert_eq!(String::from_utf8(command.output().unwrap().stdout).unwrap(), text);
            let named = Command::new("sh")
                .arg0("other-name")
                .args(["-c", "tr '\\0' ' ' < /proc/$$/cmdline"])
                .output();
            assert!(named.unwrap().stdout.starts_with(b"other-name "));
            let mut grouped = shell("read line");
            let mut grouped = grouped.process_group(0).stdin(Stdio::piped()).spawn().unwrap();
            // SAFETY: no pointers.
            assert_eq!(unsafe { libc::getpgid(grouped.id() as i32) }, grouped.id() as i32);
            assert!(grouped.try_wait().unwrap().is_none());
            assert_eq!(grouped.wait().unwrap().code(), Some(1));
            let mut prepared = shell("exit $(umask | cut -c 4)");
            // SAFETY: one system call.
            unsafe {
                prepared.pre_exec(|| {
                    libc::umask(0o007);
                    Ok(())
                })
            };
            assert_eq!(prepared.status().unwrap().code(), Some(7));
        });
    });
}

/// How often the handler of SIGPIPE was called.
static PIPE_CALLS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn counts(_signal: libc::c_int) {
    PIPE_CALLS.fetch_add(1, SeqCst);
}

/// SIGPIPE is ignored, then it has a handler, then its default action. A write to a pipe raises the signal, as with std, so
/// only sockets are tried with the default action. Fails by the end of this process, when a write succeeds, or when a write to
/// a socket raises the signal.
#[test]
fn a_write_to_a_closed_peer_is_an_error_whatever_the_signal_does() {
    const NAME: &str = "a_write_to_a_closed_peer_is_an_error_whatever_the_signal_does";
    let to_sockets = || {
        let (tcp, other) = common::loopback::pair();
        drop(other);
        let (unix, other) = gmp::net::UnixStream::pair().unwrap();
        drop(other);
        let mut error = None;
        // The first write may succeed, and the peer then answers by a reset.
        until(|| {
            error = (&tcp).write(b"anybody?").err();
            error.is_some()
        });
        assert!(matches!(error.unwrap().kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset));
        assert_eq!((&tcp).write(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
        assert_eq!((&unix).write(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
    };
    let to_pipes = || {
        let mut child = shell("exec <&-; echo; read line <&1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        assert!(child.wait().is_ok());
        assert_eq!(stdin.write(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
        let (reader, mut writer) = gmp::io::pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write(b"anybody?").unwrap_err().kind(), ErrorKind::BrokenPipe);
    };
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    let handler = counts as extern "C" fn(libc::c_int) as libc::sighandler_t;
    for procs in [1, 4] {
        // The signals that the two writes to pipes raise.
        for (action, signals) in [(libc::SIG_IGN, Some(0)), (handler, Some(2)), (libc::SIG_DFL, None)] {
            // SAFETY: the handler adds to an atomic, and nothing else in this process relies on the action.
            unsafe { libc::signal(libc::SIGPIPE, action) };
            watched(procs, || {
                runtime(procs).run(|| {
                    to_sockets();
                    assert_eq!(PIPE_CALLS.load(SeqCst), 0);
                    if let Some(signals) = signals {
                        to_pipes();
                        assert_eq!(PIPE_CALLS.swap(0, SeqCst), signals);
                    }
                });
            });
        }
    }
}

/// Fails by an error when the reading of both streams needs another goroutine, for which there is no stack, or when it takes a
/// thread.
#[test]
fn reading_the_output_takes_no_goroutine_and_no_thread() {
    const NAME: &str = "reading_the_output_takes_no_goroutine_and_no_thread";
    const STACK: usize = 256 << 10;
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    for procs in [1, 4] {
        let builder = Runtime::builder().procs(procs).stack_size(STACK).max_stack_bytes(STACK);
        // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
        let rt = unsafe { builder.build() }.unwrap();
        rt.run(|| {
            let mut child = shell("read line; echo out; echo err >&2")
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let stdin = child.stdin.take();
            let before = entries("/proc/self/task");
            let ends = thread::spawn(move || {
                until(|| common::dumps::read(&gmp::dump()).iter().any(|g| g.1.starts_with("IO wait")));
                let most = entries("/proc/self/task");
                drop(stdin);
                most
            });
            let output = child.wait_with_output().unwrap();
            assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
            assert!(ends.join().unwrap() <= before + 1);
        });
    }
}

/// Fails when the operator is not told, or is told more than once; or when a zombie stays although threads can be started
/// again.
#[test]
fn without_a_reaper_the_operator_is_told_once() {
    const NAME: &str = "without_a_reaper_the_operator_is_told_once";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(
            said.matches("gmp: no thread can be started that waits for dropped child").count(),
            1,
            "{said}"
        );
        return;
    }
    let limit = |most| {
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limits live through the calls.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now), 0);
            let before = now.rlim_cur;
            now.rlim_cur = most;
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now), 0);
            before
        }
    };
    // The reaper gets no eventfd.
    let [first, second, third] = [1, 2, 3].map(waiting);
    let before = limit(0);
    drop(first);
    drop(second);
    limit(before);
    // The dropped children end when their pipes are closed, and stay zombies, as no thread waits for them.
    assert_eq!(children(), 3);
    drop(third);
    until(|| children() == 0);
}

/// Fails when the thread that waits for dropped children asks for all of them each time that one more comes: a thousand would
/// cost half a million calls.
#[test]
fn dropped_children_are_not_asked_before_their_end_is_reported() {
    const NAME: &str = "dropped_children_are_not_asked_before_their_end_is_reported";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    precede(libc::SYS_waitid, || {
        ASKED.fetch_add(1, SeqCst);
    });
    let mut inputs = Vec::new();
    for count in 1..=20 {
        let mut child = waiting(0);
        inputs.push(child.stdin.take());
        drop(child);
        // The thread waits for all of them, and for its eventfd.
        until(|| is_polled(count + 1));
    }
    let asked = ASKED.load(SeqCst);
    assert!(asked <= 40, "{asked}");
    drop(inputs);
    until(|| children() == 0);
}

/// Returns `true` if a thread of this process is in `poll(2)` for so many descriptors.
fn is_polled(count: usize) -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let mut calls = tasks.filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok());
    let polls = |call: &str| {
        let mut words = call.split(' ');
        words.next() == Some(&SYS_POLL.to_string()) && words.nth(1) == Some(&format!("{count:#x}"))
    };
    calls.any(|call| polls(&call))
}

/// Fails when the call changes the mask or the ignored signals: then a write to a broken pipe would end the process.
#[test]
fn an_exec_that_fails_leaves_the_signals_as_they_are() {
    if child::is_child() {
        let signals = || {
            let status = fs::read_to_string("/proc/thread-self/status").unwrap();
            let of_interest = |line: &&str| line.starts_with("SigBlk:") || line.starts_with("SigIgn:");
            status.lines().filter(of_interest).map(str::to_owned).collect::<Vec<_>>()
        };
        // SAFETY: a set of one signal, for this thread.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::sigaddset(&raw mut set, libc::SIGUSR2);
            assert_eq!(libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()), 0);
        }
        let before = signals();
        assert_eq!(Command::new("/no/such/program").exec().kind(), ErrorKind::NotFound);
        assert_eq!(signals(), before);
        let (reader, mut writer) = gmp::io::pipe().unwrap();
        drop(reader);
        assert_eq!(writer.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
        return;
    }
    child::passes("an_exec_that_fails_leaves_the_signals_as_they_are", &[]);
}

/// std sets SIGPIPE's default action for all threads while execvp(3) looks for the program. Fails by SIGPIPE, which ends the
/// process, or when a child of the same builder has another action than the default one.
#[test]
fn a_write_to_a_broken_pipe_beside_an_exec_is_an_error() {
    static REFUSES: AtomicBool = AtomicBool::new(true);
    const NAME: &str = "a_write_to_a_broken_pipe_beside_an_exec_is_an_error";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    let mut command = Command::new("cat");
    command.arg("/proc/self/status");
    let refuses = || if REFUSES.load(SeqCst) { Err(ErrorKind::Unsupported.into()) } else { Ok(()) };
    // SAFETY: it reads an atomic.
    unsafe { command.pre_exec(refuses) };
    let _refused = command.exec();
    REFUSES.store(false, SeqCst);
    let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
    for set in ["SigIgn:", "SigCgt:"] {
        let line = said.lines().find_map(|line| line.strip_prefix(set)).unwrap();
        let set = u64::from_str_radix(line.trim(), 16).unwrap();
        assert_eq!(set & 1 << (libc::SIGPIPE - 1), 0, "{said}");
    }

    let (reader, mut writer) = gmp::io::pipe().unwrap();
    drop(reader);
    let (tells, told) = channel();
    precede(libc::SYS_execve, move || tells.send(writer.write(b"x").unwrap_err().kind()).unwrap());
    let mut command = Command::new("/no/such/program");
    for _ in 0..3 {
        assert_eq!(command.exec().kind(), ErrorKind::NotFound);
        assert_eq!(told.try_recv(), Ok(ErrorKind::BrokenPipe));
    }
}
