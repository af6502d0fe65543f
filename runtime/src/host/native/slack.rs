//! Timed waits that end when they are due, on threads that keep the usual timer slack.
//!
//! *The problem.* The kernel may end a timed wait late by the *timer slack* of its thread, to save power: 50 µs by default.
//! `prctl` can give a thread a slack of 1 ns. But threads and processes inherit the slack of the thread that starts them: a
//! child of a goroutine would have 1 ns for all its life, and so would its children.
//!
//! *The obvious way*, to set the slack before each wait and to restore it after, costs two system calls for each wait.
//!
//! *Here* a thread asks the kernel for an end that is sooner by the slack. The kernel sets its timer to the latest moment that
//! the slack allows, so on a machine at rest the wait ends when it is due. The wait ends sooner if another interrupt comes
//! within the last 50 µs; then the caller waits for the rest. A wait that is not longer than the slack can't be shortened by
//! it: for such a wait, or such a rest, the slack is 1 ns meanwhile. So a thread or process that a goroutine starts has the
//! slack that the goroutine's thread had before.
//!
//! The program may change the slack of a thread at any time. The reduction is computed from a value that was read once: a stale
//! value makes a wait end late by the slack that the program has added, or early, with a rest to wait for. The value to restore
//! is read before each change: a stale value would undo what the program has set. So waits of up to 50 µs cost three more
//! system calls, and others none.
//!
//! For `poll` and `epoll` the kernel takes a thousandth of the wait as the slack, if that is more, and 100 ms at most. (It
//! takes a two-hundredth in a process of low priority; there a wait may end late by that.)

use std::cell::Cell;
use std::time::Duration;

/// The kernel's upper limit of the slack, for `poll` and `epoll`.
const MOST: Duration = Duration::from_millis(100);
/// The time to ask for is the whole wait less this part of it, as the kernel adds a thousandth of the time asked for.
const PART: u32 = 1001;
/// The thread's slack has not been read yet.
const UNKNOWN: i64 = -1;
/// The default, if the kernel does not report the slack: then the slack is not set, either.
const USUAL: Duration = Duration::from_micros(50);

std::thread_local! {
    /// The slack of the thread, in nanoseconds.
    static OWN: Cell<i64> = const { Cell::new(UNKNOWN) };
}

/// The call by which a thread waits.
#[derive(Copy, Clone, Eq, PartialEq)]
pub(super) enum By {
    Futex,
    Poll,
}

/// Calls `wait`, which blocks for the time that it is given. That may be less than `limit`: the caller looks at the clock
/// afterwards, and waits for the rest.
pub(super) fn wait<R>(limit: Duration, by: By, wait: impl FnOnce(Duration) -> R) -> R {
    let slack = known().map_or(USUAL, Duration::from_nanos);
    match sooner(limit, slack, by) {
        Some(sooner) => wait(sooner),
        None => {
            let Some(own) = read().filter(|&own| own > 1) else { return wait(limit) };
            set(1);
            let waited = wait(limit);
            set(own);
            waited
        }
    }
}

/// Returns the time to ask for, so that the latest end is `limit`; `None` if there is no such time.
fn sooner(limit: Duration, slack: Duration, by: By) -> Option<Duration> {
    let share = match by {
        By::Futex => Duration::ZERO,
        By::Poll => (limit / PART).min(MOST),
    };
    limit.checked_sub(slack.max(share)).filter(|asked| !asked.is_zero())
}

/// Returns the slack of the thread as it was last read, the first time by a system call; `None` if the kernel does not report
/// it.
fn known() -> Option<u64> {
    if OWN.get() == UNKNOWN {
        return read();
    }
    u64::try_from(OWN.get()).ok().filter(|&own| own > 0)
}

/// Returns the slack of the thread, by a system call; `None` if the kernel does not report it.
#[cold]
fn read() -> Option<u64> {
    // Not by libc's `prctl`, which returns 32 bits of it.
    // SAFETY: no pointers.
    let own = unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
    OWN.set(own.max(0));
    u64::try_from(own).ok().filter(|&own| own > 0)
}

#[cold]
fn set(nanos: u64) {
    // SAFETY: no pointers. If the call is refused the slack stays as it was.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanos as libc::c_ulong) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_ends_at_the_limit_when_the_kernel_takes_all_of_its_slack() {
        let limits = [51, 60, 1_000, 50_000, 200_000, 10_000_000, 3_600_000_000].map(Duration::from_micros);
        for limit in limits {
            let asked = sooner(limit, USUAL, By::Futex).unwrap();
            assert_eq!(asked + USUAL, limit);
            let asked = sooner(limit, USUAL, By::Poll).unwrap();
            let latest = asked + (asked / 1000).min(MOST).max(USUAL);
            let off = latest.abs_diff(limit);
            assert!(off <= Duration::from_nanos(2), "{limit:?}: {latest:?}");
        }
        for limit in [0, 1, 50].map(Duration::from_micros) {
            assert_eq!((sooner(limit, USUAL, By::Futex), sooner(limit, USUAL, By::Poll)), (None, None));
        }
    }

    /// Fails if a wait leaves another slack behind.
    #[test]
    fn a_wait_of_any_length_leaves_the_thread_its_slack() {
        std::thread::spawn(|| {
            let before = now();
            for micros in [1, 40, 50, 51, 500] {
                let mut inside = 0;
                let limit = Duration::from_micros(micros);
                let asked = wait(limit, By::Futex, |asked| {
                    inside = now();
                    asked
                });
                assert_eq!(now(), before);
                // Either less time is asked for, or the slack is 1 ns meanwhile, unless it was so before.
                assert!(asked < limit || inside == 1, "{limit:?}: asked for {asked:?} with {inside}");
            }
        })
        .join()
        .unwrap();
    }

    /// Fails by the slack that the thread had at an earlier wait.
    #[test]
    fn a_slack_that_the_program_sets_stays() {
        std::thread::spawn(|| {
            let short = || wait(Duration::from_micros(1), By::Futex, |_| now());
            short();
            for mine in [200_000, 1_000_000, 7_000, 1] {
                set(mine);
                assert_eq!(short(), 1);
                assert_eq!(now(), mine as i32);
                // From here on a wait asks for an end that is sooner by this.
                let limit = Duration::from_millis(2);
                assert_eq!(wait(limit, By::Futex, |asked| asked), limit - Duration::from_nanos(mine));
            }
        })
        .join()
        .unwrap();
    }

    fn now() -> i32 {
        // SAFETY: no pointers.
        unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) }
    }
}
