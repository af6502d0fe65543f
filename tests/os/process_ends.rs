//! Ends of waits for children, and of the children, at bad moments.

use common::crew::everyone;
use common::mappings::{AllMappings, most_mappings};
use common::seccomp::{refuse, refuse_flags, refuse_while};
use common::{child, dumps, runtime, until, watched};
use gmp::Runtime;
use gmp::context::{Context, ContextError};
use gmp::process::{Child, Command, Stdio};
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// All pipes are ours, and it ends when its input does.
fn talking() -> Command {
    let mut command = shell("read line; echo out; echo err >&2; exit 3");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The children of this process, zombies too.
fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// The pipes, pidfds and sets of this process.
fn descriptors() -> usize {
    let all =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let kinds = ["pipe:", "pidfd", "eventpoll"];
    all.filter(|to| kinds.iter().any(|kind| to.to_string_lossy().contains(kind))).count()
}

fn until_waits(rt: &Runtime, count: usize) {
    until(|| dumps::read(&rt.dump()).iter().filter(|g| g.1.starts_with("IO wait")).count() >= count);
}

/// Fails by a hang: one of the two pipes is read by somebody who does not hear of the end.
#[test]
fn a_context_ends_the_reading_of_the_output() {
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            let mut child = talking().spawn().unwrap();
            let (pid, stdin) = (child.id(), child.stdin.take());
            let (context, cancel) = Context::background().with_cancel();
            let waits = rt.go(move || context.run(|| child.wait_with_output().unwrap_err()));
            until_waits(&rt, 1);
            cancel.cancel();
            let refused = waits.join().unwrap().expect("nothing is unwound");
            let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(inner, Some(&ContextError::Canceled), "{refused:?}");
            // The child lives on, and is reaped.
            assert!(fs::metadata(format!("/proc/{pid}")).is_ok());
            drop(stdin);
            until(|| fs::metadata(format!("/proc/{pid}")).is_err());
        });
    }
}

/// Fails by a hang, by a child that stays as a zombie, or by one that is not killed: its waiter is unwound, from outside or by
/// the end of its runtime.
#[test]
fn a_waiter_that_is_unwound_drops_its_child() {
    type Waits = fn(Child);
    let waits: [Waits; 2] = [|mut child| drop(child.wait()), |child| drop(child.wait_with_output())];
    for procs in [1, 4] {
        for (kills, waits) in [false, true].into_iter().flat_map(|kills| waits.map(|waits| (kills, waits))) {
            for ends_runtime in [false, true] {
                watched(procs, || {
                    let rt = runtime(procs);
                    let mut child = talking().kill_on_drop(kills).spawn().unwrap();
                    let (pid, stdin) = (child.id(), child.stdin.take());
                    let there = || fs::metadata(format!("/proc/{pid}")).is_ok();
                    let (waiter, abort) = rt.handle().go_abortable(move || waits(child)).unwrap();
                    until_waits(&rt, 1);
                    if ends_runtime {
                        let report = rt.shutdown(Duration::from_secs(60));
                        assert!(report.is_clean(), "{report:?}");
                    } else {
                        abort.abort();
                    }
                    // The end was an error for the wait, or has unwound it.
                    drop(waiter.join());
                    if !kills {
                        assert!(there());
                        drop(stdin);
                    }
                    until(|| !there());
                });
            }
        }
    }
}

/// Fails by a status that a second wait does not have, or by a kill that reaches whoever has the number now.
#[test]
fn a_second_wait_and_a_late_kill_are_answered() {
    everyone(|crew| {
        crew.run(|| {
            let mut child = shell("exit 5").spawn().unwrap();
            for _ in 0..3 {
                assert_eq!(child.wait().unwrap().code(), Some(5));
                assert_eq!(child.try_wait().unwrap().unwrap().code(), Some(5));
                child.kill().unwrap();
            }
            let mut child = talking().spawn().unwrap();
            child.kill().unwrap();
            child.kill().unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!((output.status.signal(), output.stdout), (Some(libc::SIGKILL), vec![]));
        });
    });
}

