//! A poller in a forked child that never calls exec.

use gmp_netpoll::{Events, Key, Poller, Timeout, Woken};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The child closes its copy of a socket, as a server's child does that has no use for the listener. Fails when the parent's
/// poller reports nothing of the socket any more.
#[test]
fn what_a_forked_child_removes_its_parent_still_watches() {
    let poller = Poller::new().unwrap();
    let (near, mut far) = UnixStream::pair().unwrap();
    poller.add_for_reads(near.as_fd(), Key { index: 7, generation: 0 }).unwrap();
    // SAFETY: the child makes a system call, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let removed = poller.remove(near.as_fd());
        // SAFETY: ends the child without its parent's exit handlers.
        unsafe { libc::_exit(i32::from(removed.is_err())) }
    }
    let mut status = 0;
    // SAFETY: the kernel writes this word alone, which lives through the call.
    assert_eq!((unsafe { libc::waitpid(child, &raw mut status, 0) }, status), (child, 0));
    far.write_all(b"!").unwrap();
    let mut events = Events::with_capacity(8);
    assert_eq!(poller.wait(&mut events, Timeout::After(Duration::from_secs(10))).unwrap(), Woken::No);
    assert_eq!(events.iter().map(|event| event.key.index).collect::<Vec<_>>(), [7]);
    poller.remove(near.as_fd()).unwrap();
    assert!(poller.remove(near.as_fd()).is_err());
}
