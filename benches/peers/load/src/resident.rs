//! The server's memory for each connection that says nothing: one that has said nothing yet, and one that has had a message
//! echoed and waits for the next.

use crate::process::Process;
use crate::{connect, exchange};
use peer_common::Found;
use std::fs::File;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Connections that are served before the first look, so that what is needed once does not count.
const BEFORE: usize = 200;
/// The server rests when its memory has been the same for so long.
const RESTS: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(15);

pub fn run(address: &str, server: &Process, count: usize) -> Found {
    let talk = |streams: &[File]| streams.iter().enumerate().for_each(|(at, stream)| exchange(stream, at));
    let open = |count: usize| (0..count).map(|_| connect(address)).collect::<Vec<_>>();
    let first = open(BEFORE);
    talk(&first);
    let [resident, tables] = at_rest(server);
    let each = |now: u64, then: u64| (now as f64 - then as f64) / count as f64;
    let streams = open(count);
    let [silent, silent_tables] = at_rest(server);
    talk(&streams);
    let [talked, talked_tables] = at_rest(server);
    Found::new(each(silent + silent_tables, resident + tables))
        .with("resident", each(silent, resident))
        .with("talked", each(talked + talked_tables, resident + tables))
        .with("talked_resident", each(talked, resident))
}

/// Resident memory and page tables, once they do not change any more.
fn at_rest(server: &Process) -> [u64; 2] {
    let look = || [server.resident(), server.page_tables()];
    let (begun, mut last, mut since) = (Instant::now(), look(), Instant::now());
    while since.elapsed() < RESTS && begun.elapsed() < LIMIT {
        sleep(Duration::from_millis(100));
        let now = look();
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    last
}
