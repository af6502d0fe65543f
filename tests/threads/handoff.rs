//! Hand-off: a goroutine that blocks its thread, or never yields, keeps no other goroutine from running. Only the test at the
//! limit of threads marks some of its calls with `blocking`.

use common::child;
use common::seccomp::refuse;
use common::{PROCS, everywhere, runtime, until, watched};
use gmp::chan;
use gmp::{Builder, Runtime, go, yield_now};
use std::fs::File;
use std::hint::spin_loop;
use std::io::{Read, Write};
use std::os::fd::FromRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

fn spin_until(flag: &AtomicBool) {
    while !flag.load(SeqCst) {
        spin_loop();
    }
}

/// Blocks as many goroutines as there are Ps, each in a call made by `call`, until another goroutine has run. That goroutine
/// gets no P as long as the blocked ones keep theirs.
#[track_caller]
fn others_run_beside<C, E>(call: impl Fn() -> (C, E))
where
    C: FnOnce() + Send + 'static,
    E: FnOnce() + Send + 'static,
{
    everywhere(|rt| {
        let (calls, ends): (Vec<_>, Vec<_>) = (0..rt.procs()).map(|_| call()).unzip();
        rt.run(|| {
            let blocked: Vec<_> = calls.into_iter().map(go).collect();
            let frees = go(move || ends.into_iter().for_each(|end| end()));
            blocked.into_iter().for_each(|goroutine| goroutine.join().unwrap());
            frees.join().unwrap();
        });
    });
}

/// Fails by a hang, like the five tests below.
#[test]
fn a_lock_of_std_stalls_nobody() {
    others_run_beside(|| {
        let pair = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = Arc::clone(&pair);
        let wait = move || {
            let done = theirs.0.lock().unwrap();
            drop(theirs.1.wait_while(done, |done| !*done).unwrap());
        };
        let end = move || {
            *pair.0.lock().unwrap() = true;
            pair.1.notify_all();
        };
        (wait, end)
    });
}

#[test]
fn a_channel_of_std_stalls_nobody() {
    others_run_beside(|| {
        let (out, r#in) = mpsc::channel::<()>();
        (move || r#in.recv().unwrap(), move || out.send(()).unwrap())
    });
}

#[test]
fn a_read_of_a_pipe_stalls_nobody() {
    others_run_beside(|| {
        let mut ends = [0; 2];
        // SAFETY: writes two descriptors.
        assert_eq!(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) }, 0);
        // SAFETY: both are open, and no other object owns them.
        let [mut from, mut to] = ends.map(|fd| unsafe { File::from_raw_fd(fd) });
        let read = move || assert_eq!(from.read(&mut [0; 8]).unwrap(), 1);
        (read, move || assert_eq!(to.write(&[7]).unwrap(), 1))
    });
}

#[test]
fn a_socket_of_std_stalls_nobody() {
    others_run_beside(|| {
        let (mut from, mut to) = UnixStream::pair().unwrap();
        let read = move || assert_eq!(from.read(&mut [0; 8]).unwrap(), 1);
        (read, move || assert_eq!(to.write(&[7]).unwrap(), 1))
    });
}

#[test]
fn a_join_of_a_thread_stalls_nobody() {
    others_run_beside(|| {
        let (out, r#in) = mpsc::channel::<()>();
        let thread = thread::spawn(move || r#in.recv().unwrap());
        (move || thread.join().unwrap(), move || out.send(()).unwrap())
    });
}

#[test]
fn a_loop_that_never_yields_stalls_nobody() {
    others_run_beside(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&flag);
        (move || spin_until(&theirs), move || flag.store(true, SeqCst))
    });
}

