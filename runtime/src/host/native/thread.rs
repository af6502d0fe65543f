//! Threads and futexes.

use super::clock;
use super::shared::starting;
use super::stderr::say;
use gmp_timers::Nanos;
use std::io;
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread::{Builder, JoinHandle, Scope, ScopedJoinHandle};
use std::time::Duration;

/// How long `join` stays awake: a thread without destructors of the program's ends sooner, and a sleep takes 50 µs more than
/// asked for, the thread's slack.
const AWAKE: Duration = Duration::from_micros(200);
/// How long `join` then sleeps between two looks, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// std's size of a thread's stack if the environment's `RUST_MIN_STACK` names none; and the least size, since dumps look up
/// symbols on our threads.
const STACK: usize = 2 << 20;
const LEAST_STACK: usize = 256 << 10;
/// How many regions a new thread maps, each two mappings, as it has pages beside it that must not be touched: before the body
/// runs, its stack, a heap of the C library's, and std's signal stack; soon afterwards a signal stack of ours, which may come
/// between another start's look and its thread.
const ISLANDS: usize = 4;
/// Bytes that a new thread writes besides the stack, and signal stacks of a larger size than usual.
const BESIDES: usize = 256 << 10;
/// For how many threads at a time one look finds room, at most.
const MOST_STARTING: usize = 16;

/// A thread that is about to start, or has started and has not got to its body.
///
/// std maps a signal stack at the beginning of a thread, and ends the process if the kernel refuses that. So `begin` looks
/// whether there is room for the mappings of all threads that have not got to their bodies. The program's mappings meanwhile,
/// or the look of another start, may take that room: then std ends the process all the same. So a runtime starts its first two
/// threads one after the other (`await_starts`), and a thread of the reaper waits for other starts, too.
struct Starting(&'static AtomicUsize);

impl Starting {
    /// # Errors
    /// If there is no room for one more thread.
    fn begin(name: &str, stack: Option<usize>) -> io::Result<(Builder, Starting)> {
        let stack = stack.unwrap_or_else(stack_size);
        // Relaxed: a count. A thread that has got to its body and is still counted only makes the look find more room than is
        // needed.
        let count = starting();
        let starting = count.fetch_add(1, Relaxed) + 1;
        let this = Starting(count);
        look_for_room(stack, starting.min(MOST_STARTING)).map_err(|refused| {
            let limits = match refused.raw_os_error() {
                // The process has asked that its mappings be locked.
                Some(libc::EAGAIN) => "mlockall, ulimit -l",
                _ => "vm.max_map_count, ulimit -v, ulimit -d",
            };
            let text = format!("no room for what a thread maps ({limits}): {refused}");
            io::Error::new(refused.kind(), text)
        })?;
        Ok((Builder::new().name(name.to_owned()).stack_size(stack), this))
    }

    /// Returns the body of the thread.
    fn then<R>(self, body: impl FnOnce() -> R) -> impl FnOnce() -> R {
        move || {
            drop(self);
            body()
        }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        // Relaxed: as in `begin`.
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Waits until no thread is starting, for `limit` at most.
pub(super) fn await_starts(limit: Duration) {
    let (starting, until) = (starting(), clock::now().saturating_add(limit));
    // Relaxed: a count.
    while starting.load(Relaxed) > 0 && clock::now() < until {
        std::thread::yield_now();
    }
}

/// Maps as much as so many threads will, one of them with this stack, in as many mappings, and unmaps that: seven system calls
/// for one thread, which take half the time in which a thread starts and ends. The parts that threads write are made writable,
/// as the kernel counts these separately (`ulimit -d`); a page that is not touched takes no memory. If the process locks what
/// it maps (`mlockall`), which the kernel counts as well (`ulimit -l`), the kernel would touch each page that is made writable:
/// so the mapping is unlocked before that.
fn look_for_room(stack: usize, threads: usize) -> io::Result<()> {
    // SAFETY: the call only returns a number.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as usize;
    let islands = threads * ISLANDS;
    let besides = BESIDES + 2 * least_signal_stack();
    let others = (threads - 1) * (stack_size() + besides);
    let writable = stack + besides + others;
    let bytes = (2 * islands + 1) * page + writable;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh mapping.
    let at = unsafe { libc::mmap(ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0) };
    if at == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    // `madvise` refuses this for memory that is locked, so other processes do without `munlock`, which a sandbox might forbid.
    // SAFETY: the mapping is ours, and nothing uses it.
    unsafe {
        if libc::madvise(at, page, libc::MADV_DONTNEED) != 0 {
            libc::munlock(at, bytes);
        }
    }
    let found = (0..islands).try_for_each(|island| {
        // The last one is large.
        let bytes = if island == islands - 1 { page + writable } else { page };
        let island = at.wrapping_byte_add((2 * island + 1) * page);
        // SAFETY: pages of the mapping, which nothing uses.
        match unsafe { libc::mprotect(island, bytes, libc::PROT_READ | libc::PROT_WRITE) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    });
    // SAFETY: the mapping is ours.
    unsafe { libc::munmap(at, bytes) };
    found
}

/// Returns how large the kernel's frame for a handler, which is on the signal stack, can be: more than usual on CPUs with large
/// registers. Zero if the kernel is too old to say.
pub(super) fn least_signal_stack() -> usize {
    // SAFETY: the call only returns a number.
    unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) as usize }
}

/// Returns std's size for a thread for which no size is asked, but not less than `LEAST_STACK`.
fn stack_size() -> usize {
    static SIZE: OnceLock<usize> = OnceLock::new();
    *SIZE.get_or_init(|| {
        let asked = std::env::var("RUST_MIN_STACK").ok().and_then(|text| text.parse().ok());
        asked.unwrap_or(STACK).max(LEAST_STACK)
    })
}

/// Starts a thread. `stack`: its size, if that is not the usual one.
///
/// # Errors
/// If there is no room for the thread, or the limit on threads is met.
pub(super) fn spawn(
    name: &str,
    stack: Option<usize>,
    body: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let (builder, starting) = Starting::begin(name, stack)?;
    builder.spawn(starting.then(body)).map_err(with_the_limits)
}

/// Does the same as `spawn`, in a scope.
pub(super) fn spawn_scoped<'s, R: Send + 's>(
    scope: &'s Scope<'s, '_>,
    name: &str,
    body: impl FnOnce() -> R + Send + 's,
) -> io::Result<ScopedJoinHandle<'s, R>> {
    let (builder, starting) = Starting::begin(name, None)?;
    builder.spawn_scoped(scope, starting.then(body)).map_err(with_the_limits)
}

/// Starts a thread of the library's. A panic that leaves the thread's body is a broken invariant of the scheduler, as
/// goroutines catch their own: it ends the process, after the panic hook has printed it.
pub(crate) fn start(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    spawn(name, None, || {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
            // The drop of the payload might unwind from here, before the process ends.
            std::mem::forget(payload);
            say(format_args!("fatal error: the scheduler panicked"));
            std::process::abort();
        }
    })
}

