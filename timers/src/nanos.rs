//! The unit of time of this crate and of its callers.

use core::fmt;
use core::time::Duration;

/// A point on the caller's monotonic clock, in nanoseconds since an origin that the caller chose.
///
/// 64 bits hold 584 years. Arithmetic saturates, so a wait of "forever" needs no special case: it ends at [`Nanos::MAX`].
///
/// ```
/// use core::time::Duration;
/// use gmp_timers::Nanos;
///
/// let now = Nanos::from_nanos(1_500_000);
/// assert_eq!(format!("{now:?}"), "1.5ms");
/// assert_eq!(now.saturating_add(Duration::MAX), Nanos::MAX);
/// assert_eq!(now.saturating_add(Duration::from_micros(7)).saturating_since(now), Duration::from_micros(7));
/// ```
#[derive(Copy, Clone, Eq, PartialEq, Ord, PartialOrd, Hash, Default)]
#[repr(transparent)]
pub struct Nanos(u64);

impl Nanos {
    /// The origin of the clock.
    pub const ZERO: Nanos = Nanos(0);

    /// The last point, later than any clock will show.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// Returns the point `nanos` nanoseconds after the origin.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Nanos {
        Nanos(nanos)
    }

    /// Returns the nanoseconds from the origin to this point.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the point `wait` later, or [`Nanos::MAX`] if there is none.
    #[must_use]
    pub const fn saturating_add(self, wait: Duration) -> Nanos {
        let nanos = wait.as_nanos();
        if nanos > u64::MAX as u128 { Nanos::MAX } else { Nanos(self.0.saturating_add(nanos as u64)) }
    }

    /// Returns the time from `earlier` to this point; zero if `earlier` is the later one.
    #[must_use]
    pub const fn saturating_since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// In the largest unit that fits: `1.5ms`, `42s`; [`Nanos::MAX`] is `never`.
impl fmt::Debug for Nanos {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Nanos::MAX => f.pad("never"),
            Nanos(nanos) => Duration::from_nanos(nanos).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    /// Fails by a sum that wraps around to an early point, which would make a wait of forever end at once.
    #[test]
    fn a_wait_past_the_end_of_time_ends_at_max() {
        let late = Nanos::from_nanos(u64::MAX - 1);
        assert_eq!(late.saturating_add(Duration::from_nanos(1)), Nanos::MAX);
        assert_eq!(late.saturating_add(Duration::from_nanos(2)), Nanos::MAX);
        assert_eq!(Nanos::ZERO.saturating_add(Duration::MAX), Nanos::MAX);
        assert_eq!(Nanos::ZERO.saturating_add(Duration::from_nanos(u64::MAX)), Nanos::MAX);
        assert_eq!(Nanos::MAX.saturating_add(Duration::ZERO), Nanos::MAX);
    }

    /// Fails by a huge duration (or a panic in debug) when the two points come in the wrong order.
    #[test]
    fn the_time_since_a_later_point_is_zero() {
        let (early, late) = (Nanos::from_nanos(3), Nanos::from_nanos(10));
        assert_eq!(late.saturating_since(early), Duration::from_nanos(7));
        assert_eq!(early.saturating_since(late), Duration::ZERO);
    }

    /// Fails by a Debug form that prints raw nanoseconds, or that ignores width and precision.
    #[test]
    fn debug_prints_units() {
        assert_eq!(format!("{:?}", Nanos::from_nanos(999)), "999ns");
        assert_eq!(format!("{:?}", Nanos::from_nanos(90_000_000_000)), "90s");
        assert_eq!(format!("{:.1?}", Nanos::from_nanos(1_234_567)), "1.2ms");
        assert_eq!(format!("{:>7?}", Nanos::MAX), "  never");
    }
}
