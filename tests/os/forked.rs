//! What a forked child that never calls exec shares with its parent, and what it does not.

use common::seccomp::SYS_POLL;
use common::{child, forked, seccomp, until};
use gmp::context::Context;
use gmp::io::{PipeReader, PipeWriter, copy, pipe};
use gmp::process::{ChildStdin, Command, Stdio};
use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

/// Runs `f` in a process that has no threads of other tests.
#[track_caller]
fn alone(test: &str, f: impl FnOnce()) {
    if child::is_child() { f() } else { drop(child::passes(test, &[])) }
}

/// Whether a thread of this process is in this system call, and so holds no lock of the library's.
fn a_thread_waits_by(call: libc::c_long) -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap().filter_map(Result::ok);
    let mut calls = tasks.filter_map(|task| fs::read_to_string(task.path().join("syscall")).ok());
    calls.any(|says| says.starts_with(&format!("{call} ")))
}

/// Returns how many bytes wait in the pipe.
fn held(pipe: &impl AsRawFd) -> usize {
    let mut bytes: libc::c_int = 0;
    // SAFETY: an int, which lives through the call.
    assert_eq!(unsafe { libc::ioctl(pipe.as_raw_fd(), libc::FIONREAD, &raw mut bytes) }, 0);
    bytes as usize
}

/// What a pipe holds.
const FULL: usize = 64 << 10;
/// What follows after the copy has come to trust the kernel with the bytes.
const MORE: usize = 10_000;

/// Returns the ends of a pipe that holds `FULL` bytes.
fn full_source(byte: u8) -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = pipe().unwrap();
    writer.write_all(&vec![byte; FULL]).unwrap();
    (reader, writer)
}

/// Copies `FULL` and `MORE` bytes, the last by the kernel, and returns what came.
fn copied(byte: u8) -> Vec<u8> {
    let (source, mut feeds) = full_source(byte);
    let (mut reads, sink) = pipe().unwrap();
    thread::scope(|threads| {
        threads.spawn(move || {
            feeds.write_all(&[byte; MORE]).unwrap();
        });
        threads.spawn(move || copy(&source, &sink).unwrap());
        let mut got = Vec::new();
        reads.read_to_end(&mut got).unwrap();
        got
    })
}

/// The parent keeps a pipe for its next copy while another copy is under way. Fails when a copy of the child's takes that pipe,
/// too: then the parent's sink gets the child's bytes.
#[test]
fn a_copy_in_a_forked_child_takes_no_pipe_of_its_parents() {
    alone("a_copy_in_a_forked_child_takes_no_pipe_of_its_parents", || {
        let (idle, keeps_going) = pipe().unwrap();
        let under_way = thread::spawn(move || copy(&idle, &pipe().unwrap().1));
        until(|| a_thread_waits_by(libc::SYS_ppoll));
        assert!(copied(b'a').iter().all(|&byte| byte == b'a'));
        let (source, mut feeds) = full_source(b'b');
        let (_full, sink) = pipe().unwrap();
        let child = forked::fork(|| copy(&source, &sink).is_ok());
        until(|| held(&source) == 0);
        feeds.write_all(&[b'b'; MORE]).unwrap();
        until(|| held(&source) == 0);
        let got = copied(b'a');
        assert_eq!(got.iter().filter(|&&byte| byte != b'a').count(), 0);
        drop((child, keeps_going));
        assert_eq!(under_way.join().unwrap().unwrap(), 0);
    });
}

/// The parent's reaper waits for a child of the parent's. Fails when a forked child counts on that thread, and its own child
/// stays a zombie.
#[test]
fn a_forked_child_reaps_its_own_children() {
    alone("a_forked_child_reaps_its_own_children", || {
        /// Drops a child that lives until its input ends.
        fn dropped() -> (u32, Option<ChildStdin>) {
            let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
            (child.id(), child.stdin.take())
        }
        let _lives = dropped();
        until(|| a_thread_waits_by(SYS_POLL));
        let ended = forked::fork(|| {
            let (pid, input) = dropped();
            drop(input);
            let limit = Instant::now() + Duration::from_secs(10);
            let is_reaped = || fs::metadata(format!("/proc/{pid}")).is_err();
            // The child has no thread that would end a test that hangs.
            until(|| is_reaped() || Instant::now() > limit);
            is_reaped()
        });
        assert!(ended.wait().success());
    });
}

