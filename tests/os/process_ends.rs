//! Waits for children, and children, that end at bad moments.

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
use std::time::{Duration, Instant};

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// A child whose three streams are pipes to this process, and which ends when its input ends.
fn talking() -> Command {
    let mut command = shell("read line; echo out; echo err >&2; exit 3");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the children of this process, with the zombies.
fn children() -> Vec<u32> {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Returns how many pipes, pidfds and epoll sets this process has.
fn descriptors() -> usize {
    let all =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    let kinds = ["pipe:", "pidfd", "eventpoll"];
    all.filter(|to| kinds.iter().any(|kind| to.to_string_lossy().contains(kind))).count()
}

fn until_waits(rt: &Runtime, count: usize) {
    until(|| dumps::read(&rt.dump()).iter().filter(|g| g.1.starts_with("IO wait")).count() >= count);
}

/// Fails by a hang when the reader of one of the two pipes is not told of the end of the context.
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
            // The child lives on, and is reaped when it ends.
            assert!(fs::metadata(format!("/proc/{pid}")).is_ok());
            drop(stdin);
            until(|| fs::metadata(format!("/proc/{pid}")).is_err());
        });
    }
}

/// The waiter for a child is unwound, by an abort or by the end of its runtime. Fails by a hang, when the child stays as a
/// zombie, or when it is not killed.
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
                    // The wait was unwound, or has returned an error.
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

/// Fails when a second wait does not return the status, or when a kill reaches the process that now has the number.
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

/// The table of descriptors is full in the middle of a start. Fails when a child, a descriptor or a thread stays; when a child
/// without a pidfd can't be waited for; or by an error of the wrong kind.
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
                // This makes the files that the process keeps for good.
                assert_eq!(talking().spawn().unwrap().wait_with_output().unwrap().status.code(), Some(3));
                until(|| children().is_empty());
                // Fills the gaps below the highest number that is taken: from here on all free numbers are above.
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

/// The process may open fewer descriptors than the reaper waits for, so the kernel refuses `poll(2)`. Fails when a zombie stays
/// because the reaper waits only for the first child.
#[test]
fn dropped_children_are_reaped_without_the_right_to_open_files() {
    const NAME: &str = "dropped_children_are_reaped_without_the_right_to_open_files";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    watched(0, || {
        let [(first, lives), (second, ends)] = [(); 2].map(|()| {
            let mut child = talking().spawn().unwrap();
            let stdin = child.stdin.take().unwrap();
            (child, stdin)
        });
        let pids = [first.id(), second.id()];
        drop(first);
        let few = libc::rlimit { rlim_cur: 2, rlim_max: 2 };
        // SAFETY: the limits live through the call.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const few) }, 0);
        drop(second);
        // SAFETY: no pointers; a signal to a zombie succeeds, too.
        let there = |pid: u32| unsafe { libc::kill(pid as libc::pid_t, 0) } == 0;
        drop(ends);
        until(|| !there(pids[1]));
        assert!(there(pids[0]));
        drop(lives);
        until(|| !there(pids[0]));
    });
}

/// Kernels before 5.10 know no flag of `pidfd_open(2)`. Fails when a wait takes a thread, so that no context ends it.
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

/// Checks limits on waits, with a pidfd and without.
fn limited_waits() {
    everyone(|crew| {
        crew.run(|| {
            let start = || shell("read line; exit 3").stdin(Stdio::piped()).spawn().unwrap();
            let mut child = start();
            let stdin = child.stdin.take();
            let begun = Instant::now();
            assert_eq!(child.wait_timeout(Duration::from_millis(5)).unwrap(), None);
            assert!(begun.elapsed() >= Duration::from_millis(5));
            assert_eq!(child.wait_timeout(Duration::ZERO).unwrap(), None);
            assert_eq!(child.wait_deadline(begun).unwrap(), None);
            // The end of a context is another error than the end of the limit.
            let (context, _cancel) = Context::background().with_timeout(Duration::from_millis(5));
            let limit = Duration::from_secs(3600);
            let refused = context.run(|| child.wait_timeout(limit).unwrap_err()).expect("nothing is unwound");
            let inner = refused.get_ref().and_then(|inner| inner.downcast_ref());
            assert_eq!(inner, Some(&ContextError::DeadlineExceeded), "{refused:?}");
            drop(stdin);
            let ended = child.wait_timeout(Duration::MAX).unwrap().expect("it ends");
            assert_eq!(ended.code(), Some(3));
            // The child has ended, so there is no wait that the past limit could end.
            assert_eq!(child.wait_deadline(begun).unwrap(), Some(ended));
            // The wait closes the child's input.
            let ended = start().wait_deadline(Instant::now() + limit).unwrap().expect("it ends");
            assert_eq!(ended.code(), Some(3));
            let mut ended = shell("exit 4").spawn().unwrap();
            until(|| ended.wait_timeout(Duration::ZERO).unwrap().is_some_and(|it| it.code() == Some(4)));
        });
    });
}

