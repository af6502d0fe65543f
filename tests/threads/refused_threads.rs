//! The system refuses a thread: by a limit of threads, mappings or memory.

use super::refused::{MS, SHUTDOWN_LIMIT, with_blocked};
use crate::thread_ends::threads;
use common::child;
use common::mappings::{AllMappings, most_mappings};
use common::seccomp::{refuse, refuse_here, refuse_while};
use common::stderr::pipe_for_stderr;
use common::{everywhere, runtime, until, watched};
use gmp::context::Context;
use gmp::net::UnixStream;
use gmp::{Runtime, blocking, chan, go, time, yield_now};
use std::hint::spin_loop;
use std::io::{self};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

/// Fails when the operator is not told of one refusal because the other came before, or is told of each.
#[test]
fn the_limit_of_threads_and_a_refused_thread_are_both_told_once() {
    const NAME: &str = "the_limit_of_threads_and_a_refused_thread_are_both_told_once";
    if !child::is_child() {
        for first in ["limit", "refusal"] {
            let said = child::passes(NAME, &[("FIRST", first)]);
            for told in [
                "gmp: all threads that a runtime may have are in use",
                "gmp: cannot start thread 2 of at most 2: ",
            ] {
                assert_eq!(said.matches(told).count(), 1, "{first} first: {said}");
            }
        }
        return;
    }
    let refuses = Arc::new(AtomicBool::new(false));
    let is_refused = Arc::clone(&refuses);
    refuse_while([libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, move || is_refused.load(SeqCst));
    watched(2, || {
        let builder = Runtime::builder().procs(2).max_threads(2).thread_name("two-").thread_keep_alive(MS);
        // SAFETY: as in `common::runtime`.
        let rt = unsafe { builder.build() }.unwrap();
        let one_waits = |beside| {
            with_blocked(&rt, beside, || {
                let waits = rt.go(|| ());
                // Meanwhile the monitor looks several times.
                thread::sleep(30 * MS);
                assert!(!waits.is_finished(), "there is no thread for it");
                waits
            })
            .join()
            .unwrap();
        };
        let meets_the_limit = || one_waits(2);
        let is_refused = || {
            until(|| threads("two-") == 1);
            refuses.store(true, SeqCst);
            one_waits(1);
            refuses.store(false, SeqCst);
        };
        if std::env::var("FIRST").unwrap() == "refusal" {
            is_refused();
        }
        for _ in 0..2 {
            meets_the_limit();
            is_refused();
        }
        let refused = rt.shutdown(SHUTDOWN_LIMIT).refused();
        assert!(refused.threads() >= 2, "{refused:?}");
    });
}

/// One goroutine starts others, and each start finds idle Ps and no thread. Fails by the count when each start asks for a
/// thread.
#[test]
fn a_refused_thread_is_not_asked_for_at_each_submission() {
    const NAME: &str = "a_refused_thread_is_not_asked_for_at_each_submission";
    const SUBMISSIONS: u64 = 20_000;
    if !child::is_child() {
        drop(child::passes(NAME, &[]));
        return;
    }
    watched(4, || {
        // The runtime has one thread for goroutines.
        let rt = runtime(4);
        refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
        let begun = Instant::now();
        rt.run(|| {
            for _ in 0..SUBMISSIONS {
                drop(go(|| ()));
                yield_now();
            }
        });
        let (refused, took) = (rt.refused().threads(), begun.elapsed());
        // Ten times as many as there can be pauses in this time.
        assert!((1..20 + took.as_millis() as u64).contains(&refused), "{refused} in {took:?}");
    });
}

/// The kernel refuses a thread for one goroutine, and would grant one for the next goroutine, which comes in the pause. The
/// goroutine that starts both keeps the only thread until the second has run, and its P is not retaken. Fails by a hang when no
/// M asks for a thread any more.
#[test]
fn work_that_came_in_the_pause_after_a_refused_thread_gets_one() {
    const NAME: &str = "work_that_came_in_the_pause_after_a_refused_thread_gets_one";
    child::without_retakes(NAME, || {
        let refuses = Arc::new(AtomicBool::new(false));
        let is_refused = Arc::clone(&refuses);
        refuse_while([libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN, move || is_refused.load(SeqCst));
        watched(2, || {
            let rt = runtime(2);
            refuses.store(true, SeqCst);
            rt.run(move || {
                drop(go(|| ()));
                refuses.store(false, SeqCst);
                let ran = Arc::new(AtomicBool::new(false));
                let runs = Arc::clone(&ran);
                drop(go(move || runs.store(true, SeqCst)));
                while !ran.load(SeqCst) {
                    spin_loop();
                }
            });
            assert!(rt.refused().threads() > 0);
        });
    });
}

/// The kernel refuses to start the timer thread. Fails by a hang when no later callback asks for that thread, as none of them
/// is the earliest; or when the operator is told of each refusal.
#[test]
fn timers_outside_of_runtimes_go_on_after_a_thread_was_refused() {
    const NAME: &str = "timers_outside_of_runtimes_go_on_after_a_thread_was_refused";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(said.matches("cannot start the timers' thread").count(), 1, "{said}");
        return;
    }
    watched(0, || {
        let called = Arc::new(AtomicUsize::new(0));
        let after = |delay| {
            let called = Arc::clone(&called);
            time::after_func(delay, move || {
                called.fetch_add(1, SeqCst);
            })
        };
        let first = thread::scope(|scope| {
            let refused = scope.spawn(|| {
                refuse_here(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
                // The second timer asks for the thread again; the operator is told once.
                drop(after(MS));
                after(MS)
            });
            refused.join().unwrap()
        });
        assert_eq!(called.load(SeqCst), 0);
        let second = after(20 * MS);
        until(|| called.load(SeqCst) == 3);
        // From here on timers work as ever: the thread is there, and is started again when it has ended.
        assert!(!first.reset(MS) && !second.reset(MS));
        until(|| called.load(SeqCst) == 5);
    });
}

/// Functions that a plain thread has registered wait for the end of a context. A goroutine under that context ends it, and no
/// thread can be had for the functions. Fails by the count, or by the panic, when a function that panics, or whose wait is
/// unwound, ends the other functions and the canceller.
#[test]
fn functions_of_a_context_are_called_where_a_thread_is_refused() {
    const NAME: &str = "functions_of_a_context_are_called_where_a_thread_is_refused";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    watched(1, || {
        let (context, cancel) = Context::background().with_cancel();
        let called = Arc::new(AtomicUsize::new(0));
        let (s, r) = chan::bounded(0);
        for round in 0..4 {
            let (called, r) = (Arc::clone(&called), r.clone());
            drop(context.after_func(move || {
                r.recv().unwrap();
                called.fetch_add(1, SeqCst);
                if round % 2 == 0 {
                    std::panic::resume_unwind(Box::new("the panic of a function"));
                }
            }));
        }
        drop(r);
        let rt = runtime(1);
        let canceler = rt.go(move || {
            let mut returned = false;
            let ended = context.run(|| {
                refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
                cancel.cancel();
                returned = true;
            });
            (returned, ended)
        });
        (0..4).for_each(|_| s.send(()).unwrap());
        assert_eq!(canceler.join().unwrap(), (true, Ok(())));
        assert_eq!(called.load(SeqCst), 4);
    });
}

/// The thread that runs all goroutines reports the first refused thread, and standard error has no reader. Fails by a hang.
#[test]
fn a_refused_thread_keeps_nobody_waiting_where_nobody_reads() {
    const NAME: &str = "a_refused_thread_keeps_nobody_waiting_where_nobody_reads";
    if !child::is_child() {
        drop(child::passes(NAME, &[]));
        return;
    }
    let _nobody_reads = pipe_for_stderr(true);
    watched(2, || {
        let rt = runtime(2);
        refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
        rt.run(|| go(|| ()).join().unwrap());
        assert!(rt.refused().threads() > 0);
    });
}

/// Fails by a text that names none of the limits that may have been met, or not the value of the one that can be read.
#[test]
fn a_refused_thread_names_the_limits() {
    const NAME: &str = "a_refused_thread_names_the_limits";
    if !child::is_child() {
        child::passes(NAME, &[]);
        return;
    }
    let limit = libc::rlimit { rlim_cur: 4321, rlim_max: 4321 };
    // SAFETY: the limit lives through the call.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NPROC, &raw const limit) }, 0);
    refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
    // SAFETY: no goroutine comes to run.
    let refused = unsafe { Runtime::builder().build() }.unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    let first = refused.to_string();
    assert!(first.starts_with("cannot start the runtime's first thread: "), "{first}");
    // The second thread is one that runs no goroutines.
    let (near, far) = UnixStream::pair().unwrap();
    let second = gmp::io::copy_bidirectional(&near, &far).unwrap_err().error().to_string();
    assert!(second.contains("the second direction can't be started: "), "{second}");
    for text in [first, second] {
        for limit in ["RLIMIT_NPROC, ulimit -u, is 4321", "pids.max", "kernel.threads-max"] {
            assert!(text.contains(limit), "{text}");
        }
    }
}

/// Scripts set a variable to the empty text instead of leaving it out. Fails by an error of the build.
#[test]
fn a_variable_that_is_blank_is_taken_as_not_set() {
    const NAME: &str = "a_variable_that_is_blank_is_taken_as_not_set";
    if !child::is_child() {
        for blank in ["", " "] {
            child::passes(NAME, &[("GMPMAXPROCS", blank), ("GMPSTACK", blank), ("GMPDEBUG", blank)]);
        }
        return;
    }
    // SAFETY: its only goroutine keeps no thread-bound value across a blocking call.
    let rt = unsafe { Runtime::builder().build() }.unwrap();
    let (Ok(procs) | Err(procs)) = thread::available_parallelism().map(usize::from).map_err(|_| 1);
    assert_eq!(rt.run(gmp::procs), procs.min(1024));
}

/// Fails by SIGABRT: std ends the process if the kernel refuses a mapping that std makes at the beginning of a thread.
#[test]
fn a_thread_for_which_there_are_too_few_mappings_is_refused() {
    const NAME: &str = "a_thread_for_which_there_are_too_few_mappings_is_refused";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    let Some(most) = most_mappings() else { return };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let start = || unsafe { Runtime::builder().procs(1).build() };
    // After this the process has the mappings that it makes only once.
    drop(start().unwrap());
    let mut full = AllMappings::begin(most);
    let refused = start().unwrap_err().to_string();
    let enough = (1..100).find(|_| {
        full.give_one_back();
        (0..20).all(|_| start().is_ok())
    });
    assert!(enough.is_some());
    assert!(refused.contains("vm.max_map_count"), "{refused}");
}

/// A process locks what it maps, and may lock little. Fails by an abort, or by an error that does not name this limit.
#[test]
fn a_thread_for_which_too_little_may_be_locked_is_refused() {
    const NAME: &str = "a_thread_for_which_too_little_may_be_locked_is_refused";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    // After this the process has the mappings that it makes only once.
    let runtimes = vec![runtime(1)];
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit lives through the calls; 65534 is the user nobody; `mlockall` sets a mode of this process, for later
    // mappings.
    unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit), 0);
        limit.rlim_cur = limit.rlim_max.min(32 << 20);
        assert_eq!(libc::setrlimit(libc::RLIMIT_MEMLOCK, &raw const limit), 0);
        // The user 0 may lock any amount.
        if libc::getuid() == 0 && libc::setuid(65534) != 0 {
            return println!("setuid: {}", io::Error::last_os_error());
        }
        if libc::mlockall(libc::MCL_FUTURE) != 0 {
            return println!("mlockall: {}", io::Error::last_os_error());
        }
    }
    // SAFETY: no goroutine comes to run.
    let start = || unsafe { Runtime::builder().procs(1).build() };
    let mut more = Vec::with_capacity(100);
    let refused = (0..100).find_map(|_| start().map(|rt| more.push(rt)).err()).unwrap().to_string();
    assert!(refused.contains("ulimit -l"), "{refused}");
    drop((runtimes, more));
}

