//! What the programs of `benches/scale` share: when all of a measurement have begun and ended, and the times of the probes.

use crate::Found;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime};

/// The start of all of a measurement, which is the arrival of the last one, and the end of all.
#[derive(Debug)]
pub struct Lines {
    of: u64,
    arrived: AtomicU64,
    left: AtomicU64,
    start: OnceLock<Instant>,
    end: OnceLock<Instant>,
}

impl Lines {
    pub fn new(of: u64) -> Arc<Lines> {
        let none = || AtomicU64::new(0);
        Arc::new(Lines { of, arrived: none(), left: none(), start: OnceLock::new(), end: OnceLock::new() })
    }

    pub fn arrive(&self) {
        if self.arrived.fetch_add(1, AcqRel) + 1 == self.of {
            self.start.get_or_init(Instant::now);
        }
    }

    /// Whether all have arrived.
    pub fn open(&self) -> bool {
        self.arrived.load(Acquire) == self.of
    }

    pub fn leave(&self) {
        if self.left.fetch_add(1, AcqRel) + 1 == self.of {
            self.end.get_or_init(Instant::now);
        }
    }

    /// Nanoseconds for each of `n` operations between the two, once all have left.
    pub fn per_op(&self, n: u64) -> Found {
        let (start, end) = (self.start.get().expect("all arrived"), self.end.get().expect("all left"));
        crate::per_op(end.duration_since(*start), n)
    }
}

/// What was taken to create, and to wake, `n` in all, each.
pub fn created_and_woken(create: Duration, wake: Duration, n: u64) -> Found {
    let each = |took: Duration| took.as_nanos() as f64 / n as f64;
    Found::new(each(create)).with("wake", each(wake))
}

/// How many operations for each of `size`, and at least one: `n` in all, about.
pub fn rounds(n: u64, size: u64) -> u64 {
    (n / size).max(1)
}

/// The last due time of `size` timers, of which one a microsecond is due, lies so far behind the first one's.
pub fn spread(size: u64) -> u64 {
    size * 1_000
}

/// Enough for all of `size` timers to be armed before the first one is due, in nanoseconds.
pub fn lead(size: u64) -> u64 {
    1_000_000 + size * 500
}

/// The time of day, in nanoseconds: what the sender of a probe and its receiver, in two processes, have in common.
pub fn time_of_day() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.expect("the clock is set").as_nanos() as u64
}

/// How many connections carry probes.
pub const PROBES: usize = 64;

/// The bytes of one, a time of day.
pub const STAMP: usize = 8;

/// What has passed since what was read was sent.
pub fn since(stamp: [u8; STAMP]) -> u64 {
    time_of_day().saturating_sub(u64::from_le_bytes(stamp))
}

/// Of the waits of all probes, in nanoseconds: the 99.9th percentile, and others, in microseconds.
pub fn percentiles(mut waits: Vec<u64>) -> Found {
    waits.sort_unstable();
    let at = |share: f64| waits[((waits.len() - 1) as f64 * share) as usize] as f64 / 1e3;
    Found::new(at(0.999))
        .with("p50", at(0.5))
        .with("p99", at(0.99))
        .with("max", at(1.0))
        .with("probes", waits.len() as f64)
}
