//! What the world refuses, at the start and later: the runtime does without, and says so once.

use common::child;
use common::descriptors::all_descriptors;
use common::loopback::pair;
use common::mappings::{AllMappings, most_mappings};
use common::seccomp::{refuse, refuse_here, refuse_writes_of_eight};
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::context::Context;
use gmp::{Refused, Runtime, blocking, chan, go, time, yield_now};
use std::fs::File;
use std::future::poll_fn;
use std::hint::spin_loop;
use std::io::{self, Read, Write};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// How long the only P stays with a goroutine that blocks its thread, while another one waits: the median of some
/// rounds, in the best of some tries.
fn hand_off_takes() -> Duration {
    let round = || {
        let start = Instant::now();
        let blocked = go(|| thread::sleep(100 * MS));
        yield_now();
        let took = start.elapsed();
        blocked.join().unwrap();
        took
    };
    let median = || {
        let mut rounds: Vec<_> = (0..7).map(|_| round()).collect();
        rounds.sort();
        rounds[3]
    };
    (0..5).map(|_| median()).find(|&took| took < HAND_OFF_LIMIT).unwrap_or(Duration::MAX)
}

/// Less than what is waited where nobody can tell whether a thread is blocked, and far more than it takes where somebody can.
const HAND_OFF_LIMIT: Duration = Duration::from_millis(20);

/// Fails by time: to see that a thread is blocked a descriptor is needed, or a word is said of it.
#[test]
fn hand_off_needs_no_descriptor_when_a_goroutine_blocks() {
    const NAME: &str = "hand_off_needs_no_descriptor_when_a_goroutine_blocks";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert!(!said.contains("gmp: "), "{said}");
        return;
    }
    watched(1, || {
        runtime(1).run(|| {
            // Its second thread is there.
            assert!(hand_off_takes() < HAND_OFF_LIMIT);
            let full = all_descriptors();
            assert!(File::open("/dev/null").is_err());
            assert!(hand_off_takes() < HAND_OFF_LIMIT);
            drop(full);
        });
    });
}

/// Makes the calling process one that has these namespaces of its own.
fn unshare(which: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::unshare(which) == 0 || libc::unshare(which | libc::CLONE_NEWUSER) == 0 } {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Fails by time where a thread is looked for under the number that it has in its own pid namespace, and not in that of
/// `/proc`.
#[test]
fn hand_off_works_where_proc_is_of_another_pid_namespace() {
    const NAME: &str = "hand_off_works_where_proc_is_of_another_pid_namespace";
    if !child::is_child() {
        match child::passes_where(NAME, || unshare(libc::CLONE_NEWPID)) {
            Some(said) => assert!(!said.contains("gmp: "), "{said}"),
            None => println!("not tried: no namespace is to be had"),
        }
        return;
    }
    assert_eq!(std::process::id(), 1, "in a namespace of its own");
    assert_ne!(
        std::fs::read_link("/proc/self").unwrap().to_str().unwrap(),
        "1",
        "of which this is not the /proc"
    );
    watched(1, || runtime(1).run(|| assert!(hand_off_takes() < HAND_OFF_LIMIT)));
}

/// Fails by a hang where nothing is taken from a thread of which nothing is known, or by no word of it, or one for each look.
#[test]
fn without_proc_hand_off_takes_longer_and_the_operator_is_told_once() {
    const NAME: &str = "without_proc_hand_off_takes_longer_and_the_operator_is_told_once";
    if !child::is_child() {
        let hide_proc = || {
            unshare(libc::CLONE_NEWNS)?;
            // SAFETY: texts that end in zero, and no data. The first mount is for this namespace alone: it keeps the next one
            // from others.
            let hidden = unsafe {
                libc::mount(
                    ptr::null(),
                    c"/".as_ptr(),
                    ptr::null(),
                    libc::MS_REC | libc::MS_PRIVATE,
                    ptr::null(),
                ) == 0
                    && libc::mount(c"none".as_ptr(), c"/proc".as_ptr(), c"tmpfs".as_ptr(), 0, ptr::null())
                        == 0
            };
            if hidden { Ok(()) } else { Err(io::Error::last_os_error()) }
        };
        match child::passes_where(NAME, hide_proc) {
            Some(said) => {
                let told = said.matches("gmp: what a thread does can't be read in /proc").count();
                assert_eq!(told, PROCS.len(), "once for each runtime: {said}");
            }
            None => println!("not tried: no namespace is to be had"),
        }
        return;
    }
    assert!(File::open("/proc/self/stat").is_err());
    everywhere(blocked_threads_stall_nobody);
}

/// Blocks a thread for each P; what frees them is run all the same. Fails by a hang.
fn blocked_threads_stall_nobody(rt: Runtime) {
    rt.run(|| {
        let blocked = Arc::new(AtomicUsize::new(0));
        let (ends, calls): (Vec<_>, Vec<_>) = (0..gmp::procs()).map(|_| channel::<()>()).unzip();
        let block = |call: Receiver<()>| {
            let blocked = Arc::clone(&blocked);
            move || {
                blocked.fetch_add(1, SeqCst);
                call.recv().unwrap();
            }
        };
        let all: Vec<_> = calls.into_iter().map(|call| go(block(call))).collect();
        until(|| blocked.load(SeqCst) == all.len());
        ends.into_iter().for_each(|end| end.send(()).unwrap());
        all.into_iter().for_each(|one| one.join().unwrap());
    });
}

/// What a refusal is played with: that of an old kernel, and what sandboxes answer.
const ERRNOS: [libc::c_int; 4] = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL];