/// Fails by a child, a descriptor or a thread that stays where the table of descriptors is full in the middle of a start; by a
/// child without a pidfd for which nobody can wait; or by an error of another kind.
#[test]
fn a_start_that_finds_no_descriptor_leaves_nothing() {
    const NAME: &str = "a_start_that_finds_no_descriptor_leaves_nothing";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    let limit = |most: u64| {
        let mut now = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the limits live through the calls.
        unsafe {
            assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut now), 0);
            let before = std::mem::replace(&mut now.rlim_cur, most);
            assert_eq!(libc::setrlimit(libc::RLIMIT_NOFILE, &raw const now), 0);
            before
        }
    };
    for procs in [1, 4] {
        watched(procs, || {
            runtime(procs).run(move || {
                // What the process keeps for good is made.
                assert_eq!(talking().spawn().unwrap().wait_with_output().unwrap().status.code(), Some(3));
                until(|| children().is_empty());
                // The lowest number that is free, and none below it: all are in one piece from here on.
                let mut fills = Vec::new();
                let highest = fs::read_dir("/proc/self/fd")
                    .unwrap()
                    .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u64>().ok());
                let highest = highest.max().unwrap();
                while fills
                    .last()
                    .is_none_or(|file: &fs::File| (std::os::fd::AsRawFd::as_raw_fd(file) as u64) < highest)
                {
                    fills.push(fs::File::open("/dev/null").unwrap());
                }
                let first = std::os::fd::AsRawFd::as_raw_fd(fills.last().unwrap()) as u64 + 1;
                let before = descriptors();
                let (mut refused, mut started) = (0, 0);
                for free in 0..16 {
                    let most = limit(first + free);
                    let outcome = talking().spawn();
                    limit(most);
                    match outcome {
                        Err(error) => {
                            assert_eq!(error.raw_os_error(), Some(libc::EMFILE), "{free}: {error}");
                            refused += 1;
                        }
                        Ok(child) => {
                            let output = child.wait_with_output().unwrap();
                            assert_eq!(output.status.code(), Some(3), "{free}");
                            assert_eq!(
                                (&output.stdout[..], &output.stderr[..]),
                                (&b"out\n"[..], &b"err\n"[..])
                            );
                            started += 1;
                        }
                    }
                    until(|| children().is_empty());
                    until(|| descriptors() == before);
                }
                assert!(refused > 3 && started > 3, "{refused} refused, {started} started");
            });
        });
    }
}

/// Fails by a wait that takes a thread, and so is ended by no context: kernels before 5.10 know no flag of `pidfd_open(2)`.
#[test]
fn a_kernel_that_knows_no_flags_of_pidfds_has_waits_without_threads() {
    const NAME: &str = "a_kernel_that_knows_no_flags_of_pidfds_has_waits_without_threads";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert!(!said.contains("gmp: a child has no descriptor"), "{said}");
        return;
    }
    refuse_flags(libc::SYS_pidfd_open, 1, libc::EINVAL);
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            rt.go(|| {
                let mut child = talking().spawn().unwrap();
                let stdin = child.stdin.take();
                let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(30));
                let refused = context.run(|| child.wait().unwrap_err()).expect("nothing is unwound");
                let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
                assert_eq!(inner, Some(&ContextError::DeadlineExceeded), "{refused:?}");
                drop(stdin);
                assert_eq!(child.wait().unwrap().code(), Some(3));
            })
            .join()
            .unwrap();
            assert_eq!(rt.shutdown(Duration::from_secs(20)).refused().child_waits(), 0);
        });
    }
}

