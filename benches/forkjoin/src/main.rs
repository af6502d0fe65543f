//! Merge sort and tree sum on gmp and on rayon: the same text, the same cut-offs, at one thread and at two.
//!
//! Each row is measured in seven rounds, in which the two take turns, after one that does not count: the process gets its
//! memory in that. The table has the medians, and the ratio of gmp's to rayon's. Both pools are made once, and sleep while the
//! other works. The time is taken on a worker, so neither the way into the pool nor the way out counts.
//!
//! `gmp-forkjoin --count gmp|rayon --threads N --row TEXT --rounds N` runs one row on one pool, for `perf stat` and callgrind,
//! and prints the median.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// A pool's `join`.
trait Forks {
    fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B);
}

struct Gmp;
struct Rayon;

impl Forks for Gmp {
    #[inline]
    fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
        gmp::join(a, b)
    }
}

impl Forks for Rayon {
    #[inline]
    fn join<A: Send, B: Send>(a: impl FnOnce() -> A + Send, b: impl FnOnce() -> B + Send) -> (A, B) {
        rayon::join(a, b)
    }
}

/// So many steps of a generator: about a nanosecond each.
#[inline(never)]
fn work(steps: u64, seed: u64) -> u64 {
    (0..steps)
        .fold(seed, |x, _| x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
}

/// The sum over a tree of `depth`, whose leaves take `steps`.
fn tree<F: Forks>(depth: u32, steps: u64, seed: u64) -> u64 {
    if depth == 0 {
        return work(steps, seed);
    }
    let (left, right) =
        F::join(|| tree::<F>(depth - 1, steps, 2 * seed), || tree::<F>(depth - 1, steps, 2 * seed + 1));
    left.wrapping_add(right)
}

/// Not inlined: each pool's `merge_sort` would have a copy, of which the compiler made one an instruction an element longer.
#[inline(never)]
fn merge(left: &[u32], right: &[u32], to: &mut [u32]) {
    let (mut l, mut r) = (0, 0);
    for to in to {
        let left_first = r == right.len() || l < left.len() && left[l] <= right[r];
        let (from, at) = if left_first { (left, &mut l) } else { (right, &mut r) };
        *to = from[*at];
        *at += 1;
    }
}

fn merge_sort<F: Forks>(numbers: &mut [u32], spare: &mut [u32], cut_off: usize) {
    if numbers.len() <= cut_off {
        return numbers.sort_unstable();
    }
    let middle = numbers.len() / 2;
    let (left, right) = numbers.split_at_mut(middle);
    let (spare_left, spare_right) = spare.split_at_mut(middle);
    F::join(|| merge_sort::<F>(left, spare_left, cut_off), || merge_sort::<F>(right, spare_right, cut_off));
    merge(left, right, spare);
    numbers.copy_from_slice(spare);
}

/// Numbers without a pattern (Marsaglia's xorshift).
fn numbers(count: usize) -> Vec<u32> {
    let mut x = 0x9e37_79b9_u32;
    let next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        x
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[derive(Copy, Clone)]
enum Load {
    /// Depth, and steps of a leaf.
    Tree(u32, u64),
    /// Numbers, and the cut-off.
    Sort(usize, usize),
    /// Joins one after the other, of nothing.
    Joins(u64),
}

fn run<F: Forks>(load: Load) -> Duration {
    match load {
        Load::Tree(depth, steps) => {
            let start = Instant::now();
            black_box(tree::<F>(depth, steps, 1));
            start.elapsed()
        }
        Load::Sort(count, cut_off) => {
            let mut sorted = numbers(count);
            // Written to: the page faults of fresh memory are not what is measured.
            let mut spare = sorted.clone();
            let start = Instant::now();
            merge_sort::<F>(&mut sorted, &mut spare, cut_off);
            let took = start.elapsed();
            assert!(sorted.is_sorted());
            took
        }
        Load::Joins(count) => {
            let start = Instant::now();
            for n in 0..count {
                black_box(F::join(|| black_box(n), || black_box(n + 1)));
            }
            start.elapsed() / count as u32
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

/// Steps that take `time`.
fn steps_of(time: Duration) -> u64 {
    let start = Instant::now();
    black_box(work(10_000_000, black_box(1)));
    (10_000_000.0 * time.as_secs_f64() / start.elapsed().as_secs_f64()) as u64
}

/// The rows of the table.
fn rows(less: u32) -> [(&'static str, Load); 7] {
    let [tenth, one, twenty] = [100, 1000, 20_000].map(|nanos| steps_of(Duration::from_nanos(nanos)));
    let count = 1 << (20 - less);
    [
        ("un-stolen join", Load::Joins(2_000_000 >> less)),
        ("tree sum, leaves of 0.1 µs", Load::Tree(20 - less, tenth)),
        ("tree sum, leaves of 1 µs", Load::Tree(17 - less, one)),
        ("tree sum, leaves of 20 µs", Load::Tree(13 - less, twenty)),
        // 0.1, 1 and about 20 µs, too.
        ("merge sort, cut-off 16", Load::Sort(count, 16)),
        ("merge sort, cut-off 96", Load::Sort(count, 96)),
        ("merge sort, cut-off 1500", Load::Sort(count, 1500)),
    ]
}

fn pools(threads: usize) -> (gmp::Runtime, rayon::ThreadPool) {
    // SAFETY: no goroutine keeps a thread-bound value across a blocking call.
    let runtime = unsafe { gmp::Runtime::builder().procs(threads).build() }.expect("a runtime");
    (runtime, rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool"))
}

/// The value behind a flag.
fn value(args: &[String], flag: &str) -> Option<String> {
    let at = args.iter().position(|arg| arg == flag)?;
    Some(args.get(at + 1).unwrap_or_else(|| panic!("{flag} wants a value")).clone())
}

/// Runs one row on one pool, some times.
fn count(args: &[String], pool: &str) {
    let number =
        |flag, otherwise| value(args, flag).map_or(otherwise, |text| text.parse().expect("a number"));
    let row = value(args, "--row").expect("--row TEXT");
    let (name, load) = rows(0).into_iter().find(|(name, _)| name.contains(&row)).expect("a row of the table");
    let (runtime, rayon) = pools(number("--threads", 1));
    let rounds = (0..number("--rounds", 7)).map(|_| match pool {
        "gmp" => runtime.run(move || run::<Gmp>(load)),
        _ => rayon.install(|| run::<Rayon>(load)),
    });
    println!("{name}, {pool}: median {:.1?}", median(rounds.collect()));
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    if let Some(pool) = value(&args, "--count") {
        return count(&args, &pool);
    }
    let short = args.iter().any(|arg| arg == "--short");
    let rounds = 7;
    let loads = rows(if short { 3 } else { 0 });
    println!("| program | threads | gmp | rayon | gmp / rayon |");
    println!("| --- | --- | --- | --- | --- |");
    let mut worst = 0.0_f64;
    for threads in [1, 2] {
        let (runtime, pool) = pools(threads);
        for (name, load) in loads {
            if threads > 1 && matches!(load, Load::Joins(_)) {
                // With a thread that has nothing to do some are stolen.
                continue;
            }
            let (mut by_gmp, mut by_rayon) = (Vec::new(), Vec::new());
            for round in 0..=rounds {
                let both: [&mut dyn FnMut(); 2] =
                    [&mut || by_gmp.push(runtime.run(move || run::<Gmp>(load))), &mut || {
                        by_rayon.push(pool.install(|| run::<Rayon>(load)))
                    }];
                let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
                for which in order {
                    both[which]();
                }
            }
            let [ours, theirs] = [by_gmp, by_rayon].map(|times| median(times[1..].to_vec()));
            let ratio = ours.as_secs_f64() / theirs.as_secs_f64();
            worst = worst.max(ratio);
            println!("| {name} | {threads} | {ours:.1?} | {theirs:.1?} | {ratio:.2} |");
        }
    }
    println!("\nThe highest ratio: {worst:.2}.");
}
