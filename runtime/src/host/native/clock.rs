//! The monotonic clock, in nanoseconds since a century before the process first asked for the time: so instants of before that
//! have a place on it, too, and come back from it as they were. 484 years are left after it.

use gmp_timers::Nanos;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

const CENTURY: Duration = Duration::from_secs(100 * 365 * 86_400);

/// One origin for all runtimes and plain threads, so that a time of one is a time of the other.
fn origin() -> Instant {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    *ORIGIN.get_or_init(|| {
        let now = Instant::now();
        // Where std can't tell times of before the machine's start, the clock begins now.
        now.checked_sub(CENTURY).unwrap_or(now)
    })
}

#[inline]
pub(crate) fn now() -> Nanos {
    nanos(Instant::now())
}

/// What lies before the origin is zero.
pub(crate) fn nanos(at: Instant) -> Nanos {
    let since = at.saturating_duration_since(origin());
    // In 64 bits: `Duration::as_nanos` has twice as many.
    Nanos::from_nanos(
        since.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(since.subsec_nanos())),
    )
}

/// The way back. A time that std can't tell is one a century from now.
pub(crate) fn instant(at: Nanos) -> Instant {
    let since = at.saturating_since(Nanos::from_nanos(0));
    origin().checked_add(since).unwrap_or_else(|| Instant::now() + CENTURY)
}