/// The parent's timer thread waits for a timer of the parent's. Fails when a forked child counts on that thread, and its own
/// timer never fires.
#[test]
fn a_forked_child_has_timers_without_a_runtime() {
    alone("a_forked_child_has_timers_without_a_runtime", || {
        let _parents = gmp::time::after_func(Duration::from_secs(3600), || panic!("it is not that late"));
        let ended = forked::ends(has_timers);
        assert!(ended.success(), "{ended}");
    });
}

/// A function that an ended context calls forks while another function waits behind it, for which a thread stands by. Fails
/// when a forked child counts on that thread, and calls none of its own contexts' functions.
#[test]
fn a_forked_child_calls_what_waits_for_its_contexts() {
    alone("a_forked_child_calls_what_waits_for_its_contexts", || {
        let (context, cancel) = Context::background().with_cancel();
        let ((told, is_told), (hold, held)) = (channel(), channel::<()>());
        let _blocks = context.after_func(move || _ = held.recv());
        let _forks = context.after_func(move || {
            let child = forked::fork(|| {
                let (called, is_called) = channel();
                let (own, cancel) = Context::background().with_cancel();
                let _calls = own.after_func(move || called.send(()).unwrap());
                cancel.cancel();
                is_called.recv_timeout(Duration::from_secs(10)).is_ok()
            });
            told.send(child.wait()).unwrap();
        });
        let _waits = context.after_func(|| {});
        cancel.cancel();
        let ended = is_told.recv().unwrap();
        drop(hold);
        assert!(ended.success(), "{ended}");
    });
}

/// Sets a timer that no runtime runs, and returns `true` once the timer has fired.
fn has_timers() -> bool {
    let (fired, fires) = channel();
    let _own = gmp::time::after_func(Duration::ZERO, move || fired.send(()).unwrap());
    fires.recv_timeout(Duration::from_secs(10)).is_ok()
}

/// A handler of `pthread_atfork` that the program has installed before its first call of the library runs in the child before
/// any of the library's. Fails when that handler's timer waits for the parent's timer thread.
#[test]
fn a_forked_child_has_timers_in_its_first_handler() {
    static HAS_TIMERS: AtomicBool = AtomicBool::new(false);
    extern "C" fn in_child() {
        HAS_TIMERS.store(has_timers(), SeqCst);
    }
    alone("a_forked_child_has_timers_in_its_first_handler", || {
        // SAFETY: the function is called in a child whose parent's other threads hold no lock.
        assert_eq!(unsafe { libc::pthread_atfork(None, None, Some(in_child)) }, 0);
        let _parents = gmp::time::after_func(Duration::from_secs(3600), || panic!("it is not that late"));
        let ended = forked::ends(|| HAS_TIMERS.load(SeqCst));
        assert!(ended.success(), "{ended}");
    });
}

/// The kernel is too old to wipe a page in a child, or forbids it. Fails when such a child is not told from its parent.
#[test]
fn a_forked_child_is_told_from_its_parent_where_no_page_is_wiped() {
    alone("a_forked_child_is_told_from_its_parent_where_no_page_is_wiped", || {
        const MOST: u32 = libc::MADV_WIPEONFORK as u32 - 1;
        seccomp::refuse_above(libc::SYS_madvise, 2, MOST, libc::EINVAL);
        let _parents = gmp::time::after_func(Duration::from_secs(3600), || panic!("it is not that late"));
        let ended = forked::ends(|| has_timers() && forked::ends(has_timers).success());
        assert!(ended.success(), "{ended}");
    });
}
