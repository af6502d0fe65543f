//! The benchmarks of the original, at its parameters.

use gmp::sync::{Condvar, Mutex, WaitGroup};
use gmp::{Runtime, go, yield_now};
use std::fmt;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What an iteration does.
#[derive(Copy, Clone)]
pub struct Work {
    faithful: bool,
    /// So many rounds take 200 ns.
    rounds: u64,
}

/// How much longer the slow thread takes: a sleep that is 100 times as long; or 100 µs instead of 200 ns.
const SLOWER_SLEEP: u32 = 100;
const SLOWER_SPIN: u64 = 500;

fn spin(rounds: u64) {
    for round in 0..rounds {
        black_box(round);
    }
}

impl Work {
    /// Finds out how long the loop takes: the best of many, as others may use the machine.
    pub fn calibrate() -> Self {
        const ROUNDS: u64 = 1_000_000;
        let best = (0..50)
            .map(|_| {
                let begun = Instant::now();
                spin(ROUNDS);
                begun.elapsed()
            })
            .min()
            .unwrap_or_default();
        Work { faithful: false, rounds: (200 * ROUNDS / (best.as_nanos() as u64).max(1)).max(1) }
    }

    pub fn rounds(self) -> u64 {
        self.rounds
    }

    pub fn faithful(mut self) -> Self {
        self.faithful = true;
        self
    }

    pub fn is_faithful(self) -> bool {
        self.faithful
    }

    fn iterate(self, slow: bool) {
        if self.faithful {
            std::thread::sleep(Duration::from_nanos(2) * if slow { SLOWER_SLEEP } else { 1 });
        } else {
            spin(self.rounds * if slow { SLOWER_SPIN } else { 1 });
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.faithful { "faithful" } else { "corrected" })
    }
}

#[derive(Copy, Clone)]
pub enum Bench {
    /// One task spawns 1000 others, of ten iterations each; and yields after each spawn, or not.
    SingleSpawner { yields: bool },
    /// The same, and the first thread on which a task finds itself is slower.
    SlowThread,
    /// A task for each half, down to single elements, of 1024; each waits for its halves by a mutex and a condition variable.
    MergeSort,
    /// Two tasks, which meet before they begin, and so are on different Ps, spawn 10,000 tasks of one kind and 100 of another,
    /// of ten iterations each.
    DifferentSpawners,
    /// A thousand tasks take the same mutex ten times each.
    SingleMutex,
}

const TASKS: usize = 1000;
const ITERATIONS: usize = 10;

/// Counts how often its goroutine is on another thread than when it was asked last.
struct Place<'a> {
    thread: i32,
    migrations: &'a AtomicU64,
}

#[inline(never)]
fn thread() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

impl<'a> Place<'a> {
    /// `from`: where the spawner was.
    fn new(from: i32, migrations: &'a AtomicU64) -> Self {
        let mut place = Place { thread: from, migrations };
        place.look();
        place
    }

    fn look(&mut self) {
        let now = thread();
        if now != self.thread {
            self.thread = now;
            self.migrations.fetch_add(1, Relaxed);
        }
    }
}

/// Returns when two callers are here. Each keeps its P until then.
fn meet(met: &AtomicUsize) {
    met.fetch_add(1, Relaxed);
    while met.load(Relaxed) < 2 {
        spin_loop();
    }
}

