//! A kernel without `epoll_pwait2`, played by a filter on the system calls of one thread.

use gmp_netpoll::{Events, Poller, Timeout, WaitCall, Woken};
use std::error::Error;
use std::io;
use std::thread;
use std::time::{Duration, Instant};

/// From now on `epoll_pwait2` fails with `errno` in this thread, and nothing else changes.
fn refuse_epoll_pwait2(errno: i32) -> io::Result<()> {
    let op = |code: u32, k: u32, skip_unless: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip_unless,
        k,
    };
    // The number of the call stands at offset 0 of what the filter is shown.
    let mut filter = [
        op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        op(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_epoll_pwait2 as u32, 1),
        op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0),
        op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter are locals that outlive the calls, which copy them; the kernel
    // checks them.
    let refused = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0
            || libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) != 0
    };
    if refused { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn os_error(err: &io::Error) -> Option<i32> {
    err.source().and_then(|source| source.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error)
}

/// Fails by an error from `new`, or by a choice that only shows in the first wait.
#[test]
fn a_poller_chooses_what_the_kernel_has() {
    for errno in [libc::ENOSYS, libc::EPERM] {
        let filtered = thread::spawn(move || {
            refuse_epoll_pwait2(errno).expect("a kernel with seccomp filters");
            let mut events = Events::with_capacity(4);

            let stubborn = Poller::with_wait_call(WaitCall::EpollPwait2).expect("a poller");
            let refused = stubborn.wait(&mut events, Timeout::Zero).expect_err("the filter refuses it");
            assert_eq!(os_error(&refused), Some(errno));
            assert!(refused.to_string().starts_with("cannot wait for epoll's events: "), "{refused}");

            let poller = Poller::new().expect("a poller");
            assert_eq!(poller.wait_call(), WaitCall::Ppoll);
            let (start, pause) = (Instant::now(), Duration::from_micros(1_500));
            assert_eq!(poller.wait(&mut events, Timeout::After(pause)).expect("a wait"), Woken::No);
            assert!(start.elapsed() >= pause);
            poller.wake().expect("a wake");
            assert_eq!(poller.wait(&mut events, Timeout::Forever).expect("a wait"), Woken::Yes);
        });
        filtered.join().expect("no panic in the thread with the filter");
    }
}

/// Fails by falling back where there is no need.
#[test]
fn a_poller_prefers_epoll_pwait2() {
    let stubborn = Poller::with_wait_call(WaitCall::EpollPwait2).expect("a poller");
    let has = stubborn.wait(&mut Events::with_capacity(1), Timeout::Zero).is_ok();
    let chosen = Poller::new().expect("a poller").wait_call();
    assert_eq!(chosen, if has { WaitCall::EpollPwait2 } else { WaitCall::Ppoll });
}
