#![cfg(not(gmp_loom))]
//! What the world refuses, at the start and later: the runtime does without, and says so once.

#[path = "common/child.rs"]
mod child;
mod common;

use common::{PROCS, everywhere, runtime, until, watched};
use gmp::{Runtime, go, yield_now};
use std::fs::File;
use std::io;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// How long the only P stays with a goroutine that blocks its thread, while another one waits: the median of some rounds, in the
/// best of some tries.
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
    (0..5).map(|_| median()).find(|&took| took < SOON).unwrap_or(Duration::MAX)
}

/// Less than what is waited where nobody can tell whether a thread is blocked, and far more than it takes where somebody can.
const SOON: Duration = Duration::from_millis(20);

/// All descriptors that this process may have.
fn all_descriptors() -> Vec<File> {
    let limit = libc::rlimit { rlim_cur: 64, rlim_max: 64 };
    // SAFETY: it reads the struct that we pass.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) }, 0);
    std::iter::from_fn(|| File::open("/dev/null").ok()).collect()
}

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
            assert!(hand_off_takes() < SOON);
            let full = all_descriptors();
            assert!(File::open("/dev/null").is_err());
            assert!(hand_off_takes() < SOON);
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

/// Fails by time where a thread is looked for under the number that it has in its own pid namespace, and not in that of `/proc`.
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
    watched(1, || runtime(1).run(|| assert!(hand_off_takes() < SOON)));
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