/// Ends when all tasks that were added have.
fn task(done: &WaitGroup, migrations: &Arc<AtomicU64>, body: impl FnOnce(&mut Place<'_>) + Send + 'static) {
    done.add(1);
    let (done, migrations, from) = (done.clone(), Arc::clone(migrations), thread());
    drop(go(move || {
        body(&mut Place::new(from, &migrations));
        done.done();
    }));
}

fn iterations(
    work: Work,
    slow: impl Fn() -> bool + Send + 'static,
) -> impl FnOnce(&mut Place<'_>) + Send + 'static {
    move |place| {
        for _ in 0..ITERATIONS {
            work.iterate(slow());
            yield_now();
            place.look();
        }
    }
}

impl Bench {
    pub fn all() -> [Self; 6] {
        [
            Bench::SingleSpawner { yields: false },
            Bench::SingleSpawner { yields: true },
            Bench::SlowThread,
            Bench::MergeSort,
            Bench::DifferentSpawners,
            Bench::SingleMutex,
        ]
    }

    pub fn threads(self) -> usize {
        if matches!(self, Bench::DifferentSpawners) { 8 } else { 4 }
    }

    /// So many that the whole takes a quarter of an hour at most.
    pub fn faithful_runs(self) -> usize {
        if matches!(self, Bench::DifferentSpawners) { 3 } else { 7 }
    }

    pub fn warm_up(self, runtime: &Runtime) {
        runtime.run(|| {
            let done = WaitGroup::new();
            for _ in 0..TASKS {
                done.add(1);
                let done = done.clone();
                drop(go(move || {
                    yield_now();
                    done.done();
                }));
            }
            done.wait();
        });
    }

    /// Returns how often a task went on on another thread.
    pub fn run(self, runtime: &Runtime, work: Work) -> u64 {
        let (done, migrations) = (WaitGroup::new(), Arc::new(AtomicU64::new(0)));
        let counted = Arc::clone(&migrations);
        runtime.run(move || {
            match self {
                Bench::SingleSpawner { yields } => {
                    for _ in 0..TASKS {
                        task(&done, &counted, iterations(work, || false));
                        if yields {
                            yield_now();
                        }
                    }
                }
                Bench::SlowThread => {
                    let first = Arc::new(AtomicI32::new(0));
                    for _ in 0..TASKS {
                        let first = Arc::clone(&first);
                        let slow = move || {
                            let me = thread();
                            first.compare_exchange(0, me, Relaxed, Relaxed).unwrap_or_else(|it| it) == me
                                || first.load(Relaxed) == me
                        };
                        task(&done, &counted, iterations(work, slow));
                    }
                }
                Bench::MergeSort => merge_sort(work, &done, &counted),
                Bench::DifferentSpawners => {
                    let met = Arc::new(AtomicUsize::new(0));
                    for count in [10_000, 100] {
                        let (done_here, migrations) = (done.clone(), Arc::clone(&counted));
                        let met = Arc::clone(&met);
                        task(&done, &counted, move |_| {
                            meet(&met);
                            for _ in 0..count {
                                task(&done_here, &migrations, iterations(work, || false));
                            }
                        });
                    }
                }
                Bench::SingleMutex => {
                    let lock = Arc::new(Mutex::new(0_u64));
                    for _ in 0..TASKS {
                        let lock = Arc::clone(&lock);
                        task(&done, &counted, move |place| {
                            for _ in 0..ITERATIONS {
                                let mut count = lock.lock();
                                work.iterate(false);
                                *count += 1;
                                drop(count);
                                place.look();
                            }
                        });
                    }
                }
            }
            done.wait();
        });
        migrations.load(Relaxed)
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Bench::SingleSpawner { yields: false } => "SingleSpawner 4/1000/10/0",
            Bench::SingleSpawner { yields: true } => "SingleSpawner 4/1000/10/1",
            Bench::SlowThread => "SlowThread 4/1000/10/100",
            Bench::MergeSort => "MergeSort 4/1024",
            Bench::DifferentSpawners => "DifferentSpawners 8/10000/100/10",
            Bench::SingleMutex => "SingleMutex 4/1000/10",
        })
    }
}

/// How many halves are sorted.
#[derive(Default)]
struct Halves {
    sorted: Mutex<usize>,
    one_more: Condvar,
}

fn merge_sort(work: Work, done: &WaitGroup, migrations: &Arc<AtomicU64>) {
    // Some order, the same in each run.
    let values: Vec<u32> = (0..1024_u32).map(|at| at.wrapping_mul(2_654_435_761) >> 12).collect();
    let mut expected = values.clone();
    expected.sort_unstable();
    let sorted = sort(work, values, done, migrations, &mut Place::new(thread(), migrations));
    assert_eq!(sorted, expected);
}

fn sort(
    work: Work,
    values: Vec<u32>,
    done: &WaitGroup,
    migrations: &Arc<AtomicU64>,
    place: &mut Place<'_>,
) -> Vec<u32> {
    if values.len() == 1 {
        work.iterate(false);
        return values;
    }
    let (halves, results) = (Arc::new(Halves::default()), Arc::new(Mutex::new([Vec::new(), Vec::new()])));
    let (low, high) = values.split_at(values.len() / 2);
    for (at, half) in [low.to_vec(), high.to_vec()].into_iter().enumerate() {
        let (halves, results) = (Arc::clone(&halves), Arc::clone(&results));
        let (done_below, counted) = (done.clone(), Arc::clone(migrations));
        task(done, migrations, move |place| {
            let sorted = sort(work, half, &done_below, &counted, place);
            results.lock()[at] = sorted;
            *halves.sorted.lock() += 1;
            halves.one_more.notify_one();
        });
    }
    let mut sorted = halves.sorted.lock();
    while *sorted < 2 {
        halves.one_more.wait(&mut sorted);
    }
    drop(sorted);
    place.look();
    let [low, high] = std::mem::take(&mut *results.lock());
    let (mut low, mut high) = (low.into_iter().peekable(), high.into_iter().peekable());
    let mut merged = Vec::with_capacity(values.len());
    while let Some(next) = match (low.peek(), high.peek()) {
        (Some(one), Some(other)) if one <= other => low.next(),
        (_, Some(_)) => high.next(),
        _ => low.next(),
    } {
        merged.push(next);
    }
    merged
}
