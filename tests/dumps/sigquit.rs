//! SIGQUIT: the dump of what each goroutine does, and the end of the process, whatever the process hangs in. Each case is a
//! child process, which sends the signal to itself.

use common::child;
use common::stderr::{pipe_for_stderr, stderr_does_not_block};
use common::{PROCS, runtime, skipped, until, watched};
use gmp::chan::bounded;
use gmp::{Runtime, go};
use std::fs;
use std::hint::spin_loop;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

/// Go's exit status.
const STATUS: Option<i32> = Some(2);

fn send() {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) }, 0);
}

/// Waits for the end of the process, but not for ever.
fn dies() {
    watched(0, || {
        loop {
            thread::park();
        }
    })
}

/// Makes a signal that ends this process leave no file.
fn no_core() {
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: reads one rlimit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) }, 0);
}

#[inline(never)]
fn waits_for_a_message() {
    let (_sender, receiver) = bounded::<u32>(0);
    let _never = receiver.recv();
}

/// Returns the text of a child, whose status must be Go's.
#[track_caller]
fn dumped(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), output.status.signal()), (STATUS, None), "{text}");
    assert!(text.contains("SIGQUIT: quit\n\n"), "{text}");
    text
}

fn parked(rt: &Runtime, count: usize) {
    for _ in 0..count {
        drop(rt.go(waits_for_a_message));
    }
    let head = format!("{count} goroutines [chan receive, ");
    until(|| rt.dump().contains(&head));
}

/// Fails by another end than Go's, by a hang, or when the trace does not show where the goroutines wait.
#[test]
fn goroutines_that_are_parked_are_shown_with_their_frames() {
    if child::is_child() {
        let procs = std::env::var("PROCS").unwrap().parse().unwrap();
        let rt = runtime(procs);
        parked(&rt, 3);
        send();
        return dies();
    }
    let name = "goroutines_that_are_parked_are_shown_with_their_frames";
    for procs in PROCS.map(|procs| procs.to_string()) {
        let text = dumped(&child::run(name, &[("PROCS", &procs)]));
        assert!(text.contains("\n3 goroutines [chan receive, "), "{text}");
        assert!(text.contains("waits_for_a_message\n"), "{text}");
    }
}

/// Waits below `frames` frames.
#[inline(never)]
fn waits_deep(frames: usize) {
    match frames {
        0 => waits_for_a_message(),
        _ => waits_deep(frames - 1),
    }
    std::hint::black_box(frames);
}

/// Standard error is a small pipe, and does not block. Fails when the text ends where the pipe is full.
#[test]
fn a_long_dump_is_printed_whole_where_standard_error_does_not_block() {
    const DEPTHS: usize = 40;
    let name = "a_long_dump_is_printed_whole_where_standard_error_does_not_block";
    if child::is_child() {
        let rt = runtime(1);
        (0..DEPTHS).for_each(|frames| drop(rt.go(move || waits_deep(frames))));
        until(|| rt.dump().matches("[chan receive, ").count() == DEPTHS);
        // SAFETY: no pointers.
        assert!(unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_SETPIPE_SZ, 4096) } >= 0);
        stderr_does_not_block();
        send();
        return dies();
    }
    let mut child = child::command(name).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    // The test does not wait until the pipe is full: a text that does not fit into the rest of a page waits for the next page
    // as a whole.
    let has_begun = || {
        let mut bytes: libc::c_int = 0;
        // SAFETY: the kernel writes the number.
        assert_eq!(unsafe { libc::ioctl(stderr.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
        bytes > 0
    };
    let threads = format!("/proc/{}/task", child.id());
    let sleeps = |thread: io::Result<fs::DirEntry>| {
        let stat = thread.and_then(|thread| fs::read_to_string(thread.path().join("stat")));
        stat.is_ok_and(|stat| stat.rsplit(')').next().is_some_and(|state| state.starts_with(" S")))
    };
    // The test reads only when the child has given up, or waits.
    until(has_begun);
    until(|| child.try_wait().unwrap().is_some() || fs::read_dir(&threads).unwrap().all(sleeps));
    child.stderr = Some(stderr);
    let text = dumped(&child.wait_with_output().unwrap());
    assert_eq!(text.matches("[chan receive, ").count(), DEPTHS, "{} bytes", text.len());
}

/// Fails by a hang when the printing thread waits for a P, or for a thread that runs goroutines.
#[test]
fn hogs_on_all_threads_do_not_keep_it() {
    let name = "hogs_on_all_threads_do_not_keep_it";
    if child::is_child() {
        static RUNNING: [AtomicBool; 2] = [const { AtomicBool::new(false) }; 2];
        let rt = runtime(2);
        parked(&rt, 2);
        for running in &RUNNING {
            drop(rt.go(move || {
                running.store(true, SeqCst);
                loop {
                    spin_loop();
                }
            }));
        }
        until(|| RUNNING.iter().all(|running| running.load(SeqCst)));
        send();
        return dies();
    }
    for debug in ["", "handoff=0"] {
        let text = dumped(&child::run(name, &[("GMPDEBUG", debug)]));
        assert!(
            text.contains("\n4 goroutines, 2 of them running\n") && text.contains("[chan receive, "),
            "{text}"
        );
        // Each goroutine stands at an instruction of its own.
        let mut running =
            text.split("\n\n").filter(|part| part.contains("[running]: ") || part.contains("[running]:\n"));
        assert!(running.all(|part| part.contains("\n\ttests/dumps/sigquit.rs:")), "{text}");
    }
}

/// Fails by a hang when the printing thread waits for a lock of the program.
#[test]
fn a_lock_on_standard_error_does_not_keep_it() {
    let name = "a_lock_on_standard_error_does_not_keep_it";
    if child::is_child() {
        let rt = runtime(1);
        parked(&rt, 2);
        let _lock = std::io::stderr().lock();
        send();
        return dies();
    }
    assert!(dumped(&child::run(name, &[])).contains("\n2 goroutines [chan receive, "));
}

/// Returns how often the monitor has gone to sleep.
fn sleeps_of_monitor() -> Option<u64> {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let status = tasks.filter_map(|task| fs::read_to_string(task.unwrap().path().join("status")).ok());
    let monitor =
        |status: &String| status.starts_with("Name:\tgmp-sysmon\n") && status.contains("\nState:\tS");
    let sleeps = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|number| number.trim().parse().ok())
    };
    status.filter(monitor).find_map(sleeps)
}