/// Fails by a hang: the wait for a child that was started while there was no descriptor, or no memory, for its pidfd takes a
/// thread, and is ended by no context, though there is one again.
#[test]
fn a_child_that_found_no_descriptor_asks_again() {
    const NAME: &str = "a_child_that_found_no_descriptor_asks_again";
    if !child::is_child() {
        for errno in [libc::EMFILE, libc::ENFILE, libc::ENOMEM] {
            let said = child::passes(NAME, &[("ERRNO", &errno.to_string())]);
            assert!(!said.contains("gmp: a child has no descriptor"), "{said}");
        }
        return;
    }
    let (is_short, errno) =
        (Arc::new(AtomicBool::new(false)), std::env::var("ERRNO").unwrap().parse().unwrap());
    let short = Arc::clone(&is_short);
    refuse_while([libc::SYS_pidfd_open; 2], errno, move || short.load(SeqCst));
    for procs in [1, 4] {
        let is_short = Arc::clone(&is_short);
        watched(procs, || {
            let rt = runtime(procs);
            rt.go(move || {
                let start = || {
                    is_short.store(true, SeqCst);
                    let child = talking().spawn().unwrap();
                    is_short.store(false, SeqCst);
                    child
                };
                let mut child = start();
                let stdin = child.stdin.take();
                let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(30));
                let refused = context.run(|| child.wait().unwrap_err()).expect("nothing is unwound");
                let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
                assert_eq!(inner, Some(&ContextError::DeadlineExceeded), "{refused:?}");
                drop(stdin);
                assert_eq!(child.wait().unwrap().code(), Some(3));
                drop(child);
                let before = descriptors();
                let calls: [fn(&mut Child); 2] =
                    [|child| assert!(child.try_wait().unwrap().is_none()), |child| child.kill().unwrap()];
                for call in calls {
                    let mut child = start();
                    assert_eq!(descriptors(), before + 3, "the pipes");
                    call(&mut child);
                    assert_eq!(descriptors(), before + 4, "and a pidfd");
                    drop(child);
                    until(|| children().is_empty() && descriptors() == before);
                }
            })
            .join()
            .unwrap();
            assert_eq!(rt.shutdown(Duration::from_secs(20)).refused().child_waits(), 0);
        });
    }
}

/// Fails by a hang, or by a refusal that is told where nothing was refused: a program that ignores the ends of its children has
/// none any more when they are asked for, and no status.
#[test]
fn a_child_that_is_gone_at_once_is_an_error_and_no_refusal() {
    const NAME: &str = "a_child_that_is_gone_at_once_is_an_error_and_no_refusal";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert!(!said.contains("gmp: a child has no descriptor"), "{said}");
        return;
    }
    // SAFETY: no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
    // As if each child had ended before it could be asked for.
    refuse(&[libc::SYS_pidfd_open], libc::ESRCH);
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            rt.go(|| {
                let mut child = shell("exit 0").stdin(Stdio::piped()).spawn().unwrap();
                let pid = child.id();
                until(|| fs::metadata(format!("/proc/{pid}")).is_err());
                assert_eq!(child.wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
                assert_eq!(child.wait().unwrap_err().raw_os_error(), Some(libc::ECHILD));
            })
            .join()
            .unwrap();
            assert_eq!(rt.shutdown(Duration::from_secs(20)).refused().child_waits(), 0);
        });
    }
}

/// Drops children while there is ever more room for the thread that is to wait for them.
fn drops_beside_few_mappings() {
    let Some(most) = most_mappings() else { return };
    let spawn = || {
        let mut child = talking().spawn().unwrap();
        (child.stdin.take(), child)
    };
    let (talk, children): (Vec<_>, Vec<_>) = (0..40).map(|_| spawn()).unzip();
    let (last_talk, last) = spawn();
    let pid = last.id();
    let mut full = AllMappings::begin(most);
    for child in children {
        drop(child);
        full.give_one_back();
    }
    drop(full);
    drop((last, talk, last_talk));
    until(|| fs::metadata(format!("/proc/{pid}")).is_err());
}