/// When a sandbox begins.
#[derive(Copy, Clone, Debug, PartialEq)]
enum From {
    TheStart,
    Later,
}

/// Runs the test of this name in a child for each error and beginning, and gives what each has said.
#[track_caller]
fn in_sandboxes(test: &str, mut each: impl FnMut(From, &str)) {
    for errno in ERRNOS {
        for from in [From::TheStart, From::Later] {
            let late = if from == From::Later { "1" } else { "0" };
            each(from, &child::passes(test, &[("ERRNO", &errno.to_string()), ("LATE", late)]));
        }
    }
}

/// The child's side: `f` is to hold in a sandbox that refuses these calls, from the start or after it has held without
/// one. Then the runtime has counted what it had to do without, as `counts` says, which is told whether the refusal came later.
fn sandboxed(calls: &[libc::c_long], f: impl Fn() + Sync, counts: impl Fn(Refused, bool) -> bool + Sync) {
    let var = |name| std::env::var(name).unwrap().parse::<libc::c_int>().unwrap();
    let (errno, late) = (var("ERRNO"), var("LATE") == 1);
    let rules = || refuse(calls, errno);
    if !late {
        rules();
    }
    watched(2, || {
        // SAFETY: as in `common::runtime`.
        let rt = unsafe { Runtime::builder().procs(2).build() }.unwrap();
        rt.run(|| {
            f();
            if late {
                rules();
                f();
            }
        });
        let refused = rt.shutdown(SHUTDOWN_LIMIT).refused();
        assert!(counts(refused, late), "{refused:?}");
    });
}

const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// Timers, sockets, and submissions to a runtime of which all sleep, from goroutines and threads.
fn waits_end() {
    time::sleep(5 * MS);
    let (mut near, mut far) = pair();
    let echo = go(move || {
        let mut byte = [0];
        while far.read(&mut byte).unwrap() == 1 {
            far.write_all(&byte).unwrap();
        }
    });
    for sent in 0..20 {
        let mut got = [!sent];
        near.write_all(&[sent]).unwrap();
        near.read_exact(&mut got).unwrap();
        assert_eq!(got, [sent]);
    }
    drop(near);
    echo.join().unwrap();
    // A task, which polls.
    let (mut near, far) = pair();
    let echo = go(move || {
        gmp::block_on(async {
            let mut byte = [0];
            while poll_fn(|cx| far.poll_read(cx, &mut byte)).await.unwrap() == 1 {
                assert_eq!(poll_fn(|cx| far.poll_write(cx, &byte)).await.unwrap(), 1);
            }
        });
    });
    for sent in 0..20 {
        let mut got = [!sent];
        near.write_all(&[sent]).unwrap();
        near.read_exact(&mut got).unwrap();
        assert_eq!(got, [sent]);
    }
    drop(near);
    echo.join().unwrap();
    let (say, hear) = chan::bounded(0);
    let thread = thread::spawn(move || {
        for n in 0..5 {
            thread::sleep(2 * MS);
            say.send(n).unwrap();
        }
    });
    assert_eq!(hear.iter().sum::<u32>(), 10);
    thread.join().unwrap();
    time::sleep(MS);
}

