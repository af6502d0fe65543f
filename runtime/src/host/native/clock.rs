//! The monotonic clock, in nanoseconds. It begins a century before the process first asked for the time, so that earlier
//! instants have a place on it and convert back unchanged; 484 years are left after that moment.
//!
//! std's `Instant` is a reading of CLOCK_MONOTONIC, too, and takes four times as many instructions as the kernel's reading
//! itself. So `now` reads that clock. Where the origin stands on it is found out once, by readings of std's between two of
//! ours. The narrowest pair decides, and of that pair the later one: `now` is behind std's by some tens of nanoseconds, and
//! never before. So no timer fires before the `Instant` for which a user has set it.

use gmp_timers::Nanos;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// One origin for all runtimes and plain threads, so that their times can be compared.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let now = Instant::now();
        // Where std can't represent times before the machine's start, the clock begins now.
        now.checked_sub(CENTURY).unwrap_or(now)
    })
}

/// What makes a reading of CLOCK_MONOTONIC a time on this clock, modulo 2^64; zero while that is not known.
static SHIFT: AtomicU64 = AtomicU64::new(0);

#[inline]
pub(crate) fn now() -> Nanos {
    // Relaxed: a number that is good by itself.
    match SHIFT.load(Relaxed) {
        0 => first_now(),
        shift => Nanos::from_nanos(monotonic().wrapping_add(shift)),
    }
}

#[cold]
fn first_now() -> Nanos {
    // Two threads that find it out at once must not differ: a thread's time would go back.
    static FOUND: OnceLock<u64> = OnceLock::new();
    let shift = *FOUND.get_or_init(find_shift);
    SHIFT.store(shift, Relaxed);
    Nanos::from_nanos(monotonic().wrapping_add(shift))
}

#[inline]
fn monotonic() -> u64 {
    let mut read = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec. Each kernel has this clock; std takes it for granted as well.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut read) };
    (read.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(read.tv_nsec as u64)
}

fn find_shift() -> u64 {
    let try_once = |_| {
        let before = monotonic();
        let at = Instant::now();
        let after = monotonic();
        (after - before, nanos(at).as_nanos().wrapping_sub(after))
    };
    let (_width, shift) = (0..16).map(try_once).min().expect("there are some");
    shift
}

/// Converts an instant. An instant before the origin is zero.
pub(crate) fn nanos(at: Instant) -> Nanos {
    let since = at.saturating_duration_since(origin());
    // In 64 bits: `Duration::as_nanos` computes in 128.
    Nanos::from_nanos(
        since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos())),
    )
}

/// The inverse of `nanos`. A time that std can't represent becomes one a century from now.
pub(crate) fn instant(at: Nanos) -> Instant {
    let since = at.saturating_since(Nanos::from_nanos(0));
    origin().checked_add(since).unwrap_or_else(|| Instant::now() + CENTURY)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fails by a time that is later than std's: a timer could then fire before its `Instant`. Or by one that is far behind, as
    /// where std's `Instant` is of another clock than CLOCK_MONOTONIC.
    #[test]
    fn the_clock_is_the_one_of_instants_and_never_before_it() {
        const FAR: Duration = Duration::from_micros(10);
        for _ in 0..10_000 {
            let (before, read, after) = (nanos(Instant::now()), now(), nanos(Instant::now()));
            assert!(before.saturating_since(read) < FAR && read <= after, "{before:?} {read:?} {after:?}");
        }
    }

    /// Fails by a clock that goes back.
    #[test]
    fn time_does_not_go_back() {
        let mut last = now();
        for _ in 0..10_000 {
            let next = now();
            assert!(last <= next, "{last:?} {next:?}");
            last = next;
        }
    }

    /// Fails by a conversion that is not exact both ways.
    #[test]
    fn a_time_becomes_an_instant_and_back() {
        let (at, now) = (Instant::now(), now());
        assert_eq!((instant(nanos(at)), nanos(instant(now))), (at, now));
        assert!(instant(now) <= Instant::now());
    }
}
