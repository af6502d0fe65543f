//! Sends the time of day at fixed times, over one connection after the other, whether or not anybody reads it.

use crate::connect;
use peer_common::Found;
use peer_common::scale::time_of_day;
use std::io::Write;
use std::time::{Duration, Instant};

/// Longer than a server may take; whoever started this ends it before.
const STAY: Duration = Duration::from_secs(60);

/// So that what the server starts once all have come is under way when the first one is sent.
const BEFORE: Duration = Duration::from_millis(200);

pub fn run(address: &str, count: usize, every: Duration, messages: u64) -> Found {
    peer_common::exact_timers();
    let streams: Vec<_> = (0..count).map(|_| connect(address)).collect();
    let start = Instant::now() + BEFORE;
    for (i, mut stream) in (0..messages / count as u64 * count as u64).zip(streams.iter().cycle()) {
        let due = start + every * i as u32;
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        // A server that is through with its probes has gone.
        if stream.write_all(&time_of_day().to_le_bytes()).is_err() {
            break;
        }
    }
    std::thread::sleep(STAY);
    Found::never()
}