/// Fails by a panic of the scheduler, which ends the process, or by a hang.
#[test]
fn a_refused_wait_for_events_is_replaced() {
    const NAME: &str = "a_refused_wait_for_events_is_replaced";
    if !child::is_child() {
        return in_sandboxes(NAME, |_, said| assert!(!said.contains("gmp: "), "nothing is given up: {said}"));
    }
    sandboxed(&[libc::SYS_epoll_pwait2], waits_end, |refused, _| refused.is_empty());
}

/// Fails by a panic, a hang, or no word.
#[test]
fn without_any_wait_for_events_sockets_are_looked_at() {
    const NAME: &str = "without_any_wait_for_events_sockets_are_looked_at";
    if !child::is_child() {
        for errno in ERRNOS {
            let said = child::passes(NAME, &[("ERRNO", &errno.to_string()), ("LATE", "1")]);
            assert_eq!(said.matches("gmp: the poller does not work any more").count(), 1, "{said}");
        }
        return;
    }
    let all = [libc::SYS_epoll_pwait2, libc::SYS_ppoll, libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
    sandboxed(&all, waits_end, |refused, _| refused.waits() > 0);
}

/// Fails by a hang: the write that ends the poller's wait is refused for the first time when no descriptor is left for
/// what would take its place, so a thread that waits for ever there is woken by nobody.
#[test]
fn an_idle_runtime_is_woken_without_a_write_or_a_descriptor() {
    const NAME: &str = "an_idle_runtime_is_woken_without_a_write_or_a_descriptor";
    if !child::is_child() {
        for errno in ERRNOS {
            let said = child::passes(NAME, &[("ERRNO", &errno.to_string())]);
            assert!(!said.contains("can't be ended"), "nothing is given up: {said}");
        }
        return;
    }
    let errno = std::env::var("ERRNO").unwrap().parse().unwrap();
    everywhere(|rt| {
        rt.run(|| time::sleep(MS));
        let full = all_descriptors();
        refuse_writes_of_eight(errno);
        for n in 0..10 {
            // All its threads but the one in the poller sleep, or are about to.
            thread::sleep(MS);
            assert_eq!(rt.go(move || n).join().unwrap(), n);
        }
        drop(full);
    });
}

/// A hog on each P, and a goroutine that gets one all the same.
fn hogs_stall_nobody() {
    let over = Arc::new(AtomicBool::new(false));
    let running = Arc::new(AtomicUsize::new(0));
    let hogs: Vec<_> = (0..gmp::procs())
        .map(|_| {
            let (over, running) = (Arc::clone(&over), Arc::clone(&running));
            go(move || {
                running.fetch_add(1, SeqCst);
                while !over.load(SeqCst) {
                    spin_loop();
                }
            })
        })
        .collect();
    until(|| running.load(SeqCst) == hogs.len());
    over.store(true, SeqCst);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
}

/// Fails by a hang, or by no word where what was counted on is refused; in a debug build, by an assertion where two own a P.
#[test]
fn a_refused_membarrier_is_replaced() {
    const NAME: &str = "a_refused_membarrier_is_replaced";
    if !child::is_child() {
        return in_sandboxes(NAME, |from, said| {
            let told = said.matches("gmp: membarrier is refused").count();
            assert_eq!(told, usize::from(from == From::Later), "{said}");
            assert!(!said.contains("keeps its P"), "{said}");
        });
    }
    // The hogs first: they have held their Ps since before the refusal, and will never call the runtime.
    let works = || {
        for _ in 0..5 {
            hogs_stall_nobody();
            waits_end();
        }
    };
    sandboxed(&[libc::SYS_membarrier], works, |refused, late| {
        (refused.barriers() > 0, refused.retakes()) == (late, 0)
    });
}

/// Many threads want the lock of one channel, and sleep for it. Fails by a hang where a thread that lets the lock go relies on
/// a barrier that is refused, and forgets a sleeper.
#[test]
fn threads_sleep_for_locks_where_membarrier_is_refused() {
    const NAME: &str = "threads_sleep_for_locks_where_membarrier_is_refused";
    const THREADS: u64 = 16;
    const NUMBERS: u64 = 2_000;
    if !child::is_child() {
        return in_sandboxes(NAME, |_, _| ());
    }
    let works = || {
        let (to, from) = chan::bounded(4);
        let numbers = move |_| {
            let to = to.clone();
            thread::spawn(move || (1..=NUMBERS).for_each(|n| to.send(n).unwrap()))
        };
        let senders: Vec<_> = (0..THREADS).map(numbers).collect();
        let sum = |_| {
            let from = from.clone();
            thread::spawn(move || from.iter().sum::<u64>())
        };
        let receivers: Vec<_> = (0..THREADS).map(sum).collect();
        senders.into_iter().for_each(|sender| sender.join().unwrap());
        let sums: u64 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
        assert_eq!(sums, THREADS * NUMBERS * (NUMBERS + 1) / 2);
    };
    sandboxed(&[libc::SYS_membarrier], works, |_, _| true);
}

/// Where no other barrier is to be had, either: fails by a hang of what a goroutine blocks that waits in the kernel.
#[test]
fn a_blocked_thread_needs_no_barrier() {
    const NAME: &str = "a_blocked_thread_needs_no_barrier";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(said.matches("gmp: membarrier is refused").count(), 1, "{said}");
        return;
    }
    watched(1, || {
        let rt = runtime(1);
        rt.run(|| {
            time::sleep(MS);
            refuse(&[libc::SYS_membarrier, libc::SYS_sched_setaffinity], libc::EPERM);
        });
        blocked_threads_stall_nobody(rt);
    });
}

