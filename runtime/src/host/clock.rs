//! The time.

use gmp_timers::Nanos;
use std::time::{Duration, Instant};

/// The clock.
pub(crate) trait Clock {
    /// The monotonic clock, the same for all runtimes and threads.
    fn now() -> Nanos;
    /// Returns the time at which `wait` has passed from now on.
    #[inline]
    fn after(wait: Duration) -> Nanos {
        Self::now().saturating_add(wait)
    }
    /// Converts std's time to this clock.
    fn nanos(at: Instant) -> Nanos;
    /// Converts a time of this clock to std's.
    fn instant(at: Nanos) -> Instant;
}