/// Adds the limits on the number of threads to an error, if one of them was met.
#[cold]
fn with_the_limits(refused: io::Error) -> io::Error {
    if refused.raw_os_error() != Some(libc::EAGAIN) {
        return refused;
    }
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: room for the answer.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_NPROC, &mut limit) } == 0;
    let of_the_user = match limit.rlim_cur {
        _ if !known => "unknown".to_owned(),
        libc::RLIM_INFINITY => "unlimited".to_owned(),
        most => most.to_string(),
    };
    let text = format!(
        "{refused}: there are as many threads as the user (RLIMIT_NPROC, ulimit -u, is {of_the_user}), the cgroup (pids.max) or \
         the machine (kernel.threads-max) may have"
    );
    io::Error::new(refused.kind(), text)
}

/// Returns `true` if the calling thread is this one, also while it runs its last destructors and std does not know it any more.
pub(crate) fn is_own(thread: &JoinHandle<()>) -> bool {
    // SAFETY: the handle has a thread that was neither joined nor detached; the call compares numbers.
    unsafe { libc::pthread_equal(thread.as_pthread_t(), libc::pthread_self()) != 0 }
}

/// Waits for the end of a thread with all its destructors, until `until` at most; gives a thread back that is late.
///
/// std's `join` has no limit, and its `is_finished` reports only the end of the body. The C library waits with a limit, but on
/// the clock that an operator may set (`pthread_timedjoin_np`), or in glibc alone (`pthread_clockjoin_np`): so this function
/// looks again and again.
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
    // The thread was joined, and the handle's drop would detach it. Its body ends the process rather than unwind, so there is
    // no error.
    let _joined = thread.into_pthread_t();
    Ok(())
}

/// Runs `f` on a thread of its own, while the caller waits. Returns `None` if no thread can be started, or `f` has
/// panicked.
pub(crate) fn run_beside<R: Send>(f: impl FnOnce() -> R + Send) -> Option<R> {
    std::thread::scope(|scope| spawn_scoped(scope, "gmp-beside", f).ok()?.join().ok())
}

/// Returns how many threads the process has. A thread that has ended may still count for a moment.
pub(crate) fn count() -> Option<u32> {
    use std::os::unix::fs::MetadataExt;
    // The directory has a link for each thread, and two as any directory: a system call of a microsecond.
    let links = std::fs::metadata("/proc/self/task").ok()?.nlink();
    u32::try_from(links.checked_sub(2)?).ok().filter(|&count| count > 0)
}

/// How often `futex_wait` and `futex_wake` were called, except by the monitor, whose calls would count the time.
#[cfg(gmp_policies)]
pub(crate) static FUTEX_CALLS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);

#[cfg(gmp_policies)]
fn count_futex_call() {
    if std::thread::current().name() != Some("gmp-sysmon") {
        // Relaxed: a count.
        FUTEX_CALLS.fetch_add(1, Relaxed);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::tests::{child, is_child};

    /// Returns how many pages the kernel has given to the calling thread.
    fn faults() -> i64 {
        // SAFETY: a struct of integers, which the call writes.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            assert_eq!(libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage), 0);
            usage.ru_minflt
        }
    }

    /// Fails by the count when each start of a thread makes the kernel clear some megabytes only to see whether there is room.
    #[test]
    fn a_look_for_room_touches_nothing_where_memory_is_locked() {
        if !is_child() {
            let output = child(module_path!(), "a_look_for_room_touches_nothing_where_memory_is_locked")
                .output()
                .unwrap();
            return assert!(output.status.success(), "{output:?}");
        }
        look_for_room(STACK, 1).unwrap();
        // SAFETY: a mode of this process, for mappings to come.
        if unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0 {
            return println!("mlockall: {}", io::Error::last_os_error());
        }
        let before = faults();
        match look_for_room(STACK, 1) {
            // More than this user may lock.
            Err(refused) if refused.raw_os_error() == Some(libc::EAGAIN) => return println!("{refused}"),
            looked => looked.unwrap(),
        }
        let touched = faults() - before;
        assert!(touched < 16, "{touched} pages");
    }
}