/// Fails by an error of the spawn, or by a stack without a guard: what overflows it goes on.
#[test]
fn refused_guards_are_made_otherwise() {
    const NAME: &str = "refused_guards_are_made_otherwise";
    if !child::is_child() {
        return in_sandboxes(NAME, |_, said| assert!(!said.contains("gmp: "), "nothing is given up: {said}"));
    }
    let works = || {
        let many: Vec<_> = (0..2000).map(|n| go(move || (yield_now(), n).1)).collect();
        assert_eq!(many.into_iter().map(|one| one.join().unwrap()).sum::<u32>(), 1999 * 1000);
        time::sleep(MS);
    };
    sandboxed(&[libc::SYS_madvise, libc::SYS_process_madvise], works, |refused, _| refused.is_empty());
}

/// How many descriptors the process has by which threads are looked at.
fn watch_descriptors() -> usize {
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| std::fs::read_link(entry.unwrap().path()));
    open.filter(|open| open.as_ref().is_ok_and(|name| name.ends_with("syscall"))).count()
}

/// Fails by more descriptors than a quarter of what the process may have, by a count of none, or by no word, or one for
/// each thread.
#[test]
fn threads_leave_the_program_its_descriptors() {
    const NAME: &str = "threads_leave_the_program_its_descriptors";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(
            said.matches("gmp: there are too few descriptors to keep one for each thread").count(),
            2,
            "{said}"
        );
        return;
    }
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: it reads the struct that we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    for procs in [1, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            let (ends, calls): (Vec<_>, Vec<_>) = (0..30).map(|_| channel::<()>()).unzip();
            let begun = Arc::new(AtomicUsize::new(0));
            let block = |call: Receiver<()>| {
                let begun = Arc::clone(&begun);
                rt.go(move || {
                    begun.fetch_add(1, SeqCst);
                    // Each on a thread of its own.
                    call.recv().unwrap();
                })
            };
            let all: Vec<_> = calls.into_iter().map(block).collect();
            until(|| begun.load(SeqCst) == all.len());
            assert_eq!(watch_descriptors(), 16);
            ends.into_iter().for_each(|end| end.send(()).unwrap());
            all.into_iter().for_each(|one| one.join().unwrap());
            // Threads that begin to run one, and then block.
            let refused = rt.shutdown(SHUTDOWN_LIMIT).refused();
            assert!(refused.descriptors() >= 14 && refused.looks() == 0, "{refused:?}");
            assert_eq!(watch_descriptors(), 0);
        });
    }
}

