//! The coarse time, which a park records for dumps.
//!
//! Reading the clock takes longer than the atomics of a park and its wake-up together (`docs/performance.md`, "Cost model"). So
//! a park records a word of the runtime instead. Ms that come back from a sleep bring the word up to date, and so does the
//! monitor, which looks every few milliseconds as long as a P is held: so the word is right to some 10 ms. If two threads write
//! it at once, it can go back by as much as one of them was late; no code relies on its order.

use crate::host::Host;
use crate::sched::Sched;
use gmp_timers::Nanos;

/// The word is written at most this often, because all Ps read it.
const STEP: u64 = 1_000_000;

impl<H: Host> Sched<H> {
    /// Returns the time that a park records: right to some 10 ms.
    #[inline(always)]
    pub(crate) fn coarse_now(&self) -> Nanos {
        Nanos::from_nanos(self.coarse_now.get())
    }

    /// Brings the coarse time up to date.
    pub(crate) fn refresh_coarse_clock(&self) {
        // A model's clock stands still.
        if H::MONITORED {
            self.set_coarse_clock(H::now());
        }
    }

    /// As `refresh_coarse_clock`, for a caller that has read the clock.
    pub(crate) fn set_coarse_clock(&self, now: Nanos) {
        if now.as_nanos().saturating_sub(self.coarse_now.get()) >= STEP {
            self.coarse_now.set(now.as_nanos());
        }
    }
}
