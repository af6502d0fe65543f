//! What the programs of all peers share: which workload, how it is timed, how its result is told.
//!
//! A program runs one workload: `peer-x WORKLOAD --procs P [--n N] [--size S]`. It is timed inside its process, on the main
//! goroutine, after a warm-up of a tenth. What it prints is one line of JSON, which `run` reads.

pub mod scale;
pub mod shapes;

use std::fmt::Write;
use std::future::poll_fn;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// The command line.
#[derive(Clone, Debug)]
pub struct Args {
    pub workload: String,
    pub procs: usize,
    pub n: Option<u64>,
    /// Of a curve's point.
    pub size: Option<u64>,
}

impl Args {
    /// Reads it; a program that is called wrongly ends with status 2.
    pub fn from_env() -> Args {
        let mut args = std::env::args().skip(1);
        let usage = || -> ! {
            eprintln!("usage: WORKLOAD --procs P [--n N] [--size S]");
            std::process::exit(2)
        };
        let Some(workload) = args.next() else { usage() };
        let mut read = Args { workload, procs: 1, n: None, size: None };
        while let Some(option) = args.next() {
            let value = args.next().and_then(|value| value.parse::<u64>().ok());
            match (option.as_str(), value) {
                ("--procs", Some(procs)) => read.procs = procs as usize,
                ("--n", Some(n)) => read.n = Some(n),
                ("--size", Some(size)) => read.size = Some(size),
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

    /// Takes what another one has found under a name each, its value under this one.
    pub fn and(mut self, name: &str, other: Found) -> Found {
        let others = other.json.strip_prefix("{\"value\": ").expect("each begins with its value");
        write!(self.json, ", \"{name}\": {others}").expect("a String takes everything");
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

/// As `timed`, and the process's CPU time for each as `cpu`.
pub fn timed_with_cpu(n: u64, mut run: impl FnMut(u64)) -> Found {
    let mut took = 0.0;
    let found = timed(n, |n| {
        let before = cpu();
        run(n);
        took = cpu() - before;
    });
    found.with("cpu", took / n as f64)
}

/// The process's CPU time so far, in nanoseconds.
pub fn cpu() -> f64 {
    // SAFETY: a struct of integers, which the call fills.
    let usage = unsafe {
        let mut usage = std::mem::zeroed::<libc::rusage>();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    [usage.ru_utime, usage.ru_stime]
        .map(|time| time.tv_sec as f64 * 1e9 + time.tv_usec as f64 * 1e3)
        .iter()
        .sum::<f64>()
}

/// A clock of the wall and of the process's CPUs, from its making on.
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    cpu: f64,
}

impl Clock {
    #[expect(clippy::new_without_default, reason = "it begins to run")]
    pub fn new() -> Clock {
        Clock { cpu: cpu(), start: Instant::now() }
    }

    /// What each of `n` took until now: its CPU time as `cpu`.
    pub fn per_op(&self, n: u64) -> Found {
        let took = self.start.elapsed();
        per_op(took, n).with("cpu", (cpu() - self.cpu) / n as f64)
    }
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

/// How many connections may wait to be accepted, as Go and gmp have it from the kernel. What others leave to their users is
/// 128, or 1024, and a storm loses connections at that.
pub const BACKLOG: i32 = 4096;

/// Gives a listener room for so many.
pub fn widen(listener: &impl std::os::fd::AsRawFd) {
    // SAFETY: no pointers.
    let done = unsafe { libc::listen(listener.as_raw_fd(), BACKLOG) };
    assert_eq!(done, 0, "listen: {}", std::io::Error::last_os_error());
}

/// Where a server of Unix sockets listens; whoever started the program removes it.
pub fn socket_path() -> std::path::PathBuf {
    std::env::temp_dir().join(format!("gmp-peer-{}", std::process::id()))
}

/// How many read files at once.
const READERS: usize = 1000;

/// How many bytes a read of a file is.
const PAGE: usize = 4096;
/// And so many of them are a file.
const PAGES: usize = 16;

/// A file for each reader, all of its bytes in the page cache; a hundred in all, which are gone with the last handle.
pub fn cached_files() -> Vec<std::fs::File> {
    let folder = std::env::temp_dir();
    let path = |number| folder.join(format!("gmp-peer-{}-{number}", std::process::id()));
    let bytes: Vec<u8> = (0..PAGES).flat_map(|page| [page as u8; PAGE]).collect();
    (0..100).for_each(|number| std::fs::write(path(number), &bytes).expect("the folder takes it"));
    let open = |reader| std::fs::File::open(path(reader % 100)).expect("it was written");
    let files: Vec<_> = (0..READERS).map(open).collect();
    (0..100).for_each(|number| std::fs::remove_file(path(number)).expect("it is there"));
    assert!(files.iter().all(
        |mut file| std::io::copy(&mut file, &mut std::io::sink()).expect("a read") == bytes.len() as u64
    ));
    files
}

/// What each reader does: so many reads, by `read`, which reads a page from there on.
pub fn read_pages(reads: u64, mut read: impl FnMut(&mut [u8], u64)) {
    let mut page = [0; PAGE];
    for i in 0..reads {
        let at = i as usize % PAGES;
        read(&mut page, (at * PAGE) as u64);
        assert!(page[0] == at as u8 && page[PAGE - 1] == at as u8);
    }
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

/// What one waits for by a future, always with the same waker, and another gives.
#[derive(Debug, Default)]
pub struct Signal {
    set: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Signal {
    /// Takes what was given.
    pub async fn take(&self) {
        poll_fn(|cx| {
            self.waker.get_or_init(|| cx.waker().clone());
            // SeqCst: either this sees what was given, or the giver sees the waker.
            if self.set.swap(false, SeqCst) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    pub fn give(&self) {
        self.set.store(true, SeqCst);
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// A future that is polled `n` times more, each time as it has woken itself.
pub async fn wake_itself(mut n: u64) {
    poll_fn(|cx| {
        if n == 0 {
            return Poll::Ready(());
        }
        n -= 1;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

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