/// Fails by a hang when the monitor sleeps for good, and is not woken.
#[test]
fn an_idle_process_wakes_for_it() {
    let name = "an_idle_process_wakes_for_it";
    if child::is_child() {
        let rt = runtime(2);
        parked(&rt, 2);
        // The monitor's longest pause between two looks that find nothing is shorter.
        until(|| {
            let before = sleeps_of_monitor();
            thread::sleep(Duration::from_millis(1200));
            before.is_some() && sleeps_of_monitor() == before
        });
        send();
        return dies();
    }
    assert!(dumped(&child::run(name, &[])).contains("\n2 goroutines [chan receive, "));
}

/// Fails when no runtime answers after the oldest one has ended.
#[test]
fn a_runtime_that_ends_leaves_the_answer_to_another() {
    let name = "a_runtime_that_ends_leaves_the_answer_to_another";
    if child::is_child() {
        let (first, second) = (runtime(1), runtime(1));
        parked(&second, 2);
        drop(first);
        send();
        return dies();
    }
    assert!(dumped(&child::run(name, &[])).contains("\n2 goroutines [chan receive, "));
}

/// Fails when the process ends, or when a later signal prints nothing.
#[test]
fn with_the_knob_the_process_goes_on_and_may_be_asked_again() {
    use std::io::Read;
    let name = "with_the_knob_the_process_goes_on_and_may_be_asked_again";
    if child::is_child() {
        let rt = runtime(2);
        parked(&rt, 2);
        let mut pipe = pipe_for_stderr(false);
        let mut text = Vec::new();
        for asked in 1..=3 {
            send();
            until(|| {
                let _none_yet = pipe.read_to_end(&mut text);
                let text = String::from_utf8_lossy(&text);
                text.matches("SIGQUIT: dump\n\n").count() == asked
                    && text.matches("\ncreated at ").count() == asked
                    && text.ends_with('\n')
            });
        }
        assert_eq!(rt.run(|| go(|| 7).join().unwrap()), 7);
        return;
    }
    child::passes(name, &[("GMPDEBUG", "sigquit=dump")]);
}

/// Main blocks its thread until another goroutine has run, while a dump is printed that has no reader. Fails by the exit status
/// when the monitor, which is to take the P, waits for the reader, too.
#[test]
fn with_the_knob_goroutines_go_on_while_nobody_reads() {
    // Less than the time that a reader is given, if the wait has a limit.
    const LATE: Duration = Duration::from_secs(4);
    let name = "with_the_knob_goroutines_go_on_while_nobody_reads";
    if child::is_child() {
        let (rt, _nobody_reads) = (runtime(1), pipe_for_stderr(true));
        let in_time = rt.run(|| {
            let (tells, told) = std::sync::mpsc::channel();
            drop(go(move || tells.send(())));
            send();
            told.recv_timeout(LATE).is_ok()
        });
        // A panic would be printed first.
        std::process::exit(i32::from(!in_time));
    }
    let output = child::run(name, &[("GMPDEBUG", "sigquit=dump")]);
    assert!(output.status.success(), "{output:?}");
}