/// Fails by SIGABRT: std ends the process where the kernel refuses what std maps at the beginning of a thread.
#[test]
fn a_thread_that_waits_for_dropped_children_is_refused_where_there_are_too_few_mappings() {
    const NAME: &str = "a_thread_that_waits_for_dropped_children_is_refused_where_there_are_too_few_mappings";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(said.matches("they stay zombies: no room").count(), 1, "{said}");
        return;
    }
    drops_beside_few_mappings();
}

/// As above, where each child gets a thread of its own.
#[test]
fn a_thread_that_waits_for_one_dropped_child_is_refused_where_there_are_too_few_mappings() {
    const NAME: &str =
        "a_thread_that_waits_for_one_dropped_child_is_refused_where_there_are_too_few_mappings";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(said.matches("they stay zombies: no room").count(), 1, "{said}");
        return;
    }
    refuse(&[libc::SYS_pidfd_open], libc::ENOSYS);
    drops_beside_few_mappings();
}

/// Fails by a zombie or a descriptor that stays, or by a hang: children end, are killed and are dropped at the same moment.
#[test]
fn children_that_end_while_they_are_dropped_leave_nothing() {
    const CHILDREN: usize = 150;
    const NAME: &str = "children_that_end_while_they_are_dropped_leave_nothing";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            drop(rt.go(|| shell("exit 0").status().unwrap()).join());
            let before = descriptors();
            let all = (0..CHILDREN).map(|number| {
                rt.go(move || {
                    let mut child = shell("read line")
                        .stdin(Stdio::piped())
                        .kill_on_drop(number % 3 == 0)
                        .spawn()
                        .unwrap();
                    let mut stdin = child.stdin.take().unwrap();
                    let ends = gmp::go(move || {
                        if number % 5 != 0 {
                            // It may have been killed.
                            let _gone = stdin.write(b"\n");
                        }
                    });
                    if number % 2 == 0 {
                        child.kill().unwrap();
                    }
                    if number % 7 == 0 {
                        gmp::yield_now();
                    }
                    drop(child);
                    ends.join().unwrap();
                })
            });
            all.collect::<Vec<_>>().into_iter().for_each(|one| one.join().unwrap());
            until(|| children().is_empty());
            until(|| descriptors() == before);
        });
    }
}

/// Fails by a hang, or by an error that is not the limit's: a limit, or the end of a context, that comes while a child says
/// more and more, so that there is always something to read.
#[test]
fn who_reads_for_ever_can_be_stopped() {
    everyone(|crew| {
        crew.run(|| {
            for wait in [false, true] {
                let mut child = shell(if wait { "exec sleep 1000" } else { "yes >&2 & exec yes" });
                let child =
                    child.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
                let limit = std::time::Instant::now() + Duration::from_millis(30);
                child.stderr.as_ref().unwrap().set_read_deadline(Some(limit)).unwrap();
                assert_eq!(child.wait_with_output().unwrap_err().kind(), ErrorKind::TimedOut, "{wait}");
            }
            let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(30));
            let floods = || shell("yes >&2 & exec yes").kill_on_drop(true).output().unwrap_err();
            if let Ok(refused) = context.run(floods) {
                let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
                assert_eq!(inner, Some(&ContextError::DeadlineExceeded), "{refused:?}");
            }
        });
    });
}

/// Fails by bytes that are lost or by a hang: what a child says is more than its pipes take, and it is waited for first.
#[test]
fn a_child_that_says_more_than_a_pipe_takes_ends_when_it_is_read() {
    everyone(|crew| {
        crew.run(|| {
            let mut child =
                shell("head -c 1000000 /dev/zero; exit 4").stdout(Stdio::piped()).spawn().unwrap();
            let mut stdout = child.stdout.take().unwrap();
            let reads = std::thread::spawn(move || {
                let mut bytes = Vec::new();
                stdout.read_to_end(&mut bytes).unwrap();
                bytes.len()
            });
            assert_eq!(child.wait().unwrap().code(), Some(4));
            assert_eq!(gmp::blocking(|| reads.join().unwrap()), 1_000_000);
        });
    });
}