/// While a goroutine has no P, calls that never park work as before: it starts goroutines, sends, and drops a sender. Then it
/// parks and comes back. Fails by a hang, or when a goroutine runs twice or not at all.
#[test]
fn a_goroutine_that_lost_its_p_goes_on() {
    everywhere(|rt| {
        rt.run(|| {
            let count = Arc::new(AtomicUsize::new(0));
            let rounds = if cfg!(debug_assertions) { 5 } else { 20 };
            let hogs: Vec<_> = (0..gmp::procs() + 1)
                .map(|_| {
                    let count = Arc::clone(&count);
                    go(move || {
                        for _ in 0..rounds {
                            let (s, r) = chan::unbounded();
                            let lost = Arc::new(AtomicBool::new(false));
                            let theirs = Arc::clone(&lost);
                            // This goroutine runs once ours has lost its P, or on another P.
                            let runs = go(move || theirs.store(true, SeqCst));
                            spin_until(&lost);
                            let made: Vec<_> = (0..10)
                                .map(|n| {
                                    let (s, count) = (s.clone(), Arc::clone(&count));
                                    go(move || {
                                        count.fetch_add(1, SeqCst);
                                        s.send(n).unwrap();
                                    })
                                })
                                .collect();
                            s.try_send(10).unwrap();
                            drop(s);
                            // The first call that may park.
                            let mut got: Vec<u32> = r.iter().collect();
                            got.sort();
                            assert_eq!(got, Vec::from_iter(0..=10));
                            made.into_iter().for_each(|made| made.join().unwrap());
                            runs.join().unwrap();
                        }
                    })
                })
                .collect();
            let hogs_count = hogs.len();
            hogs.into_iter().for_each(|hog| hog.join().unwrap());
            assert_eq!(count.load(SeqCst), hogs_count * rounds * 10);
        });
    });
}

/// Returns the longest time, in a stretch of 100 ms, that one of `threads` busy threads waits for a CPU on this machine.
fn kernel_gap(threads: usize) -> Duration {
    let over = AtomicBool::new(false);
    let worst = Mutex::new(Duration::ZERO);
    thread::scope(|s| {
        for _ in 0..threads {
            s.spawn(|| {
                let (mut last, mut gap) = (Instant::now(), Duration::ZERO);
                while !over.load(SeqCst) {
                    let now = Instant::now();
                    gap = gap.max(now - last);
                    last = now;
                }
                let mut worst = worst.lock().unwrap();
                *worst = gap.max(*worst);
            });
        }
        thread::sleep(100 * MS);
        over.store(true, SeqCst);
    });
    worst.into_inner().unwrap()
}

/// Fails by time when, with as many hogs as Ps, a new goroutine waits longer than a slice, beyond the time that the kernel
/// alone makes busy threads wait. Each round has new hogs, and the goroutine comes at another moment of their slice.
#[test]
fn a_new_goroutine_starts_within_a_slice_beside_hogs() {
    for procs in [1, 2, 4] {
        watched(procs, || {
            let rt = runtime(procs);
            let judge = || {
                // As many threads as the hogs, the monitor, and the M that runs the new goroutine; the machine's other load
                // adds to the gap.
                let gap = kernel_gap(procs + 2);
                let mut waits: Vec<Duration> = (0..30).map(|nth| wait_beside_hogs(&rt, procs, nth)).collect();
                waits.sort();
                let (p50, worst) = (waits[15], waits[29]);
                (p50 <= 10 * MS + gap && worst <= 20 * MS + 2 * gap, p50, worst, gap)
            };
            let tries: Vec<_> = (0..5).map(|_| judge()).take_while(|tried| !tried.0).collect();
            assert!(tries.len() < 5, "(within limits, p50, worst, the kernel's own gap): {tries:?}");
        });
    }
}

fn wait_beside_hogs(rt: &Runtime, procs: usize, nth: u32) -> Duration {
    let over = Arc::new(AtomicBool::new(false));
    let running = Arc::new(AtomicUsize::new(0));
    let hogs: Vec<_> = (0..procs)
        .map(|_| {
            let (over, running) = (Arc::clone(&over), Arc::clone(&running));
            rt.go(move || {
                running.fetch_add(1, SeqCst);
                spin_until(&over);
            })
        })
        .collect();
    until(|| running.load(SeqCst) == procs);
    thread::sleep(nth * MS / 3);
    let asked = Instant::now();
    let waited = rt.go(move || asked.elapsed()).join().unwrap();
    over.store(true, SeqCst);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
    waited
}

