//! The system refuses something, at the start or later: the runtime does without it, and says so once.

use common::child;
use common::descriptors::all_descriptors;
use common::loopback::pair;
use common::seccomp::{refuse, refuse_writes_of_eight};
use common::{PROCS, everywhere, runtime, skipped, until, watched};
use gmp::net::UnixDatagram;
use gmp::{Builder, Refused, Runtime, chan, go, time, yield_now};
use std::fs::File;
use std::future::poll_fn;
use std::hint::{black_box, spin_loop};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::process::ExitStatusExt;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

pub(super) const MS: Duration = Duration::from_millis(1);

/// Returns how long the only P stays with a goroutine that blocks its thread, while another goroutine waits: the median of
/// seven rounds, in the first of five tries in which the median is below `HAND_OFF_LIMIT`, or `Duration::MAX`.
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

/// Less than the wait if the monitor can't tell whether a thread is blocked, and far more than the wait if the monitor can.
const HAND_OFF_LIMIT: Duration = Duration::from_millis(20);

/// Fails by time when the monitor needs a descriptor to see that a thread is blocked, or when the operator is told that there
/// is none.
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
            // After this the runtime has its second thread.
            assert!(hand_off_takes() < HAND_OFF_LIMIT);
            let full = all_descriptors();
            assert!(File::open("/dev/null").is_err());
            assert!(hand_off_takes() < HAND_OFF_LIMIT);
            drop(full);
        });
    });
}

/// Gives the calling process namespaces of its own of the kinds `which`.
fn unshare(which: libc::c_int) -> io::Result<()> {
    // SAFETY: no pointers.
    if unsafe { libc::unshare(which) == 0 || libc::unshare(which | libc::CLONE_NEWUSER) == 0 } {
        return Ok(());
    }
    Err(io::Error::last_os_error())
}

/// Fails by time when the monitor looks for a thread under its number in its own pid namespace, and not in that of `/proc`.
#[test]
fn hand_off_works_where_proc_is_of_another_pid_namespace() {
    const NAME: &str = "hand_off_works_where_proc_is_of_another_pid_namespace";
    if !child::is_child() {
        match child::passes_where(NAME, || unshare(libc::CLONE_NEWPID)) {
            Some(said) => assert!(!said.contains("gmp: "), "{said}"),
            None => skipped("no namespace can be had"),
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

/// Fails by a hang when the monitor takes no P from a thread of which it knows nothing; or when the operator is not told, or is
/// told at each look.
#[test]
fn without_proc_hand_off_takes_longer_and_the_operator_is_told_once() {
    const NAME: &str = "without_proc_hand_off_takes_longer_and_the_operator_is_told_once";
    if !child::is_child() {
        let hide_proc = || {
            unshare(libc::CLONE_NEWNS)?;
            // SAFETY: the texts end in zero, and there is no data. The first mount makes the mounts of this namespace private,
            // so that the next one is not seen in others.
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
            None => skipped("no namespace can be had"),
        }
        return;
    }
    assert!(File::open("/proc/self/stat").is_err());
    everywhere(blocked_threads_stall_nobody);
}

/// Blocks a thread for each P; the goroutine that frees them runs all the same. Fails by a hang.
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

/// The errors with which calls are refused: that of an old kernel, and those of sandboxes.
const ERRNOS: [libc::c_int; 4] = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL];

/// When a sandbox begins.
#[derive(Copy, Clone, Debug, PartialEq)]
enum From {
    TheStart,
    Later,
}

/// Runs `test` in a child process for each error and each beginning, and calls `each` with the child's output.
#[track_caller]
fn in_sandboxes(test: &str, mut each: impl FnMut(From, &str)) {
    for errno in ERRNOS {
        for from in [From::TheStart, From::Later] {
            let late = if from == From::Later { "1" } else { "0" };
            each(from, &child::passes(test, &[("ERRNO", &errno.to_string()), ("LATE", late)]));
        }
    }
}

/// The child's side: calls `f` in a sandbox that refuses `calls`, either from the start or after `f` has passed without a
/// sandbox. Then `counts` is to hold for what the runtime has counted; it is told whether the sandbox came later.
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

pub(super) const SHUTDOWN_LIMIT: Duration = Duration::from_secs(20);

/// Waits for timers, sockets, and messages. Goroutines and threads ready goroutines of a runtime whose threads all sleep.
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
    // The same with a task, which polls.
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
    // Only an event tells the receiver that the reads have ended.
    let (near, _far) = UnixDatagram::pair().unwrap();
    let near = Arc::new(near);
    let same = Arc::clone(&near);
    let receives = go(move || same.recv(&mut [0]).unwrap());
    time::sleep(2 * MS);
    near.shutdown(Shutdown::Read).unwrap();
    assert_eq!(receives.join().unwrap(), 0);
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

/// Fails by a panic, by a hang, or when the operator is not told.
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

/// The write that ends the poller's wait is refused for the first time when no descriptor is left for its replacement. Fails by
/// a hang when a thread that waits in the poller is never woken.
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
            // All threads of the runtime but the one in the poller sleep, or are about to.
            thread::sleep(MS);
            assert_eq!(rt.go(move || n).join().unwrap(), n);
        }
        drop(full);
    });
}

/// Runs a hog on each P, and a goroutine that gets a P all the same.
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

/// Fails by a hang, or when the operator is not told of the refusal of a call on which the runtime relied; in a debug build, by
/// an assertion when two Ms own one P.
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
    // The hogs come first: they have held their Ps since before the refusal, and never call the runtime.
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

