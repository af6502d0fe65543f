//! Threads and futexes.

use super::clock;
use crate::prim::{Mutex, Rank};
use gmp_timers::Nanos;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;
use std::time::Duration;

/// So long `join` stays awake: a thread without destructors of the program's is gone before, and a sleep takes 50 µs more than
/// asked for, the thread's slack.
const AWAKE: Duration = Duration::from_micros(200);
/// How long `join` then sleeps between two looks, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Starts an M's thread. A panic that leaves the thread's body is a broken invariant of the scheduler, as goroutines
/// catch their own: it ends the process, after the panic hook has printed it.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(move || {
        if catch_unwind(AssertUnwindSafe(body)).is_err() {
            super::say(format_args!("fatal error: the scheduler panicked"));
            std::process::abort();
        }
    })
}

/// Waits for the end of a thread with all its destructors, until `until` at most; gives a thread back that is late.
///
/// std's `join` has no limit, and its `is_finished` tells of the end of the body. The C library waits with a limit, but on the
/// clock that an operator may set (`pthread_timedjoin_np`), or in glibc alone (`pthread_clockjoin_np`): so this looks again and
/// again.
pub(crate) fn join(thread: JoinHandle<()>, until: Nanos) -> Result<(), JoinHandle<()>> {
    let (awake, mut pause) = (clock::now().saturating_add(AWAKE), FIRST_PAUSE);
    // SAFETY: the handle has a thread that was neither joined nor detached.
    while unsafe { libc::pthread_tryjoin_np(thread.as_pthread_t(), ptr::null_mut()) } != 0 {
        let now = clock::now();
        let left = until.saturating_since(now);
        if left.is_zero() {
            return Err(thread);
        }
        if now < awake {
            std::thread::yield_now();
        } else {
            std::thread::sleep(pause.min(left));
            pause = LONGEST_PAUSE.min(2 * pause);
        }
    }
    // It was joined: the handle's drop would detach it. Its body ends the process rather than unwind, so there is no error.
    let _joined = thread.into_pthread_t();
    Ok(())
}

/// Runs `f` on a thread of its own, or on the caller's if no thread can be started.
pub(crate) fn run_aside(f: impl FnOnce() + Send + 'static) {
    let body = Arc::new(Mutex::new(Rank::Aside, Some(f)));
    let take = |body: &Mutex<Option<_>>| body.lock().take();
    let theirs = Arc::clone(&body);
    let started = std::thread::Builder::new().name("gmp-aside".to_owned()).spawn(move || {
        if let Some(f) = take(&theirs) {
            f();
        }
    });
    if started.is_err()
        && let Some(f) = take(&body)
    {
        f();
    }
}

/// Runs `f` on a thread of its own, while the caller waits. Returns `None` if no thread can be started, or `f` has
/// panicked.
pub(crate) fn run_beside<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
    let start = std::thread::Builder::new().name("gmp-beside".to_owned());
    std::thread::scope(|scope| start.spawn_scoped(scope, f).ok()?.join().ok())
}

/// Returns how many threads the process has. A thread that has ended may still count for a moment.
pub(crate) fn count() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    // The directory has a link for each thread, and two as any directory: a system call of a microsecond.
    let links = std::fs::metadata("/proc/self/task").ok()?.nlink();
    u32::try_from(links.checked_sub(2)?).ok().filter(|&count| count > 0)
}

/// How often `futex_wait` and `futex_wake` were called, but for the monitor, whose calls count the time.
#[cfg(gmp_policies)]
pub(crate) static FUTEX_CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[cfg(gmp_policies)]
fn count_futex_call() {
    if std::thread::current().name() != Some("gmp-sysmon") {
        // Relaxed: a count.
        FUTEX_CALLS.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Sleeps while `*word == expected`, at most for `limit`. Returns early at a signal.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, limit: Option<Duration>) {
    #[cfg(gmp_policies)]
    count_futex_call();
    let limit = limit.map(|limit| libc::timespec {
        tv_sec: libc::time_t::try_from(limit.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: libc::c_long::from(limit.subsec_nanos()),
    });
    let limit = limit.as_ref().map_or(std::ptr::null(), |limit| &raw const *limit);
    // SAFETY: the word and the limit live through the call; the kernel only compares the word.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
            expected,
            limit,
        );
    }
}

/// Wakes the one thread that sleeps on `word`. `word` may be freed already: then no thread sleeps there.
pub(crate) fn futex_wake(word: &AtomicU32) {
    #[cfg(gmp_policies)]
    count_futex_call();
    // SAFETY: the kernel uses the address as a name only.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
}
