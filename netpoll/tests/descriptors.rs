//! The poller's own descriptors: closed at the poller's end, closed on exec, and a clear error when no descriptor is left. This
//! test runs alone in its process, because it counts the descriptors of all threads and lowers their limit.

use gmp_netpoll::{Events, Key, Poller, Timeout, WaitCall};
use std::collections::BTreeSet;
use std::error::Error;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// Returns the open descriptors, without the one that lists them, which is closed again.
fn open() -> BTreeSet<u32> {
    let listed =
        fs::read_dir("/proc/self/fd").expect("procfs").map(|entry| entry.expect("an entry").file_name());
    let listed: Vec<u32> =
        listed.map(|name| name.to_str().and_then(|n| n.parse().ok()).expect("a number")).collect();
    listed.into_iter().filter(|fd| fs::read_link(format!("/proc/self/fd/{fd}")).is_ok()).collect()
}

fn lower_the_limit_to(most: libc::rlim_t) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointers are to a local of the right type, and only the soft limit changes.
    let lowered = unsafe {
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = most;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit)
    };
    assert_eq!(lowered, 0, "{}", io::Error::last_os_error());
}

fn use_and_drop(call: WaitCall) -> io::Result<()> {
    let poller = Poller::with_wait_call(call)?;
    let (near, _far) = UnixStream::pair()?;
    poller.add(near.as_fd(), Key { index: 0, generation: 0 })?;
    poller.wake()?;
    _ = poller.wait(&mut Events::with_capacity(8), Timeout::Forever)?;
    Ok(())
}

fn assert_closed_on_exec(fds: &BTreeSet<u32>) {
    for fd in fds {
        let info = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("procfs");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags").trim();
        let flags = i32::from_str_radix(flags, 8).expect("octal");
        assert_ne!(flags & libc::O_CLOEXEC, 0, "descriptor {fd}: {info}");
    }
}

fn assert_refused(attempt: &str) {
    let err = Poller::new().expect_err("no descriptor is left");
    let text = err.to_string();
    assert!(text.starts_with(&format!("cannot {attempt}: ")), "{text}");
    assert!(text.contains("this process may have 64 open (RLIMIT_NOFILE"), "{text}");
    let cause = err.source().and_then(|source| source.downcast_ref::<io::Error>());
    assert_eq!(cause.and_then(io::Error::raw_os_error), Some(libc::EMFILE));
}

/// Fails if a descriptor is left open at the end of any of the four parts.
#[test]
fn descriptors_do_not_leak_and_their_lack_is_an_error() {
    let before = open();
    for call in [WaitCall::EpollPwait2, WaitCall::Ppoll] {
        for _ in 0..50 {
            use_and_drop(call).expect("a poller's life");
        }
    }
    assert_eq!(open(), before, "pollers leak");

    let poller = Poller::new().expect("a poller");
    let own = &open() - &before;
    assert_eq!(own.len(), 3, "an epoll descriptor and two eventfds");
    assert_closed_on_exec(&own);
    drop(poller);

    lower_the_limit_to(64);
    let mut hogs: Vec<File> = Vec::new();
    while let Ok(hog) = File::open("/dev/null") {
        hogs.push(hog);
    }
    assert_refused("create an epoll descriptor");
    hogs.pop();
    assert_refused("create the eventfd that ends a wait");
    hogs.pop();
    assert_refused("create the spare eventfd that ends a wait");
    hogs.pop();
    Poller::new().expect("three descriptors are enough, and the failures kept none");
}