/// Fails by a hang when standard error has no reader, and the printing thread waits for one.
#[test]
fn it_ends_the_process_where_nobody_reads() {
    let name = "it_ends_the_process_where_nobody_reads";
    if child::is_child() {
        let rt = runtime(2);
        parked(&rt, 2);
        let _nobody_reads = pipe_for_stderr(true);
        send();
        return dies();
    }
    assert_eq!(child::run(name, &[]).status.code(), STATUS);
}

/// Fails by a hang when the printing hangs, and the second signal does not end the process.
#[test]
fn the_second_one_before_the_answer_ends_the_process() {
    let name = "the_second_one_before_the_answer_ends_the_process";
    if child::is_child() {
        no_core();
        let rt = runtime(2);
        parked(&rt, 2);
        let _nobody_reads = pipe_for_stderr(true);
        // The kernel takes two signals for one if it has not delivered the first.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(60) {
            send();
            thread::yield_now();
        }
        return;
    }
    assert_eq!(child::run(name, &[]).status.signal(), Some(libc::SIGQUIT));
}

/// The kernel does not end the first process of a container by a signal that has its default action. Fails by a hang when the
/// signal is lost, and so is each one after it, as the handler is gone.
#[test]
fn as_the_first_process_of_a_container_it_ends_too() {
    let name = "as_the_first_process_of_a_container_it_ends_too";
    if child::is_child() {
        assert_eq!(std::process::id(), 1);
        no_core();
        drop(runtime(1));
        send();
        return dies();
    }
    match child::as_init(&mut child::command(name)) {
        Ok(output) => assert_eq!(output.status.code(), Some(128 + libc::SIGQUIT), "{output:?}"),
        Err(refused) => skipped(format!("no PID namespace can be had: {refused}")),
    }
}

/// A child of a process with a runtime gets the signal between fork and exec, as from the terminal. Fails when the signal is
/// lost, as the child has no monitor, and the program runs.
#[test]
fn a_child_that_has_not_begun_its_program_ends() {
    let name = "a_child_that_has_not_begun_its_program_ends";
    if !child::is_child() {
        child::passes(name, &[]);
        return;
    }
    let rt = runtime(1);
    let mut command = std::process::Command::new("true");
    let sends = || {
        no_core();
        send();
        Ok(())
    };
    // SAFETY: the function makes system calls alone, which may be made between fork and exec.
    unsafe { std::os::unix::process::CommandExt::pre_exec(&mut command, sends) };
    assert_eq!(command.status().unwrap().signal(), Some(libc::SIGQUIT));
    // The signal was the child's alone.
    assert_eq!(rt.run(|| 7), 7);
}

static TAKEN: AtomicBool = AtomicBool::new(false);

extern "C" fn take(_signal: libc::c_int) {
    TAKEN.store(true, SeqCst);
}

fn take_it() {
    // SAFETY: the handler stores to an atomic.
    unsafe { libc::signal(libc::SIGQUIT, take as *const () as libc::sighandler_t) };
}

/// Fails by the end of the process when a handler, older or younger than the runtime, was replaced.
#[test]
fn a_handler_of_the_program_is_left_alone() {
    let name = "a_handler_of_the_program_is_left_alone";
    if child::is_child() {
        let younger = std::env::var_os("YOUNGER").is_some();
        if !younger {
            take_it();
        }
        let rt = runtime(2);
        if younger {
            take_it();
        }
        let _another = runtime(1);
        send();
        until(|| TAKEN.load(SeqCst));
        assert_eq!(rt.run(|| 7), 7);
        return;
    }
    for env in [&[][..], &[("YOUNGER", "1")]] {
        let stderr = child::passes(name, env);
        assert!(!stderr.contains("SIGQUIT"), "{stderr}");
    }
}

/// Fails when the signal is caught although that is switched off, or although no runtime could answer.
#[test]
fn without_a_runtime_and_when_it_is_off_it_ends_the_process_as_ever() {
    let name = "without_a_runtime_and_when_it_is_off_it_ends_the_process_as_ever";
    if child::is_child() {
        no_core();
        let rt = runtime(1);
        if std::env::var_os("ENDS").is_some() {
            drop(rt);
        }
        send();
        return dies();
    }
    for env in [("ENDS", "1"), ("GMPDEBUG", "sigquit=off")] {
        let output = child::run(name, &[env]);
        assert_eq!(output.status.signal(), Some(libc::SIGQUIT), "{output:?}");
    }
}
