//! A kernel that lacks a call, or a sandbox that refuses one, simulated by a filter on the system calls of one thread.

use gmp_netpoll::{Events, Poller, Timeout, WaitCall, Woken};
use std::error::Error;
use std::io;
use std::mem::offset_of;
use std::thread;
use std::time::{Duration, Instant};

/// From now on these calls fail with `errno` in this thread, and nothing else changes. Of the calls of `write` only those of
/// eight bytes fail, as into an eventfd.
fn refuse(calls: &[libc::c_long], errno: i32) -> io::Result<()> {
    let op = |code: u32, k: u32, skip_unless: u8| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: skip_unless,
        k,
    };
    let load = |at: usize| op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at as u32, 0);
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let refuse = op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | errno as u32, 0);
    let mut filter = Vec::new();
    for &call in calls {
        filter.push(load(offset_of!(libc::seccomp_data, nr)));
        if call == libc::SYS_write {
            let third_argument = offset_of!(libc::seccomp_data, args) + 2 * size_of::<u64>();
            filter.extend([op(equal, call as u32, 3), load(third_argument), op(equal, 8, 1), refuse]);
        } else {
            filter.extend([op(equal, call as u32, 1), refuse]);
        }
    }
    filter.push(op(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0));
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

/// The errors of each refusal: that of an old kernel, and those of sandboxes.
const ERRNOS: [i32; 4] = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL];

/// Runs `f` on a thread that ends with its filter.
fn filtered(f: impl FnOnce() + Send + 'static) {
    thread::spawn(f).join().expect("no panic in the thread with the filter");
}

/// Checks that a wait lasts as long as it should, and that a wake ends it, be it before the wait or during it.
fn works(poller: &Poller) {
    let mut events = Events::with_capacity(4);
    let (start, pause) = (Instant::now(), Duration::from_micros(1_500));
    assert_eq!(poller.wait(&mut events, Timeout::After(pause)).expect("a wait"), Woken::No);
    assert!(start.elapsed() >= pause);
    for _ in 0..3 {
        poller.wake().expect("a wake");
        poller.wake().expect("another, which counts once");
        assert_eq!(poller.wait(&mut events, Timeout::Forever).expect("a wait"), Woken::Yes);
        assert_eq!(poller.wait(&mut events, Timeout::Zero).expect("a look"), Woken::No);
    }
    thread::scope(|s| {
        let waits = s.spawn(|| poller.wait(&mut Events::with_capacity(1), Timeout::Forever).expect("a wait"));
        poller.wake().expect("a wake");
        assert_eq!(waits.join().expect("no panic"), Woken::Yes);
    });
}

/// Fails when `new` returns an error, or chooses a call whose refusal only the first wait shows.
#[test]
fn a_poller_chooses_what_the_kernel_allows() {
    for errno in ERRNOS {
        filtered(move || {
            refuse(&[libc::SYS_epoll_pwait2], errno).expect("a kernel with seccomp filters");
            let poller = Poller::new().expect("a poller");
            assert_eq!(poller.wait_call(), WaitCall::Ppoll);
            works(&poller);
        });
        filtered(move || {
            refuse(&[libc::SYS_epoll_pwait2, libc::SYS_ppoll], errno).expect("as above");
            let poller = Poller::new().expect("a poller");
            works(&poller);
            assert_eq!(poller.wait_call(), WaitCall::EpollPwait);
        });
    }
}

/// Fails when the first wait after the refusal returns an error.
#[test]
fn a_call_that_is_refused_later_is_replaced() {
    for errno in ERRNOS {
        filtered(move || {
            let poller = Poller::new().expect("a poller");
            works(&poller);
            let mut last = poller.wait_call();
            for (refused, call) in
                [(libc::SYS_epoll_pwait2, WaitCall::Ppoll), (libc::SYS_ppoll, WaitCall::EpollPwait)]
            {
                refuse(&[refused], errno).expect("as above");
                works(&poller);
                assert_ne!(last, call, "it was in use when it was refused");
                last = poller.wait_call();
                assert_eq!(last, call);
            }
        });
    }
}

/// Fails by a panic, or when a wait's error does not say what was refused.
#[test]
fn a_poller_whose_calls_are_all_refused_says_so() {
    filtered(|| {
        let poller = Poller::new().expect("a poller");
        let all = [libc::SYS_epoll_pwait2, libc::SYS_ppoll, libc::SYS_epoll_wait, libc::SYS_epoll_pwait];
        refuse(&all, libc::EACCES).expect("as above");
        for refused in [
            poller.wait(&mut Events::with_capacity(1), Timeout::Forever).expect_err("refused"),
            Poller::new().expect_err("refused"),
        ] {
            assert_eq!(os_error(&refused), Some(libc::EACCES));
            assert!(refused.to_string().starts_with("cannot wait for epoll's events: "), "{refused}");
        }
    });
}

/// Fails when the wake returns an error, or does not end a wait.
#[test]
fn a_wake_needs_no_write() {
    for errno in ERRNOS {
        filtered(move || {
            let poller = Poller::new().expect("a poller");
            works(&poller);
            refuse(&[libc::SYS_write], errno).expect("as above");
            works(&poller);
        });
    }
    filtered(|| {
        let poller = Poller::new().expect("a poller");
        refuse(&[libc::SYS_write, libc::SYS_epoll_ctl], libc::EPERM).expect("as above");
        let refused = poller.wake().expect_err("there is no other way");
        assert_eq!(os_error(&refused), Some(libc::EPERM));
    });
}

/// The process has no descriptor left. Fails when the wake returns an error, so that the wait goes on.
#[test]
fn a_wake_without_a_write_needs_no_descriptor() {
    filtered(|| {
        let poller = Poller::new().expect("a poller");
        refuse(&[libc::SYS_write, libc::SYS_eventfd2], libc::EMFILE).expect("as above");
        works(&poller);
    });
}

/// Fails when the spare eventfd ends a wait although the first one works: an idle process would not rest.
#[test]
fn the_spare_ends_no_wait_by_itself() {
    let poller = Poller::new().expect("a poller");
    let pause = Timeout::After(Duration::from_millis(1));
    let mut events = Events::with_capacity(4);
    for _ in 0..10 {
        assert_eq!(poller.wait(&mut events, pause).expect("a wait"), Woken::No);
        assert!(events.is_empty(), "{events:?}");
    }
}

/// Fails when the poller falls back without need.
#[test]
fn a_poller_prefers_epoll_pwait2() {
    let stubborn = Poller::with_wait_call(WaitCall::EpollPwait2).expect("a poller");
    let _nobody_woke = stubborn.wait(&mut Events::with_capacity(1), Timeout::Zero).expect("a look");
    assert_eq!(Poller::new().expect("a poller").wait_call(), stubborn.wait_call());
    // SAFETY: the arguments are those of a call on a descriptor that is none.
    let tried = unsafe { libc::syscall(libc::SYS_epoll_pwait2, -1, 0, 0, 0, 0, 0) };
    let has = tried == -1 && io::Error::last_os_error().raw_os_error() != Some(libc::ENOSYS);
    assert_eq!(stubborn.wait_call() == WaitCall::EpollPwait2, has);
}