/// Fails when a wait outlasts its limit, returns an error when the limit ends it, or takes the end of a context for that of the
/// limit; or when a wait does not see that a child has ended.
#[test]
fn a_limit_ends_a_wait_and_not_the_child() {
    limited_waits();
}

/// Fails as above, or when a wait takes a thread.
#[test]
fn a_limit_ends_a_wait_where_there_are_no_pidfds() {
    const NAME: &str = "a_limit_ends_a_wait_where_there_are_no_pidfds";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert!(!said.contains("gmp: a child has no descriptor"), "{said}");
        return;
    }
    refuse(&[libc::SYS_pidfd_open], libc::ENOSYS);
    limited_waits();
}

/// A child was started while there was no descriptor, or no memory, for its pidfd. Fails by a hang when the wait for that child
/// takes a thread, so that no context ends it, although there are descriptors again.
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

/// A program that ignores the ends of its children has no child and no status any more when it waits. Fails by a hang, or when
/// the runtime reports a refusal although there was none.
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
    // As if each child had ended before its pidfd was opened.
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

/// Drops children while there is more and more room for the thread that waits for them.
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

/// Fails by SIGABRT: std ends the process if the kernel refuses a mapping that std makes when a thread starts.
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

/// As the test above, but each child gets a thread of its own.
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

/// Children end, are killed and are dropped at the same moment. Fails when a zombie or a descriptor stays, or by a hang.
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
                            // The child may have been killed.
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

/// A limit, or the end of a context, comes while a child writes without an end, so there is always something to read. Fails by
/// a hang, or by another error than the limit's.
#[test]
fn a_read_of_endless_output_can_be_stopped() {
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

/// The output is there, so no call waits, as with a child that writes faster than its output is read. Fails when a context that
/// is done does not end the reading, of whichever streams.
#[test]
fn a_context_ends_the_reading_of_output_that_is_there() {
    everyone(|crew| {
        crew.run(|| {
            for pipes in [[true, false], [false, true], [true, true]] {
                let [out, err] = pipes.map(|pipe| if pipe { Stdio::piped() } else { Stdio::null() });
                let mut child = shell("echo out; echo err >&2").stdout(out).stderr(err).spawn().unwrap();
                child.wait().unwrap();
                let (context, cancel) = Context::background().with_cancel();
                cancel.cancel();
                let refused = context.run(|| child.wait_with_output().unwrap_err()).unwrap();
                assert_eq!(ContextError::of(&refused), Some(ContextError::Canceled), "{pipes:?}: {refused}");
            }
        });
    });
}

/// The timeouts of the pipes are shorter than the time between two calls, as any timeout is for a caller that loses its CPU.
/// Fails by an error, with which the output is lost, although all of it is in the pipes; or when no timeout ends a wait.
#[test]
fn a_timeout_ends_no_read_of_output_that_is_there() {
    everyone(|crew| {
        crew.run(|| {
            for waits in [false, true] {
                let mut child = shell(if waits { "exec sleep 1000" } else { "echo out; echo err >&2" });
                child.stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
                let mut child = child.spawn().unwrap();
                let timeout = Some(Duration::from_nanos(1));
                child.stdout.as_ref().unwrap().set_read_timeout(timeout).unwrap();
                child.stderr.as_ref().unwrap().set_read_timeout(timeout).unwrap();
                if waits {
                    assert_eq!(child.wait_with_output().unwrap_err().kind(), ErrorKind::TimedOut);
                    continue;
                }
                child.wait().unwrap();
                let output = child.wait_with_output().unwrap();
                assert_eq!((&output.stdout[..], &output.stderr[..]), (&b"out\n"[..], &b"err\n"[..]));
            }
        });
    });
}

/// A child writes more than its pipe takes, and the wait comes before the last read. Fails when bytes are lost, or by a hang.
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