#[test]
fn without_hand_off_a_hog_keeps_its_p() {
    if !child::is_child() {
        child::passes("without_hand_off_a_hog_keeps_its_p", &[("GMPDEBUG", "handoff=0")]);
        return;
    }
    watched(1, || {
        runtime(1).run(|| {
            let ran = Arc::new(AtomicBool::new(false));
            let theirs = Arc::clone(&ran);
            let other = go(move || theirs.store(true, SeqCst));
            let start = Instant::now();
            while start.elapsed() < 100 * MS {
                spin_loop();
            }
            assert!(!ran.load(SeqCst), "it would have to run on this thread");
            other.join().unwrap();
        });
    });
}

/// If the kernel refuses `membarrier`, each side of the hand-off fences. Fails by a hang or, in a debug build, by an assertion.
#[test]
fn hand_off_works_where_the_kernel_has_no_membarrier() {
    if !child::is_child() {
        child::passes("hand_off_works_where_the_kernel_has_no_membarrier", &[]);
        return;
    }
    refuse(&[libc::SYS_membarrier], libc::EPERM);
    a_loop_that_never_yields_stalls_nobody();
    a_goroutine_that_lost_its_p_goes_on();
}

/// When every allowed thread is in a blocking call, runnable goroutines wait for a thread, and the operator is told once. Fails
/// by a hang, or when the operator is not told, or is told for each call.
#[test]
fn at_the_limit_of_threads_what_is_runnable_waits_and_nothing_hangs() {
    if !child::is_child() {
        let said = child::passes("at_the_limit_of_threads_what_is_runnable_waits_and_nothing_hangs", &[]);
        let told = "gmp: all threads that a runtime may have are in use: goroutines wait for one (RuntimeBuilder::max_threads is 2)\n";
        assert_eq!(said.matches(told).count(), 1, "{said}");
        return;
    }
    watched(2, || {
        // SAFETY: as in `common::runtime`.
        let rt = unsafe { Runtime::builder().procs(2).max_threads(2).build() }.unwrap();
        for marked in [true, false, true] {
            let (ends, calls): (Vec<_>, Vec<_>) = (0..2).map(|_| mpsc::channel::<()>()).unzip();
            let (begun, begins) = mpsc::channel();
            let blocked: Vec<_> = calls
                .into_iter()
                .map(|call| {
                    let begun = begun.clone();
                    rt.go(move || {
                        begun.send(()).unwrap();
                        let wait = || call.recv().unwrap();
                        if marked { gmp::blocking(wait) } else { wait() }
                    })
                })
                .collect();
            (0..2).for_each(|_| begins.recv().unwrap());
            let waits = rt.go(|| ());
            // Meanwhile the monitor looks several times.
            thread::sleep(30 * MS);
            assert!(!waits.is_finished(), "there is no thread for it");
            drop(ends.into_iter().map(|end| end.send(()).unwrap()).collect::<Vec<_>>());
            waits.join().unwrap();
            blocked.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        }
    });
}

/// Fails when each call takes one more thread.
#[test]
fn threads_of_blocking_calls_are_used_again() {
    for procs in PROCS {
        watched(procs, || {
            let rt = runtime(procs);
            rt.run(|| {
                let mut numbers = std::collections::HashSet::new();
                for _ in 0..50 {
                    let (end, call) = mpsc::channel();
                    // SAFETY: gettid has no preconditions.
                    let blocked = go(move || (call.recv().unwrap(), unsafe { libc::gettid() }).1);
                    yield_now();
                    let frees = Builder::new().name("frees").go(move || end.send(()).unwrap()).unwrap();
                    numbers.insert(blocked.join().unwrap());
                    frees.join().unwrap();
                }
                assert!(numbers.len() <= procs + 8, "{} threads for one call at a time", numbers.len());
            });
        });
    }
}
