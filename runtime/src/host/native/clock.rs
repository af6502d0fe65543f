//! The monotonic clock, in nanoseconds. It begins a century before the process first asked for the time, so that earlier
//! instants have a place on it and convert back unchanged; 484 years are left after that moment.

use gmp_timers::Nanos;
use std::sync::OnceLock;
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

#[inline]
pub(crate) fn now() -> Nanos {
    nanos(Instant::now())
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
