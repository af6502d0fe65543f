//! The monotonic clock, in nanoseconds since the runtime was built.

use gmp_timers::Nanos;
use std::time::Instant;

/// A clock that starts at zero.
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Clock(Instant::now())
    }

    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.nanos(Instant::now())
    }

    /// What has passed before the clock's start is zero.
    pub(crate) fn nanos(&self, at: Instant) -> Nanos {
        Nanos::from_nanos(0).saturating_add(at.saturating_duration_since(self.0))
    }
}