/// Limits the writable memory of the process to `bytes`; `None` lifts the limit.
fn limit_data(bytes: Option<u64>) {
    let limit =
        libc::rlimit { rlim_cur: bytes.unwrap_or(libc::RLIM_INFINITY), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it reads the struct that we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) }, 0);
}

/// Returns how much writable memory the process has.
fn data() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// There is memory for a thread's stack, and none for std's other mappings. Fails by SIGABRT, as above, or by a hang.
#[test]
fn a_thread_for_which_there_is_too_little_memory_is_refused() {
    const NAME: &str = "a_thread_for_which_there_is_too_little_memory_is_refused";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    watched(1, || {
        let [mut refused, mut started] = [0; 2];
        // A thread takes 2.3 MiB. Where another one is being started, there has to be room for both.
        for kib in (1800..6200).step_by(44) {
            let rt = runtime(1);
            rt.run(|| {
                let thread = thread::current().id();
                limit_data(Some(data() + (kib << 10)));
                let _other = go(|| ());
                // The call runs on a thread of its own, if one can be had.
                let there = blocking(|| thread::current().id());
                limit_data(None);
                *(if there == thread { &mut refused } else { &mut started }) += 1;
            });
        }
        assert!(refused > 0 && started > 0, "{refused} were refused, {started} were started");
    });
}

/// Fails by SIGSEGV when the threads on which a dump looks up symbols have as little stack as the program wants for its own.
#[test]
fn threads_that_look_up_symbols_have_a_stack_for_that() {
    const NAME: &str = "threads_that_look_up_symbols_have_a_stack_for_that";
    if !child::is_child() {
        return drop(child::passes(NAME, &[("RUST_MIN_STACK", "32768")]));
    }
    let dumps = || {
        everywhere(|rt| {
            let (_keeps, waits) = chan::bounded::<()>(0);
            let waits = rt.go(move || waits.recv());
            let dump = rt.run(gmp::dump);
            assert!(dump.contains("refused_threads.rs:"), "{dump}");
            drop(waits);
        });
    };
    // The harness's thread has a small stack here, too.
    thread::Builder::new().stack_size(1 << 20).spawn(dumps).unwrap().join().unwrap();
}
