//! The time.

use gmp_timers::Nanos;
use std::time::Instant;

/// The clock.
pub(crate) trait Clock {
    /// The monotonic clock, the same for all runtimes and threads.
    fn now() -> Nanos;
    /// A time of std's on that clock.
    fn nanos(at: Instant) -> Nanos;
    /// A time of that clock as std's.
    fn instant(at: Nanos) -> Instant;
}
