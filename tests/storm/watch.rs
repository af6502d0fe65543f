//! Which workers make progress, what was done, and what the process says when something goes wrong.

use crate::worker::OPERATIONS;
use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// Main, and each worker.
const MOST: usize = 64;
const LIMIT: Duration = Duration::from_secs(60);
/// A worker that hangs may keep the lock that the thread that reports it needs.
const LAST_WORDS: Duration = Duration::from_secs(20);
const NOTHING: usize = usize::MAX;

/// Statistics and a hint, so each access is Relaxed.
struct Beat {
    count: AtomicU64,
    /// The operation, or `NOTHING` if the worker is not expected to go on.
    doing: AtomicUsize,
}

static BEATS: [Beat; MOST] =
    [const { Beat { count: AtomicU64::new(0), doing: AtomicUsize::new(NOTHING) } }; MOST];
static COUNTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static FAILED: Mutex<bool> = Mutex::new(false);
/// What main does, and of which round.
static STAGE: Mutex<(String, String)> = Mutex::new((String::new(), String::new()));

/// Notes that this worker begins that operation.
pub fn begins(who: usize, operation: usize) {
    BEATS[who].doing.store(operation, Relaxed);
    BEATS[who].count.fetch_add(1, Relaxed);
    COUNTS[operation].fetch_add(1, Relaxed);
}

/// Notes, as it is dropped, that a worker has ended, in whichever way.
pub struct Watched(pub usize);

impl Drop for Watched {
    fn drop(&mut self) {
        BEATS[self.0].doing.store(NOTHING, Relaxed);
    }
}

/// Notes that main begins a round.
pub fn round(text: String) {
    STAGE.lock().unwrap().0 = text;
}

/// Notes that main begins this part of the round, which has to end in time.
pub fn stage(text: &str) {
    STAGE.lock().unwrap().1 = text.to_owned();
    BEATS[0].doing.store(0, Relaxed);
    BEATS[0].count.fetch_add(1, Relaxed);
}

/// Returns the operations, and how often each was begun.
pub fn counts() -> String {
    let mut text = String::new();
    for (index, operation) in OPERATIONS.iter().enumerate() {
        let _to_a_string = write!(text, "{} {}, ", operation.name, COUNTS[index].load(Relaxed));
        if index % 6 == 5 {
            text.push('\n');
        }
    }
    text
}

/// Returns how many operations were begun so far.
pub fn operations() -> u64 {
    COUNTS.iter().map(|count| count.load(Relaxed)).sum()
}

fn say(text: &str) {
    let _nobody_to_tell = std::io::stderr().write_all(text.as_bytes());
}

/// Prints where the storm was and what all goroutines wait for, and ends the process.
fn end(what: &str) -> ! {
    let (round, stage) =
        STAGE.lock().map_or_else(|poisoned| poisoned.into_inner().clone(), |stage| stage.clone());
    say(&format!("\nstorm: {what}\n{round}, {stage}\n{}\n", counts()));
    let (told, hear) = mpsc::channel();
    thread::spawn(move || told.send(gmp::dump()));
    say(&hear.recv_timeout(LAST_WORDS).unwrap_or_else(|_| "there is no dump in time\n".to_owned()));
    std::process::abort();
}

/// Starts the watchdog. A panic that is not deliberate ends the process, with the seed.
pub fn start() {
    assert!(OPERATIONS.len() <= MOST, "there is a count for each operation");
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        // Only the first panic is told; those that follow may come of it.
        if !std::mem::replace(&mut *FAILED.lock().unwrap(), true) {
            before(info);
            end("a panic that is none of its own");
        }
    }));
    thread::spawn(|| {
        let mut seen = [(0, Instant::now()); MOST];
        loop {
            thread::sleep(Duration::from_millis(500));
            for (who, (beat, seen)) in BEATS.iter().zip(&mut seen).enumerate() {
                let (count, doing) = (beat.count.load(Relaxed), beat.doing.load(Relaxed));
                if count != seen.0 || doing == NOTHING {
                    *seen = (count, Instant::now());
                } else if seen.1.elapsed() > LIMIT {
                    let what = if who == 0 { "main" } else { OPERATIONS[doing].name };
                    end(&format!("worker {who} has made no progress for {LIMIT:?}: {what}"));
                }
            }
        }
    });
}
