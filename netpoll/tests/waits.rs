//! The events that end a wait (a wake, an event, a signal), and those that do not.

use gmp_netpoll::{Events, Key, Poller, Timeout, WaitCall, Woken};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering::SeqCst};
use std::thread::{self, ScopedJoinHandle};
use std::time::{Duration, Instant};
use std::{fs, ptr};

const HOUR: Timeout = Timeout::After(Duration::from_secs(3600));
const LIMIT: Duration = Duration::from_secs(20);

fn pollers() -> [Poller; 3] {
    [WaitCall::EpollPwait2, WaitCall::Ppoll, WaitCall::EpollPwait]
        .map(|call| Poller::with_wait_call(call).expect("a poller"))
}

fn look(poller: &Poller) -> (Woken, usize) {
    let mut events = Events::with_capacity(4);
    let woken = poller.wait(&mut events, Timeout::Zero).expect("a look");
    (woken, events.iter().len())
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let start = Instant::now();
    while !reached() {
        assert!(start.elapsed() < LIMIT, "{what}: not reached in {LIMIT:?}");
        thread::yield_now();
    }
}

/// A thread that makes one wait.
struct Waiting<'scope> {
    thread: ScopedJoinHandle<'scope, io::Result<(Woken, usize)>>,
    tid: i32,
}

impl<'scope> Waiting<'scope> {
    fn start<'env>(
        scope: &'scope thread::Scope<'scope, 'env>,
        poller: &'env Poller,
        timeout: Timeout,
    ) -> Self {
        let own_tid: &AtomicI32 = Box::leak(Box::default());
        let thread = scope.spawn(move || {
            // SAFETY: gettid has no preconditions.
            own_tid.store(unsafe { libc::gettid() }, SeqCst);
            let mut events = Events::with_capacity(4);
            let woken = poller.wait(&mut events, timeout)?;
            Ok((woken, events.iter().len()))
        });
        until("the thread runs", || own_tid.load(SeqCst) != 0);
        Self { thread, tid: own_tid.load(SeqCst) }
    }

    /// Returns once the kernel shows the thread asleep in one of the calls that wait.
    fn until_asleep(&self) {
        let calls = [
            libc::SYS_epoll_pwait2,
            libc::SYS_epoll_pwait,
            libc::SYS_ppoll,
            #[cfg(target_arch = "x86_64")]
            libc::SYS_epoll_wait,
        ];
        until("the thread is asleep in its wait", || {
            let shown = fs::read_to_string(format!("/proc/self/task/{}/syscall", self.tid));
            let shown = shown.expect("the thread has ended its wait, or /proc is not there");
            let number = shown.split_whitespace().next().and_then(|number| number.parse().ok());
            number.is_some_and(|number| calls.contains(&number))
        });
    }

    fn signal(&self) {
        // SAFETY: the thread has not been joined and SIGUSR1 has a handler (`count_signals`); a thread that
        // has ended makes an error, asserted.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, libc::SIGUSR1) };
        assert_eq!(sent, 0, "{}", io::Error::last_os_error());
    }

    fn end(self) -> (Woken, usize) {
        self.thread.join().expect("no panic").expect("a wait that is not refused")
    }
}

/// Fails when a wake does not end a wait.
#[test]
fn a_wake_ends_a_blocked_wait() {
    for poller in pollers() {
        for timeout in [Timeout::Forever, HOUR, Timeout::After(Duration::MAX)] {
            thread::scope(|scope| {
                let waiting = Waiting::start(scope, &poller, timeout);
                waiting.until_asleep();
                poller.wake().expect("a wake");
                assert_eq!(waiting.end(), (Woken::Yes, 0), "{timeout:?}");
            });
            assert_eq!(look(&poller), (Woken::No, 0), "the wake was used up");
        }
    }
}

#[test]
fn an_event_ends_a_blocked_wait() {
    for poller in pollers() {
        let (near, far) = UnixStream::pair().expect("a pair");
        poller.add(near.as_fd(), Key { index: 0, generation: 0 }).expect("added");
        assert_eq!(look(&poller), (Woken::No, 1), "writable at once");
        for timeout in [Timeout::Forever, HOUR] {
            thread::scope(|scope| {
                let waiting = Waiting::start(scope, &poller, timeout);
                waiting.until_asleep();
                (&far).write_all(b"x").expect("written");
                assert_eq!(waiting.end(), (Woken::No, 1), "{timeout:?}");
            });
        }
    }
}

#[test]
fn wakes_before_a_wait_count_once() {
    for poller in pollers() {
        for _ in 0..3 {
            poller.wake().expect("a wake");
        }
        assert_eq!(look(&poller), (Woken::Yes, 0));
        assert_eq!(look(&poller), (Woken::No, 0));
        poller.wake().expect("a wake");
        assert_eq!(look(&poller), (Woken::Yes, 0), "a later wake is a new edge");
    }
}

/// The documented price of a look: it takes the wake that was meant for a wait, which then goes to sleep, so the thread that
/// looked has to wake again. Fails by `until_asleep` if the swallowed wake ends the wait after all.
#[test]
fn a_look_swallows_a_wake() {
    for poller in pollers() {
        for timeout in [Timeout::Forever, HOUR] {
            poller.wake().expect("a wake");
            assert_eq!(look(&poller), (Woken::Yes, 0));
            thread::scope(|scope| {
                let waiting = Waiting::start(scope, &poller, timeout);
                waiting.until_asleep();
                assert_eq!(look(&poller), (Woken::No, 0), "a look beside a blocked wait returns at once");
                poller.wake().expect("a second wake");
                assert_eq!(waiting.end(), (Woken::Yes, 0));
            });
        }
    }
}

static SIGNALS: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, SeqCst);
}

fn count_signals() {
    // SAFETY: all zeros is a valid sigaction; the handler only touches an atomic.
    let installed = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = count as extern "C" fn(libc::c_int) as usize;
        libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut())
    };
    assert_eq!(installed, 0);
}

/// Fails by an error, when a finite wait goes on (for an hour), or when an endless wait returns for the signal.
#[test]
fn a_signal_ends_only_a_finite_wait() {
    count_signals();
    for poller in pollers() {
        thread::scope(|scope| {
            let finite = Waiting::start(scope, &poller, HOUR);
            finite.until_asleep();
            finite.signal();
            assert_eq!(finite.end(), (Woken::No, 0));

            let endless = Waiting::start(scope, &poller, Timeout::Forever);
            endless.until_asleep();
            let before = SIGNALS.load(SeqCst);
            endless.signal();
            until("the handler ran", || SIGNALS.load(SeqCst) > before);
            endless.until_asleep();
            poller.wake().expect("a wake");
            assert_eq!(endless.end(), (Woken::Yes, 0));
        });
    }
}
