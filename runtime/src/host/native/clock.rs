//! The monotonic clock, in nanoseconds. It begins a century before the process first asked for the time, so earlier instants
//! have a place on it and convert back unchanged; 484 years are left after that moment.
//!
//! std reads CLOCK_MONOTONIC, and then checks and computes for longer than the kernel's reading takes. So `now` reads that
//! clock itself, if the origin's place on it is known. The place has to be right to the nanosecond: otherwise a timer might
//! fire before the time that a user has given as an `Instant`. std does not say what an `Instant` holds, but does hash it. The
//! hashed values are believed if they lie between two readings of CLOCK_MONOTONIC; otherwise `now` uses std.

use gmp_timers::Nanos;
use std::hash::{Hash, Hasher};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// One origin for all runtimes and plain threads, so that their times can be compared.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let now = Instant::now();
        // If std can't represent times before the machine's start, the clock begins now.
        now.checked_sub(CENTURY).unwrap_or(now)
    })
}

/// The difference between this clock and CLOCK_MONOTONIC, modulo 2^64; zero while it is not known.
static SHIFT: AtomicU64 = AtomicU64::new(0);

#[inline]
pub(crate) fn now() -> Nanos {
    // Relaxed: a number that is valid by itself.
    let shift = SHIFT.load(Relaxed);
    if shift != 0
        && let Some(read) = monotonic()
    {
        return Nanos::from_nanos(read.wrapping_add(shift));
    }
    now_by_std()
}

#[cold]
fn now_by_std() -> Nanos {
    static LOOKED: OnceLock<()> = OnceLock::new();
    LOOKED.get_or_init(|| {
        if let Some(shift) = find_shift() {
            SHIFT.store(shift, Relaxed);
        }
    });
    nanos(Instant::now())
}

#[inline]
fn monotonic() -> Option<u64> {
    let mut read = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut read) };
    (answer == 0).then(|| (read.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(read.tv_nsec as u64))
}

fn find_shift() -> Option<u64> {
    let before = monotonic()?;
    let at = Instant::now();
    let after = monotonic()?;
    let mut seen = Seen::default();
    at.hash(&mut seen);
    let Seen { secs: Some(secs), nanos: Some(part), others: false } = seen else { return None };
    let held = u64::try_from(secs).ok()?.checked_mul(1_000_000_000)?.checked_add(u64::from(part))?;
    (before..=after).contains(&held).then(|| nanos(at).as_nanos().wrapping_sub(held))
}

/// The values that an `Instant` feeds to a hasher: seconds and nanoseconds.
#[derive(Default)]
struct Seen {
    secs: Option<i64>,
    nanos: Option<u32>,
    others: bool,
}

impl Hasher for Seen {
    fn write_i64(&mut self, secs: i64) {
        self.others |= self.secs.replace(secs).is_some();
    }
    fn write_u32(&mut self, nanos: u32) {
        self.others |= self.nanos.replace(nanos).is_some();
    }
    fn write(&mut self, _: &[u8]) {
        self.others = true;
    }
    fn finish(&self) -> u64 {
        0
    }
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

    /// Fails by a time that is before one read earlier, or after one read later: a timer could then fire before its
    /// `Instant`. Or by std's `Instant` having become something else, so that each reading takes the long way.
    #[test]
    fn the_clock_is_the_one_of_instants() {
        now();
        assert_ne!(SHIFT.load(Relaxed), 0, "not CLOCK_MONOTONIC, or not hashed");
        for _ in 0..10_000 {
            let (before, read, after) = (nanos(Instant::now()), now(), nanos(Instant::now()));
            assert!(before <= read && read <= after, "{before:?} {read:?} {after:?}");
        }
    }

    /// Fails by a conversion that is not exact both ways.
    #[test]
    fn a_time_becomes_an_instant_and_back() {
        let (at, now) = (Instant::now(), now());
        assert_eq!((instant(nanos(at)), nanos(instant(now))), (at, now));
        assert!(instant(now) >= at && instant(now) <= Instant::now());
    }
}