/// Fails by a descriptor that stays with a thread which does not come back, by a count of none, or by no word.
#[test]
fn a_runtime_that_ends_from_inside_without_a_thread_keeps_no_descriptor() {
    const NAME: &str = "a_runtime_that_ends_from_inside_without_a_thread_keeps_no_descriptor";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        assert_eq!(said.matches("gmp: a runtime that one of its goroutines ends").count(), 1, "{said}");
        return;
    }
    watched(2, || {
        let rt = runtime(2);
        let (goes_on, blocks) = channel::<()>();
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        let _stays = rt.go(move || {
            begins.store(true, SeqCst);
            // The thread, and so its M, does not come back.
            blocks.recv().unwrap();
        });
        until(|| begun.load(SeqCst));
        let (gives, takes) = chan::bounded::<Runtime>(0);
        let (tell, hear) = channel();
        let _ends_it = rt.go(move || {
            let rt = takes.recv().unwrap();
            refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
            tell.send(rt.shutdown(SHUTDOWN_LIMIT)).unwrap();
        });
        gives.send(rt).unwrap();
        let report = hear.recv().unwrap();
        assert_eq!(report.goroutines_left(), 2, "{report:?}");
        // Another one where the machine is busy: an M for a P that was taken meanwhile.
        assert!(report.refused().threads() >= 1, "{report:?}");
        until(|| watch_descriptors() == 0);
        goes_on.send(()).unwrap();
    });
}

/// Fails by a hang: starts of the timers' thread are refused, and no later callback asks for one, as none of them is the
/// earliest; or by a word for each refusal.
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
                // Asks again, and is told once.
                drop(after(MS));
                after(MS)
            });
            refused.join().unwrap()
        });
        assert_eq!(called.load(SeqCst), 0);
        let second = after(20 * MS);
        until(|| called.load(SeqCst) == 3);
        // As before: the thread is there, and is started again when it has ended.
        assert!(!first.reset(MS) && !second.reset(MS));
        until(|| called.load(SeqCst) == 5);
    });
}

/// Functions of a plain thread wait for the end of a context, which a goroutine under that context ends, and no thread can be
/// had for them. Fails by the count, or by the panic: one of them panics, or its wait is unwound, and takes the others and the
/// canceler with it.
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

/// Fails by a text that names none of the limits that may have been met, or not the value of the one that can be read.
#[test]
fn a_refused_first_thread_names_the_limits() {
    const NAME: &str = "a_refused_first_thread_names_the_limits";
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
    let text = refused.to_string();
    assert!(text.starts_with("cannot start the runtime's first thread: "), "{text}");
    for limit in ["RLIMIT_NPROC, ulimit -u, is 4321", "pids.max", "kernel.threads-max"] {
        assert!(text.contains(limit), "{text}");
    }
}

/// Fails by an error of the build: scripts set a variable to nothing where they would leave it out.
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

/// Fails by SIGABRT: std ends the process where the kernel refuses what std maps at the beginning of a thread.
#[test]
fn a_thread_for_which_there_are_too_few_mappings_is_refused() {
    const NAME: &str = "a_thread_for_which_there_are_too_few_mappings_is_refused";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    let Some(most) = most_mappings() else { return };
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let start = || unsafe { Runtime::builder().procs(1).build() };
    // What a process maps once is there.
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

/// Limits the writable memory of the process to `bytes`; `None`: to nothing.
fn limit_data(bytes: Option<u64>) {
    let limit =
        libc::rlimit { rlim_cur: bytes.unwrap_or(libc::RLIM_INFINITY), rlim_max: libc::RLIM_INFINITY };
    // SAFETY: it reads the struct that we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &raw const limit) }, 0);
}

/// How much writable memory the process has.
fn data() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmData:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Fails by SIGABRT, as above, or by a hang: there is memory for a thread's stack, and none for what std maps beside that.
#[test]
fn a_thread_for_which_there_is_too_little_memory_is_refused() {
    const NAME: &str = "a_thread_for_which_there_is_too_little_memory_is_refused";
    if !child::is_child() {
        return drop(child::passes(NAME, &[]));
    }
    watched(1, || {
        let [mut refused, mut started] = [0; 2];
        for kib in (1800..2600).step_by(8) {
            let rt = runtime(1);
            rt.run(|| {
                let thread = thread::current().id();
                limit_data(Some(data() + (kib << 10)));
                let _other = go(|| ());
                // On a thread of its own, if there may be one.
                let there = blocking(|| thread::current().id());
                limit_data(None);
                *(if there == thread { &mut refused } else { &mut started }) += 1;
            });
        }
        assert!(refused > 0 && started > 0, "{refused} were refused, {started} were started");
    });
}

/// Fails by SIGSEGV: the threads on which a dump looks up symbols have as little stack as the program wants for its own.
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
            assert!(dump.contains("refused.rs:"), "{dump}");
            drop(waits);
        });
    };
    // The harness's thread has a small stack here, too.
    thread::Builder::new().stack_size(1 << 20).spawn(dumps).unwrap().join().unwrap();
}
