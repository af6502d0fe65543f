//! What the programs of all peers share: which workload, how it is timed, how its result is told.
//!
//! A program runs one workload: `peer-x WORKLOAD --procs P [--n N]`. It is timed inside its process, on the main
//! goroutine, after a warm-up of a tenth. What it prints is one line of JSON, which `run` reads.

use std::fmt::Write;
use std::time::{Duration, Instant};

/// The command line.
#[derive(Clone, Debug)]
pub struct Args {
    pub workload: String,
    pub procs: usize,
    pub n: Option<u64>,
}

impl Args {
    /// Reads it; a program that is called wrongly ends with status 2.
    pub fn from_env() -> Args {
        let mut args = std::env::args().skip(1);
        let usage = || -> ! {
            eprintln!("usage: WORKLOAD --procs P [--n N]");
            std::process::exit(2)
        };
        let Some(workload) = args.next() else { usage() };
        let mut read = Args { workload, procs: 1, n: None };
        while let Some(option) = args.next() {
            let value = args.next().and_then(|value| value.parse::<u64>().ok());
            match (option.as_str(), value) {
                ("--procs", Some(procs)) => read.procs = procs as usize,
                ("--n", Some(n)) => read.n = Some(n),
                _ => usage(),
            }
        }
        read
    }

    /// How many operations.
    pub fn n(&self, default: u64) -> u64 {
        self.n.unwrap_or(default)
    }

    /// Ends a program that has no such workload.
    pub fn unknown(&self) -> ! {
        eprintln!("no workload is called {}", self.workload);
        std::process::exit(2)
    }
}

/// What a workload found: a value, and what else is worth keeping.
#[derive(Debug)]
pub struct Found {
    json: String,
}

impl Found {
    pub fn new(value: f64) -> Found {
        Found { json: format!("{{\"value\": {value}") }
    }

    /// It did not come to an end in time.
    pub fn never() -> Found {
        Found { json: "{\"value\": null".to_owned() }
    }

    pub fn with(mut self, name: &str, value: f64) -> Found {
        write!(self.json, ", \"{name}\": {value}").expect("a String takes everything");
        self
    }

    pub fn print(&self) {
        println!("{}}}", self.json);
    }
}

/// How long things took, by name: the longest of all, and the median and 99.9th percentile of each, in milliseconds.
pub fn waits_of_each<const N: usize>(mut of: [(&str, Vec<Duration>); N]) -> Found {
    let ms = |took: Duration| took.as_secs_f64() * 1e3;
    of.iter_mut().for_each(|(_, took)| took.sort());
    let longest = of.iter().filter_map(|(_, took)| took.last()).max().expect("something took time");
    of.iter().fold(Found::new(ms(*longest)), |found, (name, took)| {
        let at = |share: f64| ms(took[(took.len() as f64 * share) as usize]);
        found.with(&format!("{name}_p50"), at(0.5)).with(&format!("{name}_p999"), at(0.999))
    })
}

/// Nanoseconds for each of `n` operations, after a tenth of them as a warm-up.
pub fn timed(n: u64, mut run: impl FnMut(u64)) -> Found {
    run((n / 10).max(1));
    let start = Instant::now();
    run(n);
    per_op(start.elapsed(), n)
}

pub fn per_op(took: Duration, n: u64) -> Found {
    Found::new(took.as_nanos() as f64 / n as f64)
}

/// The sum of 0..n.
pub fn sum_below(n: u64) -> u64 {
    n * n.saturating_sub(1) / 2
}

/// How much longer sleeps of a millisecond take, from the times that they took: the median, in microseconds.
pub fn oversleep(mut took: Vec<Duration>) -> Found {
    took.sort();
    let over = |at: usize| (took[at].as_nanos() as f64 - 1e6) / 1e3;
    Found::new(over(took.len() / 2)).with("p99", over(took.len() * 99 / 100))
}

/// What was waited for a start beside hogs: the median, in milliseconds.
pub fn waits(mut waits: Vec<Duration>) -> Found {
    waits.sort();
    let millis = |at: usize| waits[at].as_secs_f64() * 1e3;
    Found::new(millis(waits.len() / 2)).with("max", millis(waits.len() - 1))
}

/// Resident memory and page tables, in bytes.
pub fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let kb = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).expect("a known name");
        line.split_whitespace().nth(1).and_then(|kb| kb.parse::<u64>().ok()).expect("kilobytes")
    };
    (kb("VmRSS:") + kb("VmPTE:")) * 1024
}

/// Raises the limit of descriptors as far as it goes.
pub fn many_descriptors() {
    // SAFETY: both calls get a struct of ours.
    unsafe {
        let mut limit = std::mem::zeroed::<libc::rlimit>();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit);
        limit.rlim_cur = limit.rlim_max;
        libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
    }
}

/// Where a server of Unix sockets listens; whoever started the program removes it.
pub fn socket_path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("gmp-peer-{}", std::process::id()))
}

/// A thread's own: timers that are not rounded up.
pub fn exact_timers() {
    // SAFETY: it changes a number of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}

/// Numbers in no order, the same each time (Marsaglia's xorshift).
pub fn unsorted(n: u64) -> Vec<u64> {
    let mut x = 0x2545_F491_4F6C_DD1D_u64;
    let next = |_| {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..n).map(next).collect()
}

/// Below this many a merge sort does not fork.
pub const CUTOFF: usize = 1024;

/// Sorts what is not forked. It and the merge are calls, so that in all programs of this language they are the same
/// instructions: inlined, they took up to a tenth more or less, by where they happened to be placed.
#[inline(never)]
pub fn sort_leaf(numbers: &mut [u64]) {
    numbers.sort_unstable();
}

/// Merges two sorted halves of `from` into `to`.
#[inline(never)]
pub fn merge(from: &[u64], middle: usize, to: &mut [u64]) {
    let (mut left, mut right) = (0, middle);
    for place in to {
        let takes_left = right == from.len() || (left < middle && from[left] <= from[right]);
        let at = if takes_left { &mut left } else { &mut right };
        *place = from[*at];
        *at += 1;
    }
}

/// Times a sort of `n` numbers, in milliseconds, after one as a warm-up, and looks at the result.
pub fn timed_sort(n: u64, sort: impl Fn(&mut [u64], &mut [u64])) -> Found {
    let input = unsorted(n);
    let mut space = vec![0; input.len()];
    let mut run = || {
        let mut numbers = input.clone();
        let start = Instant::now();
        sort(&mut numbers, &mut space);
        let took = start.elapsed();
        assert!(numbers.is_sorted(), "the sort did not sort");
        assert_eq!(sum(&numbers), sum(&input));
        took
    };
    run();
    Found::new(run().as_secs_f64() * 1e3)
}

fn sum(numbers: &[u64]) -> u64 {
    numbers.iter().fold(0, |sum, &number| sum.wrapping_add(number))
}