/// Many threads sleep for the lock of one channel. Fails by a hang when a thread that releases the lock relies on a barrier
/// that is refused, and forgets a sleeper.
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

/// The kernel refuses the other barrier, too. Fails by a hang of the goroutines behind one that waits in the kernel.
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

#[inline(never)]
fn exhaust(depth: usize) -> usize {
    let frame = black_box([depth; 64]);
    if black_box(false) { 0 } else { exhaust(depth + 1) + frame[depth % 64] }
}

/// Fails by a panic of a spawn, when the runtime counts a refusal or tells of it, or when the overflow of a stack that was made
/// in the sandbox meets no guard.
#[test]
fn refused_guards_are_made_otherwise() {
    const NAME: &str = "refused_guards_are_made_otherwise";
    const OVERFLOWS: &str = "OVERFLOWS";
    const CALLS: [libc::c_long; 2] = [libc::SYS_madvise, libc::SYS_process_madvise];
    if std::env::var_os(OVERFLOWS).is_some() {
        runtime(2).run(|| {
            go(|| ()).join().unwrap();
            refuse(&CALLS, libc::EPERM);
            // No stack of this size was made before.
            drop(Builder::new().stack_size(256 << 10).go(|| exhaust(0)).unwrap().join());
        });
        return;
    }
    if !child::is_child() {
        in_sandboxes(NAME, |_, said| assert!(!said.contains("gmp: "), "nothing is given up: {said}"));
        let output = child::run(NAME, &[(OVERFLOWS, "1")]);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(libc::SIGABRT), "{said}");
        assert!(said.contains("fatal error: stack overflow in goroutine 3 "), "{said}");
        return;
    }
    let works = || {
        let many: Vec<_> = (0..2000).map(|n| go(move || (yield_now(), n).1)).collect();
        assert_eq!(many.into_iter().map(|one| one.join().unwrap()).sum::<u32>(), 1999 * 1000);
        time::sleep(MS);
    };
    sandboxed(&CALLS, works, |refused, _| refused.is_empty());
}

/// Returns how many descriptors the process has by which the monitor looks at threads.
fn watch_descriptors() -> usize {
    let open =
        std::fs::read_dir("/proc/self/fd").unwrap().map(|entry| std::fs::read_link(entry.unwrap().path()));
    open.filter(|open| open.as_ref().is_ok_and(|name| name.ends_with("syscall"))).count()
}

/// Fails by more descriptors than a quarter of those that the process may have, when no refusal is counted, or when the
/// operator is not told, or is told for each thread.
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
            // Each goroutine blocks a thread of its own.
            with_blocked(&rt, 30, || assert_eq!(watch_descriptors(), 16));
            // Refusals are counted of threads that begin to run a goroutine, which then blocks.
            let refused = rt.shutdown(SHUTDOWN_LIMIT).refused();
            assert!(refused.descriptors() >= 14 && refused.looks() == 0, "{refused:?}");
            assert_eq!(watch_descriptors(), 0);
        });
    }
}

/// Fails when a descriptor stays with a thread that does not come back, when no refusal is counted, or when the operator is not
/// told.
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
        // On a busy machine there is another refusal: of an M for a P that was taken meanwhile.
        assert!(report.refused().threads() >= 1, "{report:?}");
        until(|| watch_descriptors() == 0);
        goes_on.send(()).unwrap();
    });
}

/// The system has refused the runtime a thread before. Fails when the runtime does not tell of the goroutines that it leaves
/// behind.
#[test]
fn an_end_from_inside_without_a_thread_is_told_after_other_refusals() {
    const NAME: &str = "an_end_from_inside_without_a_thread_is_told_after_other_refusals";
    if !child::is_child() {
        let said = child::passes(NAME, &[]);
        for told in
            ["gmp: cannot start thread 2 of at most", "gmp: a runtime that one of its goroutines ends"]
        {
            assert_eq!(said.matches(told).count(), 1, "{said}");
        }
        return;
    }
    watched(2, || {
        let rt = runtime(2);
        refuse(&[libc::SYS_clone, libc::SYS_clone3], libc::EAGAIN);
        // The only thread is taken when the second goroutine comes.
        with_blocked(&rt, 1, || rt.go(|| ())).join().unwrap();
        let (gives, takes) = chan::bounded::<Runtime>(0);
        let (tell, hear) = channel();
        let _ends_it = rt.go(move || {
            let rt = takes.recv().unwrap();
            tell.send(rt.shutdown(SHUTDOWN_LIMIT)).unwrap();
        });
        gives.send(rt).unwrap();
        let report = hear.recv().unwrap();
        assert!(report.refused().threads() >= 2, "{report:?}");
    });
}

/// Calls `f` while `count` goroutines block their threads.
pub(super) fn with_blocked<T>(rt: &Runtime, count: usize, f: impl FnOnce() -> T) -> T {
    let (ends, calls): (Vec<_>, Vec<_>) = (0..count).map(|_| channel::<()>()).unzip();
    let begun = Arc::new(AtomicUsize::new(0));
    let block = |call: Receiver<()>| {
        let begun = Arc::clone(&begun);
        rt.go(move || {
            begun.fetch_add(1, SeqCst);
            call.recv().unwrap();
        })
    };
    let blocked: Vec<_> = calls.into_iter().map(block).collect();
    until(|| begun.load(SeqCst) == count);
    let value = f();
    ends.into_iter().for_each(|end| end.send(()).unwrap());
    blocked.into_iter().for_each(|one| one.join().unwrap());
    value
}
