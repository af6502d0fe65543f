//! Races that run as often as the machine has time for.

use std::time::{Duration, Instant};

/// Yields the numbers below `count`, or fewer of them when `span` has passed. On a busy machine, a thread that gives its core
/// away may get it back some milliseconds later, each time.
pub fn within(span: Duration, count: usize) -> impl Iterator<Item = usize> {
    let begin = Instant::now();
    (0..count).take_while(move |_| begin.elapsed() < span)
}
