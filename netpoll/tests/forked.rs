//! A poller in a forked child that never calls exec.

use gmp_netpoll::{Events, Key, Poller, ProcessMark, Timeout, Woken};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// The child closes its copy of a socket, as a server's child does that has no use for the listener. Fails when the parent's
/// poller reports nothing of the socket any more.
#[test]
fn what_a_forked_child_removes_its_parent_still_watches() {
    // SAFETY: the child makes a system call, and ends.
    still_watches(|| unsafe { libc::fork() });
}

/// Fails when the handlers of `pthread_atfork` tell the child from its parent: this child runs none.
#[test]
fn what_a_child_without_handlers_removes_its_parent_still_watches() {
    // SAFETY: no pointers. The kernel knows no such advice.
    if unsafe { libc::madvise(std::ptr::null_mut(), 0, -1) } == 0 {
        return eprintln!("skipped: an emulator ignores all advice");
    }
    // SAFETY: a constant name.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_Fork".as_ptr()) };
    if found.is_null() {
        return eprintln!("skipped: this C library has no _Fork");
    }
    // SAFETY: the function with this name has this signature (POSIX.1-2024).
    let fork: unsafe extern "C" fn() -> libc::pid_t = unsafe { std::mem::transmute(found) };
    // SAFETY: the child makes a system call, and ends.
    still_watches(|| unsafe { fork() });
}

fn still_watches(fork: impl FnOnce() -> libc::pid_t) {
    let poller = Poller::new().unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    poller.add_for_reads(near.as_fd(), Key { index: 7, generation: 0 }).unwrap();
    let child = fork();
    if child == 0 {
        let removed = poller.remove(near.as_fd());
        // SAFETY: ends the child without its parent's exit handlers.
        unsafe { libc::_exit(i32::from(removed.is_err())) }
    }
    assert_eq!(status(child), 0);
    far.write_all(b"!").unwrap();
    let mut events = Events::with_capacity(8);
    assert_eq!(poller.wait(&mut events, Timeout::After(Duration::from_secs(10))).unwrap(), Woken::No);
    assert_eq!(events.iter().map(|event| event.key.index).collect::<Vec<_>>(), [7]);
    poller.remove(near.as_fd()).unwrap();
    assert!(poller.remove(near.as_fd()).is_err());
}

/// Each is the first process of a PID namespace. Fails when the process's id is the mark.
#[test]
fn a_child_is_told_from_a_parent_with_the_same_id() {
    /// Returns the status of a child that returns `f`.
    fn forked(f: impl FnOnce() -> i32) -> i32 {
        // SAFETY: the child makes system calls, and ends.
        match unsafe { libc::fork() } {
            // SAFETY: ends the child without its parent's exit handlers.
            0 => unsafe { libc::_exit(catch_unwind(AssertUnwindSafe(f)).unwrap_or(99)) },
            child => status(child),
        }
    }
    const REFUSED: i32 = 77;
    // SAFETY: no pointers.
    let unshare = |kinds| unsafe { libc::unshare(kinds) } == 0;
    let ended = forked(|| {
        if !unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) {
            return REFUSED;
        }
        forked(|| {
            let (mark, first) = (ProcessMark::of_this_process(), std::process::id());
            let is_apart = unshare(libc::CLONE_NEWPID);
            let childs = forked(|| i32::from((std::process::id(), mark.is_of_this_process()) != (1, false)));
            i32::from(!(first == 1 && is_apart && childs == 0 && mark.is_of_this_process()))
        })
    });
    match ended {
        REFUSED => eprintln!("skipped: no PID namespace can be had"),
        ended => assert_eq!(ended, 0),
    }
}

/// Waits for the child's end, and returns its exit status.
fn status(child: libc::pid_t) -> i32 {
    assert!(child > 0, "fork: {}", std::io::Error::last_os_error());
    let mut status = 0;
    // SAFETY: the kernel writes this word alone, which lives through the call.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "{status:#x}");
    libc::WEXITSTATUS(status)
}
